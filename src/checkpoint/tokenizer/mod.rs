//! Text to token ids and back, for tokenizer.json files and for vocabularies inside GGUF files.

mod bpe;
mod cut;
mod error;
mod gguf;
mod json;
mod pieces;
mod pre;
mod probe;
mod special;
mod spm;

use std::collections::BTreeSet;
use std::sync::OnceLock;

use rayon::prelude::*;

pub use error::TokenizerError;
pub use json::Sidecar;
use pieces::Pieces;
pub use pieces::StreamDecoder;
use spm::SentencePiece;

/// Most ids a vocabulary may have; the largest published ones have about a quarter million.
pub const MAX_VOCAB: usize = 1 << 22;

/// Whether a text begins with the BOS token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Bos {
    /// As the tokenizer's own files say.
    #[default]
    Auto,
    /// Exactly one; an error when the tokenizer has none.
    Always,
    /// Only if the text itself writes it.
    Never,
}

/// What control tokens such as `<|im_start|>` written out in a text mean.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Markers {
    /// Plain text: right for a corpus.
    #[default]
    Text,
    /// The control token: right for a rendered chat template.
    Special,
}

/// A tokenizer with the ids that begin and end a text.
#[derive(Debug)]
pub struct Tokenizer {
    encoder: Encoder,
    pieces: Pieces,
    bos: Option<u32>,
    add_bos: bool,
    add_eos: bool,
    declared_eos: Option<u32>,
    eos: BTreeSet<u32>,
    /// Bytes without a token, where the model would drop them.
    missing_bytes: Vec<u8>,
    source: String,
    vocab_hash: String,
    warnings: Vec<String>,
}

/// Who turns text into ids.
#[derive(Debug)]
enum Encoder {
    /// The tokenizers library; the copy that reads control tokens as text is made when first needed.
    /// `cuts`: long texts may be read in parts, see [`cut`].
    Library { special: Box<tokenizers::Tokenizer>, text: OnceLock<Box<tokenizers::Tokenizer>>, cuts: bool },
    /// A SentencePiece vocabulary with scores.
    SentencePiece(Box<SentencePiece>),
}

impl Encoder {
    fn library(tokenizer: tokenizers::Tokenizer, cuts: bool) -> Self {
        Self::Library { special: Box::new(tokenizer), text: OnceLock::new(), cuts }
    }
}

impl Tokenizer {
    /// Token ids of `text`.
    ///
    /// Nothing but BOS is ever added, and BOS stands at the start once at most: not again when the text writes it.
    ///
    /// # Errors
    /// `NoBos` when BOS is demanded and there is none; `MissingByte` when the vocabulary cannot write the text.
    pub fn encode(&self, text: &str, bos: Bos, markers: Markers) -> Result<Vec<u32>, TokenizerError> {
        let mut ids = self.encode_plain(text, markers)?;
        let wanted = match bos {
            Bos::Auto if self.add_bos => self.bos,
            Bos::Auto | Bos::Never => None,
            Bos::Always => Some(self.bos.ok_or(TokenizerError::NoBos)?),
        };
        if let Some(bos) = wanted
            && ids.first() != Some(&bos)
        {
            ids.insert(0, bos);
        }
        Ok(ids)
    }

    fn encode_plain(&self, text: &str, markers: Markers) -> Result<Vec<u32>, TokenizerError> {
        if !self.missing_bytes.is_empty()
            && let Some(offset) = text.bytes().position(|b| self.missing_bytes.contains(&b))
        {
            return Err(TokenizerError::MissingByte { byte: text.as_bytes()[offset], offset });
        }
        match &self.encoder {
            Encoder::SentencePiece(spm) => spm.encode(text, markers),
            Encoder::Library { special, text: as_text, cuts } => {
                let tokenizer = match markers {
                    Markers::Special => special,
                    Markers::Text => as_text.get_or_init(|| {
                        let mut copy = special.clone();
                        copy.set_encode_special_tokens(true);
                        copy
                    }),
                };
                let parts = if *cuts && markers == Markers::Text { cut::parts(text) } else { vec![text] };
                let encode = |part: &&str| -> Result<Vec<u32>, TokenizerError> {
                    let encoding = tokenizer.encode_fast(*part, false).map_err(TokenizerError::Library)?;
                    Ok(encoding.get_ids().to_vec())
                };
                let ids: Vec<Vec<u32>> = parts.par_iter().map(encode).collect::<Result<_, _>>()?;
                Ok(ids.concat())
            }
        }
    }

