//! SentencePiece vocabularies with scores: merge neighbours, best score first.
//!
//! Each character starts as a symbol. Of all neighbouring pairs whose joined text is an entry, the one with the
//! highest score is joined, the leftmost among equals, until no pair is an entry. Symbols that are no entry are
//! written as bytes. Source: Kudo & Richardson 2018, arXiv:1808.06226; sentencepiece `src/bpe_model.cc`.

use std::cmp::Ordering;
use std::collections::hash_map::Entry;
use std::collections::{BinaryHeap, HashMap, HashSet};

use super::Markers;
use super::error::TokenizerError;

/// The visible blank of SentencePiece, U+2581.
const BLANK: &str = "\u{2581}";

/// Encoder of a vocabulary with scores.
#[derive(Clone, Debug)]
pub(super) struct SentencePiece {
    /// Entries that merging may produce: text to (id, score).
    entries: HashMap<String, (u32, f32)>,
    /// Characters that some entry has in front of a blank.
    before_blank: HashSet<char>,
    /// Id of each byte entry.
    bytes: [Option<u32>; 256],
    /// Taken whole, by first byte, longest first.
    markers: HashMap<u8, Vec<Marker>>,
    /// A blank is put before text at the start and after a marker.
    pub space_prefix: bool,
}

/// A token that is found in the text before merging.
#[derive(Clone, Debug)]
pub(super) struct Marker {
    pub text: String,
    pub id: u32,
    /// Plain text under [`Markers::Text`].
    pub control: bool,
    /// White space after it is swallowed.
    pub rstrip: bool,
}

impl Marker {
    fn begins_with_blank(&self) -> bool {
        !self.control && (self.text.starts_with(' ') || self.text.starts_with(BLANK))
    }

    /// Bytes of the marker at the start of `text`. Control tokens are looked for as they are written.
    ///
    /// The blanks of user-defined tokens are looked for as in the `tokenizer.json` of such models: runs of U+2581 as they are
    /// written, and, between these, blanks that merge with a single U+2581 beside them.
    fn length_in(&self, text: &[u8]) -> Option<usize> {
        if self.control {
            return text.starts_with(self.text.as_bytes()).then_some(self.text.len());
        }
        let mut rest = text;
        // Whether the last one was U+2581, whether two of them were side by side, whether there was a blank.
        let (mut visible, mut run, mut blank) = (false, false, false);
        for c in self.text.chars() {
            let is_blank = c == ' ' || BLANK.starts_with(c);
            let before = std::mem::replace(&mut visible, is_blank && rest.starts_with(BLANK.as_bytes()));
            run |= before && visible;
            blank |= is_blank && !visible;
            let mut bytes = [0; 4];
            let written = match is_blank {
                true if visible => BLANK,
                true => " ",
                false => c.encode_utf8(&mut bytes),
            };
            rest = rest.strip_prefix(written.as_bytes())?;
        }
        run |= visible && rest.starts_with(BLANK.as_bytes());
        (!(blank && run)).then_some(text.len() - rest.len())
    }
}

impl SentencePiece {
    pub fn new(
        entries: HashMap<String, (u32, f32)>,
        bytes: [Option<u32>; 256],
        markers: Vec<Marker>,
        space_prefix: bool,
    ) -> Self {
        let mut by_first: HashMap<u8, Vec<Marker>> = HashMap::new();
        for marker in markers {
            let Some(first) = marker.text.bytes().next() else {
                continue;
            };
            if marker.begins_with_blank() {
                let other = if first == b' ' { BLANK.as_bytes()[0] } else { b' ' };
                by_first.entry(other).or_default().push(marker.clone());
            }
            by_first.entry(first).or_default().push(marker);
        }
        for list in by_first.values_mut() {
            list.sort_by_key(|m| std::cmp::Reverse(m.text.len()));
        }
        let before_blank = entries
            .keys()
            .flat_map(|t| t.chars().zip(t.chars().skip(1)))
            .filter(|(_, second)| BLANK.starts_with(*second))
            .map(|(first, _)| first)
            .collect();
        Self { entries, before_blank, bytes, markers: by_first, space_prefix }
    }

    /// Ids of `text`, without BOS.
    ///
    /// # Errors
    /// `TokenizerError::MissingByte` when a character is no entry and its bytes are none either.
    pub fn encode(&self, text: &str, markers: Markers) -> Result<Vec<u32>, TokenizerError> {
        let mut ids = Vec::new();
        let mut start = 0;
        let mut at = 0;
        let mut after_marker = true;
        while at < text.len() {
            let Some((marker, length)) = self.marker_at(text, at, markers) else {
                at += 1;
                continue;
            };
            if start < at {
                self.encode_plain(text, start..at, after_marker, &mut ids)?;
            }
            ids.push(marker.id);
            after_marker = true;
            at += length;
            if marker.rstrip {
                let rest = text.get(at..).unwrap_or_default();
                at += rest.len() - rest.trim_start().len();
            }
            start = at;
        }
        if start < text.len() {
            self.encode_plain(text, start..text.len(), after_marker, &mut ids)?;
        }
        Ok(ids)
    }

