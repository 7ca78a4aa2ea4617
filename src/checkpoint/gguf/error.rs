//! What can be wrong with a GGUF file.

use super::value::ValueType;
use crate::checkpoint::tensor::{TensorType, UnsupportedType};

/// A problem and the file that has it.
#[derive(Debug, thiserror::Error)]
#[error("`{file}`: {problem}")]
pub struct GgufError {
    /// Path of the file, or the name of built-in data
    pub file: String,
    /// What is wrong
    pub problem: Box<GgufProblem>,
}

impl GgufError {
    /// Attach the name of the file to a problem.
    pub fn new(file: &str, problem: GgufProblem) -> Self {
        Self { file: file.to_owned(), problem: Box::new(problem) }
    }

    /// What the user can do about it.
    pub fn hint(&self) -> Option<String> {
        self.problem.hint()
    }
}

/// What is wrong with a GGUF file or one of its entries.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the messages say what each field is
pub enum GgufProblem {
    #[error("cannot be read: {0}")]
    Io(std::io::Error),
    #[error("is not a GGUF file: it starts with `{}` instead of `GGUF`", .found.escape_ascii())]
    Magic { found: Vec<u8> },
    #[error("is a big-endian GGUF file; only little-endian files are read")]
    BigEndian,
    #[error("has GGUF version `{found}`; versions 1 to 3 are read")]
    Version { found: u32 },
    #[error("is truncated: {what} at byte {at} needs {needed} bytes, expected a file of at least {} bytes, found {size}",
        .at.saturating_add(*.needed))]
    Truncated { what: String, at: u64, needed: u64, size: u64 },
    #[error("declares `{count}` {what}, but only {fits} fit into the rest of the file")]
    Count { what: String, count: u64, fits: u64 },
    #[error("{what} is not valid UTF-8")]
    NotUtf8 { what: String },
    #[error("{what} has a name of `{length}` bytes; accepted are 1 to {limit}")]
    NameLength { what: String, length: u64, limit: u64 },
    #[error("key `{key}` has the unknown value type `{id}`; known are {}",
        ValueType::ALL.map(|kind| format!("{} ({})", kind as u32, kind.name())).join(", "))]
    ValueType { key: String, id: u32 },
    #[error("key `{key}` holds the byte `{found}` as a bool; accepted are 0 and 1")]
    Bool { key: String, found: u8 },
    #[error("key `{key}` nests arrays deeper than {limit} levels")]
    Nesting { key: String, limit: usize },
    #[error("key `{key}` appears twice")]
    DuplicateKey { key: String },
    #[error("tensor `{tensor}` appears twice")]
    DuplicateTensor { tensor: String },
    #[error("key `general.alignment` must be a power of two, found `{found}`")]
    Alignment { found: usize },
    #[error("tensor `{tensor}` has `{found}` dimensions; accepted are 1 to {limit}")]
    Rank { tensor: String, found: u32, limit: u32 },
    #[error(
        "tensor `{tensor}` has the shape `{shape:?}` (innermost first), which is empty or too large for this machine"
    )]
    Shape { tensor: String, shape: Vec<u64> },
    #[error("tensor `{tensor}`: {source}")]
    TensorType { tensor: String, source: UnsupportedType },
    #[error("tensor `{tensor}` has rows of `{row}` values, which are not whole {dtype} blocks of {}", .dtype.block_size())]
    Rows { tensor: String, row: usize, dtype: TensorType },
    #[error(
        "tensor `{tensor}` starts at the offset `{offset}`, which is not a multiple of the alignment {alignment}"
    )]
    Offset { tensor: String, offset: u64, alignment: usize },
    #[error("tensors `{first}` and `{second}` overlap")]
    Overlap { first: String, second: String },
    #[error("key `{key}` is missing")]
    MissingKey { key: String },
    #[error("key `{key}` must be {expected}, found {found_type} `{found}`")]
    WrongType { key: String, expected: &'static str, found_type: String, found: String },
    #[error("key `{key}` must be {expected}, found `{found}`")]
    Range { key: String, expected: String, found: String },
    #[error(
        "is one of {count} parts, but its name does not end in `-00001-of-{count:05}.gguf` or another part number"
    )]
    SplitName { count: usize },
    #[error("is one of {count} parts, but the name says {found}")]
    SplitNameCount { count: usize, found: usize },
    #[error("is one of {count} parts, and part `{missing}` cannot be opened: {source}")]
    SplitMissing { count: usize, missing: String, source: std::io::Error },
    #[error("has `split.count` `{found}`, but the part that was opened first says {expected}")]
    SplitCount { found: usize, expected: usize },
    #[error("has `split.no` `{found}`, expected {expected} from its name")]
    SplitNumber { found: usize, expected: usize },
    #[error("and its parts hold {found} tensors, but `split.tensors.count` is `{expected}`")]
    SplitTensors { found: usize, expected: usize },
    #[error("is one of {count} parts, which only files on disk can be")]
    SplitBuiltin { count: usize },
}

/// First bytes of the small text file that git stores in place of a large one.
const LFS_POINTER: &[u8] = b"vers";

impl GgufProblem {
    /// What the user can do about it.
    pub fn hint(&self) -> Option<String> {
        let text = match self {
            Self::Magic { found } if found == LFS_POINTER => {
                "this looks like a Git LFS pointer: fetch the real file with `git lfs pull`".to_owned()
            }
            Self::Magic { .. } => "give a `.gguf` file, or a folder with `config.json` and safetensors".to_owned(),
            Self::BigEndian | Self::Version { .. } => {
                "convert the original model again with a current llama.cpp".to_owned()
            }
            Self::Truncated { .. } | Self::Count { .. } => {
                "the download is incomplete or damaged: remove the file and fetch it again".to_owned()
            }
            Self::TensorType { .. } => {
                format!("use a file quantised to one of {}", TensorType::names())
            }
            Self::SplitName { .. } | Self::SplitNameCount { .. } | Self::SplitMissing { .. } => {
                "keep all parts in one folder under their original names, or join them with `llama-gguf-split --merge`"
                    .to_owned()
            }
            Self::SplitCount { .. } | Self::SplitNumber { .. } | Self::SplitTensors { .. } => {
                "the parts come from different conversions: fetch all of them again".to_owned()
            }
            _ => return None,
        };
        Some(text)
    }
}
