//! What can go wrong with a tokenizer.

use super::pre::Pre;
use crate::checkpoint::gguf::GgufError;

/// Errors of reading a tokenizer and of using it.
#[derive(Debug, thiserror::Error)]
pub enum TokenizerError {
    /// The file is not JSON, or a part of it has the wrong shape.
    #[error("cannot read the tokenizer file")]
    Json(#[source] serde_json::Error),

    /// The tokenizers library refused the file, or failed on a text.
    #[error("the tokenizer cannot be used")]
    Library(#[source] Box<dyn std::error::Error + Send + Sync>),

    /// A GGUF key has the wrong type.
    #[error("cannot read the tokenizer in the GGUF metadata")]
    Metadata(#[from] GgufError),

    /// The algorithm is not one that Llama- and Qwen-family checkpoints use.
    #[error(
        "the tokenizer model `{found}` is not supported (accepted: {accepted}); give a tokenizer.json with `--tokenizer`"
    )]
    UnsupportedModel {
        /// Name in the file.
        found: String,
        /// Names that are read.
        accepted: &'static str,
    },

    /// A component of tokenizer.json that would change the meaning of ids.
    #[error("the tokenizer's {part} `{found}` is not supported")]
    UnsupportedPart {
        /// Which component.
        part: &'static str,
        /// What the file says.
        found: String,
    },

    /// `tokenizer.ggml.pre` names a pre-tokenizer that is not known.
    #[error("`tokenizer.ggml.pre` is `{0}`, which is not known (accepted: {list}); give a tokenizer.json with `--tokenizer`", list = Pre::names())]
    UnknownPre(String),

    /// A key without which the vocabulary cannot be rebuilt.
    #[error("the GGUF metadata has no `{0}`; give a tokenizer.json with `--tokenizer`")]
    MissingKey(&'static str),

    /// Two lists that must be equally long are not.
    #[error("`{key}` has {found} entries, expected {expected} (one per token)")]
    Count {
        /// GGUF key.
        key: &'static str,
        /// Entries in the file.
        found: usize,
        /// Number of tokens.
        expected: usize,
    },

    /// A vocabulary that is empty or larger than any known model's.
    #[error("the vocabulary has `{0}` tokens, expected 1 to {max}", max = super::MAX_VOCAB)]
    VocabSize(usize),

    /// An id so high that most ids below it have no token.
    #[error("the vocabulary has {tokens} tokens, but ids up to {}: most have no token", .size - 1)]
    Holes {
        /// Number of ids.
        size: usize,
        /// Number of tokens.
        tokens: usize,
    },

    /// The same token twice, or two tokens with one id.
    #[error("token `{token}` has the ids {first} and {second}")]
    DuplicateToken {
        /// Token text.
        token: String,
        /// First id.
        first: u32,
        /// Second id.
        second: u32,
    },

    /// Two tokens share an id.
    #[error("id {id} belongs to `{first}` and to `{second}`")]
    DuplicateId {
        /// The id.
        id: u32,
        /// First token.
        first: String,
        /// Second token.
        second: String,
    },

    /// A value of a per-token list that means nothing.
    #[error("`{key}` holds `{value}` for token {id}, which is not valid")]
    TokenValue {
        /// GGUF key.
        key: &'static str,
        /// The value.
        value: String,
        /// Token id.
        id: u32,
    },

    /// A merge rule that does not lead from two tokens to a third.
    #[error("merge {index} `{merge}` is not usable: {reason}")]
    Merge {
        /// Position in the list.
        index: usize,
        /// The rule.
        merge: String,
        /// What is wrong.
        reason: &'static str,
    },

    /// A special id outside the vocabulary, or not a number.
    #[error("{origin} is `{id}`, which is not a token id (the vocabulary has {vocab_size} tokens)")]
    SpecialId {
        /// File and key.
        origin: String,
        /// The value.
        id: String,
        /// Number of ids.
        vocab_size: usize,
    },

    /// The text writes a byte for which the vocabulary has no token.
    #[error(
        "byte 0x{byte:02X} at offset {offset} of the text has no token in this vocabulary; remove it from the text"
    )]
    MissingByte {
        /// The byte.
        byte: u8,
        /// Byte offset in the text.
        offset: usize,
    },

    /// A BOS was demanded of a tokenizer that has none.
    #[error("this tokenizer has no BOS token; use `--bos auto` or `--bos never`")]
    NoBos,

    /// An id that no token has.
    #[error("token id {id} is outside the vocabulary of {vocab_size} tokens")]
    UnknownId {
        /// The id.
        id: u32,
        /// Number of ids.
        vocab_size: usize,
    },
}
