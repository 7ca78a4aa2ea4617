//! Why a rope declaration or a flag cannot be used.

use std::sync::Arc;

use super::method::Method;
use crate::checkpoint::gguf::GgufError;
use crate::rope::RopeError;

/// A rope configuration that is refused: which key or flag, what was found, what is accepted.
#[derive(Debug, Clone, thiserror::Error)]
pub enum RopeConfigError {
    /// A value has another type or range than its key needs.
    #[error("`{key}` must be {expected}, found `{found}`")]
    WrongType { key: String, expected: &'static str, found: String },
    /// A key that the method needs is absent or null.
    #[error("`{key}` is missing; {needed_by} needs it")]
    Missing { key: String, needed_by: String },
    /// The method is not one of the known ones.
    #[error("unknown `rope_type` `{found}`; accepted: {accepted}")]
    UnknownType { found: String, accepted: String },
    /// The key means nothing to any method.
    #[error("unknown key `{key}` with value `{found}`; `{rope_type}` accepts: {accepted}")]
    UnknownKey { key: String, found: String, rope_type: String, accepted: String },
    /// The key belongs to another method.
    #[error("`{key}` = `{found}` has no meaning for `{rope_type}`; it belongs to {used_by}")]
    UnusedKey { key: String, found: String, rope_type: String, used_by: String },
    /// The key is known and cannot be honoured.
    #[error("`{key}` = `{found}` is not supported: {reason}")]
    Unsupported { key: String, found: String, reason: &'static str },
    /// Two places say different things.
    #[error("{first} and {second} contradict each other")]
    Conflict { first: String, second: String },
    /// A context length beyond anything that can be run.
    #[error("`{key}` comes to {found} tokens, more than the {max} that are believed")]
    ContextTooLarge { key: String, found: f64, max: usize },
    /// The metadata of a GGUF file could not be read.
    #[error(transparent)]
    Metadata(Arc<GgufError>),
    /// The values cannot be computed with.
    #[error(transparent)]
    Rope(#[from] RopeError),
    /// A method name on the command line is not known.
    #[error("unknown scaling method `{found}`; accepted: {}", Method::accepted())]
    UnknownMethod { found: String },
    /// A factor on the command line is no number and not `auto`.
    #[error("`{found}` is not a factor; accepted: a number of at least 1, or `auto`")]
    UnknownFactor { found: String },
    /// A parameter flag without a method to apply it to.
    #[error("`{flag}` needs `--scaling` with one of: {used_by}")]
    FlagNeedsScaling { flag: &'static str, used_by: String },
    /// A parameter flag that the chosen method does not read.
    #[error("`{flag}` has no meaning for `--scaling {method}`; it belongs to {used_by}")]
    UnusedFlag { flag: &'static str, method: Method, used_by: String },
    /// The chosen method needs another flag.
    #[error("`--scaling {method}` needs {needed}")]
    MissingFlag { method: Method, needed: &'static str },
    /// Two flags that exclude each other.
    #[error("`{first}` cannot be combined with `{second}`: {reason}")]
    FlagConflict { first: &'static str, second: &'static str, reason: &'static str },
    /// Flags cannot replace a rotation that no other method can express.
    #[error(
        "the checkpoint rotates {rotated} of {pairs} pairs spread over the whole head (`proportional`); \
         no other method rotates these lanes"
    )]
    NotReplaceable { rotated: usize, pairs: usize },
}

impl From<GgufError> for RopeConfigError {
    fn from(error: GgufError) -> Self {
        RopeConfigError::Metadata(Arc::new(error))
    }
}

/// Equal when they say the same.
impl PartialEq for RopeConfigError {
    fn eq(&self, other: &Self) -> bool {
        self.to_string() == other.to_string()
    }
}

/// Names in backticks, separated by commas.
pub(super) fn quoted<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    names.into_iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}
