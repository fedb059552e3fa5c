//! The content of a base64 JSON string, from behind its opening quote to its closing one, over any number of calls.

use super::slow::Slow;
use super::{Kernel, Kernels, NONE, VALUES, decode_units};
use crate::error::{Error, ErrorKind, Result};
use crate::input::Padded;
use crate::json::{self, Escape};
use crate::pool::Buf;

/// At most this much input is decoded before the output's room is looked at again.
const CHUNK: usize = 256 * 1024;

/// An open value: its decoded bytes are behind the output's committed part.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Text {
    /// Set once the value has shown anything that is not canonical.
    slow: Option<Slow>,
}

/// How far a value has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// The index behind the closing quote.
    Closed(usize),
    /// All input is taken but for what begins at this index: less than a unit, or half of an escape.
    Open(usize),
}

/// The end of a canonical value at the start of `rest`, all whole units taken before: the bytes of a padded unit, how
/// many of them count, and how much of `rest` is consumed, closing quote included.
#[inline(always)]
pub(crate) fn canonical_end(rest: &[u8]) -> Option<([u8; 2], usize, usize)> {
    let value = |byte: u8| u32::from(VALUES[usize::from(byte)]);
    match *rest {
        [b'"', ..] => Some(([0; 2], 0, 1)),
        [first, second, third, b'=', b'"', ..] => {
            let (one, two) = (value(first), value(second));
            if (one | two) == u32::from(NONE) {
                return None;
            }
            let bits = one << 18 | two << 12;
            if third == b'=' {
                return Some(([bits.to_be_bytes()[1], 0], 1, 5));
            }
            let three = value(third);
            if three == u32::from(NONE) {
                return None;
            }
            let bytes = (bits | three << 6).to_be_bytes();
            Some(([bytes[1], bytes[2]], 2, 5))
        }
        _ => None,
    }
}

/// Whether more input could still make a canonical end of `rest`, which is none yet.
fn may_end_canonically(rest: &[u8]) -> bool {
    rest.len() < 5 && rest.iter().all(|byte| *byte == b'=' || VALUES[usize::from(*byte)] != NONE)
}

impl Text {
    /// Looks at `input[from..]`, which is left of an open value, as if nothing could follow it.
    ///
    /// # Errors
    /// There is an error in it.
    pub(crate) fn check_rest(&mut self, kernels: Kernels, input: Padded<'_>, base: usize, from: usize) -> Result<()> {
        self.slow.get_or_insert_default();
        self.advance(kernels, input, base, from, &mut Buf::new()).map(drop)
    }

    /// Decodes `input[from..]` into `out` as far as it goes. `base` is the line offset of `input[0]`.
    pub(crate) fn advance<K: Kernel>(
        &mut self,
        kernel: K,
        input: Padded<'_>,
        base: usize,
        mut from: usize,
        out: &mut Buf,
    ) -> Result<Progress> {
        while self.slow.is_none() {
            let to = input.end().min(from + CHUNK);
            from += decode_units(kernel, input, from, to, out);
            let rest = &input.input()[from..];
            if let Some((bytes, count, consumed)) = canonical_end(rest) {
                out.extend_from_slice(&bytes[..count]);
                return Ok(Progress::Closed(from + consumed));
            }
            if to < input.end() && to - from < 4 {
                continue;
            }
            if may_end_canonically(rest) {
                return Ok(Progress::Open(from));
            }
            self.slow = Some(Slow::default());
        }
        let slow = self.slow.get_or_insert_default();
        let bytes = input.input();
        while let Some(&byte) = bytes.get(from) {
            let offset = base.wrapping_add(from);
            let (character, length) = match byte {
                b'"' => {
                    slow.finish().map_err(|reason| Error::base64(reason, offset))?;
                    return Ok(Progress::Closed(from + 1));
                }
                b'\\' => match json::escape(&bytes[from..], offset)? {
                    Escape::Unit { unit, length } => (unit, length),
                    Escape::Incomplete | Escape::CutCharacter(_) => return Ok(Progress::Open(from)),
                },
                b'\n' => return Err(Error::at_end(offset)),
                0..=0x1f => return Err(Error::new(ErrorKind::Json, offset, json::RAW_CONTROL)),
                0x20..=0x7f => (u32::from(byte), 1),
                0x80.. => match json::utf8_sequence(&bytes[from..]) {
                    Ok(length) => (0x80, length),
                    Err(json::BadUtf8::Incomplete) => return Ok(Progress::Open(from)),
                    Err(json::BadUtf8::Invalid) => return Err(json::utf8_error(offset)),
                },
            };
            slow.push(character, out).map_err(|reason| Error::base64(reason, offset))?;
            from += length;
        }
        Ok(Progress::Open(from))
    }
}

#[cfg(test)]
mod tests {
    use super::{Progress, Text};
    use crate::base64::Kernels;
    use crate::cpu;
    use crate::input::{Padded, pad};
    use crate::pool::Buf;

    /// What a daemon writes is decoded by the kernels alone, on each level.
    #[test]
    fn canonical_cases_take_the_fast_path() {
        let folder = std::env::var("FASTKCL_CASES")
            .unwrap_or_else(|_| concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/cases").into());
        // The folder may hold other files only.
        let text = std::fs::read_to_string(format!("{folder}/base64.jsonl")).unwrap_or_default();
        for case in text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()) {
            let Some(value) = case["text"].as_str().filter(|_| case["canonical"] == true) else { continue };
            let line = pad(format!("{value}\"").as_bytes());
            for isa in cpu::supported() {
                let (mut text, mut out) = (Text::default(), Buf::new());
                let input = Padded::new(&line, value.len() + 1);
                let progress = text.advance(Kernels::of(isa), input, 0, 0, &mut out).unwrap();
                assert_eq!(progress, Progress::Closed(value.len() + 1), "{case}");
                assert!(text.slow.is_none(), "{case} on {}", isa.name());
            }
        }
    }
}
