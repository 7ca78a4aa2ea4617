//! The position encodings as numbers, without tensors.

use crate::named::Named;

/// How a toy model learns where a token stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Encoding {
    /// Nothing but the causal mask.
    None,
    /// Sines and cosines added to the embeddings; see [`sinusoids`].
    Sinusoidal,
    /// A learned vector for each position added to the embeddings; there is none beyond the trained length.
    Learned,
    /// A penalty linear in the distance, with another slope in each head; see [`alibi_slopes`].
    Alibi,
    /// A learned bias for each bucket of distances and each head; see [`t5_bucket`].
    T5,
    /// Queries and keys rotated, lanes `i` and `i + head_dim / 2` together.
    Rope,
    /// The same with lanes `2i` and `2i + 1` together.
    RopeAdjacent,
}

impl Named for Encoding {
    const WHAT: &'static str = "encoding";
    const ALL: &'static [Self] = &[
        Encoding::None,
        Encoding::Sinusoidal,
        Encoding::Learned,
        Encoding::Alibi,
        Encoding::T5,
        Encoding::Rope,
        Encoding::RopeAdjacent,
    ];

    fn name(self) -> &'static str {
        match self {
            Encoding::None => "none",
            Encoding::Sinusoidal => "sinusoidal",
            Encoding::Learned => "learned",
            Encoding::Alibi => "alibi",
            Encoding::T5 => "t5",
            Encoding::Rope => "rope",
            Encoding::RopeAdjacent => "rope-adjacent",
        }
    }
}

impl Encoding {
    /// Whether queries and keys are rotated, so that scaling methods apply.
    pub fn rotates(self) -> bool {
        matches!(self, Encoding::Rope | Encoding::RopeAdjacent)
    }
}

/// Encodings of positions `0..length` as one row of `width` values each, row-major: `sin` in even lanes and `cos` in odd
/// ones, of the position times `theta^(-2i / width)`.
///
/// Source: Vaswani et al. 2017, arXiv:1706.03762, section 3.5. `width` is even.
pub fn sinusoids(length: usize, width: usize, theta: f64) -> Vec<f64> {
    let inv_freq = crate::rope::base_frequencies(theta, width);
    let row = |position: usize| {
        let turned = inv_freq.iter().map(move |f| (position as f64 * f).sin_cos());
        turned.flat_map(|(sin, cos)| [sin, cos]).collect::<Vec<f64>>()
    };
    (0..length).flat_map(row).collect()
}

/// How much each head subtracts from a score per token of distance: `2^(-8 (h + 1) / heads)`.
///
/// For a number of heads that is no power of two, the slopes of the next lower power, then every other slope of the
/// next higher one. Source: Press et al. 2022, arXiv:2108.12409, section 3 and the code of its authors.
pub fn alibi_slopes(heads: usize) -> Vec<f64> {
    let geometric = |n: usize| (0..n).map(move |h| (-8.0 * (h + 1) as f64 / n as f64).exp2());
    let lower = if heads.is_power_of_two() { heads } else { heads.next_power_of_two() / 2 };
    geometric(lower).chain(geometric(2 * lower).step_by(2)).take(heads).collect()
}

/// Buckets of the T5 bias.
pub const T5_BUCKETS: usize = 32;

/// From which distance on the T5 bias of a model trained on `context` tokens is the same: half of them, so that training
/// reaches the last bucket (T5 itself shares it from 128 of 512 on), and at least 32.
pub fn t5_max_distance(context: usize) -> usize {
    (context / 2).max(T5_BUCKETS)
}

/// The bucket of a distance to an earlier token: one each up to half the buckets, then wider ones, as logarithms grow,
/// up to `max_distance`.
///
/// Source: Raffel et al. 2020, arXiv:1910.10683, section 2.1, and the published code, one direction only.
/// `max_distance` is above half of [`T5_BUCKETS`].
pub fn t5_bucket(distance: usize, max_distance: usize) -> usize {
    let exact = T5_BUCKETS / 2;
    if distance < exact {
        return distance;
    }
    let share = (distance as f64 / exact as f64).ln() / (max_distance as f64 / exact as f64).ln();
    (exact + (share * (T5_BUCKETS - exact) as f64) as usize).min(T5_BUCKETS - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sinusoids_start_with_sin_of_the_position() {
        let table = sinusoids(3, 4, 100.0);
        let expected = [0.0, 1.0, 0.0, 1.0, 1f64.sin(), 1f64.cos(), 0.1f64.sin(), 0.1f64.cos()];
        assert_eq!(table[..8], expected);
        assert_eq!(table.len(), 12);
    }

    #[test]
    fn slopes_of_published_models() {
        let eight: Vec<f64> = (1..=8).map(|i| 0.5f64.powi(i)).collect();
        assert_eq!(alibi_slopes(8), eight);
        assert_eq!(alibi_slopes(4), [0.25, 0.0625, 0.015625, 0.00390625]);
        let twelve = alibi_slopes(12);
        assert_eq!(twelve[..8], eight[..]);
        assert_eq!(twelve[8], 0.5f64.sqrt());
        assert_eq!((alibi_slopes(1), alibi_slopes(3).len()), (vec![1.0 / 256.0], 3));
    }

    /// Buckets of transformers 5.24, `T5Attention._relative_position_bucket`, 32 buckets up to distance 128.
    #[test]
    fn buckets_are_exact_then_logarithmic() {
        let bucket = |distance| t5_bucket(distance, 128);
        assert!((0..16).all(|distance| bucket(distance) == distance));
        assert_eq!(
            [16, 18, 19, 20, 64, 90, 126, 127, 1000].map(bucket),
            [16, 16, 17, 17, 26, 29, 31, 31, 31]
        );
        assert!((0..200).all(|distance| bucket(distance) <= bucket(distance + 1)));
        assert_eq!((t5_max_distance(64), t5_bucket(31, 32), t5_bucket(32, 32)), (32, 31, 31));
    }
}
