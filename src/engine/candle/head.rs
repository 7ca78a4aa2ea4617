//! The final norm and the projection to the vocabulary.

use candle_core::Tensor;

use super::CandleEngine;
use crate::engine::EngineError;

/// Rows whose logits exist at the same time: bounds the head's workspace to this many times the vocabulary.
pub const ROWS_PER_SLICE: usize = 64;

impl CandleEngine {
    /// `[tokens, vocab]`
    pub(super) fn head_logits(&self, hidden: &Tensor) -> Result<Tensor, EngineError> {
        let x = self.rms_norm(hidden, &self.norm)?;
        self.head.as_ref().unwrap_or(&self.embedding).forward(&x)
    }
}
