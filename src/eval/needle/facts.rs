//! What needles say, and how it is asked for.

use std::collections::HashSet;

use super::NeedleError;
use super::random::Random;
use super::values::{ValueMaker, fresh_key};

/// One thing to remember.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fact {
    pub key: String,
    pub value: String,
}

/// Makes facts with keys and values of given kinds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FactMaker {
    pub keys: ValueMaker,
    pub values: ValueMaker,
    /// Whether a key has several values.
    pub several: bool,
}

impl FactMaker {
    /// A fact whose key and value are not in `taken`, which they then are.
    ///
    /// # Errors
    /// [`NeedleError::Exhausted`] when there are not enough keys or values.
    pub fn fresh(self, random: &mut Random, taken: &mut HashSet<String>) -> Result<Fact, NeedleError> {
        let key = fresh_key(self.keys, random, taken)?;
        Ok(Fact { key, value: self.values.fresh(random, taken)? })
    }
}

impl Fact {
    /// The needle. `several`: the key has other values too.
    pub fn sentence(&self, several: bool) -> String {
        let opening = if several { "One secret code" } else { "The secret code" };
        format!("{opening} of {} is {}.", self.key, self.value)
    }
}

/// The question for the codes of `keys`, and the beginning of its answer, up to the first code.
pub fn question(keys: &[&str], several: bool) -> (String, String) {
    let of = list(keys);
    match several || keys.len() > 1 {
        true => (format!("What are the secret codes of {of}?"), format!("The secret codes of {of} are")),
        false => (format!("What is the secret code of {of}?"), format!("The secret code of {of} is")),
    }
}

/// `a`, `a and b`, `a, b and c`
pub fn list(items: &[&str]) -> String {
    match items {
        [] => String::new(),
        [only] => (*only).to_string(),
        [most @ .., last] => format!("{} and {last}", most.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn needle_and_answer_use_the_same_words() {
        let fact = Fact { key: "the tin box".into(), value: "12".into() };
        let (asked, answer) = question(&["the tin box"], false);
        assert_eq!(asked, "What is the secret code of the tin box?");
        assert_eq!(fact.sentence(false), format!("{answer} 12."));
        let (asked, answer) = question(&["a", "b", "c"], false);
        assert_eq!(asked, "What are the secret codes of a, b and c?");
        assert_eq!(answer, "The secret codes of a, b and c are");
        assert_eq!(list(&[]), "");
    }
}
