//! Routines of each instruction set for base64 and JSON: they find and decode runs of characters, and replace escapes.
//!
//! ```text
//! kernel/
//!   cpu.rs              which instruction set this process uses
//!   traits.rs           Kernel: decode_run, plain_run, string_run, unescape; Routine: code that runs on one
//!   portable.rs         tables, any CPU        ┐
//!   x86_64/avx2.rs      32 characters a turn   │
//!   x86_64/avx512/      64 characters a turn   ├ the kernels
//!   aarch64/neon.rs     64 characters a turn   │
//!   general.rs          none of all that       ┘
//!   scan.rs             where a run ends, for kernels with vectors
//!   unescape/           a JSON string with its escapes replaced, for kernels without instructions of their own for it
//! ```

#[cfg(target_arch = "aarch64")]
mod aarch64;
pub mod cpu;
mod general;
mod portable;
#[cfg(any(target_arch = "aarch64", target_arch = "x86_64"))]
mod scan;
#[cfg(test)]
mod tests;
pub(crate) mod traits;
mod unescape;
#[cfg(target_arch = "x86_64")]
mod x86_64;

use self::cpu::Isa;
use self::traits::{Kernel, Routine};

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
