//! `ropex ppl --dump-windows`: what would be scored, without a model.

use serde_json::{Value, json};

use super::request::Asked;
use crate::cli::report::Table;
use crate::eval::document::Document;
use crate::eval::windows::Window;
use crate::named::Named;

/// `result` of the JSON object, and its table.
pub fn dump(documents: &[Document], plan: &[Vec<Window>], asked: &Asked) -> (Value, Table) {
    let request = &asked.request;
    let columns =
        ["text", "window", "first", "end", "bos", "bos ids", "scored from", "scored to", "length", "weight"];
    let title = format!(
        "windows of rule {}, context {}, stride {}, bos {}; text tokens from `first` up to `end`",
        request.rule.name(),
        request.context,
        request.effective_stride(),
        request.bos.name()
    );
    let mut table = Table::new(title, &columns);
    let mut rows: Vec<Value> = Vec::new();
    for (document, windows) in documents.iter().zip(plan) {
        for (index, window) in windows.iter().enumerate() {
            let input = window.input(&document.tokens, request.bos_token);
            let bos_ids = request.bos_token.map_or(0, |bos| input.iter().filter(|&&id| id == bos).count());
            let bos = match (window.prepend_bos, window.overwrite_bos) {
                (true, _) => "before",
                (false, true) => "over the first",
                (false, false) => "none",
            };
            rows.push(json!({
                "file": document.file,
                "window": index,
                "first": window.tokens.start,
                "end": window.tokens.end,
                "bos": bos,
                "bos_ids": bos_ids,
                "scored_first": window.scored.start,
                "scored_end": window.scored.end,
                "length": window.len(),
                "weight": window.weight,
            }));
            table.row([
                document.file.clone(),
                index.to_string(),
                window.tokens.start.to_string(),
                window.tokens.end.to_string(),
                bos.to_string(),
                bos_ids.to_string(),
                window.scored.start.to_string(),
                window.scored.end.to_string(),
                window.len().to_string(),
                window.weight.to_string(),
            ]);
        }
    }
    let result = json!({
        "rule": request.rule.name(),
        "context": request.context,
        "stride": request.effective_stride(),
        "bos": request.bos.name(),
        "bos_token": request.bos_token,
        "tokens": documents.iter().map(|document| document.tokens.len()).sum::<usize>(),
        "tokens_scored": plan.iter().flatten().map(|window| window.scored.len()).sum::<usize>(),
        "window_list": rows,
    });
    (result, table)
}
