//! From bytes to metadata and tensor records, all checked against the file.

use super::error::{GgufError, GgufProblem};
use super::metadata::Metadata;
use super::reader::Reader;
use super::{DEFAULT_ALIGNMENT, MAGIC};
use crate::checkpoint::tensor::TensorType;

/// Longest key, in bytes. Source: ggml `docs/gguf.md`.
const MAX_KEY_BYTES: u64 = 65_535;
/// Longest tensor name, in bytes: the format says 64, files in the wild exceed it.
const MAX_TENSOR_NAME_BYTES: u64 = 1_024;
/// Most dimensions of a tensor. Source: ggml `GGML_MAX_DIMS`.
const MAX_RANK: u32 = 4;
/// Fewest bytes of a metadata entry: key length, one byte of key, type, value.
const MIN_ENTRY_BYTES: usize = 8 + 1 + 4 + 1;
/// Fewest bytes of a tensor record: name length, one byte of name, rank, one dimension, type, offset.
const MIN_RECORD_BYTES: usize = 8 + 1 + 4 + 8 + 4 + 8;
/// Key of the alignment of tensor data.
const ALIGNMENT: &str = "general.alignment";

/// One tensor of a GGUF file.
#[derive(Clone, Debug, PartialEq)]
pub struct TensorInfo {
    /// Name
    pub name: String,
    /// Element type
    pub dtype: TensorType,
    /// Row-major, outermost first (the file stores the opposite order)
    pub shape: Vec<usize>,
    /// Which part of a split file holds the data, 0 for a whole file
    pub part: usize,
    /// Where the data starts, in bytes from the start of that part
    pub offset: usize,
    /// Length of the data in bytes
    pub size_bytes: usize,
}

/// The checked content of one file.
pub(super) struct Parsed {
    pub(super) version: u32,
    pub(super) metadata: Metadata,
    pub(super) tensors: Vec<TensorInfo>,
}

/// Read and check everything in front of the tensor data, and that the data is there.
pub(super) fn parse(bytes: &[u8], file: &str) -> Result<Parsed, GgufError> {
    let fail = |problem| GgufError::new(file, problem);
    let mut reader = Reader::new(bytes);
    let version = read_version(&mut reader).map_err(fail)?;
    let n_tensors = reader.count(MIN_RECORD_BYTES, "tensors").map_err(fail)?;
    let n_entries = reader
        .count(MIN_ENTRY_BYTES, "metadata entries")
        .map_err(fail)?;
    let entries = (0..n_entries).map(|_| {
        let key = reader.name(MAX_KEY_BYTES, "a metadata key")?;
        let value = reader.value(&key)?;
        Ok((key, value))
    });
    let entries = entries.collect::<Result<Vec<_>, _>>().map_err(fail)?;
    let metadata = Metadata::from_entries(file, entries)?;
    let alignment = metadata.usize(ALIGNMENT)?.unwrap_or(DEFAULT_ALIGNMENT);
    if !alignment.is_power_of_two() {
        return Err(fail(GgufProblem::Alignment { found: alignment }));
    }
    let records = (0..n_tensors).map(|_| read_record(&mut reader, alignment));
    let mut tensors = records.collect::<Result<Vec<_>, _>>().map_err(fail)?;
    place(&mut tensors, reader.position(), alignment, bytes.len()).map_err(fail)?;
    Ok(Parsed {
        version,
        metadata,
        tensors,
    })
}

fn read_version(reader: &mut Reader<'_>) -> Result<u32, GgufProblem> {
    let magic = reader.take(MAGIC.len() as u64, "the magic number")?;
    if magic.iter().rev().eq(&MAGIC) {
        return Err(GgufProblem::BigEndian);
    }
    if magic != MAGIC {
        return Err(GgufProblem::Magic {
            found: magic.to_vec(),
        });
    }
    match reader.u32("the version")? {
        version @ (2 | 3) => Ok(version),
        // a small number with its bytes swapped has its low half empty
        swapped if swapped != 0 && swapped & 0xffff == 0 => Err(GgufProblem::BigEndian),
        found => Err(GgufProblem::Version { found }),
    }
}

