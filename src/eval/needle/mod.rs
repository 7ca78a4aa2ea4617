//! Retrieval over a long context: needles by depth and length, scored by likelihood and by generation.
//!
//! A trial hides facts in filler and asks for them. The *likelihood* score compares the log-probability of the right answer
//! with that of wrong ones of the same form, after the same prompt; it says something for models that cannot chat. The
//! *generation* score continues greedily and looks for the answer. Both use the same prefill, and prompts that begin with
//! the same tokens share it.

mod aggregation;
mod custom;
mod exam;
mod facts;
mod fragments;
mod frame;
mod haystack;
mod lists;
mod plan;
mod prose;
mod random;
mod result;
mod retrieval;
mod runner;
mod score;
mod task;
mod tracking;
mod values;
mod words;

pub use aggregation::{CommonWords, FrequentWords};
pub use custom::Custom;
pub use frame::Frame;
pub use haystack::{Source, Text};
pub use plan::{Plan, plan};
pub use result::{Cell, Generated, Interval, NeedleResult, Ranked, Share, TokenCount, Trial};
pub use runner::{Progress, run};
pub use task::{Retrieval, Task};
pub use tracking::Tracking;
pub use values::{ValueKind, ValueMaker};

use crate::checkpoint::chat_template::ChatTemplateError;
use crate::checkpoint::tokenizer::TokenizerError;
use crate::model::ModelError;
use crate::named::Named;

/// Why a run of needles could not be planned or measured.
#[derive(Debug, thiserror::Error)]
pub enum NeedleError {
    #[error("the text has {found} tokens, the longest prompt needs {needed} of them")]
    TextTooShort { needed: usize, found: usize },
    #[error("a length of {length} tokens is too short: this task needs at least {needed}")]
    Length { length: usize, needed: usize },
    /// Within a length, before head, question and answer room are added.
    #[error("{found} tokens are left for the text, it needs at least {needed}")]
    Budget { needed: usize, found: usize },
    #[error("an answer may need {needed} tokens, there is room for {found}")]
    Room { needed: usize, found: usize },
    #[error("there are not enough different values: found {found}, no further {what}")]
    Exhausted { what: String, found: usize },
    #[error("no wrong answers can be made for `{answer}`")]
    NoDecoys { answer: String },
    #[error("the chat template does not print the user's message exactly once")]
    Template,
    #[error("nothing to measure: {0}")]
    Empty(&'static str),
    #[error("this task has no depth: its answers are spread over the text")]
    Depthless,
    #[error("`{0}` is not a depth between 0 and 1")]
    Depth(f64),
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    #[error(transparent)]
    ChatTemplate(#[from] ChatTemplateError),
    #[error("cannot run a prompt of {tokens} tokens")]
    Model { tokens: usize, source: Box<ModelError> },
}

/// Which scores are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ScoreKind {
    Likelihood,
    Generation,
    #[default]
    Both,
}

impl ScoreKind {
    pub fn likelihood(self) -> bool {
        self != ScoreKind::Generation
    }

    pub fn generation(self) -> bool {
        self != ScoreKind::Likelihood
    }
}

impl Named for ScoreKind {
    const WHAT: &'static str = "score";
    const ALL: &'static [Self] = &[Self::Likelihood, Self::Generation, Self::Both];

    fn name(self) -> &'static str {
        match self {
            ScoreKind::Likelihood => "likelihood",
            ScoreKind::Generation => "generation",
            ScoreKind::Both => "both",
        }
    }
}

/// Where answers are hidden.
#[derive(Debug, Clone, PartialEq)]
pub enum Depths {
    /// A cell for each: 0 is the start of the text, 1 its end.
    At(Vec<f64>),
    /// One cell a length; each trial has random depths of its own, as in RULER.
    Spread,
}

impl Depths {
    /// A cell for each.
    pub fn cells(&self) -> Vec<Option<f64>> {
        match self {
            Depths::At(depths) => depths.iter().copied().map(Some).collect(),
            Depths::Spread => vec![None],
        }
    }
}

/// A grid of needles. What a trial hides depends on the seed and the trial's number only, so a cell is the same whatever
/// other cells are asked for.
#[derive(Debug, Clone)]
pub struct NeedleRequest {
    pub task: Task,
    pub source: Source,
    /// Tokens of prompt and answer together, exactly.
    pub lengths: Vec<usize>,
    pub depths: Depths,
    /// Repetitions of every cell with other needles, keys and filler.
    pub trials: usize,
    pub seed: u64,
    pub score: ScoreKind,
    /// Wrong answers for every right one.
    pub decoys: usize,
    /// Room for the answer; `None`: what the longest right answer needs, and a few words.
    pub max_new_tokens: Option<usize>,
    pub frame: Frame,
    /// Whether the questions are also asked on text without the answers.
    pub control: bool,
    /// Whether prompts that begin with the same tokens share the cache. Under frequencies that follow the length reached
    /// (`DynamicPolicy::Current` and `Recompute`) this changes results and must be off.
    pub share: bool,
}

#[cfg(test)]
mod tests;
