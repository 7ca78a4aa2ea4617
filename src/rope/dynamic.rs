//! Methods whose factor follows the number of tokens: nothing changes up to the original context.

use super::base::{Frequencies, base_frequencies};
use super::error::{RopeError, checked_factor};
use super::linear::linear;
use super::ntk::raised;
use super::yarn::{Yarn, yarn};

/// How far `length` reaches past the original context: `max(length, original_context) / original_context`.
pub fn stretch(length: usize, original_context: usize) -> f64 {
    length.max(original_context) as f64 / original_context as f64
}

/// Linear interpolation by exactly as much as the text needs, position * original_context / length.
///
/// `base`: unscaled frequencies in radians per token. Source: jquesnelle/yarn, `LlamaDynamicScaledRotaryEmbedding`
/// without its `ntk` option.
///
/// # Errors
/// [`RopeError::Factor`] when `original_context` is 0.
pub fn dynamic_linear(
    base: &[f64],
    original_context: usize,
    length: usize,
) -> Result<Frequencies, RopeError> {
    linear(base, stretch(length, original_context))
}

/// The base of dynamic NTK, `theta * (factor * n / L0 - (factor - 1))^(d / (d - 2))` with
/// `n = max(length, original_context)`, `L0 = original_context` and `d = rotary_dim`.
///
/// With `factor = 1` the bracket is the ratio of lengths itself. Source: transformers 5.24,
/// `modeling_rope_utils.py`, `dynamic`, where `L0` is `max_position_embeddings`.
///
/// # Errors
/// [`RopeError::Factor`] when `factor` is below 1 or not finite, [`RopeError::NtkWidth`] for a single pair.
pub fn dynamic_base(
    theta: f64,
    rotary_dim: usize,
    factor: f64,
    original_context: usize,
    length: usize,
) -> Result<f64, RopeError> {
    let factor = checked_factor(factor)?;
    raised(theta, rotary_dim, factor * stretch(length, original_context) - (factor - 1.0))
}

/// NTK-aware scaling that follows the length; see [`dynamic_base`].
///
/// # Errors
/// As [`dynamic_base`].
pub fn dynamic_ntk(
    theta: f64,
    rotary_dim: usize,
    factor: f64,
    original_context: usize,
    length: usize,
) -> Result<Frequencies, RopeError> {
    let base = dynamic_base(theta, rotary_dim, factor, original_context, length)?;
    Ok(Frequencies { inv_freq: base_frequencies(base, rotary_dim), attention_factor: 1.0 })
}

/// YaRN whose factor is the ratio of the length to the original context; the magnitude follows it too.
///
/// `parameters.factor` is not read. Source: jquesnelle/yarn, `LlamaDynamicYaRNScaledRotaryEmbedding`.
///
/// # Errors
/// As [`yarn`].
pub fn dynamic_yarn(
    theta: f64,
    rotary_dim: usize,
    original_context: usize,
    parameters: &Yarn,
    length: usize,
) -> Result<Frequencies, RopeError> {
    let followed = Yarn { factor: stretch(length, original_context), ..parameters.clone() };
    yarn(theta, rotary_dim, original_context, &followed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rope::yarn::{Magnitude, Ramp};

    #[test]
    fn d053_dynamic_base_at_twice_the_context() {
        // factor 4, 8192 tokens, context 4096, 64 lanes: 4 * 2 - 3 = 5
        let base = dynamic_base(10_000.0, 64, 4.0, 4096, 8192).unwrap();
        assert!((base - 52_664.43).abs() < 0.01, "{base}");
    }

    #[test]
    fn d034_d035_below_the_original_context_nothing_changes() {
        let plain = base_frequencies(10_000.0, 64);
        for length in [0, 1, 100, 4096] {
            assert_eq!(dynamic_ntk(10_000.0, 64, 4.0, 4096, length).unwrap().inv_freq, plain);
            assert_eq!(dynamic_linear(&plain, 4096, length).unwrap().inv_freq, plain);
        }
    }

    #[test]
    fn dynamic_linear_divides_by_the_ratio_of_lengths() {
        assert_eq!(dynamic_linear(&[1.0], 4096, 6144).unwrap().inv_freq, [1.0 / 1.5]);
    }

    #[test]
    fn dynamic_yarn_equals_yarn_of_the_ratio() {
        let parameters = Yarn { factor: 1.0, ramp: Ramp::default(), magnitude: Magnitude::Default };
        let fixed = Yarn { factor: 3.0, ..parameters.clone() };
        assert_eq!(dynamic_yarn(10_000.0, 64, 2048, &parameters, 6144), yarn(10_000.0, 64, 2048, &fixed));
        assert_eq!(dynamic_yarn(10_000.0, 64, 2048, &parameters, 10).unwrap().attention_factor, 1.0);
    }

    #[test]
    fn a_factor_below_one_is_refused_at_any_length() {
        assert_eq!(dynamic_ntk(1e4, 64, 0.9, 4096, 10), Err(RopeError::Factor(0.9)));
        assert_eq!(dynamic_linear(&[1.0], 0, 10), Err(RopeError::Factor(f64::INFINITY)));
    }
}
