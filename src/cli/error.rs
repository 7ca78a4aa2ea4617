//! Errors of the command line itself, and what `main` needs to print any error.

use std::fmt;

use super::interrupt;
use crate::checkpoint::{CheckpointError, LanguageError};
use crate::model::ModelError;

/// A message with advice; `usage` means that the command line, not the run, is wrong.
#[derive(Debug)]
pub struct CommandError {
    message: String,
    hint: Option<String>,
    usage: bool,
}

impl CommandError {
    /// Flags that contradict each other or the model: exit code 2.
    pub fn usage(message: impl Into<String>) -> Self {
        Self { message: message.into(), hint: None, usage: true }
    }

    /// A run that failed: exit code 1.
    pub fn failed(message: impl Into<String>) -> Self {
        Self { usage: false, ..Self::usage(message) }
    }

    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl fmt::Display for CommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for CommandError {}

/// 2 for bad usage, 130 for Ctrl-C, 1 for every other failure.
pub fn exit_code(error: &anyhow::Error) -> u8 {
    if error.downcast_ref::<CommandError>().is_some_and(|error| error.usage) {
        return 2;
    }
    if is_interrupt(error) { interrupt::EXIT_CODE } else { 1 }
}

/// Whether Ctrl-C ended the run.
pub fn is_interrupt(error: &anyhow::Error) -> bool {
    error.chain().filter_map(as_model_error).any(|error| matches!(error, ModelError::Interrupted { .. }))
}

fn as_model_error<'a>(cause: &'a (dyn std::error::Error + 'static)) -> Option<&'a ModelError> {
    let boxed = cause.downcast_ref::<Box<ModelError>>().map(|error| &**error);
    cause.downcast_ref::<ModelError>().or(boxed)
}

/// The error with its causes and advice, over several lines.
pub fn describe(error: &anyhow::Error) -> String {
    let mut text = format!("error: {error}");
    let mut last = error.to_string();
    for cause in error.chain().skip(1) {
        let cause = cause.to_string();
        // Transparent wrappers repeat their source.
        if cause != last {
            text += &format!("\n  caused by: {cause}");
        }
        last = cause;
    }
    if let Some(hint) = hint(error) {
        text += &format!("\nhint: {hint}");
    }
    text
}

fn hint(error: &anyhow::Error) -> Option<String> {
    if let Some(command) = error.downcast_ref::<CommandError>() {
        return command.hint.clone();
    }
    error.chain().find_map(|cause| {
        let checkpoint = cause.downcast_ref::<CheckpointError>().and_then(CheckpointError::hint);
        let language = || cause.downcast_ref::<LanguageError>().and_then(LanguageError::hint);
        let model = || as_model_error(cause).and_then(model_hint);
        checkpoint.or_else(language).or_else(model)
    })
}

fn model_hint(error: &ModelError) -> Option<String> {
    let hint = match error {
        ModelError::BeyondLimit { .. } => {
            "stretch the limit with `--scaling yarn --factor auto`, or go beyond it with `--allow-beyond`"
        }
        ModelError::Memory { .. } => "shorten the context, choose `--kv-type f16`, or raise `--max-memory`",
        ModelError::MissingTensor(_) => {
            "the download or conversion is incomplete; fetch the checkpoint again"
        }
        ModelError::UnusedTensors { .. } => {
            "the file holds weights that this architecture would ignore, so its output would be wrong"
        }
        ModelError::Gguf(error) => return error.hint(),
        ModelError::Config(error) => return error.hint(),
        _ => return None,
    };
    Some(hint.to_string())
}
