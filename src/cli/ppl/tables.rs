//! The result of `ropex ppl` as tables.

use serde_json::Value;

use super::measure::{Extras, Measured, Paired};
use super::request::Asked;
use crate::cli::report::Table;
use crate::cli::values::format_number;
use crate::eval::perplexity::Score;
use crate::eval::perplexity::by_position::{ByPosition, EndedBy};
use crate::eval::perplexity::compare::Mean;
use crate::eval::perplexity::curve::Curve;
use crate::eval::perplexity::gain::Gain;
use crate::eval::statistics::bootstrap::Interval;
use crate::named::Named;

/// What a line about the result names: it must say what it is when it is quoted alone.
pub struct Described<'a> {
    pub model: &'a Value,
    pub rope: &'a Value,
    pub engine: &'a Value,
}

/// All tables, and the index of the one that CSV holds: the most detailed that was asked for.
pub fn tables(
    found: &Measured,
    asked: &Asked,
    extras: &Extras,
    described: &Described<'_>,
) -> (Vec<Table>, usize) {
    let mut tables = vec![scores(found, asked, described)];
    let mut main = 0;
    if let Some(by_position) = &found.by_position {
        main = tables.len();
        tables.push(by_position_table(by_position, extras));
    }
    if let Some(curve) = &found.curve {
        main = tables.len();
        tables.push(curve_table(curve));
    }
    if let Some((gain, by_position)) = &found.gain {
        tables.push(gain_table(gain));
        let title = format!("gain over the last {} tokens by position (nats)", gain.last_tokens);
        tables.extend(by_position.as_ref().map(|by_position| differences_table(title, by_position)));
    }
    if let Some(paired) = &found.paired {
        tables.push(paired_table(paired));
        let title = "difference from the baseline by position (nats)".to_string();
        tables.extend(paired.by_position.as_ref().map(|found| differences_table(title, found)));
    }
    (tables, main)
}

fn low(interval: Option<Interval>) -> String {
    interval.map_or("-".to_string(), |interval| format_number(interval.low))
}

fn high(interval: Option<Interval>) -> String {
    interval.map_or("-".to_string(), |interval| format_number(interval.high))
}

fn exp(interval: Option<Interval>) -> Option<Interval> {
    interval.map(|interval| interval.map(f64::exp))
}

/// The figure with everything that it depends on, in one line.
fn headline(found: &Measured, asked: &Asked, described: &Described<'_>) -> String {
    let request = &asked.request;
    let score = &found.perplexity.pooled;
    let text = |value: &Value| value.as_str().unwrap_or("?").to_string();
    let factor = described.rope["factor"]["value"].as_f64();
    let factor = factor.map_or(String::new(), |factor| format!(" x{}", format_number(factor)));
    let stopped = if found.interrupted { "INTERRUPTED: " } else { "" };
    format!(
        "{stopped}ppl {} in {} tokens, {} window{}; rule {}, context {}, stride {}, bos {}; scaling {}{factor}; model {}, tokenizer {}, \
         kv {}",
        format_number(score.ppl()),
        score.tokens_scored,
        score.windows,
        if score.windows == 1 { "" } else { "s" },
        request.rule.name(),
        request.context,
        request.effective_stride(),
        request.bos.name(),
        text(&described.rope["scaling"]["value"]),
        text(&described.model["name"]),
        text(&described.model["tokenizer"]["vocab_hash"]),
        text(&described.engine["kv_type"]),
    )
}

/// One row a text, and one for all of several.
fn scores(found: &Measured, asked: &Asked, described: &Described<'_>) -> Table {
    let columns =
        ["text", "ppl", "low", "high", "stderr", "nll", "bits/byte", "word ppl", "tokens", "windows"];
    let mut table = Table::new(headline(found, asked, described), &columns);
    let mut row = |name: &str, score: &Score, mean: &Mean| {
        table.row([
            name.to_string(),
            format_number(score.ppl()),
            low(exp(mean.interval)),
            high(exp(mean.interval)),
            score.stderr().map_or("-".to_string(), format_number),
            format_number(score.nll()),
            format_number(score.bits_per_byte()),
            format_number(score.word_ppl()),
            score.tokens_scored.to_string(),
            score.windows.to_string(),
        ]);
    };
    for ((file, score), mean) in found.perplexity.per_file.iter().zip(&found.per_file) {
        row(file, score, mean);
    }
    if found.perplexity.per_file.len() > 1 {
        row("all", &found.perplexity.pooled, &found.pooled);
    }
    table
}

