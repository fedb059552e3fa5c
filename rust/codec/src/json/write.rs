//! JSON values as text, appended.

use std::io::Write as _;

/// A string, ASCII only.
pub(crate) fn string(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    for character in text.chars() {
        match character {
            ' ' | '!' | '#'..='[' | ']'..='~' => out.push(character as u8),
            '\0'..='\x7f' => ascii_escape(character as u8, out),
            _ => {
                for unit in character.encode_utf16(&mut [0; 2]) {
                    unicode_escape(*unit, out);
                }
            }
        }
    }
    out.push(b'"');
}

/// The escape of an ASCII character that must have one, or may.
pub(crate) fn ascii_escape(byte: u8, out: &mut Vec<u8>) {
    match byte {
        b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
        0x08 => out.extend_from_slice(b"\\b"),
        b'\t' => out.extend_from_slice(b"\\t"),
        b'\n' => out.extend_from_slice(b"\\n"),
        0x0c => out.extend_from_slice(b"\\f"),
        b'\r' => out.extend_from_slice(b"\\r"),
        _ => unicode_escape(u16::from(byte), out),
    }
}

fn unicode_escape(unit: u16, out: &mut Vec<u8>) {
    // Writing to a Vec cannot fail.
    let _ = write!(out, "\\u{unit:04x}");
}

/// A string, or null.
pub(crate) fn string_or_null(text: Option<&str>, out: &mut Vec<u8>) {
    match text {
        Some(text) => string(text, out),
        None => out.extend_from_slice(b"null"),
    }
}

/// An integer, or null.
pub(crate) fn integer_or_null(value: Option<i64>, out: &mut Vec<u8>) {
    match value {
        Some(value) => integer(value, out),
        None => out.extend_from_slice(b"null"),
    }
}

/// An integer.
pub(crate) fn integer(value: i64, out: &mut Vec<u8>) {
    let _ = write!(out, "{value}");
}
