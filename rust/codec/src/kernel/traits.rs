//! The kernels that an instruction set offers, and the code that runs on them.

use std::mem::MaybeUninit;

use crate::input::{Padded, SLACK};
use crate::pool::Buf;

/// The kernels of one instruction set.
///
/// A value of an implementing type is the proof that this CPU has the instructions: types that need any are made by
/// their `detect` only. Callers are generic over this trait and entered by [`Kernels::run`](super::Kernels::run).
/// Unsafe code relies on the promise of each function.
pub(crate) trait Kernel: Copy {
    /// Whether records are scanned; otherwise the general parser takes all of them.
    const SCANS: bool = true;

    /// Runs `routine` in a function of its own, compiled for these instructions. Besides entering an instruction set,
    /// this keeps rare cases out of a hot loop, and out of its registers.
    fn run<R: Routine>(self, routine: R) -> R::Output;

    /// Decodes the run of alphabet characters at the start of `source` into `destination` and returns its length. The
    /// run's whole bytes, [`bytes_of`] it, are initialised afterwards; the kernel may write more.
    ///
    /// # Panics
    /// `destination` is shorter than [`room_for`] the input.
    fn decode_run(self, source: Padded<'_>, destination: &mut [MaybeUninit<u8>]) -> usize;

    /// How many bytes of the block come before its first `"`, `\`, control character or non-ASCII byte.
    fn plain_run(self, block: &[u8; SLACK]) -> usize;

    /// How many bytes of the input come before its first `"`, `\` or control character.
    fn string_run(self, source: Padded<'_>) -> usize;

    /// Takes the rest of a JSON string from `at`, its escapes replaced, appended to `out`: the index after its
    /// closing quote. None if it is not all there, or has an error; what `out` then has after its length before is
    /// the caller's to cut off.
    fn unescape(self, input: Padded<'_>, at: usize, out: &mut Buf) -> Option<usize>;
}

/// Code that is written once, generic over the kernel, and compiled once for each instruction set.
pub(crate) trait Routine {
    type Output;

    /// Implementations are `#[inline(always)]`, and so are the functions on their hot path. A function that is not inlined
    /// into the entry of an instruction set is compiled for the build's own CPU.
    fn run<K: Kernel>(self, kernel: K) -> Self::Output;
}

/// How many whole bytes a run of alphabet characters makes.
pub(crate) const fn bytes_of(run: usize) -> usize {
    run * 3 / 4
}

/// How many bytes a kernel may write when it decodes `limit` characters.
pub(crate) const fn room_for(limit: usize) -> usize {
    limit / 4 * 3 + SLACK
}

/// [`Kernel::decode_run`] of `input[from..to]`, its whole bytes appended to `out`.
#[inline(always)]
pub(crate) fn decode_run<K: Kernel>(kernel: K, input: Padded<'_>, from: usize, to: usize, out: &mut Buf) -> usize {
    let source = input.until(to).from(from);
    let run = kernel.decode_run(source, out.room(room_for(source.end())));
    // SAFETY: the kernel has initialised `bytes_of(run)` bytes of the room.
    unsafe { out.set_len(out.len() + bytes_of(run)) };
    run
}
