//! Memory that the engine takes, known before anything is loaded.

use super::CpuEngine;
use super::cache::{CacheShape, LayerCache};
use super::matrix::{head_bytes, packed_bytes};
use crate::checkpoint::tensor::TensorView;
use crate::engine::{KvType, ModelShape};

impl CpuEngine<'_> {
    /// Bytes of the packed form of the given tensors.
    pub fn weights_bytes<'t>(tensors: impl Iterator<Item = TensorView<'t>>) -> u64 {
        let packed = |view: TensorView| match view.shape[..] {
            [outputs, inputs] => packed_bytes(view.dtype, outputs, inputs),
            _ => view.n_values() * size_of::<f32>(),
        };
        tensors.map(|view| packed(view) as u64).sum()
    }

    /// Bytes of a cache for `capacity` tokens: whole tiles of positions.
    pub fn cache_bytes(shape: &ModelShape, capacity: usize, kv_type: KvType) -> u64 {
        let layer = LayerCache::size_bytes(&cache_shape(shape), capacity, kv_type) as u64;
        layer.saturating_mul(shape.n_layers() as u64)
    }

    /// Bytes of activations, packed activations and pieces of the head while a chunk of `chunk` tokens goes through.
    pub fn workspace_bytes(shape: &ModelShape, chunk: usize) -> u64 {
        const FLOAT: u64 = 4;
        let [hidden, inner, vocab] =
            [shape.hidden_size, shape.intermediate_size, shape.vocab_size].map(|n| n as u64);
        let q = (shape.n_heads * shape.head_dim) as u64;
        let kv = (shape.n_kv_heads * shape.head_dim) as u64;
        // Residual and norm; then queries, keys, values and what attention mixes, or the two halves of the MLP; and
        // the input of a product in packed form.
        let layer = 2 * hidden + (2 * q + 2 * kv).max(2 * inner) + inner.max(hidden);
        let chunk_bytes = (FLOAT * layer).saturating_mul(chunk as u64);
        chunk_bytes.saturating_add(head_bytes(vocab as usize, chunk) as u64)
    }
}

pub(super) fn cache_shape(shape: &ModelShape) -> CacheShape {
    let ModelShape { n_kv_heads, head_dim, rotary_dim, pairing, .. } = *shape;
    CacheShape { n_kv_heads, head_dim, rotary_dim, pairing }
}
