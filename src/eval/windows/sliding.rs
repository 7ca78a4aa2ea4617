//! Windows that begin every `stride` tokens: the rules `strided`, `hf` and `yarn`.

use super::{BosPlacement, Rule, Window, WindowError};

/// Each window scores the tokens that no earlier one has scored.
///
/// With [`Rule::Yarn`] a stride of the whole context is one more than the tokens of a window when it holds a
/// beginning-of-sequence token: then one token between windows is never scored, as in the authors' script.
pub fn windows(
    rule: Rule,
    n: usize,
    context: usize,
    stride: usize,
    bos: BosPlacement,
) -> Result<Vec<Window>, WindowError> {
    if context < 2 {
        return Err(WindowError::Context(context));
    }
    // The text of rule `hf` holds its token already.
    let bos = if rule.bos_is_in_text() { BosPlacement::Never } else { bos };
    let room = |with_bos: bool| context - usize::from(with_bos);
    let most = match rule {
        Rule::Strided => room(bos != BosPlacement::Never),
        _ => context,
    };
    if stride == 0 || stride > most {
        return Err(WindowError::Stride { rule, stride, most, context });
    }
    let needed = 1 + usize::from(bos == BosPlacement::Never);
    if n < needed {
        return Err(WindowError::TooShort { rule, needed, found: n });
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
            let weight = match rule {
                Rule::Yarn => 1,
                // The recipe takes one label off everywhere; the loss has lost one only here.
                Rule::Hf if scored.start > begin + 1 => scored.len() - 1,
                _ => scored.len(),
            };
            all.push(Window { tokens: begin..end, prepend_bos, overwrite_bos: false, scored, weight });
        }
        scored_to = end;
        if end == n {
            break;
        }
    }
    Ok(all)
}
