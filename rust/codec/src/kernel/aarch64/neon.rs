//! NEON: 64 characters to 48 bytes a turn.
//!
//! `ld4` loads 64 characters as four registers of every fourth one, so that each register holds one place of 16 units.
//! `tbl` with four registers is a table of 64 entries that gives 0 for an index beyond them, and `tbx` one that leaves
//! what there is; so a second look-up with bit 6 turned over adds the upper half of ASCII. Entries are the
//! characters' values, with the top bit set where there is none. A byte is bad if the top bit of its entry is set, or its
//! own (non-ASCII). Three shifts and ors make the three bytes of each unit, and `st3` stores them in turn.
//!
//! ```text
//!  places    ..aaaaaa  ..bbbbbb  ..cccccc  ..dddddd
//!  bytes     aaaaaabb  bbbbcccc  ccdddddd
//! ```
//!
//! A byte of a unit depends on no place after it, so the block with the first bad character goes the same way, and there
//! is no scalar tail. NEON has no instruction that gathers bits: for its place, four bits a lane are narrowed to one
//! 64-bit number.

#[allow(clippy::wildcard_imports, reason = "the intrinsics' names are their own namespace")]
use std::arch::aarch64::*;
use std::mem::MaybeUninit;

use simdutf8::basic::imp::aarch64::neon::validate_utf8;

use crate::base64::alphabet::VALUES;
use crate::input::{Padded, SLACK};
use crate::kernel::cpu::Isa;
use crate::kernel::scan::{self, Vector};
use crate::kernel::traits::{Kernel, Routine, room_for};
use crate::kernel::unescape::by_runs;
use crate::pool::Buf;

/// Proof that this CPU has NEON, and that its lanes are in memory's order.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Neon(());

impl Neon {
    pub(crate) fn detect() -> Option<Self> {
        Isa::Neon.is_supported().then_some(Self(()))
    }
}

impl Kernel for Neon {
    #[inline(never)]
    fn run<R: Routine>(self, routine: R) -> R::Output {
        routine.run(self)
    }

    #[inline(always)]
    fn decode_run(self, source: Padded<'_>, destination: &mut [MaybeUninit<u8>]) -> usize {
        let limit = source.end();
        assert!(destination.len() >= room_for(limit));
        let (source, destination) = (source.readable().as_ptr(), destination.as_mut_ptr().cast::<u8>());
        // SAFETY: `self` proves the instructions. Tables are the first 128 bytes of VALUES. Loads: `read < limit`, 64 bytes
        // each, and `Padded` has SLACK readable bytes after `limit`. Stores: 48 bytes at `read / 4 * 3`, where the room
        // of `limit / 4 * 3 + SLACK` has at least SLACK left.
        unsafe {
            let lower = vld1q_u8_x4(VALUES.as_ptr());
            let upper = vld1q_u8_x4(VALUES.as_ptr().add(64));
            let value = |text| vqtbx4q_u8(vqtbl4q_u8(lower, text), upper, veorq_u8(text, vdupq_n_u8(0x40)));
            let mut read = 0;
            while read < limit {
                let text = vld4q_u8(source.add(read));
                let (a, b, c, d) = (value(text.0), value(text.1), value(text.2), value(text.3));
                let bytes = uint8x16x3_t(
                    vorrq_u8(vshlq_n_u8::<2>(a), vshrq_n_u8::<4>(b)),
                    vorrq_u8(vshlq_n_u8::<4>(b), vshrq_n_u8::<2>(c)),
                    vorrq_u8(vshlq_n_u8::<6>(c), d),
                );
                vst3q_u8(destination.add(read / 4 * 3), bytes);
                let flags = [vorrq_u8(text.0, a), vorrq_u8(text.1, b), vorrq_u8(text.2, c), vorrq_u8(text.3, d)];
                let any = vorrq_u8(vorrq_u8(flags[0], flags[1]), vorrq_u8(flags[2], flags[3]));
                if vmaxvq_u8(any) >= 0x80 {
                    return limit.min(read + first_flagged(flags));
                }
                read += 64;
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

impl Vector for Neon {
    type Register = uint8x16_t;
    /// NEON narrows lanes of 16 bits to 8, so four bits of each byte are left.
    const MASK_BITS: u32 = 4;

    #[inline(always)]
    unsafe fn load(self, source: *const u8) -> uint8x16_t {
        // SAFETY: `self` proves the instructions; 16 bytes are readable, as the caller promises.
        unsafe { vld1q_u8(source) }
    }

    #[inline(always)]
    fn stops<const ASCII: bool>(self, text: uint8x16_t) -> u64 {
        // SAFETY: `self` proves the instructions.
        unsafe {
            let other = if ASCII {
                // As signed bytes, control characters and non-ASCII are all below U+0020.
                vcltq_s8(vreinterpretq_s8_u8(text), vdupq_n_s8(0x20))
            } else {
                vcltq_u8(text, vdupq_n_u8(0x20))
            };
            let special = vorrq_u8(vceqq_u8(text, vdupq_n_u8(0x22)), vceqq_u8(text, vdupq_n_u8(0x5c)));
            let stops = vshrn_n_u16::<4>(vreinterpretq_u16_u8(vorrq_u8(other, special)));
            vget_lane_u64::<0>(vreinterpret_u64_u8(stops))
        }
    }
}

/// The index of the first character whose top bit is set in the flags of its place; 64 if there is none.
#[inline(always)]
fn first_flagged(flags: [uint8x16_t; 4]) -> usize {
    // SAFETY: NEON is part of every target that this is built for.
    unsafe {
        // Four bits a lane, the lowest for the first place.
        let bit = |flags, bit| vandq_u8(vcltzq_s8(vreinterpretq_s8_u8(flags)), vdupq_n_u8(bit));
        let lanes =
            vorrq_u8(vorrq_u8(bit(flags[0], 1), bit(flags[1], 2)), vorrq_u8(bit(flags[2], 4), bit(flags[3], 8)));
        // Two lanes are joined to a byte.
        let pairs = vreinterpretq_u16_u8(lanes);
        let joined = vmovn_u16(vorrq_u16(pairs, vshrq_n_u16::<4>(pairs)));
        vget_lane_u64::<0>(vreinterpret_u64_u8(joined)).trailing_zeros() as usize
    }
}
