//! The tokenizer and the chat template of a checkpoint, from wherever its format keeps them.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::chat_template::{ChatTemplate, ChatTemplateError};
use super::config::HfConfig;
use super::gguf::{GgufError, Metadata};
use super::tokenizer::{Sidecar, Tokenizer, TokenizerError};
use super::{Checkpoint, CheckpointError, Content, sidecar};

const TOKENIZER_FILE: &str = "tokenizer.json";
const TOKENIZER_CONFIG_FILE: &str = "tokenizer_config.json";
const TEMPLATE_FILE: &str = "chat_template.jinja";
/// Where multimodal releases keep it.
const TEMPLATE_JSON_FILE: &str = "chat_template.json";

/// Why a checkpoint's tokenizer or template cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LanguageError {
    #[error("`{name}` has no `{TOKENIZER_FILE}`")]
    NoTokenizer { name: String },
    #[error("tokenizer file `{}` does not exist", .0.display())]
    NotFound(PathBuf),
    #[error("cannot use the tokenizer of `{name}`")]
    Tokenizer { name: String, source: TokenizerError },
    #[error("cannot use the chat template of `{name}`")]
    Template { name: String, source: ChatTemplateError },
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
}

impl LanguageError {
    /// What the user can do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::NoTokenizer { .. } => Some("give one with `--tokenizer FILE`".to_owned()),
            Self::Checkpoint(error) => error.hint(),
            _ => None,
        }
    }
}

impl Tokenizer {
    /// A tokenizer.json by itself, without the files that stand beside it in a checkpoint.
    ///
    /// # Errors
    /// A file that does not exist or that cannot be used, with the reason.
    pub fn open(path: &Path) -> Result<Self, LanguageError> {
        let bytes = sidecar::read(path).map_err(CheckpointError::from)?;
        let bytes = bytes.ok_or_else(|| LanguageError::NotFound(path.to_owned()))?;
        let name = path.display().to_string();
        Self::from_tokenizer_json(&bytes, &Sidecar::default())
            .map_err(|source| LanguageError::Tokenizer { name, source })
    }
}

impl Checkpoint {
    /// The tokenizer in `file`, or the checkpoint's own.
    ///
    /// # Errors
    /// None there, or one that cannot be used, with the reason.
    pub fn tokenizer(&self, file: Option<&Path>) -> Result<Tokenizer, LanguageError> {
        let failed = |source| LanguageError::Tokenizer { name: self.name().to_owned(), source };
        let bytes = match (file, self.content()) {
            (Some(path), _) => {
                let bytes = sidecar::read(path).map_err(CheckpointError::from)?;
                bytes.ok_or_else(|| LanguageError::NotFound(path.to_owned()))?
            }
            (None, Content::Gguf(file)) => {
                return Tokenizer::from_gguf(file.metadata()).map_err(failed);
            }
            (None, Content::Safetensors(_)) => {
                let missing = || LanguageError::NoTokenizer { name: self.name().to_owned() };
                self.sibling(TOKENIZER_FILE)?.ok_or_else(missing)?
            }
        };
        let (tokenizer_config, config) = match self.content() {
            Content::Gguf(file) => {
                let said = special_tokens(file.metadata()).map_err(CheckpointError::from)?;
                (Some(said.0), Some(said.1))
            }
            Content::Safetensors(_) => {
                (self.tokenizer_config()?.map(as_value), self.config().cloned().map(as_value))
            }
        };
        let generation_config = self.generation_config()?.map(as_value);
        let sidecar = Sidecar {
            tokenizer_config: tokenizer_config.as_ref(),
            config: config.as_ref(),
            generation_config: generation_config.as_ref(),
        };
        Tokenizer::from_tokenizer_json(&bytes, &sidecar).map_err(failed)
    }

    /// The chat template, if the checkpoint has one.
    ///
    /// # Errors
    /// One that cannot be parsed, with the line.
    pub fn chat_template(&self) -> Result<Option<ChatTemplate>, LanguageError> {
        let template = match self.content() {
            Content::Gguf(file) => ChatTemplate::from_gguf(file.metadata()),
            Content::Safetensors(_) => {
                let jinja = self.sibling_text(TEMPLATE_FILE)?;
                let config = self.tokenizer_config()?.map(as_value);
                let processor = self.optional_config(TEMPLATE_JSON_FILE)?.map(as_value);
                ChatTemplate::from_files(jinja.as_deref(), &[config.as_ref(), processor.as_ref()])
            }
        };
        let name = self.name().to_owned();
        template.map_err(|source| LanguageError::Template { name, source })
    }

    fn tokenizer_config(&self) -> Result<Option<HfConfig>, CheckpointError> {
        self.optional_config(TOKENIZER_CONFIG_FILE)
    }

    /// A JSON object beside the weights of a folder.
    fn optional_config(&self, file_name: &str) -> Result<Option<HfConfig>, CheckpointError> {
        let Some(folder) = self.folder() else {
            return Ok(None);
        };
        Ok(HfConfig::open_optional(&folder.join(file_name))?)
    }
}

/// What a GGUF file says of the tokens that begin and end a text, in the words of tokenizer_config.json and config.json.
fn special_tokens(meta: &Metadata) -> Result<(Value, Value), GgufError> {
    let bos = match (meta.usize("tokenizer.ggml.bos_token_id")?, meta.strings("tokenizer.ggml.tokens")?) {
        (Some(id), Some(tokens)) => tokens.get(id).cloned(),
        _ => None,
    };
    let mut tokenizer_config = json!({ "bos_token": bos });
    if let Some(add_bos) = meta.bool("tokenizer.ggml.add_bos_token")? {
        tokenizer_config["add_bos_token"] = add_bos.into();
    }
    let mut eos = Vec::new();
    for key in ["eos_token_id", "eot_token_id", "eom_token_id"] {
        eos.extend(meta.u32(&format!("tokenizer.ggml.{key}"))?);
    }
    Ok((tokenizer_config, json!({ "eos_token_id": eos })))
}

fn as_value(config: HfConfig) -> Value {
    Value::Object(config.map().clone())
}
