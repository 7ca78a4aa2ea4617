//! Safetensors, the checkpoint format of Hugging Face: one file, or shards with an index.
//!
//! A file is an 8-byte little-endian header length, a JSON header and the data.
//! Source: <https://huggingface.co/docs/safetensors>.

mod error;
mod float8;
mod folder;
mod index;
mod shard;

pub use error::{SafetensorsError, SafetensorsProblem};
pub use folder::SafetensorsFolder;

/// Name of the weights when they are one file.
pub const SINGLE_FILE: &str = "model.safetensors";

/// Name of the index when the weights are several files.
pub const INDEX_FILE: &str = "model.safetensors.index.json";

/// Longest header that is read, in bytes; the limit of the reference implementation.
pub const MAX_HEADER_BYTES: u64 = 100_000_000;

pub(crate) use index::{Index, stays_inside};
