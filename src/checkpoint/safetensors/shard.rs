//! One safetensors file.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use safetensors::Dtype;
use safetensors::tensor::Metadata;

use super::error::{SafetensorsError, SafetensorsProblem};
use super::{MAX_HEADER_BYTES, SafetensorsProblem as Problem};
use crate::checkpoint::bytes::Bytes;
use crate::checkpoint::tensor::TensorType;

/// Bytes of the header length.
const LENGTH_BYTES: usize = 8;

/// A checked file with its data mapped into memory.
#[derive(Debug)]
pub(super) struct Shard {
    pub(super) path: PathBuf,
    pub(super) bytes: Bytes,
    pub(super) tensors: BTreeMap<String, Record>,
}

/// One tensor of a file.
#[derive(Debug)]
pub(super) struct Record {
    /// `None`: 8-bit floats, which need their scales
    pub(super) dtype: Option<TensorType>,
    /// Outermost first
    pub(super) shape: Vec<usize>,
    /// Bytes of the file
    pub(super) range: Range<usize>,
}

impl Shard {
    pub(super) fn open(path: &Path) -> Result<Self, SafetensorsError> {
        let fail = |problem| SafetensorsError { path: path.to_owned(), problem: Box::new(problem) };
        let bytes = Bytes::map(path).map_err(|source| fail(Problem::Io(source)))?;
        Self::check(path, bytes)
    }

    /// `path` stands for the file in messages.
    pub(super) fn check(path: &Path, bytes: Bytes) -> Result<Self, SafetensorsError> {
        let fail = |problem| SafetensorsError { path: path.to_owned(), problem: Box::new(problem) };
        let tensors = read_header(&bytes).map_err(fail)?;
        Ok(Self { path: path.to_owned(), bytes, tensors })
    }
}

/// Tensor records of a whole file.
///
/// The header length is compared with the file before the header is read. The reference reader's own entry point is
/// avoided because it adds offsets from the file unchecked; its header type checks that the tensors follow each other
/// without gaps and that types, shapes and offsets agree.
fn read_header(bytes: &[u8]) -> Result<BTreeMap<String, Record>, SafetensorsProblem> {
    let found = bytes.len() as u64;
    let Some((length, rest)) = bytes.split_first_chunk::<LENGTH_BYTES>() else {
        return Err(Problem::Truncated { expected: LENGTH_BYTES as u64, found });
    };
    let length = u64::from_le_bytes(*length);
    if length > MAX_HEADER_BYTES {
        return Err(Problem::HeaderLength { found: length });
    }
    let truncated = Problem::Truncated { expected: length + LENGTH_BYTES as u64, found };
    let Ok(length) = usize::try_from(length) else {
        return Err(truncated);
    };
    let Some(header) = rest.get(..length) else {
        return Err(truncated);
    };
    let metadata: Metadata = serde_json::from_slice(header).map_err(Problem::Header)?;
    let infos = metadata.tensors();
    let data_bytes = infos.values().map(|info| info.data_offsets.1 as u64).max().unwrap_or(0);
    let start = LENGTH_BYTES + length;
    let expected = data_bytes.saturating_add(start as u64);
    if expected > found {
        return Err(Problem::Truncated { expected, found });
    }
    if expected < found {
        return Err(Problem::Trailing { expected, found });
    }
    let records = infos.into_iter().map(|(tensor, info)| {
        let dtype = match info.dtype {
            Dtype::F32 => Some(TensorType::F32),
            Dtype::F16 => Some(TensorType::F16),
            Dtype::BF16 => Some(TensorType::BF16),
            Dtype::F8_E4M3 => None,
            other => {
                return Err(Problem::TensorType { tensor, found: format!("{other:?}") });
            }
        };
        let (from, to) = info.data_offsets;
        Ok((tensor, Record { dtype, shape: info.shape.clone(), range: start + from..start + to }))
    });
    records.collect()
}
