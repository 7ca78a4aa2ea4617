//! A text in progress on a [`Decoder`]: chunked prefill, decoding, and the policies for frequencies that change with the length.

use std::ops::Range;

use super::cancel::Cancel;
use super::decoder::{Chunk, LayerFrequencies};
use super::{AttentionObserver, Decoder, DynamicPolicy, ModelError, Session, Want};
use crate::engine::{Engine, KeyState};
use crate::rope::{RopeSpec, Table};

/// The tokens so far, their cached keys and values, and the frequencies that the cache was computed with.
pub struct DecoderSession<'a, E: Engine> {
    decoder: &'a Decoder<E>,
    rope: RopeSpec,
    /// The embedding of layers that have one of their own.
    local_rope: Option<RopeSpec>,
    cache: E::Cache,
    planned_length: usize,
    tokens: Vec<u32>,
    frequencies: LayerFrequencies,
    computed_tokens: usize,
}

impl<'a, E: Engine> DecoderSession<'a, E> {
    /// `rope`: any embedding that turns the lanes which the decoder's own turns.
    ///
    /// # Errors
    /// [`ModelError::Inconsistent`] for one that turns others, frequencies that cannot be built, a cache that is too large.
    pub fn new(decoder: &'a Decoder<E>, rope: &RopeSpec, planned_length: usize) -> Result<Self, ModelError> {
        let lanes = |spec: &RopeSpec| (spec.head_dim, spec.rotary_dim, spec.pairing);
        if lanes(rope) != lanes(&decoder.rope.spec) {
            let message = format!(
                "a rotary embedding of {:?} on a model of {:?} (head_dim, rotary_dim, pairing)",
                lanes(rope),
                lanes(&decoder.rope.spec)
            );
            return Err(ModelError::Inconsistent(message));
        }
        let options = &decoder.options;
        let local_rope = decoder.rope.local_spec();
        Ok(Self {
            cache: decoder.engine.new_cache(planned_length, options.kv_type)?,
            frequencies: LayerFrequencies::new(rope, local_rope.as_ref(), planned_length)?,
            rope: rope.clone(),
            local_rope,
            decoder,
            planned_length,
            tokens: Vec::new(),
            computed_tokens: 0,
        })
    }

    fn check(&self, tokens: &[u32]) -> Result<(), ModelError> {
        let wanted = self.tokens.len() + tokens.len();
        if wanted > self.planned_length {
            let planned = self.planned_length;
            return Err(ModelError::BeyondPlan { planned, wanted });
        }
        let vocab_size = self.decoder.config.vocab_size;
        match tokens.iter().position(|&id| id as usize >= vocab_size) {
            None => Ok(()),
            Some(at) => {
                Err(ModelError::TokenId { id: tokens[at], index: self.tokens.len() + at, vocab_size })
            }
        }
    }

    /// Frequencies for a text of `length` tokens under the policy in force.
    fn frequencies_at(&self, length: usize) -> Result<LayerFrequencies, ModelError> {
        let length = match self.decoder.options.dynamic {
            DynamicPolicy::Planned => self.planned_length,
            DynamicPolicy::Current | DynamicPolicy::Recompute => length,
        };
        LayerFrequencies::new(&self.rope, self.local_rope.as_ref(), length)
    }

    /// Checks `tokens`, and brings frequencies and prefix to what the policy asks for once they are there.
    fn prepare(&mut self, tokens: &[u32]) -> Result<(), ModelError> {
        self.check(tokens)?;
        let frequencies = self.frequencies_at(self.tokens.len() + tokens.len())?;
        if frequencies != self.frequencies {
            self.frequencies = frequencies;
            if self.decoder.options.dynamic == DynamicPolicy::Recompute {
                let prefix = std::mem::take(&mut self.tokens);
                self.run(&prefix, Want::Nothing, None, &mut |_| ())?;
            }
        }
        Ok(())
    }

    /// Runs `tokens` in chunks behind the `self.tokens` already cached.
    fn run(
        &mut self,
        tokens: &[u32],
        want: Want<'_>,
        mut observer: Option<&mut AttentionObserver<'_>>,
        progress: &mut dyn FnMut(usize),
    ) -> Result<Vec<f32>, ModelError> {
        let engine = &self.decoder.engine;
        let first = self.tokens.len();
        let key_rotation = match self.decoder.key_state(&self.rope) {
            KeyState::Rotated => None,
            KeyState::Unrotated => {
                let all = Table::new(&self.frequencies.global, 0..first + tokens.len());
                Some(engine.rotation(&all)?)
            }
        };
        let mut results = Vec::new();
        let mut done = 0;
        for chunk in even_chunks(tokens, self.decoder.options.prefill_chunk) {
            let start = first + done;
            if self.decoder.cancel.is_some_and(Cancel::is_set) {
                return Err(ModelError::Interrupted { index: start });
            }
            let (frequencies, key_rotation) = (&self.frequencies, key_rotation.as_ref());
            let wanted = Wanted::of(want, done, chunk.len(), tokens.len());
            let rows = wanted.rows.clone();
            let tokens_of_chunk = Chunk { tokens: chunk, start, wanted: rows, frequencies, key_rotation };
            let hidden = self.decoder.forward(&tokens_of_chunk, &mut self.cache, observer.as_deref_mut())?;
            match wanted.compute(engine, &hidden, start) {
                Ok(values) => results.extend(values),
                Err(error) => return Err(self.first_non_finite(chunk, start, key_rotation, error)),
            }
            self.tokens.extend(chunk);
            self.computed_tokens += chunk.len();
            done += chunk.len();
            progress(done);
        }
        Ok(results)
    }
}

