//! Unscaled frequencies, and what can be read off a list of them.

use std::f64::consts::TAU;

/// What a scaling method returns: how fast every pair turns, and what cos and sin are multiplied by.
#[derive(Debug, Clone, PartialEq)]
pub struct Frequencies {
    /// Radians per token, one per rotated pair, pair 0 (the fastest) first.
    pub inv_freq: Vec<f64>,
    /// Final factor on cos and sin, so that a product of rotated query and key carries its square.
    pub attention_factor: f64,
}

/// Plain frequencies `theta^(-2i / rotary_dim)` in radians per token, for `i` in `0..rotary_dim / 2`.
///
/// Source: Su et al. 2021, arXiv:2104.09864, section 3.2.2. The caller has checked `theta` and `rotary_dim`.
pub fn base_frequencies(theta: f64, rotary_dim: usize) -> Vec<f64> {
    (0..rotary_dim / 2).map(|i| theta.powf(-((2 * i) as f64) / rotary_dim as f64)).collect()
}

/// Tokens per full turn of each pair; infinite for a pair that does not turn.
pub fn wavelengths(inv_freq: &[f64]) -> Vec<f64> {
    inv_freq.iter().map(|f| TAU / f).collect()
}

/// How many pairs complete at least one full turn within `context` tokens.
///
/// With frequencies in falling order this is also the index of the first pair that does not: the critical pair of
/// LongRoPE (Ding et al. 2024, arXiv:2402.13753), below which training has shown a pair all of its angles.
pub fn turning_pairs(inv_freq: &[f64], context: usize) -> usize {
    wavelengths(inv_freq).iter().filter(|w| **w <= context as f64).count()
}

/// `divided` moved towards `kept` by `share` in `0..=1`.
///
/// Exact at both ends, and everywhere when the two are equal, so that a factor of 1 changes no bit.
pub(super) fn blend(kept: f64, divided: f64, share: f64) -> f64 {
    if share >= 1.0 { kept } else { divided + (kept - divided) * share }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frequencies_fall_from_one_radian_per_token() {
        let f = base_frequencies(10_000.0, 64);
        assert_eq!(f.len(), 32);
        assert_eq!(f[0], 1.0);
        assert!((f[16] - 0.01).abs() < 1e-15);
        assert!(f.windows(2).all(|w| w[0] > w[1]));
    }

    #[test]
    fn the_critical_pair_of_llama_2_is_45() {
        // One turn in 4096 tokens: the raw correction dimension of beta_slow = 1 is 45.03 for Llama 2.
        assert_eq!(turning_pairs(&base_frequencies(10_000.0, 128), 4096), 46);
    }

    #[test]
    fn a_resting_pair_has_an_infinite_wavelength() {
        assert_eq!(wavelengths(&[0.0]), [f64::INFINITY]);
        assert_eq!(turning_pairs(&[0.0], usize::MAX), 0);
    }
}
