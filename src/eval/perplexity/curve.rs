//! Perplexity at many lengths of the same text from one pass.
//!
//! A decoder is causal: the first tokens of a pass are the whole run of a text cut there, as long as the frequencies are
//! the same. So one pass over the longest cut gives the losses of all. Where frequencies depend on the length, there is
//! one pass for every set of them.

use super::losses::Losses;
use super::{Perplexity, PerplexityError, PerplexityRequest, Progress, Score, perplexity};
use crate::eval::document::Document;
use crate::eval::statistics::bootstrap::{Blocks, Bootstrap, Interval};
use crate::eval::windows::{BosPlacement, Rule, Window};
use crate::model::{LanguageModel, ModelError};
use crate::named::Named;
use crate::rope::{RopeError, RopeSpec, frequencies};

/// Rules that a curve can be made by.
const RULES: [Rule; 3] = [Rule::Strided, Rule::Hf, Rule::Yarn];
/// Shortest length of a curve made by itself.
const SHORTEST: usize = 64;

/// The text cut to one length.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CurvePoint {
    /// Tokens of a window, a beginning-of-sequence token included.
    pub length: usize,
    /// Windows, and those of them that are as long as that.
    pub windows: usize,
    pub full_windows: usize,
    pub tokens: usize,
    /// Mean loss in nats, weighted as the rule says.
    pub nll: f64,
    pub interval: Option<Interval>,
}

/// A curve, and what was measured at its longest length.
#[derive(Debug, Clone, PartialEq)]
pub struct Curve {
    /// In order of length. An interrupted run has those that were complete.
    pub points: Vec<CurvePoint>,
    /// Passes over the text: one, or one for every set of frequencies.
    pub passes: usize,
    /// Tokens that went through the model, and those that a run for each length would have taken.
    pub computed_tokens: usize,
    pub separate_tokens: usize,
    pub longest: Perplexity,
}

/// Lengths that tell something: `context` and its halves, and the trained length and its doublings.
pub fn auto_lengths(context: usize, trained: usize) -> Vec<usize> {
    let halves = |from: usize| std::iter::successors(Some(from), |length| Some(length / 2));
    let mut lengths: Vec<usize> = halves(context).take_while(|length| *length >= SHORTEST).collect();
    let doublings = std::iter::successors(Some(trained), |length| length.checked_mul(2));
    lengths.extend(doublings.take_while(|length| *length < context));
    lengths.push(context);
    lengths.sort_unstable();
    lengths.dedup();
    lengths
}

/// Why there is no curve.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CurveError {
    #[error(
        "a curve needs windows that score all their tokens, which those of rule `{}` do not; accepted: {}",
        .0.name(), RULES.map(Rule::name).join(", ")
    )]
    Rule(Rule),
    #[error("a length of {0} tokens is too short to score anything")]
    Length(usize),
}

/// Lengths in order, each once.
///
/// # Errors
/// [`CurveError::Length`] below 2 tokens.
pub fn sorted(mut lengths: Vec<usize>) -> Result<Vec<usize>, CurveError> {
    lengths.sort_unstable();
    lengths.dedup();
    match lengths.first() {
        Some(&shortest) if shortest < 2 => Err(CurveError::Length(shortest)),
        _ => Ok(lengths),
    }
}

/// The request for a curve up to `context`: windows side by side, one a text unless `max_windows` says more.
///
/// # Errors
/// [`CurveError::Rule`].
pub fn request(base: PerplexityRequest) -> Result<PerplexityRequest, CurveError> {
    let stride = match base.rule {
        Rule::Strided => base.context - usize::from(base.bos != BosPlacement::Never),
        Rule::Hf | Rule::Yarn => base.context,
        Rule::LlamaCpp | Rule::LmEval => return Err(CurveError::Rule(base.rule)),
    };
    Ok(PerplexityRequest { stride: stride.max(1), max_windows: Some(base.max_windows.unwrap_or(1)), ..base })
}

/// Lengths that one pass serves: those with the same frequencies, each group up to its longest.
///
/// # Errors
/// Frequencies that cannot be built.
pub fn passes(spec: &RopeSpec, lengths: &[usize]) -> Result<Vec<Vec<usize>>, RopeError> {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    let mut last = None;
    for &length in lengths {
        let now = frequencies(spec, length)?;
        match groups.last_mut() {
            Some(group) if last.as_ref() == Some(&now) => group.push(length),
            _ => groups.push(vec![length]),
        }
        last = Some(now);
    }
    Ok(groups)
}

