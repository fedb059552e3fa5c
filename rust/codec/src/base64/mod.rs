//! Base64 as a JSON string in a KCL line holds it: encoding, and decoding by two paths that agree byte for byte.
//!
//! A daemon writes only canonical text, so almost every character is decoded by a [`Kernel`]: code for one instruction
//! set that decodes the run of alphabet characters before the first byte that is none. What it stops at is the closing
//! quote, padding, or something else; the kernel neither knows nor cares. The caller ([`text`]) looks whether it is
//! the end of a canonical value and hands everything else to the slow path ([`slow`]), which reads exactly what
//! Jackson's `MIME_NO_LINEFEEDS` reads and is the only one to find errors. It takes over at a unit's edge, so no whole
//! unit is looked at again.
//!
//! ```text
//! base64/
//!   alphabet.rs       the characters and their values
//!   portable.rs       tables, any CPU        ┐ Kernel: decode_run, and what the scanner needs for strings:
//!   x86_64/avx2.rs    32 characters a turn   ├ plain_run, string_run, unescape
//!   x86_64/avx512.rs  64 characters a turn   │
//!   aarch64/neon.rs   64 characters a turn   │
//!   general.rs        none of all that       ┘
//!   slow.rs           one character at a time, resumable, all errors
//!   text.rs           a value from its opening quote on: kernel, end of text, slow path
//! ```

#[cfg(target_arch = "aarch64")]
pub(crate) mod aarch64;
pub(crate) mod alphabet;
pub(crate) mod general;
pub(crate) mod portable;
pub(crate) mod slow;
#[cfg(test)]
mod tests;
pub(crate) mod text;
#[cfg(target_arch = "x86_64")]
pub(crate) mod x86_64;

use crate::cpu::{self, Isa};
use crate::error::Error;
use crate::input::{Padded, SLACK, pad};
use crate::pool::Buf;

/// The kernels of one instruction set.
///
/// A value of an implementing type is the proof that this CPU has the instructions: types that need any are made by
/// their `detect` only. Callers are generic over this trait and entered by [`Kernels::run`].
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

/// The kernels of this process, chosen once.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kernels {
    #[cfg(target_arch = "x86_64")]
    Avx512(x86_64::avx512::Avx512),
    #[cfg(target_arch = "x86_64")]
    Avx2(x86_64::avx2::Avx2),
    #[cfg(target_arch = "aarch64")]
    Neon(aarch64::neon::Neon),
    Portable(portable::Portable),
    General(general::General),
}

impl Kernels {
    /// The kernels of `isa`; the portable ones where this CPU does not have it.
    pub(crate) fn of(isa: Isa) -> Self {
        match isa {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => x86_64::avx512::Avx512::detect().map(Self::Avx512),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => x86_64::avx2::Avx2::detect().map(Self::Avx2),
            #[cfg(target_arch = "aarch64")]
            Isa::Neon => aarch64::neon::Neon::detect().map(Self::Neon),
            Isa::General => Some(Self::General(general::General)),
            Isa::Portable => None,
        }
        .unwrap_or(Self::Portable(portable::Portable))
    }

    /// The kernels of [`cpu::active`]; a wrong `FASTKCL_FORCE_ISA` is reported there, not here.
    pub(crate) fn active() -> Self {
        Self::of(cpu::active().unwrap_or(Isa::Portable))
    }

    /// Runs `routine` as it is compiled for these kernels: the one place where the instruction set is looked at.
    #[inline]
    pub(crate) fn run<R: Routine>(self, routine: R) -> R::Output {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Avx512(kernel) => kernel.run(routine),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(kernel) => kernel.run(routine),
            #[cfg(target_arch = "aarch64")]
            Self::Neon(kernel) => kernel.run(routine),
            Self::Portable(kernel) => kernel.run(routine),
            Self::General(kernel) => kernel.run(routine),
        }
    }

    /// [`Kernel::SCANS`].
    pub(crate) const fn scan(self) -> bool {
        !matches!(self, Self::General(_))
    }
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

/// [`decode_run`] as a routine of its own.
struct DecodeRun<'a> {
    input: Padded<'a>,
    from: usize,
    to: usize,
    out: &'a mut Buf,
}

impl Routine for DecodeRun<'_> {
    type Output = usize;

    #[inline(always)]
    fn run<K: Kernel>(self, kernel: K) -> usize {
        decode_run(kernel, self.input, self.from, self.to, self.out)
    }
}

/// [`string_run`] as a routine of its own.
pub(crate) struct StringRun<'a> {
    pub(crate) input: Padded<'a>,
    pub(crate) from: usize,
}

impl Routine for StringRun<'_> {
    type Output = usize;

    #[inline(always)]
    fn run<K: Kernel>(self, kernel: K) -> usize {
        string_run(kernel, self.input, self.from)
    }
}

/// Encodes with padding.
#[must_use]
pub fn encode(data: &[u8]) -> String {
    base64_simd::STANDARD.encode_to_string(data)
}

/// Encodes with padding, appended to `text`.
pub fn encode_to(data: &[u8], text: &mut Vec<u8>) {
    base64_simd::STANDARD.encode_append(data, text);
}

/// Decodes a whole value, as it stands in a JSON string after unescaping: text, without quotes or escapes.
///
/// # Errors
/// [`ErrorKind::Base64`](crate::ErrorKind::Base64) with the reason, at the offset from the start of `text`.
pub fn decode(text: &[u8]) -> Result<Vec<u8>, Error> {
    let padded = pad(text);
    let input = Padded::new(&padded, text.len());
    let mut out = Buf::new();
    let run = Kernels::active().run(DecodeRun { input, from: 0, to: text.len(), out: &mut out });
    out.truncate(run / 4 * 3);
    let mut state = slow::Slow::default();
    for (at, byte) in text.iter().enumerate().skip(run / 4 * 4) {
        state.push(u32::from(*byte), &mut out).map_err(|reason| Error::base64(reason, at))?;
    }
    state.finish().map_err(|reason| Error::base64(reason, text.len()))?;
    Ok(out.as_slice().to_vec())
}
