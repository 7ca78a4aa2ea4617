//! A needle in the user's own words.

use std::collections::HashSet;

use super::NeedleError;
use super::exam::{Contest, Exam, Question};
use super::facts::FactMaker;
use super::random::Random;
use super::retrieval::{Hidden, Needle, Place};
use super::task::Setting;
use super::values::{Candidate, ValueKind, ValueMaker, decoys, value_decoys};
use super::words::{ANIMALS, PEOPLE, PLACES, THINGS};

/// What is hidden, asked and expected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Custom {
    pub needle: String,
    pub question: String,
    pub answer: String,
    /// Words that the answer begins with, up to `answer`; `None`: the needle's own, where it holds the answer.
    pub opening: Option<String>,
    /// Wrong answers; empty: made to look like `answer`.
    pub decoys: Vec<String>,
}

/// How the letters of a word are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Case {
    Lower,
    Upper,
    Capital,
}

impl Case {
    fn of(word: &str) -> Self {
        let upper = word.chars().filter(|c| c.is_uppercase()).count();
        match upper {
            0 => Case::Lower,
            n if n > 1 && n == word.chars().count() => Case::Upper,
            _ => Case::Capital,
        }
    }

    fn write(self, word: &str) -> String {
        match self {
            Case::Lower => word.to_string(),
            Case::Upper => word.to_uppercase(),
            Case::Capital => word[..1].to_uppercase() + &word[1..],
        }
    }
}

impl Custom {
    fn opening(&self) -> String {
        let own = || self.needle.split_once(&self.answer).map_or("", |(before, _)| before.trim());
        self.opening.as_deref().unwrap_or_else(own).to_string()
    }

    pub(super) fn exam(&self, setting: &Setting<'_>, trial: usize) -> Result<Exam, NeedleError> {
        let mut random = setting.random("custom", trial);
        let mut question = Question::new(setting.frame, &self.question, &self.opening(), setting.fragments)?;
        question.wanted = vec![self.answer.clone()];
        if setting.decoys > 0 {
            let answer = setting.candidate(question.before_answer, &self.answer)?;
            let decoys = self.wrong(&answer, question.before_answer, setting, &mut random)?;
            question.contests = vec![Contest { answer, decoys }];
        }
        let place = Place::Cell(random.unit());
        let needles = vec![Needle::new(&self.needle, place, setting.fragments)?];
        let any = ValueMaker { kind: ValueKind::Word, digits: 1 };
        let maker = FactMaker { keys: any, values: any, several: false };
        let taken = HashSet::from([self.answer.clone()]);
        let hay = setting.haystack(maker, trial, &taken)?;
        let head = setting.head("Read this text; a question follows.")?;
        Ok(Exam { head, body: Box::new(Hidden { hay, control: None, needles }), questions: vec![question] })
    }

    fn wrong(
        &self,
        answer: &Candidate,
        before: &str,
        setting: &Setting<'_>,
        random: &mut Random,
    ) -> Result<Vec<Candidate>, NeedleError> {
        let given = self.decoys.iter().filter(|decoy| **decoy != self.answer);
        if !self.decoys.is_empty() {
            return given.take(setting.decoys).map(|text| setting.candidate(before, text)).collect();
        }
        let (count, fragments) = (setting.decoys, setting.fragments);
        let mut taken = HashSet::from([self.answer.clone()]);
        let text = self.answer.as_str();
        let digits = text.len() as u32;
        if text.bytes().all(|b| b.is_ascii_digit()) && (1..=18).contains(&digits) && !text.starts_with('0') {
            let maker = ValueMaker { kind: ValueKind::Number, digits };
            return value_decoys(maker, answer, count, before, fragments, random, &mut taken);
        }
        if !text.is_empty() && text.chars().all(char::is_alphabetic) {
            let case = Case::of(text);
            const NOUNS: [&[&str]; 4] = [ANIMALS, THINGS, PEOPLE, PLACES];
            let draw = || {
                let nouns = random.pick(&NOUNS);
                case.write(random.pick(nouns))
            };
            return decoys(answer, count, before, fragments, &mut taken, draw);
        }
        Err(NeedleError::NoDecoys { answer: self.answer.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn custom(needle: &str, answer: &str) -> Custom {
        let (needle, answer) = (needle.to_string(), answer.to_string());
        Custom { needle, question: "What?".into(), answer, opening: None, decoys: Vec::new() }
    }

    #[test]
    fn the_answer_begins_as_the_needle_does() {
        assert_eq!(custom("the secret code is FROG", "FROG").opening(), "the secret code is");
        assert_eq!(custom("FROG is it", "FROG").opening(), "");
        assert_eq!(custom("it jumps", "FROG").opening(), "");
    }

    #[test]
    fn wrong_words_are_written_like_the_right_one() {
        for (answer, expected) in [("FROG", "CRANE"), ("Frog", "Crane"), ("frog", "crane"), ("A", "Crane")] {
            assert_eq!(Case::of(answer).write("crane"), expected);
        }
    }
}