    /// Text of `ids`. `skip_special`: leave control tokens out.
    ///
    /// Bytes that form no character come out as U+FFFD.
    ///
    /// # Errors
    /// `UnknownId` for an id outside the vocabulary.
    pub fn decode(&self, ids: &[u32], skip_special: bool) -> Result<String, TokenizerError> {
        let mut stream = self.stream(skip_special);
        let mut text = String::new();
        for id in ids {
            text.push_str(&stream.push(*id)?);
        }
        text.push_str(&stream.finish());
        Ok(text)
    }

    /// Decoder for a text that starts here.
    pub fn stream(&self, skip_special: bool) -> StreamDecoder<'_> {
        StreamDecoder::new(self, skip_special, self.pieces.rules.strip_left)
    }

    /// Decoder for text that continues a prompt: a blank at its start is kept.
    pub fn stream_continuing(&self, skip_special: bool) -> StreamDecoder<'_> {
        StreamDecoder::new(self, skip_special, 0)
    }

    /// The token that begins a text, if there is one.
    pub fn bos(&self) -> Option<u32> {
        self.bos
    }

    /// Whether the tokenizer's files ask for BOS before every text.
    pub fn adds_bos(&self) -> bool {
        self.add_bos && self.bos.is_some()
    }

    /// Whether the tokenizer's files ask for an end token after every text. [`Tokenizer::encode`] never adds it.
    pub fn adds_eos(&self) -> bool {
        self.add_eos
    }

    /// The one token that the files name as the end of a text, if they do: what templates write as `eos_token`.
    pub fn declared_eos(&self) -> Option<u32> {
        self.declared_eos
    }

    /// Every id that ends generation.
    pub fn eos(&self) -> &BTreeSet<u32> {
        &self.eos
    }

    /// Whether `id` ends generation.
    pub fn is_eos(&self, id: u32) -> bool {
        self.eos.contains(&id)
    }

    /// Number of ids: the highest one plus one. A model may have more rows.
    pub fn vocab_size(&self) -> usize {
        self.pieces.len()
    }

    /// The id of a token, written as in the vocabulary.
    pub fn token_to_id(&self, token: &str) -> Option<u32> {
        match &self.encoder {
            Encoder::Library { special, .. } => special.token_to_id(token),
            Encoder::SentencePiece(spm) => spm.token_to_id(token),
        }
    }

    /// The bytes of text that `id` stands for.
    pub fn piece(&self, id: u32) -> Option<&[u8]> {
        self.pieces.get(id).map(|(bytes, _)| bytes)
    }

    /// The text of a token, `None` for an unknown id or a part of a character. For control tokens: as templates write them.
    pub fn token_text(&self, id: u32) -> Option<&str> {
        std::str::from_utf8(self.piece(id)?).ok()
    }

    /// Where the tokenizer comes from, for example `GGUF metadata, pre = llama-bpe`.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Hash of the vocabulary: FNV-1a, 64 bits, over every id's entry in order. 16 hex digits.
    pub fn vocab_hash(&self) -> &str {
        &self.vocab_hash
    }

    /// What the user should know: settings that were guessed or are not followed.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }
}

/// Hashes vocabulary entries in id order. `None`: an id without a token.
fn vocab_hash<'t>(tokens: impl Iterator<Item = Option<&'t str>>) -> String {
    const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0000_0100_0000_01b3;
    // 0xFE and 0xFF never occur in UTF-8, so entries cannot run into each other.
    let hash = tokens
        .flat_map(|t| {
            let (bytes, end) = t.map_or((&[][..], 0xFE), |t| (t.as_bytes(), 0xFF));
            bytes.iter().copied().chain(std::iter::once(end))
        })
        .fold(OFFSET, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(PRIME));
    format!("{hash:016x}")
}

#[cfg(test)]
mod tests;
