//! Input cut anywhere, in; messages, out.
//!
//! The input buffer is read into directly (`space`, `commit`), always at the same place, which begins a page: there the
//! kernel copies fastest, and the last bytes are still in the cache. Bytes that the state machine has not taken, seldom
//! more than a record's metadata, are moved in front of it.
//!
//! ```text
//!  ▏taken ▏not yet taken ▏room for the next read ▏slack ▏
//!  0     start          end = read_at                  len
//! ```
//!
//! Where more than a page is not taken yet (a line that is collected whole), reads go after it, and the buffer grows.

use std::collections::VecDeque;
use std::sync::Mutex;

use super::general;
use super::message::Message;
use super::stream::{Stream, too_long};
use crate::columns::Columns;
use crate::error::{Error, Result};
use crate::framing::{READ_BYTES, is_blank};
use crate::input::{Padded, SLACK, pad};
use crate::json::error::is_cut_character;
use crate::kernel::Kernels;
use crate::kernel::cpu::Isa;
use crate::pool::{Room, memory};

const PAGE: usize = 4096;

/// As much as is moved in front of each read. More stays where it is: moving it again and again would cost too much.
const FRONT: usize = PAGE;

/// Pieces of this size are decoded where they stand rather than copied first.
const IN_PLACE: usize = 1024;

/// An incremental decoder of a daemon's lines.
///
/// ```
/// use fastkcl_codec::kcl::{DEFAULT_MAX_LINE_BYTES, Decoder, Message};
///
/// let mut decoder = Decoder::new(DEFAULT_MAX_LINE_BYTES);
/// decoder.feed(br#"{"action":"processRecords","records":[{"data":"aGVsbG8=","partitionKey":"k","#);
/// assert!(decoder.next_message().is_none());
/// decoder.feed(b"\"sequenceNumber\":\"4959\"}]}\n");
/// let Some(Ok(Message::ProcessRecords(batch))) = decoder.next_message() else { panic!("a complete line") };
/// assert_eq!(batch.data(0), Some(&b"hello"[..]));
/// assert_eq!(batch.sequence_number(0), "4959");
/// ```
#[derive(Debug)]
pub struct Decoder {
    stream: Stream,
    buffer: Room,
    /// Index in `buffer` of the page with [`FRONT`] bytes before it that reads begin at.
    read_at: usize,
    start: usize,
    end: usize,
    /// Messages and errors of the input decoded by `feed`.
    ready: VecDeque<Result<Message>>,
}

impl Decoder {
    /// A decoder with the kernels of this process.
    ///
    /// # Panics
    /// `max_line_bytes` is 0 or above [`LARGEST_MAX_LINE_BYTES`](super::LARGEST_MAX_LINE_BYTES).
    #[must_use]
    pub fn new(max_line_bytes: usize) -> Self {
        Self::with_kernels(Kernels::active(), max_line_bytes)
    }

    /// A decoder with the kernels of `isa`, for tests and benches.
    ///
    /// # Panics
    /// As [`Decoder::new`].
    #[must_use]
    pub fn with_isa(isa: Isa, max_line_bytes: usize) -> Self {
        Self::with_kernels(Kernels::of(isa), max_line_bytes)
    }

    fn with_kernels(kernels: Kernels, max_line_bytes: usize) -> Self {
        Self {
            stream: Stream::new(kernels, max_line_bytes),
            buffer: Room::default(),
            read_at: 0,
            start: 0,
            end: 0,
            ready: VecDeque::new(),
        }
    }

    /// Takes input. A large piece is decoded here and now, where it stands, if nothing is open before it.
    pub fn feed(&mut self, bytes: &[u8]) {
        let mut bytes = bytes;
        if self.start == self.end && bytes.len() >= IN_PLACE {
            let input = Padded::new(bytes, bytes.len() - SLACK);
            let mut at = 0;
            self.stream.moved(self.start, 0);
            while let Some(result) = self.stream.advance(input, &mut at) {
                self.ready.push_back(result);
            }
            bytes = &bytes[at..];
            self.stream.moved(at, 0);
            (self.start, self.end) = (0, 0);
        }
        self.make_room(bytes.len());
        self.buffer[self.end..self.end + bytes.len()].copy_from_slice(bytes);
        self.end += bytes.len();
    }

