//! The result of a sweep, made from its finished cells: the same whether they come from a run or from files.

use serde_json::{Map, Value, json};

use super::{SCHEMA, depths, positions};
use crate::cli::model_args::OpenModel;
use crate::cli::report::{Report, Table};
use crate::cli::values::{format_duration, format_number, format_size};
use crate::eval::gate::junit::{Case, CaseOutcome};
use crate::eval::gate::{Metric, MetricName};
use crate::eval::sweep::{CellId, Measure, Record, Status};
use crate::named::Named;

/// The report on these cells, in their order.
pub fn report(records: &[Record]) -> Report {
    let count = |status: Status| records.iter().filter(|record| record.status == status).count();
    let failure = |record: &Record| format!("{}: {}", record.cell, record.error.as_deref().unwrap_or("-"));
    Report {
        schema: SCHEMA,
        result: json!({
            "done_cells": count(Status::Done),
            "failed_cells": count(Status::Failed),
            "refused_cells": count(Status::Refused),
            "cells": records.iter().map(cell_json).collect::<Value>(),
        }),
        tables: tables(records),
        figures: [positions::figures(records), depths::figures(records)].concat(),
        failures: records.iter().filter(|record| record.status == Status::Failed).map(failure).collect(),
        ..Report::default()
    }
}

fn cell_json(record: &Record) -> Value {
    let CellId { measure, label, scaling, factor, context } = &record.cell;
    json!({
        "measure": measure,
        "label": label,
        "scaling": scaling,
        "factor": factor,
        "context": context,
        "status": record.status_name(),
        "error": record.error,
        "key": record.key,
        "inputs": record.inputs,
        "result": record.result,
    })
}

/// What the checkpoint says about its own scaling.
pub fn describe_model(report: &mut Report, open: &OpenModel) {
    let fine_tuned = match open.config.rope.fine_tuned {
        Some(true) => "yes",
        Some(false) => "no",
        None => "unknown",
    };
    report.model["fine_tuned"] = fine_tuned.into();
}

/// Times of the cells, by their names.
pub fn add_cell_timing(report: &mut Report, records: &[Record]) {
    let timed = records.iter().filter_map(|record| Some((record.cell.to_string(), record.timing.clone()?)));
    let cells: Map<String, Value> = timed.collect();
    report.timing["cells"] = Value::Object(cells);
}

/// The main value of a measure, and how a table shows it.
struct Shown {
    value: String,
    /// 95 % interval.
    interval: String,
    detail: String,
}

fn shown(record: &Record) -> Shown {
    let result = &record.result;
    let number = |key: &str| result[key].as_f64().map_or("-".to_string(), format_number);
    let dash = || "-".to_string();
    if let Some(error) = &record.error {
        return Shown { value: record.status_name().to_string(), interval: dash(), detail: error.clone() };
    }
    match Measure::parse(&record.cell.measure) {
        Ok(Measure::Ppl) => Shown {
            value: number("ppl"),
            interval: interval(result)
                .map_or_else(dash, |(low, high)| format!("{} - {}", format_number(low), format_number(high))),
            detail: format!("{} tokens, {} window(s)", result["tokens_scored"], result["windows"]),
        },
        Ok(Measure::Memory) => {
            let size = |key: &str| result[key].as_u64().map_or_else(dash, format_size);
            Shown {
                value: size("total_bytes"),
                interval: dash(),
                detail: format!("weights {}, cache {}", size("weights_bytes"), size("kv_bytes")),
            }
        }
        Ok(Measure::Speed) => {
            let rate = |key: &str| {
                let timing = record.timing.as_ref().and_then(|timing| timing[key].as_f64());
                timing.map_or_else(dash, |rate| format!("{rate:.0}"))
            };
            Shown {
                value: format!("{} tokens/s", rate("prefill_tokens_per_s")),
                interval: dash(),
                detail: format!("decode {} tokens/s", rate("decode_tokens_per_s")),
            }
        }
        Ok(Measure::Needle) => {
            let percent = |key: &str| {
                result[key].as_f64().map_or("-".to_string(), |share| format!("{:.0} %", 100.0 * share))
            };
            Shown {
                value: percent("needle"),
                interval: format!("{} - {}", percent("needle_low"), percent("needle_high")),
                detail: format!(
                    "control {}, generation {}",
                    percent("control"),
                    percent("needle_generation")
                ),
            }
        }
        Err(_) => Shown { value: dash(), interval: dash(), detail: dash() },
    }
}

/// Ends of the 95 % interval of ppl.
fn interval(result: &Value) -> Option<(f64, f64)> {
    Some((result["nll_low"].as_f64()?.exp(), result["nll_high"].as_f64()?.exp()))
}

