//! YaRN and its first half, NTK-by-parts: keep the fast pairs, interpolate the slow ones, ramp between.

use std::f64::consts::TAU;

use super::base::{Frequencies, base_frequencies, blend};
use super::error::{RopeError, checked_factor, checked_positive};

/// Added to the upper end of a ramp of no width, so that it becomes a step instead of a division by zero.
const STEP_WIDTH: f64 = 0.001;

/// Between which pairs the blend runs, said in turns completed within the original context.
#[derive(Debug, Clone, PartialEq)]
pub struct Ramp {
    /// Pairs that turn at least this often keep their frequency.
    pub beta_fast: f64,
    /// Pairs that turn at most this often are interpolated fully.
    pub beta_slow: f64,
    /// Whether the ends of the ramp are widened to whole pairs.
    pub truncate: bool,
}

impl Default for Ramp {
    /// 32 and 1 turns, widened: the values of the YaRN paper for Llama.
    fn default() -> Self {
        Ramp { beta_fast: 32.0, beta_slow: 1.0, truncate: true }
    }
}

/// How large the factor on cos and sin is.
#[derive(Debug, Clone, PartialEq)]
pub enum Magnitude {
    /// `0.1 * ln(factor) + 1`, the paper's fit.
    Default,
    /// This value, whatever the factor.
    Final(f64),
    /// This multiple of the default.
    Multiplied(f64),
    /// `(0.1 * mscale * ln(factor) + 1) / (0.1 * mscale_all_dim * ln(factor) + 1)`.
    Ratio { mscale: f64, mscale_all_dim: f64 },
}

impl Magnitude {
    /// The final factor on cos and sin for a checked `factor`.
    ///
    /// Source: transformers 5.24, `modeling_rope_utils.py`, `yarn`; `Multiplied` is the `attn_factor` of
    /// jquesnelle/yarn.
    ///
    /// # Errors
    /// [`RopeError::NotPositive`] when a given value is not a finite number above 0.
    pub fn attention_factor(&self, factor: f64) -> Result<f64, RopeError> {
        let fit = |multiplier: f64| 0.1 * multiplier * factor.ln() + 1.0;
        match *self {
            Magnitude::Default => Ok(fit(1.0)),
            Magnitude::Final(value) => checked_positive("attention_factor", value),
            Magnitude::Multiplied(value) => Ok(fit(1.0) * checked_positive("attn_factor", value)?),
            Magnitude::Ratio { mscale, mscale_all_dim } => Ok(fit(checked_positive("mscale", mscale)?)
                / fit(checked_positive("mscale_all_dim", mscale_all_dim)?)),
        }
    }
}

/// Parameters of YaRN.
#[derive(Debug, Clone, PartialEq)]
pub struct Yarn {
    /// Target context over original context, at least 1.
    pub factor: f64,
    pub ramp: Ramp,
    pub magnitude: Magnitude,
}

/// The pair, as a real number, that completes `turns` full turns within `original_context` tokens:
/// `d * ln(L0 / (2 pi turns)) / (2 ln theta)`.
fn correction_dim(theta: f64, rotary_dim: usize, original_context: usize, turns: f64) -> f64 {
    rotary_dim as f64 * (original_context as f64 / (turns * TAU)).ln() / (2.0 * theta.ln())
}

/// The raw ends of the ramp, in pairs: where `beta_fast` and `beta_slow` turns fit the original context.
///
/// Neither rounded nor clamped. Source: Peng et al. 2023, arXiv:2309.00071, section 3.2, solved for the pair.
pub fn correction_dims(theta: f64, rotary_dim: usize, original_context: usize, ramp: &Ramp) -> (f64, f64) {
    (
        correction_dim(theta, rotary_dim, original_context, ramp.beta_fast),
        correction_dim(theta, rotary_dim, original_context, ramp.beta_slow),
    )
}

/// The ends of the ramp as they are used: rounded outwards when `truncate`, then held within `0..=rotary_dim - 1`.
///
/// The upper bound counts lanes, not pairs; that is what every implementation does.
fn ramp_ends(
    theta: f64,
    rotary_dim: usize,
    original_context: usize,
    ramp: &Ramp,
) -> Result<(f64, f64), RopeError> {
    let beta_fast = checked_positive("beta_fast", ramp.beta_fast)?;
    let beta_slow = checked_positive("beta_slow", ramp.beta_slow)?;
    if beta_fast <= beta_slow {
        return Err(RopeError::Betas { beta_fast, beta_slow });
    }
    let (mut low, mut high) = correction_dims(theta, rotary_dim, original_context, ramp);
    if ramp.truncate {
        (low, high) = (low.floor(), high.ceil());
    }
    (low, high) = (low.max(0.0), high.min((rotary_dim - 1) as f64));
    if low > high {
        return Err(RopeError::ReversedRamp { low, high });
    }
    if low == high {
        high += STEP_WIDTH;
    }
    Ok((low, high))
}

