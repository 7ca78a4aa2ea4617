//! LongRoPE: one searched divisor per pair, in two lists.

use super::base::Frequencies;
use super::error::{RopeError, check_list, checked_factor, checked_positive};

/// Which of the two lists is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LongRopeSelect {
    /// The long list when the text is longer than the original context, else the short one.
    #[default]
    Auto,
    Short,
    Long,
}

/// Parameters of LongRoPE.
#[derive(Debug, Clone, PartialEq)]
pub struct LongRope {
    /// Divisors for texts within the original context, one per rotated pair.
    pub short_factor: Vec<f64>,
    /// Divisors for longer texts, one per rotated pair.
    pub long_factor: Vec<f64>,
    /// Target context over original context, at least 1. Only the default magnitude depends on it.
    pub factor: f64,
    /// Final factor on cos and sin; the default formula when `None`.
    pub attention_factor: Option<f64>,
    pub select: LongRopeSelect,
}

impl LongRope {
    /// Whether the long list is used for a text of `length` tokens: strictly longer than the original context.
    pub fn uses_long(&self, original_context: usize, length: usize) -> bool {
        match self.select {
            LongRopeSelect::Auto => length > original_context,
            LongRopeSelect::Short => false,
            LongRopeSelect::Long => true,
        }
    }

    /// The factor on cos and sin: as given, else `sqrt(1 + ln(factor) / ln(original_context))`, and 1 for a factor of 1.
    fn magnitude(&self, original_context: usize) -> Result<f64, RopeError> {
        let factor = checked_factor(self.factor)?;
        match self.attention_factor {
            Some(value) => checked_positive("attention_factor", value),
            None if factor <= 1.0 => Ok(1.0),
            None if original_context < 2 => {
                Err(RopeError::OriginalContext { method: "longrope", min: 2, found: original_context })
            }
            None => Ok((1.0 + factor.ln() / (original_context as f64).ln()).sqrt()),
        }
    }
}

/// LongRoPE: each frequency divided by its entry of the list in use; both lists share one magnitude.
///
/// `base`: unscaled frequencies in radians per token, one per rotated pair. Returns as many.
/// Source: Ding et al. 2024, arXiv:2402.13753; transformers 5.24, `modeling_rope_utils.py`, `longrope`.
///
/// # Errors
/// [`RopeError::ListLength`] and [`RopeError::ListValue`] for either list, [`RopeError::Factor`],
/// [`RopeError::NotPositive`], and [`RopeError::OriginalContext`] when the default magnitude has no logarithm to
/// divide by.
pub fn longrope(
    base: &[f64],
    original_context: usize,
    parameters: &LongRope,
    length: usize,
) -> Result<Frequencies, RopeError> {
    check_list("short_factor", &parameters.short_factor, base.len())?;
    check_list("long_factor", &parameters.long_factor, base.len())?;
    let divisors = if parameters.uses_long(original_context, length) {
        &parameters.long_factor
    } else {
        &parameters.short_factor
    };
    let inv_freq = base.iter().zip(divisors).map(|(f, d)| f / d).collect();
    Ok(Frequencies { inv_freq, attention_factor: parameters.magnitude(original_context)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parameters() -> LongRope {
        LongRope {
            short_factor: vec![1.0, 1.0],
            long_factor: vec![2.0, 2.0],
            factor: 4.0,
            attention_factor: None,
            select: LongRopeSelect::Auto,
        }
    }

    #[test]
    fn d058_a_factor_of_two_halves_every_frequency() {
        assert_eq!(longrope(&[1.0, 0.5], 2048, &parameters(), 2049).unwrap().inv_freq, [0.5, 0.25]);
    }

    #[test]
    fn d056_the_long_list_is_for_longer_texts_only() {
        let short = longrope(&[1.0, 0.5], 2048, &parameters(), 2048).unwrap();
        assert_eq!(short.inv_freq, [1.0, 0.5]);
        // The magnitude belongs to the model, so the short list carries it too.
        assert!((short.attention_factor - 1.087115).abs() < 1e-6);
    }

    #[test]
    fn d055_the_choice_can_be_forced() {
        let forced = LongRope { select: LongRopeSelect::Long, ..parameters() };
        assert_eq!(longrope(&[1.0, 0.5], 2048, &forced, 1).unwrap().inv_freq, [0.5, 0.25]);
        let forced = LongRope { select: LongRopeSelect::Short, ..parameters() };
        assert_eq!(longrope(&[1.0, 0.5], 2048, &forced, 99_999).unwrap().inv_freq, [1.0, 0.5]);
    }

    #[test]
    fn d056_no_magnitude_for_a_factor_of_one() {
        let plain = LongRope { factor: 1.0, ..parameters() };
        assert_eq!(longrope(&[1.0, 0.5], 2048, &plain, 1).unwrap().attention_factor, 1.0);
    }

    #[test]
    fn d057_a_list_of_another_length_names_both_counts() {
        let wrong = LongRope { long_factor: vec![1.0; 7], short_factor: vec![1.0; 8], ..parameters() };
        let error = longrope(&[1.0; 8], 2048, &wrong, 1).unwrap_err();
        assert_eq!(error.to_string(), "`long_factor` must have 8 entries, one per rotated pair, found 7");
    }

    #[test]
    fn bad_values_are_refused() {
        let wrong = LongRope { short_factor: vec![1.0, 0.0], ..parameters() };
        assert_eq!(
            longrope(&[1.0, 0.5], 2048, &wrong, 1),
            Err(RopeError::ListValue { list: "short_factor", index: 1, found: 0.0 })
        );
        let wrong = LongRope { factor: 0.5, ..parameters() };
        assert_eq!(longrope(&[1.0, 0.5], 2048, &wrong, 1), Err(RopeError::Factor(0.5)));
        let wrong = LongRope { attention_factor: Some(0.0), ..parameters() };
        assert!(matches!(longrope(&[1.0, 0.5], 2048, &wrong, 1), Err(RopeError::NotPositive { .. })));
        assert_eq!(
            longrope(&[1.0, 0.5], 1, &parameters(), 1),
            Err(RopeError::OriginalContext { method: "longrope", min: 2, found: 1 })
        );
    }
}