/// Windows of `plan` cut to `length` tokens each.
fn cut(plan: &[Vec<Window>], length: usize, rule: Rule) -> Vec<Vec<Window>> {
    let cut = |window: &Window| {
        let end = window.tokens.end.min(window.tokens.start + length - usize::from(window.prepend_bos));
        let scored = window.scored.start..end;
        let weight = if rule == Rule::Yarn { 1 } else { scored.len() };
        Window { tokens: window.tokens.start..end, scored, weight, ..window.clone() }
    };
    plan.iter().map(|windows| windows.iter().map(cut).filter(|w| !w.scored.is_empty()).collect()).collect()
}

/// Measures every length of `lengths` (in order, the last being the context of `plan`).
///
/// `plan`: windows of a [`request`].
///
/// # Errors
/// A failing model.
pub fn curve(
    model: &dyn LanguageModel,
    documents: &[Document],
    plan: &[Vec<Window>],
    request: &PerplexityRequest,
    lengths: &[usize],
    bootstrap: &Bootstrap,
    progress: Progress<'_>,
) -> Result<Curve, PerplexityError> {
    let groups = passes(&model.rope().spec, lengths)
        .map_err(|error| PerplexityError::Frequencies(Box::new(ModelError::Rope(error))))?;
    let tokens_at = |length| cut(plan, length, request.rule).iter().flatten().map(Window::len).sum::<usize>();
    let mut points = Vec::new();
    let mut computed_tokens = 0;
    let mut longest: Option<Perplexity> = None;
    for group in &groups {
        let windows = cut(plan, group.last().copied().unwrap_or(request.context), request.rule);
        let mut forward = |done: usize, score: &Score| progress(computed_tokens + done, score);
        let found =
            match (perplexity(model, documents, &windows, request.bos_token, &mut forward), &mut longest) {
                (Err(error), Some(before)) if error.is_interrupt() => {
                    before.interrupted = true;
                    break;
                }
                (found, _) => found?,
            };
        computed_tokens += windows.iter().flatten().map(Window::len).sum::<usize>();
        points.extend(self::points(&found.losses, &windows, group, request.rule, bootstrap));
        let stop = found.interrupted;
        longest = Some(found);
        if stop {
            break;
        }
    }
    let longest = longest.ok_or(PerplexityError::NoText)?;
    let separate_tokens = lengths.iter().map(|&length| tokens_at(length)).sum();
    Ok(Curve { points, passes: groups.len(), computed_tokens, separate_tokens, longest })
}

/// Tokens of the work that [`curve`] does.
///
/// # Errors
/// Frequencies that cannot be built.
pub fn total_tokens(
    spec: &RopeSpec,
    plan: &[Vec<Window>],
    rule: Rule,
    lengths: &[usize],
) -> Result<usize, RopeError> {
    let groups = passes(spec, lengths)?;
    let last = groups.iter().filter_map(|group| group.last());
    Ok(last.map(|&length| cut(plan, length, rule).iter().flatten().map(Window::len).sum::<usize>()).sum())
}

