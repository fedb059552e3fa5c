//! File descriptors by number: poll(2), read(2), write(2) and the size of a pipe. All `unsafe` of this crate is here and
//! in `kclpy`.
//!
//! A descriptor is a number that the caller promises to keep open; one that is not gives EBADF, never undefined
//! behaviour. So the functions here are safe.

use std::io;
use std::os::fd::BorrowedFd;
pub(crate) use std::os::fd::RawFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

/// Some systems count milliseconds in 32 bits. Whoever waits longer waits again.
const LONGEST: Duration = Duration::from_secs(24 * 24 * 3600);

/// What [`poll_readable`] found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ready {
    /// The first descriptor can be read (also: is at its end, or has an error that reading will tell).
    pub(crate) first: bool,
    /// The same for the second.
    pub(crate) second: bool,
}

/// The descriptor of that number, for one system call.
fn borrowed(fd: RawFd) -> io::Result<BorrowedFd<'static>> {
    if fd < 0 {
        return Err(Errno::BADF.into());
    }
    // SAFETY: not -1. The caller keeps it open for the call; the kernel refuses a number that is not.
    Ok(unsafe { BorrowedFd::borrow_raw(fd) })
}

/// Waits until one of the descriptors can be read, at most `timeout` (None: for ever).
///
/// # Errors
/// `Interrupted` when a signal came; EBADF for a descriptor that is not open.
pub(crate) fn poll_readable(first: RawFd, second: Option<RawFd>, timeout: Option<Duration>) -> io::Result<Ready> {
    let first = PollFd::from_borrowed_fd(borrowed(first)?, PollFlags::IN);
    let Some(second) = second else {
        let [first] = wait([first], timeout)?;
        return Ok(Ready { first, second: false });
    };
    let second = PollFd::from_borrowed_fd(borrowed(second)?, PollFlags::IN);
    let [first, second] = wait([first, second], timeout)?;
    Ok(Ready { first, second })
}

/// Waits until `fd` can be written, at most `timeout`.
pub(crate) fn poll_writable(fd: RawFd, timeout: Duration) -> io::Result<()> {
    wait([PollFd::from_borrowed_fd(borrowed(fd)?, PollFlags::OUT)], Some(timeout)).map(drop)
}

/// Which of the descriptors are ready.
fn wait<const N: usize>(mut entries: [PollFd<'_>; N], timeout: Option<Duration>) -> io::Result<[bool; N]> {
    let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout.min(LONGEST)).ok());
    poll(&mut entries, timeout.as_ref())?;
    if entries.iter().any(|entry| entry.revents().contains(PollFlags::NVAL)) {
        return Err(Errno::BADF.into());
    }
    Ok(entries.each_ref().map(|entry| !entry.revents().is_empty()))
}

/// read(2): at most as many bytes as `space` holds; 0 at the end of input.
pub(crate) fn read(fd: RawFd, space: &mut [u8]) -> io::Result<usize> {
    Ok(rustix::io::read(borrowed(fd)?, space)?)
}

/// write(2): how many bytes of `data` were taken.
pub(crate) fn write(fd: RawFd, data: &[u8]) -> io::Result<usize> {
    Ok(rustix::io::write(borrowed(fd)?, data)?)
}

/// Raises a pipe's size to `bytes` where the system has pipe sizes, `fd` is a pipe and the user may.
///
/// A refusal is harmless (the pipe stays as it is), so there is no error: unprivileged users have a limit for all
/// their pipes together (pipe(7), `/proc/sys/fs/pipe-user-pages-soft`).
pub(crate) fn raise_pipe_size(fd: RawFd, bytes: usize) {
    #[cfg(all(target_os = "linux", not(portable)))]
    if let Ok(fd) = borrowed(fd)
        && rustix::pipe::fcntl_getpipe_size(fd).is_ok_and(|size| size < bytes)
    {
        let _ = rustix::pipe::fcntl_setpipe_size(fd, bytes);
    }
    #[cfg(any(not(target_os = "linux"), portable))]
    let _ = (fd, bytes);
}
