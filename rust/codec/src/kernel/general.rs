//! No kernels: everything is left to the general parsers and the exact path.

use std::mem::MaybeUninit;

use super::traits::{Kernel, Routine};
use crate::input::{Padded, SLACK};
use crate::pool::Buf;

/// Any CPU, for tests: all others must agree with it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct General;

impl Kernel for General {
    const SCANS: bool = false;

    #[inline(never)]
    fn run<R: Routine>(self, routine: R) -> R::Output {
        routine.run(self)
    }

    fn decode_run(self, _source: Padded<'_>, _destination: &mut [MaybeUninit<u8>]) -> usize {
        0
    }

    fn plain_run(self, _block: &[u8; SLACK]) -> usize {
        0
    }

    fn string_run(self, source: Padded<'_>) -> usize {
        let ends = |byte: &u8| matches!(byte, b'"' | b'\\' | 0..=0x1f);
        source.input().iter().position(ends).unwrap_or(source.end())
    }

    fn unescape(self, _input: Padded<'_>, _at: usize, _out: &mut Buf) -> Option<usize> {
        None
    }
}
