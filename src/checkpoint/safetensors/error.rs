//! What can be wrong with a folder of safetensors.

use std::path::PathBuf;

use super::MAX_HEADER_BYTES;
use crate::checkpoint::sidecar::SidecarError;

/// A problem and the file or folder that has it.
#[derive(Debug, thiserror::Error)]
#[error("`{}`: {problem}", .path.display())]
pub struct SafetensorsError {
    /// File or folder
    pub path: PathBuf,
    /// What is wrong
    pub problem: Box<SafetensorsProblem>,
}

/// What is wrong with safetensors or their index.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the messages say what each field is
pub enum SafetensorsProblem {
    #[error("cannot be read: {0}")]
    Io(std::io::Error),
    #[error("is truncated: expected at least {expected} bytes, found {found}")]
    Truncated { expected: u64, found: u64 },
    #[error("has {found} bytes, but its header describes {expected}")]
    Trailing { expected: u64, found: u64 },
    #[error("declares a header of `{found}` bytes; at most {MAX_HEADER_BYTES} are read")]
    HeaderLength { found: u64 },
    #[error("has an invalid header: {0}")]
    Header(serde_json::Error),
    #[error(
        "tensor `{tensor}` has the type `{found}`, which is not supported; supported are F32, F16, BF16, F8_E4M3"
    )]
    TensorType { tensor: String, found: String },
    #[error(
        "tensor `{tensor}` is stored as 8-bit floats, but there is no tensor of scales beside it (`weight_scale_inv` or \
         `weight_scale` in place of `weight`)"
    )]
    Float8Unscaled { tensor: String },
    #[error(
        "tensor `{tensor}` of 8-bit floats has the shape {shape:?}, which the scales `{scale}` of the shape {found:?} do not \
         fit: one for the matrix, one for each output or one for each 128 by 128 block"
    )]
    Float8Scale { tensor: String, shape: Vec<usize>, scale: String, found: Vec<usize> },
    #[error("has neither `model.safetensors` nor `model.safetensors.index.json`; found {found}")]
    NoWeights { found: String },
    #[error(transparent)]
    IndexRead(SidecarError),
    #[error("is not a valid index: {reason}")]
    Index { reason: String },
    #[error("names the file `{file}` for tensor `{tensor}`, which is outside of the folder")]
    IndexPath { tensor: String, file: String },
    #[error("names the file `{file}`, which does not exist")]
    ShardMissing { file: String },
    #[error("says that tensor `{tensor}` is in `{file}`, but that file does not have it")]
    TensorMissing { tensor: String, file: String },
    #[error("does not list tensor `{tensor}`, which is in `{file}`")]
    Unlisted { tensor: String, file: String },
}

impl SafetensorsError {
    /// What the user can do about it.
    pub fn hint(&self) -> Option<String> {
        use SafetensorsProblem as P;
        let text = match &*self.problem {
            P::Truncated { .. } | P::Trailing { .. } | P::HeaderLength { .. } | P::Header(_) => {
                "the download is incomplete or damaged: remove the file and fetch it again"
            }
            P::TensorType { .. } | P::Float8Unscaled { .. } | P::Float8Scale { .. } => {
                "use a checkpoint stored as F32, F16 or BF16, or a GGUF file"
            }
            P::NoWeights { .. } => "convert the weights to safetensors, or give a `.gguf` file",
            P::ShardMissing { .. } => {
                "fetch the missing file; if the index is left over from another model, remove it"
            }
            P::Index { .. } | P::IndexPath { .. } | P::TensorMissing { .. } | P::Unlisted { .. } => {
                "index and weights do not belong together: fetch the checkpoint again"
            }
            P::Io(_) | P::IndexRead(_) => return None,
        };
        Some(text.to_owned())
    }
}
