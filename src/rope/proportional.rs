//! Proportional rotation: only the first pairs of the whole head turn.

use super::base::{Frequencies, base_frequencies};
use super::error::{RopeError, checked_factor};

/// The first `rotated_pairs` pairs turn as in a head that rotates fully, divided by `factor`; the others rest.
///
/// Unlike a partial rotation, exponents and pairing are those of the full head. Returns `rotary_dim / 2` frequencies
/// in radians per token, the last of them 0, and attention factor 1.
/// Source: transformers 5.24, `modeling_rope_utils.py`, `proportional`.
///
/// # Errors
/// [`RopeError::Factor`], or [`RopeError::RotatedPairs`] when no pair or more pairs than exist would turn.
pub fn proportional(
    theta: f64,
    rotary_dim: usize,
    rotated_pairs: usize,
    factor: f64,
) -> Result<Frequencies, RopeError> {
    let factor = checked_factor(factor)?;
    let pairs = rotary_dim / 2;
    if rotated_pairs == 0 || rotated_pairs > pairs {
        return Err(RopeError::RotatedPairs { rotated: rotated_pairs, pairs });
    }
    let mut inv_freq: Vec<f64> = base_frequencies(theta, rotary_dim).iter().map(|f| f / factor).collect();
    inv_freq[rotated_pairs..].fill(0.0);
    Ok(Frequencies { inv_freq, attention_factor: 1.0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_pairs_rest() {
        let f = proportional(1e4, 8, 1, 2.0).unwrap().inv_freq;
        assert_eq!(f, [0.5, 0.0, 0.0, 0.0]);
    }

    #[test]
    fn the_number_of_pairs_is_checked() {
        assert_eq!(proportional(1e4, 8, 5, 1.0), Err(RopeError::RotatedPairs { rotated: 5, pairs: 4 }));
        assert_eq!(proportional(1e4, 8, 0, 1.0), Err(RopeError::RotatedPairs { rotated: 0, pairs: 4 }));
        assert_eq!(proportional(1e4, 8, 4, 0.1), Err(RopeError::Factor(0.1)));
    }
}
