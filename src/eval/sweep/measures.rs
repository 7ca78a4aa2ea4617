//! What the cells of a sweep measure.

use std::sync::Arc;
use std::time::Instant;

use serde_json::{Map, Value, json};

use super::forecast::{Pass, Work};
use super::identity::of_tokens;
use super::run::{CellError, CellProgress, Found, Measurement};
use crate::eval::document::Document;
use crate::eval::perplexity::by_position::{BucketScore, by_position};
use crate::eval::perplexity::compare::mean;
use crate::eval::perplexity::{Perplexity, PerplexityError, PerplexityRequest, Score, perplexity, plan};
use crate::eval::speed::sample_ids;
use crate::eval::statistics::bootstrap::Bootstrap;
use crate::eval::windows::Window;
use crate::model::memory::MemoryPlan;
use crate::model::{LanguageModel, ModelError, Want};
use crate::named::Named;

/// Share of the context that a text must fill for a result to bear its name.
const FILLED: f64 = 0.98;

/// An error and its causes in one line.
pub(super) fn explained(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text += &format!(": {error}");
        cause = error.source();
    }
    text
}

fn stopped(error: ModelError) -> CellError {
    match error {
        ModelError::Interrupted { .. } => CellError::Interrupted,
        error => CellError::Failed(explained(&error)),
    }
}

/// Texts that cells score, and what identifies them.
#[derive(Debug, Clone, Default)]
pub struct Texts {
    documents: Arc<[Document]>,
    described: Value,
}

impl Texts {
    /// `documents`: named as their files are called, without folders.
    pub fn new(documents: Vec<Document>) -> Self {
        let describe = |document: &Document| {
            let (tokens, sha256) = (document.tokens.len(), of_tokens(&document.tokens));
            json!({ "name": document.file, "tokens": tokens, "sha256": sha256 })
        };
        Self { described: documents.iter().map(describe).collect(), documents: documents.into() }
    }
}

/// How losses are looked at.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Detail {
    /// Tokens that the unscaled rotation was trained on: a border between positions.
    pub trained: usize,
    pub bootstrap: Bootstrap,
}

/// Perplexity of texts, as a whole and by position.
pub struct PplCell {
    detail: Detail,
    request: PerplexityRequest,
    documents: Arc<[Document]>,
    inputs: Value,
    windows: Vec<Vec<Window>>,
}

impl PplCell {
    /// Cuts `texts` into windows.
    ///
    /// # Errors
    /// A sentence why they cannot be scored at this context: too short for the rule, or to fill it.
    pub fn new(request: PerplexityRequest, detail: Detail, texts: &Texts) -> Result<Self, String> {
        let documents = Arc::clone(&texts.documents);
        let windows = plan(&documents, &request).map_err(|error| explained(&error))?;
        for (document, windows) in documents.iter().zip(&windows) {
            let longest = windows.iter().map(Window::len).max().unwrap_or(0);
            if (longest as f64) < FILLED * request.context as f64 {
                return Err(format!(
                    "`{}` has {} tokens, which fill {longest} of the {} tokens of the context",
                    document.file,
                    document.tokens.len(),
                    request.context
                ));
            }
        }
        let inputs = json!({
            "rule": request.rule.name(),
            "stride": if request.rule.has_stride() { request.stride } else { request.context },
            "bos": request.bos.name(),
            "bos_token": request.bos_token,
            "max_windows": request.max_windows,
            "trained": detail.trained,
            "block": detail.bootstrap.block,
            "resample": detail.bootstrap.resample.name(),
            "texts": texts.described,
        });
        Ok(Self { detail, request, documents, inputs, windows })
    }
}

impl Measurement for PplCell {
    fn inputs(&self) -> Value {
        self.inputs.clone()
    }

    fn work(&self) -> Work {
        let pass = |window: &Window| Pass {
            start: 0,
            tokens: window.len(),
            scored: window.scored.len(),
            decoded: 0,
        };
        Work { passes: self.windows.iter().flatten().map(pass).collect() }
    }

    fn measure(
        &self,
        model: &dyn LanguageModel,
        progress: &mut dyn FnMut(CellProgress),
    ) -> Result<Found, CellError> {
        let mut report = |done_tokens: usize, score: &Score| {
            let so_far = (score.tokens_scored > 0).then(|| format!("ppl {:.4}", score.ppl()));
            progress(CellProgress { done_tokens, so_far: so_far.unwrap_or_default() });
        };
        let bos = self.request.bos_token;
        let found = perplexity(model, &self.documents, &self.windows, bos, &mut report);
        let found = found.map_err(|error| match &error {
            PerplexityError::Model { source, .. } if matches!(**source, ModelError::Interrupted { .. }) => {
                CellError::Interrupted
            }
            _ => CellError::Failed(explained(&error)),
        })?;
        if found.interrupted {
            return Err(CellError::Interrupted);
        }
        Ok(Found { result: self.result(&found), timing: Map::new() })
    }
}

