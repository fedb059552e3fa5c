//! The kernels in plain Rust: one table look-up a character, eight bytes a turn for plain runs.

use std::ptr;

use super::traits::{Kernel, Routine};
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
    unsafe fn decode_run(self, source: *const u8, limit: usize, destination: *mut u8) -> usize {
        let mut read = 0;
        while read < limit {
            // SAFETY: `read < limit`, and SLACK bytes behind `limit` are readable.
            let unit = unsafe { ptr::read_unaligned(source.add(read).cast::<[u8; 4]>()) };
            let mut bits = SHIFTED[0][usize::from(unit[0])]
                | SHIFTED[1][usize::from(unit[1])]
                | SHIFTED[2][usize::from(unit[2])]
                | SHIFTED[3][usize::from(unit[3])];
            let mut run = 4;
            if bits >= BAD {
                run = unit.iter().take_while(|byte| VALUES[usize::from(**byte)] != NONE).count();
                bits = (0..run).fold(0, |bits, place| bits | SHIFTED[place][usize::from(unit[place])]);
            }
            // The fourth byte is written too and then overwritten or left beyond the length.
            // SAFETY: `read / 4 * 3 + 4 <= limit / 4 * 3 + SLACK`, which is the room of `destination`.
            unsafe { ptr::write_unaligned(destination.add(read / 4 * 3).cast(), (bits << 8).to_be_bytes()) };
            read += run;
            if run < 4 {
                break;
            }
        }
        read.min(limit)
    }

    #[inline(always)]
    fn plain_run(self, block: &[u8; SLACK]) -> usize {
        // SAFETY: a block is SLACK bytes, and that is whole loads.
        unsafe { run::<true>(block.as_ptr(), SLACK) }
    }

    #[inline(always)]
    unsafe fn string_run(self, source: *const u8, limit: usize) -> usize {
        // SAFETY: the caller's promises are the callee's.
        unsafe { run::<false>(source, limit) }
    }

    #[inline(always)]
    fn unescape(self, input: Padded<'_>, at: usize, out: &mut Buf) -> Option<usize> {
        by_runs(self, input, at, out, |text| str::from_utf8(text).is_ok())
    }
}

/// # Safety
/// `source` is readable for `limit` bytes, rounded up to whole loads.
#[inline(always)]
unsafe fn run<const ASCII: bool>(source: *const u8, limit: usize) -> usize {
    const ONES: u64 = u64::from_ne_bytes([1; 8]);
    const HIGHS: u64 = u64::from_ne_bytes([0x80; 8]);
    let mut read = 0;
    while read < limit {
        // SAFETY: the caller's promise.
        let block = u64::from_le_bytes(unsafe { ptr::read_unaligned(source.add(read).cast()) });
        // The lowest flagged byte is right; a borrow can only flag bytes above it (Bit Twiddling Hacks, "haszero").
        let zero = |word: u64| word.wrapping_sub(ONES) & !word;
        let quote = zero(block ^ (ONES * 0x22));
        let backslash = zero(block ^ (ONES * 0x5c));
        let control = block.wrapping_sub(ONES * 0x20) & !block;
        let other = if ASCII { block } else { 0 };
        let flags = (quote | backslash | control | other) & HIGHS;
        if flags != 0 {
            return (read + flags.trailing_zeros() as usize / 8).min(limit);
        }
        read += 8;
    }
    limit
}
