//! The kernels of each instruction set against the `base64` crate and naive scans, in memory that ends where it may.

use std::slice;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::traits::{Kernel, Routine, bytes_of};
use super::{Kernels, cpu};
use crate::base64::alphabet::ALPHABET;
use crate::guard::Pages;
use crate::input::{Padded, SLACK};

/// One call of a kernel on memory between guard pages.
struct Call<'a> {
    /// With SLACK bytes after `limit`.
    source: &'a [u8],
    limit: usize,
    /// [`room_for`](super::traits::room_for) the limit, at least.
    destination: &'a mut [u8],
}

impl Routine for Call<'_> {
    /// The runs of characters of the alphabet, plain ones, and those that a string may hold.
    type Output = [usize; 3];

    #[inline(always)]
    fn run<K: Kernel>(self, kernel: K) -> [usize; 3] {
        let source = Padded::new(self.source, self.limit);
        let (pointer, len) = (self.destination.as_mut_ptr(), self.destination.len());
        // SAFETY: the slice's own memory; a kernel leaves no byte of it uninitialised.
        let destination = unsafe { slice::from_raw_parts_mut(pointer.cast(), len) };
        [kernel.decode_run(source, destination), plain_run(kernel, self.source, self.limit), kernel.string_run(source)]
    }
}

/// The plain run of the first `limit` bytes, block by block.
#[inline(always)]
fn plain_run<K: Kernel>(kernel: K, source: &[u8], limit: usize) -> usize {
    let mut run = 0;
    while run < limit {
        let here = kernel.plain_run(source[run..].first_chunk().unwrap());
        run += here;
        if here < SLACK {
            break;
        }
    }
    run.min(limit)
}

/// The longest text of the sweeps.
const LONGEST: usize = 4096;

/// Bytes of all values in no particular order.
fn noise(length: usize) -> Vec<u8> {
    let next = |state: &mut u32, _| {
        *state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        Some(state.to_be_bytes()[0])
    };
    (0..length).scan(7, next).collect()
}

/// Each length up to 4096 ends at a guard page, begins at one, and stands at each alignment.
#[test]
fn every_length_at_every_alignment() {
    let data = noise(LONGEST / 4 * 3);
    let text = STANDARD.encode(&data).into_bytes();
    let (mut source, mut destination) = (Pages::new(LONGEST + 2 * SLACK), Pages::new(LONGEST / 4 * 3 + 2 * SLACK));
    for isa in cpu::supported() {
        let kernels = Kernels::of(isa);
        for length in 0..=LONGEST {
            let (readable, writable) = (length + SLACK, length / 4 * 3 + SLACK);
            let (source_size, destination_size) = (source.bytes().len(), destination.bytes().len());
            let mut check = |from: usize, to: usize| {
                let source = &mut source.bytes()[from..][..readable];
                source[..length].copy_from_slice(&text[..length]);
                // More of the alphabet after the end: it must not count.
                source[length..].fill(b'A');
                let destination = &mut destination.bytes()[to..][..writable];
                destination.fill(0x55);
                let runs = kernels.run(Call { source, limit: length, destination });
                let place = (length, from, to, isa.name());
                assert_eq!(runs, [length; 3], "{place:?}");
                let bytes = bytes_of(length);
                assert!(destination[..bytes] == data[..bytes], "{place:?}");
            };
            check(source_size - readable, destination_size - writable);
            check(0, 0);
            for alignment in 1..64 {
                check(alignment, 64 - alignment);
            }
        }
    }
}

/// A run ends at the first byte that is not of its kind, at any place in a block, whatever byte it is.
#[test]
fn every_byte_at_every_place() {
    const LENGTH: usize = 200;
    let data = noise(LENGTH / 4 * 3);
    let text = STANDARD.encode(&data).into_bytes();
    let (mut source, mut destination) = (Pages::new(LENGTH + SLACK), Pages::new(LENGTH));
    for isa in cpu::supported() {
        let kernels = Kernels::of(isa);
        for place in 0..LENGTH {
            for byte in 0..=u8::MAX {
                let source = source.bytes();
                let source = source.last_chunk_mut::<{ LENGTH + SLACK }>().unwrap();
                source[..LENGTH].copy_from_slice(&text);
                source[LENGTH..].fill(b'"');
                source[place] = byte;
                // A second one, lower in value or in place, must not matter.
                source[(place + 70).min(LENGTH)] = 0xff;
                let expected = [
                    source.iter().position(|byte| !ALPHABET.contains(byte)),
                    source.iter().position(|byte| !byte.is_ascii() || *byte < 0x20 || b"\"\\".contains(byte)),
                    source.iter().position(|byte| *byte < 0x20 || b"\"\\".contains(byte)),
                ]
                .map(|at| at.map_or(LENGTH, |at| at.min(LENGTH)));
                let destination = destination.bytes();
                let runs = kernels.run(Call { source, limit: LENGTH, destination });
                assert_eq!(runs, expected, "{byte:#04x} at {place} on {}", isa.name());
                let whole = expected[0].min(place) / 4 * 3;
                assert!(destination[..whole] == data[..whole], "{byte:#04x} at {place} on {}", isa.name());
                // The whole bytes of a unit that is cut are those of the same unit padded with zeros.
                let mut unit = [b'A'; 4];
                unit[..expected[0] % 4].copy_from_slice(&source[expected[0] / 4 * 4..expected[0]]);
                let cut = STANDARD.decode(unit).unwrap();
                let (from, to) = (expected[0] / 4 * 3, bytes_of(expected[0]));
                assert_eq!(destination[from..to], cut[..to - from], "{byte:#04x} at {place} on {}", isa.name());
            }
        }
    }
}
