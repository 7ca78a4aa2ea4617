//! Which rule is in force, and the one function that applies it.

use super::base::{Frequencies, base_frequencies};
use super::divisors::{Divisors, divisors};
use super::dynamic::{dynamic_base, dynamic_linear, dynamic_ntk, dynamic_yarn};
use super::error::RopeError;
use super::linear::linear;
use super::llama3::{Llama3, llama3};
use super::longrope::{LongRope, LongRopeSelect, longrope};
use super::ntk::{ntk, ntk_base};
use super::proportional::proportional;
use super::yarn::{Ramp, Yarn, ntk_by_parts, yarn};

/// Widest head that is believed; real ones have 64 to 256 lanes.
const MAX_HEAD_DIM: usize = 1 << 16;

/// Which lanes of a head form a pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pairing {
    /// Lanes `2i` and `2i + 1`.
    Adjacent,
    /// Lanes `i` and `i + rotary_dim / 2`.
    HalfSplit,
}

/// A complete rotary embedding.
#[derive(Debug, Clone, PartialEq)]
pub struct RopeSpec {
    /// Base of the frequencies, above 1.
    pub theta: f64,
    /// Lanes of one head.
    pub head_dim: usize,
    /// Rotated lanes of one head: even, at most `head_dim`.
    pub rotary_dim: usize,
    pub pairing: Pairing,
    /// Tokens that the unscaled embedding was trained for, `L0` in the formulas.
    pub original_context: usize,
    pub scaling: Scaling,
}

/// How the plain frequencies are changed.
#[derive(Debug, Clone, PartialEq)]
pub enum Scaling {
    /// Plain rotation.
    None,
    /// See [`linear`].
    Linear { factor: f64 },
    /// See [`ntk`].
    Ntk { factor: f64 },
    /// See [`ntk_by_parts`].
    NtkByParts { factor: f64, ramp: Ramp },
    /// See [`dynamic_linear`].
    DynamicLinear,
    /// See [`dynamic_ntk`]; a factor of 1 makes the stretch the ratio of lengths.
    DynamicNtk { factor: f64 },
    /// See [`yarn`].
    Yarn(Yarn),
    /// See [`dynamic_yarn`]; the factor inside is not read.
    DynamicYarn(Yarn),
    /// See [`longrope`].
    LongRope(LongRope),
    /// See [`llama3`].
    Llama3(Llama3),
    /// See [`proportional`]; `rotary_dim` is then the whole head.
    Proportional { factor: f64, rotated_pairs: usize },
    /// See [`divisors`].
    Divisors(Divisors),
}

impl Scaling {
    /// The name of the method, as on the command line where it has one there.
    pub fn name(&self) -> &'static str {
        match self {
            Scaling::None => "none",
            Scaling::Linear { .. } => "linear",
            Scaling::Ntk { .. } => "ntk",
            Scaling::NtkByParts { .. } => "ntk-by-parts",
            Scaling::DynamicLinear => "dynamic-linear",
            Scaling::DynamicNtk { .. } => "dynamic-ntk",
            Scaling::Yarn(_) => "yarn",
            Scaling::DynamicYarn(_) => "dynamic-yarn",
            Scaling::LongRope(_) => "longrope",
            Scaling::Llama3(_) => "llama3",
            Scaling::Proportional { .. } => "proportional",
            Scaling::Divisors(_) => "rope-freqs",
        }
    }

    /// The factor that the formula uses; `None` where there is none or it follows the length.
    pub fn factor(&self) -> Option<f64> {
        match self {
            Scaling::Linear { factor }
            | Scaling::Ntk { factor }
            | Scaling::NtkByParts { factor, .. }
            | Scaling::DynamicNtk { factor }
            | Scaling::Proportional { factor, .. } => Some(*factor),
            Scaling::Yarn(p) => Some(p.factor),
            Scaling::LongRope(p) => Some(p.factor),
            Scaling::Llama3(p) => Some(p.factor),
            Scaling::None | Scaling::DynamicLinear | Scaling::DynamicYarn(_) | Scaling::Divisors(_) => None,
        }
    }
}

