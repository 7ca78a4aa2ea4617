//! Token losses in a file, so that a later run can be compared with them token by token.
//!
//! The file is safetensors, which Python, Rust and others read. Every tensor is a list with one entry per scored token, in
//! the order of documents, windows and tokens: `nll` (F32, nats), `token_id` (U32), `token` (U32, index in the document),
//! `position` (U32, tokens of context before it in its window), `document` and `window` (U32, from 0). The metadata entry
//! `ropex` is a JSON object, the [`Header`].

use std::collections::HashMap;

use safetensors::tensor::{Dtype, SafeTensorError, SafeTensors, TensorView, serialize};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::PerplexityRequest;
use super::losses::{Losses, TokenLoss};
use crate::eval::document::Document;
use crate::eval::windows::Window;
use crate::named::Named;

/// Versioned name of the layout.
pub const FORMAT: &str = "ropex.nll/1";
const METADATA_KEY: &str = "ropex";

/// Why saved losses cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SavedError {
    #[error("this is no safetensors file: {0}")]
    File(#[from] SafeTensorError),
    #[error("the metadata entry `ropex` is missing or is not what `--save-nll` writes: {0}")]
    Header(String),
    #[error("the format is `{0}`, `{FORMAT}` is needed")]
    Format(String),
    #[error("the tensor `{name}` must be a list of {dtype} values, found {found}")]
    Tensor { name: &'static str, dtype: &'static str, found: String },
    #[error("the tensor `{name}` has {found} entries, `nll` has {expected}")]
    Length { name: &'static str, found: usize, expected: usize },
    #[error("the loss of entry {index} is not a finite number (`{value}`)")]
    NonFinite { index: usize, value: f32 },
    #[error("`{key}` was `{before}`, now it is `{now}`")]
    Setting { key: &'static str, before: String, now: String },
    #[error("`{before}` (text {index}) had other tokens than `{now}`: another text, or read in another way")]
    Text { index: usize, before: String, now: String },
    #[error("it holds {before} scored tokens, this run has {now}{}", if *.interrupted { " (it was interrupted)" } else { "" })]
    Count { before: usize, now: usize, interrupted: bool },
    #[error("its entry {index} is another token or stands in another window")]
    Token { index: usize },
    #[error("a text of more than {} tokens cannot be saved", u32::MAX)]
    TooLong,
}

/// One text of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedDocument {
    pub file: String,
    pub tokens: usize,
    /// See [`Document::tokens_sha256`].
    pub tokens_sha256: String,
}

/// What a file of losses says about the run that made it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Header {
    pub format: String,
    pub model: String,
    /// Hash of the vocabulary.
    pub tokenizer: String,
    pub rule: String,
    pub context: usize,
    pub stride: usize,
    pub bos: String,
    pub bos_token: Option<u32>,
    /// Whether the run was stopped before its end.
    pub interrupted: bool,
    /// The rotary embedding in force, as in JSON results.
    pub rope: Value,
    pub documents: Vec<SavedDocument>,
}

impl Header {
    pub fn new(
        model: &str,
        tokenizer: &str,
        rope: &Value,
        request: &PerplexityRequest,
        documents: &[Document],
    ) -> Self {
        let document = |document: &Document| SavedDocument {
            file: document.file.clone(),
            tokens: document.tokens.len(),
            tokens_sha256: document.tokens_sha256(),
        };
        Self {
            format: FORMAT.to_string(),
            model: model.to_string(),
            tokenizer: tokenizer.to_string(),
            rule: request.rule.name().to_string(),
            context: request.context,
            stride: request.effective_stride(),
            bos: request.bos.name().to_string(),
            bos_token: request.bos_token,
            interrupted: false,
            rope: rope.clone(),
            documents: documents.iter().map(document).collect(),
        }
    }

    /// Refuses a run whose losses do not belong to the same tokens with the same context.
    fn check(&self, now: &Header) -> Result<(), SavedError> {
        let token = |token: Option<u32>| token.map_or("none".to_string(), |token| token.to_string());
        let settings = [
            ("tokenizer", self.tokenizer.clone(), now.tokenizer.clone()),
            ("rule", self.rule.clone(), now.rule.clone()),
            ("context", self.context.to_string(), now.context.to_string()),
            ("stride", self.stride.to_string(), now.stride.to_string()),
            ("bos", self.bos.clone(), now.bos.clone()),
            ("bos_token", token(self.bos_token), token(now.bos_token)),
            ("number of texts", self.documents.len().to_string(), now.documents.len().to_string()),
        ];
        for (key, before, now) in settings {
            if before != now {
                return Err(SavedError::Setting { key, before, now });
            }
        }
        for (index, (before, now)) in self.documents.iter().zip(&now.documents).enumerate() {
            if before.tokens_sha256 != now.tokens_sha256 {
                return Err(SavedError::Text { index, before: before.file.clone(), now: now.file.clone() });
            }
        }
        Ok(())
    }
}

/// Losses as they were saved.
#[derive(Debug, Clone, PartialEq)]
pub struct Saved {
    pub header: Header,
    /// Negative log-likelihoods in nats.
    pub nll: Vec<f32>,
    pub token_id: Vec<u32>,
    /// Index in the document.
    pub token: Vec<u32>,
    pub position: Vec<u32>,
    pub document: Vec<u32>,
    pub window: Vec<u32>,
}

