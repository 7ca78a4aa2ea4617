//! Rebuilding the tokenizer from GGUF metadata (`tokenizer.ggml.*`).
//!
//! Key names and defaults: llama.cpp `src/llama-vocab.cpp` and the GGUF specification in ggml `docs/gguf.md`.

use std::borrow::Cow;
use std::collections::HashMap;

use tokenizers::AddedToken;
use tokenizers::models::bpe::Vocab as BpeVocab;

use super::error::TokenizerError;
use super::pieces::{Kind, Pieces, Rules, byte_token};
use super::pre::Pre;
use super::special::{EndIds, checked_id};
use super::spm::{Marker, SentencePiece};
use super::{Encoder, MAX_VOCAB, Tokenizer, bpe, vocab_hash};
use crate::checkpoint::gguf::Metadata;

const MODEL: &str = "tokenizer.ggml.model";
const PRE: &str = "tokenizer.ggml.pre";
const TOKENS: &str = "tokenizer.ggml.tokens";
const SCORES: &str = "tokenizer.ggml.scores";
const TOKEN_TYPE: &str = "tokenizer.ggml.token_type";
const MERGES: &str = "tokenizer.ggml.merges";
const BOS_ID: &str = "tokenizer.ggml.bos_token_id";
const ADD_BOS: &str = "tokenizer.ggml.add_bos_token";
const ADD_EOS: &str = "tokenizer.ggml.add_eos_token";
const ADD_SPACE_PREFIX: &str = "tokenizer.ggml.add_space_prefix";
const EOS_ID: &str = "tokenizer.ggml.eos_token_id";
/// Keys whose ids end generation.
const END_IDS: [&str; 3] = [EOS_ID, "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"];

/// What `tokenizer.ggml.token_type` says of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TokenType {
    Normal,
    Unknown,
    Control,
    UserDefined,
    Unused,
    Byte,
}

impl TokenType {
    fn from_number(number: i32) -> Option<Self> {
        Some(match number {
            1 => Self::Normal,
            2 => Self::Unknown,
            3 => Self::Control,
            4 => Self::UserDefined,
            5 => Self::Unused,
            6 => Self::Byte,
            _ => return None,
        })
    }

    /// Never written by ordinary text.
    fn is_control(self) -> bool {
        matches!(self, Self::Control | Self::Unknown)
    }

    fn kind(self) -> Kind {
        match self {
            Self::Control | Self::Unknown => Kind::Control,
            Self::UserDefined => Kind::Added,
            Self::Normal | Self::Unused | Self::Byte => Kind::Text,
        }
    }
}

/// The checked vocabulary.
struct Vocabulary<'m> {
    tokens: Vec<Cow<'m, str>>,
    types: Vec<TokenType>,
}

impl<'m> Vocabulary<'m> {
    fn read(meta: &'m Metadata, warnings: &mut Vec<String>) -> Result<Self, TokenizerError> {
        let list = meta.strings(TOKENS)?.ok_or(TokenizerError::MissingKey(TOKENS))?;
        if list.is_empty() || list.len() > MAX_VOCAB {
            return Err(TokenizerError::VocabSize(list.len()));
        }
        let tokens = list.iter().enumerate().map(|(id, token)| match token.as_str() {
            // Holes in the numbering are stored as empty strings; give them distinct names.
            "" => Cow::Owned(format!("[EMPTY_{id}]")),
            token => Cow::Borrowed(token),
        });
        let tokens: Vec<_> = tokens.collect();
        let types = match meta.i32s(TOKEN_TYPE)? {
            Some(numbers) => token_types(&numbers, tokens.len())?,
            None => {
                warnings.push(format!(
                    "`{TOKEN_TYPE}` is missing: only the tokens named by id are control tokens"
                ));
                vec![TokenType::Normal; tokens.len()]
            }
        };
        let mut vocabulary = Self { tokens, types };
        for key in END_IDS.into_iter().chain([BOS_ID]) {
            if let Some(id) = vocabulary.id(meta, key)? {
                vocabulary.types[id as usize] = TokenType::Control;
            }
        }
        Ok(vocabulary)
    }

    /// Ids by token.
    fn ids(&self) -> Result<HashMap<&str, u32>, TokenizerError> {
        let mut ids = HashMap::with_capacity(self.tokens.len());
        for (id, token) in (0u32..).zip(&self.tokens) {
            if let Some(first) = ids.insert(token.as_ref(), id) {
                return Err(TokenizerError::DuplicateToken { token: token.to_string(), first, second: id });
            }
        }
        Ok(ids)
    }

