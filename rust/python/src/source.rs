//! Input from a file descriptor, whatever protocol it speaks: waiting and decoding without the GIL, signals alive.
//!
//! One call to `read` goes round this loop without the GIL until there is something that Python must hear of:
//!
//! ```text
//!         ┌────────────── read(2) into the decoder ◀──────────────┐
//!         ▼                                                       │ readable
//!     next item?  ── no ──▶ poll(2) on [descriptor, wake-up descriptor], until the deadline
//!         │ yes                 │ signal (EINTR or wake-up)   │ deadline        │ end of input
//!         ▼                     ▼                             ▼                 ▼
//!       item          Python's signal handlers          TimeoutError     finish, then None
//! ```
//!
//! - Polling first means that a read never blocks, so no signal and no deadline can be missed: a signal that comes
//!   just before poll(2) has already been written to the wake-up descriptor.
//! - Inside a line, and without a deadline, the read comes first and may block: the daemon has the whole line and is
//!   writing it, and a poll before each of its 8 KiB writes would cost more than decoding them. A signal interrupts
//!   such a read; one that comes just before it is heard at the line's end, at the latest.
//! - At the start of a line the first wait is `idle_after`. If nothing came, the daemon is idle: the decoder gives its
//!   memory back, and the next wait has no limit, so that an idle child never wakes up. A daemon reads a shard at most
//!   five times a second, and often once a second; the memory has to stay for the next batch at that pace. Signals and
//!   deadlines that call Python meanwhile do not begin that wait again: a program's timer must not keep the memory.
//! - The deadline is an atomic outside of the lock: a signal handler may move it while its own thread is in `read`.

use std::io::ErrorKind;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use pyo3::exceptions::{PyTimeoutError, PyValueError};
use pyo3::prelude::*;

use crate::decoder::try_lock;
use crate::descriptor::{self, RawFd};
use crate::errors::os_error;

/// Room for 32 of a daemon's 8 KiB writes. With the usual 64 KiB a reader gets half as much through; 1 MiB gains
/// little and makes the last bytes of a line wait longer.
const PIPE_BYTES: usize = 256 << 10;

/// Seconds of silence after which a decoder gives its memory back, where the caller does not say. Fresh memory for a
/// batch costs more than decoding it, and most daemons write at least once in this time.
pub(crate) const IDLE_AFTER: f64 = 2.5;

/// Point in time until when `read` may wait.
struct Deadline {
    start: Instant,
    /// Nanoseconds after `start`; the largest value means no deadline.
    nanos: AtomicU64,
}

impl Deadline {
    fn none() -> Self {
        Self { start: Instant::now(), nanos: AtomicU64::new(u64::MAX) }
    }

    /// `seconds` from now; one in the past counts as now, one beyond 500 years as none.
    fn set(&self, seconds: Option<f64>) {
        let nanos = seconds.map_or(u64::MAX, |seconds| {
            Duration::try_from_secs_f64(seconds.max(0.0))
                .ok()
                .and_then(|wait| self.start.elapsed().checked_add(wait))
                .and_then(|at| u64::try_from(at.as_nanos()).ok())
                .unwrap_or(u64::MAX)
        });
        self.nanos.store(nanos, Ordering::Relaxed);
    }

    /// The time that is left; None without a deadline.
    fn remaining(&self) -> Option<Duration> {
        let nanos = self.nanos.load(Ordering::Relaxed);
        (nanos != u64::MAX).then(|| Duration::from_nanos(nanos).saturating_sub(self.start.elapsed()))
    }
}

/// A decoder of one protocol: bytes are read into it, and make items.
pub(crate) trait Input: Send {
    /// An item: a message, an event or an error.
    type Item: Send;

    /// The next item of the bytes that have arrived; None when more is needed.
    fn next_item(&mut self) -> Option<Self::Item>;

    /// Room to read into.
    fn space(&mut self) -> &mut [u8];

    /// So many bytes of the room are input now.
    fn commit(&mut self, count: usize);

    /// The end of input; `next_item` may give more after it.
    fn finish(&mut self) -> Option<Self::Item>;

    /// Whether no part of an item is held: the place to wait for a long time.
    fn is_at_start(&self) -> bool;

    /// Gives memory back, in that place.
    fn release_memory(&mut self);
}

/// For how long nothing has come at an item's start; calls of `next` that a signal or a deadline ends do not break it.
enum Silence {
    Broken,
    Since(Instant),
    /// The decoder has given its memory back.
    Idle,
}

struct State<I> {
    input: I,
    wakeup_fd: Option<RawFd>,
    silence: Silence,
    /// Whether read(2) waits for input: false once it has said that it does not.
    may_block: bool,
    at_end: bool,
}

/// Why the loop needs Python.
enum Event<T> {
    Item(T),
    EndOfInput,
    Signal,
    DeadlinePassed,
    Failed(std::io::Error),
}

/// A descriptor, and the decoder that its bytes go into. For one thread at a time.
pub(crate) struct Source<I> {
    fd: RawFd,
    idle_after: Duration,
    deadline: Deadline,
    bytes_read: AtomicU64,
    state: Mutex<State<I>>,
}

