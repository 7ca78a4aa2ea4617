//! Windows that predict as many tokens as they read: the rule `lm-eval`.

use super::{BosPlacement, Rule, Window, WindowError};

/// The first window reads the prefix token and `context - 1` tokens and scores all it can predict, `context` of them.
/// Later ones read `context` tokens and score the next `context`, the last window those that are left. So a scored token
/// has at least one token of context, and those of the last window usually more.
///
/// Without a prefix token ([`BosPlacement::Never`]; the source always has one) the first token is not scored.
pub fn windows(n: usize, context: usize, bos: BosPlacement) -> Result<Vec<Window>, WindowError> {
    let prepend_bos = bos == BosPlacement::First;
    if context < 1 {
        return Err(WindowError::Context(context));
    }
    // Tokens that have nothing to be predicted from.
    let unscored = usize::from(!prepend_bos);
    if n < 1 + unscored {
        return Err(WindowError::TooShort { rule: Rule::LmEval, needed: 1 + unscored, found: n });
    }
    let end = n.min(context + unscored);
    let mut all = vec![Window {
        tokens: 0..end - 1,
        prepend_bos,
        overwrite_bos: false,
        scored: unscored..end,
        weight: end - unscored,
    }];
    let mut scored_to = end;
    while scored_to < n {
        let end = n.min(scored_to + context);
        let scored = scored_to..end;
        let weight = scored.len();
        let tokens = end - 1 - context..end - 1;
        all.push(Window { tokens, prepend_bos: false, overwrite_bos: false, scored, weight });
        scored_to = end;
    }
    Ok(all)
}
