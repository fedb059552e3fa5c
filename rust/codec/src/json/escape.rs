//! Escape sequences of JSON strings.

use super::error::{BadUtf8, bad_byte, utf8_sequence};
use crate::error::Result;

/// One escape sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Escape {
    /// The UTF-16 code unit it stands for, and its length in bytes.
    Unit { unit: u32, length: usize },
    /// The bytes end inside of it.
    Incomplete,
    /// No escape, but the bytes end inside of the character that makes it none; the character's index.
    CutCharacter(usize),
}

/// The character that a backslash and `letter` stand for, if that is all of the escape.
#[inline]
pub(crate) const fn simple_escape(letter: u8) -> Option<u8> {
    match letter {
        b'"' | b'\\' | b'/' => Some(letter),
        b'b' => Some(0x08),
        b'f' => Some(0x0c),
        b'n' => Some(b'\n'),
        b'r' => Some(b'\r'),
        b't' => Some(b'\t'),
        _ => None,
    }
}

/// Reads the escape at the start of `bytes`, a backslash at `offset` of the line.
pub(crate) fn escape(bytes: &[u8], offset: usize) -> Result<Escape> {
    let Some(&letter) = bytes.get(1) else { return Ok(Escape::Incomplete) };
    if let Some(character) = simple_escape(letter) {
        return Ok(Escape::Unit { unit: u32::from(character), length: 2 });
    }
    match letter {
        b'u' => {
            let mut unit = 0;
            for at in 2..6 {
                let Some(&byte) = bytes.get(at) else { return Ok(Escape::Incomplete) };
                let Some(digit) = char::from(byte).to_digit(16) else {
                    return no_escape(bytes, at, offset, "four hexadecimal digits");
                };
                unit = unit << 4 | digit;
            }
            Ok(Escape::Unit { unit, length: 6 })
        }
        _ => no_escape(bytes, 1, offset, "an escape character"),
    }
}

#[cold]
fn no_escape(bytes: &[u8], at: usize, offset: usize, wanted: &'static str) -> Result<Escape> {
    if utf8_sequence(&bytes[at..]) == Err(BadUtf8::Incomplete) {
        return Ok(Escape::CutCharacter(at));
    }
    Err(bad_byte(&bytes[at..], offset + at, wanted))
}

/// The character of the escape at the start of `bytes`, with the other half of its pair, and its length; none if it is
/// no whole one, or stands for half a pair only.
pub(crate) fn escaped_character(bytes: &[u8]) -> Option<(char, usize)> {
    let unit_at = |at: usize| match escape(bytes.get(at..)?, 0) {
        Ok(Escape::Unit { unit, length }) if bytes[at] == b'\\' => Some((unit, length)),
        _ => None,
    };
    let (unit, length) = unit_at(0)?;
    match (unit, char::from_u32(unit)) {
        (_, Some(character)) => Some((character, length)),
        (0xd800..=0xdbff, None) => match unit_at(length)? {
            (low @ 0xdc00..=0xdfff, low_length) => {
                let character = char::from_u32(0x10000 + ((unit - 0xd800) << 10) + (low - 0xdc00))?;
                Some((character, length + low_length))
            }
            _ => None,
        },
        _ => None,
    }
}
