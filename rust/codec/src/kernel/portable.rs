//! The kernels in plain Rust: one table look-up a character, eight bytes a turn for plain runs.

use std::mem::MaybeUninit;

use super::traits::{Kernel, Routine, room_for};
use super::unescape::by_runs;
use crate::base64::alphabet::{NONE, VALUES};
use crate::input::{Padded, SLACK};
use crate::pool::Buf;

/// Any CPU.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Portable;

/// Marks a byte outside of the alphabet in [`SHIFTED`]: above all 24 bits of a unit.
const BAD: u32 = 1 << 31;

/// For each place in a unit, the value of each character, shifted to where it goes, or [`BAD`].
static SHIFTED: [[u32; 256]; 4] = {
    let mut tables = [[BAD; 256]; 4];
    let mut place = 0;
    while place < 4 {
        let mut byte = 0;
        while byte < 256 {
            if VALUES[byte] != NONE {
                tables[place][byte] = (VALUES[byte] as u32) << (18 - 6 * place);
            }
            byte += 1;
        }
        place += 1;
    }
    tables
};

impl Kernel for Portable {
    #[inline(never)]
    fn run<R: Routine>(self, routine: R) -> R::Output {
        routine.run(self)
    }

    #[inline(always)]
    fn decode_run(self, source: Padded<'_>, destination: &mut [MaybeUninit<u8>]) -> usize {
        let limit = source.end();
        assert!(destination.len() >= room_for(limit));
        let (units, _) = source.readable()[..limit.next_multiple_of(4)].as_chunks::<4>();
        let (rooms, _) = destination.as_chunks_mut::<3>();
        let mut read = 0;
        for (unit, room) in units.iter().zip(rooms) {
            let [first, second, third, fourth] = unit.map(usize::from);
            let mut bits = SHIFTED[0][first] | SHIFTED[1][second] | SHIFTED[2][third] | SHIFTED[3][fourth];
            let mut run = 4;
            if bits >= BAD {
                run = unit.iter().take_while(|byte| VALUES[usize::from(**byte)] != NONE).count();
                bits = (0..run).fold(0, |bits, place| bits | SHIFTED[place][usize::from(unit[place])]);
            }
            let [_, bytes @ ..] = bits.to_be_bytes();
            *room = bytes.map(MaybeUninit::new);
            read += run;
            if run < 4 {
                break;
            }
        }
        read.min(limit)
    }

    #[inline(always)]
    fn plain_run(self, block: &[u8; SLACK]) -> usize {
        run::<true>(block)
    }

    #[inline(always)]
    fn string_run(self, source: Padded<'_>) -> usize {
        let limit = source.end();
        run::<false>(&source.readable()[..limit.next_multiple_of(8)]).min(limit)
    }

    #[inline(always)]
    fn unescape(self, input: Padded<'_>, at: usize, out: &mut Buf) -> Option<usize> {
        by_runs(self, input, at, out, |text| str::from_utf8(text).is_ok())
    }
}

/// How many bytes of `text`, which is whole words, come before the first that ends a run.
#[inline(always)]
fn run<const ASCII: bool>(text: &[u8]) -> usize {
    const ONES: u64 = u64::from_ne_bytes([1; 8]);
    const HIGHS: u64 = u64::from_ne_bytes([0x80; 8]);
    let (words, _) = text.as_chunks::<8>();
    for (index, word) in words.iter().enumerate() {
        let word = u64::from_le_bytes(*word);
        // The lowest flagged byte is right; a borrow can only flag bytes above it (Bit Twiddling Hacks, "haszero").
        let zero = |word: u64| word.wrapping_sub(ONES) & !word;
        let quote = zero(word ^ (ONES * 0x22));
        let backslash = zero(word ^ (ONES * 0x5c));
        let control = word.wrapping_sub(ONES * 0x20) & !word;
        let other = if ASCII { word } else { 0 };
        let flags = (quote | backslash | control | other) & HIGHS;
        if flags != 0 {
            return index * size_of::<u64>() + flags.trailing_zeros() as usize / 8;
        }
    }
    text.len()
}
