//! Which instruction set this process uses: detected once, or forced by `FASTKCL_FORCE_ISA`.
//!
//! Every level gives byte-identical results and errors; only time differs. Tests and benches force one by name.

use std::fmt;
use std::sync::OnceLock;

/// An instruction set that has kernels in this build.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Isa {
    /// x86-64 with AVX-512 F, BW, VL, VBMI and VBMI2 (from Ice Lake and Zen 4 on), and all of [`Isa::Avx2`].
    #[cfg(target_arch = "x86_64")]
    Avx512,
    /// x86-64 with AVX2, BMI and LZCNT.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// 64-bit Arm with NEON, little-endian.
    #[cfg(target_arch = "aarch64")]
    Neon,
    /// Plain Rust, any CPU.
    Portable,
    /// None: every line is parsed as a whole by the general parsers, base64 a character at a time. Tests compare the
    /// others with it; it is not among [`supported`], and cannot be forced.
    General,
}

/// The environment variable that forces a level.
pub const FORCE_VARIABLE: &str = "FASTKCL_FORCE_ISA";

/// `FASTKCL_FORCE_ISA` names a level that this build or this CPU does not have.
#[derive(Clone, Debug)]
pub struct IsaError(String);

impl fmt::Display for IsaError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl std::error::Error for IsaError {}

impl Isa {
    /// The name in `FASTKCL_FORCE_ISA` and in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => "avx512",
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => "avx2",
            #[cfg(target_arch = "aarch64")]
            Self::Neon => "neon",
            Self::Portable => "portable",
            Self::General => "general",
        }
    }

    /// Whether this CPU can run it.
    #[must_use]
    pub fn is_supported(self) -> bool {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => {
                Self::Avx2.is_supported()
                    && std::arch::is_x86_feature_detected!("avx512f")
                    && std::arch::is_x86_feature_detected!("avx512bw")
                    && std::arch::is_x86_feature_detected!("avx512vl")
                    && std::arch::is_x86_feature_detected!("avx512vbmi")
                    && std::arch::is_x86_feature_detected!("avx512vbmi2")
                    && std::arch::is_x86_feature_detected!("popcnt")
            }
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => {
                std::arch::is_x86_feature_detected!("avx2")
                    && std::arch::is_x86_feature_detected!("bmi1")
                    && std::arch::is_x86_feature_detected!("bmi2")
                    && std::arch::is_x86_feature_detected!("lzcnt")
            }
            #[cfg(target_arch = "aarch64")]
            Self::Neon => cfg!(target_endian = "little") && std::arch::is_aarch64_feature_detected!("neon"),
            Self::Portable | Self::General => true,
        }
    }
}

/// The levels of this build, best first.
const BUILT: &[Isa] = &[
    #[cfg(target_arch = "x86_64")]
    Isa::Avx512,
    #[cfg(target_arch = "x86_64")]
    Isa::Avx2,
    #[cfg(target_arch = "aarch64")]
    Isa::Neon,
    Isa::Portable,
];

/// The levels that this build has and this CPU can run, best first.
#[must_use]
pub fn supported() -> Vec<Isa> {
    BUILT.iter().copied().filter(|isa| isa.is_supported()).collect()
}

fn choose(forced: Option<&str>) -> Result<Isa, IsaError> {
    let supported = supported();
    match forced {
        None | Some("") => Ok(supported[0]),
        Some(name) => supported.iter().copied().find(|isa| isa.name() == name).ok_or_else(|| {
            let names: Vec<_> = supported.iter().map(|isa| isa.name()).collect();
            IsaError(format!(
                "{FORCE_VARIABLE}={name}: this build on this CPU has only {}; unset the variable or name one of these",
                names.join(", ")
            ))
        }),
    }
}

/// The level of this process.
///
/// # Errors
/// `FASTKCL_FORCE_ISA` names one that is not there.
pub fn active() -> Result<Isa, IsaError> {
    static ACTIVE: OnceLock<Result<Isa, IsaError>> = OnceLock::new();
    ACTIVE.get_or_init(|| choose(std::env::var(FORCE_VARIABLE).ok().as_deref())).clone()
}

#[cfg(test)]
mod tests {
    use super::{Isa, choose};

    #[test]
    fn forcing() {
        assert_eq!(choose(Some("portable")).unwrap(), Isa::Portable);
        assert_eq!(choose(None).unwrap(), super::supported()[0]);
        let message = choose(Some("mmx")).unwrap_err().to_string();
        assert!(message.contains("mmx") && message.contains("portable"), "{message}");
    }
}