impl<I: Input> Source<I> {
    /// Reads from `fd`, which stays the caller's to close; `idle_after` is in seconds.
    pub(crate) fn new(fd: RawFd, wakeup_fd: Option<RawFd>, idle_after: f64, input: I) -> PyResult<Self> {
        for (name, fd) in [("fd", Some(fd)), ("wakeup_fd", wakeup_fd)] {
            // poll(2) would leave a negative descriptor out and wait for ever.
            if let Some(fd) = fd.filter(|&fd| fd < 0) {
                return Err(PyValueError::new_err(format!("{name} must be an open file descriptor, not {fd}")));
            }
        }
        let idle_after = Duration::try_from_secs_f64(idle_after)
            .map_err(|_| PyValueError::new_err(format!("idle_after must be seconds from 0 on, not {idle_after}")))?;
        descriptor::raise_pipe_size(fd, PIPE_BYTES);
        Ok(Self {
            fd,
            idle_after,
            deadline: Deadline::none(),
            bytes_read: AtomicU64::new(0),
            state: Mutex::new(State { input, wakeup_fd, silence: Silence::Broken, may_block: true, at_end: false }),
        })
    }

    /// Waits for the next item; None at the end of input. `class` is for messages.
    pub(crate) fn next(&self, py: Python<'_>, class: &str) -> PyResult<Option<I::Item>> {
        let mut guard = try_lock(&self.state, class)?;
        let state = &mut *guard;
        loop {
            match py.detach(|| self.next_event(state)) {
                Event::Item(item) => return Ok(Some(item)),
                Event::EndOfInput => return Ok(None),
                Event::Signal => py.check_signals()?,
                Event::DeadlinePassed => {
                    return Err(PyTimeoutError::new_err("no message came before the deadline"));
                }
                Event::Failed(error) => return Err(os_error(py, &error, None)),
            }
        }
    }

    /// Uses the decoder between two reads.
    pub(crate) fn with_input<T>(&self, class: &str, work: impl FnOnce(&mut I) -> T) -> PyResult<T> {
        Ok(work(&mut try_lock(&self.state, class)?.input))
    }

    /// From now, until when `next` may wait; None for no limit.
    pub(crate) fn set_deadline(&self, seconds: Option<f64>) -> PyResult<()> {
        if seconds.is_some_and(f64::is_nan) {
            return Err(PyValueError::new_err("seconds must be a number, not nan"));
        }
        self.deadline.set(seconds);
        Ok(())
    }

    /// Bytes read from the descriptor until now.
    pub(crate) fn bytes_read(&self) -> u64 {
        self.bytes_read.load(Ordering::Relaxed)
    }

    /// Goes round until Python must hear of something. Runs without the GIL.
    fn next_event(&self, state: &mut State<I>) -> Event<I::Item> {
        loop {
            if let Some(item) = state.input.next_item() {
                return Event::Item(item);
            }
            if state.at_end {
                return Event::EndOfInput;
            }
            let at_start = state.input.is_at_start();
            if at_start && matches!(state.silence, Silence::Broken) {
                state.silence = Silence::Since(Instant::now());
            }
            let remaining = self.deadline.remaining();
            if !at_start && remaining.is_none() && state.may_block {
                if let Some(event) = self.read_once(state) {
                    return event;
                }
                continue;
            }
            let cooling = match state.silence {
                Silence::Since(since) if at_start => Some(self.idle_after.saturating_sub(since.elapsed())),
                _ => None,
            };
            let timeout = cooling.map_or(remaining, |left| Some(remaining.unwrap_or(Duration::MAX).min(left)));
            let ready = match descriptor::poll_readable(self.fd, state.wakeup_fd, timeout) {
                Ok(ready) => ready,
                Err(error) if error.kind() == ErrorKind::Interrupted => return Event::Signal,
                Err(error) => return Event::Failed(error),
            };
            if ready.second
                && let Some(wakeup_fd) = state.wakeup_fd
            {
                match descriptor::read(wakeup_fd, &mut [0; 256]) {
                    // Its other end is closed and will never speak again; it would only make poll return at once.
                    Ok(0) => state.wakeup_fd = None,
                    Ok(_) => return Event::Signal,
                    Err(error) if error.kind() == ErrorKind::Interrupted => return Event::Signal,
                    // Another reader of it was faster.
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    Err(error) => return Event::Failed(error),
                }
            }
            if ready.first {
                if let Some(event) = self.read_once(state) {
                    return event;
                }
            } else {
                // Memory first: a program that polls comes with a deadline that has passed already.
                if at_start && matches!(state.silence, Silence::Since(since) if since.elapsed() >= self.idle_after) {
                    state.input.release_memory();
                    state.silence = Silence::Idle;
                }
                if self.deadline.remaining() == Some(Duration::ZERO) {
                    return Event::DeadlinePassed;
                }
            }
        }
    }

    /// One read(2) into the decoder; an event unless it can go on.
    fn read_once(&self, state: &mut State<I>) -> Option<Event<I::Item>> {
        match descriptor::read(self.fd, state.input.space()) {
            Ok(0) => {
                state.at_end = true;
                state.input.finish().map(Event::Item)
            }
            Ok(count) => {
                self.bytes_read.fetch_add(count as u64, Ordering::Relaxed);
                state.silence = Silence::Broken;
                state.input.commit(count);
                None
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => Some(Event::Signal),
            // The descriptor does not block, or another process shares it and was faster: from now on poll first.
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                state.may_block = false;
                None
            }
            Err(error) => Some(Event::Failed(error)),
        }
    }
}
