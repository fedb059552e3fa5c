//! AVX2: 32 characters to 24 bytes a turn.
//!
//! Decoding follows Muła and Lemire, "Faster Base64 Encoding and Decoding Using AVX2 Instructions" (2018). A character
//! is looked up by its two nibbles in two 16-byte tables whose entries are bit sets of "not an alphabet character of
//! this shape"; a character is bad if both sets share a bit. A third table, by high nibble (moved down by one for `/`),
//! gives the distance from the character to its value. Two multiply-adds join four 6-bit values to 24 bits, a byte
//! shuffle puts the 12 bytes of each half in order, and a permute closes the gap between the halves.
//!
//! The block with the first bad character goes the same way, with the values of bad ones set to 0, so there is no
//! scalar tail.

#[allow(clippy::wildcard_imports, reason = "the intrinsics' names are their own namespace")]
use std::arch::x86_64::*;
use std::mem::MaybeUninit;

use simdutf8::basic::imp::x86::avx2::validate_utf8;

use crate::input::{Padded, SLACK};
use crate::kernel::cpu::Isa;
use crate::kernel::scan::{self, Vector};
use crate::kernel::traits::{Kernel, Routine, room_for};
use crate::kernel::unescape::by_runs;
use crate::pool::Buf;

/// Proof that this CPU has AVX2, BMI and LZCNT.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Avx2(());

impl Avx2 {
    pub(crate) fn detect() -> Option<Self> {
        Isa::Avx2.is_supported().then_some(Self(()))
    }
}

/// Both halves of a register from one table of 16.
macro_rules! table {
    ($($entry:expr),* $(,)?) => { _mm256_setr_epi8($($entry),*, $($entry),*) };
}

impl Kernel for Avx2 {
    #[inline]
    fn run<R: Routine>(self, routine: R) -> R::Output {
        #[inline(never)]
        #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt")]
        fn compiled<R: Routine>(kernel: Avx2, routine: R) -> R::Output {
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
        // SAFETY: `self` proves the instructions. Loads: `read < limit`, 32 bytes each, and `Padded` has SLACK readable
        // bytes after `limit`. Stores: 32 bytes at `read / 4 * 3`, where the room of `limit / 4 * 3 + SLACK` has at
        // least SLACK left.
        unsafe {
            let low_table =
                table!(0x15, 0x11, 0x11, 0x11, 0x11, 0x11, 0x11, 0x11, 0x11, 0x11, 0x13, 0x1a, 0x1b, 0x1b, 0x1b, 0x1a);
            let high_table =
                table!(0x10, 0x10, 0x01, 0x02, 0x04, 0x08, 0x04, 0x08, 0x10, 0x10, 0x10, 0x10, 0x10, 0x10, 0x10, 0x10);
            let distance_table = table!(0, 16, 19, 4, -65, -65, -71, -71, 0, 0, 0, 0, 0, 0, 0, 0);
            let order = table!(2, 1, 0, 6, 5, 4, 10, 9, 8, 14, 13, 12, -1, -1, -1, -1);
            let nibble = _mm256_set1_epi8(0x0f);
            let slash = _mm256_set1_epi8(0x2f);
            let pack = |values| {
                let pairs = _mm256_maddubs_epi16(values, _mm256_set1_epi32(0x0140_0140));
                let units = _mm256_madd_epi16(pairs, _mm256_set1_epi32(0x0001_1000));
                let halves = _mm256_shuffle_epi8(units, order);
                _mm256_permutevar8x32_epi32(halves, _mm256_setr_epi32(0, 1, 2, 4, 5, 6, 3, 7))
            };
            let mut read = 0;
            while read < limit {
                let text = _mm256_loadu_si256(source.add(read).cast());
                let high = _mm256_and_si256(_mm256_srli_epi32(text, 4), nibble);
                let low = _mm256_and_si256(text, nibble);
                let bad = _mm256_and_si256(_mm256_shuffle_epi8(low_table, low), _mm256_shuffle_epi8(high_table, high));
                let is_slash = _mm256_cmpeq_epi8(text, slash);
                let distance = _mm256_shuffle_epi8(distance_table, _mm256_add_epi8(is_slash, high));
                let values = _mm256_add_epi8(text, distance);
                let good = _mm256_cmpeq_epi8(bad, _mm256_setzero_si256());
                let bytes = destination.add(read / 4 * 3).cast();
                let stops = !_mm256_movemask_epi8(good).cast_unsigned();
                if stops != 0 {
                    _mm256_storeu_si256(bytes, pack(_mm256_and_si256(values, good)));
                    return limit.min(read + stops.trailing_zeros() as usize);
                }
                _mm256_storeu_si256(bytes, pack(values));
                read += 32;
            }
            limit
        }
    }

    #[inline(always)]
    fn plain_run(self, block: &[u8; SLACK]) -> usize {
        scan::plain_run(self, block)
    }

    #[inline(always)]
    fn string_run(self, source: Padded<'_>) -> usize {
        scan::string_run(self, source)
    }

    #[inline(always)]
    fn unescape(self, input: Padded<'_>, at: usize, out: &mut Buf) -> Option<usize> {
        by_runs(self, input, at, out, |text| {
            // SAFETY: `self` proves the instructions.
            unsafe { validate_utf8(text) }.is_ok()
        })
    }
}

impl Vector for Avx2 {
    type Register = __m256i;
    const MASK_BITS: u32 = 1;

    #[inline(always)]
    unsafe fn load(self, source: *const u8) -> __m256i {
        // SAFETY: `self` proves the instructions; 32 bytes are readable, as the caller promises.
        unsafe { _mm256_loadu_si256(source.cast()) }
    }

    #[inline(always)]
    fn stops<const ASCII: bool>(self, text: __m256i) -> u64 {
        // SAFETY: `self` proves the instructions.
        unsafe {
            let other = if ASCII {
                // As signed bytes, control characters and non-ASCII are all below U+0020.
                _mm256_cmpgt_epi8(_mm256_set1_epi8(0x20), text)
            } else {
                _mm256_cmpeq_epi8(_mm256_min_epu8(text, _mm256_set1_epi8(0x1f)), text)
            };
            let quote = _mm256_cmpeq_epi8(text, _mm256_set1_epi8(0x22));
            let backslash = _mm256_cmpeq_epi8(text, _mm256_set1_epi8(0x5c));
            let stops = _mm256_or_si256(other, _mm256_or_si256(quote, backslash));
            u64::from(_mm256_movemask_epi8(stops).cast_unsigned())
        }
    }
}