fn range(first: usize, last: usize) -> String {
    if first == last { first.to_string() } else { format!("{first}-{last}") }
}

fn by_position_table(found: &ByPosition, extras: &Extras) -> Table {
    let title = match (found.effective, found.reference) {
        (Some(effective), _) => {
            let reason = match effective.ended_by {
                EndedBy::Worse => "the next bucket is significantly worse",
                EndedBy::TooFewTokens => "too few tokens beyond it to tell",
                EndedBy::LastPosition => "the windows end there",
            };
            format!("loss by position; effective context {} tokens: {reason}", effective.tokens)
        }
        (None, Some(_)) => {
            "loss by position; effective context unknown: too few tokens at the trained length".to_string()
        }
        (None, None) => {
            format!("loss by position; the windows end before the trained length of {}", extras.trained)
        }
    };
    let columns = ["position", "ppl", "low", "high", "nll", "excess low", "excess high", "tokens"];
    let mut table = Table::new(title, &columns);
    for score in &found.buckets {
        table.row([
            range(score.bucket.first, score.bucket.last),
            format_number(score.nll.exp()),
            low(exp(score.interval)),
            high(exp(score.interval)),
            format_number(score.nll),
            low(score.excess),
            high(score.excess),
            score.tokens.to_string(),
        ]);
    }
    table
}

fn curve_table(found: &Curve) -> Table {
    let title = match found.passes {
        1 => format!(
            "perplexity by length, from one pass ({} tokens computed, {} by a run for each)",
            found.computed_tokens, found.separate_tokens
        ),
        passes => format!(
            "perplexity by length, from {passes} passes because frequencies depend on the length ({} tokens computed, {} by a run \
             for each)",
            found.computed_tokens, found.separate_tokens
        ),
    };
    let columns = ["length", "ppl", "low", "high", "nll", "tokens", "windows"];
    let mut table = Table::new(title, &columns);
    for point in &found.points {
        table.row([
            point.length.to_string(),
            format_number(point.nll.exp()),
            low(exp(point.interval)),
            high(exp(point.interval)),
            format_number(point.nll),
            point.tokens.to_string(),
            point.windows.to_string(),
        ]);
    }
    table
}

fn gain_table(gain: &Gain) -> Table {
    let title =
        format!("gain from context: loss with the last {} tokens less that with all", gain.last_tokens);
    let columns = ["gain", "low", "high", "nll, last", "nll, all", "tokens"];
    let mut table = Table::new(title, &columns);
    table.row([
        format_number(gain.last_nll - gain.full_nll),
        low(gain.interval),
        high(gain.interval),
        format_number(gain.last_nll),
        format_number(gain.full_nll),
        gain.tokens.to_string(),
    ]);
    table
}

fn paired_table(paired: &Paired) -> Table {
    let difference = &paired.difference;
    let verdict = match difference.interval {
        Some(interval) if interval.low > 0.0 => "worse than the baseline",
        Some(interval) if interval.high < 0.0 => "better than the baseline",
        Some(_) => "no significant difference from the baseline",
        None => "too few blocks to tell it from the baseline",
    };
    let columns = ["nll difference", "low", "high", "ppl ratio", "ratio low", "ratio high", "baseline ppl"];
    let mut table = Table::new(format!("paired on the same tokens: {verdict}"), &columns);
    table.row([
        format_number(difference.nll),
        low(difference.interval),
        high(difference.interval),
        format_number(difference.nll.exp()),
        low(exp(difference.interval)),
        high(exp(difference.interval)),
        format_number(paired.before.nll.exp()),
    ]);
    table
}

fn differences_table(title: String, found: &ByPosition) -> Table {
    let mut table = Table::new(title, &["position", "difference", "low", "high", "tokens"]);
    for score in &found.buckets {
        table.row([
            range(score.bucket.first, score.bucket.last),
            format_number(score.nll),
            low(score.interval),
            high(score.interval),
            score.tokens.to_string(),
        ]);
    }
    table
}
