//! Asking: one prefill for all prompts that begin alike, one for all answers to a prompt.

use std::collections::BTreeMap;

use super::exam::{Contest, Question};
use super::plan::{CellId, Item, Plan};
use super::result::{Cell, Generated, NeedleResult, Ranked, TokenCount, Trial};
use super::score::{log_probs, rank, strict, substring};
use super::values::Candidate;
use super::{NeedleError, NeedleRequest};
use crate::model::{LanguageModel, ModelError, Session, Want};

/// How far a run is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Progress {
    /// Tokens computed, and how many there will be if every answer takes all of its room.
    pub done: usize,
    pub total: usize,
    /// Share of answers ranked first so far, controls left out.
    pub likelihood: Option<f64>,
    /// Share of answers generated so far, controls left out.
    pub generation: Option<f64>,
}

/// Asks every question of a plan.
///
/// # Errors
/// A failing model. Ctrl-C is no error: what was done by then is returned.
pub fn run(
    model: &dyn LanguageModel,
    plan: &Plan<'_>,
    progress: &mut dyn FnMut(Progress),
) -> Result<NeedleResult, NeedleError> {
    let mut run = Run::new(model, plan)?;
    let mut interrupted = false;
    for trial in 0..plan.request.trials {
        let items = plan.items(trial)?;
        match run.trial(trial, items, progress) {
            Ok(()) => {}
            Err(NeedleError::Model { source, .. }) if matches!(*source, ModelError::Interrupted { .. }) => {
                interrupted = true;
                break;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(run.finish(interrupted))
}

/// Tokens of `items` in their order when each keeps what it shares with the one before it; `last`: the prompt before them.
fn shared_tokens(items: &[Item], last: &mut Vec<u32>) -> usize {
    let mut computed = 0;
    for item in items {
        computed += item.tokens.len() - kept(last, &item.tokens);
        last.clone_from(&item.tokens);
    }
    computed
}

/// Tokens at the end of a prompt that are computed even where they are in the cache: the last one for its logits, and the
/// others because engines take a few tokens another way, as in decoding, which rounds differently.
const ALWAYS_COMPUTED: usize = 32;

/// Tokens at the start of `prompt` that are in the cache and stay there.
fn kept(cached: &[u32], prompt: &[u32]) -> usize {
    let same = cached.iter().zip(prompt).take_while(|(a, b)| a == b).count();
    same.min(prompt.len().saturating_sub(ALWAYS_COMPUTED))
}

/// A cache and what is in it.
struct Shared<'m> {
    session: Box<dyn Session + 'm>,
    prompt: Vec<u32>,
}

struct Run<'a, 'm> {
    model: &'m dyn LanguageModel,
    plan: &'a Plan<'a>,
    request: &'a NeedleRequest,
    /// By planned length.
    sessions: BTreeMap<usize, Shared<'m>>,
    cells: BTreeMap<CellId, Vec<Trial>>,
    tokens: TokenCount,
    total: usize,
}

impl<'a, 'm> Run<'a, 'm> {
    fn new(model: &'m dyn LanguageModel, plan: &'a Plan<'a>) -> Result<Self, NeedleError> {
        let mut run = Self {
            model,
            plan,
            request: plan.request,
            sessions: BTreeMap::new(),
            cells: BTreeMap::new(),
            tokens: TokenCount::default(),
            total: 0,
        };
        let mut last: BTreeMap<usize, Vec<u32>> = BTreeMap::new();
        for trial in 0..run.request.trials {
            let items = plan.items(trial)?;
            for (length, items) in run.by_session(items) {
                run.total += match run.request.share {
                    true => shared_tokens(&items, last.entry(length).or_default()),
                    false => items.iter().map(|item| item.tokens.len()).sum(),
                };
                let answers = items.iter().map(|item| {
                    let question = &plan.exams[trial].questions[item.question];
                    let room = plan.answer_room * usize::from(run.generates(question));
                    candidates(question).iter().map(|c| c.tokens.len() - 1).sum::<usize>() + room
                });
                run.total += answers.sum::<usize>();
            }
        }
        Ok(run)
    }

    fn generates(&self, question: &Question) -> bool {
        self.request.score.generation() && !question.wanted.is_empty()
    }

    /// Prompts by the length that their session is planned for: all in one, unless frequencies depend on it.
    fn by_session(&self, items: Vec<Item>) -> BTreeMap<usize, Vec<Item>> {
        let lengths = &self.request.lengths;
        let longest = lengths.iter().copied().max().unwrap_or(0);
        let by_length = self.model.rope().spec.depends_on_length();
        let mut groups: BTreeMap<usize, Vec<Item>> = BTreeMap::new();
        for item in items {
            let planned = if by_length { lengths[item.cell.length] } else { longest };
            groups.entry(planned).or_default().push(item);
        }
        groups
    }

    fn trial(
        &mut self,
        number: usize,
        items: Vec<Item>,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<(), NeedleError> {
        let plan = self.plan;
        let asked = plan.asked(number).len();
        let mut open: BTreeMap<CellId, (usize, Trial)> = BTreeMap::new();
        for (planned, items) in self.by_session(items) {
            for item in items {
                let question = &plan.exams[number].questions[item.question];
                let (ranked, generated) = self.ask(planned, &item, question, progress)?;
                let entry = open.entry(item.cell).or_default();
                entry.0 += 1;
                entry.1.number = number;
                entry.1.depths = item.depths;
                entry.1.ranked.extend(ranked);
                entry.1.generated = generated.or(entry.1.generated.take());
                if entry.0 == asked {
                    let (_, trial) = open.remove(&item.cell).unwrap_or_default();
                    self.cells.entry(item.cell).or_default().push(trial);
                }
            }
        }
        Ok(())
    }

    /// One prompt, with both scores.
    fn ask(
        &mut self,
        planned: usize,
        item: &Item,
        question: &Question,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<(Vec<Ranked>, Option<Generated>), NeedleError> {
        let mut shared = match self.sessions.remove(&planned) {
            Some(shared) if self.request.share => shared,
            _ => {
                let session = self.model.session(planned).map_err(failed(0))?;
                Shared { session, prompt: Vec::new() }
            }
        };
        let keep = kept(&shared.prompt, &item.tokens);
        let n = item.tokens.len();
        shared.session.truncate(keep);
        let so_far = self.progress();
        let mut report = |tokens| progress(Progress { done: so_far.done + tokens, ..so_far });
        let logits =
            shared.session.extend(&item.tokens[keep..], Want::LastLogits, &mut report).map_err(failed(n))?;
        self.tokens.computed += n - keep;
        self.tokens.naive += n;
        self.tokens.prompts += 1;
        let ranked = self.rank(&mut *shared.session, &logits, question, n)?;
        let generated = match self.generates(question) {
            true => Some(self.generate(&mut *shared.session, logits, question, n)?),
            false => None,
        };
        shared.session.truncate(n);
        shared.prompt.clone_from(&item.tokens);
        if self.request.share {
            self.sessions.insert(planned, shared);
        }
        progress(self.progress());
        Ok((ranked, generated))
    }

    /// The likelihood of every candidate behind the prompt of `n` tokens whose last logits are given.
    fn rank(
        &mut self,
        session: &mut dyn Session,
        logits: &[f32],
        question: &Question,
        n: usize,
    ) -> Result<Vec<Ranked>, NeedleError> {
        if !self.request.score.likelihood() {
            return Ok(Vec::new());
        }
        let mut known: BTreeMap<&[u32], f64> = BTreeMap::new();
        for candidate in candidates(question) {
            let (first, rest) = candidate.tokens.split_at(1);
            let mut log_prob = log_probs(logits, first.iter().copied())[0];
            if !rest.is_empty() {
                session.truncate(n);
                let read = &candidate.tokens[..rest.len()];
                let want = Want::LogProbs { first_row: 0, targets: rest };
                let found = session.extend(read, want, &mut |_| ()).map_err(failed(n))?;
                log_prob += found.iter().map(|x| f64::from(*x)).sum::<f64>();
            }
            self.tokens.computed += rest.len();
            self.tokens.naive += rest.len();
            self.tokens.naive_per_candidate += n + rest.len();
            known.insert(&candidate.tokens, log_prob);
        }
        session.truncate(n);
        let of = |candidate: &Candidate| known[candidate.tokens.as_slice()];
        Ok(question.contests.iter().map(|contest| ranked(contest, of)).collect())
    }

    /// Continues greedily until every answer is there, the text ends or the room is used up.
    fn generate(
        &mut self,
        session: &mut dyn Session,
        mut logits: Vec<f32>,
        question: &Question,
        n: usize,
    ) -> Result<Generated, NeedleError> {
        let tokenizer = self.plan.tokenizer;
        let mut stream = tokenizer.stream_continuing(true);
        let mut text = String::new();
        let mut read = 0;
        for step in 1..=self.plan.answer_room {
            let token = most_likely(&logits);
            if tokenizer.is_eos(token) {
                break;
            }
            text.push_str(&stream.push(token)?);
            // A number at the end may still grow.
            let closed = !text.ends_with(|c: char| c.is_alphanumeric() || matches!(c, '.' | ','));
            if step == self.plan.answer_room || closed && strict(&text, &question.wanted) == 1.0 {
                break;
            }
            logits = session.extend(&[token], Want::LastLogits, &mut |_| ()).map_err(failed(n))?;
            read += 1;
        }
        text.push_str(&stream.finish());
        self.tokens.computed += read;
        self.tokens.naive += read;
        self.tokens.naive_per_candidate += n + read;
        let (strict, substring) = (strict(&text, &question.wanted), substring(&text, &question.wanted));
        Ok(Generated { text, strict, substring })
    }

    fn progress(&self) -> Progress {
        let cells = || self.cells.iter().filter(|(cell, _)| cell.depth.is_some()).flat_map(|(_, t)| t);
        Progress {
            done: self.tokens.computed,
            total: self.total,
            likelihood: super::result::likelihood(cells()).map(|share| share.mean),
            generation: super::result::generation(cells()).map(|share| share.mean),
        }
    }

    fn finish(mut self, interrupted: bool) -> NeedleResult {
        let request = self.request;
        let depths = request.depths.cells();
        let mut cell = |length: usize, depth: Option<usize>| Cell {
            length: request.lengths[length],
            depth: depth.and_then(|index| depths[index]),
            prompt_tokens: self.plan.prompt_tokens(request.lengths[length]),
            trials: self.cells.remove(&CellId { length, depth }).unwrap_or_default(),
        };
        let lengths = 0..request.lengths.len();
        let controls =
            if request.control { lengths.clone().map(|l| cell(l, None)).collect() } else { Vec::new() };
        let cells = lengths.flat_map(|l| (0..depths.len()).map(move |d| (l, d)));
        let cells = cells.map(|(l, d)| cell(l, Some(d))).collect();
        NeedleResult {
            cells,
            controls,
            answer_room: self.plan.answer_room,
            chance: self.plan.chance(),
            tokens: self.tokens,
            interrupted,
        }
    }
}

/// Every different candidate of a question.
fn candidates(question: &Question) -> Vec<&Candidate> {
    let all = question.contests.iter().flat_map(|contest| contest.decoys.iter().chain([&contest.answer]));
    let distinct: BTreeMap<&[u32], &Candidate> = all.map(|c| (c.tokens.as_slice(), c)).collect();
    distinct.into_values().collect()
}

fn ranked(contest: &Contest, log_prob: impl Fn(&Candidate) -> f64) -> Ranked {
    let own = log_prob(&contest.answer);
    let decoys: Vec<f64> = contest.decoys.iter().map(&log_prob).collect();
    let best = (0..decoys.len()).max_by(|a, b| decoys[*a].total_cmp(&decoys[*b]));
    Ranked {
        answer: contest.answer.text.clone(),
        log_prob: own,
        rank: rank(own, &decoys),
        decoys: decoys.len(),
        best_decoy: best.map(|best| contest.decoys[best].text.clone()).unwrap_or_default(),
        best_decoy_log_prob: best.map_or(f64::NEG_INFINITY, |best| decoys[best]),
    }
}

/// The id of the largest logit, the first of equal ones.
fn most_likely(logits: &[f32]) -> u32 {
    let mut best = 0;
    for (id, logit) in logits.iter().enumerate() {
        if *logit > logits[best] {
            best = id;
        }
    }
    best as u32
}

fn failed(tokens: usize) -> impl FnOnce(ModelError) -> NeedleError {
    move |source| NeedleError::Model { tokens, source: Box::new(source) }
}
