//! Linear position interpolation.

use super::base::Frequencies;
use super::error::{RopeError, checked_factor};

/// Linear position interpolation: every pair turns `factor` times slower, which is the same as dividing positions.
///
/// `base`: unscaled frequencies in radians per token, one per rotated pair. Returns as many, attention factor 1.
/// Source: Chen et al. 2023, arXiv:2306.15595, equation 4.
///
/// # Errors
/// [`RopeError::Factor`] when `factor` is below 1 or not finite.
pub fn linear(base: &[f64], factor: f64) -> Result<Frequencies, RopeError> {
    let factor = checked_factor(factor)?;
    Ok(Frequencies { inv_freq: base.iter().map(|f| f / factor).collect(), attention_factor: 1.0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pair_slows_down_by_the_factor() {
        let scaled = linear(&[1.0, 0.1], 4.0).unwrap();
        assert_eq!(scaled, Frequencies { inv_freq: vec![0.25, 0.025], attention_factor: 1.0 });
    }

    #[test]
    fn d030_a_factor_below_one_is_shown() {
        let error = linear(&[1.0], 0.5).unwrap_err();
        assert_eq!(error, RopeError::Factor(0.5));
        assert_eq!(error.to_string(), "`factor` must be a finite number of at least 1, found 0.5");
        assert!(linear(&[1.0], f64::NAN).is_err());
        assert!(linear(&[1.0], f64::INFINITY).is_err());
    }
}
