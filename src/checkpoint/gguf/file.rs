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
                    Some(expected) if expected != found => {
                        Err(GgufError::new(&file.name, GgufProblem::SplitTensors { found, expected }))
                    }
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
                if file.index.insert(tensor.name.clone(), file.tensors.len()).is_some() {
                    return Err(GgufError::new(
                        &file.name,
                        GgufProblem::DuplicateTensor { tensor: tensor.name },
                    ));
                }
                file.tensors.push(TensorInfo { part: number, ..tensor });
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
        Some(TensorView { name: &info.name, dtype: info.dtype, shape: info.shape.clone(), bytes })
    }

    /// Gives the memory of the maps back to the system until it is read again.
    pub fn release_pages(&self) {
        self.parts.iter().for_each(|part| part.bytes.release_pages());
    }

    /// Bytes of all parts together.
    pub fn size_bytes(&self) -> usize {
        self.parts.iter().map(|part| part.bytes.len()).sum()
    }
}

/// Map and check one file.
pub(super) fn open_part(path: &Path) -> Result<(Part, Parsed), GgufError> {
    let name = path.display().to_string();
    let bytes = Bytes::map(path).map_err(|source| GgufError::new(&name, GgufProblem::Io(source)))?;
    let parsed = parse(&bytes, &name)?;
    Ok((Part { path: Some(path.to_owned()), bytes }, parsed))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::gguf::{TensorData, Value, encode};
    use crate::checkpoint::tensor::TensorType;

    #[test]
    fn a_file_on_disk_is_mapped_and_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.gguf");
        let entries = [("general.architecture".to_owned(), Value::String("llama".into()))];
        let data = [1.0f32, 2.0].map(f32::to_le_bytes).concat();
        let tensor = TensorData { name: "t", dtype: TensorType::F32, shape: vec![1, 2], bytes: &data };
        let bytes = encode(&entries, &[tensor]).unwrap();
        std::fs::write(&path, &bytes).unwrap();
        let file = GgufFile::open(&path).unwrap();
        assert_eq!(file.name(), path.display().to_string());
        assert_eq!(file.paths().collect::<Vec<_>>(), [path.as_path()]);
        assert_eq!((file.version(), file.size_bytes()), (3, bytes.len()));
        assert_eq!(file.metadata().architecture().unwrap(), "llama");
        assert_eq!(file.tensors().len(), 1);
        assert_eq!(file.tensor("t").unwrap().to_f32(), Some(vec![1.0, 2.0]));
        assert_eq!(file.tensor("u"), None);
    }

    #[test]
    fn an_absent_file_and_a_doubled_tensor_are_refused() {
        let error = GgufFile::open(Path::new("/no/such.gguf")).unwrap_err();
        assert!(matches!(*error.problem, GgufProblem::Io(_)));
        let tensor = TensorData { name: "t", dtype: TensorType::F32, shape: vec![1], bytes: &[0; 4] };
        let bytes = encode(&[], &[tensor.clone(), tensor]).unwrap();
        let error = GgufFile::from_bytes(bytes, "made").unwrap_err();
        assert_eq!(error.to_string(), "`made`: tensor `t` appears twice");
        let entries = [("split.count".to_owned(), Value::U16(2))];
        let error = GgufFile::from_bytes(encode(&entries, &[]).unwrap(), "made").unwrap_err();
        assert!(matches!(*error.problem, GgufProblem::SplitBuiltin { count: 2 }));
    }
}
