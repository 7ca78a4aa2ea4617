//! What the page's script needs to answer the pointer.

use serde_json::{Value, json};

use crate::plot::scene::{Area, Hover};
use crate::plot::theme::SERIES_COLORS;

/// Two decimals are a hundredth of a unit of the figure.
fn rounded(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

fn area(area: &Area) -> Value {
    json!({
        "left": rounded(area.left),
        "top": rounded(area.top),
        "width": rounded(area.width),
        "height": rounded(area.height),
    })
}

/// The data of a figure; `None` for one that has no values to show.
pub fn json(hover: &Hover) -> Option<Value> {
    match hover {
        Hover::Nothing => None,
        Hover::Curves { area: place, x_label, y_label, series } => {
            let series = series.iter().map(|series| {
                let points = series.points.iter().map(|point| {
                    let at = [rounded(point.at.0), rounded(point.at.1)];
                    json!({ "at": at, "x": point.x, "value": point.value })
                });
                json!({
                    "name": series.name,
                    "color": series.index % SERIES_COLORS,
                    "points": points.collect::<Value>(),
                })
            });
            let series: Value = series.collect();
            Some(
                json!({ "kind": "curves", "area": area(place), "x": x_label, "y": y_label, "series": series }),
            )
        }
        Hover::HeatMap { area: place, x_label, y_label, value_label, columns, rows, cells } => Some(json!({
            "kind": "heat-map",
            "area": area(place),
            "x": x_label,
            "y": y_label,
            "value": value_label,
            "columns": columns,
            "rows": rows,
            "cells": cells,
        })),
    }
}