    /// The id stored under `key`, inside the vocabulary.
    fn id(&self, meta: &Metadata, key: &str) -> Result<Option<u32>, TokenizerError> {
        let id = meta.usize(key)?;
        id.map(|id| checked_id(u64::try_from(id).ok(), id, || format!("`{key}`"), self.tokens.len()))
            .transpose()
    }

    fn iter(&self) -> impl Iterator<Item = (u32, &str, TokenType)> {
        (0u32..).zip(&self.tokens).zip(&self.types).map(|((id, token), kind)| (id, token.as_ref(), *kind))
    }

    fn pieces(&self, rules: Rules) -> Pieces {
        let mut pieces = Pieces::new(rules);
        for (_, token, kind) in self.iter() {
            pieces.push(token, kind.kind());
        }
        pieces
    }

    /// Tokens found in a text before anything else.
    fn markers(&self) -> impl Iterator<Item = (u32, &str, TokenType)> {
        self.iter().filter(|(_, _, kind)| kind.is_control() || *kind == TokenType::UserDefined)
    }
}

fn token_types(numbers: &[i32], expected: usize) -> Result<Vec<TokenType>, TokenizerError> {
    if numbers.len() != expected {
        return Err(TokenizerError::Count { key: TOKEN_TYPE, found: numbers.len(), expected });
    }
    (0u32..)
        .zip(numbers)
        .map(|(id, number)| {
            TokenType::from_number(*number).ok_or_else(|| TokenizerError::TokenValue {
                key: TOKEN_TYPE,
                value: number.to_string(),
                id,
            })
        })
        .collect()
}

impl Tokenizer {
    /// Rebuilds the tokenizer that a GGUF file describes: byte-level BPE (`gpt2`) or SentencePiece with scores (`llama`).
    ///
    /// # Errors
    /// A model or pre-tokenizer that is not known, a missing key, lists of unequal length, ids outside the vocabulary,
    /// duplicate tokens, unusable merges.
    pub fn from_gguf(meta: &Metadata) -> Result<Self, TokenizerError> {
        match meta.str(MODEL)?.ok_or(TokenizerError::MissingKey(MODEL))? {
            "gpt2" => byte_level(meta),
            "llama" => sentencepiece(meta),
            other => {
                Err(TokenizerError::UnsupportedModel { found: other.to_owned(), accepted: "gpt2, llama" })
            }
        }
    }
}

fn byte_level(meta: &Metadata) -> Result<Tokenizer, TokenizerError> {
    let mut warnings = Vec::new();
    let name = meta.str(PRE)?.unwrap_or_else(|| {
        warnings.push(format!(
            "`{PRE}` is missing, so the pre-tokenizer is a guess (`default`): ids may differ from the model's own"
        ));
        "default"
    });
    let pre = Pre::named(name)?;
    let vocabulary = Vocabulary::read(meta, &mut warnings)?;
    let ids = vocabulary.ids()?;
    let merges = meta.strings(MERGES)?.ok_or(TokenizerError::MissingKey(MERGES))?;
    let merges = bpe::checked_merges(merges.iter().map(String::as_str), &ids)?;
    // A token that spans lines could span a cut.
    let cuts = vocabulary.markers().all(|(_, token, _)| !token.contains('\n'));
    let added = vocabulary
        .markers()
        .map(|(_, token, kind)| AddedToken::from(token, kind.is_control()).normalized(false));
    let vocab: BpeVocab = vocabulary.iter().map(|(id, token, _)| (token.to_owned(), id)).collect();
    let library = bpe::build(vocab, merges, pre, added.collect())?;
    let pieces = vocabulary.pieces(Rules { byte_level: true, ..Rules::default() });
    let missing_bytes = pieces.missing_bytes();
    let source = format!("GGUF metadata, pre = {name}");
    let parts = Parts {
        encoder: Encoder::library(library, cuts),
        pieces,
        missing_bytes,
        source,
        add_bos: pre.add_bos,
        warnings,
    };
    parts.finish(meta, &vocabulary)
}

