//! NTK-aware scaling: a larger base instead of slower positions.

use super::base::{Frequencies, base_frequencies};
use super::error::{RopeError, checked_factor};

/// The raised base `theta * factor^(d / (d - 2))`, with `d = rotary_dim`.
///
/// It slows the last pair down by exactly `factor` and leaves the first alone.
/// Source: "NTK-aware scaled RoPE", bloc97 2023; Peng et al. 2023, arXiv:2309.00071, section 3.1.
///
/// # Errors
/// [`RopeError::Factor`] when `factor` is below 1 or not finite, [`RopeError::NtkWidth`] for a single pair.
pub fn ntk_base(theta: f64, rotary_dim: usize, factor: f64) -> Result<f64, RopeError> {
    let factor = checked_factor(factor)?;
    raised(theta, rotary_dim, factor)
}

/// `theta * stretch^(d / (d - 2))` for a `stretch` of at least 1 that is already checked.
pub(super) fn raised(theta: f64, rotary_dim: usize, stretch: f64) -> Result<f64, RopeError> {
    if rotary_dim < 4 {
        return Err(RopeError::NtkWidth(rotary_dim));
    }
    let d = rotary_dim as f64;
    Ok(theta * stretch.powf(d / (d - 2.0)))
}

/// NTK-aware scaling with one fixed factor. Returns `rotary_dim / 2` frequencies in radians per token.
///
/// # Errors
/// As [`ntk_base`].
pub fn ntk(theta: f64, rotary_dim: usize, factor: f64) -> Result<Frequencies, RopeError> {
    let base = ntk_base(theta, rotary_dim, factor)?;
    Ok(Frequencies { inv_freq: base_frequencies(base, rotary_dim), attention_factor: 1.0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_pair_is_kept_and_the_last_divided_by_the_factor() {
        let plain = base_frequencies(1e6, 64);
        let scaled = ntk(1e6, 64, 4.0).unwrap().inv_freq;
        assert_eq!(scaled[0], 1.0);
        assert!((scaled[31] * 4.0 / plain[31] - 1.0).abs() < 1e-12);
    }

    #[test]
    fn d061_the_base_is_raised_from_the_declared_one() {
        // 1e6 * 4^(64/62)
        assert!((ntk_base(1e6, 64, 4.0).unwrap() - 4_182_936.5).abs() < 1.0);
    }

    #[test]
    fn a_single_pair_has_no_ntk_base() {
        assert_eq!(ntk_base(1e4, 2, 2.0), Err(RopeError::NtkWidth(2)));
        assert_eq!(ntk_base(1e4, 64, 0.0), Err(RopeError::Factor(0.0)));
    }
}
