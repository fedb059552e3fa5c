//! The content of a base64 JSON string, from after its opening quote to its closing one, over any number of calls.

use super::alphabet::{NONE, VALUES};
use super::slow::Slow;
use crate::error::{Error, ErrorKind, Result};
use crate::input::Padded;
use crate::json::error::{BadUtf8, RAW_CONTROL, utf8_error, utf8_sequence};
use crate::json::escape::{Escape, escape};
use crate::kernel::Kernels;
use crate::kernel::traits::{Kernel, Routine, decode_run};
use crate::pool::Buf;

/// At most this much input is decoded before the output's room is looked at again.
const CHUNK: usize = 256 * 1024;

/// An open value: its decoded bytes are after the output's committed part.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Text {
    /// Set once the value has shown anything that is not canonical.
    slow: Option<Slow>,
}

/// How far a value has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// The index after the closing quote.
    Closed(usize),
    /// All is taken but for what begins at this index: a unit's edge, or an escape that is not all there.
    Open(usize),
}

/// Takes a value from `from`, a unit's edge, on as far as the kernel can: up to `to`, or the end of a canonical one.
/// The open rest is never a whole unit.
#[inline(always)]
pub(crate) fn canonical<K: Kernel>(kernel: K, input: Padded<'_>, from: usize, to: usize, out: &mut Buf) -> Progress {
    /// What ends a run, by its length modulo 4: padding and the quote. No canonical value has a run of 4 n + 1.
    const ENDS: [&[u8]; 4] = [b"\"", b"", b"==\"", b"=\""];
    /// The same as little-endian numbers, and the bits of them that count.
    const WORDS: [(u32, u32); 4] = {
        let mut words = [(0, 0); 4];
        let mut run = 0;
        while run < 4 {
            let mut at = ENDS[run].len();
            while at > 0 {
                at -= 1;
                words[run] = (words[run].0 << 8 | ENDS[run][at] as u32, words[run].1 << 8 | 0xff);
            }
            run += 1;
        }
        words[1] = (1, 0);
        words
    };
    let run = decode_run(kernel, input, from, to, out);
    let next = input.block(from + run).and_then(|block| block.first_chunk()).expect("a run is input");
    let (word, mask) = WORDS[run % 4];
    // As long as ENDS says, without a look-up that everything after it would wait for.
    let end = from + run + 1 + run.wrapping_neg() % 4;
    if u32::from_le_bytes(*next) & mask == word && end <= input.end() {
        return Progress::Closed(end);
    }
    out.truncate(out.len() - run % 4 * 3 / 4);
    Progress::Open(from + run / 4 * 4)
}

/// [`canonical`] as a routine of its own.
struct Canonical<'a> {
    input: Padded<'a>,
    from: usize,
    to: usize,
    out: &'a mut Buf,
}

impl Routine for Canonical<'_> {
    type Output = Progress;

    #[inline(always)]
    fn run<K: Kernel>(self, kernel: K) -> Progress {
        canonical(kernel, self.input, self.from, self.to, self.out)
    }
}

/// Whether more input could still turn `rest` into a canonical end; it is not one yet.
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
        let Progress::Open(open) = self.advance(kernels, input, base, from, &mut Buf::new())? else { return Ok(()) };
        let (rest, offset) = (&input.input()[open..], base.wrapping_add(open));
        match rest {
            [0x80..=0xff, ..] => Err(utf8_error(offset)),
            [b'\\', ..] => match escape(rest, offset)? {
                Escape::CutCharacter(at) => Err(utf8_error(offset.wrapping_add(at))),
                _ => Ok(()),
            },
            _ => Ok(()),
        }
    }

    /// Decodes `input[from..]` into `out` as far as it goes. `base` is the line offset of `input[0]`.
    pub(crate) fn advance(
        &mut self,
        kernels: Kernels,
        input: Padded<'_>,
        base: usize,
        mut from: usize,
        out: &mut Buf,
    ) -> Result<Progress> {
        while self.slow.is_none() {
            let to = input.end().min(from + CHUNK);
            match kernels.run(Canonical { input, from, to, out }) {
                closed @ Progress::Closed(_) => return Ok(closed),
                Progress::Open(next) => from = next,
            }
            if to < input.end() && to - from < 4 {
                continue;
            }
            if may_end_canonically(&input.input()[from..]) {
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
                b'\\' => match escape(&bytes[from..], offset)? {
                    Escape::Unit { unit, length } => (unit, length),
                    Escape::Incomplete | Escape::CutCharacter(_) => return Ok(Progress::Open(from)),
                },
                b'\n' => return Err(Error::at_end(offset)),
                0..=0x1f => return Err(Error::new(ErrorKind::Json, offset, RAW_CONTROL)),
                0x20..=0x7f => (u32::from(byte), 1),
                0x80.. => match utf8_sequence(&bytes[from..]) {
                    Ok(length) => (0x80, length),
                    Err(BadUtf8::Incomplete) => return Ok(Progress::Open(from)),
                    Err(BadUtf8::Invalid) => return Err(utf8_error(offset)),
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
    use crate::input::{Padded, pad};
    use crate::kernel::{Kernels, cpu};
    use crate::pool::Buf;

    /// Canonical values, as daemons write them, are decoded by the kernels alone, on each instruction set.
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
