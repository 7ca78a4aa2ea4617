//! Frequencies given as a list of divisors, the form every static method can be stored in.

use super::base::Frequencies;
use super::error::{RopeError, check_list, checked_positive};

/// One divisor per rotated pair, and the factor on cos and sin.
#[derive(Debug, Clone, PartialEq)]
pub struct Divisors {
    /// What each plain frequency is divided by, one per rotated pair.
    pub divisors: Vec<f64>,
    /// Final factor on cos and sin.
    pub attention_factor: f64,
}

/// Each frequency divided by its entry.
///
/// `base`: unscaled frequencies in radians per token. Source: the tensor `rope_freqs.weight` of GGUF files, as
/// llama.cpp applies it.
///
/// # Errors
/// [`RopeError::ListLength`] and [`RopeError::ListValue`] for the list, [`RopeError::NotPositive`] for the factor.
pub fn divisors(base: &[f64], parameters: &Divisors) -> Result<Frequencies, RopeError> {
    check_list("rope_freqs", &parameters.divisors, base.len())?;
    let attention_factor = checked_positive("attention_factor", parameters.attention_factor)?;
    let inv_freq = base.iter().zip(&parameters.divisors).map(|(f, d)| f / d).collect();
    Ok(Frequencies { inv_freq, attention_factor })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frequencies_are_divided() {
        let scaled =
            divisors(&[1.0, 0.5], &Divisors { divisors: vec![1.0, 8.0], attention_factor: 1.1 }).unwrap();
        assert_eq!(scaled, Frequencies { inv_freq: vec![1.0, 0.0625], attention_factor: 1.1 });
    }

    #[test]
    fn lists_and_factor_are_checked() {
        let list = |divisors: Vec<f64>, attention_factor| Divisors { divisors, attention_factor };
        assert_eq!(
            divisors(&[1.0, 0.5], &list(vec![1.0], 1.0)),
            Err(RopeError::ListLength { list: "rope_freqs", expected: 2, found: 1 })
        );
        assert!(matches!(
            divisors(&[1.0, 0.5], &list(vec![1.0, f64::NAN], 1.0)),
            Err(RopeError::ListValue { index: 1, .. })
        ));
        assert!(matches!(
            divisors(&[1.0, 0.5], &list(vec![1.0, 1.0], -1.0)),
            Err(RopeError::NotPositive { .. })
        ));
    }
}
