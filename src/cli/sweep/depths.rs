//! Retrieval by depth and context: one heat map a method.

use crate::cli::values::format_number;
use crate::eval::sweep::cell::tokens;
use crate::eval::sweep::{Measure, Record};
use crate::named::Named;
use crate::plot::{Figure, HeatMap, NamedFigure, Palette};

/// A map for every embedding that has needles, in the order of the cells.
pub fn figures(records: &[Record]) -> Vec<NamedFigure> {
    let needles = |record: &&Record| record.cell.measure == Measure::Needle.name() && record.is_done();
    let records: Vec<&Record> = records.iter().filter(needles).collect();
    let mut labels: Vec<&str> = Vec::new();
    for record in &records {
        if !labels.contains(&record.cell.label.as_str()) {
            labels.push(&record.cell.label);
        }
    }
    labels.into_iter().map(|label| map(label, &records)).collect()
}

/// Shares by depth in per cent.
fn shares(record: &Record) -> Vec<(f64, Option<f64>)> {
    let rows = record.result["by_depth"].as_array().into_iter().flatten();
    rows.filter_map(|row| {
        let share = row["likelihood"].as_f64().or(row["generation"].as_f64());
        Some((row["depth"].as_f64()?, share.map(|share| 100.0 * share)))
    })
    .collect()
}

fn map(label: &str, records: &[&Record]) -> NamedFigure {
    let own: Vec<&&Record> = records.iter().filter(|record| record.cell.label == label).collect();
    let columns: Vec<Vec<(f64, Option<f64>)>> = own.iter().map(|record| shares(record)).collect();
    let mut depths: Vec<f64> = columns.iter().flatten().map(|(depth, _)| *depth).collect();
    depths.sort_by(f64::total_cmp);
    depths.dedup();
    let row = |depth: &f64| {
        let share = |column: &Vec<(f64, Option<f64>)>| {
            column.iter().find(|(at, _)| at == depth).and_then(|(_, share)| *share)
        };
        columns.iter().map(share).collect()
    };
    let map = HeatMap {
        title: format!("Needles found, {label}"),
        x_label: "context (tokens)".to_string(),
        y_label: "depth (0: start)".to_string(),
        columns: own.iter().map(|record| tokens(record.cell.context)).collect(),
        rows: depths.iter().map(|depth| format_number(*depth)).collect(),
        cells: depths.iter().map(row).collect(),
        value_label: "%".to_string(),
        range: Some((0.0, 100.0)),
        palette: Palette::Sequential,
        show_values: true,
    };
    NamedFigure { name: format!("needle-{label}"), figure: Figure::HeatMap(map) }
}
