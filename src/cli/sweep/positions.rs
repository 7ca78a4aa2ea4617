//! Loss by position, method beside method, and perplexity by context.

use serde_json::Value;

use crate::cli::report::Table;
use crate::cli::values::format_number;
use crate::eval::sweep::{Measure, Record};
use crate::named::Named;
use crate::plot::{Axis, AxisScale, Curves, Figure, Mark, NamedFigure, Series};

/// Mean loss of the tokens at some positions.
struct Bucket {
    first: u64,
    last: u64,
    nll: f64,
    /// 95 % interval.
    interval: Option<(f64, f64)>,
}

fn buckets(record: &Record) -> Vec<Bucket> {
    let read = |bucket: &Value| {
        let interval = bucket["low"].as_f64().zip(bucket["high"].as_f64());
        Some(Bucket {
            first: bucket["first"].as_u64()?,
            last: bucket["last"].as_u64()?,
            nll: bucket["nll"].as_f64()?,
            interval,
        })
    };
    let list = record.result["by_position"].as_array().into_iter().flatten();
    list.filter_map(read).collect()
}

/// The cells that hold losses by position, by context, in their order.
fn by_context(records: &[Record]) -> Vec<(usize, Vec<&Record>)> {
    let mut contexts: Vec<(usize, Vec<&Record>)> = Vec::new();
    let measured = |record: &&Record| record.cell.measure == Measure::Ppl.name() && record.is_done();
    for record in records.iter().filter(measured) {
        match contexts.last_mut() {
            Some((context, cells)) if *context == record.cell.context => cells.push(record),
            _ => contexts.push((record.cell.context, vec![record])),
        }
    }
    contexts
}

/// For each context, positions down and methods across: perplexity and its 95 % interval.
pub fn tables(records: &[Record]) -> Vec<Table> {
    by_context(records).iter().map(|(context, cells)| table(*context, cells)).collect()
}

fn table(context: usize, cells: &[&Record]) -> Table {
    let title = format!("ppl by position (tokens before the target), context {context}, 95 % intervals");
    let mut table = Table::new(title, &["position"]);
    table.columns.extend(cells.iter().map(|record| record.cell.label.clone()));
    let columns: Vec<Vec<Bucket>> = cells.iter().map(|record| buckets(record)).collect();
    let mut ranges: Vec<(u64, u64)> =
        columns.iter().flatten().map(|bucket| (bucket.first, bucket.last)).collect();
    ranges.sort_unstable();
    ranges.dedup();
    for (first, last) in ranges {
        let shown = |column: &Vec<Bucket>| {
            let found = column.iter().find(|bucket| (bucket.first, bucket.last) == (first, last));
            found.map_or("-".to_string(), |bucket| {
                let ppl = format_number(bucket.nll.exp());
                let interval = bucket.interval.map(|(low, high)| {
                    format!(" ({} - {})", format_number(low.exp()), format_number(high.exp()))
                });
                ppl + &interval.unwrap_or_default()
            })
        };
        let position = if first == last { first.to_string() } else { format!("{first} - {last}") };
        table.row(std::iter::once(position).chain(columns.iter().map(shown)));
    }
    table
}

/// Curves of loss by position, one figure a context, and of perplexity by context where there are several.
pub fn figures(records: &[Record]) -> Vec<NamedFigure> {
    let contexts = by_context(records);
    let mut figures: Vec<NamedFigure> =
        contexts.iter().map(|(context, cells)| by_position(*context, cells)).collect();
    if contexts.len() > 1 {
        figures.push(over_contexts(&contexts));
    }
    figures
}

fn by_position(context: usize, cells: &[&Record]) -> NamedFigure {
    let series = |record: &&Record| {
        let mut series = Series { name: record.cell.label.clone(), ..Series::default() };
        for bucket in buckets(record) {
            let x = ((bucket.first * bucket.last) as f64).sqrt();
            series.points.push((x, bucket.nll));
            series.band.extend(bucket.interval.map(|(low, high)| (x, low, high)));
        }
        series
    };
    let curves = Curves {
        title: format!("Loss by position, context {context}"),
        x: Axis::new("tokens of context", AxisScale::Log2),
        y: Axis::new("loss (nats per token)", AxisScale::Linear),
        series: cells.iter().map(series).collect(),
        marks: trained(cells, context),
    };
    NamedFigure { name: format!("by-position-{context}"), figure: Figure::Curves(curves) }
}

/// The trained length, where all cells agree on it and the figure reaches it.
fn trained(cells: &[&Record], context: usize) -> Vec<Mark> {
    let of = |record: &&Record| record.inputs["ppl"]["trained"].as_u64();
    let first =
        cells.first().and_then(of).filter(|_| cells.iter().map(of).all(|other| other == of(&cells[0])));
    let reached = first.filter(|trained| *trained <= context as u64);
    reached
        .map(|trained| Mark { at: trained as f64, label: "trained length".to_string() })
        .into_iter()
        .collect()
}

fn over_contexts(contexts: &[(usize, Vec<&Record>)]) -> NamedFigure {
    let mut series: Vec<Series> = Vec::new();
    for record in contexts.iter().flat_map(|(_, cells)| cells) {
        let value = |key: &str| record.result[key].as_f64();
        let Some(nll) = value("nll") else {
            continue;
        };
        let label = &record.cell.label;
        let place = series.iter().position(|series| series.name == *label).unwrap_or_else(|| {
            series.push(Series { name: label.clone(), ..Series::default() });
            series.len() - 1
        });
        let x = record.cell.context as f64;
        series[place].points.push((x, nll));
        series[place].band.extend(value("nll_low").zip(value("nll_high")).map(|(low, high)| (x, low, high)));
    }
    let curves = Curves {
        title: "Loss by context".to_string(),
        x: Axis::new("context (tokens)", AxisScale::Log2),
        y: Axis::new("loss (nats per token)", AxisScale::Linear),
        series,
        marks: Vec::new(),
    };
    NamedFigure { name: "by-context".to_string(), figure: Figure::Curves(curves) }
}
