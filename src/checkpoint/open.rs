//! From a reference to an open checkpoint.

use std::path::{Path, PathBuf};

use crate::checkpoint::config::HfConfig;
use crate::checkpoint::error::CheckpointError;
use crate::checkpoint::gguf::{GgufFile, PartName};
use crate::checkpoint::hub::{self, HubOptions, Pulled};
use crate::checkpoint::reference::ModelRef;
use crate::checkpoint::safetensors::SafetensorsFolder;
use crate::checkpoint::sidecar;
use crate::checkpoint::tensor::TensorView;

/// Describes the model in a folder.
const CONFIG_FILE: &str = "config.json";
/// Describes how to generate, beside it.
const GENERATION_CONFIG_FILE: &str = "generation_config.json";

/// What opening needs besides the reference.
#[derive(Clone, Debug, Default)]
pub struct OpenOptions {
    /// How to reach the Hub
    pub hub: HubOptions,
    /// A config file to use in place of the checkpoint's own
    pub config: Option<PathBuf>,
    /// Name and bytes of the built-in GGUF
    pub builtin: Option<(&'static str, &'static [u8])>,
}

/// A checkpoint whose files are checked and mapped into memory.
#[derive(Debug)]
pub struct Checkpoint {
    name: String,
    files: Files,
    config: Option<HfConfig>,
}

#[derive(Debug)]
enum Files {
    Gguf(GgufFile),
    Safetensors(SafetensorsFolder),
}

/// The format of an open checkpoint.
#[derive(Clone, Copy, Debug)]
pub enum Content<'a> {
    /// Metadata and weights in one file (or its parts)
    Gguf(&'a GgufFile),
    /// Weights; what describes them is in `Checkpoint::config`
    Safetensors(&'a SafetensorsFolder),
}

impl Checkpoint {
    /// Open what the reference names, fetching it first if it is on the Hub.
    ///
    /// # Errors
    /// Everything in `CheckpointError`.
    pub fn open(reference: &ModelRef, options: &OpenOptions) -> Result<Self, CheckpointError> {
        let files = match reference {
            ModelRef::Builtin => {
                let (name, bytes) = options.builtin.ok_or(CheckpointError::NoBuiltin)?;
                Files::Gguf(GgufFile::from_static(bytes, name)?)
            }
            ModelRef::Gguf(path) => Files::Gguf(GgufFile::open(path)?),
            ModelRef::Folder(path) => Self::open_folder(path, options.config.is_some())?,
            ModelRef::Hub { repo, revision, quant } => {
                match hub::pull(repo, revision.as_deref(), quant.as_deref(), &options.hub)? {
                    Pulled::Gguf(path) => Files::Gguf(GgufFile::open(&path)?),
                    Pulled::Folder(path) => Files::Safetensors(SafetensorsFolder::open(&path)?),
                }
            }
        };
        let config = match (&options.config, &files) {
            (Some(path), _) => Some(HfConfig::open(path)?),
            (None, Files::Safetensors(folder)) => Some(HfConfig::open(&folder.path().join(CONFIG_FILE))?),
            (None, Files::Gguf(_)) => None,
        };
        let name = match (reference, &files) {
            (ModelRef::Builtin, Files::Gguf(file)) => file.name().to_owned(),
            _ => reference.to_string(),
        };
        Ok(Self { name, files, config })
    }

    /// A checked GGUF file as a checkpoint, under the file's name.
    pub fn from_gguf(file: GgufFile) -> Self {
        Self { name: file.name().to_owned(), files: Files::Gguf(file), config: None }
    }

    /// Checked safetensors and the config that describes them, under the folder's name.
    pub fn from_safetensors(folder: SafetensorsFolder, config: HfConfig) -> Self {
        let name = folder.path().display().to_string();
        Self { name, files: Files::Safetensors(folder), config: Some(config) }
    }

    /// A folder without a config of its own, but with one GGUF checkpoint, stands for that checkpoint.
    fn open_folder(path: &Path, has_config: bool) -> Result<Files, CheckpointError> {
        if path.join(CONFIG_FILE).exists() {
            return Ok(Files::Safetensors(SafetensorsFolder::open(path)?));
        }
        let mut ggufs = gguf_files(path)?;
        match ggufs.len() {
            0 if has_config => Ok(Files::Safetensors(SafetensorsFolder::open(path)?)),
            0 => {
                HfConfig::open(&path.join(CONFIG_FILE))?;
                Ok(Files::Safetensors(SafetensorsFolder::open(path)?))
            }
            1 => Ok(Files::Gguf(GgufFile::open(&path.join(ggufs.remove(0)))?)),
            _ => Err(CheckpointError::SeveralGguf { path: path.to_owned(), found: ggufs }),
        }
    }

    /// The reference as given, or the name of the built-in checkpoint.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Weight files on disk; empty for the built-in checkpoint.
    pub fn paths(&self) -> Vec<&Path> {
        match &self.files {
            Files::Gguf(file) => file.paths().collect(),
            Files::Safetensors(folder) => folder.paths().collect(),
        }
    }

    /// The format.
    pub fn content(&self) -> Content<'_> {
        match &self.files {
            Files::Gguf(file) => Content::Gguf(file),
            Files::Safetensors(folder) => Content::Safetensors(folder),
        }
    }

    /// The config in force: the one given, else the folder's own. A GGUF checkpoint has one only when it was given.
    pub fn config(&self) -> Option<&HfConfig> {
        self.config.as_ref()
    }

    /// `generation_config.json` beside the weights of a folder, if it exists.
    ///
    /// # Errors
    /// `Config` when it is no JSON object.
    pub fn generation_config(&self) -> Result<Option<HfConfig>, CheckpointError> {
        let Some(folder) = self.folder() else {
            return Ok(None);
        };
        Ok(HfConfig::open_optional(&folder.join(GENERATION_CONFIG_FILE))?)
    }

    /// The folder of safetensors; `None` for GGUF, which has everything in itself.
    pub fn folder(&self) -> Option<&Path> {
        match &self.files {
            Files::Gguf(_) => None,
            Files::Safetensors(folder) => Some(folder.path()),
        }
    }

    /// Content of a file beside the weights of a folder, such as `tokenizer.json`; `None` if there is none.
    ///
    /// # Errors
    /// `Sidecar` when it exists but cannot be read or is too large.
    pub fn sibling(&self, file_name: &str) -> Result<Option<Vec<u8>>, CheckpointError> {
        let Some(folder) = self.folder() else {
            return Ok(None);
        };
        Ok(sidecar::read(&folder.join(file_name))?)
    }

    /// Content of a text file beside the weights of a folder, such as `chat_template.jinja`; `None` if there is none.
    ///
    /// # Errors
    /// `Sidecar` when it exists but cannot be read, is too large or is not UTF-8.
    pub fn sibling_text(&self, file_name: &str) -> Result<Option<String>, CheckpointError> {
        let Some(folder) = self.folder() else {
            return Ok(None);
        };
        Ok(sidecar::read_text(&folder.join(file_name))?)
    }

    /// A tensor by name.
    pub fn tensor(&self, name: &str) -> Option<TensorView<'_>> {
        match &self.files {
            Files::Gguf(file) => file.tensor(name),
            Files::Safetensors(folder) => folder.tensor(name),
        }
    }

    /// Tensor names, in the order of a GGUF file or sorted.
    pub fn tensor_names(&self) -> Vec<&str> {
        match &self.files {
            Files::Gguf(file) => file.tensors().map(|tensor| tensor.name.as_str()).collect(),
            Files::Safetensors(folder) => folder.tensor_names().collect(),
        }
    }

    /// Gives the memory of the maps back to the system until it is read again: for engines that keep weights of their own.
    pub fn release_pages(&self) {
        match &self.files {
            Files::Gguf(file) => file.release_pages(),
            Files::Safetensors(folder) => folder.release_pages(),
        }
    }

    /// Bytes of all weight files together.
    pub fn size_bytes(&self) -> usize {
        match &self.files {
            Files::Gguf(file) => file.size_bytes(),
            Files::Safetensors(folder) => folder.size_bytes(),
        }
    }
}

