//! Watching where heads look while a text is processed.

use super::ModelError;
use crate::engine::probe::{AttentionProbe, AttentionRows};
use crate::engine::{AttentionView, Engine};

/// Receives sums over the attention probabilities of every layer, chunk by chunk.
pub struct AttentionObserver<'a> {
    pub probe: AttentionProbe,
    /// Position of the first query that counts; earlier ones are processed without a look at their attention.
    pub first_query: usize,
    /// Is told layer, position of the first query, and the rows of consecutive queries.
    pub found: &'a mut dyn FnMut(usize, usize, &AttentionRows),
}

impl AttentionObserver<'_> {
    /// Hands over the rows of a chunk of `tokens` tokens.
    ///
    /// # Errors
    /// A failing engine; [`ModelError::NonFinite`] with the first query whose attention is no number.
    pub(super) fn look<E: Engine>(
        &mut self,
        engine: &E,
        view: &AttentionView<'_, E>,
        tokens: usize,
    ) -> Result<(), ModelError> {
        let first = self.first_query.saturating_sub(view.start);
        if first >= tokens {
            return Ok(());
        }
        let rows = engine.attention_rows(view, first..tokens, &self.probe)?;
        let position = view.start + first;
        match rows.rows.iter().position(|row| !(row.entropy.is_finite() && row.distance.is_finite())) {
            None => (self.found)(view.layer, position, &rows),
            Some(at) => {
                let (index, value) = (position + at / rows.n_heads, rows.rows[at].entropy as f32);
                return Err(ModelError::NonFinite { quantity: "entropy of attention", index, value });
            }
        }
        Ok(())
    }
}
