//! The final norm and the projection to the vocabulary, for chosen rows only.

use candle_core::Tensor;

use super::CandleEngine;
use crate::engine::EngineError;

/// Rows whose logits exist at the same time: bounds the head's workspace to this many times the vocabulary.
pub const ROWS_PER_SLICE: usize = 64;

impl CandleEngine {
    /// Logits of the given rows of `hidden`: `[rows, vocab]`.
    pub(super) fn head_rows(&self, hidden: &Tensor, rows: &[usize]) -> Result<Tensor, EngineError> {
        let ids: Vec<u32> = rows.iter().map(|&row| row as u32).collect();
        let ids = Tensor::from_slice(&ids, ids.len(), &self.device)?;
        let x = self.rms_norm(&hidden.index_select(&ids, 0)?, &self.norm)?;
        self.head.as_ref().unwrap_or(&self.embedding).forward(&x)
    }
}
