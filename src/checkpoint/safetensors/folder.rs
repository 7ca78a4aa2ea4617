//! All weights of a folder.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::error::{SafetensorsError, SafetensorsProblem as Problem};
use super::float8::{self, Unpacked};
use super::index::Index;
use super::shard::Shard;
use super::{INDEX_FILE, SINGLE_FILE};
use crate::checkpoint::bytes::Bytes;
use crate::checkpoint::sidecar;
use crate::checkpoint::tensor::TensorView;

/// Most files of a folder that are named in an error.
const LISTED_FILES: usize = 8;

/// The weights of a folder, every file of them checked and mapped into memory.
///
/// With an index, the index decides: its files are read and no other, and every tensor must be where it says.
#[derive(Debug)]
pub struct SafetensorsFolder {
    path: PathBuf,
    shards: Vec<Shard>,
    /// Tensor name to position in `shards`
    tensors: BTreeMap<String, usize>,
    /// Tensors that are stored as 8-bit floats
    unpacked: BTreeMap<String, Unpacked>,
}

impl SafetensorsFolder {
    /// Map and check the weights of a folder.
    ///
    /// # Errors
    /// Everything in `SafetensorsProblem`.
    pub fn open(path: &Path) -> Result<Self, SafetensorsError> {
        let index_path = path.join(INDEX_FILE);
        let index_error = |problem| SafetensorsError { path: index_path.clone(), problem: Box::new(problem) };
        if let Some(bytes) =
            sidecar::read(&index_path).map_err(|source| index_error(Problem::IndexRead(source)))?
        {
            let index = Index::parse(&bytes).map_err(index_error)?;
            if let Some(file) = index.shards().into_iter().find(|file| !path.join(file).exists()) {
                return Err(index_error(Problem::ShardMissing { file: file.to_owned() }));
            }
            return Self::assemble(path, &index, &index_error, |file| Shard::open(&path.join(file)));
        }
        let single = path.join(SINGLE_FILE);
        if !single.exists() {
            let problem = Problem::NoWeights { found: listing(path) };
            return Err(SafetensorsError { path: path.to_owned(), problem: Box::new(problem) });
        }
        Self::single(path, Shard::open(&single)?)
    }

    /// With 8-bit floats unpacked, and without their scales.
    fn unpack(mut self) -> Result<Self, SafetensorsError> {
        let stored = self.tensors.iter().filter_map(|(name, position)| {
            let shard = &self.shards[*position];
            let record = shard.tensors.get(name).filter(|record| record.dtype.is_none())?;
            let bytes = shard.bytes.get(record.range.clone())?;
            Some(float8::Stored { name, shape: &record.shape, bytes })
        });
        let found = float8::unpack(stored.collect(), &|name| self.tensor(name));
        let (unpacked, scales) = found
            .map_err(|problem| SafetensorsError { path: self.path.clone(), problem: Box::new(problem) })?;
        scales.iter().for_each(|name| {
            self.tensors.remove(name);
        });
        self.unpacked = unpacked;
        Ok(self)
    }

    /// Check weights in memory. `path` stands for the folder in messages, `index` is its index if it has one.
    ///
    /// # Errors
    /// Everything in `SafetensorsProblem` that does not come from a file system.
    pub fn from_memory(
        path: &Path,
        index: Option<&[u8]>,
        mut files: BTreeMap<String, Vec<u8>>,
    ) -> Result<Self, SafetensorsError> {
        let index_error =
            |problem| SafetensorsError { path: path.join(INDEX_FILE), problem: Box::new(problem) };
        let mut take = |file: &str| {
            let bytes = files.remove(file).ok_or_else(|| {
                let problem = Problem::ShardMissing { file: file.to_owned() };
                SafetensorsError { path: path.to_owned(), problem: Box::new(problem) }
            })?;
            Shard::check(&path.join(file), Bytes::Owned(bytes))
        };
        match index {
            Some(index) => {
                let index = Index::parse(index).map_err(index_error)?;
                Self::assemble(path, &index, &index_error, take)
            }
            None => Self::single(path, take(SINGLE_FILE)?),
        }
    }

    /// One file that has all tensors.
    fn single(path: &Path, shard: Shard) -> Result<Self, SafetensorsError> {
        let tensors = shard.tensors.keys().map(|tensor| (tensor.clone(), 0)).collect();
        Self { path: path.to_owned(), shards: vec![shard], tensors, unpacked: BTreeMap::new() }.unpack()
    }