fn sentencepiece(meta: &Metadata) -> Result<Tokenizer, TokenizerError> {
    let mut warnings = Vec::new();
    let vocabulary = Vocabulary::read(meta, &mut warnings)?;
    vocabulary.ids()?;
    let scores = meta.f32s(SCORES)?.ok_or(TokenizerError::MissingKey(SCORES))?;
    let expected = vocabulary.tokens.len();
    if scores.len() != expected {
        return Err(TokenizerError::Count { key: SCORES, found: scores.len(), expected });
    }
    let space_prefix = meta.bool(ADD_SPACE_PREFIX)?.unwrap_or(true);
    let mut entries = HashMap::with_capacity(expected);
    let mut bytes = [None; 256];
    for ((id, token, kind), score) in vocabulary.iter().zip(scores.iter().copied()) {
        if score.is_nan() {
            return Err(TokenizerError::TokenValue { key: SCORES, value: score.to_string(), id });
        }
        match kind {
            TokenType::Byte => {
                let byte = byte_token(token).ok_or_else(|| TokenizerError::TokenValue {
                    key: TOKENS,
                    value: token.to_owned(),
                    id,
                })?;
                bytes[usize::from(byte)] = Some(id);
            }
            TokenType::Normal | TokenType::UserDefined | TokenType::Unused => {
                entries.insert(token.to_owned(), (id, score));
            }
            TokenType::Control | TokenType::Unknown => {}
        }
    }
    let rstrip = strips_after_markers(meta)?;
    let markers = vocabulary.markers().map(|(id, token, kind)| Marker {
        text: token.to_owned(),
        id,
        control: kind.is_control(),
        rstrip: rstrip && !matches!(token, "<unk>" | "<s>" | "<|endoftext|>"),
    });
    let encoder = SentencePiece::new(entries, bytes, markers.collect(), space_prefix);
    let rules = Rules {
        byte_fallback: true,
        replace: vec![("\u{2581}".to_owned(), " ".to_owned())],
        strip_left: usize::from(space_prefix),
        byte_level: false,
    };
    let parts = Parts {
        encoder: Encoder::SentencePiece(Box::new(encoder)),
        pieces: vocabulary.pieces(rules),
        missing_bytes: Vec::new(),
        source: "GGUF metadata, model = llama".to_owned(),
        add_bos: true,
        warnings,
    };
    parts.finish(meta, &vocabulary)
}

/// Phi-3's tokens swallow the white space after them, which GGUF cannot say; known by the model's name as in llama.cpp.
fn strips_after_markers(meta: &Metadata) -> Result<bool, TokenizerError> {
    let name = meta.str("general.name")?.unwrap_or_default().to_lowercase();
    Ok(name.contains("phi-3") || name.contains("phi3"))
}

/// What the two kinds of vocabulary have in common once the encoder stands.
struct Parts {
    encoder: Encoder,
    pieces: Pieces,
    missing_bytes: Vec<u8>,
    source: String,
    /// Default of `tokenizer.ggml.add_bos_token`.
    add_bos: bool,
    warnings: Vec<String>,
}

impl Parts {
    fn finish(mut self, meta: &Metadata, vocabulary: &Vocabulary<'_>) -> Result<Tokenizer, TokenizerError> {
        let bos = vocabulary.id(meta, BOS_ID)?;
        let add_bos = meta.bool(ADD_BOS)?.unwrap_or(self.add_bos);
        if add_bos && bos.is_none() {
            self.warnings.push(format!("a BOS token is asked for, but `{BOS_ID}` is missing: none is added"));
        }
        let add_eos = meta.bool(ADD_EOS)?.unwrap_or(false);
        if add_eos {
            self.warnings
                .push(format!("`{ADD_EOS}` asks for an end token after every text; it is not added"));
        }
        let mut ends = EndIds::new(vocabulary.tokens.len());
        for key in END_IDS {
            if let Some(id) = vocabulary.id(meta, key)? {
                ends.insert(id);
            }
        }
        let control: HashMap<&str, u32> = vocabulary
            .markers()
            .filter(|(_, _, kind)| kind.is_control())
            .map(|(id, token, _)| (token, id))
            .collect();
        ends.add_markers(|text| control.get(text).copied());
        Ok(Tokenizer {
            vocab_hash: vocab_hash(vocabulary.tokens.iter().map(|t| Some(t.as_ref()))),
            encoder: self.encoder,
            pieces: self.pieces,
            bos,
            add_bos,
            add_eos,
            declared_eos: vocabulary.id(meta, EOS_ID)?,
            eos: ends.into_set(),
            missing_bytes: self.missing_bytes,
            source: self.source,
            warnings: self.warnings,
        })
    }
}