    /// Room of [`READ_BYTES`] to read into; [`Decoder::commit`] says how much was.
    pub fn space(&mut self) -> &mut [u8] {
        if self.end - self.start <= FRONT {
            if self.buffer.len() < self.read_at + READ_BYTES + SLACK {
                self.grow(FRONT + PAGE + READ_BYTES + SLACK);
            }
            self.move_open(self.read_at - (self.end - self.start));
        } else {
            self.make_room(READ_BYTES);
        }
        &mut self.buffer[self.end..self.end + READ_BYTES]
    }

    /// The first `count` bytes of [`Decoder::space`] are input now.
    ///
    /// # Panics
    /// The space was smaller.
    pub fn commit(&mut self, count: usize) {
        assert!(self.end + count + SLACK <= self.buffer.len(), "more committed than there was space");
        self.end += count;
    }

    fn make_room(&mut self, count: usize) {
        if self.end + count + SLACK <= self.buffer.len() {
            return;
        }
        self.move_open(0);
        let needed = self.end + count + SLACK;
        if needed > self.buffer.len() {
            // Doubling keeps a collected line's copies linear.
            self.grow(needed.max(self.buffer.len() * 2));
        }
    }

    /// Bytes that are not taken begin at `to` from now on.
    fn move_open(&mut self, to: usize) {
        if to != self.start {
            self.buffer.copy_within(self.start..self.end, to);
            self.stream.moved(self.start, to);
            self.end = self.end - self.start + to;
            self.start = to;
        }
    }

    fn grow(&mut self, len: usize) {
        self.buffer.grow(len);
        self.read_at = FRONT + self.buffer[FRONT.min(len)..].as_ptr().align_offset(PAGE);
    }

    /// The next message; `None` when more input is needed. After an error the rest of its line is skipped.
    pub fn next_message(&mut self) -> Option<Result<Message>> {
        if let Some(result) = self.ready.pop_front() {
            return Some(result);
        }
        if self.buffer.is_empty() {
            return None;
        }
        let input = Padded::new(&self.buffer, self.end);
        let message = self.stream.advance(input, &mut self.start);
        if self.start == self.end {
            self.stream.moved(self.start, 0);
            self.start = 0;
            self.end = 0;
        }
        message
    }

    /// Whether messages, or errors, of complete lines wait to be taken.
    pub fn has_waiting(&mut self) -> bool {
        if self.ready.is_empty() {
            let next = self.next_message();
            self.ready.extend(next);
        }
        !self.ready.is_empty()
    }

    /// The end of input: the next message that waits, and then the text without an LF, which is a line.
    ///
    /// # Errors
    /// As [`Decoder::next_message`]; the input ended inside a message.
    pub fn finish(&mut self) -> Option<Result<Message>> {
        let waiting = self.next_message();
        if waiting.is_some() || self.is_at_line_start() {
            return waiting;
        }
        self.feed(b"\n");
        let message = self.next_message()?;
        Some(message.map_err(|error| {
            if error.is_at_end() {
                error.with_what("input ended inside a message, before its line feed")
            } else {
                error
            }
        }))
    }

    /// Whether no part of a line is held: the place to wait for a long time.
    #[must_use]
    pub fn is_at_line_start(&self) -> bool {
        self.stream.is_at_line_start() && self.start == self.end && self.ready.is_empty()
    }

    /// Gives back the memory of buffers, also of those that batches still hold, when they let go. For a child that goes
    /// idle; does nothing inside a line.
    pub fn release_memory(&mut self) {
        if self.is_at_line_start() {
            self.stream.rest();
            self.buffer = Room::default();
            (self.start, self.end) = (0, 0);
            Spare::clear();
            memory::trim();
        }
    }
}