impl RopeSpec {
    /// Checks every value, without regard to a length.
    ///
    /// # Errors
    /// The [`RopeError`] of the first value that is out of range.
    pub fn validate(&self) -> Result<(), RopeError> {
        frequencies(self, self.original_context).map(|_| ())
    }

    /// Whether [`frequencies`] can return different values for different lengths.
    pub fn depends_on_length(&self) -> bool {
        match &self.scaling {
            Scaling::DynamicLinear | Scaling::DynamicNtk { .. } | Scaling::DynamicYarn(_) => true,
            Scaling::LongRope(p) => p.select == LongRopeSelect::Auto && p.short_factor != p.long_factor,
            _ => false,
        }
    }

    /// Rotated pairs of one head.
    pub fn pairs(&self) -> usize {
        self.rotary_dim / 2
    }

    /// Checks what every method shares: base, widths and original context.
    fn check_shape(&self) -> Result<(), RopeError> {
        if !(self.theta.is_finite() && self.theta > 1.0) {
            return Err(RopeError::Theta(self.theta));
        }
        if !(2..=MAX_HEAD_DIM).contains(&self.head_dim) {
            return Err(RopeError::HeadDim { found: self.head_dim, max: MAX_HEAD_DIM });
        }
        match self.rotary_dim {
            0 => Err(RopeError::ZeroRotaryDim(0)),
            odd if odd % 2 == 1 => Err(RopeError::OddRotaryDim(odd)),
            rotary_dim if rotary_dim > self.head_dim => {
                Err(RopeError::WideRotaryDim { rotary_dim, head_dim: self.head_dim })
            }
            _ if self.original_context == 0 => {
                Err(RopeError::OriginalContext { method: self.scaling.name(), min: 1, found: 0 })
            }
            _ => Ok(()),
        }
    }
}

/// The frequencies of `spec` for a text of `length` tokens in all, prompt and new tokens together.
///
/// Only methods whose table follows the length read `length`. Returns `rotary_dim / 2` frequencies in radians per
/// token and the factor on cos and sin.
///
/// # Errors
/// The [`RopeError`] of the first value that is out of range, or [`RopeError::NotFinite`] when values in range leave
/// the range of `f64` together.
pub fn frequencies(spec: &RopeSpec, length: usize) -> Result<Frequencies, RopeError> {
    spec.check_shape()?;
    let (theta, dim, original) = (spec.theta, spec.rotary_dim, spec.original_context);
    let base = base_frequencies(theta, dim);
    let found = match &spec.scaling {
        Scaling::None => Frequencies { inv_freq: base, attention_factor: 1.0 },
        Scaling::Linear { factor } => linear(&base, *factor)?,
        Scaling::Ntk { factor } => ntk(theta, dim, *factor)?,
        Scaling::NtkByParts { factor, ramp } => ntk_by_parts(theta, dim, original, *factor, ramp)?,
        Scaling::DynamicLinear => dynamic_linear(&base, original, length)?,
        Scaling::DynamicNtk { factor } => dynamic_ntk(theta, dim, *factor, original, length)?,
        Scaling::Yarn(parameters) => yarn(theta, dim, original, parameters)?,
        Scaling::DynamicYarn(parameters) => dynamic_yarn(theta, dim, original, parameters, length)?,
        Scaling::LongRope(parameters) => longrope(&base, original, parameters, length)?,
        Scaling::Llama3(parameters) => llama3(&base, original, parameters)?,
        Scaling::Proportional { factor, rotated_pairs } => proportional(theta, dim, *rotated_pairs, *factor)?,
        Scaling::Divisors(parameters) => divisors(&base, parameters)?,
    };
    match found.inv_freq.iter().enumerate().find(|(_, f)| !f.is_finite()) {
        Some((pair, &found)) => Err(RopeError::NotFinite { pair, found }),
        None => Ok(found),
    }
}

