//! How fast a model reads and writes.

use std::time::Instant;

use crate::engine::stages::StageTimes;
use crate::model::{LanguageModel, ModelError, Want};

/// A measured rate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rate {
    /// Tokens that were timed.
    pub tokens: usize,
    /// Tokens in the cache before them.
    pub context: usize,
    pub elapsed_s: f64,
    /// Where that time went; `None`: the engine does not keep it.
    pub stages: Option<StageTimes>,
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
    let mut best = Rate { tokens, context: 0, elapsed_s: f64::INFINITY, stages: None };
    for _ in 0..rounds.max(1) {
        let mut session = model.session(tokens)?;
        let (elapsed_s, stages) = timed(model, || session.extend(&ids, Want::LastLogits, progress))?;
        if elapsed_s < best.elapsed_s {
            best = Rate { elapsed_s, stages, ..best };
        }
    }
    Ok(best)
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
    let (elapsed_s, stages) = timed(model, || {
        ids[context + 1..].iter().try_for_each(|id| {
            session.extend(std::slice::from_ref(id), Want::LastLogits, &mut |_| ()).map(drop)
        })
    })?;
    Ok(Rate { tokens, context, elapsed_s, stages })
}

/// Seconds that `work` takes, and where they went.
fn timed<T>(
    model: &dyn LanguageModel,
    work: impl FnOnce() -> Result<T, ModelError>,
) -> Result<(f64, Option<StageTimes>), ModelError> {
    let before = model.stage_times();
    let started = Instant::now();
    work()?;
    let elapsed_s = started.elapsed().as_secs_f64();
    Ok((elapsed_s, model.stage_times().zip(before).map(|(after, before)| after - before)))
}
