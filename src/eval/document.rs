//! A text as the tokenizer cut it.

use sha2::{Digest, Sha256};

use crate::checkpoint::tokenizer::Tokenizer;

/// Token ids of a text and what each stands for.
#[derive(Debug, Clone, PartialEq)]
pub struct Document {
    /// Name for reports and errors.
    pub file: String,
    pub tokens: Vec<u32>,
    /// Bytes of text that each token stands for; 0 for control tokens.
    pub token_bytes: Vec<u32>,
    /// Words (runs without white space) that begin in each token.
    pub token_words: Vec<u32>,
}

impl Document {
    /// `tokens`: ids of the whole text in order, so that words are counted across token borders.
    pub fn new(file: String, tokens: Vec<u32>, tokenizer: &Tokenizer) -> Self {
        let mut token_bytes = Vec::with_capacity(tokens.len());
        let mut token_words = Vec::with_capacity(tokens.len());
        let mut inside_word = false;
        for &token in &tokens {
            let piece = tokenizer.piece(token).unwrap_or(&[]);
            let is_text = Some(token) != tokenizer.bos();
            let piece = if is_text { piece } else { &[] };
            let mut words = 0;
            for byte in piece {
                let blank = byte.is_ascii_whitespace();
                words += u32::from(!blank && !inside_word);
                inside_word = !blank;
            }
            token_bytes.push(piece.len() as u32);
            token_words.push(words);
        }
        Self { file, tokens, token_bytes, token_words }
    }

    /// SHA-256 over the ids as four little-endian bytes each, 64 hex digits: equal for equal texts and tokenizers.
    pub fn tokens_sha256(&self) -> String {
        let mut hash = Sha256::new();
        for token in &self.tokens {
            hash.update(token.to_le_bytes());
        }
        hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}
