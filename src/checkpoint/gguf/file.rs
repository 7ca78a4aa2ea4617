//! An open GGUF checkpoint: one file, or all parts of a split one.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use super::error::{GgufError, GgufProblem};
use super::metadata::Metadata;
use super::parse::{Parsed, parse};
use super::split;
use crate::checkpoint::bytes::Bytes;
use crate::checkpoint::tensor::TensorView;

pub use super::parse::TensorInfo;

/// A checked GGUF checkpoint with its data mapped into memory.
#[derive(Debug)]
pub struct GgufFile {
    name: String,
    parts: Vec<Part>,
    version: u32,
    metadata: Metadata,
    tensors: Vec<TensorInfo>,
    index: HashMap<String, usize>,
}

/// Bytes of one file of the checkpoint.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) path: Option<PathBuf>,
    pub(super) bytes: Bytes,
}

impl GgufFile {
    /// Map and check a file. Of a split checkpoint any part may be given; all parts are opened.
    ///
    /// # Errors
    /// Everything in `GgufProblem`.
    pub fn open(path: &Path) -> Result<Self, GgufError> {
        let name = path.display().to_string();
        let (part, parsed) = open_part(path)?;
        match split::count(&parsed.metadata)? {
            None => Self::assemble(name, vec![(part, parsed)]),
            Some(count) => {
                let parts = split::open_all(path, count, (part, parsed))?;
                let expected = parts[0].1.metadata.usize(split::TENSORS_COUNT)?;
                let file = Self::assemble(name, parts)?;
                let found = file.tensors.len();
                match expected {
                    Some(expected) if expected != found => Err(GgufError::new(
                        &file.name,
                        GgufProblem::SplitTensors { found, expected },
                    )),
                    _ => Ok(file),
                }
            }
        }
    }

    /// Check data built into the program. `name` stands for the file in messages.
    ///
    /// # Errors
    /// Everything in `GgufProblem` but `Io`.
    pub fn from_static(bytes: &'static [u8], name: &str) -> Result<Self, GgufError> {
        Self::from_memory(Bytes::Static(bytes), name)
    }

    /// Check data made in memory. `name` stands for the file in messages.
    ///
    /// # Errors
    /// Everything in `GgufProblem` but `Io`.
    pub fn from_bytes(bytes: Vec<u8>, name: &str) -> Result<Self, GgufError> {
        Self::from_memory(Bytes::Owned(bytes), name)
    }

    fn from_memory(bytes: Bytes, name: &str) -> Result<Self, GgufError> {
        let parsed = parse(&bytes, name)?;
        if let Some(count) = split::count(&parsed.metadata)? {
            return Err(GgufError::new(name, GgufProblem::SplitBuiltin { count }));
        }
        Self::assemble(name.to_owned(), vec![(Part { path: None, bytes }, parsed)])
    }

    /// Join parts in order; the first one has the metadata.
    fn assemble(name: String, parts: Vec<(Part, Parsed)>) -> Result<Self, GgufError> {
        let mut file = Self {
            name,
            parts: Vec::with_capacity(parts.len()),
            version: 0,
            metadata: Metadata::default(),
            tensors: Vec::new(),
            index: HashMap::new(),
        };
        for (number, (part, parsed)) in parts.into_iter().enumerate() {
            if number == 0 {
                file.version = parsed.version;
                file.metadata = parsed.metadata;
            }
            for tensor in parsed.tensors {
                if file
                    .index
                    .insert(tensor.name.clone(), file.tensors.len())
                    .is_some()
                {
                    return Err(GgufError::new(
                        &file.name,
                        GgufProblem::DuplicateTensor {
                            tensor: tensor.name,
                        },
                    ));
                }
                file.tensors.push(TensorInfo {
                    part: number,
                    ..tensor
                });
            }
            file.parts.push(part);
        }
        Ok(file)
    }

    /// Path that was opened, or the name of built-in data.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Files on disk, in the order of the parts; empty for data in memory.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.parts.iter().filter_map(|part| part.path.as_deref())
    }

    /// Format version, 2 or 3.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// Metadata entries (of the first part).
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// Tensor records in the order of the file.
    pub fn tensors(&self) -> impl ExactSizeIterator<Item = &TensorInfo> {
        self.tensors.iter()
    }

    /// A tensor by name.
    pub fn tensor(&self, name: &str) -> Option<TensorView<'_>> {
        let info = self.tensors.get(*self.index.get(name)?)?;
        let bytes = &self.parts.get(info.part)?.bytes;
        let bytes = bytes.get(info.offset..info.offset.checked_add(info.size_bytes)?)?;
        Some(TensorView {
            name: &info.name,
            dtype: info.dtype,
            shape: info.shape.clone(),
            bytes,
        })
    }

    /// Bytes of all parts together.
    pub fn size_bytes(&self) -> usize {
        self.parts.iter().map(|part| part.bytes.len()).sum()
    }
}

/// Map and check one file.
pub(super) fn open_part(path: &Path) -> Result<(Part, Parsed), GgufError> {
    let name = path.display().to_string();
    let bytes =
        Bytes::map(path).map_err(|source| GgufError::new(&name, GgufProblem::Io(source)))?;
    let parsed = parse(&bytes, &name)?;
    Ok((
        Part {
            path: Some(path.to_owned()),
            bytes,
        },
        parsed,
    ))
}
