//! The one decoder, what it must know of an architecture, and its cache of keys and values.

pub mod cancel;
pub mod config;
pub mod decoder;
pub mod generate;
pub mod load;
pub mod memory;
pub mod observe;
pub mod session;
pub mod support;
pub mod weights;
pub mod with_rope;

use crate::checkpoint::ConfigError;
use crate::checkpoint::gguf::GgufError;
use crate::checkpoint::rope::RopeConfigError;
use crate::checkpoint::rope::RopeSettings;
use crate::checkpoint::tokenizer::TokenizerError;
use crate::engine::EngineError;
use crate::engine::stages::{Peaks, StageTimes};
use crate::named::Named;
use crate::rope::RopeError;

pub use config::ModelConfig;
pub use decoder::{Decoder, DecoderOptions};
pub use observe::AttentionObserver;

/// Why a model could not be built or run.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    #[error("architecture `{name}` is not supported; supported: {supported}")]
    Architecture { name: String, supported: String },
    #[error("`{key}` = `{value}` is not supported: {reason}")]
    Unsupported { key: String, value: String, reason: String },
    #[error("`{0}` is missing from the model's metadata")]
    MissingKey(String),
    #[error("tensor `{0}` is missing from the checkpoint")]
    MissingTensor(String),
    #[error("the checkpoint holds {count} tensor(s) that this architecture does not use, first `{first}`")]
    UnusedTensors { count: usize, first: String },
    #[error("inconsistent sizes: {0}")]
    Inconsistent(String),
    #[error("token id {id} is outside the vocabulary of {vocab_size} (token {index})")]
    TokenId { id: u32, index: usize, vocab_size: usize },
    #[error(
        "{length} tokens are needed, the limit is {limit} (original context {original_context}, scaling `{scaling}`)"
    )]
    BeyondLimit { length: usize, limit: usize, original_context: usize, scaling: &'static str },
    #[error("{wanted} tokens are more than the {planned} that this run was planned for")]
    BeyondPlan { planned: usize, wanted: usize },
    #[error("interrupted before token {index}")]
    Interrupted { index: usize },
    #[error("{quantity} at token {index} is not a finite number (`{value}`)")]
    NonFinite { quantity: &'static str, index: usize, value: f32 },
    #[error(
        "the run needs {:.1} MiB of memory, {:.1} MiB are allowed",
        mebibytes(*needed_bytes),
        mebibytes(*allowed_bytes)
    )]
    Memory { needed_bytes: u64, allowed_bytes: u64 },
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error(transparent)]
    Gguf(#[from] GgufError),
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    RopeConfig(#[from] RopeConfigError),
    #[error(transparent)]
    Rope(#[from] RopeError),
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
}

fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// What to do when frequencies depend on the length of the text and the text grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DynamicPolicy {
    /// Frequencies of the planned final length, from the first token on.
    #[default]
    Planned,
    /// Frequencies of the length reached; cached keys are rotated anew whenever they are read.
    Current,
    /// Frequencies of the length reached; the whole prefix is computed anew when they change.
    Recompute,
}

impl Named for DynamicPolicy {
    const WHAT: &'static str = "policy";
    const ALL: &'static [Self] = &[Self::Planned, Self::Current, Self::Recompute];

    fn name(self) -> &'static str {
        match self {
            DynamicPolicy::Planned => "planned",
            DynamicPolicy::Current => "current",
            DynamicPolicy::Recompute => "recompute",
        }
    }
}

/// Which results of a forward pass the caller wants. Rows count from the first token of the call.
#[derive(Debug, Clone, Copy)]
pub enum Want<'a> {
    Nothing,
    /// Logits `[vocab]` after the last token.
    LastLogits,
    /// Logits `[tokens, vocab]` after every token.
    AllLogits,
    /// Natural log-probability of `targets[i]` after the token at row `first_row + i`.
    LogProbs {
        first_row: usize,
        targets: &'a [u32],
    },
}

/// A loaded model, whatever computes it.
pub trait LanguageModel {
    fn config(&self) -> &ModelConfig;

    /// The rotary embedding in force.
    fn rope(&self) -> &RopeSettings;

    /// What computes, for reports.
    fn engine(&self) -> String;

    /// Where the time of all passes so far went; `None`: the engine does not keep it.
    fn stage_times(&self) -> Option<StageTimes> {
        None
    }

    /// Measures what the machine can do at most with the engine's threads; `None`: the engine does not know.
    fn peaks(&self) -> Option<Peaks> {
        None
    }

    /// An empty context for at most `planned_length` tokens.
    ///
    /// # Errors
    /// Frequencies that cannot be built at that length, or a cache that cannot be allocated.
    fn session(&self, planned_length: usize) -> Result<Box<dyn Session + '_>, ModelError> {
        self.session_with(self.rope(), planned_length)
    }

    /// The same under another rotary embedding of the same heads; weights are shared, so this costs a cache and no more.
    ///
    /// # Errors
    /// As [`LanguageModel::session`]; [`ModelError::Inconsistent`] when `rope` turns other lanes than the model's own.
    fn session_with(
        &self,
        rope: &RopeSettings,
        planned_length: usize,
    ) -> Result<Box<dyn Session + '_>, ModelError>;
}

/// A text in progress: its tokens and their cached keys and values.
pub trait Session {
    /// Tokens processed so far.
    fn len(&self) -> usize;

    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Forgets all but the first `len` tokens (nothing when there are no more): what follows a shared prefix can be
    /// replaced without computing the prefix again. Not after an error of [`Session::extend`].
    fn truncate(&mut self, len: usize);

    /// Processes `tokens` after those already there and returns what `want` asks for, flattened.
    /// `progress` is called with the number of tokens of this call that are done.
    ///
    /// # Errors
    /// [`ModelError::Interrupted`]; more tokens than planned, ids outside the vocabulary, non-finite results (with the token index), a failing engine.
    fn extend(
        &mut self,
        tokens: &[u32],
        want: Want<'_>,
        progress: &mut dyn FnMut(usize),
    ) -> Result<Vec<f32>, ModelError>;

    /// Processes `tokens` as [`Session::extend`] does, wanting nothing, and shows `observer` the attention of every layer.
    /// `progress` is called with the number of tokens of this call that are done; what the observer saw stays
    /// valid when the call ends with [`ModelError::Interrupted`].
    ///
    /// # Errors
    /// As [`Session::extend`]; attention that is not finite, with the token index.
    fn observe(
        &mut self,
        tokens: &[u32],
        observer: &mut AttentionObserver<'_>,
        progress: &mut dyn FnMut(usize),
    ) -> Result<(), ModelError>;

    /// Tokens that went through the decoder, recomputed ones included.
    fn computed_tokens(&self) -> usize;
}

/// Refuses a text longer than the rotary embedding in force allows.
///
/// # Errors
/// [`ModelError::BeyondLimit`] with both numbers, unless `allow_beyond`.
pub fn ensure_within_limit(rope: &RopeSettings, length: usize, allow_beyond: bool) -> Result<(), ModelError> {
    match rope.limit {
        Some(limit) if length > limit && !allow_beyond => Err(ModelError::BeyondLimit {
            length,
            limit,
            original_context: rope.spec.original_context,
            scaling: rope.spec.scaling.name(),
        }),
        _ => Ok(()),
    }
}
