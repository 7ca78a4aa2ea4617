//! The result of `ropex ppl` as JSON.

use serde_json::{Map, Value, json};

use super::measure::{Extras, Measured, Paired};
use super::request::Asked;
use crate::eval::perplexity::Score;
use crate::eval::perplexity::by_position::ByPosition;
use crate::eval::perplexity::compare::Mean;
use crate::eval::perplexity::curve::Curve;
use crate::eval::perplexity::gain::Gain;
use crate::eval::statistics::bootstrap::{Interval, LEVEL, ROUNDS};
use crate::named::Named;

fn finite(value: f64) -> Option<f64> {
    value.is_finite().then_some(value)
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(object) => object,
        _ => Map::new(),
    }
}

fn interval_json(interval: Option<Interval>) -> Value {
    interval.map_or(Value::Null, |interval| json!([finite(interval.low), finite(interval.high)]))
}

fn exp(interval: Option<Interval>) -> Option<Interval> {
    interval.map(|interval| interval.map(f64::exp))
}

fn score_json(score: &Score, mean: &Mean) -> Map<String, Value> {
    object(json!({
        "nll": score.nll(),
        "ppl": finite(score.ppl()),
        "nll_ci": interval_json(mean.interval),
        "ppl_ci": interval_json(exp(mean.interval)),
        "stderr": score.stderr().and_then(finite),
        "nll_stderr": score.nll_stderr(),
        "token_nll": score.token_nll(),
        "tokens_scored": score.tokens_scored,
        "windows": score.windows,
        "bytes_scored": score.bytes_scored,
        "words_scored": score.words_scored,
        "bits_per_byte": finite(score.bits_per_byte()),
        "byte_ppl": finite(score.byte_ppl()),
        "word_ppl": finite(score.word_ppl()),
    }))
}

/// `result` of the JSON object. `rope`: the part of that name.
pub fn result_json(found: &Measured, asked: &Asked, extras: &Extras, rope: &Value) -> Map<String, Value> {
    let request = &asked.request;
    let mut result = score_json(&found.perplexity.pooled, &found.pooled);
    result.extend(object(json!({
        "rule": request.rule.name(),
        "context": request.context,
        "stride": request.effective_stride(),
        "bos": request.bos.name(),
        "bos_token": request.bos_token,
        "max_windows": request.max_windows,
        "fine_tuned": fine_tuned(rope),
        "bootstrap": {
            "level": LEVEL,
            "rounds": ROUNDS,
            "block": extras.bootstrap.block,
            "resample": extras.bootstrap.resample.name(),
            "seed": extras.bootstrap.seed,
            "blocks": found.pooled.blocks,
        },
    })));
    let rows = found.perplexity.per_file.iter().zip(&found.per_file).map(|((file, score), mean)| {
        let mut row = object(json!({ "file": file }));
        row.extend(score_json(score, mean));
        Value::Object(row)
    });
    result.insert("per_file".into(), rows.collect());
    if let Some(by_position) = &found.by_position {
        result.insert("by_position".into(), by_position_json(by_position, extras));
        result.insert("effective_context".into(), effective_json(by_position));
    }
    if let Some(curve) = &found.curve {
        result.insert("curve".into(), curve_json(curve));
    }
    if let Some((gain, by_position)) = &found.gain {
        result.insert("gain".into(), gain_json(gain, by_position.as_ref()));
    }
    if let Some(paired) = &found.paired {
        let model = extras.baseline.as_ref().map(|baseline| baseline.header.model.as_str());
        result.insert("baseline".into(), paired_json(paired, model));
    }
    result
}

/// Whether the weights were trained under the rotary embedding in force, as far as the checkpoint tells.
fn fine_tuned(rope: &Value) -> &'static str {
    let scaling = &rope["scaling"];
    let by_flag = scaling["origin"].as_str().is_some_and(|origin| origin.contains("--"));
    match (scaling["value"].as_str(), by_flag) {
        (Some("none"), _) => "not scaled",
        (_, true) => "unknown",
        (_, false) => "declared by the checkpoint",
    }
}

