//! Needles in the cells of a sweep.

use serde_json::{Map, Value, json};

use super::forecast::{Pass, Work};
use super::measures::explained;
use super::run::{CellError, CellProgress, Found, Measurement};
use crate::checkpoint::tokenizer::{Bos, Markers, Tokenizer};
use crate::eval::needle::{
    Cell, Depths, Frame, NeedleError, NeedleRequest, NeedleResult, Retrieval, ScoreKind, Share, Source, Task,
    ValueKind, ValueMaker, plan, run,
};
use crate::model::{LanguageModel, ModelError};
use crate::named::Named;

/// One number hidden in generated prose, at several depths.
#[derive(Debug, Clone, PartialEq)]
pub struct NeedleSettings {
    pub depths: Vec<f64>,
    pub trials: usize,
    pub digits: u32,
    pub score: ScoreKind,
    pub seed: u64,
    /// Whether prompts share the cache, see [`NeedleRequest::share`].
    pub share: bool,
}

/// Wrong answers for every right one.
const DECOYS: usize = 15;

/// Retrieval at one length.
pub struct NeedleCell<'a> {
    tokenizer: &'a Tokenizer,
    request: NeedleRequest,
    inputs: Value,
    answer_room: usize,
    /// Tokens of a right or wrong answer, about.
    candidate_tokens: usize,
}

impl<'a> NeedleCell<'a> {
    /// Checks that the questions can be asked in a context of `context` tokens.
    ///
    /// # Errors
    /// A sentence why they cannot: too short for the needle, depths outside 0 to 1.
    pub fn new(settings: &NeedleSettings, context: usize, tokenizer: &'a Tokenizer) -> Result<Self, String> {
        let kind = |kind| ValueMaker { kind, digits: settings.digits };
        let task = Retrieval {
            keys: 1,
            values: 1,
            queries: 1,
            key_maker: kind(ValueKind::Word),
            value_maker: kind(ValueKind::Number),
        };
        let request = NeedleRequest {
            task: Task::Retrieval(task),
            source: Source::Prose,
            lengths: vec![context],
            depths: Depths::At(settings.depths.clone()),
            trials: settings.trials,
            seed: settings.seed,
            score: settings.score,
            decoys: DECOYS,
            max_new_tokens: None,
            frame: Frame::plain(tokenizer),
            control: true,
            share: settings.share,
        };
        let answer_room = plan(tokenizer, &request).map_err(|error| explained(&error))?.answer_room;
        let number = format!(" {}", "7".repeat(settings.digits as usize));
        let candidate = tokenizer.encode(&number, Bos::Never, Markers::Text);
        let candidate_tokens = candidate.map_err(|error| explained(&error))?.len();
        let inputs = json!({
            "task": "single",
            "haystack": "prose",
            "digits": settings.digits,
            "depths": settings.depths,
            "trials": settings.trials,
            "score": settings.score.name(),
            "decoys": DECOYS,
            "shared": settings.share,
        });
        Ok(Self { tokenizer, request, inputs, answer_room, candidate_tokens })
    }

    fn depths(&self) -> Vec<f64> {
        self.request.depths.cells().into_iter().flatten().collect()
    }
}

impl Measurement for NeedleCell<'_> {
    fn inputs(&self) -> Value {
        self.inputs.clone()
    }

    /// A prompt shares what stands before its needle with the prompts whose needles stand deeper; the control is whole.
    /// Each candidate behind it is a few tokens, read for little more than the price of writing one.
    fn work(&self) -> Work {
        let length = self.request.lengths[0] - self.answer_room;
        let generated = if self.request.score.generation() { self.answer_room } else { 0 };
        let candidates = if self.request.score.likelihood() { DECOYS + 1 } else { 0 };
        let candidate_tokens = candidates * self.candidate_tokens.saturating_sub(2);
        let pass = |depth: f64| {
            let start = if self.request.share { (depth * length as f64) as usize } else { 0 };
            let prompt = Pass { start, tokens: length - start, scored: 0, decoded: generated };
            [prompt, Pass { start: length, tokens: candidate_tokens, scored: 0, decoded: candidates }]
        };
        let one: Vec<Pass> = std::iter::once(0.0).chain(self.depths()).flat_map(pass).collect();
        Work { passes: one.repeat(self.request.trials) }
    }

    fn measure(
        &self,
        model: &dyn LanguageModel,
        progress: &mut dyn FnMut(CellProgress),
    ) -> Result<Found, CellError> {
        let planned =
            plan(self.tokenizer, &self.request).map_err(|error| CellError::Failed(explained(&error)))?;
        let tokens = self.work().tokens();
        let found = run(model, &planned, &mut |at| {
            let share = at.likelihood.or(at.generation);
            let so_far = share.map_or(String::new(), |share| format!("needle {:.0} %", 100.0 * share));
            progress(CellProgress { done_tokens: tokens * at.done / at.total.max(1), so_far });
        });
        match found {
            Ok(found) if found.interrupted => Err(CellError::Interrupted),
            Ok(found) => Ok(Found { result: self.result(&found), timing: Map::new() }),
            Err(NeedleError::Model { source, .. }) if matches!(*source, ModelError::Interrupted { .. }) => {
                Err(CellError::Interrupted)
            }
            Err(error) => Err(CellError::Failed(explained(&error))),
        }
    }
}

impl NeedleCell<'_> {
    fn result(&self, found: &NeedleResult) -> Value {
        let length = self.request.lengths[0];
        let (likelihood, generation) = (found.likelihood_at(length), found.generation_at(length));
        let mean = |share: Option<Share>| share.map(|share| share.mean);
        let main = likelihood.or(generation);
        let depth = |cell: &Cell| {
            json!({
                "depth": cell.depth,
                "likelihood": mean(cell.likelihood()),
                "margin": cell.margin(),
                "mean_rank": cell.mean_rank(),
                "generation": mean(cell.generation()),
            })
        };
        json!({
            "needle": mean(main),
            "needle_low": main.map(|share| share.interval.low),
            "needle_high": main.map(|share| share.interval.high),
            "needle_generation": mean(generation),
            "chance": found.chance,
            "control": found.controls.first().and_then(|cell| mean(cell.likelihood())),
            "prompts": found.tokens.prompts,
            "computed_tokens": found.tokens.computed,
            "naive_tokens": found.tokens.naive,
            "by_depth": found.cells.iter().map(depth).collect::<Value>(),
        })
    }
}
