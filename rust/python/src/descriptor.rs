//! File descriptors: poll(2), read(2), write(2) and the size of a pipe. All `unsafe` of this crate is here and in `kclpy`.
//!
//! A descriptor is a number that the caller promises to keep open; one that is not gives EBADF, never undefined
//! behaviour. So the functions here are safe: the memory they hand to the kernel is always a slice of the caller's.

use std::io;
use std::os::fd::RawFd;
use std::time::Duration;

/// What [`poll`] found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ready {
    /// The first descriptor can be read (also: is at its end, or has an error that reading will tell).
    pub(crate) first: bool,
    /// The same for the second.
    pub(crate) second: bool,
}

/// Waits until one of the descriptors can be read, at most `timeout` (None: for ever).
///
/// # Errors
/// `Interrupted` when a signal came; EBADF for a descriptor that is not open.
pub(crate) fn poll_readable(first: RawFd, second: Option<RawFd>, timeout: Option<Duration>) -> io::Result<Ready> {
    // poll ignores negative descriptors.
    let mut entries = [entry(first, libc::POLLIN), entry(second.unwrap_or(-1), libc::POLLIN)];
    poll(&mut entries, timeout)?;
    Ok(Ready { first: entries[0].revents != 0, second: entries[1].revents != 0 })
}

/// Waits until `fd` can be written, at most `timeout`.
pub(crate) fn poll_writable(fd: RawFd, timeout: Duration) -> io::Result<()> {
    poll(&mut [entry(fd, libc::POLLOUT)], Some(timeout))
}

const fn entry(fd: RawFd, events: libc::c_short) -> libc::pollfd {
    libc::pollfd { fd, events, revents: 0 }
}

fn poll(entries: &mut [libc::pollfd], timeout: Option<Duration>) -> io::Result<()> {
    // Rounded up: waking a millisecond early would only mean to poll again.
    let milliseconds = timeout.map_or(-1, |timeout| {
        let millis = timeout.as_nanos().div_ceil(1_000_000);
        libc::c_int::try_from(millis).unwrap_or(libc::c_int::MAX)
    });
    let count = libc::nfds_t::try_from(entries.len()).expect("a handful of descriptors");
    // SAFETY: the pointer and the count are those of one exclusively borrowed slice.
    if unsafe { libc::poll(entries.as_mut_ptr(), count, milliseconds) } < 0 {
        return Err(io::Error::last_os_error());
    }
    if entries.iter().any(|entry| entry.revents & libc::POLLNVAL != 0) {
        return Err(io::Error::from_raw_os_error(libc::EBADF));
    }
    Ok(())
}

/// read(2): at most as many bytes as `space` holds; 0 at the end of input.
pub(crate) fn read(fd: RawFd, space: &mut [u8]) -> io::Result<usize> {
    // SAFETY: the pointer and the length are those of one exclusively borrowed slice.
    let count = unsafe { libc::read(fd, space.as_mut_ptr().cast(), space.len()) };
    usize::try_from(count).map_err(|_| io::Error::last_os_error())
}

/// write(2): how many bytes of `data` were taken.
pub(crate) fn write(fd: RawFd, data: &[u8]) -> io::Result<usize> {
    // SAFETY: the pointer and the length are those of one borrowed slice.
    let count = unsafe { libc::write(fd, data.as_ptr().cast(), data.len()) };
    usize::try_from(count).map_err(|_| io::Error::last_os_error())
}

/// Raises a pipe's size to `bytes` where the system has pipe sizes, `fd` is a pipe and the user may.
///
/// A refusal is harmless (the pipe stays as it is), so there is no error: unprivileged users have a limit for all
/// their pipes together (pipe(7), `/proc/sys/fs/pipe-user-pages-soft`).
pub(crate) fn raise_pipe_size(fd: RawFd, bytes: libc::c_int) {
    #[cfg(target_os = "linux")]
    {
        // SAFETY: F_GETPIPE_SZ and F_SETPIPE_SZ take and return plain integers, no memory.
        unsafe {
            let size = libc::fcntl(fd, libc::F_GETPIPE_SZ);
            if (0..bytes).contains(&size) {
                libc::fcntl(fd, libc::F_SETPIPE_SZ, bytes);
            }
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (fd, bytes);
}