fn by_position_json(found: &ByPosition, extras: &Extras) -> Value {
    let of = |value: &dyn Fn(usize) -> Value| -> Value { (0..found.buckets.len()).map(value).collect() };
    let buckets = &found.buckets;
    let low = |interval: Option<Interval>| json!(interval.map(|interval| interval.low));
    let high = |interval: Option<Interval>| json!(interval.map(|interval| interval.high));
    json!({
        "trained_length": extras.trained,
        "reference": found.reference,
        "positions": of(&|i| buckets[i].bucket.first.into()),
        "last_positions": of(&|i| buckets[i].bucket.last.into()),
        "tokens": of(&|i| buckets[i].tokens.into()),
        "nll": of(&|i| buckets[i].nll.into()),
        "nll_low": of(&|i| low(buckets[i].interval)),
        "nll_high": of(&|i| high(buckets[i].interval)),
        "excess_low": of(&|i| low(buckets[i].excess)),
        "excess_high": of(&|i| high(buckets[i].excess)),
    })
}

/// The mean differences of [`by_position_json`], without what only makes sense for losses.
fn differences_json(found: &ByPosition) -> Value {
    let buckets = &found.buckets;
    let of = |value: &dyn Fn(usize) -> Value| -> Value { (0..buckets.len()).map(value).collect() };
    json!({
        "positions": of(&|i| buckets[i].bucket.first.into()),
        "last_positions": of(&|i| buckets[i].bucket.last.into()),
        "tokens": of(&|i| buckets[i].tokens.into()),
        "difference": of(&|i| buckets[i].nll.into()),
        "difference_low": of(&|i| json!(buckets[i].interval.map(|interval| interval.low))),
        "difference_high": of(&|i| json!(buckets[i].interval.map(|interval| interval.high))),
    })
}

fn effective_json(found: &ByPosition) -> Value {
    found.effective.map_or(
        Value::Null,
        |effective| json!({ "tokens": effective.tokens, "ended_by": effective.ended_by.name() }),
    )
}

fn curve_json(found: &Curve) -> Value {
    let points = &found.points;
    let of = |value: &dyn Fn(usize) -> Value| -> Value { (0..points.len()).map(value).collect() };
    json!({
        "positions": of(&|i| points[i].length.into()),
        "nll": of(&|i| points[i].nll.into()),
        "nll_low": of(&|i| json!(points[i].interval.map(|interval| interval.low))),
        "nll_high": of(&|i| json!(points[i].interval.map(|interval| interval.high))),
        "ppl": of(&|i| json!(finite(points[i].nll.exp()))),
        "tokens": of(&|i| points[i].tokens.into()),
        "windows": of(&|i| points[i].windows.into()),
        "full_windows": of(&|i| points[i].full_windows.into()),
        "passes": found.passes,
        "computed_tokens": found.computed_tokens,
        "separate_tokens": found.separate_tokens,
    })
}

fn gain_json(gain: &Gain, by_position: Option<&ByPosition>) -> Value {
    json!({
        "last_tokens": gain.last_tokens,
        "least_tokens": gain.least_tokens,
        "tokens": gain.tokens,
        "full_nll": gain.full_nll,
        "last_nll": gain.last_nll,
        "gain": gain.last_nll - gain.full_nll,
        "gain_ci": interval_json(gain.interval),
        "by_position": by_position.map(differences_json),
    })
}

fn paired_json(paired: &Paired, model: Option<&str>) -> Value {
    let difference = &paired.difference;
    json!({
        "model": model,
        "nll": paired.before.nll,
        "ppl": finite(paired.before.nll.exp()),
        "difference": difference.nll,
        "difference_ci": interval_json(difference.interval),
        "ppl_ratio": finite(difference.nll.exp()),
        "ppl_ratio_ci": interval_json(exp(difference.interval)),
        "significant": difference.interval.map(|interval| interval.low > 0.0 || interval.high < 0.0),
        "by_position": paired.by_position.as_ref().map(differences_json),
    })
}