/// One line for people who watch.
pub fn line(record: &Record) -> String {
    let Shown { value, detail, .. } = shown(record);
    format!("{}: {value} ({detail})", record.cell)
}

fn tables(records: &[Record]) -> Vec<Table> {
    let columns =
        ["rope", "scaling", "factor", "context", "measure", "value", "95 % interval", "detail", "time"];
    let mut cells = Table::new("cells", &columns);
    for record in records {
        let Shown { value, interval, detail } = shown(record);
        let elapsed_s = record.timing.as_ref().and_then(|timing| timing["elapsed_s"].as_f64());
        cells.row([
            record.cell.label.clone(),
            record.cell.scaling.clone(),
            record.cell.factor.map_or("-".to_string(), format_number),
            record.cell.context.to_string(),
            record.cell.measure.clone(),
            value,
            interval,
            detail,
            elapsed_s.map_or("-".to_string(), format_duration),
        ]);
    }
    let mut tables = vec![cells];
    tables.extend(positions::tables(records));
    tables
}

/// Values of a finished cell that a gate may name, by measure.
fn cell_metrics(measure: &str) -> &'static [&'static str] {
    match Measure::parse(measure) {
        Ok(Measure::Ppl) => {
            &["ppl", "nll", "nll_stderr", "bits_per_byte", "word_ppl", "tokens_scored", "effective_context"]
        }
        Ok(Measure::Needle) => &["needle", "needle_generation"],
        Ok(Measure::Memory) => &["total_bytes"],
        Ok(Measure::Speed) | Err(_) => &[],
    }
}

/// Values of the whole sweep that a gate may name.
const COUNTS: [&str; 3] = ["done_cells", "failed_cells", "refused_cells"];

/// The names of a value: `LABEL/NAME@CONTEXT`, and `NAME@CONTEXT` where all cells have one label.
fn names(name: &str, label: &str, context: usize, only_label: bool) -> Vec<MetricName> {
    let mut names = vec![MetricName::new(format!("{label}/{name}"), Some(context))];
    names.extend(only_label.then(|| MetricName::new(name, Some(context))));
    names
}

/// What gates may name in a sweep over these cells.
pub fn metric_names<'c>(cells: impl Iterator<Item = &'c CellId>) -> Vec<MetricName> {
    let cells: Vec<&CellId> = cells.collect();
    let only_label = cells.iter().all(|cell| cell.label == cells[0].label);
    let of = |cell: &&CellId| {
        let (label, context) = (cell.label.clone(), cell.context);
        let all = cell_metrics(&cell.measure).iter();
        all.flat_map(move |name| names(name, &label, context, only_label)).collect::<Vec<_>>()
    };
    let counts = COUNTS.iter().map(|name| MetricName::new(*name, None));
    counts.chain(cells.iter().flat_map(of)).collect()
}

/// The values that gates may name, from `result`.
pub fn metrics(result: &Value) -> Vec<Metric> {
    let value =
        |name: &&'static str| Metric { name: MetricName::new(*name, None), value: result[*name].as_f64() };
    let mut metrics: Vec<Metric> = COUNTS.iter().map(value).collect();
    let cells: Vec<&Value> = result["cells"].as_array().into_iter().flatten().collect();
    let only_label = cells.iter().all(|cell| cell["label"] == cells[0]["label"]);
    for cell in cells {
        let (Some(label), Some(measure)) = (cell["label"].as_str(), cell["measure"].as_str()) else {
            continue;
        };
        let context = cell["context"].as_u64().and_then(|context| usize::try_from(context).ok());
        for (name, context) in cell_metrics(measure).iter().zip(std::iter::repeat(context)) {
            let value = cell["result"][*name].as_f64();
            let names = names(name, label, context.unwrap_or(0), only_label);
            for name in names {
                match metrics.iter_mut().find(|metric| metric.name == name) {
                    // Two cells of one name, from other settings: a gate on it would be a gate on either.
                    Some(twin) => twin.value = None,
                    None => metrics.push(Metric { name, value }),
                }
            }
        }
    }
    metrics
}

/// One test case a cell.
pub fn junit_cases(records: &[Record]) -> Vec<Case> {
    let case = |record: &Record| {
        let error = || record.error.clone().unwrap_or_default();
        let elapsed_s = record.timing.as_ref().and_then(|timing| timing["elapsed_s"].as_f64());
        let outcome = match record.status {
            Status::Done => CaseOutcome::Passed,
            Status::Failed => CaseOutcome::Errored(error()),
            Status::Refused => CaseOutcome::Skipped(error()),
        };
        Case { name: record.cell.to_string(), elapsed_s, outcome }
    };
    records.iter().map(case).collect()
}
