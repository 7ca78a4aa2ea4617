//! What the engine holds besides weights and cache while a chunk goes through it.

use super::attention::SCORES_PER_BLOCK;
use super::head::ROWS_PER_SLICE;
use super::weights::WeightFormat;
use crate::engine::{KvType, ModelShape};

/// The settings that the peak of temporary memory depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Workspace {
    pub format: WeightFormat,
    pub kv_type: KvType,
    /// Tokens that go through the layers together.
    pub chunk: usize,
    /// Tokens in the cache at the end.
    pub context: usize,
}

impl Workspace {
    /// Bytes of the cache: keys and values of every layer.
    pub fn cache_bytes(&self, shape: &ModelShape) -> u64 {
        let element = match self.kv_type {
            KvType::F32 => 4,
            // The engine refuses the last two when a cache is made.
            KvType::F16 | KvType::BF16 | KvType::Q16 | KvType::Q8_0 => 2,
        };
        let token = (2 * shape.n_layers() * shape.n_kv_heads * shape.head_dim) as u64;
        token.saturating_mul(element).saturating_mul(self.context as u64)
    }

    /// Bytes at the largest of three moments: attention, MLP, head. Sizes too large for the machine saturate.
    pub fn bytes(&self, shape: &ModelShape) -> u64 {
        const FLOAT: u128 = 4;
        let chunk = self.chunk as u128;
        let [hidden, inner, vocab] =
            [shape.hidden_size, shape.intermediate_size, shape.vocab_size].map(|n| n as u128);
        let q = (shape.n_heads * shape.head_dim) as u128;
        let kv = (shape.n_kv_heads * shape.head_dim) as u128;
        let residual = 2 * chunk * hidden;
        // Scores, masked scores and weights of a block: at least one row of every head, at most the whole chunk.
        let row = shape.n_heads as u128 * self.context as u128;
        let scores = (SCORES_PER_BLOCK as u128).clamp(row, row * chunk.max(1));
        // A narrow cache is widened for one layer at a time.
        let widened = match self.kv_type {
            KvType::F32 => 0,
            _ => 2 * kv * self.context as u128,
        };
        let attention = chunk * (4 * q + 4 * kv) + 3 * scores + widened;
        let mlp = chunk * (4 * inner + hidden);
        let head = (ROWS_PER_SLICE as u128) * 3 * vocab;
        let unpacked = match self.format {
            WeightFormat::Unpacked => 0,
            WeightFormat::Packed => hidden * vocab.max(inner),
        };
        let bytes = FLOAT * (residual + unpacked + attention.max(mlp).max(head));
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }
}
