//! From ids back to text: one byte string per id, and a decoder that never splits a character.

use super::Tokenizer;
use super::error::TokenizerError;

/// How the text of a vocabulary entry becomes bytes of text.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Rules {
    /// Entries are written in the GPT-2 byte alphabet.
    pub byte_level: bool,
    /// Entries `<0xAB>` are single bytes.
    pub byte_fallback: bool,
    /// (what, by what) in entries, in order; SentencePiece's visible space becomes a blank.
    pub replace: Vec<(String, String)>,
    /// Blanks dropped from the very start of a text.
    pub strip_left: usize,
}

/// The byte string of every id, in one allocation.
#[derive(Clone, Debug, Default)]
pub(super) struct Pieces {
    data: Vec<u8>,
    /// `ends[id]`: end of the piece in `data`; it starts where the one before ends.
    ends: Vec<u32>,
    kinds: Vec<Kind>,
    pub rules: Rules,
}

/// What an id stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Ordinary text, to which the rules apply.
    Text,
    /// Registered as a whole and part of the text: decoded as it is written.
    Added,
    /// A control token: left out when special tokens are skipped.
    Control,
    /// No token has this id.
    Hole,
}

impl Pieces {
    pub fn new(rules: Rules) -> Self {
        Self { rules, ..Self::default() }
    }

    /// Appends the next id. `token`: its entry as written in the vocabulary.
    pub fn push(&mut self, token: &str, kind: Kind) {
        match kind {
            Kind::Text => self.push_text(token),
            Kind::Added | Kind::Control => self.data.extend_from_slice(token.as_bytes()),
            Kind::Hole => {}
        }
        // Token texts were read from one file whose size fits; saturating keeps a hostile one harmless.
        self.ends.push(u32::try_from(self.data.len()).unwrap_or(u32::MAX));
        self.kinds.push(kind);
    }

    fn push_text(&mut self, token: &str) {
        if self.rules.byte_fallback
            && let Some(byte) = byte_token(token)
        {
            self.data.push(byte);
            return;
        }
        if self.rules.byte_level {
            let start = self.data.len();
            for c in token.chars() {
                match char_to_byte(c) {
                    Some(byte) => self.data.push(byte),
                    None => {
                        // Not in the alphabet: the entry is plain text.
                        self.data.truncate(start);
                        self.data.extend_from_slice(token.as_bytes());
                        return;
                    }
                }
            }
            return;
        }
        let mut text = token.to_owned();
        for (from, to) in &self.rules.replace {
            text = text.replace(from.as_str(), to);
        }
        self.data.extend_from_slice(text.as_bytes());
    }

    /// Number of ids, holes included.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    pub fn get(&self, id: u32) -> Option<(&[u8], Kind)> {
        let i = usize::try_from(id).ok()?;
        let end = *self.ends.get(i)? as usize;
        let start = match i.checked_sub(1) {
            Some(before) => *self.ends.get(before)? as usize,
            None => 0,
        };
        let kind = *self.kinds.get(i)?;
        (kind != Kind::Hole).then_some((self.data.get(start..end)?, kind))
    }

    /// Bytes that no single entry writes.
    pub fn missing_bytes(&self) -> Vec<u8> {
        let mut seen = [false; 256];
        for id in 0..self.len() {
            if let Some(([byte], Kind::Text)) = self.get(id as u32) {
                seen[usize::from(*byte)] = true;
            }
        }
        (0..=255u8).filter(|b| !seen[usize::from(*b)]).collect()
    }
}

/// The byte of a SentencePiece byte entry, for example `<0x0A>`.
pub(super) fn byte_token(token: &str) -> Option<u8> {
    let hex = token.strip_prefix("<0x")?.strip_suffix('>')?;
    if hex.len() != 2 || !hex.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    u8::from_str_radix(hex, 16).ok()
}

/// Whether GPT-2's byte alphabet writes this byte as the character of the same number.
const fn is_direct(byte: u8) -> bool {
    matches!(byte, 33..=126 | 161..=172 | 174..=255)
}

/// The byte a character of GPT-2's alphabet stands for.
///
/// Printable Latin-1 stands for itself; the other 68 bytes follow in order from U+0100.
pub(super) fn char_to_byte(c: char) -> Option<u8> {
    let code = u32::from(c);
    match u8::try_from(code) {
        Ok(byte) => is_direct(byte).then_some(byte),
        Err(_) => {
            let n = usize::try_from(code.checked_sub(256)?).ok()?;
            (0..=255u8).filter(|b| !is_direct(*b)).nth(n)
        }
    }
}

