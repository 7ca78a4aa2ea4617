//! What needles hide: numbers, words and UUIDs, and wrong answers that look like them.

use std::collections::HashSet;

use super::NeedleError;
use super::fragments::Fragments;
use super::random::Random;
use super::words::{ADJECTIVES, ANIMALS, THINGS};
use crate::named::Named;

/// Draws for one value of a given token length before the search is given up.
const MOST_DRAWS: usize = 2000;

/// The kind of a value or of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueKind {
    /// A number with a fixed count of digits, the first not 0.
    Number,
    /// An adjective and a noun.
    Word,
    /// 32 hexadecimal digits in groups.
    Uuid,
}

impl Named for ValueKind {
    const WHAT: &'static str = "kind of value";
    const ALL: &'static [Self] = &[Self::Number, Self::Word, Self::Uuid];

    fn name(self) -> &'static str {
        match self {
            ValueKind::Number => "number",
            ValueKind::Word => "word",
            ValueKind::Uuid => "uuid",
        }
    }
}

/// Makes values of one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ValueMaker {
    pub kind: ValueKind,
    /// Digits of a number, 1 to 18.
    pub digits: u32,
}

impl ValueMaker {
    fn draw(self, random: &mut Random) -> String {
        match self.kind {
            ValueKind::Number => {
                let lowest = 10usize.pow(self.digits - 1);
                (lowest + random.below(9 * lowest)).to_string()
            }
            ValueKind::Word => format!("{}-{}", random.pick(ADJECTIVES), random.pick(ANIMALS)),
            ValueKind::Uuid => uuid(random),
        }
    }

    /// A value that is not in `taken`, which it then is.
    ///
    /// # Errors
    /// [`NeedleError::Exhausted`] when there are not enough values of this kind.
    pub fn fresh(self, random: &mut Random, taken: &mut HashSet<String>) -> Result<String, NeedleError> {
        distinct(taken, self.kind.name(), || self.draw(random))
    }
}

fn uuid(random: &mut Random) -> String {
    let mut group = |digits: usize| -> String {
        (0..digits).map(|_| char::from(random.pick(b"0123456789abcdef"))).collect()
    };
    [8, 4, 4, 4, 12].map(&mut group).join("-")
}

/// What a needle is about: `the amber lantern`, or a UUID or number.
///
/// # Errors
/// [`NeedleError::Exhausted`] when there are not enough keys of this kind.
pub fn fresh_key(
    maker: ValueMaker,
    random: &mut Random,
    taken: &mut HashSet<String>,
) -> Result<String, NeedleError> {
    if maker.kind != ValueKind::Word {
        return maker.fresh(random, taken);
    }
    // Half of the short names are used up before longer ones begin, so that drawing stays quick.
    let long = taken.len() > ADJECTIVES.len() * THINGS.len() / 2;
    distinct(taken, "key", || {
        let short = format!("the {} {}", random.pick(ADJECTIVES), random.pick(THINGS));
        if long {
            format!("{short} of the {} {}", random.pick(ADJECTIVES), random.pick(ANIMALS))
        } else {
            short
        }
    })
}

/// The first of what `draw` makes that is not in `taken`.
pub fn distinct(
    taken: &mut HashSet<String>,
    what: &str,
    mut draw: impl FnMut() -> String,
) -> Result<String, NeedleError> {
    let found = (0..MOST_DRAWS).map(|_| draw()).find(|text| !taken.contains(text));
    let text = found.ok_or_else(|| NeedleError::Exhausted { what: what.to_string(), found: taken.len() })?;
    taken.insert(text.clone());
    Ok(text)
}

/// A possible answer, as text and as the tokens that would follow the prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    pub text: String,
    pub tokens: Vec<u32>,
}

impl Candidate {
    /// `before`: what joins it to the prompt, a space or nothing.
    ///
    /// # Errors
    /// A vocabulary that cannot write it.
    pub fn new(before: &str, text: &str, fragments: &Fragments<'_>) -> Result<Self, NeedleError> {
        let tokens = fragments.encode(&format!("{before}{text}"))?;
        Ok(Self { text: text.to_string(), tokens })
    }
}