/// The curve of losses that one pass gave; lengths of which some tokens are missing are left out.
pub fn points(
    losses: &Losses,
    plan: &[Vec<Window>],
    lengths: &[usize],
    rule: Rule,
    bootstrap: &Bootstrap,
) -> Vec<CurvePoint> {
    let mut blocks = Blocks::new(lengths.len());
    let mut windows = vec![(0, 0, 0); lengths.len()];
    for run in &losses.runs {
        for (offset, nll) in losses.nll[run.losses.clone()].iter().enumerate() {
            blocks.enter(run.document, run.first_token + offset, bootstrap.block);
            for (index, &length) in lengths.iter().enumerate() {
                let counted = run.losses.len().min(length.saturating_sub(run.first_position));
                if offset < counted {
                    let weight = if rule == Rule::Yarn { 1.0 / counted as f64 } else { 1.0 };
                    blocks.add(index, weight, f64::from(*nll));
                    let first = usize::from(offset == 0);
                    let full = usize::from(run.first_position + offset + 1 == length);
                    windows[index].0 += first;
                    windows[index].1 += full;
                    windows[index].2 += 1;
                }
            }
        }
    }
    let replicates = blocks.replicate(bootstrap);
    let planned = |length| cut(plan, length, rule).iter().flatten().map(|w| w.scored.len()).sum::<usize>();
    let point = |(index, &length): (usize, &usize)| {
        let (windows, full_windows, tokens) = windows[index];
        let nll = blocks.mean(index);
        let interval = replicates.interval(index);
        (tokens > 0 && tokens == planned(length)).then_some(CurvePoint {
            length,
            windows,
            full_windows,
            tokens,
            nll,
            interval,
        })
    };
    lengths.iter().enumerate().filter_map(point).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eval::perplexity::losses::Run;
    use crate::eval::windows::windows;
    use crate::rope::{Pairing, Scaling};

    #[test]
    fn lengths_made_by_themselves_hold_context_and_trained_length() {
        assert_eq!(auto_lengths(1024, 256), [64, 128, 256, 512, 1024]);
        assert_eq!(auto_lengths(1000, 256), [125, 250, 256, 500, 512, 1000]);
        assert_eq!(auto_lengths(256, 256), [64, 128, 256]);
        assert_eq!(auto_lengths(40, 256), [40]);
        assert_eq!(sorted(vec![8, 2, 8]), Ok(vec![2, 8]));
        assert_eq!(sorted(vec![8, 1]), Err(CurveError::Length(1)));
    }

    fn spec(scaling: Scaling) -> RopeSpec {
        RopeSpec {
            theta: 1e4,
            head_dim: 16,
            rotary_dim: 16,
            pairing: Pairing::HalfSplit,
            original_context: 128,
            scaling,
        }
    }

    /// One pass for all lengths, unless the frequencies of a length are its own.
    #[test]
    fn lengths_share_a_pass_as_long_as_they_share_frequencies() {
        let lengths = [32, 64, 128, 256, 512];
        let groups = |scaling| passes(&spec(scaling), &lengths).unwrap();
        assert_eq!(groups(Scaling::Linear { factor: 4.0 }), [lengths.to_vec()]);
        assert_eq!(groups(Scaling::DynamicLinear), [vec![32, 64, 128], vec![256], vec![512]]);
    }

    /// Each length of a plan cut afterwards is the plan made for that length.
    #[test]
    fn windows_cut_to_a_length_are_those_of_the_shorter_run() {
        for rule in [Rule::Strided, Rule::Hf, Rule::Yarn] {
            for &bos in rule.placements() {
                let base = |context, max_windows| PerplexityRequest {
                    rule,
                    context,
                    stride: 1,
                    bos,
                    bos_token: Some(0),
                    max_windows,
                };
                for n in [50, 100, 700] {
                    let long = request(base(100, None)).unwrap();
                    let plan = |r: &PerplexityRequest| {
                        let mut all = windows(rule, n, r.context, r.stride, bos).unwrap();
                        all.truncate(r.max_windows.unwrap());
                        vec![all]
                    };
                    let full = plan(&long);
                    for length in [2, 37, 64, 100] {
                        let short = request(base(length, None)).unwrap();
                        assert_eq!(cut(&full, length, rule), plan(&short), "{rule:?} {bos:?} {n} {length}");
                    }
                }
            }
        }
        let llama = PerplexityRequest {
            rule: Rule::LlamaCpp,
            context: 64,
            stride: 1,
            bos: BosPlacement::Never,
            bos_token: None,
            max_windows: None,
        };
        assert_eq!(request(llama), Err(CurveError::Rule(Rule::LlamaCpp)));
    }

    #[test]
    fn points_are_means_of_prefixes_weighted_as_the_rule_says() {
        let first = |n| windows(Rule::Strided, n, 8, 8, BosPlacement::Never).unwrap()[..1].to_vec();
        let plan = [first(9), first(4)];
        let mut losses = Losses::default();
        let run = |document, weight| Run {
            document,
            window: 0,
            first_token: 1,
            first_position: 1,
            weight,
            losses: 0..0,
        };
        losses.push(run(0, 7), &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]);
        losses.push(run(1, 3), &[10.0, 20.0, 30.0]);
        let at = |rule, losses: &Losses| -> Vec<(usize, usize, usize, f64)> {
            let found = points(losses, &plan, &[3, 8], rule, &Bootstrap::default());
            let rounded = |nll: f64| (nll * 1e9).round() / 1e9;
            found.iter().map(|p| (p.length, p.tokens, p.full_windows, rounded(p.nll))).collect()
        };
        assert_eq!(at(Rule::Strided, &losses), [(3, 4, 2, 33.0 / 4.0), (8, 10, 1, 88.0 / 10.0)]);
        assert_eq!(at(Rule::Yarn, &losses), [(3, 4, 2, (1.5 + 15.0) / 2.0), (8, 10, 1, (4.0 + 20.0) / 2.0)]);
        // A run that was stopped has the lengths that it completed.
        let mut stopped = Losses::default();
        stopped.push(run(0, 7), &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]);
        stopped.push(run(1, 2), &[10.0, 20.0]);
        assert_eq!(at(Rule::Strided, &stopped).len(), 1);
    }
}
