//! AVX-512 with VBMI: 64 characters to 48 bytes a turn.
//!
//! `vpermi2b` looks up 64 bytes at once in a table of 128 that fills two registers. It takes the low seven bits of
//! each character as the index, so the ASCII half of the table is all there is: an entry is the character's value, or
//! has its top bit set where there is none. A byte is bad if the top bit of its entry is set, or its own (non-ASCII):
//! one `or`, and one instruction that gathers the top bits into a mask register.
//!
//! ```text
//!  character            i        v        9        x        6 bits each: 34, 47, 61, 49
//!  vpmaddubsw       i * 64 + v       9 * 64 + x             two of 12 bits
//!  vpmaddwd      (i * 64 + v) * 4096 + (9 * 64 + x)         one of 24 bits, its lowest byte first
//!  vpermb          byte 2   byte 1   byte 0                 of each of the 16; the gaps between them are closed
//! ```
//!
//! The block with the first bad byte goes the same way, with the values from there on set to 0, so there is no scalar
//! tail. Stores are masked to the 48 bytes of a block.

mod proof;
mod unescape;

#[allow(clippy::wildcard_imports, reason = "the intrinsics' names are their own namespace")]
use std::arch::x86_64::*;
use std::mem::MaybeUninit;

pub(in crate::kernel) use self::proof::Avx512;
use self::proof::Block;
use crate::base64::alphabet::VALUES;
use crate::input::{Padded, SLACK};
use crate::kernel::traits::{Kernel, Routine, room_for};
use crate::pool::Buf;

/// The values of the first and second 64 ASCII characters; the top bit is set where there is none.
static LOW: Block = Block(*VALUES.first_chunk().expect("256 entries"));
static HIGH: Block = Block(*VALUES.split_at(64).1.first_chunk().expect("192 entries"));

/// Which byte of 16 units of 24 bits, each in four bytes with the lowest first, goes where.
static ORDER: Block = {
    let mut order = [0; 64];
    let mut at = 0;
    while at < 48 {
        #[expect(clippy::cast_possible_truncation, reason = "below 64")]
        {
            order[at] = (at / 3 * 4 + 2 - at % 3) as u8;
        }
        at += 1;
    }
    Block(order)
};

/// The 48 bytes that a block of 64 values makes. A store of all 64 would cross a cache line more often, and cost iot
/// 15 %.
const WHOLE: __mmask64 = (1 << 48) - 1;

impl Kernel for Avx512 {
    #[inline]
    fn run<R: Routine>(self, routine: R) -> R::Output {
        #[inline(never)]
        #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi,avx512vbmi2,avx2,bmi1,bmi2,lzcnt,popcnt")]
        fn compiled<R: Routine>(kernel: Avx512, routine: R) -> R::Output {
            routine.run(kernel)
        }
        // SAFETY: `self` proves the instructions.
        unsafe { compiled(self, routine) }
    }

    #[inline(always)]
    fn decode_run(self, source: Padded<'_>, destination: &mut [MaybeUninit<u8>]) -> usize {
        let limit = source.end();
        assert!(destination.len() >= room_for(limit));
        let (source, destination) = (source.readable().as_ptr(), destination.as_mut_ptr().cast::<u8>());
        // SAFETY: `self` proves the instructions. Tables are 64 bytes, aligned. Loads: `read < limit`, 64 bytes each,
        // and `Padded` has SLACK readable bytes after `limit`. Stores: 48 bytes at `read / 4 * 3`, where the room of
        // `limit / 4 * 3 + SLACK` has at least SLACK left.
        unsafe {
            let low = _mm512_load_si512(LOW.0.as_ptr().cast());
            let high = _mm512_load_si512(HIGH.0.as_ptr().cast());
            let order = _mm512_load_si512(ORDER.0.as_ptr().cast());
            let pack = |values| {
                let pairs = _mm512_maddubs_epi16(values, _mm512_set1_epi32(0x0140_0140));
                let units = _mm512_madd_epi16(pairs, _mm512_set1_epi32(0x0001_1000));
                _mm512_permutexvar_epi8(order, units)
            };
            let mut read = 0;
            while read < limit {
                let text = _mm512_loadu_si512(source.add(read).cast());
                let values = _mm512_permutex2var_epi8(low, text, high);
                let bytes = destination.add(read / 4 * 3).cast();
                let bad = _mm512_movepi8_mask(_mm512_or_si512(text, values));
                if bad != 0 {
                    let run = bad.trailing_zeros();
                    let values = _mm512_maskz_mov_epi8(_bzhi_u64(u64::MAX, run), values);
                    _mm512_mask_storeu_epi8(bytes, WHOLE, pack(values));
                    return limit.min(read + run as usize);
                }
                _mm512_mask_storeu_epi8(bytes, WHOLE, pack(values));
                read += 64;
            }
            limit
        }
    }

    // Keys and sequence numbers are shorter than a block: half a block at a time finds their quote sooner.

    #[inline(always)]
    fn plain_run(self, block: &[u8; SLACK]) -> usize {
        self.avx2().plain_run(block)
    }

    #[inline(always)]
    fn string_run(self, source: Padded<'_>) -> usize {
        self.avx2().string_run(source)
    }

    #[inline(always)]
    fn unescape(self, input: Padded<'_>, at: usize, out: &mut Buf) -> Option<usize> {
        unescape::unescape(self, input, at, out)
    }
}
