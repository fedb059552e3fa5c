//! The names of `descriptor` where there is no poll(2), such as on Windows: each function refuses.
//!
//! The codec, Arrow and the Kinesis client need none of it.

use std::io::{Error, ErrorKind, Result};
use std::time::Duration;

/// A descriptor's number, as C and Python have it.
pub(crate) type RawFd = std::ffi::c_int;

/// See `descriptor`; nobody makes one here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ready {
    pub(crate) first: bool,
    pub(crate) second: bool,
}

fn refused() -> Error {
    Error::new(
        ErrorKind::Unsupported,
        "a daemon's pipes need poll(2) of a POSIX system, which this one is not: run the program on Linux or macOS",
    )
}

pub(crate) fn poll_readable(_first: RawFd, _second: Option<RawFd>, _timeout: Option<Duration>) -> Result<Ready> {
    Err(refused())
}

pub(crate) fn poll_writable(_fd: RawFd, _timeout: Duration) -> Result<()> {
    Err(refused())
}

pub(crate) fn read(_fd: RawFd, _space: &mut [u8]) -> Result<usize> {
    Err(refused())
}

pub(crate) fn write(_fd: RawFd, _data: &[u8]) -> Result<usize> {
    Err(refused())
}

/// There are no sizes to raise.
pub(crate) fn raise_pipe_size(_fd: RawFd, _bytes: usize) {}
