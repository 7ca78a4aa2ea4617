//! GGUF, the single-file checkpoint format of ggml.
//!
//! Layout (little-endian): magic, version, tensor count, entry count; the metadata entries; one record per tensor;
//! padding; tensor data. Versions 2 and 3 are read.
//! Source: ggml `docs/gguf.md`. Every count, length and offset is compared with the file size before it is used.

mod encode;
mod error;
mod file;
mod metadata;
mod parse;
mod reader;
mod split;
mod value;

pub use encode::{EncodeError, TensorData, encode};
pub use error::{GgufError, GgufProblem};
pub use file::{GgufFile, TensorInfo};
pub use metadata::Metadata;
pub(crate) use split::PartName;
pub use value::{Array, Value, ValueType};

/// First four bytes of every GGUF file.
pub const MAGIC: [u8; 4] = *b"GGUF";

/// Alignment of tensor data when `general.alignment` is absent, in bytes.
pub const DEFAULT_ALIGNMENT: usize = 32;
