//! The proof that AVX-512 is there, and the form of its tables.

use crate::kernel::cpu::Isa;
use crate::kernel::x86_64::avx2::Avx2;

/// Proof that this CPU has AVX-512 F, BW, VL, VBMI and VBMI2, AVX2, BMI, LZCNT and POPCNT.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Avx512 {
    avx2: Avx2,
}

impl Avx512 {
    pub(crate) fn detect() -> Option<Self> {
        Avx2::detect().filter(|_| Isa::Avx512.is_supported()).map(|avx2| Self { avx2 })
    }

    #[inline(always)]
    pub(super) const fn avx2(self) -> Avx2 {
        self.avx2
    }
}

/// A register's bytes in memory.
#[repr(align(64))]
pub(super) struct Block(pub(super) [u8; 64]);
