//! One head of attention in f64, its parts exchangeable.

use super::{HEAD_DIM, dot, noise};
use crate::lab::random::Random;
use crate::rope::{Frequencies, Pairing, RopeError, rotate_f64};

/// Queries, keys and values of a few tokens, `[tokens][head_dim]` each.
#[derive(Clone)]
pub struct Head {
    pub queries: Vec<Vec<f64>>,
    pub keys: Vec<Vec<f64>>,
    pub values: Vec<Vec<f64>>,
}

impl Head {
    pub fn random(random: &mut Random, tokens: usize) -> Self {
        let mut rows = || (0..tokens).map(|_| noise(random, HEAD_DIM)).collect();
        Head { queries: rows(), keys: rows(), values: rows() }
    }

    /// Queries and keys rotated by their position, the first token at `start`.
    pub fn rotated(
        mut self,
        frequencies: &Frequencies,
        pairing: Pairing,
        start: usize,
    ) -> Result<Self, RopeError> {
        for rows in [&mut self.queries, &mut self.keys] {
            rotate_rows(rows, frequencies, pairing, start)?;
        }
        Ok(self)
    }

    /// Values rotated as well, which no model does.
    pub fn with_rotated_values(
        mut self,
        frequencies: &Frequencies,
        pairing: Pairing,
        start: usize,
    ) -> Result<Self, RopeError> {
        rotate_rows(&mut self.values, frequencies, pairing, start)?;
        Ok(self)
    }

    /// Tokens in another order: row `i` of the result is row `order[i]`.
    pub fn permuted(&self, order: &[usize]) -> Self {
        let rows = |rows: &[Vec<f64>]| order.iter().map(|index| rows[*index].clone()).collect();
        Head { queries: rows(&self.queries), keys: rows(&self.keys), values: rows(&self.values) }
    }

    /// Outputs of all tokens one after another, `[tokens * head_dim]`; `causal` hides later tokens.
    pub fn attend(&self, causal: bool) -> Vec<f64> {
        let scale = (HEAD_DIM as f64).sqrt().recip();
        let mut out = Vec::new();
        for (index, query) in self.queries.iter().enumerate() {
            let seen = if causal { index + 1 } else { self.keys.len() };
            let scores: Vec<f64> = self.keys[..seen].iter().map(|key| scale * dot(query, key)).collect();
            let weights = softmax(&scores);
            for lane in 0..HEAD_DIM {
                out.push(weights.iter().zip(&self.values).map(|(weight, value)| weight * value[lane]).sum());
            }
        }
        out
    }
}

fn rotate_rows(
    rows: &mut [Vec<f64>],
    frequencies: &Frequencies,
    pairing: Pairing,
    start: usize,
) -> Result<(), RopeError> {
    for (index, row) in rows.iter_mut().enumerate() {
        rotate_f64(row, HEAD_DIM, frequencies, start + index, pairing)?;
    }
    Ok(())
}

pub fn softmax(scores: &[f64]) -> Vec<f64> {
    let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let weights: Vec<f64> = scores.iter().map(|score| (score - max).exp()).collect();
    let total: f64 = weights.iter().sum();
    weights.iter().map(|weight| weight / total).collect()
}