/// `tokens` in as few parts of at most `most` as there can be, of nearly equal size: an engine may add up a part of a few
/// tokens in another order, so a small last part would make results depend on where a prefill began.
fn even_chunks(tokens: &[u32], most: usize) -> impl Iterator<Item = &[u32]> {
    let (n, parts) = (tokens.len(), tokens.len().div_ceil(most));
    (0..parts).map(move |part| &tokens[part * n / parts..(part + 1) * n / parts])
}

impl<E: Engine> DecoderSession<'_, E> {
    /// A value that is no number spoils every row of its chunk, because masked scores are multiplied, not skipped.
    /// Token by token only rows at and behind it are spoilt: `error` with the index where it begins.
    fn first_non_finite(
        &mut self,
        chunk: &[u32],
        start: usize,
        key_rotation: Option<&E::Rotation>,
        error: ModelError,
    ) -> ModelError {
        if !matches!(error, ModelError::NonFinite { .. }) {
            return error;
        }
        for (offset, token) in chunk.iter().enumerate() {
            let at = start + offset;
            let decoder = self.decoder;
            let frequencies = &self.frequencies;
            let one = Chunk { tokens: &[*token], start: at, wanted: 0..1, frequencies, key_rotation };
            let hidden = decoder.forward(&one, &mut self.cache, None);
            let logits = Wanted::of(Want::AllLogits, 0, 1, 1);
            let checked = hidden.and_then(|hidden| logits.compute(&decoder.engine, &hidden, at));
            if let Err(first) = checked {
                return first;
            }
        }
        error
    }
}

impl<E: Engine> Session for DecoderSession<'_, E> {
    fn len(&self) -> usize {
        self.tokens.len()
    }

    fn computed_tokens(&self) -> usize {
        self.computed_tokens
    }

    fn truncate(&mut self, len: usize) {
        self.tokens.truncate(len);
    }

    fn extend(
        &mut self,
        tokens: &[u32],
        want: Want<'_>,
        progress: &mut dyn FnMut(usize),
    ) -> Result<Vec<f32>, ModelError> {
        self.prepare(tokens)?;
        self.run(tokens, want, None, progress)
    }

    fn observe(
        &mut self,
        tokens: &[u32],
        observer: &mut AttentionObserver<'_>,
        progress: &mut dyn FnMut(usize),
    ) -> Result<(), ModelError> {
        self.prepare(tokens)?;
        self.run(tokens, Want::Nothing, Some(observer), progress)?;
        Ok(())
    }
}

/// The part of a [`Want`] that falls into one chunk.
struct Wanted<'a> {
    /// Of the chunk.
    rows: Range<usize>,
    /// Tokens whose log-probabilities are wanted, one a row; `None`: logits.
    targets: Option<&'a [u32]>,
}

impl<'a> Wanted<'a> {
    /// `done`: tokens of the call before this chunk; `len`: tokens in the chunk; `total`: tokens in the call.
    fn of(want: Want<'a>, done: usize, len: usize, total: usize) -> Self {
        let logits = |rows| Self { rows, targets: None };
        match want {
            Want::LastLogits if done + len == total => logits(len - 1..len),
            Want::Nothing | Want::LastLogits => logits(0..0),
            Want::AllLogits => logits(0..len),
            Want::LogProbs { first_row, targets } => {
                let from = first_row.clamp(done, done + len);
                let to = (first_row + targets.len()).clamp(done, done + len);
                if from == to {
                    return logits(0..0);
                }
                let targets = &targets[from - first_row..to - first_row];
                Self { rows: from - done..to - done, targets: Some(targets) }
            }
        }
    }

    /// `hidden`: the wanted rows; `start`: position of the chunk's first token in the text.
    fn compute<E: Engine>(
        &self,
        engine: &E,
        hidden: &E::Hidden,
        start: usize,
    ) -> Result<Vec<f32>, ModelError> {
        if self.rows.is_empty() {
            return Ok(Vec::new());
        }
        let (values, quantity) = match self.targets {
            None => (engine.logits(hidden)?, "logit"),
            Some(targets) => (engine.log_probs(hidden, targets)?, "log-probability"),
        };
        let per_row = values.len() / self.rows.len();
        match values.iter().position(|value| !value.is_finite()) {
            None => Ok(values),
            Some(at) => {
                let index = start + self.rows.start + at / per_row;
                Err(ModelError::NonFinite { quantity, index, value: values[at] })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_even_and_lose_nothing() {
        for (n, most) in [(0usize, 5), (1, 5), (5, 5), (6, 5), (513, 512), (1001, 10), (512 * 1000 + 1, 512)]
        {
            let tokens: Vec<u32> = (0..n as u32).collect();
            let sizes: Vec<usize> = even_chunks(&tokens, most).map(<[u32]>::len).collect();
            assert_eq!(even_chunks(&tokens, most).collect::<Vec<_>>().concat(), tokens);
            let (least, largest) = (sizes.iter().min(), sizes.iter().max());
            assert!(
                least.zip(largest).is_none_or(|(a, b)| b - a <= 1 && *b <= most),
                "{n} {most}: {sizes:?}"
            );
            assert_eq!(sizes.len(), n.div_ceil(most));
        }
    }
}
