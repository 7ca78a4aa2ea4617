//! What the far part of the context is worth: loss with the whole prefix against only the last tokens.

use super::losses::{Losses, Run};
use super::{PerplexityError, Progress, perplexity};
use crate::eval::document::Document;
use crate::eval::statistics::bootstrap::{Blocks, Bootstrap, Interval};
use crate::eval::windows::Window;
use crate::model::LanguageModel;

/// Targets of one short window, as a part of the tokens that it reads: the first of them sees that much less than the last.
const TARGETS: usize = 4;

/// Losses of the same tokens with all of their context and with the end of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Gain {
    /// The last target of a short window sees this many tokens of text, the first one `least_tokens`.
    pub last_tokens: usize,
    pub least_tokens: usize,
    /// Tokens compared: those with more than `last_tokens` tokens of context.
    pub tokens: usize,
    /// Mean losses in nats, every token counting the same.
    pub full_nll: f64,
    pub last_nll: f64,
    /// Interval of `last_nll` less `full_nll`.
    pub interval: Option<Interval>,
    /// That difference token by token.
    pub differences: Losses,
    pub interrupted: bool,
}

/// Short windows for every scored token of `plan` with more than `last` tokens of context in its window, and the number
/// of targets of each. They begin with a beginning-of-sequence token where the window of `plan` does.
pub fn plan(documents: &[Document], plan: &[Vec<Window>], last: usize, bos: Option<u32>) -> Vec<Vec<Window>> {
    let step = last.div_ceil(TARGETS).max(1);
    let short = |document: &Document, window: &Window| -> Vec<Window> {
        let first_input = document.tokens.get(window.tokens.start).copied();
        let begins_with_bos =
            window.prepend_bos || window.overwrite_bos || (bos.is_some() && first_input == bos);
        let skipped = (last + 1).saturating_sub(window.first_position());
        let targets = window.scored.start + skipped..window.scored.end;
        targets
            .clone()
            .step_by(step)
            .map(|start| {
                let end = (start + step).min(targets.end);
                Window {
                    tokens: end - 1 - last..end - 1,
                    prepend_bos: begins_with_bos,
                    overwrite_bos: false,
                    scored: start..end,
                    weight: end - start,
                }
            })
            .collect()
    };
    let of = |(document, windows): (&Document, &Vec<Window>)| {
        windows.iter().flat_map(|window| short(document, window)).collect()
    };
    documents.iter().zip(plan).map(of).collect()
}

/// Scores the short windows of [`plan()`] and compares them with `full`, the losses of the whole windows.
///
/// # Errors
/// A failing model; [`PerplexityError::NoText`] when no token has more than `last` tokens of context.
pub fn gain(
    model: &dyn LanguageModel,
    documents: &[Document],
    short: &[Vec<Window>],
    (full, last): (&Losses, usize),
    bos_token: Option<u32>,
    bootstrap: &Bootstrap,
    progress: Progress<'_>,
) -> Result<Gain, PerplexityError> {
    if short.iter().all(Vec::is_empty) {
        return Err(PerplexityError::NoText);
    }
    let found = perplexity(model, documents, short, bos_token, progress)?;
    let mut blocks = Blocks::new(3);
    let mut differences = Losses::default();
    let mut with_last = found.losses.tokens();
    for run in &full.runs {
        let skipped = (last + 1).saturating_sub(run.first_position).min(run.losses.len());
        let losses = &full.nll[run.losses.start + skipped..run.losses.end];
        let mut nll = Vec::with_capacity(losses.len());
        for (offset, full) in losses.iter().enumerate() {
            let Some(short) = with_last.next() else { break };
            blocks.enter(run.document, run.first_token + skipped + offset, bootstrap.block);
            blocks.add(0, 1.0, f64::from(*full));
            blocks.add(1, 1.0, short.nll);
            blocks.add(2, 1.0, short.nll - f64::from(*full));
            nll.push((short.nll - f64::from(*full)) as f32);
        }
        if !nll.is_empty() {
            let (first_token, first_position) = (run.first_token + skipped, run.first_position + skipped);
            let weight = nll.len();
            differences.push(Run { first_token, first_position, weight, ..run.clone() }, &nll);
        }
    }
    Ok(Gain {
        last_tokens: last,
        least_tokens: last + 1 - last.div_ceil(TARGETS).max(1),
        tokens: differences.len(),
        full_nll: blocks.mean(0),
        last_nll: blocks.mean(1),
        interval: blocks.replicate(bootstrap).interval(2),
        differences,
        interrupted: found.interrupted,
    })
}