/// Decodes one complete message, with or without its LF; `None` if the line is blank. Here an LF elsewhere is white
/// space.
///
/// # Errors
/// `line` is no valid message.
///
/// # Panics
/// `max_line_bytes` is 0 or above [`LARGEST_MAX_LINE_BYTES`](super::LARGEST_MAX_LINE_BYTES).
pub fn decode_line(line: &[u8], max_line_bytes: usize) -> Result<Option<Message>> {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    if is_blank(line) && line.len() <= max_line_bytes {
        return Ok(None);
    }
    let mut decoder = Spare::take(max_line_bytes);
    decoder.feed(line);
    decoder.feed(b"\n");
    let result = decoder.next_message();
    let alone = decoder.next_message().is_none() && decoder.is_at_line_start();
    let one_line = memchr::memchr(b'\n', line).is_none();
    debug_assert!(alone || !one_line);
    if alone && (one_line || (matches!(result, Some(Ok(_))) && line.len() <= max_line_bytes)) {
        Spare::put(decoder, line.len());
        return result.transpose();
    }
    // There is an LF in it, so the decoder has seen several lines.
    let padded = pad(line);
    let end = line.len().min(max_line_bytes);
    let mut columns = Columns::new();
    let parsed = general::whole(Kernels::active(), Padded::new(&padded, end), 0, 0, &mut columns);
    let message = match parsed {
        Ok(_) if line.len() > end => Err(too_long(max_line_bytes)),
        Err(error) if line.len() > end && is_cut(&error, &line[..end]) => Err(too_long(max_line_bytes)),
        Err(error) if error.is_at_end() && error.offset() != Some(end) => {
            Err(error.with_what("no JSON: a line feed inside of a value"))
        }
        parsed => parsed.map(|parsed| Stream::message_of(parsed, &mut columns, None)),
    };
    message.map(Some).map_err(|error| {
        let offset = error.offset().unwrap_or_default();
        error.with_context(line, offset)
    })
}

/// Whether the error is only that `line` ends: it may be another one, or none, where the line goes on.
fn is_cut(error: &Error, line: &[u8]) -> bool {
    let rest = error.offset().and_then(|offset| line.get(offset..)).unwrap_or_default();
    rest.is_empty() || is_cut_character(error, rest)
}

/// The decoder that [`decode_line`] has used last, so that its buffers serve again. Whoever finds it taken makes another.
struct Spare;

/// Above this length a line's memory is given back: who decodes single lines has no idle moment in which to do so.
const SPARE_LINE_BYTES: usize = 32 << 20;

static SPARE: Mutex<Option<Decoder>> = Mutex::new(None);

impl Spare {
    fn take(max_line_bytes: usize) -> Decoder {
        let spare = SPARE.try_lock().ok().and_then(|mut spare| spare.take());
        let mut decoder = spare.unwrap_or_else(|| Decoder::new(max_line_bytes));
        decoder.stream = decoder.stream.anew(max_line_bytes);
        decoder
    }

    /// Gives its memory back, when a decoder of this process does.
    fn clear() {
        let spare = SPARE.try_lock().ok().and_then(|mut spare| spare.take());
        drop(spare);
    }

    fn put(mut decoder: Decoder, line_bytes: usize) {
        if line_bytes > SPARE_LINE_BYTES {
            decoder.release_memory();
        }
        if let Ok(mut spare) = SPARE.try_lock() {
            *spare = Some(decoder);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pages that this thread has touched for the first time.
    #[cfg(all(target_os = "linux", not(portable)))]
    fn faults() -> i64 {
        // SAFETY: getrusage(2) fills in the structure, which may be all zeros before.
        unsafe {
            let mut usage = std::mem::zeroed::<libc::rusage>();
            assert_eq!(libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage), 0);
            usage.ru_minflt
        }
    }

    #[test]
    #[cfg(all(target_os = "linux", not(portable)))]
    fn a_short_line_after_a_rest_touches_few_pages() {
        let line = br#"{"action":"leaseLost"}
"#;
        let mut decoder = Decoder::new(1 << 20);
        for _ in 0..3 {
            let before = faults();
            decoder.space()[..line.len()].copy_from_slice(line);
            decoder.commit(line.len());
            assert!(matches!(decoder.next_message(), Some(Ok(Message::LeaseLost))));
            let touched = faults() - before;
            assert!(touched < 20, "{touched} of {} pages", READ_BYTES / PAGE);
            decoder.release_memory();
        }
    }
}
