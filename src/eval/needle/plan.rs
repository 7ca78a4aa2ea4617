//! From a request to prompts: every one as long as asked for, to the token.

use super::exam::{Exam, Question};
use super::fragments::Fragments;
use super::task::Setting;
use super::{NeedleError, NeedleRequest};
use crate::checkpoint::tokenizer::Tokenizer;

/// Tokens that an answer may spend on other words.
const ROOM_FOR_WORDS: usize = 8;

/// Every trial of a request, ready to be asked.
pub struct Plan<'a> {
    pub(super) request: &'a NeedleRequest,
    pub(super) tokenizer: &'a Tokenizer,
    pub(super) exams: Vec<Exam>,
    /// Tokens kept free for the answer.
    pub answer_room: usize,
    /// What the user should know about the decoys.
    pub warnings: Vec<String>,
}

/// Where a prompt belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct CellId {
    /// Number of the length.
    pub length: usize,
    /// Number of the depth; `None`: the control.
    pub depth: Option<usize>,
}

/// One prompt.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Item {
    pub cell: CellId,
    pub question: usize,
    /// Head, text and question.
    pub tokens: Vec<u32>,
    /// Where the answers stand.
    pub depths: Vec<f64>,
}

/// Checks a request and makes its trials.
///
/// # Errors
/// What is asked for cannot be: no length or trial, a depth outside 0 to 1 or for a task without, lengths too short for
/// the task or too long for the text, no wrong answers.
pub fn plan<'a>(tokenizer: &'a Tokenizer, request: &'a NeedleRequest) -> Result<Plan<'a>, NeedleError> {
    let longest = check(request)?;
    let fragments = Fragments::new(tokenizer)?;
    let setting = Setting {
        source: &request.source,
        frame: &request.frame,
        fragments: &fragments,
        seed: request.seed,
        decoys: if request.score.likelihood() { request.decoys } else { 0 },
        longest,
    };
    let exams: Vec<Exam> = (0..request.trials)
        .map(|trial| request.task.exam(&setting, trial))
        .collect::<Result<_, NeedleError>>()?;
    let mut needed = 0;
    for exam in &exams {
        needed = needed.max(exam.longest_answer(&fragments)?);
    }
    let answer_room = request.max_new_tokens.unwrap_or(needed + ROOM_FOR_WORDS);
    if answer_room < needed {
        return Err(NeedleError::Room { needed, found: answer_room });
    }
    let warnings = unequal_decoys(&exams).into_iter().collect();
    let plan = Plan { request, tokenizer, exams, answer_room, warnings };
    // The shortest prompt and the longest one of every trial fit, so all do.
    for trial in 0..request.trials {
        for length in [request.lengths.iter().min(), request.lengths.iter().max()].into_iter().flatten() {
            plan.prompt(trial, *length, request.depths.cells()[0], true, 0)?;
            if request.control {
                plan.prompt(trial, *length, None, false, 0)?;
            }
        }
    }
    Ok(plan)
}

/// The longest length of a request that makes sense.
fn check(request: &NeedleRequest) -> Result<usize, NeedleError> {
    if request.trials == 0 {
        return Err(NeedleError::Empty("0 trials"));
    }
    if request.score.likelihood() && request.decoys == 0 {
        return Err(NeedleError::Empty("0 decoys"));
    }
    let cells = request.depths.cells();
    if cells.is_empty() {
        return Err(NeedleError::Empty("no depth"));
    }
    if let Some(depth) = cells.iter().flatten().find(|depth| !(0.0..=1.0).contains(*depth)) {
        return Err(NeedleError::Depth(*depth));
    }
    if !request.task.has_depth() && cells[0].is_some() {
        return Err(NeedleError::Depthless);
    }
    request.lengths.iter().copied().max().ok_or(NeedleError::Empty("no length"))
}

/// A longer answer is less likely by its length alone.
fn unequal_decoys(exams: &[Exam]) -> Option<String> {
    let contests = exams.iter().flat_map(|exam| &exam.questions).flat_map(|question| &question.contests);
    let unequal: usize = contests
        .map(|c| c.decoys.iter().filter(|decoy| decoy.tokens.len() != c.answer.tokens.len()).count())
        .sum();
    (unequal > 0).then(|| {
        format!("{unequal} decoy(s) have more or fewer tokens than the answer: longer ones are less likely by that alone")
    })
}

impl Plan<'_> {
    /// Tokens of the longest prompt of `length`.
    pub fn prompt_tokens(&self, length: usize) -> usize {
        length - self.answer_room
    }

    /// The tokens of a prompt and where its answers stand.
    pub(super) fn prompt(
        &self,
        trial: usize,
        length: usize,
        depth: Option<f64>,
        with_answers: bool,
        question: usize,
    ) -> Result<(Vec<u32>, Vec<f64>), NeedleError> {
        let exam = &self.exams[trial];
        let fixed = exam.overhead() + self.answer_room;
        let Some(budget) = length.checked_sub(fixed).filter(|budget| *budget > 0) else {
            return Err(NeedleError::Length { length, needed: fixed + 1 });
        };
        let filled = exam.body.fill(budget, depth, with_answers).map_err(|error| match error {
            NeedleError::Budget { needed, .. } => NeedleError::Length { length, needed: needed + fixed },
            other => other,
        })?;
        let tail = &exam.questions[question].tail;
        let mut tokens = Vec::with_capacity(length);
        tokens.extend(&exam.head);
        tokens.extend(filled.tokens);
        tokens.extend(tail);
        Ok((tokens, filled.depths))
    }

    /// Numbers of the questions that the score asks.
    pub(super) fn asked(&self, trial: usize) -> Vec<usize> {
        let score = self.request.score;
        let questions = self.exams[trial].questions.iter().enumerate();
        let is_asked = |question: &Question| {
            score.likelihood() && !question.contests.is_empty()
                || score.generation() && !question.wanted.is_empty()
        };
        questions.filter(|(_, question)| is_asked(question)).map(|(number, _)| number).collect()
    }

    /// Every prompt of a trial, in the order of their tokens: neighbours share as much of their beginning as any two do, so
    /// walking the list computes every shared beginning once.
    pub(super) fn items(&self, trial: usize) -> Result<Vec<Item>, NeedleError> {
        let mut items = Vec::new();
        let mut add = |cell: CellId, depth: Option<f64>| -> Result<(), NeedleError> {
            for question in self.asked(trial) {
                let length = self.request.lengths[cell.length];
                let with_answers = cell.depth.is_some();
                let (tokens, depths) = self.prompt(trial, length, depth, with_answers, question)?;
                items.push(Item { cell, question, tokens, depths });
            }
            Ok(())
        };
        for length in 0..self.request.lengths.len() {
            for (index, depth) in self.request.depths.cells().into_iter().enumerate() {
                add(CellId { length, depth: Some(index) }, depth)?;
            }
            if self.request.control {
                add(CellId { length, depth: None }, None)?;
            }
        }
        items.sort_by(|a, b| a.tokens.cmp(&b.tokens));
        Ok(items)
    }
}

impl Plan<'_> {
    /// The likelihood score of a model that knows nothing: one over the number of candidates, averaged over answers.
    pub fn chance(&self) -> Option<f64> {
        let contests =
            self.exams.iter().flat_map(|exam| &exam.questions).flat_map(|question| &question.contests);
        let each: Vec<f64> = contests.map(|contest| 1.0 / (contest.decoys.len() + 1) as f64).collect();
        (!each.is_empty()).then(|| each.iter().sum::<f64>() / each.len() as f64)
    }
}
