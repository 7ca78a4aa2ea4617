//! Which tokens are scored in which window: the part of a perplexity rule that is pure counting.

mod disjoint;
mod rolling;
mod sliding;
#[cfg(test)]
mod tests;

use std::ops::Range;

use crate::named::Named;

/// A published way to cut a text into windows and to score them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// Windows of `context` tokens begin every `stride` tokens; each scores the tokens that no earlier window has
    /// scored. Every token counts once, so the mean is over tokens.
    Strided,
    /// The same windows over a text that begins with its one beginning-of-sequence token, if any. The mean is over
    /// windows, each with a weight of its labels less one, although only a window without earlier context loses a label.
    /// Source: transformers, `docs/source/en/perplexity.md`, the sliding-window recipe.
    Hf,
    /// Disjoint windows of `context` tokens, the tail dropped; the second half of each is scored.
    /// Source: llama.cpp, `tools/perplexity/perplexity.cpp`, without `--ppl-stride`.
    LlamaCpp,
    /// Windows of a beginning-of-sequence token and `context - 1` tokens begin every `stride` tokens, and the mean is
    /// over the mean losses of windows, whatever their length.
    /// Source: the YaRN authors' `eval/perplexity.py` (sliding window).
    Yarn,
    /// A prefix token and the first `context - 1` tokens predict `context` tokens; later windows predict the next
    /// `context` tokens behind one token of context, the last one behind as many as fill it.
    /// Source: lm-evaluation-harness, `lm_eval/utils.py`, rolling windows with `context_len` 1, made disjoint.
    LmEval,
}

impl Rule {
    /// Whether windows begin every `stride` tokens.
    pub fn has_stride(self) -> bool {
        matches!(self, Rule::Strided | Rule::Hf | Rule::Yarn)
    }

    /// Tokens from one window to the next when nothing else is asked for.
    pub fn default_stride(self, context: usize) -> usize {
        match self {
            Rule::Strided | Rule::Hf => context.div_ceil(2),
            Rule::Yarn => 256,
            Rule::LlamaCpp | Rule::LmEval => context,
        }
    }

    /// Whether a beginning-of-sequence token is the first token of the text, and counts as one of it, instead of being
    /// put before windows.
    pub fn bos_is_in_text(self) -> bool {
        matches!(self, Rule::Hf | Rule::LlamaCpp)
    }

    /// Where the rule can have its beginning-of-sequence token.
    pub fn placements(self) -> &'static [BosPlacement] {
        use BosPlacement::{Every, First, Never};
        match self {
            Rule::Strided | Rule::LlamaCpp => &[Never, First, Every],
            Rule::Hf | Rule::LmEval => &[Never, First],
            Rule::Yarn => &[Never, Every],
        }
    }
}

impl Named for Rule {
    const WHAT: &'static str = "rule";
    const ALL: &'static [Self] = &[Self::Strided, Self::Hf, Self::LlamaCpp, Self::Yarn, Self::LmEval];

    fn name(self) -> &'static str {
        match self {
            Rule::Strided => "strided",
            Rule::Hf => "hf",
            Rule::LlamaCpp => "llama.cpp",
            Rule::Yarn => "yarn",
            Rule::LmEval => "lm-eval",
        }
    }
}

/// Where windows carry the beginning-of-sequence token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BosPlacement {
    Never,
    /// Before the first window's tokens.
    First,
    /// Before the tokens of every window.
    Every,
}

impl Named for BosPlacement {
    const WHAT: &'static str = "placement";
    const ALL: &'static [Self] = &[Self::Never, Self::First, Self::Every];

    fn name(self) -> &'static str {
        match self {
            BosPlacement::Never => "never",
            BosPlacement::First => "first",
            BosPlacement::Every => "always",
        }
    }
}

/// Why a text cannot be cut into windows.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WindowError {
    #[error("rule `{}` needs at least {needed} tokens, the text has {found}", .rule.name())]
    TooShort { rule: Rule, needed: usize, found: usize },
    #[error(
        "the stride of {stride} must be between 1 and {most} in windows of {context} tokens by rule `{}`",
        .rule.name()
    )]
    Stride { rule: Rule, stride: usize, most: usize, context: usize },
    #[error("a context of {0} tokens is too short to score anything")]
    Context(usize),
    #[error(
        "rule `{}` has no beginning-of-sequence token placed `{}`; accepted: {}",
        .rule.name(), .bos.name(), names(.rule.placements())
    )]
    Bos { rule: Rule, bos: BosPlacement },
}

fn names(placements: &[BosPlacement]) -> String {
    let names: Vec<&str> = placements.iter().map(|placement| placement.name()).collect();
    names.join(", ")
}

/// One forward pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Window {
    /// Tokens of the text that go through the model.
    pub tokens: Range<usize>,
    /// Whether a beginning-of-sequence token stands before them.
    pub prepend_bos: bool,
    /// Whether the first of them is overwritten by the beginning-of-sequence token (llama.cpp).
    pub overwrite_bos: bool,
    /// Tokens whose probability counts; the last may be the one that follows `tokens`.
    pub scored: Range<usize>,
    /// Weight of the window's mean loss in the mean of all: for a mean over tokens, how many it scores.
    pub weight: usize,
}

impl Window {
    /// Tokens that go through the model, the beginning-of-sequence token included.
    pub fn len(&self) -> usize {
        self.tokens.len() + usize::from(self.prepend_bos)
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What goes through the model. `text`: the whole text; `bos`: the token that stands at its places.
    pub fn input(&self, text: &[u32], bos: Option<u32>) -> Vec<u32> {
        let mut input = Vec::with_capacity(self.len());
        if self.prepend_bos {
            input.extend(bos);
        }
        input.extend(&text[self.tokens.clone()]);
        if let (true, Some(bos)) = (self.overwrite_bos, bos) {
            input[0] = bos;
        }
        input
    }

    /// Tokens of context before the first scored one; each later one has one more.
    pub fn first_position(&self) -> usize {
        self.scored.start - self.tokens.start + usize::from(self.prepend_bos)
    }
}

/// The windows of `rule` over a text of `n` tokens.
///
/// `context`: tokens of a window, a beginning-of-sequence token included. `stride`: see [`Rule::has_stride`]; others
/// ignore it. Where [`Rule::bos_is_in_text`], `n` counts the token that the tokenizer put in front, and with
/// [`Rule::LlamaCpp`] `bos` says which windows have their first token overwritten.
///
/// # Errors
/// A text too short to score a token, a stride that leaves gaps or does not advance, a placement that the rule has not.
pub fn windows(
    rule: Rule,
    n: usize,
    context: usize,
    stride: usize,
    bos: BosPlacement,
) -> Result<Vec<Window>, WindowError> {
    if !rule.placements().contains(&bos) {
        return Err(WindowError::Bos { rule, bos });
    }
    match rule {
        Rule::Strided | Rule::Hf | Rule::Yarn => sliding::windows(rule, n, context, stride, bos),
        Rule::LlamaCpp => disjoint::windows(n, context, bos),
        Rule::LmEval => rolling::windows(n, context, bos),
    }
}
