//! The result of `ropex ppl` as JSON and as tables.

use serde_json::{Map, Value, json};

use crate::cli::report::Table;
use crate::cli::values::format_number;
use crate::eval::perplexity::{Perplexity, PerplexityRequest, Score};
use crate::named::Named;

fn finite(value: f64) -> Option<f64> {
    value.is_finite().then_some(value)
}

fn score_json(score: &Score) -> Map<String, Value> {
    let value = json!({
        "nll": score.nll(),
        "ppl": finite(score.ppl()),
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
    });
    match value {
        Value::Object(object) => object,
        _ => Map::new(),
    }
}

/// `result` of the JSON object.
pub fn result_json(found: &Perplexity, request: &PerplexityRequest) -> Value {
    let mut result = score_json(&found.pooled);
    let settings = json!({
        "rule": request.rule.name(),
        "context": request.context,
        "stride": if request.rule.has_stride() { request.stride } else { request.context },
        "bos": request.bos.name(),
        "bos_token": request.bos_token,
    });
    if let Value::Object(settings) = settings {
        result.extend(settings);
    }
    let rows = found.per_file.iter().map(|(file, score)| {
        let mut row = Map::new();
        row.insert("file".into(), file.as_str().into());
        row.extend(score_json(score));
        Value::Object(row)
    });
    result.insert("per_file".into(), rows.collect());
    Value::Object(result)
}

/// One row a text, and one for all of several.
pub fn table(found: &Perplexity, request: &PerplexityRequest) -> Table {
    let stride = match request.rule.has_stride() {
        true => format!(", stride {}", request.stride),
        false => String::new(),
    };
    let title = format!(
        "perplexity, rule {}, context {}{stride}, bos {}",
        request.rule.name(),
        request.context,
        request.bos.name(),
    );
    let columns = ["text", "ppl", "stderr", "nll", "bits/byte", "word ppl", "tokens", "windows"];
    let mut table = Table::new(title, &columns);
    let mut row = |name: &str, score: &Score| {
        table.row([
            name.to_string(),
            format_number(score.ppl()),
            score.stderr().map_or("-".to_string(), format_number),
            format_number(score.nll()),
            format_number(score.bits_per_byte()),
            format_number(score.word_ppl()),
            score.tokens_scored.to_string(),
            score.windows.to_string(),
        ]);
    };
    for (file, score) in &found.per_file {
        row(file, score);
    }
    if found.per_file.len() > 1 {
        row("all", &found.pooled);
    }
    table
}
