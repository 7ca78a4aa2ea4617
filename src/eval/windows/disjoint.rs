//! Windows side by side, second halves scored: the rule `llama.cpp`.

use super::{BosPlacement, Rule, Window, WindowError};

/// `n / context` windows; the tail is dropped, and fewer than two windows are refused.
pub fn windows(n: usize, context: usize, bos: BosPlacement) -> Result<Vec<Window>, WindowError> {
    if context < 4 {
        return Err(WindowError::Context(context));
    }
    let needed = context.saturating_mul(2);
    if n < needed {
        return Err(WindowError::TooShort { rule: Rule::LlamaCpp, needed, found: n });
    }
    let window = |index: usize| {
        let tokens = index * context..(index + 1) * context;
        let scored = tokens.start + context / 2 + 1..tokens.end;
        Window {
            weight: scored.len(),
            scored,
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
