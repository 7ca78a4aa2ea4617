//! Sums over attention probabilities as their definitions, in f64 over probabilities that exist for a block of queries.

use std::ops::Range;

use candle_core::Tensor;
use rayon::prelude::*;

use super::attention::{SCORES_PER_BLOCK, block_weights};
use crate::engine::EngineError;
use crate::engine::probe::{AttentionProbe, AttentionRow, AttentionRows};

/// The sums of the tokens `queries` of a chunk.
///
/// q: `[n_heads, tokens, head_dim]`, scaled and rotated; k: `[n_kv_heads, start + tokens, head_dim]`; `(start, window)`: position of
/// the first token, and how many positions a query sees.
///
/// Probabilities exist for as many queries at a time as attention itself has scores for, and are summed on the host.
pub fn statistics(
    q: &Tensor,
    k: &Tensor,
    (start, window): (usize, Option<usize>),
    queries: Range<usize>,
    probe: &AttentionProbe,
) -> Result<AttentionRows, EngineError> {
    let (n_heads, _, _) = q.dims3()?;
    let mut found = AttentionRows::new(queries.len(), n_heads, probe);
    let n_buckets = found.n_buckets;
    let per_block = (SCORES_PER_BLOCK / (n_heads * (start + queries.end).max(1))).max(1);
    for first in queries.clone().step_by(per_block) {
        let block = first..queries.end.min(first + per_block);
        let (weights, oldest) = block_weights(&q.narrow(1, first, block.len())?, k, start + first, window)?;
        let seen = start + block.end - oldest;
        let weights = weights.flatten_all()?.to_vec1::<f32>()?; // [n_heads, block, seen]
        let rows = (first - queries.start) * n_heads..(block.end - queries.start) * n_heads;
        let to = found.rows[rows.clone()].par_iter_mut();
        let to_mass = found.mass[rows.start * n_buckets..rows.end * n_buckets].par_chunks_mut(n_buckets);
        to.zip(to_mass).enumerate().for_each(|(index, (row, mass))| {
            let (query, head) = (index / n_heads, index % n_heads);
            let position = start + first + query;
            let visible = window.map_or(position + 1, |window| window.min(position + 1));
            let from = position + 1 - visible;
            let line = &weights[(head * block.len() + query) * seen..][..seen];
            *row = sums(&line[from - oldest..=position - oldest], from, probe, mass);
        });
    }
    Ok(found)
}

/// The sums over the probabilities of one query; `weights` of the keys from position `from` to its own.
fn sums(weights: &[f32], from: usize, probe: &AttentionProbe, mass: &mut [f64]) -> AttentionRow {
    let mut row = AttentionRow { seen: weights.len(), ..AttentionRow::default() };
    for (index, weight) in weights.iter().enumerate() {
        let (position, weight, distance) = (from + index, f64::from(*weight), weights.len() - 1 - index);
        // The limit of p ln p at 0 is 0; not a number must stay so.
        if weight != 0.0 {
            row.entropy -= weight * weight.ln();
        }
        row.distance += weight * distance as f64;
        mass[AttentionProbe::bucket(distance)] += weight;
        if position == 0 {
            row.first = weight;
        }
        if position < probe.sink_tokens {
            row.sink += weight;
            row.sink_distance += weight * distance as f64;
        }
    }
    row
}
