//! What `ropex needle` found, as JSON and tables.

use serde_json::{Value, json};

use super::super::report::Table;
use super::super::values::format_number;
use crate::eval::gate::{Metric, MetricName};
use crate::eval::needle::{Cell, Generated, NeedleRequest, NeedleResult, Ranked, Share, Trial};
use crate::named::Named;

/// A result with what it answers.
pub struct View<'a> {
    pub task: &'static str,
    pub request: &'a NeedleRequest,
    pub found: &'a NeedleResult,
    /// Share that an effective length must reach.
    pub threshold: f64,
}

/// Values that a gate may name, each with its key in `by_length`.
const METRICS: [(&str, &str); 2] = [("needle", "likelihood"), ("needle_generation", "generation")];

/// What a run of `request` will measure: each score, over all lengths and at each.
pub fn metric_names(request: &NeedleRequest) -> Vec<MetricName> {
    let taken = |name: &str| match name {
        "needle" => request.score.likelihood(),
        _ => request.score.generation(),
    };
    let names = METRICS.iter().map(|(name, _)| *name).filter(|name| taken(name));
    let lengths: Vec<Option<usize>> =
        std::iter::once(None).chain(request.lengths.iter().copied().map(Some)).collect();
    names.flat_map(|name| lengths.iter().map(move |length| MetricName::new(name, *length))).collect()
}

