//! cos and sin for a range of positions.

use std::ops::Range;

use super::base::Frequencies;

/// cos and sin of every rotated pair at every position of a range, attention factor included.
///
/// Angles are products of a position and an `f64` frequency; only the finished values are cast, so the angle error at
/// position 1,048,575 stays below 1e-6 radians.
#[derive(Debug, Clone, PartialEq)]
pub struct Table {
    positions: Range<usize>,
    pairs: usize,
    // [positions, pairs], row-major
    cos: Vec<f32>,
    sin: Vec<f32>,
}

impl Table {
    /// The table of `frequencies` for `positions`, counted in tokens from the start of the text.
    pub fn new(frequencies: &Frequencies, positions: Range<usize>) -> Table {
        let pairs = frequencies.inv_freq.len();
        let capacity = positions.len().saturating_mul(pairs);
        let (mut cos, mut sin) = (Vec::with_capacity(capacity), Vec::with_capacity(capacity));
        for position in positions.clone() {
            for inv_freq in &frequencies.inv_freq {
                let (s, c) = (position as f64 * inv_freq).sin_cos();
                cos.push((c * frequencies.attention_factor) as f32);
                sin.push((s * frequencies.attention_factor) as f32);
            }
        }
        Table { positions, pairs, cos, sin }
    }

    /// Cosines times the attention factor, row-major `[positions, pairs]`.
    pub fn cos(&self) -> &[f32] {
        &self.cos
    }

    /// Sines times the attention factor, row-major `[positions, pairs]`.
    pub fn sin(&self) -> &[f32] {
        &self.sin
    }

    /// Rotated pairs per position.
    pub fn pairs(&self) -> usize {
        self.pairs
    }

    /// The positions that the rows stand for.
    pub fn positions(&self) -> Range<usize> {
        self.positions.clone()
    }

    /// cos and sin of one row, `[pairs]` each; `None` outside the table.
    pub fn row(&self, row: usize) -> Option<(&[f32], &[f32])> {
        let start = row.checked_mul(self.pairs)?;
        let lanes = start..start.checked_add(self.pairs)?;
        (row < self.positions.len()).then_some(())?;
        Some((self.cos.get(lanes.clone())?, self.sin.get(lanes)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain() -> Frequencies {
        Frequencies { inv_freq: vec![1.0, 0.01], attention_factor: 1.0 }
    }

    #[test]
    fn rows_are_positions() {
        let table = Table::new(&plain(), 5..8);
        assert_eq!((table.pairs(), table.positions(), table.cos().len()), (2, 5..8, 6));
        let (cos, sin) = table.row(1).unwrap();
        assert_eq!(cos, [6f64.cos() as f32, 0.06f64.cos() as f32]);
        assert_eq!(sin, [6f64.sin() as f32, 0.06f64.sin() as f32]);
        assert!(table.row(3).is_none());
        assert!(table.row(usize::MAX).is_none());
    }

    #[test]
    fn d038_an_attention_factor_of_one_keeps_the_circle() {
        let table = Table::new(&plain(), 0..1000);
        for (c, s) in table.cos().iter().zip(table.sin()) {
            assert!((c * c + s * s - 1.0).abs() < 1e-6);
        }
    }

    #[test]
    fn d059_neighbouring_positions_never_collapse() {
        for first in [256, 65_536] {
            let table = Table::new(&plain(), first..first + 2);
            assert_ne!(table.row(0), table.row(1));
        }
    }

    #[test]
    fn an_empty_range_is_an_empty_table() {
        assert!(Table::new(&plain(), 7..7).cos().is_empty());
    }
}
