//! The text that needles are hidden in, as tokens with the places where sentences begin.

use std::borrow::Cow;
use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use rayon::prelude::*;

use super::NeedleError;
use super::facts::{Fact, FactMaker};
use super::fragments::Fragments;
use super::prose::Prose;
use super::random::Random;
use crate::checkpoint::tokenizer::TokenizerError;

/// Sentences that are tokenised together.
const BATCH: usize = 512;
/// A sentence longer than this many bytes is cut at white space, so that needles find a place in text without full stops.
const LONGEST_SENTENCE: usize = 1000;

/// Five short sentences over and over: the easiest haystack. RULER has such a one.
const NOISE: [&str; 5] = [
    "The river is wide.",
    " The hills are old.",
    " The wind is cold.",
    " We walk along the road.",
    " The day goes by.\n",
];

/// Where a haystack comes from.
#[derive(Debug, Clone)]
pub enum Source {
    /// Sentences from a grammar, without end.
    Prose,
    /// Five sentences, repeated.
    Noise,
    /// Needles about other keys, and nothing else.
    Needles,
    /// A text of the user.
    Text(Arc<Text>),
}

impl Source {
    pub fn name(&self) -> &str {
        match self {
            Source::Prose => "prose",
            Source::Noise => "noise",
            Source::Needles => "needles",
            Source::Text(text) => &text.name,
        }
    }
}

/// A text cut into sentences.
#[derive(Debug)]
pub struct Text {
    /// For reports and errors.
    name: String,
    text: String,
    sentences: Vec<Range<usize>>,
    /// Whether it begins again where it ends; else it is used once.
    repeat: bool,
}

impl Text {
    pub fn new(name: String, text: String, repeat: bool) -> Self {
        let sentences = sentences(&text);
        Self { name, text, sentences, repeat }
    }

    /// All sentences from number `start` on and around, without end when the text repeats.
    fn from(&self, start: usize) -> impl Iterator<Item = Cow<'_, str>> {
        let n = self.sentences.len();
        let count = if self.repeat && n > 0 { usize::MAX } else { n };
        (0..count).map(move |i| Cow::Borrowed(&self.text[self.sentences[(start + i) % n].clone()]))
    }
}

/// Byte ranges of the sentences of `text`, which together are all of it.
///
/// A sentence ends behind a full stop, question or exclamation mark with white space after it, or at a blank line. A line
/// break belongs to the sentence before it, a space to the one after it: that is how tokenizers join them.
fn sentences(text: &str) -> Vec<Range<usize>> {
    let bytes = text.as_bytes();
    let mut all = Vec::new();
    let mut start = 0;
    let mut at = 0;
    while at < bytes.len() {
        at += 1;
        if !text.is_char_boundary(at) || at == bytes.len() {
            continue;
        }
        let blank = bytes[at..].iter().take_while(|b| b.is_ascii_whitespace()).count();
        let ends = blank > 0 && {
            let last = text[start..at].trim_end_matches(['"', '\'', ')', ']', '”', '’']);
            let lines = bytes[at..at + blank].iter().filter(|b| **b == b'\n').count();
            let too_long = at - start > LONGEST_SENTENCE;
            last.ends_with(['.', '?', '!']) || lines > 1 || too_long
        };
        if !ends && !text[..at].ends_with(['。', '？', '！']) {
            continue;
        }
        if bytes[at..at + blank].contains(&b'\n') {
            at += blank;
        }
        all.push(start..at);
        start = at;
    }
    if start < bytes.len() {
        all.push(start..bytes.len());
    }
    all
}

/// Tokens of filler with the borders of its sentences.
#[derive(Debug, Clone, PartialEq)]
pub struct Haystack {
    pub tokens: Vec<u32>,
    /// Where each sentence begins, in tokens; ascending from 0.
    starts: Vec<usize>,
    /// Whether each sentence brings the space before it.
    spaced: Vec<bool>,
    /// What the sentences say, when they are needles themselves.
    pub facts: Vec<Fact>,
}

/// A place between two sentences.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Border {
    /// Tokens before it.
    pub at: usize,
    /// Whether the sentence behind it brings the space before it.
    pub spaced: bool,
}

