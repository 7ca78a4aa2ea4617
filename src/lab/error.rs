//! What can go wrong in the laboratory.

use std::path::{Path, PathBuf};

use crate::rope::RopeError;

/// A toy model that cannot be made, trained, kept or measured.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// A size that is out of range.
    #[error("`{name}` must be {accepted}, found {found}")]
    Setting { name: &'static str, accepted: String, found: String },
    /// The text does not hold what is asked of it.
    #[error("{purpose} needs at least {needed} bytes of text, found {found}")]
    ShortText { purpose: &'static str, needed: usize, found: usize },
    /// Learned positions were asked for more than they hold.
    #[error("learned positions end at {learned}: there is none for token {length}")]
    BeyondLearned { learned: usize, length: usize },
    /// The loss is no number any more.
    #[error("the loss of step {step} is not a finite number; lower the learning rate")]
    NotFinite { step: usize },
    /// A file that cannot be read or written.
    #[error("cannot {action} `{path}`")]
    Io { action: &'static str, path: PathBuf, source: std::io::Error },
    /// A file that is no checkpoint of the laboratory.
    #[error("`{path}` is not a checkpoint of `lab`: {reason}")]
    Checkpoint { path: PathBuf, reason: String },
    /// A checkpoint of another training run.
    #[error("`{path}` was trained with {setting} {found}, asked for {expected}")]
    OtherRun { path: PathBuf, setting: String, expected: String, found: String },
    /// The rotary embedding of the model.
    #[error(transparent)]
    Rope(#[from] RopeError),
    /// A tensor operation.
    #[error("tensor operation failed")]
    Tensor(#[from] candle_core::Error),
}

impl LabError {
    pub(super) fn io(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> LabError {
        let path = path.to_path_buf();
        move |source| LabError::Io { action, path, source }
    }

    pub(super) fn checkpoint(path: &Path, reason: impl Into<String>) -> LabError {
        LabError::Checkpoint { path: path.to_path_buf(), reason: reason.into() }
    }
}
