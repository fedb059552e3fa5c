//! The kernels that an instruction set offers, and the code that runs on them.

use crate::input::{Padded, SLACK};
use crate::pool::Buf;

/// The kernels of one instruction set.
///
/// A value of an implementing type is the proof that this CPU has the instructions: types that need any are made by
/// their `detect` only. Callers are generic over this trait and entered by [`Kernels::run`](super::Kernels::run).
pub(crate) trait Kernel: Copy {
    /// Whether records are scanned; otherwise the general parser takes all of them.
    const SCANS: bool = true;

    /// Runs `routine` in a function of its own, compiled for these instructions. Besides entering an instruction set,
    /// this keeps what is seldom needed out of a hot loop, and out of its registers.
    fn run<R: Routine>(self, routine: R) -> R::Output;

    /// Decodes the run of alphabet characters at `source`, of which there may be `limit` at most. Returns its length;
    /// that of its whole bytes, [`bytes_of`] the run, is what was written.
    ///
    /// # Safety
    /// `source` is readable for `limit + SLACK` bytes; `destination` is writable for `limit / 4 * 3 + SLACK` bytes and
    /// does not overlap `source`.
    unsafe fn decode_run(self, source: *const u8, limit: usize, destination: *mut u8) -> usize;

    /// How many bytes of the block come before its first `"`, `\`, control character or non-ASCII byte.
    fn plain_run(self, block: &[u8; SLACK]) -> usize;

    /// How many of the first `limit` bytes at `source` come before the first `"`, `\` or control character.
    ///
    /// # Safety
    /// `source` is readable for `limit + SLACK` bytes.
    unsafe fn string_run(self, source: *const u8, limit: usize) -> usize;

    /// Takes the rest of a JSON string from `at`, its escapes replaced, appended to `out`: the index behind its
    /// closing quote. None if it is not all there, or has an error; what `out` then has behind its length before is
    /// the caller's to cut off.
    fn unescape(self, input: Padded<'_>, at: usize, out: &mut Buf) -> Option<usize>;
}

/// Code that is written once, generic over the kernel, and compiled once for each instruction set.
pub(crate) trait Routine {
    type Output;

    /// Implementations are `#[inline(always)]`, and so is all that they call and that matters: what is not inlined into
    /// the entry of an instruction set is compiled for the CPU that the build is for.
    fn run<K: Kernel>(self, kernel: K) -> Self::Output;
}

/// How many whole bytes a run of alphabet characters makes.
pub(crate) const fn bytes_of(run: usize) -> usize {
    run * 3 / 4
}

/// [`Kernel::decode_run`] on checked memory: the run at `input[from..to]`, its whole bytes appended to `out`.
#[inline(always)]
pub(crate) fn decode_run<K: Kernel>(kernel: K, input: Padded<'_>, from: usize, to: usize, out: &mut Buf) -> usize {
    assert!(from <= to && to <= input.end());
    let limit = to - from;
    out.reserve(limit / 4 * 3 + SLACK);
    // SAFETY: `Padded` has SLACK readable bytes behind `end`, and `to <= end`; `reserve` made the room behind `spare`,
    // in memory that `out` owns alone; the kernel has initialised `bytes_of(run)` bytes of it.
    unsafe {
        let run = kernel.decode_run(input.readable().as_ptr().add(from), limit, out.spare());
        out.set_len(out.len() + bytes_of(run));
        run
    }
}

/// [`Kernel::string_run`] on checked memory: the length of the run without quote, backslash or control character at
/// `input[from..]`.
#[inline(always)]
pub(crate) fn string_run<K: Kernel>(kernel: K, input: Padded<'_>, from: usize) -> usize {
    assert!(from <= input.end());
    // SAFETY: SLACK readable bytes follow `end`.
    unsafe { kernel.string_run(input.readable().as_ptr().add(from), input.end() - from) }
}