    /// The id of an entry, a marker or a byte.
    pub fn token_to_id(&self, token: &str) -> Option<u32> {
        let marker = || {
            let list = self.markers.get(&token.bytes().next()?)?;
            list.iter().find(|m| m.text == token).map(|m| m.id)
        };
        let byte = || self.bytes[usize::from(super::pieces::byte_token(token)?)];
        self.entries.get(token).map(|(id, _)| *id).or_else(marker).or_else(byte)
    }

    /// The longest marker that begins at byte `at`, and its bytes there. Markers begin with a whole character, so `at` is
    /// a boundary then.
    fn marker_at(&self, text: &str, at: usize, markers: Markers) -> Option<(&Marker, usize)> {
        let rest = text.as_bytes().get(at..)?;
        let list = self.markers.get(rest.first()?)?;
        let mut found = list.iter().filter(|m| markers == Markers::Special || !m.control);
        found.find_map(|m| Some((m, m.length_in(rest)?)))
    }

    fn encode_plain(
        &self,
        text: &str,
        range: std::ops::Range<usize>,
        after_marker: bool,
        ids: &mut Vec<u32>,
    ) -> Result<(), TokenizerError> {
        let offset = range.start;
        let plain = text.get(range).unwrap_or_default();
        let prefix = if self.space_prefix && after_marker { BLANK } else { "" };
        let escaped = format!("{prefix}{}", plain.replace(' ', BLANK));
        let mut known: HashMap<&str, Vec<u32>> = HashMap::new();
        let mut rest = escaped.as_str();
        while !rest.is_empty() {
            let (word, after) = rest.split_at(self.word_end(rest));
            let word_ids = match known.entry(word) {
                Entry::Occupied(seen) => seen.into_mut(),
                Entry::Vacant(new) => new.insert(self.merge_word(word).map_err(|byte| {
                    let found = plain.bytes().position(|b| b == byte).unwrap_or(0);
                    TokenizerError::MissingByte { byte, offset: offset + found }
                })?),
            };
            ids.extend_from_slice(word_ids);
            rest = after;
        }
        Ok(())
    }

    /// Length of the longest start of `text` up to a blank, such that no merge can cross its end.
    ///
    /// No entry holds the two characters around the cut side by side, so merging the parts equals merging the whole.
    fn word_end(&self, text: &str) -> usize {
        let mut before = None;
        for (at, c) in text.char_indices() {
            if BLANK.starts_with(c) && before.is_some_and(|b| !self.before_blank.contains(&b)) {
                return at;
            }
            before = Some(c);
        }
        text.len()
    }

    /// Ids of a stretch of text, or the first byte that has none.
    fn merge_word(&self, word: &str) -> Result<Vec<u32>, u8> {
        let mut symbols = Symbols::new(word);
        symbols.merge(|joined| self.entries.get(joined).map(|(_, score)| *score));
        let mut ids = Vec::new();
        for symbol in symbols.iter() {
            match self.entries.get(symbol) {
                Some((id, _)) => ids.push(*id),
                None => {
                    for byte in symbol.bytes() {
                        ids.push(self.bytes[usize::from(byte)].ok_or(byte)?);
                    }
                }
            }
        }
        Ok(ids)
    }
}

/// The text as a doubly linked list of symbols, each a run of bytes.
struct Symbols<'t> {
    text: &'t str,
    list: Vec<Symbol>,
}

#[derive(Clone, Copy)]
struct Symbol {
    start: usize,
    /// 0 once joined to the symbol before it.
    len: usize,
    prev: Option<usize>,
    next: Option<usize>,
}

/// A pair that may be joined; stale when the symbols have changed since.
struct Candidate {
    score: f32,
    left: usize,
    right: usize,
    len: usize,
}

impl Ord for Candidate {
    fn cmp(&self, other: &Self) -> Ordering {
        self.score.total_cmp(&other.score).then_with(|| other.left.cmp(&self.left))
    }
}

impl PartialOrd for Candidate {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Candidate {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Candidate {}

impl<'t> Symbols<'t> {
    fn new(text: &'t str) -> Self {
        let count = text.chars().count();
        let list = text
            .char_indices()
            .enumerate()
            .map(|(i, (start, c))| Symbol {
                start,
                len: c.len_utf8(),
                prev: i.checked_sub(1),
                next: (i + 1 < count).then_some(i + 1),
            })
            .collect();
        Self { text, list }
    }

    /// Joins pairs for which `score` knows the joined text, best first.
    fn merge(&mut self, score: impl Fn(&str) -> Option<f32>) {
        let mut queue = BinaryHeap::new();
        for right in 1..self.list.len() {
            queue.extend(self.candidate(Some(right - 1), Some(right), &score));
        }
        while let Some(best) = queue.pop() {
            let (left, right) = (self.list[best.left], self.list[best.right]);
            if left.len == 0 || right.len == 0 || left.len + right.len != best.len {
                continue;
            }
            self.list[best.right].len = 0;
            self.list[best.left].len = best.len;
            self.list[best.left].next = right.next;
            if let Some(next) = right.next {
                self.list[next].prev = Some(best.left);
            }
            queue.extend(self.candidate(left.prev, Some(best.left), &score));
            queue.extend(self.candidate(Some(best.left), right.next, &score));
        }
    }

