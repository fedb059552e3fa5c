//! No kernels: what a scanner and blocks would take is left to the general parsers and the exact path.

use std::slice;

use super::traits::{Kernel, Routine};
use crate::input::{Padded, SLACK};
use crate::pool::Buf;

/// Any CPU, for tests: what all others must agree with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct General;

impl Kernel for General {
    const SCANS: bool = false;

    #[inline(never)]
    fn run<R: Routine>(self, routine: R) -> R::Output {
        routine.run(self)
    }

    unsafe fn decode_run(self, _source: *const u8, _limit: usize, _destination: *mut u8) -> usize {
        0
    }

    fn plain_run(self, _block: &[u8; SLACK]) -> usize {
        0
    }

    unsafe fn string_run(self, source: *const u8, limit: usize) -> usize {
        // SAFETY: the caller's promise.
        let bytes = unsafe { slice::from_raw_parts(source, limit) };
        bytes.iter().position(|byte| matches!(byte, b'"' | b'\\' | 0..=0x1f)).unwrap_or(limit)
    }

    fn unescape(self, _input: Padded<'_>, _at: usize, _out: &mut Buf) -> Option<usize> {
        None
    }
}