    /// All files of an index, which must agree with it. `open`: a file by name.
    fn assemble(
        path: &Path,
        index: &Index,
        error: &dyn Fn(Problem) -> SafetensorsError,
        mut open: impl FnMut(&str) -> Result<Shard, SafetensorsError>,
    ) -> Result<Self, SafetensorsError> {
        let files = index.shards();
        let mut shards = Vec::with_capacity(files.len());
        let mut tensors = BTreeMap::new();
        for (position, file) in files.into_iter().enumerate() {
            let shard = open(file)?;
            let listed = |tensor: &str| index.files.get(tensor).is_some_and(|listed| listed == file);
            if let Some(tensor) = shard.tensors.keys().find(|tensor| !listed(tensor)) {
                return Err(error(Problem::Unlisted { tensor: tensor.clone(), file: file.to_owned() }));
            }
            tensors.extend(shard.tensors.keys().map(|tensor| (tensor.clone(), position)));
            shards.push(shard);
        }
        match index.files.iter().find(|(tensor, _)| !tensors.contains_key(*tensor)) {
            Some((tensor, file)) => {
                Err(error(Problem::TensorMissing { tensor: tensor.clone(), file: file.clone() }))
            }
            None => Self { path: path.to_owned(), shards, tensors, unpacked: BTreeMap::new() }.unpack(),
        }
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The weight files, in the order of their names.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.shards.iter().map(|shard| shard.path.as_path())
    }

    /// Tensor names, sorted.
    pub fn tensor_names(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    /// A tensor by name.
    pub fn tensor(&self, name: &str) -> Option<TensorView<'_>> {
        let shard = self.shards.get(*self.tensors.get(name)?)?;
        let (name, record) = shard.tensors.get_key_value(name)?;
        let Some(dtype) = record.dtype else {
            return self.unpacked.get(name).map(|unpacked| unpacked.view(name));
        };
        let bytes = shard.bytes.get(record.range.clone())?;
        Some(TensorView { name, dtype, shape: record.shape.clone(), bytes })
    }

    /// Gives the memory of the maps back to the system until it is read again.
    pub fn release_pages(&self) {
        self.shards.iter().for_each(|shard| shard.bytes.release_pages());
    }

    /// Bytes of all weight files together.
    pub fn size_bytes(&self) -> usize {
        self.shards.iter().map(|shard| shard.bytes.len()).sum()
    }
}