/// Blend of plain and interpolated frequencies by pair index, attention factor 1.
///
/// Returns `rotary_dim / 2` frequencies in radians per token, each between `base / factor` and `base`. The ramp is
/// linear in the pair index as in the published code, not in the number of turns as in the paper's text.
/// Source: Peng et al. 2023, arXiv:2309.00071, section 3.2; transformers 5.24, `modeling_rope_utils.py`, `yarn`.
///
/// # Errors
/// [`RopeError::Factor`], [`RopeError::NotPositive`], [`RopeError::Betas`], or [`RopeError::ReversedRamp`] when the
/// bands fall outside the head so far that their order turns round.
pub fn ntk_by_parts(
    theta: f64,
    rotary_dim: usize,
    original_context: usize,
    factor: f64,
    ramp: &Ramp,
) -> Result<Frequencies, RopeError> {
    let factor = checked_factor(factor)?;
    let (low, high) = ramp_ends(theta, rotary_dim, original_context, ramp)?;
    let inv_freq = base_frequencies(theta, rotary_dim)
        .iter()
        .enumerate()
        .map(|(i, &f)| {
            let interpolated = ((i as f64 - low) / (high - low)).clamp(0.0, 1.0);
            blend(f, f / factor, 1.0 - interpolated)
        })
        .collect();
    Ok(Frequencies { inv_freq, attention_factor: 1.0 })
}

/// YaRN: [`ntk_by_parts`] with a factor on cos and sin.
///
/// # Errors
/// As [`ntk_by_parts`] and [`Magnitude::attention_factor`].
pub fn yarn(
    theta: f64,
    rotary_dim: usize,
    original_context: usize,
    parameters: &Yarn,
) -> Result<Frequencies, RopeError> {
    let bands = ntk_by_parts(theta, rotary_dim, original_context, parameters.factor, &parameters.ramp)?;
    let attention_factor = parameters.magnitude.attention_factor(parameters.factor)?;
    Ok(Frequencies { attention_factor, ..bands })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn default_yarn(factor: f64) -> Yarn {
        Yarn { factor, ramp: Ramp::default(), magnitude: Magnitude::Default }
    }

    #[test]
    fn correction_dims_of_real_models() {
        // (theta, head_dim, original_context) and the raw pair indices that transformers 5.24 computes.
        for (theta, dim, context, low, high) in [
            (1e4, 128, 4096, 20.94, 45.03),
            (1e6, 64, 32_768, 11.80, 19.83),
            (1e6, 128, 32_768, 23.60, 39.65),
        ] {
            let (fast, slow) = correction_dims(theta, dim, context, &Ramp::default());
            assert!((fast - low).abs() < 0.01 && (slow - high).abs() < 0.01, "{fast} {slow}");
        }
    }

    #[test]
    fn d041_the_default_magnitude_at_factor_64() {
        let value = yarn(1e6, 128, 4096, &default_yarn(64.0)).unwrap().attention_factor;
        assert!((value - 1.4159).abs() < 1e-4, "{value}");
    }

    #[test]
    fn d038_an_explicit_attention_factor_is_final() {
        assert_eq!(Magnitude::Final(1.0).attention_factor(64.0), Ok(1.0));
        let doubled = Magnitude::Multiplied(2.0).attention_factor(64.0).unwrap();
        assert_eq!(doubled, 2.0 * Magnitude::Default.attention_factor(64.0).unwrap());
    }

    #[test]
    fn d040_an_equal_mscale_pair_cancels() {
        let pair = Magnitude::Ratio { mscale: 0.707, mscale_all_dim: 0.707 };
        assert_eq!(pair.attention_factor(40.0), Ok(1.0));
    }

    #[test]
    fn d048_correction_uses_the_rotated_width() {
        let half = ntk_by_parts(1e4, 8, 64, 4.0, &Ramp::default()).unwrap();
        assert_eq!(half.inv_freq.len(), 4);
        let (_, slow) = correction_dims(1e4, 8, 64, &Ramp::default());
        assert!(slow < 4.0);
    }

    #[test]
    fn a_ramp_of_no_width_is_a_step() {
        // Even pair 0 turns no more than 652 times, so both ends round and clamp to pair 0.
        let ramp = Ramp { beta_fast: 4096.0, beta_slow: 660.0, truncate: true };
        let stepped = ntk_by_parts(1e4, 64, 4096, 4.0, &ramp).unwrap().inv_freq;
        let plain = base_frequencies(1e4, 64);
        assert_eq!(stepped[0], plain[0]);
        assert!((1..32).all(|i| stepped[i] == plain[i] / 4.0));
    }

    #[test]
    fn betas_out_of_order_are_refused() {
        let ramp = Ramp { beta_fast: 1.0, beta_slow: 32.0, truncate: true };
        assert_eq!(
            ntk_by_parts(1e4, 64, 4096, 4.0, &ramp),
            Err(RopeError::Betas { beta_fast: 1.0, beta_slow: 32.0 })
        );
        let ramp = Ramp { beta_slow: 0.0, ..Ramp::default() };
        assert_eq!(
            ntk_by_parts(1e4, 64, 4096, 4.0, &ramp),
            Err(RopeError::NotPositive { name: "beta_slow", found: 0.0 })
        );
    }

    #[test]
    fn a_ramp_outside_the_head_is_refused() {
        let error = ntk_by_parts(1.5, 64, 1 << 20, 4.0, &Ramp::default()).unwrap_err();
        assert!(matches!(error, RopeError::ReversedRamp { .. }), "{error}");
    }

    #[test]
    fn magnitudes_must_be_positive() {
        for bad in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(Magnitude::Final(bad).attention_factor(4.0).is_err());
            assert!(Magnitude::Multiplied(bad).attention_factor(4.0).is_err());
            assert!(Magnitude::Ratio { mscale: bad, mscale_all_dim: 1.0 }.attention_factor(4.0).is_err());
            assert!(Magnitude::Ratio { mscale: 1.0, mscale_all_dim: bad }.attention_factor(4.0).is_err());
        }
    }
}
