//! Errors of bytes that are no JSON, and of bytes that are no UTF-8.

use crate::error::{Error, ErrorKind};

pub(crate) const RAW_CONTROL: &str = "raw control character in a string";

/// Why bytes are no UTF-8 sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BadUtf8 {
    /// What is there begins one, but the bytes end inside of it.
    Incomplete,
    /// No continuation makes it one.
    Invalid,
}

/// Length of the UTF-8 sequence at the start of `bytes` (Unicode 16, table 3-7), which is not empty.
#[inline]
pub(crate) fn utf8_sequence(bytes: &[u8]) -> std::result::Result<usize, BadUtf8> {
    let (length, second) = match bytes[0] {
        0x00..=0x7f => return Ok(1),
        0xc2..=0xdf => (2, 0x80..=0xbf),
        0xe0 => (3, 0xa0..=0xbf),
        0xe1..=0xec | 0xee..=0xef => (3, 0x80..=0xbf),
        0xed => (3, 0x80..=0x9f),
        0xf0 => (4, 0x90..=0xbf),
        0xf1..=0xf3 => (4, 0x80..=0xbf),
        0xf4 => (4, 0x80..=0x8f),
        _ => return Err(BadUtf8::Invalid),
    };
    for at in 1..length {
        match bytes.get(at) {
            None => return Err(BadUtf8::Incomplete),
            Some(byte) if at == 1 && !second.contains(byte) => return Err(BadUtf8::Invalid),
            Some(0x80..=0xbf) => {}
            Some(_) => return Err(BadUtf8::Invalid),
        }
    }
    Ok(length)
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
