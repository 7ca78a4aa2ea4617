//! How many tokens an embedding reaches.

use super::error::RopeConfigError;

/// Longest context that is believed: 2^40 tokens, far below where `f64` stops counting.
const MAX_CONTEXT: usize = 1 << 40;

/// Slack against rounding, so that a factor that was printed for a length reaches that length again.
const ROUNDING: f64 = 1e-9;

/// `context` when it is a length that can be believed.
pub(super) fn believed(key: &str, context: usize) -> Result<usize, RopeConfigError> {
    if context <= MAX_CONTEXT {
        return Ok(context);
    }
    Err(RopeConfigError::ContextTooLarge { key: key.to_owned(), found: context as f64, max: MAX_CONTEXT })
}

/// Whole tokens in `context` times `factor`.
///
/// # Errors
/// [`RopeConfigError::ContextTooLarge`], also for a factor that is not finite.
pub(super) fn stretched(context: usize, factor: f64) -> Result<usize, RopeConfigError> {
    let found = (context as f64 * factor * (1.0 + ROUNDING)).floor();
    if found <= MAX_CONTEXT as f64 {
        return Ok(found as usize);
    }
    Err(RopeConfigError::ContextTooLarge { key: "limit".to_owned(), found, max: MAX_CONTEXT })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::rope::{HeadLayout, from_hf};
    use crate::rope::Pairing;
    use serde_json::{Value, json};

    #[test]
    fn a_printed_factor_reaches_its_length_again() {
        for length in 2049..4096 {
            assert_eq!(stretched(2048, length as f64 / 2048.0).unwrap(), length);
            assert_eq!(stretched(1000, length as f64 / 1000.0).unwrap(), length);
        }
        assert_eq!(stretched(100, 1.999).unwrap(), 199);
    }

    #[test]
    fn absurd_lengths_are_refused() {
        let error = stretched(4096, 1e300).unwrap_err();
        assert!(matches!(error, RopeConfigError::ContextTooLarge { .. }), "{error}");
        assert!(stretched(4096, f64::NAN).is_err());
        assert!(believed("context_length", usize::MAX).is_err());
        assert_eq!(believed("context_length", 4096), Ok(4096));
    }

    #[test]
    fn d042_d043_d044_how_far_a_declaration_reaches() {
        let reach = |max: usize, scaling: Value| {
            let config = json!({"max_position_embeddings": max, "rope_theta": 1e6, "rope_scaling": scaling});
            let layout = HeadLayout { head_dim: 128, pairing: Pairing::HalfSplit };
            from_hf(config.as_object().unwrap(), layout).unwrap().limit
        };
        let yarn = |original: usize, factor: usize| {
            json!({"type": "yarn", "factor": factor,
                "original_max_position_embeddings": original})
        };
        assert_eq!(reach(128, yarn(64, 2)), 128);
        assert_eq!(reach(40960, yarn(32768, 4)), 131_072);
        assert_eq!(reach(4096, json!({"type": "yarn", "factor": 2})), 8192);
        assert_eq!(reach(4096, json!({"type": "linear", "factor": 4})), 16_384);
        assert_eq!(reach(4096, json!({"type": "dynamic", "factor": 2})), 8192);
        assert_eq!(reach(4096, Value::Null), 4096);
        let llama3 = json!({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192});
        assert_eq!(reach(131_072, llama3), 131_072);
    }
}
