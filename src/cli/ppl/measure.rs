//! The passes of `ropex ppl`, with progress, and the statistics made of their losses.

use std::time::Instant;

use super::request::Asked;
use crate::cli::Context;
use crate::cli::progress::Progress;
use crate::cli::values::format_number;
use crate::eval::document::Document;
use crate::eval::perplexity::by_position::{ByPosition, by_position};
use crate::eval::perplexity::compare::{Mean, differences, mean};
use crate::eval::perplexity::curve::{Curve, curve, total_tokens};
use crate::eval::perplexity::gain::{Gain, gain};
use crate::eval::perplexity::losses::Losses;
use crate::eval::perplexity::saved::Saved;
use crate::eval::perplexity::{Perplexity, Score, perplexity};
use crate::eval::statistics::bootstrap::Bootstrap;
use crate::eval::windows::Window;
use crate::model::LanguageModel;

/// What is measured besides the perplexity.
pub struct Extras {
    /// Buckets for every doubling.
    pub by_position: Option<usize>,
    /// Tokens of context that the gain is measured against, and the short windows for it.
    pub gain: Option<(usize, Vec<Vec<Window>>)>,
    pub baseline: Option<Saved>,
    pub bootstrap: Bootstrap,
    /// Tokens that the unscaled embedding was trained for.
    pub trained: usize,
}

/// Everything that was found.
pub struct Measured {
    pub perplexity: Perplexity,
    /// The mean of the rule with its interval: pooled, and of every file of `perplexity`.
    pub pooled: Mean,
    pub per_file: Vec<Mean>,
    pub curve: Option<Curve>,
    pub by_position: Option<ByPosition>,
    pub paired: Option<Paired>,
    pub gain: Option<(Gain, Option<ByPosition>)>,
    /// Whether the run was stopped before its end.
    pub interrupted: bool,
    /// Tokens that went through the model, and the time they took.
    pub computed_tokens: usize,
    pub elapsed_s: f64,
}

/// Differences from an earlier run.
pub struct Paired {
    pub difference: Mean,
    pub before: Mean,
    pub by_position: Option<ByPosition>,
}

/// Runs the model over the windows of `plan` and computes what `extras` asks for.
pub fn measure(
    model: &dyn LanguageModel,
    documents: &[Document],
    plan: &[Vec<Window>],
    asked: &Asked,
    extras: &Extras,
    context: &Context,
) -> anyhow::Result<Measured> {
    let started = Instant::now();
    let (perplexity, curve, mut computed_tokens) = passes(model, documents, plan, asked, extras, context)?;
    let mut interrupted = perplexity.interrupted;
    let mut gained = None;
    if let (Some((last, short)), false) = (&extras.gain, interrupted) {
        computed_tokens += tokens(short);
        let full = (&perplexity.losses, *last);
        gained = measure_gain(model, documents, short, full, asked, &extras.bootstrap, context)?;
        interrupted = gained.as_ref().is_none_or(|gain| gain.interrupted);
    }
    let elapsed_s = started.elapsed().as_secs_f64();
    let sorted = |losses: &Losses| -> Option<ByPosition> {
        extras.by_position.map(|per| by_position(losses, extras.trained, per, &extras.bootstrap))
    };
    let losses = &perplexity.losses;
    let paired = extras.baseline.as_ref().map(|baseline| {
        let difference = differences(losses, &baseline.nll);
        let before = Losses { runs: losses.runs.clone(), nll: baseline.nll[..losses.len()].to_vec() };
        Paired {
            difference: mean(&difference, None, &extras.bootstrap),
            before: mean(&before, None, &extras.bootstrap),
            by_position: sorted(&difference),
        }
    });
    let file = |index| mean(losses, Some(index), &extras.bootstrap);
    Ok(Measured {
        pooled: mean(losses, None, &extras.bootstrap),
        per_file: (0..perplexity.per_file.len()).map(file).collect(),
        by_position: sorted(losses),
        gain: gained.map(|gain| {
            let by_position = sorted(&gain.differences);
            (gain, by_position)
        }),
        interrupted,
        paired,
        curve,
        perplexity,
        computed_tokens,
        elapsed_s,
    })
}

fn tokens(plan: &[Vec<Window>]) -> usize {
    plan.iter().flatten().map(Window::len).sum()
}

/// The perplexity, by way of the curve if there is one, and the tokens it took.
fn passes(
    model: &dyn LanguageModel,
    documents: &[Document],
    plan: &[Vec<Window>],
    asked: &Asked,
    extras: &Extras,
    context: &Context,
) -> anyhow::Result<(Perplexity, Option<Curve>, usize)> {
    let request = &asked.request;
    let spec = &model.rope().spec;
    let total = match &asked.lengths {
        Some(lengths) => total_tokens(spec, plan, request.rule, lengths)?,
        None => tokens(plan),
    };
    let mut bar = Progress::tokens("ppl", total, context.quiet);
    let mut report = |done: usize, score: &Score| {
        let so_far = (score.tokens_scored > 0).then(|| format!("ppl {}", format_number(score.ppl())));
        bar.update(done, so_far.unwrap_or_default());
    };
    let found = match &asked.lengths {
        Some(lengths) => {
            let bootstrap = &extras.bootstrap;
            let found = curve(model, documents, plan, request, lengths, bootstrap, &mut report)?;
            (found.longest.clone(), Some(found), total)
        }
        None => (perplexity(model, documents, plan, request.bos_token, &mut report)?, None, total),
    };
    bar.finish();
    Ok(found)
}

/// The gain from context; `None` when it was interrupted before it had anything to show.
fn measure_gain(
    model: &dyn LanguageModel,
    documents: &[Document],
    short: &[Vec<Window>],
    full: (&Losses, usize),
    asked: &Asked,
    bootstrap: &Bootstrap,
    context: &Context,
) -> anyhow::Result<Option<Gain>> {
    let mut bar = Progress::tokens("gain", tokens(short), context.quiet);
    let mut report = |done: usize, score: &Score| {
        let so_far = (score.tokens_scored > 0)
            .then(|| format!("ppl with the last {} tokens {}", full.1, format_number(score.ppl())));
        bar.update(done, so_far.unwrap_or_default());
    };
    let found = gain(model, documents, short, full, asked.request.bos_token, bootstrap, &mut report);
    bar.finish();
    match found {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.is_interrupt() => Ok(None),
        Err(error) => Err(error.into()),
    }
}