impl Saved {
    /// The losses of a run, spread out.
    ///
    /// # Errors
    /// [`SavedError::TooLong`].
    pub fn new(header: Header, documents: &[Document], losses: &Losses) -> Result<Self, SavedError> {
        let column = |of: &dyn Fn(&TokenLoss) -> usize| -> Result<Vec<u32>, SavedError> {
            let number = |token: TokenLoss| u32::try_from(of(&token)).map_err(|_| SavedError::TooLong);
            losses.tokens().map(number).collect()
        };
        Ok(Self {
            header,
            nll: losses.nll.clone(),
            token_id: column(&|token| documents[token.document].tokens[token.token] as usize)?,
            token: column(&|token| token.token)?,
            position: column(&|token| token.position)?,
            document: column(&|token| token.document)?,
            window: column(&|token| token.window)?,
        })
    }

    /// The bytes of the file; equal for equal losses.
    ///
    /// # Errors
    /// A header that cannot be written.
    pub fn encode(&self) -> Result<Vec<u8>, SavedError> {
        let floats: Vec<u8> = self.nll.iter().flat_map(|value| value.to_le_bytes()).collect();
        let mut columns = vec![("nll", Dtype::F32, floats)];
        for (name, values) in self.lists() {
            columns.push((name, Dtype::U32, values.iter().flat_map(|value| value.to_le_bytes()).collect()));
        }
        let mut views = Vec::new();
        for (name, dtype, bytes) in &columns {
            views.push((*name, TensorView::new(*dtype, vec![self.nll.len()], bytes)?));
        }
        let header = serde_json::to_string(&self.header).map_err(|e| SavedError::Header(e.to_string()))?;
        let metadata = HashMap::from([(METADATA_KEY.to_string(), header)]);
        Ok(serialize(views, Some(metadata))?)
    }

    fn lists(&self) -> [(&'static str, &Vec<u32>); 5] {
        [
            ("token_id", &self.token_id),
            ("token", &self.token),
            ("position", &self.position),
            ("document", &self.document),
            ("window", &self.window),
        ]
    }

    /// Reads what [`Saved::encode`] wrote. The bytes are not trusted.
    ///
    /// # Errors
    /// Anything that is not such a file.
    pub fn decode(bytes: &[u8]) -> Result<Self, SavedError> {
        let (_, metadata) = SafeTensors::read_metadata(bytes)?;
        let text = metadata.metadata().as_ref().and_then(|map| map.get(METADATA_KEY));
        let text = text.ok_or_else(|| SavedError::Header("there is none".to_string()))?;
        let json: Value = serde_json::from_str(text).map_err(|e| SavedError::Header(e.to_string()))?;
        let format = json["format"].as_str().unwrap_or("none");
        if format != FORMAT {
            return Err(SavedError::Format(format.to_string()));
        }
        let header: Header = serde_json::from_value(json).map_err(|e| SavedError::Header(e.to_string()))?;
        let tensors = SafeTensors::deserialize(bytes)?;
        let nll: Vec<f32> = list(&tensors, "nll", Dtype::F32)?.into_iter().map(f32::from_le_bytes).collect();
        if let Some(index) = nll.iter().position(|value| !value.is_finite()) {
            return Err(SavedError::NonFinite { index, value: nll[index] });
        }
        let column = |name| -> Result<Vec<u32>, SavedError> {
            let found = list(&tensors, name, Dtype::U32)?;
            if found.len() != nll.len() {
                return Err(SavedError::Length { name, found: found.len(), expected: nll.len() });
            }
            Ok(found.into_iter().map(u32::from_le_bytes).collect())
        };
        Ok(Self {
            token_id: column("token_id")?,
            token: column("token")?,
            position: column("position")?,
            document: column("document")?,
            window: column("window")?,
            header,
            nll,
        })
    }

    /// Refuses losses that do not belong to exactly the tokens and windows that a run is about to score.
    ///
    /// # Errors
    /// The first difference.
    pub fn ensure_same_tokens(
        &self,
        now: &Header,
        documents: &[Document],
        plan: &[Vec<Window>],
    ) -> Result<(), SavedError> {
        self.header.check(now)?;
        let scored: usize = plan.iter().flatten().map(|window| window.scored.len()).sum();
        if scored != self.nll.len() {
            let interrupted = self.header.interrupted;
            return Err(SavedError::Count { before: self.nll.len(), now: scored, interrupted });
        }
        let mut index = 0;
        for (d, (document, windows)) in documents.iter().zip(plan).enumerate() {
            for (w, window) in windows.iter().enumerate() {
                for (offset, token) in window.scored.clone().enumerate() {
                    let expected =
                        [document.tokens[token] as usize, token, window.first_position() + offset, d, w];
                    let found = self.lists().map(|(_, values)| values[index] as usize);
                    if found != expected {
                        return Err(SavedError::Token { index });
                    }
                    index += 1;
                }
            }
        }
        Ok(())
    }
}

/// The entries of a list of four-byte values.
fn list(tensors: &SafeTensors<'_>, name: &'static str, dtype: Dtype) -> Result<Vec<[u8; 4]>, SavedError> {
    let tensor = tensors.tensor(name)?;
    if tensor.dtype() != dtype || tensor.shape().len() != 1 {
        let found = format!("{:?} of shape {:?}", tensor.dtype(), tensor.shape());
        let dtype = if dtype == Dtype::F32 { "F32" } else { "U32" };
        return Err(SavedError::Tensor { name, dtype, found });
    }
    let (values, _) = tensor.data().as_chunks::<4>();
    Ok(values.to_vec())
}

#[cfg(test)]
mod tests;