/// The same with their values, as shares, from a result.
pub fn metrics(result: &Value) -> Vec<Metric> {
    let rows = result["by_length"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut found = Vec::new();
    for (name, key) in METRICS {
        let scores: Vec<Option<f64>> = rows.iter().map(|row| row[key]["score"].as_f64()).collect();
        for (row, value) in rows.iter().zip(&scores) {
            let length = row["length"].as_u64().and_then(|length| usize::try_from(length).ok());
            found.push(Metric { name: MetricName::new(name, length), value: *value });
        }
        // Every length has as many cells; without one of them there is no mean.
        let sum: Option<f64> = scores.iter().copied().sum();
        let value = sum.filter(|_| !scores.is_empty()).map(|sum| sum / scores.len() as f64);
        found.push(Metric { name: MetricName::new(name, None), value });
    }
    found
}

fn share_json(share: Share) -> Value {
    json!({ "score": share.mean, "low": share.interval.low, "high": share.interval.high })
}

fn ranked_json(ranked: &Ranked) -> Value {
    json!({
        "answer": ranked.answer,
        "log_prob": ranked.log_prob,
        "rank": ranked.rank,
        "decoys": ranked.decoys,
        "best_decoy": ranked.best_decoy,
        "margin": ranked.margin(),
    })
}

fn generated_json(generated: &Generated) -> Value {
    json!({ "text": generated.text, "strict": generated.strict, "substring": generated.substring })
}

fn trial_json(trial: &Trial) -> Value {
    json!({
        "trial": trial.number,
        "depths": trial.depths,
        "likelihood": trial.ranked.iter().map(ranked_json).collect::<Vec<Value>>(),
        "generation": trial.generated.as_ref().map(generated_json),
    })
}

fn cell_json(cell: &Cell) -> Value {
    let likelihood = cell.likelihood().map(|share| {
        let mut object = share_json(share);
        object["mean_rank"] = json!(cell.mean_rank());
        object["margin"] = json!(cell.margin());
        object["decoys_beaten"] = json!(cell.beaten());
        object
    });
    let generation = cell.generation().map(|share| {
        let mut object = share_json(share);
        object["substring"] = json!(cell.substring());
        object
    });
    json!({
        "length": cell.length,
        "depth": cell.depth,
        "reached_depth": cell.reached_depth(),
        "prompt_tokens": cell.prompt_tokens,
        "trials": cell.trials.len(),
        "likelihood": likelihood,
        "generation": generation,
        "details": cell.trials.iter().map(trial_json).collect::<Vec<Value>>(),
    })
}

fn percent(share: f64) -> String {
    format!("{:.1}", 100.0 * share)
}

fn with_interval(share: Option<Share>) -> [String; 2] {
    match share {
        Some(share) => {
            let ends = share.interval;
            [percent(share.mean), format!("{}-{}", percent(ends.low), percent(ends.high))]
        }
        None => ["-".to_string(), "-".to_string()],
    }
}

fn or_dash(value: Option<f64>, format: impl Fn(f64) -> String) -> String {
    value.map_or("-".to_string(), format)
}

impl View<'_> {
    fn mean(share: Option<Share>) -> Option<f64> {
        share.map(|share| share.mean)
    }

    fn effective(&self) -> [Option<usize>; 2] {
        let found = self.found;
        [
            found.effective_length(self.threshold, |found, length| Self::mean(found.likelihood_at(length))),
            found.effective_length(self.threshold, |found, length| Self::mean(found.generation_at(length))),
        ]
    }

    fn control(&self, length: usize) -> Option<&Cell> {
        self.found.controls.iter().find(|cell| cell.length == length)
    }

    /// What the user should know about the figures.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        let effective = self.effective();
        for (name, at) in ["likelihood", "generation"].into_iter().zip(effective) {
            let Some(at) = at else { continue };
            let score = |length| match name {
                "likelihood" => Self::mean(self.found.likelihood_at(length)),
                _ => Self::mean(self.found.generation_at(length)),
            };
            let shorter = self.request.lengths.iter().filter(|length| **length < at);
            let mut below = shorter.filter(|length| score(**length).is_some_and(|s| s < self.threshold));
            if let Some(length) = below.next() {
                warnings.push(format!(
                    "the effective length by {name} is {at}, although {length} tokens miss the threshold"
                ));
            }
        }
        warnings
    }

    pub fn json(&self) -> Value {
        let (request, found) = (self.request, self.found);
        let by_length = request.lengths.iter().map(|&length| {
            let control = self.control(length);
            json!({
                "length": length,
                "likelihood": found.likelihood_at(length).map(share_json),
                "generation": found.generation_at(length).map(share_json),
                "control_likelihood": control.and_then(Cell::likelihood).map(share_json),
                "control_generation": control.and_then(Cell::generation).map(share_json),
            })
        });
        let [likelihood, generation] = self.effective();
        json!({
            "task": self.task,
            "haystack": request.source.name(),
            "template": request.frame.name,
            "score": request.score.name(),
            "lengths": request.lengths,
            "depths": request.depths.cells(),
            "trials": request.trials,
            "seed": request.seed,
            "decoys": request.decoys,
            "answer_room": found.answer_room,
            "chance": found.chance,
            "cells": found.cells.iter().map(cell_json).collect::<Vec<Value>>(),
            "controls": found.controls.iter().map(cell_json).collect::<Vec<Value>>(),
            "by_length": by_length.collect::<Vec<Value>>(),
            "effective_length": {
                "threshold": self.threshold,
                "likelihood": likelihood,
                "generation": generation,
            },
            "sharing": request.share,
            "prompts": found.tokens.prompts,
            "tokens_computed": found.tokens.computed,
            "tokens_naive": found.tokens.naive,
            "tokens_naive_per_candidate": found.tokens.naive_per_candidate,
        })
    }

    pub fn tables(&self) -> Vec<Table> {
        let mut tables = vec![self.cells()];
        if self.request.depths.cells().len() > 1 && self.request.lengths.len() > 1 {
            let score = self.request.score;
            let percent = |share: Option<Share>| or_dash(share.map(|share| share.mean), percent);
            if score.likelihood() {
                tables.push(self.grid("likelihood %, depth by length", |cell| percent(cell.likelihood())));
            }
            if score.generation() {
                tables.push(self.grid("generation %, depth by length", |cell| percent(cell.generation())));
            }
        }
        tables.extend([self.lengths(), self.summary()]);
        tables
    }

    /// A row a depth, a column a length.
    fn grid(&self, title: &str, value: impl Fn(&Cell) -> String) -> Table {
        let lengths = self.request.lengths.iter().map(usize::to_string);
        let columns: Vec<String> = std::iter::once("depth".to_string()).chain(lengths).collect();
        let mut table = Table::new(title, &columns);
        let depths = self.request.depths.cells();
        for (index, depth) in depths.iter().enumerate() {
            let name = depth.map_or("spread".to_string(), format_number);
            let cells = self.found.cells.iter().skip(index).step_by(depths.len()).map(&value);
            table.row(std::iter::once(name).chain(cells));
        }
        table
    }

    fn cells(&self) -> Table {
        let title = format!("needles, task {}, haystack {}", self.task, self.request.source.name());
        let columns = [
            "length",
            "depth",
            "likelihood %",
            "likelihood 95 %",
            "rank",
            "margin",
            "generation %",
            "generation 95 %",
            "substring %",
            "trials",
        ];
        let mut table = Table::new(title, &columns);
        for cell in &self.found.cells {
            let depth = cell.depth.map_or("spread".to_string(), format_number);
            let mut row = vec![cell.length.to_string(), depth];
            row.extend(with_interval(cell.likelihood()));
            row.push(or_dash(cell.mean_rank(), |rank| format!("{rank:.2}")));
            row.push(or_dash(cell.margin(), |margin| format!("{margin:.2}")));
            row.extend(with_interval(cell.generation()));
            row.push(or_dash(cell.substring(), percent));
            row.push(cell.trials.len().to_string());
            table.row(row);
        }
        table
    }

    fn lengths(&self) -> Table {
        let columns = [
            "length",
            "likelihood %",
            "likelihood 95 %",
            "likelihood control %",
            "generation %",
            "generation 95 %",
            "generation control %",
            "prompt tokens",
        ];
        let mut table = Table::new("all depths, and the same questions without the needles", &columns);
        for &length in &self.request.lengths {
            let control = self.control(length);
            let mut row = vec![length.to_string()];
            row.extend(with_interval(self.found.likelihood_at(length)));
            row.push(or_dash(control.and_then(Cell::likelihood).map(|share| share.mean), percent));
            row.extend(with_interval(self.found.generation_at(length)));
            row.push(or_dash(control.and_then(Cell::generation).map(|share| share.mean), percent));
            row.push((length - self.found.answer_room).to_string());
            table.row(row);
        }
        table
    }

    fn summary(&self) -> Table {
        let mut table = Table::new("summary", &["what", "value"]);
        let mut row = |what: &str, value: String| table.row([what.to_string(), value]);
        let [likelihood, generation] = self.effective();
        let length = |found: Option<usize>| found.map_or("none".to_string(), |length| length.to_string());
        let at = percent(self.threshold);
        if self.request.score.likelihood() {
            row(&format!("effective length by likelihood (at {at} %)"), length(likelihood));
        }
        if self.request.score.generation() {
            row(&format!("effective length by generation (at {at} %)"), length(generation));
        }
        if let Some(chance) = self.found.chance {
            row("likelihood by chance, %", percent(chance));
        }
        let tokens = self.found.tokens;
        row("tokens computed", tokens.computed.to_string());
        row("tokens with a prefill for every prompt", tokens.naive.to_string());
        row("tokens with a pass for every candidate", tokens.naive_per_candidate.to_string());
        table
    }
}
