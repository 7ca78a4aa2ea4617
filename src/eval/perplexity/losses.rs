//! The loss of every scored token, held so that everything else can be computed from it.

use std::ops::Range;

/// Scored tokens of one window; they follow each other in the text.
#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    /// Index of the document, and of the window in it.
    pub document: usize,
    pub window: usize,
    /// Index in the document of the first scored token.
    pub first_token: usize,
    /// Tokens of context before it in its window, a beginning-of-sequence token included.
    pub first_position: usize,
    /// Weight of the window's mean loss in the mean of all.
    pub weight: usize,
    /// Where its losses are.
    pub losses: Range<usize>,
}

/// One scored token.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TokenLoss {
    pub document: usize,
    pub window: usize,
    /// Index in the document.
    pub token: usize,
    /// Tokens of context before it in its window, a beginning-of-sequence token included.
    pub position: usize,
    /// Its share in the weight of its window.
    pub weight: f64,
    /// Negative log-likelihood in nats.
    pub nll: f64,
}

/// Losses in the order of the plan: by document, window and token.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Losses {
    pub runs: Vec<Run>,
    /// Negative log-likelihoods in nats, one per scored token.
    pub nll: Vec<f32>,
}

impl Losses {
    /// Adds the losses of one window; `run.losses` is set here.
    pub fn push(&mut self, run: Run, nll: &[f32]) {
        let start = self.nll.len();
        self.nll.extend(nll);
        self.runs.push(Run { losses: start..self.nll.len(), ..run });
    }

    pub fn len(&self) -> usize {
        self.nll.len()
    }

    pub fn is_empty(&self) -> bool {
        self.nll.is_empty()
    }

    /// Every scored token.
    pub fn tokens(&self) -> impl Iterator<Item = TokenLoss> + '_ {
        self.runs.iter().flat_map(|run| self.tokens_of(run))
    }

    /// The scored tokens of one of `runs`.
    pub fn tokens_of(&self, run: &Run) -> impl Iterator<Item = TokenLoss> + '_ {
        let weight = run.weight as f64 / run.losses.len() as f64;
        let run = run.clone();
        self.nll[run.losses.clone()].iter().enumerate().map(move |(offset, nll)| TokenLoss {
            document: run.document,
            window: run.window,
            token: run.first_token + offset,
            position: run.first_position + offset,
            weight,
            nll: f64::from(*nll),
        })
    }
}
