//! The content of a JSON string with its escapes replaced, for strings that are taken as the scanner goes.
//!
//! A string with any fault is left to the general parser, which names the fault and its place. So whether it is UTF-8 can be asked once for the whole of it, escapes included: they are ASCII,
//! and no character of several bytes reaches over one.
//!
//! [`by_runs`] copies the text between escapes. With AVX-512 a block of 64 characters is copied and its escapes
//! closed up in a few instructions (`x86_64/avx512/unescape.rs`), however many there are.

#[cfg(test)]
mod tests;

use super::traits::Kernel;
use crate::input::Padded;
use crate::json::escape::{escaped_character, simple_escape};
use crate::pool::Buf;

/// Takes the rest of a string from `start`, appended to `out`: the index after its closing quote.
#[inline(always)]
pub(super) fn by_runs<K: Kernel>(
    kernel: K,
    input: Padded<'_>,
    start: usize,
    out: &mut Buf,
    is_utf8: impl FnOnce(&[u8]) -> bool,
) -> Option<usize> {
    let mut at = start;
    loop {
        let end = at + kernel.string_run(input.from(at));
        out.extend_from_input(input, at, end);
        let rest = &input.input()[end..];
        if rest.first() == Some(&b'"') {
            return is_utf8(&input.input()[start..end]).then_some(end + 1);
        }
        at = end + append_escape(rest, out)?;
    }
}

/// Appends the character of the escape at the start of `bytes`, which may be two for a pair of surrogates: its length.
#[inline(always)]
pub(super) fn append_escape(bytes: &[u8], out: &mut Buf) -> Option<usize> {
    let letter = *bytes.get(1).filter(|_| bytes[0] == b'\\')?;
    if let Some(character) = simple_escape(letter) {
        out.extend_from_slice(&[character]);
        return Some(2);
    }
    let (character, length) = escaped_character(bytes)?;
    out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
    Some(length)
}