/// GGUF checkpoints in a folder, sorted; of a split one, the first part that is there.
fn gguf_files(path: &Path) -> Result<Vec<String>, CheckpointError> {
    let fail = |source| CheckpointError::Folder { path: path.to_owned(), source };
    let mut names = Vec::new();
    for entry in std::fs::read_dir(path).map_err(fail)? {
        let name = entry.map_err(fail)?.file_name();
        let Ok(name) = name.into_string() else {
            continue;
        };
        if name.to_ascii_lowercase().ends_with(".gguf") {
            names.push(name);
        }
    }
    names.sort();
    let prefix = |name: &str| PartName::parse(name).map(|part| part.prefix.to_owned());
    names.dedup_by(|later, earlier| prefix(later).is_some_and(|this| Some(this) == prefix(earlier)));
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::config::ConfigError;
    use crate::checkpoint::gguf::{TensorData, Value, encode};
    use crate::checkpoint::tensor::TensorType;

    fn gguf() -> Vec<u8> {
        let entries = [("general.architecture".to_owned(), Value::String("llama".into()))];
        let tensor = TensorData { name: "t", dtype: TensorType::F32, shape: vec![1], bytes: &[0; 4] };
        encode(&entries, &[tensor]).unwrap()
    }

    fn weights() -> Vec<u8> {
        let view = safetensors::tensor::TensorView::new(safetensors::Dtype::F32, vec![1], &[0; 4]);
        safetensors::serialize([("t", view.unwrap())], None).unwrap()
    }

    fn open(files: &[(&str, &[u8])], options: &OpenOptions) -> Result<Checkpoint, CheckpointError> {
        let folder = tempfile::tempdir().unwrap();
        for (name, bytes) in files {
            std::fs::write(folder.path().join(name), bytes).unwrap();
        }
        Checkpoint::open(&ModelRef::Folder(folder.path().to_owned()), options)
    }

    #[test]
    fn the_builtin_checkpoint_comes_from_the_options() {
        let bytes: &'static [u8] = Box::leak(gguf().into_boxed_slice());
        let options = OpenOptions { builtin: Some(("demo", bytes)), ..OpenOptions::default() };
        let checkpoint = Checkpoint::open(&ModelRef::Builtin, &options).unwrap();
        assert_eq!((checkpoint.name(), checkpoint.size_bytes()), ("demo", bytes.len()));
        assert!(checkpoint.paths().is_empty() && checkpoint.config().is_none());
        assert!(checkpoint.folder().is_none() && checkpoint.sibling("tokenizer.json").unwrap().is_none());
        assert!(checkpoint.generation_config().unwrap().is_none());
        let error = Checkpoint::open(&ModelRef::Builtin, &OpenOptions::default()).unwrap_err();
        assert!(matches!(error, CheckpointError::NoBuiltin) && error.hint().is_some());
    }

    #[test]
    fn a_folder_has_config_weights_and_siblings() {
        let folder = tempfile::tempdir().unwrap();
        let put = |name: &str, bytes: &[u8]| std::fs::write(folder.path().join(name), bytes).unwrap();
        put("config.json", br#"{"hidden_size": 4}"#);
        put("model.safetensors", &weights());
        put("chat_template.jinja", b"{{ x }}");
        put("stray.gguf", b"");
        let reference = ModelRef::Folder(folder.path().to_owned());
        let checkpoint = Checkpoint::open(&reference, &OpenOptions::default()).unwrap();
        assert!(matches!(checkpoint.content(), Content::Safetensors(_)));
        assert_eq!(checkpoint.config().unwrap().usize("hidden_size").unwrap(), Some(4));
        assert_eq!(checkpoint.sibling_text("chat_template.jinja").unwrap().as_deref(), Some("{{ x }}"));
        assert_eq!(checkpoint.tensor_names(), ["t"]);
        assert_eq!(checkpoint.tensor("t").unwrap().n_values(), 1);
        assert_eq!(checkpoint.folder(), Some(folder.path()));
        assert_eq!(checkpoint.paths().len(), 1);

        put("other.json", br#"{"hidden_size": 8}"#);
        let config = Some(folder.path().join("other.json"));
        let options = OpenOptions { config, ..OpenOptions::default() };
        let checkpoint = Checkpoint::open(&reference, &options).unwrap();
        assert_eq!(checkpoint.config().unwrap().usize("hidden_size").unwrap(), Some(8));
        std::fs::write(folder.path().join("generation_config.json"), "[]").unwrap();
        assert!(matches!(checkpoint.generation_config(), Err(CheckpointError::Config(_))));
        std::fs::create_dir(folder.path().join("tokenizer.json")).unwrap();
        assert!(matches!(checkpoint.sibling("tokenizer.json"), Err(CheckpointError::Sidecar(_))));
    }

    #[test]
    fn a_folder_of_one_gguf_stands_for_it() {
        let options = OpenOptions::default();
        let file = gguf();
        let checkpoint = open(&[("m.gguf", &file)], &options).unwrap();
        assert!(matches!(checkpoint.content(), Content::Gguf(_)));
        let error = open(&[("m.gguf", &file), ("n.gguf", &file)], &options).unwrap_err();
        assert!(matches!(&error, CheckpointError::SeveralGguf { found, .. } if found.len() == 2));
        assert!(error.hint().is_some());
        let parts = [("m-00001-of-00002.gguf", &file[..]), ("m-00002-of-00002.gguf", &file[..])];
        assert!(open(&parts, &options).is_ok());
    }

    #[test]
    fn what_is_missing_is_named() {
        let options = OpenOptions::default();
        let error = open(&[("model.safetensors", &weights())], &options).unwrap_err();
        assert!(matches!(&error, CheckpointError::Config(ConfigError::Missing { .. })));
        assert!(error.hint().unwrap().contains("--config"));
        let error = open(&[("config.json", b"{}")], &options).unwrap_err();
        assert!(matches!(error, CheckpointError::Safetensors(_)));
        let gone = ModelRef::Folder("/no/such".into());
        let error = Checkpoint::open(&gone, &options).unwrap_err();
        assert!(matches!(error, CheckpointError::Folder { .. }) && error.hint().is_none());
        let gone = ModelRef::Gguf("/no/such.gguf".into());
        assert!(matches!(Checkpoint::open(&gone, &options), Err(CheckpointError::Gguf(_))));
    }
}
