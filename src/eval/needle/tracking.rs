//! Variable tracking: chains of assignments hidden in a haystack, all variables of one chain asked for.
//! Source: RULER's variable tracking (Hsieh et al. 2024, section 3).

use std::collections::HashSet;

use super::NeedleError;
use super::exam::{Contest, Exam, Question};
use super::facts::FactMaker;
use super::random::Random;
use super::retrieval::{Hidden, Needle, Place};
use super::task::Setting;
use super::values::{Candidate, ValueKind, ValueMaker, decoys, typical};

/// Digits of the value that a chain begins with, as in RULER.
const VALUE_DIGITS: u32 = 5;
/// Letters of a variable's name.
const NAME_LETTERS: usize = 5;

/// Chains and their length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tracking {
    pub chains: usize,
    /// Assignments from one variable to the next; a chain has one variable more.
    pub hops: usize,
}

fn name(random: &mut Random) -> String {
    (0..NAME_LETTERS).map(|_| char::from(random.pick(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ"))).collect()
}

impl Tracking {
    pub(super) fn exam(&self, setting: &Setting<'_>, trial: usize) -> Result<Exam, NeedleError> {
        let mut random = setting.random("chains", trial);
        let mut taken = HashSet::new();
        let maker = ValueMaker { kind: ValueKind::Number, digits: VALUE_DIGITS };
        let value = maker.fresh(&mut random, &mut taken)?;
        let of = format!("the value {value}");
        let (asked, opening) =
            (format!("Which variables have {of}?"), format!("The variables that have {of} are"));
        let mut question = Question::new(setting.frame, &asked, &opening, setting.fragments)?;
        // All names have the same number of tokens, so that their probabilities compare.
        let before = question.before_answer;
        let first = typical(before, setting.fragments, || name(&mut random))?;
        taken.insert(first.text.clone());
        let count = self.chains * (self.hops + 1) - 1;
        let draw = || name(&mut random);
        let mut names = decoys(&first, count, before, setting.fragments, &mut taken, draw)?;
        names.insert(0, first);
        let mut needles = Vec::new();
        for (index, chain) in names.chunks(self.hops + 1).enumerate() {
            let start = match index {
                0 => value.clone(),
                _ => maker.fresh(&mut random, &mut taken)?,
            };
            self.hide(index, &start, chain, &mut random, setting, &mut needles)?;
        }
        let (right, wrong) = names.split_at(self.hops + 1);
        for answer in right {
            let mut all: Vec<Candidate> = wrong.iter().take(setting.decoys).cloned().collect();
            let missing = setting.decoys - all.len();
            let draw = || name(&mut random);
            all.extend(decoys(answer, missing, before, setting.fragments, &mut taken, draw)?);
            question.contests.push(Contest { answer: answer.clone(), decoys: all });
            question.wanted.push(answer.text.clone());
        }
        let makers =
            FactMaker { keys: ValueMaker { kind: ValueKind::Word, ..maker }, values: maker, several: false };
        let hay = setting.haystack(makers, trial, &taken)?;
        let head = setting.head("Remember the value of every variable in this text.")?;
        let body = Box::new(Hidden { hay, control: None, needles });
        Ok(Exam { head, body, questions: vec![question] })
    }

    /// The assignments of one chain, in order, at random depths.
    fn hide(
        &self,
        index: usize,
        start: &str,
        chain: &[Candidate],
        random: &mut Random,
        setting: &Setting<'_>,
        needles: &mut Vec<Needle>,
    ) -> Result<(), NeedleError> {
        let mut depths: Vec<f64> = chain.iter().map(|_| random.unit()).collect();
        depths.sort_by(f64::total_cmp);
        let mut source = start.to_string();
        for (variable, depth) in chain.iter().zip(depths) {
            let text = format!("Variable {} is set to {source}.", variable.text);
            source = format!("variable {}", variable.text);
            let place = if index == 0 { Place::FixedAnswer(depth) } else { Place::Fixed(depth) };
            needles.push(Needle::new(&text, place, setting.fragments)?);
        }
        Ok(())
    }
}
