//! Errors of bytes that are no JSON, and of bytes that are no UTF-8.

use crate::error::{Error, ErrorKind};

pub(crate) const RAW_CONTROL: &str = "raw control character in a string";

/// Why bytes are no UTF-8 sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BadUtf8 {
    /// The bytes begin one, but end inside of it.
    Incomplete,
    /// No continuation makes it one.
    Invalid,
}

/// Length of the UTF-8 sequence at the start of `bytes`, which is not empty.
#[inline]
pub(crate) fn utf8_sequence(bytes: &[u8]) -> std::result::Result<usize, BadUtf8> {
    let length = bytes[0].leading_ones().max(1) as usize;
    match str::from_utf8(&bytes[..length.min(bytes.len())]) {
        Ok(_) => Ok(length),
        Err(error) if error.error_len().is_none() => Err(BadUtf8::Incomplete),
        Err(_) => Err(BadUtf8::Invalid),
    }
}

/// Whether the error is only that the bytes from its place on, `rest`, end inside of a character.
pub(crate) fn is_cut_character(error: &Error, rest: &[u8]) -> bool {
    error.kind() == ErrorKind::Utf8 && utf8_sequence(rest) == Err(BadUtf8::Incomplete)
}

#[cold]
pub(crate) fn utf8_error(offset: usize) -> Error {
    Error::new(
        ErrorKind::Utf8,
        offset,
        "bytes that are no UTF-8; a Java daemon before 18 needs -Dfile.encoding=UTF-8 to write partition keys right",
    )
}

/// The error for the first of `bytes`, which stands where `wanted` must; no bytes mean the line has ended.
#[cold]
pub(crate) fn bad_byte(bytes: &[u8], offset: usize, wanted: &'static str) -> Error {
    match bytes {
        [] | [b'\n', ..] => Error::at_end(offset),
        _ if utf8_sequence(bytes).is_err() => utf8_error(offset),
        [0xef, 0xbb, 0xbf, ..] if offset == 0 => Error::new(ErrorKind::Json, offset, "byte order mark"),
        [byte, ..] => {
            let shown =
                if byte.is_ascii_graphic() { char::from(*byte).to_string() } else { format!("byte {byte:#04x}") };
            Error::new(ErrorKind::Json, offset, format!("no JSON: found {shown} where {wanted} must be"))
        }
    }
}
