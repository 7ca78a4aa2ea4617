//! Rotation and causal attention as plain tensor operations in bounded memory.

use candle_core::Tensor;

use super::Rotation;
use crate::engine::{EngineError, ModelShape};
use crate::rope::Pairing;

/// Scores that exist at the same time: small enough for a shared cache, large enough for full matrix products.
pub const SCORES_PER_BLOCK: usize = 2 << 20;

/// Turns each pair of the first `rotary_dim` lanes by its angle; the other lanes pass through.
///
/// x: `[heads, tokens, head_dim]`, contiguous; `rotation`: rows for at least these tokens, first row = first token.
pub fn rotate(x: &Tensor, rotation: &Rotation, shape: &ModelShape) -> Result<Tensor, EngineError> {
    let (heads, tokens, head_dim) = x.dims3()?;
    let pairs = shape.rotary_dim / 2;
    let cos = rotation.cos.narrow(0, 0, tokens)?;
    let sin = rotation.sin.narrow(0, 0, tokens)?;
    let turning = x.narrow(2, 0, shape.rotary_dim)?;
    let (a, b) = match shape.pairing {
        Pairing::HalfSplit => (turning.narrow(2, 0, pairs)?, turning.narrow(2, pairs, pairs)?),
        Pairing::Adjacent => {
            let lanes = turning.reshape((heads, tokens, pairs, 2))?;
            (lanes.narrow(3, 0, 1)?.squeeze(3)?, lanes.narrow(3, 1, 1)?.squeeze(3)?)
        }
    };
    let turned_a = (a.broadcast_mul(&cos)? - b.broadcast_mul(&sin)?)?;
    let turned_b = (b.broadcast_mul(&cos)? + a.broadcast_mul(&sin)?)?;
    let turned = match shape.pairing {
        Pairing::HalfSplit => Tensor::cat(&[turned_a, turned_b], 2)?,
        Pairing::Adjacent => {
            Tensor::stack(&[turned_a, turned_b], 3)?.reshape((heads, tokens, shape.rotary_dim))?
        }
    };
    if shape.rotary_dim == head_dim {
        return Ok(turned);
    }
    let rest = x.narrow(2, shape.rotary_dim, head_dim - shape.rotary_dim)?;
    // The cache takes contiguous keys only.
    Ok(Tensor::cat(&[turned, rest.contiguous()?], 2)?.contiguous()?)
}

/// softmax(q k^T + causal mask) v.
///
/// q: `[n_heads, tokens, head_dim]`, scaled, at positions `start..start + tokens`;
/// k, v: `[n_kv_heads, start + tokens, head_dim]`. Returns `[tokens, n_heads * head_dim]`.
///
/// Queries go in blocks whose scores fit [`SCORES_PER_BLOCK`]; each block reads only the keys it may see,
/// so memory grows with the number of keys, never with its square.
pub fn attention(
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    start: usize,
    window: Option<usize>,
) -> Result<Tensor, EngineError> {
    let (n_heads, tokens, _) = q.dims3()?;
    let rows = (SCORES_PER_BLOCK / (n_heads * (start + tokens))).clamp(1, tokens);
    attention_in_blocks(q, k, v, start, window, rows)
}

/// [`attention`] with `rows` queries of every head at a time.
pub fn attention_in_blocks(
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    start: usize,
    window: Option<usize>,
    rows: usize,
) -> Result<Tensor, EngineError> {
    let (n_heads, tokens, head_dim) = q.dims3()?;
    let mut blocks = Vec::with_capacity(tokens.div_ceil(rows));
    for first in (0..tokens).step_by(rows) {
        let rows = rows.min(tokens - first);
        let block = q.narrow(1, first, rows)?;
        blocks.push(attend_block(&block, k, v, start + first, window)?);
    }
    let mixed = Tensor::cat(&blocks, 1)?; // [n_heads, tokens, head_dim]
    let joined = mixed.transpose(0, 1)?.contiguous()?;
    Ok(joined.reshape((tokens, n_heads * head_dim))?)
}

/// One block of scaled queries at positions `start..start + rows`: `[n_heads, rows, head_dim]`.
fn attend_block(
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    start: usize,
    window: Option<usize>,
) -> Result<Tensor, EngineError> {
    let (n_heads, rows, head_dim) = q.dims3()?;
    let (weights, oldest) = block_weights(q, k, start, window)?;
    let v = v.narrow(1, oldest, start + rows - oldest)?;
    Ok(weights.matmul(&v)?.reshape((n_heads, rows, head_dim))?)
}

/// Attention probabilities of a block of scaled queries at positions `start..start + rows`, and the first position that
/// they are for: `[n_kv_heads, group * rows, start + rows - first]`, rows of a head together.
pub fn block_weights(
    q: &Tensor,
    k: &Tensor,
    start: usize,
    window: Option<usize>,
) -> Result<(Tensor, usize), EngineError> {
    let (n_heads, rows, head_dim) = q.dims3()?;
    let n_kv_heads = k.dim(0)?;
    let group = n_heads / n_kv_heads;
    let end = start + rows;
    let oldest = window.map_or(0, |window| (start + 1).saturating_sub(window));
    let seen = end - oldest;
    let k = k.narrow(1, oldest, seen)?;
    // Query heads that share a key head become rows of one product.
    let q = q.contiguous()?.reshape((n_kv_heads, group * rows, head_dim))?;
    let mut scores = q.matmul(&k.transpose(1, 2)?)?;
    if rows > 1 {
        let mask = causal_mask(start, rows, oldest, window, q.device())?;
        scores = scores.reshape((n_heads, rows, seen))?.broadcast_add(&mask)?.reshape((
            n_kv_heads,
            group * rows,
            seen,
        ))?;
    }
    Ok((candle_nn::ops::softmax_last_dim(&scores)?, oldest))
}

/// 0 where the query at `start + row` sees the key at `oldest + column`, else minus infinity: `[rows, columns]`.
fn causal_mask(
    start: usize,
    rows: usize,
    oldest: usize,
    window: Option<usize>,
    device: &candle_core::Device,
) -> Result<Tensor, EngineError> {
    let columns = start + rows - oldest;
    let mut mask = vec![f32::NEG_INFINITY; rows * columns];
    for (row, line) in mask.chunks_mut(columns).enumerate() {
        let position = start + row;
        let first = window.map_or(0, |window| (position + 1).saturating_sub(window));
        line[first.saturating_sub(oldest)..=position - oldest].fill(0.0);
    }
    Ok(Tensor::from_vec(mask, (rows, columns), device)?)
}