impl Haystack {
    /// Filler of at least `needed` tokens for one trial, or the whole text of the user where that is shorter and does not
    /// repeat. Every longer one begins with the same tokens.
    ///
    /// `maker` and `taken`: for [`Source::Needles`], what its needles say and the keys and values that they must not use.
    ///
    /// # Errors
    /// Values that run out, a vocabulary that cannot write the text.
    pub fn new(
        source: &Source,
        maker: FactMaker,
        (seed, trial, needed): (u64, usize, usize),
        taken: &HashSet<String>,
        fragments: &Fragments<'_>,
    ) -> Result<Self, NeedleError> {
        let mut facts = Vec::new();
        let mut random = Random::new(seed, "haystack", trial);
        let mut hay = Self { tokens: Vec::new(), starts: Vec::new(), spaced: Vec::new(), facts: Vec::new() };
        match source {
            Source::Prose => hay.fill(Prose::new(random).map(Cow::from), needed, fragments)?,
            Source::Noise => hay.fill(NOISE.iter().cycle().map(|s| Cow::from(*s)), needed, fragments)?,
            Source::Needles => {
                let mut taken = taken.clone();
                let mut failed = None;
                let sentences = std::iter::from_fn(|| match maker.fresh(&mut random, &mut taken) {
                    Ok(fact) => {
                        let before = if facts.is_empty() { "" } else { " " };
                        let sentence = format!("{before}{}", fact.sentence(maker.several));
                        facts.push(fact);
                        Some(Cow::from(sentence))
                    }
                    Err(error) => {
                        failed = Some(error);
                        None
                    }
                });
                hay.fill(sentences, needed, fragments)?;
                if let (Some(error), true) = (failed, hay.tokens.len() < needed) {
                    return Err(error);
                }
            }
            Source::Text(text) => {
                // The first trial reads from the start, the others from a sentence of their own.
                let n = text.sentences.len().max(1);
                let start = if trial == 0 { 0 } else { random.below(n) };
                hay.fill(text.from(start), needed, fragments)?;
            }
        }
        facts.truncate(hay.starts.len());
        hay.facts = facts;
        Ok(hay)
    }

    /// Appends sentences until there are `needed` tokens.
    fn fill<'s>(
        &mut self,
        mut sentences: impl Iterator<Item = Cow<'s, str>>,
        needed: usize,
        fragments: &Fragments<'_>,
    ) -> Result<(), TokenizerError> {
        while self.tokens.len() < needed {
            let batch: Vec<Cow<'s, str>> = sentences.by_ref().take(BATCH).collect();
            if batch.is_empty() {
                break;
            }
            let encoded: Vec<Vec<u32>> =
                batch.par_iter().map(|sentence| fragments.encode(sentence)).collect::<Result<_, _>>()?;
            for (sentence, ids) in batch.iter().zip(encoded) {
                self.starts.push(self.tokens.len());
                self.spaced.push(sentence.starts_with(char::is_whitespace));
                self.tokens.extend(ids);
            }
        }
        Ok(())
    }

    /// Tokens in a range.
    ///
    /// # Errors
    /// [`NeedleError::TextTooShort`]: a prompt is never shorter than asked for.
    pub fn slice(&self, range: Range<usize>) -> Result<&[u32], NeedleError> {
        let (needed, found) = (range.end, self.tokens.len());
        self.tokens.get(range).ok_or(NeedleError::TextTooShort { needed, found })
    }

    /// The borders among the first `limit` tokens, the start included.
    pub fn borders(&self, limit: usize) -> usize {
        self.starts.partition_point(|start| *start <= limit)
    }

    /// Border number `index`, counted from the start of the text.
    pub fn border(&self, index: usize) -> Border {
        Border { at: self.starts[index], spaced: self.spaced[index] }
    }

    /// Number of the border nearest to token `at` among those within `limit`.
    pub fn nearest(&self, at: usize, limit: usize) -> usize {
        let last = self.borders(limit) - 1;
        let above = self.starts.partition_point(|start| *start < at).min(last);
        let below = above.saturating_sub(1);
        if at.abs_diff(self.starts[below]) <= self.starts[above].abs_diff(at) { below } else { above }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(text: &str) -> Vec<&str> {
        sentences(text).into_iter().map(|range| &text[range]).collect()
    }

    #[test]
    fn sentences_end_where_a_reader_ends_them() {
        let text = "One. Two? \"Three!\" Mr 3.5 four\nlines.\nFive\n\nsix";
        let expected = ["One.", " Two?", " \"Three!\"", " Mr 3.5 four\nlines.\n", "Five\n\n", "six"];
        assert_eq!(cut(text), expected);
        assert_eq!(cut("一。二？三"), ["一。", "二？", "三"]);
        assert_eq!(cut(""), Vec::<&str>::new());
        assert_eq!(cut("  "), ["  "]);
    }

    #[test]
    fn text_without_full_stops_has_borders_too() {
        let text = "word ".repeat(1000);
        let pieces = cut(&text);
        assert!(pieces.len() > 3 && pieces.iter().all(|piece| piece.len() < LONGEST_SENTENCE + 10));
        assert_eq!(pieces.concat(), text);
    }

    #[test]
    fn a_text_goes_around_once_unless_it_repeats() {
        let text = |repeat| Text::new("t".into(), "A. B. C.".into(), repeat);
        let read = |text: &Text, start| text.from(start).take(5).collect::<String>();
        assert_eq!(read(&text(false), 1), " B. C.A.");
        assert_eq!(read(&text(true), 0), "A. B. C.A. B.");
    }

    #[test]
    fn the_nearest_border_is_found() {
        let starts = vec![0, 10, 20, 40];
        let hay = Haystack { tokens: vec![0; 50], spaced: vec![true; 4], starts, facts: Vec::new() };
        for (at, limit, expected) in [
            (0, 50, 0),
            (4, 50, 0),
            (6, 50, 1),
            (29, 50, 2),
            (31, 50, 3),
            (50, 50, 3),
            (50, 39, 2),
            (50, 5, 0),
        ] {
            assert_eq!(hay.nearest(at, limit), expected, "{at} {limit}");
        }
    }
}
