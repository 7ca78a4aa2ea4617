//! How fast a model reads and writes.

use std::time::Instant;

use crate::model::{LanguageModel, ModelError, Want};

/// A measured rate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rate {
    /// Tokens that were timed.
    pub tokens: usize,
    /// Tokens in the cache before them.
    pub context: usize,
    pub elapsed_s: f64,
}

impl Rate {
    pub fn tokens_per_s(&self) -> f64 {
        self.tokens as f64 / self.elapsed_s
    }
}

/// Ids that look like text to the engine: spread over the vocabulary, the same in every run.
pub(super) fn sample_ids(count: usize, vocab_size: usize) -> Vec<u32> {
    (0..count as u64).map(|i| (i.wrapping_mul(2_654_435_761) % vocab_size as u64) as u32).collect()
}

/// Time for one pass over `tokens` tokens from an empty cache, up to the logits of the last: the best of `rounds`.
///
/// # Errors
/// A failing model.
pub fn prefill(
    model: &dyn LanguageModel,
    tokens: usize,
    rounds: usize,
    progress: &mut dyn FnMut(usize),
) -> Result<Rate, ModelError> {
    let ids = sample_ids(tokens, model.config().vocab_size);
    let mut elapsed_s = f64::INFINITY;
    for _ in 0..rounds.max(1) {
        let mut session = model.session(tokens)?;
        let started = Instant::now();
        session.extend(&ids, Want::LastLogits, progress)?;
        elapsed_s = elapsed_s.min(started.elapsed().as_secs_f64());
    }
    Ok(Rate { tokens, context: 0, elapsed_s })
}

/// Time for `tokens` tokens one by one, each up to its logits, behind `context` tokens in the cache.
///
/// # Errors
/// A failing model.
pub fn decode(
    model: &dyn LanguageModel,
    tokens: usize,
    context: usize,
    progress: &mut dyn FnMut(usize),
) -> Result<Rate, ModelError> {
    let ids = sample_ids(context + tokens + 1, model.config().vocab_size);
    let mut session = model.session(ids.len())?;
    // The first token is not timed: it pays for what is allocated once.
    session.extend(&ids[..context + 1], Want::LastLogits, progress)?;
    let started = Instant::now();
    for id in &ids[context + 1..] {
        session.extend(std::slice::from_ref(id), Want::LastLogits, &mut |_| ())?;
    }
    Ok(Rate { tokens, context, elapsed_s: started.elapsed().as_secs_f64() })
}
