//! Pieces of a prompt as token ids, so that a prompt is put together by counting instead of by tokenising it again.

use crate::checkpoint::tokenizer::{Bos, Markers, Tokenizer, TokenizerError};

/// Cuts texts that stand behind other text.
///
/// Tokenizers treat the start of a text in their own ways (a dummy space, no merge with what comes before). A piece is
/// therefore read behind an anchor, whose own ids are then taken off.
pub struct Fragments<'t> {
    tokenizer: &'t Tokenizer,
    /// Stands before pieces that begin with white space.
    letter: Vec<u32>,
    /// Stands before all others.
    newline: Vec<u32>,
}

const LETTER: &str = "a";
const NEWLINE: &str = "\n";

impl<'t> Fragments<'t> {
    /// # Errors
    /// A vocabulary that cannot write a letter or a newline.
    pub fn new(tokenizer: &'t Tokenizer) -> Result<Self, TokenizerError> {
        let anchor = |text| tokenizer.encode(text, Bos::Never, Markers::Text);
        Ok(Self { letter: anchor(LETTER)?, newline: anchor(NEWLINE)?, tokenizer })
    }

    pub fn tokenizer(&self) -> &'t Tokenizer {
        self.tokenizer
    }

    /// The ids of `text` in the middle of a text. Control tokens written in it are text.
    ///
    /// # Errors
    /// A vocabulary that cannot write it.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, TokenizerError> {
        if text.is_empty() {
            return Ok(Vec::new());
        }
        let (anchor, ids) = match text.starts_with(char::is_whitespace) {
            true => (LETTER, &self.letter),
            false => (NEWLINE, &self.newline),
        };
        let whole = self.tokenizer.encode(&format!("{anchor}{text}"), Bos::Never, Markers::Text)?;
        match whole.strip_prefix(ids.as_slice()) {
            Some(rest) if !rest.is_empty() => Ok(rest.to_vec()),
            // The anchor melted into the text; the text on its own is as good a way to write it.
            _ => self.tokenizer.encode(text, Bos::Never, Markers::Text),
        }
    }
}
