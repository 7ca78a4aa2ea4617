//! All weights of a folder.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::error::{SafetensorsError, SafetensorsProblem as Problem};
use super::index::Index;
use super::shard::Shard;
use super::{INDEX_FILE, SINGLE_FILE};
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
}

impl SafetensorsFolder {
    /// Map and check the weights of a folder.
    ///
    /// # Errors
    /// Everything in `SafetensorsProblem`.
    pub fn open(path: &Path) -> Result<Self, SafetensorsError> {
        let index_path = path.join(INDEX_FILE);
        let index_error = |problem| SafetensorsError {
            path: index_path.clone(),
            problem: Box::new(problem),
        };
        if let Some(bytes) =
            sidecar::read(&index_path).map_err(|source| index_error(Problem::IndexRead(source)))?
        {
            let index = Index::parse(&bytes).map_err(index_error)?;
            return Self::open_indexed(path, &index, &index_error);
        }
        let single = path.join(SINGLE_FILE);
        if !single.exists() {
            let problem = Problem::NoWeights {
                found: listing(path),
            };
            return Err(SafetensorsError {
                path: path.to_owned(),
                problem: Box::new(problem),
            });
        }
        let shard = Shard::open(&single)?;
        let tensors = shard
            .tensors
            .keys()
            .map(|tensor| (tensor.clone(), 0))
            .collect();
        Ok(Self {
            path: path.to_owned(),
            shards: vec![shard],
            tensors,
        })
    }

    fn open_indexed(
        path: &Path,
        index: &Index,
        error: &dyn Fn(Problem) -> SafetensorsError,
    ) -> Result<Self, SafetensorsError> {
        let files: Vec<&str> = index.shards().into_iter().collect();
        if let Some(file) = files.iter().find(|file| !path.join(file).exists()) {
            return Err(error(Problem::ShardMissing {
                file: (*file).to_owned(),
            }));
        }
        let mut shards = Vec::with_capacity(files.len());
        let mut tensors = BTreeMap::new();
        for (position, file) in files.into_iter().enumerate() {
            let shard = Shard::open(&path.join(file))?;
            let listed =
                |tensor: &str| index.files.get(tensor).is_some_and(|listed| listed == file);
            if let Some(tensor) = shard.tensors.keys().find(|tensor| !listed(tensor)) {
                return Err(error(Problem::Unlisted {
                    tensor: tensor.clone(),
                    file: file.to_owned(),
                }));
            }
            tensors.extend(
                shard
                    .tensors
                    .keys()
                    .map(|tensor| (tensor.clone(), position)),
            );
            shards.push(shard);
        }
        match index
            .files
            .iter()
            .find(|(tensor, _)| !tensors.contains_key(*tensor))
        {
            Some((tensor, file)) => Err(error(Problem::TensorMissing {
                tensor: tensor.clone(),
                file: file.clone(),
            })),
            None => Ok(Self {
                path: path.to_owned(),
                shards,
                tensors,
            }),
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
        let bytes = shard.bytes.get(record.range.clone())?;
        Some(TensorView {
            name,
            dtype: record.dtype,
            shape: record.shape.clone(),
            bytes,
        })
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
    let names = entries
        .filter_map(Result::ok)
        .map(|entry| entry.file_name());
    let mut names: Vec<String> = names.map(|name| format!("`{}`", name.display())).collect();
    names.sort();
    match names.len() {
        0 => "nothing".to_owned(),
        1..=LISTED_FILES => names.join(", "),
        more => format!(
            "{} and {} more",
            names[..LISTED_FILES].join(", "),
            more - LISTED_FILES
        ),
    }
}
