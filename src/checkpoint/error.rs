//! Why a checkpoint cannot be opened.

use std::path::PathBuf;

use crate::checkpoint::config::ConfigError;
use crate::checkpoint::gguf::GgufError;
use crate::checkpoint::hub::HubError;
use crate::checkpoint::reference::ReferenceError;
use crate::checkpoint::safetensors::SafetensorsError;
use crate::checkpoint::sidecar::SidecarError;

/// Everything that can go wrong between a reference and an open checkpoint.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// The reference itself
    #[error(transparent)]
    Reference(#[from] ReferenceError),
    /// A GGUF file
    #[error(transparent)]
    Gguf(#[from] GgufError),
    /// Safetensors or their index
    #[error(transparent)]
    Safetensors(#[from] SafetensorsError),
    /// `config.json` or `generation_config.json`
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The Hub or its cache
    #[error(transparent)]
    Hub(#[from] HubError),
    /// A file beside the weights
    #[error(transparent)]
    Sidecar(#[from] SidecarError),
    /// The folder cannot be listed
    #[error("`{}` cannot be read: {source}", .path.display())]
    Folder {
        /// Folder
        path: PathBuf,
        /// Reason
        source: std::io::Error,
    },
    /// A folder of several GGUF checkpoints and no `config.json`
    #[error("`{}` has several GGUF files to choose from: {}", .path.display(), .found.join(", "))]
    SeveralGguf {
        /// Folder
        path: PathBuf,
        /// File names
        found: Vec<String>,
    },
    /// This build has no built-in checkpoint
    #[error("this program has no built-in checkpoint")]
    NoBuiltin,
}

impl CheckpointError {
    /// What the user can do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Reference(error) => error.hint(),
            Self::Gguf(error) => error.hint(),
            Self::Safetensors(error) => error.hint(),
            Self::Config(error) => error.hint(),
            Self::Hub(error) => error.hint(),
            Self::SeveralGguf { .. } => Some("give one of the files instead of the folder".to_owned()),
            Self::NoBuiltin => Some("give a checkpoint with `--model`".to_owned()),
            Self::Sidecar(_) | Self::Folder { .. } => None,
        }
    }
}
