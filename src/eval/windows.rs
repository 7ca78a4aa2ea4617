//! Which tokens are scored in which window: the part of a perplexity rule that is pure counting.

use std::ops::Range;

use crate::named::Named;

/// A published way to cut a text into windows and to score them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// Windows of `context` tokens begin every `stride` tokens; each scores the tokens that no earlier window has
    /// scored. Every token counts once, so the mean is over tokens.
    Strided,
    /// Disjoint windows of `context` tokens, the tail dropped; the second half of each is scored.
    /// Source: llama.cpp, `tools/perplexity/perplexity.cpp`, without `--ppl-stride`.
    LlamaCpp,
}

impl Named for Rule {
    const WHAT: &'static str = "rule";
    const ALL: &'static [Self] = &[Self::Strided, Self::LlamaCpp];

    fn name(self) -> &'static str {
        match self {
            Rule::Strided => "strided",
            Rule::LlamaCpp => "llama.cpp",
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

/// Why a text cannot be cut into windows.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WindowError {
    #[error("rule `{}` needs at least {needed} tokens, the text has {found}", .rule.name())]
    TooShort { rule: Rule, needed: usize, found: usize },
    #[error("the stride of {stride} must be between 1 and {most}, the text tokens in a window of {context}")]
    Stride { stride: usize, most: usize, context: usize },
    #[error("a context of {0} tokens is too short to score anything")]
    Context(usize),
}

/// One forward pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Window {
    /// Tokens of the text in this window.
    pub tokens: Range<usize>,
    /// Whether a beginning-of-sequence token stands before them.
    pub prepend_bos: bool,
    /// Whether the first of them is overwritten by the beginning-of-sequence token (llama.cpp).
    pub overwrite_bos: bool,
    /// Tokens whose probability counts.
    pub scored: Range<usize>,
}

impl Window {
    /// Tokens that go through the model, the beginning-of-sequence token included.
    pub fn len(&self) -> usize {
        self.tokens.len() + usize::from(self.prepend_bos)
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The windows of `rule` over a text of `n` tokens.
///
/// `context`: tokens of a window, a beginning-of-sequence token included. For [`Rule::LlamaCpp`], `n` counts the
/// one that the tokenizer put in front, and [`BosPlacement::Every`] overwrites the first token of each window.
///
/// # Errors
/// A text too short to score a token, a stride that leaves gaps or does not advance.
pub fn windows(
    rule: Rule,
    n: usize,
    context: usize,
    stride: usize,
    bos: BosPlacement,
) -> Result<Vec<Window>, WindowError> {
    match rule {
        Rule::Strided => strided(n, context, stride, bos),
        Rule::LlamaCpp => llama_cpp(n, context, bos),
    }
}

fn strided(n: usize, context: usize, stride: usize, bos: BosPlacement) -> Result<Vec<Window>, WindowError> {
    if context < 2 {
        return Err(WindowError::Context(context));
    }
    let room = |with_bos: bool| context - usize::from(with_bos);
    let most = room(bos != BosPlacement::Never);
    if stride == 0 || stride > most {
        return Err(WindowError::Stride { stride, most, context });
    }
    let needed = 1 + usize::from(bos == BosPlacement::Never);
    if n < needed {
        let (rule, found) = (Rule::Strided, n);
        return Err(WindowError::TooShort { rule, needed, found });
    }
    let mut all: Vec<Window> = Vec::new();
    let mut scored_to = 0;
    for begin in (0..n).step_by(stride) {
        let prepend_bos = match bos {
            BosPlacement::Never => false,
            BosPlacement::First => begin == 0,
            BosPlacement::Every => true,
        };
        let end = (begin + room(prepend_bos)).min(n);
        // The first token of a window has nothing before it to be predicted from.
        let first_scorable = begin + usize::from(!prepend_bos);
        let scored = scored_to.max(first_scorable)..end;
        if !scored.is_empty() {
            all.push(Window { tokens: begin..end, prepend_bos, overwrite_bos: false, scored });
        }
        scored_to = end;
        if end == n {
            break;
        }
    }
    Ok(all)
}

fn llama_cpp(n: usize, context: usize, bos: BosPlacement) -> Result<Vec<Window>, WindowError> {
    if context < 4 {
        return Err(WindowError::Context(context));
    }
    if n < 2 * context {
        return Err(WindowError::TooShort { rule: Rule::LlamaCpp, needed: 2 * context, found: n });
    }
    let window = |index: usize| {
        let tokens = index * context..(index + 1) * context;
        Window {
            scored: tokens.start + context / 2 + 1..tokens.end,
            prepend_bos: false,
            overwrite_bos: match bos {
                BosPlacement::Never => false,
                BosPlacement::First => index == 0,
                BosPlacement::Every => true,
            },
            tokens,
        }
    };
    Ok((0..n / context).map(window).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scored(windows: &[Window]) -> usize {
        windows.iter().map(|w| w.scored.len()).sum()
    }

    /// D085: 1000 tokens, windows of 128 every 32: all but the first token are scored.
    #[test]
    fn d085_strided_scores_every_token_but_the_first_once() {
        let all = windows(Rule::Strided, 1000, 128, 32, BosPlacement::Never).unwrap();
        assert_eq!(scored(&all), 999);
        assert_eq!(all.last().unwrap().tokens, 896..1000);
        let mut next = 1;
        for window in &all {
            assert_eq!(window.scored.start, next);
            next = window.scored.end;
        }
        assert_eq!(next, 1000);
    }

    #[test]
    fn strided_with_bos_scores_the_first_token_too() {
        for bos in [BosPlacement::First, BosPlacement::Every] {
            let all = windows(Rule::Strided, 1000, 128, 32, bos).unwrap();
            assert_eq!(scored(&all), 1000);
            assert!(all.iter().all(|window| window.len() <= 128));
        }
    }

    #[test]
    fn stride_equal_to_context_loses_one_token_a_window() {
        let all = windows(Rule::Strided, 1000, 100, 100, BosPlacement::Never).unwrap();
        assert_eq!(scored(&all), 990);
    }

    #[test]
    fn llama_cpp_scores_second_halves_and_drops_the_tail() {
        let all = windows(Rule::LlamaCpp, 1100, 512, 512, BosPlacement::Every).unwrap();
        assert_eq!(all.len(), 2);
        assert_eq!(all[1].scored, 512 + 257..1024);
        assert_eq!(scored(&all), 2 * 255);
        assert!(all.iter().all(|window| window.overwrite_bos));
    }

    #[test]
    fn texts_too_short_and_bad_strides_are_refused() {
        let short = windows(Rule::LlamaCpp, 1023, 512, 512, BosPlacement::Never);
        assert!(matches!(short, Err(WindowError::TooShort { needed: 1024, found: 1023, .. })));
        let one = windows(Rule::Strided, 1, 128, 32, BosPlacement::Never);
        assert!(matches!(one, Err(WindowError::TooShort { needed: 2, .. })));
        for stride in [0, 129] {
            let gap = windows(Rule::Strided, 1000, 128, stride, BosPlacement::Never);
            assert!(matches!(gap, Err(WindowError::Stride { .. })));
        }
        let tiny = windows(Rule::Strided, 1000, 1, 1, BosPlacement::Never);
        assert_eq!(tiny, Err(WindowError::Context(1)));
    }
}