/// The base that the frequencies are really computed from: raised by the NTK methods, `theta` for the others.
///
/// # Errors
/// As [`frequencies`], for the values that the base depends on.
pub fn effective_base(spec: &RopeSpec, length: usize) -> Result<f64, RopeError> {
    spec.check_shape()?;
    match spec.scaling {
        Scaling::Ntk { factor } => ntk_base(spec.theta, spec.rotary_dim, factor),
        Scaling::DynamicNtk { factor } => {
            dynamic_base(spec.theta, spec.rotary_dim, factor, spec.original_context, length)
        }
        _ => Ok(spec.theta),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rope::yarn::Magnitude;

    fn plain() -> RopeSpec {
        RopeSpec {
            theta: 10_000.0,
            head_dim: 64,
            rotary_dim: 64,
            pairing: Pairing::HalfSplit,
            original_context: 2048,
            scaling: Scaling::None,
        }
    }

    #[test]
    fn d047_widths_are_checked() {
        let with = |head_dim, rotary_dim| RopeSpec { head_dim, rotary_dim, ..plain() }.validate();
        assert_eq!(with(10, 3), Err(RopeError::OddRotaryDim(3)));
        assert_eq!(with(10, 0), Err(RopeError::ZeroRotaryDim(0)));
        assert_eq!(with(10, 12), Err(RopeError::WideRotaryDim { rotary_dim: 12, head_dim: 10 }));
        assert!(matches!(with(0, 2), Err(RopeError::HeadDim { found: 0, .. })));
        assert!(matches!(with(usize::MAX, 2), Err(RopeError::HeadDim { .. })));
        assert_eq!(with(10, 10), Ok(()));
    }

    #[test]
    fn theta_and_original_context_are_checked() {
        for theta in [1.0, 0.0, -5.0, f64::INFINITY] {
            assert_eq!(RopeSpec { theta, ..plain() }.validate(), Err(RopeError::Theta(theta)));
        }
        let empty = RopeSpec { original_context: 0, ..plain() };
        assert_eq!(empty.validate(), Err(RopeError::OriginalContext { method: "none", min: 1, found: 0 }));
    }

    #[test]
    fn values_that_leave_the_range_together_are_refused() {
        let tiny = Divisors { divisors: vec![1e-320; 32], attention_factor: 1.0 };
        let spec = RopeSpec { scaling: Scaling::Divisors(tiny), ..plain() };
        assert!(matches!(spec.validate(), Err(RopeError::NotFinite { pair: 0, .. })));
    }

    #[test]
    fn d061_the_base_before_and_after() {
        let spec = RopeSpec { theta: 1e6, scaling: Scaling::Ntk { factor: 4.0 }, ..plain() };
        assert!(effective_base(&spec, 1).unwrap() > 4e6);
        assert_eq!(effective_base(&plain(), 1), Ok(10_000.0));
        let spec = RopeSpec { scaling: Scaling::DynamicNtk { factor: 1.0 }, ..plain() };
        assert_eq!(effective_base(&spec, 2048), Ok(10_000.0));
    }

    #[test]
    fn only_some_methods_follow_the_length() {
        let depends = |scaling| RopeSpec { scaling, ..plain() }.depends_on_length();
        let yarn = Yarn { factor: 4.0, ramp: Ramp::default(), magnitude: Magnitude::Default };
        assert!(!depends(Scaling::Yarn(yarn.clone())));
        assert!(depends(Scaling::DynamicYarn(yarn)));
        assert!(depends(Scaling::DynamicNtk { factor: 1.0 }));
        assert!(depends(Scaling::DynamicLinear));
        let lists = |select| {
            Scaling::LongRope(LongRope {
                short_factor: vec![1.0; 32],
                long_factor: vec![2.0; 32],
                factor: 4.0,
                attention_factor: None,
                select,
            })
        };
        assert!(depends(lists(LongRopeSelect::Auto)));
        assert!(!depends(lists(LongRopeSelect::Long)));
    }
}