    fn candidate(
        &self,
        left: Option<usize>,
        right: Option<usize>,
        score: &impl Fn(&str) -> Option<f32>,
    ) -> Option<Candidate> {
        let (left, right) = (left?, right?);
        let (l, r) = (self.list[left], self.list[right]);
        let len = l.len + r.len;
        let score = score(self.text.get(l.start..l.start + len)?)?;
        Some(Candidate { score, left, right, len })
    }

    fn iter(&self) -> impl Iterator<Item = &'t str> + '_ {
        self.list.iter().filter(|s| s.len > 0).filter_map(|s| self.text.get(s.start..s.start + s.len))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn toy(space_prefix: bool) -> SentencePiece {
        let entries = [
            ("a", -5.0),
            ("b", -6.0),
            ("ab", -1.0),
            ("aba", -0.5),
            ("ba", -2.0),
            ("aa", -3.0),
            (BLANK, -9.0),
        ];
        let entries =
            entries.into_iter().enumerate().map(|(i, (t, s))| (t.to_owned(), (i as u32, s))).collect();
        let mut bytes = [None; 256];
        for byte in "é".bytes() {
            bytes[usize::from(byte)] = Some(100 + u32::from(byte));
        }
        let marker = |text: &str, id, control| Marker { text: text.into(), id, control, rstrip: id == 51 };
        let markers = vec![marker("<s>", 50, true), marker("<u>", 51, false), marker("<u>>", 52, false)];
        SentencePiece::new(entries, bytes, markers, space_prefix)
    }

    #[test]
    fn the_best_score_is_merged_first_and_the_leftmost_among_equals() {
        let spm = toy(false);
        assert_eq!(spm.encode("abab", Markers::Text).unwrap(), [3, 1]);
        assert_eq!(spm.encode("aaa", Markers::Text).unwrap(), [5, 0]);
        assert_eq!(spm.encode("baab", Markers::Text).unwrap(), [4, 2]);
    }

    #[test]
    fn a_blank_is_put_before_text_at_the_start_and_after_a_marker() {
        let spm = toy(true);
        assert_eq!(spm.encode("b", Markers::Text).unwrap(), [6, 1]);
        assert_eq!(spm.encode("b<s>b", Markers::Special).unwrap(), [6, 1, 50, 6, 1]);
        assert_eq!(spm.encode("", Markers::Text).unwrap(), [0u32; 0]);
    }

    #[test]
    fn unknown_characters_are_bytes_and_unknown_bytes_an_error() {
        let spm = toy(false);
        assert_eq!(spm.encode("é", Markers::Text).unwrap(), [100 + 0xC3, 100 + 0xA9]);
        let error = spm.encode("ab?", Markers::Text).unwrap_err();
        assert!(matches!(error, TokenizerError::MissingByte { byte: b'?', offset: 2 }), "{error}");
    }

    #[test]
    fn control_markers_are_text_unless_asked_and_the_longest_wins() {
        let spm = toy(false);
        assert!(spm.encode("<s>", Markers::Text).is_err());
        assert_eq!(spm.encode("<u>>a", Markers::Text).unwrap(), [52, 0]);
        assert_eq!(spm.encode("<u> \n a", Markers::Text).unwrap(), [51, 0]);
    }

    #[test]
    fn blanks_of_user_defined_tokens_are_visible_or_merge() {
        let entries = [("a".to_owned(), (0, -1.0)), (BLANK.to_owned(), (1, -2.0))].into();
        let marker = |text: &str, id, control| Marker { text: text.into(), id, control, rstrip: false };
        let markers = vec![
            marker("  ", 5, false),
            marker("\u{2581}\u{2581}\u{2581}", 6, false),
            marker("a a", 7, true),
        ];
        let spm = SentencePiece::new(entries, [None; 256], markers, false);
        let ids = |text| spm.encode(text, Markers::Special).unwrap();
        assert_eq!(ids("a  a"), [0, 5, 0]);
        assert_eq!(ids("a\u{2581}\u{2581}a"), [0, 5, 0]);
        assert_eq!(ids("a\u{2581} a"), [0, 5, 0]);
        assert_eq!(ids("a   a"), [0, 6, 0]);
        assert_eq!(ids(" \u{2581}  a a"), [6, 1, 7]);
        assert_eq!(ids(" \u{2581}\u{2581}  a"), [1, 5, 5, 0]);
        assert_eq!(ids("  \u{2581}\u{2581}\u{2581} a"), [5, 6, 1, 0]);
        assert_eq!(ids("a\u{2581}a"), [0, 1, 0]);
    }
}
