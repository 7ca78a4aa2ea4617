//! The by-wavelength rule of Llama 3.1.

use std::f64::consts::TAU;

use super::base::{Frequencies, blend};
use super::error::{RopeError, checked_factor, checked_positive};

/// Parameters of the Llama 3 rule.
#[derive(Debug, Clone, PartialEq)]
pub struct Llama3 {
    /// What the slow pairs are divided by, at least 1.
    pub factor: f64,
    /// Pairs with fewer turns than this within the original context are divided fully.
    pub low_freq_factor: f64,
    /// Pairs with more turns than this are kept.
    pub high_freq_factor: f64,
}

/// Llama 3 scaling: short wavelengths kept, long ones divided by `factor`, a blend linear in turns between.
///
/// `base`: unscaled frequencies in radians per token. Returns as many, attention factor 1.
/// Source: transformers 5.24, `modeling_rope_utils.py`, `llama3`, after Meta's llama-models.
///
/// # Errors
/// [`RopeError::Factor`], [`RopeError::NotPositive`], or [`RopeError::Bands`] when the bands are not in order.
pub fn llama3(base: &[f64], original_context: usize, parameters: &Llama3) -> Result<Frequencies, RopeError> {
    let factor = checked_factor(parameters.factor)?;
    let low = checked_positive("low_freq_factor", parameters.low_freq_factor)?;
    let high = checked_positive("high_freq_factor", parameters.high_freq_factor)?;
    if high <= low {
        return Err(RopeError::Bands { low, high });
    }
    let scaled = |&f: &f64| {
        let turns = original_context as f64 * f / TAU;
        let kept = ((turns - low) / (high - low)).clamp(0.0, 1.0);
        blend(f, f / factor, kept)
    };
    Ok(Frequencies { inv_freq: base.iter().map(scaled).collect(), attention_factor: 1.0 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rope::base::base_frequencies;

    fn parameters() -> Llama3 {
        Llama3 { factor: 8.0, low_freq_factor: 1.0, high_freq_factor: 4.0 }
    }

    #[test]
    fn d033_the_published_llama_3_1_table() {
        let scaled = llama3(&base_frequencies(5e5, 128), 8192, &parameters()).unwrap().inv_freq;
        for (pair, expected) in [(0, 1.0), (8, 1.939228e-1), (16, 3.760603e-2), (24, 7.292665e-3)] {
            assert!((scaled[pair] / expected - 1.0).abs() < 1e-6, "pair {pair}: {}", scaled[pair]);
        }
        let slowest = base_frequencies(5e5, 128)[63];
        assert_eq!(scaled[63], slowest / 8.0);
    }

    #[test]
    fn bands_must_be_in_order() {
        let wrong = Llama3 { high_freq_factor: 1.0, ..parameters() };
        assert_eq!(llama3(&[1.0], 8192, &wrong), Err(RopeError::Bands { low: 1.0, high: 1.0 }));
        let wrong = Llama3 { low_freq_factor: -1.0, ..parameters() };
        assert_eq!(
            llama3(&[1.0], 8192, &wrong),
            Err(RopeError::NotPositive { name: "low_freq_factor", found: -1.0 })
        );
        let wrong = Llama3 { factor: f64::NAN, ..parameters() };
        assert!(matches!(llama3(&[1.0], 8192, &wrong), Err(RopeError::Factor(_))));
    }
}