/// One tensor record; the offset in it is still relative to the start of the data.
fn read_record(reader: &mut Reader<'_>, alignment: usize) -> Result<TensorInfo, GgufProblem> {
    let name = reader.name(MAX_TENSOR_NAME_BYTES, "a tensor")?;
    let what = format!("the record of tensor `{name}`");
    let rank = reader.u32(&what)?;
    if !(1..=MAX_RANK).contains(&rank) {
        return Err(GgufProblem::Rank {
            tensor: name,
            found: rank,
            limit: MAX_RANK,
        });
    }
    let stored = (0..rank)
        .map(|_| reader.u64(&what))
        .collect::<Result<Vec<_>, _>>()?;
    let id = reader.u32(&what)?;
    let offset = reader.u64(&what)?;
    let dtype = match TensorType::from_ggml_id(id) {
        Ok(dtype) => dtype,
        Err(source) => {
            return Err(GgufProblem::TensorType {
                tensor: name,
                source,
            });
        }
    };
    let shape = stored
        .iter()
        .rev()
        .map(|n| usize::try_from(*n).ok().filter(|n| *n > 0));
    let Some(shape) = shape.collect::<Option<Vec<_>>>() else {
        return Err(GgufProblem::Shape {
            tensor: name,
            shape: stored,
        });
    };
    let row = shape.last().copied().unwrap_or(1);
    if !row.is_multiple_of(dtype.block_size()) {
        return Err(GgufProblem::Rows {
            tensor: name,
            row,
            dtype,
        });
    }
    let Some(size_bytes) = dtype.size_bytes(&shape) else {
        return Err(GgufProblem::Shape {
            tensor: name,
            shape: stored,
        });
    };
    match usize::try_from(offset) {
        Ok(offset) if offset.is_multiple_of(alignment) => Ok(TensorInfo {
            name,
            dtype,
            shape,
            part: 0,
            offset,
            size_bytes,
        }),
        _ => Err(GgufProblem::Offset {
            tensor: name,
            offset,
            alignment,
        }),
    }
}

/// Make the offsets absolute and check that the tensors lie in the file, apart from each other.
///
/// `header`: bytes in front of the padding. `size`: bytes of the file.
fn place(
    tensors: &mut [TensorInfo],
    header: usize,
    alignment: usize,
    size: usize,
) -> Result<(), GgufProblem> {
    let beyond = |tensor: &TensorInfo, at: u64| GgufProblem::Truncated {
        what: format!("the data of tensor `{}`", tensor.name),
        at,
        needed: tensor.size_bytes as u64,
        size: size as u64,
    };
    let mut farthest: Option<&TensorInfo> = None;
    for tensor in tensors.iter_mut() {
        let relative = tensor.offset as u64;
        let offset = header
            .checked_next_multiple_of(alignment)
            .and_then(|start| start.checked_add(tensor.offset));
        let placed =
            offset.and_then(|offset| Some((offset, offset.checked_add(tensor.size_bytes)?)));
        let Some((offset, end)) = placed else {
            return Err(beyond(tensor, relative.saturating_add(header as u64)));
        };
        tensor.offset = offset;
        if end > size && farthest.is_none_or(|other| end > other.offset + other.size_bytes) {
            farthest = Some(tensor);
        }
    }
    if let Some(tensor) = farthest {
        return Err(beyond(tensor, tensor.offset as u64));
    }
    let mut order: Vec<&TensorInfo> = tensors.iter().collect();
    order.sort_by_key(|tensor| tensor.offset);
    for pair in order.windows(2) {
        if pair[0].offset + pair[0].size_bytes > pair[1].offset {
            return Err(GgufProblem::Overlap {
                first: pair[0].name.clone(),
                second: pair[1].name.clone(),
            });
        }
    }
    Ok(())
}
