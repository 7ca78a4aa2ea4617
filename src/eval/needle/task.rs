//! What is hidden and asked for, task by task.
//!
//! Source of the tasks: RULER (Hsieh et al. 2024, arXiv:2404.06654, section 3); all words are ropex's own.

use std::collections::HashSet;

use super::NeedleError;
use super::exam::{Contest, Exam, Question};
use super::facts::{Fact, FactMaker, question};
use super::fragments::Fragments;
use super::frame::Frame;
use super::haystack::{Haystack, Source};
use super::random::Random;
use super::retrieval::{Hidden, Needle, Place};
use super::values::{Candidate, ValueMaker, value_decoys};

/// What a run asks for.
#[derive(Debug, Clone)]
pub enum Task {
    Retrieval(Retrieval),
    Tracking(super::tracking::Tracking),
    CommonWords(super::aggregation::CommonWords),
    FrequentWords(super::aggregation::FrequentWords),
    Custom(super::custom::Custom),
}

/// Keys with codes, hidden in a haystack; some of them are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retrieval {
    /// Keys in the text; those beyond `queries` are distractors.
    pub keys: usize,
    /// Codes of each key that is asked for.
    pub values: usize,
    /// Keys that are asked for.
    pub queries: usize,
    pub key_maker: ValueMaker,
    pub value_maker: ValueMaker,
}

/// What all trials of a run have in common.
pub struct Setting<'a> {
    pub source: &'a Source,
    pub frame: &'a Frame,
    pub fragments: &'a Fragments<'a>,
    pub seed: u64,
    /// Wrong answers for every right one.
    pub decoys: usize,
    /// Most tokens that a body may need.
    pub longest: usize,
}

impl Task {
    /// Whether answers stand at a depth of their own, so that a cell can set it.
    pub fn has_depth(&self) -> bool {
        matches!(self, Task::Retrieval(_) | Task::Custom(_))
    }

    /// Trial number `trial`; it depends on the setting and its number only.
    ///
    /// # Errors
    /// Values that run out, a text that is too short, a vocabulary that cannot write the words.
    pub fn exam(&self, setting: &Setting<'_>, trial: usize) -> Result<Exam, NeedleError> {
        match self {
            Task::Retrieval(task) => task.exam(setting, trial),
            Task::Tracking(task) => task.exam(setting, trial),
            Task::CommonWords(task) => task.exam(setting, trial),
            Task::FrequentWords(task) => task.exam(setting, trial),
            Task::Custom(task) => task.exam(setting, trial),
        }
    }
}

impl Setting<'_> {
    pub fn random(&self, purpose: &str, trial: usize) -> Random {
        Random::new(self.seed, purpose, trial)
    }

    /// The frame's tokens and an introduction.
    pub fn head(&self, introduction: &str) -> Result<Vec<u32>, NeedleError> {
        let mut head = self.frame.before.clone();
        head.extend(self.fragments.encode(&format!("{introduction}\n\n"))?);
        Ok(head)
    }

    pub fn candidate(&self, before: &str, text: &str) -> Result<Candidate, NeedleError> {
        Candidate::new(before, text, self.fragments)
    }

    /// A haystack for the longest body of a trial.
    pub fn haystack(
        &self,
        maker: FactMaker,
        trial: usize,
        taken: &HashSet<String>,
    ) -> Result<Haystack, NeedleError> {
        Haystack::new(self.source, maker, (self.seed, trial, self.longest), taken, self.fragments)
    }
}

impl Retrieval {
    fn fact_maker(&self) -> FactMaker {
        FactMaker { keys: self.key_maker, values: self.value_maker, several: self.values > 1 }
    }

    fn exam(&self, setting: &Setting<'_>, trial: usize) -> Result<Exam, NeedleError> {
        let mut random = setting.random("facts", trial);
        let mut taken = HashSet::new();
        let maker = self.fact_maker();
        let mut asked: Vec<Vec<Fact>> = Vec::new();
        for _ in 0..self.queries {
            let first = maker.fresh(&mut random, &mut taken)?;
            let mut all = vec![first];
            for _ in 1..self.values {
                let value = self.value_maker.fresh(&mut random, &mut taken)?;
                all.push(Fact { key: all[0].key.clone(), value });
            }
            asked.push(all);
        }
        let mut others = Vec::new();
        for _ in self.queries..self.keys.max(self.queries) {
            others.push(maker.fresh(&mut random, &mut taken)?);
        }
        let hay = setting.haystack(maker, trial, &taken)?;
        taken.extend(hay.facts.iter().flat_map(|fact| [fact.key.clone(), fact.value.clone()]));
        let present: Vec<&Fact> = others.iter().chain(&hay.facts).collect();
        let questions = self.questions(setting, &asked, &present, &mut random, &mut taken)?;
        let control = match setting.source {
            Source::Needles => Some(setting.haystack(maker, trial + CONTROL_TRIALS, &taken)?),
            _ => None,
        };
        let mut needles = Vec::new();
        for fact in asked.iter().flatten() {
            let place = Place::Cell(random.unit());
            needles.push(Needle::new(&fact.sentence(maker.several), place, setting.fragments)?);
        }
        for fact in &others {
            let place = Place::Fixed(random.unit());
            needles.push(Needle::new(&fact.sentence(maker.several), place, setting.fragments)?);
        }
        let introduction = "Remember every secret code in this text.";
        let head = setting.head(introduction)?;
        Ok(Exam { head, body: Box::new(Hidden { hay, control, needles }), questions })
    }

    /// With one key, one question for both scores. With several, a question for each by likelihood, and one for all of
    /// them by generation.
    fn questions(
        &self,
        setting: &Setting<'_>,
        asked: &[Vec<Fact>],
        present: &[&Fact],
        random: &mut Random,
        taken: &mut HashSet<String>,
    ) -> Result<Vec<Question>, NeedleError> {
        let several = self.values > 1;
        let ask = |keys: &[&str]| {
            let (question, opening) = question(keys, several);
            Question::new(setting.frame, &question, &opening, setting.fragments)
        };
        let mut questions = Vec::new();
        for facts in asked {
            let mut question = ask(&[&facts[0].key])?;
            let before = question.before_answer;
            let elsewhere = asked.iter().filter(|other| *other != facts).flatten();
            let wrong: Vec<&Fact> = elsewhere.chain(present.iter().copied()).collect();
            for fact in facts {
                let answer = setting.candidate(before, &fact.value)?;
                let mut decoys = Vec::new();
                // Values that stand in the text are the hard ones.
                for fact in wrong.iter().take(setting.decoys) {
                    let candidate = setting.candidate(before, &fact.value)?;
                    decoys.extend(Some(candidate).filter(|c| c.tokens.len() == answer.tokens.len()));
                }
                let missing = setting.decoys - decoys.len();
                let maker = self.value_maker;
                decoys.extend(value_decoys(
                    maker,
                    &answer,
                    missing,
                    before,
                    setting.fragments,
                    random,
                    taken,
                )?);
                question.contests.push(Contest { answer, decoys });
            }
            questions.push(question);
        }
        let wanted = asked.iter().flatten().map(|fact| fact.value.clone()).collect();
        match questions.as_mut_slice() {
            [only] => only.wanted = wanted,
            _ => {
                let keys: Vec<&str> = asked.iter().map(|facts| facts[0].key.as_str()).collect();
                questions.push(Question { wanted, ..ask(&keys)? });
            }
        }
        Ok(questions)
    }
}

/// Control haystacks take the numbers of trials from here on.
const CONTROL_TRIALS: usize = 1 << 32;