/// The candidate with the median number of tokens among a few from `draw`: others of its length are easy to find.
///
/// # Errors
/// A vocabulary that cannot write them.
pub fn typical(
    before: &str,
    fragments: &Fragments<'_>,
    mut draw: impl FnMut() -> String,
) -> Result<Candidate, NeedleError> {
    const TRIED: usize = 9;
    let mut all = (0..TRIED)
        .map(|_| Candidate::new(before, &draw(), fragments))
        .collect::<Result<Vec<Candidate>, NeedleError>>()?;
    all.sort_by_key(|candidate| candidate.tokens.len());
    Ok(all.swap_remove(TRIED / 2))
}

/// `count` candidates from `draw` with as many tokens as `answer`, none of them in `taken`.
///
/// # Errors
/// [`NeedleError::Exhausted`] when too few are found.
pub fn decoys(
    answer: &Candidate,
    count: usize,
    before: &str,
    fragments: &Fragments<'_>,
    taken: &mut HashSet<String>,
    mut draw: impl FnMut() -> String,
) -> Result<Vec<Candidate>, NeedleError> {
    let mut found = Vec::with_capacity(count);
    for _ in 0..count {
        let mut fits = None;
        for _ in 0..MOST_DRAWS {
            let text = draw();
            if taken.contains(&text) {
                continue;
            }
            let candidate = Candidate::new(before, &text, fragments)?;
            if candidate.tokens.len() == answer.tokens.len() {
                taken.insert(text);
                fits = Some(candidate);
                break;
            }
        }
        let what = || format!("wrong answer as long as `{}` in tokens", answer.text);
        found.push(fits.ok_or_else(|| NeedleError::Exhausted { what: what(), found: found.len() })?);
    }
    Ok(found)
}

/// The wrong answers that [`ValueMaker`] makes for `answer`.
///
/// # Errors
/// As [`decoys`].
pub fn value_decoys(
    maker: ValueMaker,
    answer: &Candidate,
    count: usize,
    before: &str,
    fragments: &Fragments<'_>,
    random: &mut Random,
    taken: &mut HashSet<String>,
) -> Result<Vec<Candidate>, NeedleError> {
    decoys(answer, count, before, fragments, taken, || maker.draw(random))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_their_format() {
        let mut random = Random::new(0, "test", 0);
        let mut taken = HashSet::new();
        for digits in [1, 4, 7, 18] {
            let maker = ValueMaker { kind: ValueKind::Number, digits };
            let number = maker.fresh(&mut random, &mut taken).unwrap();
            assert_eq!(number.len(), digits as usize);
            assert!(number.bytes().all(|b| b.is_ascii_digit()) && !number.starts_with('0'), "{number}");
        }
        let uuid = ValueMaker { kind: ValueKind::Uuid, digits: 7 }.fresh(&mut random, &mut taken).unwrap();
        let groups: Vec<usize> = uuid.split('-').map(str::len).collect();
        assert_eq!(groups, [8, 4, 4, 4, 12], "{uuid}");
        let word = ValueMaker { kind: ValueKind::Word, digits: 7 }.fresh(&mut random, &mut taken).unwrap();
        assert_eq!(word.split('-').count(), 2, "{word}");
    }

    #[test]
    fn values_run_out_with_an_error_and_keys_do_not() {
        let mut random = Random::new(0, "test", 0);
        let mut taken = HashSet::new();
        let one_digit = ValueMaker { kind: ValueKind::Number, digits: 1 };
        for _ in 0..9 {
            one_digit.fresh(&mut random, &mut taken).unwrap();
        }
        let error = one_digit.fresh(&mut random, &mut taken).unwrap_err();
        assert!(matches!(error, NeedleError::Exhausted { found: 9, .. }), "{error}");
        let word = ValueMaker { kind: ValueKind::Word, digits: 7 };
        let mut keys = HashSet::new();
        for _ in 0..30_000 {
            fresh_key(word, &mut random, &mut keys).unwrap();
        }
    }
}
