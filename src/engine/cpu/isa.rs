//! Which instructions the kernels may use: asked once, then passed down as a value.

use std::fmt;
use std::str::FromStr;

/// Instruction sets that kernels are written for, weakest first.
///
/// A value handed to a kernel is the promise that this CPU runs it: it comes from [`Isa::detect`],
/// [`Isa::ALL_AVAILABLE`] or [`Isa::checked`]. The SAFETY lines of the kernels rely on that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Isa {
    /// Plain Rust, on any CPU
    Scalar,
    /// x86-64 with AVX2, FMA and F16C
    Avx2Fma,
    /// AVX-512 F, BW, DQ and VL
    Avx512,
    /// The same with BF16 dot products and int8 dot products (VNNI)
    Avx512Bf16Vnni,
}

impl Isa {
    /// Every set, weakest first.
    pub const ALL: [Self; 4] = [Self::Scalar, Self::Avx2Fma, Self::Avx512, Self::Avx512Bf16Vnni];

    /// Best set this CPU runs. The only feature test in the crate.
    pub fn detect() -> Self {
        #[cfg(target_arch = "x86_64")]
        {
            let avx2 = is_x86_feature_detected!("avx2")
                && is_x86_feature_detected!("fma")
                && is_x86_feature_detected!("f16c");
            let avx512 = avx2
                && is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512dq")
                && is_x86_feature_detected!("avx512vl");
            let dots = is_x86_feature_detected!("avx512bf16") && is_x86_feature_detected!("avx512vnni");
            match (avx2, avx512, dots) {
                (_, true, true) => Self::Avx512Bf16Vnni,
                (_, true, false) => Self::Avx512,
                (true, false, _) => Self::Avx2Fma,
                (false, false, _) => Self::Scalar,
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        Self::Scalar
    }

    /// Every set this CPU runs, weakest first: each contains those before it.
    #[allow(non_snake_case)]
    pub fn ALL_AVAILABLE() -> Vec<Self> {
        let best = Self::detect();
        Self::ALL.into_iter().filter(|isa| *isa <= best).collect()
    }

    /// `self`, if this CPU runs it.
    ///
    /// # Errors
    /// `IsaError::Unavailable` with what the CPU has instead.
    pub fn checked(self) -> Result<Self, IsaError> {
        let best = Self::detect();
        if self <= best { Ok(self) } else { Err(IsaError::Unavailable { wanted: self, best }) }
    }

    /// Name in reports and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Scalar => "scalar",
            Self::Avx2Fma => "avx2",
            Self::Avx512 => "avx512",
            Self::Avx512Bf16Vnni => "avx512-bf16-vnni",
        }
    }
}

/// Work written in plain Rust that the compiler vectorises anew for each instruction set.
pub trait Vectorised {
    type Output;

    /// The work. Must be `#[inline(always)]`, like all it calls, to be compiled for the instruction set of its caller.
    fn run(self) -> Self::Output;
}

impl Isa {
    /// Runs `work` as compiled for this instruction set.
    #[inline]
    pub fn vectorise<W: Vectorised>(self, work: W) -> W::Output {
        #[cfg(target_arch = "x86_64")]
        {
            #[target_feature(enable = "avx2,fma,f16c")]
            fn avx2<W: Vectorised>(work: W) -> W::Output {
                work.run()
            }
            #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
            fn avx512<W: Vectorised>(work: W) -> W::Output {
                work.run()
            }
            match self {
                Self::Scalar => work.run(),
                // SAFETY: holding the value is the promise that the CPU runs these instructions.
                Self::Avx2Fma => unsafe { avx2(work) },
                // SAFETY: as above.
                Self::Avx512 | Self::Avx512Bf16Vnni => unsafe { avx512(work) },
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        work.run()
    }
}

impl fmt::Display for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Isa {
    type Err = IsaError;

    /// The set of that name, if this CPU runs it.
    fn from_str(text: &str) -> Result<Self, IsaError> {
        let named = Self::ALL.into_iter().find(|isa| isa.name() == text);
        named.ok_or_else(|| IsaError::Unknown { found: text.to_owned() })?.checked()
    }
}

/// Why an instruction set cannot be chosen.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IsaError {
    #[error("unknown instruction set `{found}`; accepted: {}", Isa::ALL.map(Isa::name).join(", "))]
    Unknown { found: String },
    #[error("this CPU does not run `{wanted}`; the best it has is `{best}`")]
    Unavailable { wanted: Isa, best: Isa },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_available_set_parses_from_its_name() {
        let all = Isa::ALL_AVAILABLE();
        assert_eq!(all[0], Isa::Scalar);
        assert_eq!(all.last(), Some(&Isa::detect()));
        for isa in all {
            assert_eq!(isa.name().parse(), Ok(isa));
        }
    }

    #[test]
    fn a_set_above_the_detected_one_is_refused() {
        let best = Isa::detect();
        for wanted in Isa::ALL.into_iter().filter(|isa| *isa > best) {
            assert_eq!(wanted.checked(), Err(IsaError::Unavailable { wanted, best }));
        }
    }

    #[test]
    fn unknown_names_list_the_accepted_ones() {
        let text = "sse9".parse::<Isa>().unwrap_err().to_string();
        assert!(text.contains("`sse9`") && text.contains("scalar, avx2, avx512, avx512-bf16-vnni"), "{text}");
    }
}