impl PplCell {
    fn result(&self, found: &Perplexity) -> Value {
        let Detail { trained, bootstrap } = &self.detail;
        let mut result = score_json(&found.pooled);
        let interval = mean(&found.losses, None, bootstrap).interval;
        result.insert("nll_low".to_string(), interval.map(|interval| interval.low).into());
        result.insert("nll_high".to_string(), interval.map(|interval| interval.high).into());
        let by_position = by_position(&found.losses, *trained, PER_DOUBLING, bootstrap);
        result.insert(
            "effective_context".to_string(),
            by_position.effective.map(|effective| effective.tokens).into(),
        );
        result.insert("by_position".to_string(), by_position.buckets.iter().map(bucket_json).collect());
        let per_file = found.per_file.iter().zip(self.documents.iter()).map(|((_, score), document)| {
            let mut row = Map::new();
            row.insert("file".to_string(), document.file.as_str().into());
            row.extend(score_json(score));
            Value::Object(row)
        });
        result.insert("per_file".to_string(), per_file.collect());
        Value::Object(result)
    }
}

/// Buckets of positions for every doubling.
const PER_DOUBLING: usize = 1;

fn bucket_json(score: &BucketScore) -> Value {
    json!({
        "first": score.bucket.first,
        "last": score.bucket.last,
        "tokens": score.tokens,
        "nll": score.nll,
        "low": score.interval.map(|interval| interval.low),
        "high": score.interval.map(|interval| interval.high),
    })
}

/// A value as JSON holds it: numbers that are not finite are `null`.
fn finite(value: f64) -> Value {
    value.is_finite().then_some(value).into()
}

fn score_json(score: &Score) -> Map<String, Value> {
    let optional = |value: Option<f64>| value.map_or(Value::Null, finite);
    let entries = [
        ("ppl", finite(score.ppl())),
        ("stderr", optional(score.stderr())),
        ("nll", finite(score.nll())),
        ("nll_stderr", optional(score.nll_stderr())),
        ("bits_per_byte", finite(score.bits_per_byte())),
        ("word_ppl", finite(score.word_ppl())),
        ("tokens_scored", score.tokens_scored.into()),
        ("windows", score.windows.into()),
    ];
    entries.into_iter().map(|(key, value)| (key.to_string(), value)).collect()
}

/// Bytes that a run of the context needs, as planned.
pub struct MemoryCell {
    pub plan: MemoryPlan,
}

impl Measurement for MemoryCell {
    fn inputs(&self) -> Value {
        Value::Object(Map::new())
    }

    fn work(&self) -> Work {
        Work::default()
    }

    fn measure(
        &self,
        _model: &dyn LanguageModel,
        _progress: &mut dyn FnMut(CellProgress),
    ) -> Result<Found, CellError> {
        let plan = &self.plan;
        let result = json!({
            "total_bytes": plan.total_bytes(),
            "weights_bytes": plan.weights_bytes,
            "kv_bytes": plan.kv_bytes,
            "workspace_bytes": plan.workspace_bytes,
        });
        Ok(Found { result, timing: Map::new() })
    }
}

/// Tokens per second: a context that is read in one pass, up to a few tokens that are written one by one.
pub struct SpeedCell {
    read: usize,
    written: usize,
}

/// Tokens that are written to time them.
const WRITTEN: usize = 32;

impl SpeedCell {
    /// # Errors
    /// A context in which there is nothing to read and to write.
    pub fn new(context: usize) -> Result<Self, String> {
        let written = WRITTEN.min(context / 2);
        match written {
            0 => Err(format!("a context of {context} tokens is too short to time reading and writing")),
            _ => Ok(Self { read: context - written, written }),
        }
    }
}

impl Measurement for SpeedCell {
    fn inputs(&self) -> Value {
        json!({ "prefill_tokens": self.read, "decode_tokens": self.written })
    }

    fn work(&self) -> Work {
        Work { passes: vec![Pass { start: 0, tokens: self.read, scored: 0, decoded: self.written }] }
    }

    /// The rates are timing: they differ between reruns, and the result holds what was timed.
    fn measure(
        &self,
        model: &dyn LanguageModel,
        progress: &mut dyn FnMut(CellProgress),
    ) -> Result<Found, CellError> {
        let ids = sample_ids(self.read + self.written, model.config().vocab_size);
        let mut session = model.session(ids.len()).map_err(stopped)?;
        let started = Instant::now();
        let mut report = |done_tokens| progress(CellProgress { done_tokens, so_far: String::new() });
        session.extend(&ids[..self.read], Want::LastLogits, &mut report).map_err(stopped)?;
        let read_s = started.elapsed().as_secs_f64();
        let started = Instant::now();
        for id in &ids[self.read..] {
            session.extend(std::slice::from_ref(id), Want::LastLogits, &mut |_| ()).map_err(stopped)?;
        }
        let written_s = started.elapsed().as_secs_f64();
        let rate = |tokens: usize, elapsed_s: f64| Value::from(tokens as f64 / elapsed_s);
        let timing = [
            ("prefill_tokens_per_s", rate(self.read, read_s)),
            ("decode_tokens_per_s", rate(self.written, written_s)),
        ];
        let timing = timing.into_iter().map(|(key, value)| (key.to_string(), value)).collect();
        let result = json!({ "prefill_tokens": self.read, "decode_tokens": self.written });
        Ok(Found { result, timing })
    }
}