/// The first files of a folder, for a message.
fn listing(path: &Path) -> String {
    let Ok(entries) = std::fs::read_dir(path) else {
        return "no folder that can be read".to_owned();
    };
    let names = entries.filter_map(Result::ok).map(|entry| entry.file_name());
    let mut names: Vec<String> = names.map(|name| format!("`{}`", name.display())).collect();
    names.sort();
    match names.len() {
        0 => "nothing".to_owned(),
        1..=LISTED_FILES => names.join(", "),
        more => format!("{} and {} more", names[..LISTED_FILES].join(", "), more - LISTED_FILES),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use safetensors::Dtype;
    use safetensors::tensor::TensorView as Data;

    fn weights(tensors: &[(&str, Dtype, Vec<u8>)]) -> Vec<u8> {
        let views = tensors.iter().map(|(name, dtype, bytes)| {
            let values = bytes.len() * 8 / dtype.bitsize();
            (*name, Data::new(*dtype, vec![1, values], bytes).unwrap())
        });
        safetensors::serialize(views, None).unwrap()
    }

    fn one(name: &str) -> Vec<u8> {
        weights(&[(name, Dtype::F32, vec![0; 8])])
    }

    fn folder(files: &[(&str, &[u8])]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, bytes) in files {
            std::fs::write(folder.path().join(name), bytes).unwrap();
        }
        folder
    }

    fn error(files: &[(&str, &[u8])]) -> SafetensorsError {
        SafetensorsFolder::open(folder(files).path()).unwrap_err()
    }

    #[test]
    fn the_three_float_types_are_read() {
        let bytes = weights(&[
            ("a", Dtype::F32, 1f32.to_le_bytes().to_vec()),
            ("b", Dtype::F16, vec![0x00, 0x3c]),
            ("c", Dtype::BF16, vec![0x80, 0x3f]),
        ]);
        let folder = folder(&[(SINGLE_FILE, &bytes)]);
        let read = SafetensorsFolder::open(folder.path()).unwrap();
        assert_eq!(read.tensor_names().collect::<Vec<_>>(), ["a", "b", "c"]);
        for name in ["a", "b", "c"] {
            let view = read.tensor(name).unwrap();
            assert_eq!((view.to_f32(), &view.shape[..]), (Some(vec![1.0]), &[1, 1][..]));
        }
        assert_eq!(read.tensor("d"), None);
        assert_eq!((read.size_bytes(), read.path()), (bytes.len(), folder.path()));
    }

    #[test]
    fn other_types_are_refused_by_name() {
        let bytes = weights(&[("ids", Dtype::I64, vec![0; 8])]);
        let text = error(&[(SINGLE_FILE, &bytes)]).to_string();
        assert!(text.contains("tensor `ids` has the type `I64`"), "{text}");
    }

    #[test]
    fn d105_the_index_decides() {
        let index = br#"{"weight_map": {"a": "1.safetensors", "b": "2.safetensors"}}"#;
        let (a, b, stray) = (one("a"), one("b"), one("stray"));
        let files: [(&str, &[u8]); 4] =
            [(INDEX_FILE, index), ("1.safetensors", &a), ("2.safetensors", &b), (SINGLE_FILE, &stray)];
        let kept = folder(&files);
        let read = SafetensorsFolder::open(kept.path()).unwrap();
        assert_eq!(read.tensor_names().collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(read.paths().count(), 2);

        let missing = error(&files[..2]);
        assert!(missing.to_string().ends_with("names the file `2.safetensors`, which does not exist"));
        assert!(missing.hint().is_some());
        let absent = error(&[files[0], files[1], ("2.safetensors", &weights(&[]))]);
        assert!(matches!(&*absent.problem, Problem::TensorMissing { tensor, .. } if tensor == "b"));
        let doubled = error(&[files[0], files[1], ("2.safetensors", &a)]);
        assert!(matches!(&*doubled.problem, Problem::Unlisted { tensor, .. } if tensor == "a"));
        let unlisted = error(&[files[0], files[1], ("2.safetensors", &stray)]);
        assert!(matches!(&*unlisted.problem, Problem::Unlisted { tensor, .. } if tensor == "stray"));
        let outside = error(&[(INDEX_FILE, br#"{"weight_map": {"a": "../1"}}"#)]);
        assert!(matches!(*outside.problem, Problem::IndexPath { .. }));
        assert!(matches!(*error(&[(INDEX_FILE, b"{}")]).problem, Problem::Index { .. }));
    }

    #[test]
    fn d105_a_folder_without_weights_says_what_it_has() {
        let text = error(&[("pytorch_model.bin", b"")]).to_string();
        assert!(text.ends_with("found `pytorch_model.bin`"), "{text}");
        assert!(error(&[]).to_string().ends_with("found nothing"));
        let many: Vec<String> = (0..10).map(|n| format!("f{n}")).collect();
        let many: Vec<(&str, &[u8])> = many.iter().map(|name| (name.as_str(), &b""[..])).collect();
        assert!(error(&many).to_string().ends_with("`f7` and 2 more"));
        let absent = SafetensorsFolder::open(Path::new("/no/such")).unwrap_err();
        assert!(absent.to_string().ends_with("found no folder that can be read"));
    }

    #[test]
    fn d106_damaged_files_tell_expected_and_actual_bytes() {
        let bytes = one("a");
        let cut = error(&[(SINGLE_FILE, &bytes[..bytes.len() - 3])]);
        let numbers = format!("expected at least {} bytes, found {}", bytes.len(), bytes.len() - 3);
        assert!(cut.to_string().contains(SINGLE_FILE) && cut.to_string().ends_with(&numbers), "{cut}");
        assert!(cut.hint().unwrap().contains("fetch it again"));
        let longer = error(&[(SINGLE_FILE, &[&bytes[..], b"x"].concat())]);
        assert!(matches!(*longer.problem, Problem::Trailing { .. }));
        let huge = [&(1u64 << 60).to_le_bytes()[..], b"{}"].concat();
        assert!(matches!(*error(&[(SINGLE_FILE, &huge)]).problem, Problem::HeaderLength { .. }));
        let beyond = [&1000u64.to_le_bytes()[..], b"{}"].concat();
        let found = error(&[(SINGLE_FILE, &beyond)]);
        assert!(matches!(*found.problem, Problem::Truncated { expected: 1008, found: 10 }));
        let garbage = [&2u64.to_le_bytes()[..], b"xx"].concat();
        assert!(matches!(*error(&[(SINGLE_FILE, &garbage)]).problem, Problem::Header(_)));
        assert!(matches!(*error(&[(SINGLE_FILE, b"")]).problem, Problem::Truncated { found: 0, .. }));
    }

    #[test]
    fn unreadable_files_are_errors() {
        let folder = folder(&[]);
        std::fs::create_dir(folder.path().join(SINGLE_FILE)).unwrap();
        let found = SafetensorsFolder::open(folder.path()).unwrap_err();
        assert!(matches!(*found.problem, Problem::Io(_)));
        std::fs::create_dir(folder.path().join(INDEX_FILE)).unwrap();
        let found = SafetensorsFolder::open(folder.path()).unwrap_err();
        assert!(matches!(*found.problem, Problem::IndexRead(_)) && found.hint().is_none());
    }
}
