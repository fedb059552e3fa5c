//! Where a plain run, or the text of a JSON string, ends: one search for every instruction set with vectors.

use crate::input::{Padded, SLACK};

/// An instruction set that compares a register of bytes at once. A value is the proof that this CPU has it.
pub(super) trait Vector: Copy {
    /// Bytes in memory.
    type Register: Copy;
    /// Bits of a mask for each byte.
    const MASK_BITS: u32;

    /// # Safety
    /// `source` is readable for a whole register.
    unsafe fn load(self, source: *const u8) -> Self::Register;

    /// A mask of the bytes that end a run, the first byte's bits lowest: `"`, `\` and control characters, and non-ASCII
    /// ones if the run is `ASCII`.
    fn stops<const ASCII: bool>(self, text: Self::Register) -> u64;
}

/// How many bytes of the block come before its first `"`, `\`, control character or non-ASCII byte.
#[inline(always)]
pub(super) fn plain_run<V: Vector>(vector: V, block: &[u8; SLACK]) -> usize {
    // SAFETY: a block is SLACK bytes, and that is whole registers.
    unsafe { run::<true, V>(vector, block.as_ptr(), SLACK) }
}

/// How many bytes of the input come before its first `"`, `\` or control character.
#[inline(always)]
pub(super) fn string_run<V: Vector>(vector: V, source: Padded<'_>) -> usize {
    // SAFETY: `Padded` has SLACK readable bytes after its end, and a register is no longer.
    unsafe { run::<false, V>(vector, source.readable().as_ptr(), source.end()) }
}

/// # Safety
/// `source` is readable for `limit` bytes, rounded up to whole registers.
#[inline(always)]
unsafe fn run<const ASCII: bool, V: Vector>(vector: V, source: *const u8, limit: usize) -> usize {
    const { assert!(SLACK.is_multiple_of(size_of::<V::Register>())) };
    let mut read = 0;
    while read < limit {
        // SAFETY: `read < limit`, and the caller's promise.
        let stops = vector.stops::<ASCII>(unsafe { vector.load(source.add(read)) });
        if stops != 0 {
            return limit.min(read + (stops.trailing_zeros() / V::MASK_BITS) as usize);
        }
        read += size_of::<V::Register>();
    }
    limit
}