/// Decodes ids one at a time, holding back bytes that do not yet form a character.
///
/// The pieces it returns, joined, equal [`Tokenizer::decode`] of all ids.
#[derive(Clone, Debug)]
pub struct StreamDecoder<'a> {
    pieces: &'a Pieces,
    skip_special: bool,
    /// Blanks still to drop at the start of the text.
    strip: usize,
    pending: Vec<u8>,
}

impl<'a> StreamDecoder<'a> {
    pub(super) fn new(tokenizer: &'a Tokenizer, skip_special: bool, strip: usize) -> Self {
        Self { pieces: &tokenizer.pieces, skip_special, strip, pending: Vec::new() }
    }

    /// Adds one id and returns the text that is complete, possibly none.
    ///
    /// Bytes that can never be part of a character come out as U+FFFD.
    ///
    /// # Errors
    /// `TokenizerError::UnknownId` for an id outside the vocabulary.
    pub fn push(&mut self, id: u32) -> Result<String, TokenizerError> {
        let (mut bytes, kind) =
            self.pieces.get(id).ok_or(TokenizerError::UnknownId { id, vocab_size: self.pieces.len() })?;
        if kind == Kind::Control && self.skip_special {
            return Ok(String::new());
        }
        while self.strip > 0 && !bytes.is_empty() {
            match bytes.strip_prefix(b" ") {
                Some(rest) => {
                    bytes = rest;
                    self.strip -= 1;
                }
                None => self.strip = 0,
            }
        }
        self.pending.extend_from_slice(bytes);
        Ok(self.take_complete())
    }

    /// Returns what is still held back; an unfinished character comes out as U+FFFD.
    pub fn finish(self) -> String {
        String::from_utf8_lossy(&self.pending).into_owned()
    }

    fn take_complete(&mut self) -> String {
        let mut text = String::new();
        let mut start = 0;
        while let Some(rest) = self.pending.get(start..) {
            match std::str::from_utf8(rest) {
                Ok(valid) => {
                    text.push_str(valid);
                    start = self.pending.len();
                    break;
                }
                Err(e) => {
                    let (valid, _) = rest.split_at(e.valid_up_to());
                    text.push_str(&String::from_utf8_lossy(valid));
                    start += valid.len();
                    let Some(bad) = e.error_len() else { break };
                    text.push(char::REPLACEMENT_CHARACTER);
                    start += bad;
                }
            }
        }
        self.pending.drain(..start);
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_byte_alphabet_is_a_bijection() {
        let mut seen = [false; 256];
        for code in 0..0x200 {
            if let Some(byte) = char::from_u32(code).and_then(char_to_byte) {
                assert!(!seen[usize::from(byte)], "{byte} twice");
                seen[usize::from(byte)] = true;
            }
        }
        assert!(seen.iter().all(|s| *s));
        assert_eq!(char_to_byte('Ġ'), Some(b' '));
        assert_eq!(char_to_byte('Ċ'), Some(b'\n'));
        assert_eq!(char_to_byte('中'), None);
    }

    #[test]
    fn byte_entries_are_exactly_two_hex_digits() {
        assert_eq!(byte_token("<0x0A>"), Some(10));
        for other in ["<0x0A", "<0x+A>", "<0xA>", "<0x00A>", "0x0A", "<0xGG>"] {
            assert_eq!(byte_token(other), None, "{other}");
        }
    }

    #[test]
    fn a_hole_has_no_piece_and_missing_bytes_are_counted() {
        let mut pieces = Pieces::new(Rules { byte_level: true, ..Rules::default() });
        pieces.push("Ġ", Kind::Text);
        pieces.push("", Kind::Hole);
        pieces.push("<é>", Kind::Control);
        assert_eq!(pieces.get(0), Some((b" ".as_slice(), Kind::Text)));
        assert_eq!(pieces.get(1), None);
        assert_eq!(pieces.get(2), Some(("<é>".as_bytes(), Kind::Control)));
        assert_eq!(pieces.get(3), None);
        assert_eq!(pieces.missing_bytes().len(), 255);
    }
}
