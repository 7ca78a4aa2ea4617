//! Angles by position and pair, with what training never showed.

use std::ops::Range;

use super::{mean_cos, method_name, tokens, unscaled};
use crate::plot::figure::{BandedMap, Figure, HeatMap, Mark, Palette, RowBand};
use crate::rope::{RopeError, RopeSpec, Scaling, base_frequencies, frequencies, turning_pairs};

/// Columns of the map.
const COLUMNS: usize = 256;
/// Shares of the way from kept to divided that still count as one of the ends; rounding only.
const END: f64 = 1e-9;

/// cos of every angle `position x frequency` of `spec` for `length` positions, positions in columns (each the mean over the
/// positions it stands for, so that a pair that turns many times within a column is neutral) and pairs in rows. The end of the original
/// context is marked; hatched are angles beyond the largest one of the training, for pairs that did not complete a turn
/// there. Figures 2 to 4 of the post are this one without scaling, with linear and with YaRN.
///
/// # Errors
/// The [`RopeError`] of a spec that cannot be computed.
pub fn angles(spec: &RopeSpec, length: usize) -> Result<Figure, RopeError> {
    let scaled = frequencies(spec, length)?;
    let trained = frequencies(&unscaled(spec), length)?;
    let edges = column_edges(length);
    let spans = || edges.windows(2).map(|edge| edge[0]..edge[1]);
    let row = |f: &f64| spans().map(|span| Some(mean_cos(*f, span.start, span.end))).collect();
    let turning = turning_pairs(&trained.inv_freq, spec.original_context);
    let last = spec.original_context.saturating_sub(1) as f64;
    let columns = edges.len() - 1;
    let unseen = |pair: usize| {
        let largest = trained.inv_freq[pair] * last;
        // A column belongs to the region when its first position does.
        let first = (0..columns).find(|c| edges[*c] as f64 * scaled.inv_freq[pair] > largest * (1.0 + END));
        if pair < turning { columns..columns } else { first.unwrap_or(columns)..columns }
    };
    let region: Vec<Range<usize>> = (0..scaled.inv_freq.len()).map(unseen).collect();
    let shown = region.iter().any(|range| !range.is_empty());
    let per_column = length as f64 / columns as f64;
    let mut marks = Vec::new();
    if spec.original_context <= length {
        let label = format!("trained length {}", tokens(spec.original_context));
        marks.push(Mark { at: spec.original_context as f64 / per_column, label });
    }
    Ok(Figure::BandedMap(BandedMap {
        map: HeatMap {
            title: format!("Angles of {}: cos(position \u{d7} frequency)", method_name(spec)),
            x_label: "position (tokens)".into(),
            y_label: "pair, the fastest first".into(),
            columns: edges[..columns].iter().map(|start| tokens(*start)).collect(),
            rows: (0..scaled.inv_freq.len()).map(|pair| pair.to_string()).collect(),
            cells: scaled.inv_freq.iter().map(row).collect(),
            value_label: "cos(angle)".into(),
            range: Some((-1.0, 1.0)),
            palette: Palette::Diverging,
            show_values: false,
        },
        marks,
        bands: bands(spec, &scaled.inv_freq, turning),
        region: if shown { region } else { Vec::new() },
        region_label: "angles that training never showed".into(),
    }))
}

/// Borders of columns of as equal a number of positions as whole positions allow.
fn column_edges(length: usize) -> Vec<usize> {
    let columns = COLUMNS.min(length.max(1));
    (0..=columns).map(|column| (column as u128 * length.max(1) as u128 / columns as u128) as usize).collect()
}

/// Bands of pairs: by what the method does to them where it treats them differently, else by their turns in training.
fn bands(spec: &RopeSpec, scaled: &[f64], turning: usize) -> Vec<RowBand> {
    let ramped = matches!(
        spec.scaling,
        Scaling::NtkByParts { .. } | Scaling::Yarn(_) | Scaling::DynamicYarn(_) | Scaling::Llama3(_)
    );
    let pairs = scaled.len();
    let base = base_frequencies(spec.theta, spec.rotary_dim);
    let divided: Vec<f64> = base.iter().zip(scaled).map(|(base, scaled)| base / scaled).collect();
    let most = divided.iter().copied().fold(1.0, f64::max);
    let (first, second, names) = if ramped && most > 1.0 + END {
        let kept = divided.iter().filter(|by| **by <= 1.0 + END).count();
        let whole = divided.iter().filter(|by| **by >= most * (1.0 - END)).count();
        (kept, pairs - whole, ["kept", "blended", "interpolated"])
    } else {
        (turning, turning, ["at least one turn in training", "", "less than one turn in training"])
    };
    let bands = [(0..first, names[0]), (first..second, names[1]), (second..pairs, names[2])];
    let named = |(rows, name): (Range<usize>, &str)| {
        let label = match rows.len() {
            1 => format!("{name}: pair {}", rows.start),
            _ => format!("{name}: pairs {} to {}", rows.start, rows.end.saturating_sub(1)),
        };
        RowBand { rows, label }
    };
    bands.into_iter().filter(|(rows, _)| !rows.is_empty()).map(named).collect()
}
