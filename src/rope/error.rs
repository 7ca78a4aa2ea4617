//! What can be wrong with a rotary embedding.

/// A rotary embedding that cannot be computed: which value, what was found, what is accepted.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum RopeError {
    /// The base of the frequencies is not a number above 1.
    #[error("`rope_theta` must be a finite number above 1, found {0}")]
    Theta(f64),
    /// The head is empty or absurdly wide.
    #[error("`head_dim` must be between 2 and {max}, found {found}")]
    HeadDim { found: usize, max: usize },
    /// No lane is rotated.
    #[error("`rotary_dim` must be at least 2, found {0}")]
    ZeroRotaryDim(usize),
    /// Lanes are rotated in pairs, so one would be left over.
    #[error("`rotary_dim` must be even because lanes rotate in pairs, found {0}")]
    OddRotaryDim(usize),
    /// More lanes rotated than the head has.
    #[error("`rotary_dim` {rotary_dim} is larger than `head_dim` {head_dim}")]
    WideRotaryDim { rotary_dim: usize, head_dim: usize },
    /// The original context is zero, or too short for the method.
    #[error("`original_context` must be at least {min} tokens for {method}, found {found}")]
    OriginalContext { method: &'static str, min: usize, found: usize },
    /// A factor below 1 would shrink the context.
    #[error("`factor` must be a finite number of at least 1, found {0}")]
    Factor(f64),
    /// A parameter that has to be a positive number is not.
    #[error("`{name}` must be a finite number above 0, found {found}")]
    NotPositive { name: &'static str, found: f64 },
    /// The fast end of the YaRN ramp does not turn faster than the slow end.
    #[error("`beta_fast` {beta_fast} must be larger than `beta_slow` {beta_slow}")]
    Betas { beta_fast: f64, beta_slow: f64 },
    /// The ramp would run backwards, so fast pairs would be stretched and slow ones kept.
    #[error(
        "the YaRN ramp runs backwards, from pair {low} to pair {high}: `rope_theta` or `original_context` is too small for it"
    )]
    ReversedRamp { low: f64, high: f64 },
    /// The two Llama 3 bands overlap.
    #[error("`high_freq_factor` {high} must be larger than `low_freq_factor` {low}")]
    Bands { low: f64, high: f64 },
    /// A list with one entry per rotated pair has another length.
    #[error("`{list}` must have {expected} entries, one per rotated pair, found {found}")]
    ListLength { list: &'static str, expected: usize, found: usize },
    /// An entry of a list is not a positive number.
    #[error("`{list}[{index}]` must be a finite number above 0, found {found}")]
    ListValue { list: &'static str, index: usize, found: f64 },
    /// More pairs asked to rotate than there are.
    #[error("{rotated} pairs cannot rotate in a head of {pairs} pairs; accepted: 1 to {pairs}")]
    RotatedPairs { rotated: usize, pairs: usize },
    /// Raising the base leaves the first pair alone, so a single pair has nothing to stretch.
    #[error("an NTK base needs a `rotary_dim` of at least 4, found {0}")]
    NtkWidth(usize),
    /// The parameters are in range, their combination leaves the range of `f64`.
    #[error("the frequency of pair {pair} came out as {found}; the parameters are out of range together")]
    NotFinite { pair: usize, found: f64 },
    /// A rotation asked for a position that the table does not hold.
    #[error("row {row} is outside a table of {rows} positions")]
    Row { row: usize, rows: usize },
    /// A vector is not a whole number of heads, or a head is narrower than the table rotates.
    #[error("{found} values cannot be rotated as heads of {head_dim} with {rotary_dim} rotated lanes each")]
    VectorLength { found: usize, head_dim: usize, rotary_dim: usize },
}

/// `factor` when it is finite and at least 1.
pub(super) fn checked_factor(factor: f64) -> Result<f64, RopeError> {
    if factor.is_finite() && factor >= 1.0 { Ok(factor) } else { Err(RopeError::Factor(factor)) }
}

/// `value` when it is finite and above 0.
pub(super) fn checked_positive(name: &'static str, value: f64) -> Result<f64, RopeError> {
    if value.is_finite() && value > 0.0 {
        Ok(value)
    } else {
        Err(RopeError::NotPositive { name, found: value })
    }
}

/// Checks that `values` holds `expected` finite numbers above 0.
pub(super) fn check_list(list: &'static str, values: &[f64], expected: usize) -> Result<(), RopeError> {
    if values.len() != expected {
        return Err(RopeError::ListLength { list, expected, found: values.len() });
    }
    match values.iter().enumerate().find(|(_, v)| !(v.is_finite() && **v > 0.0)) {
        Some((index, &found)) => Err(RopeError::ListValue { list, index, found }),
        None => Ok(()),
    }
}
