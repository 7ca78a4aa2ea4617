//! Figures of results that were written as JSON, several files over common axes.

use std::collections::BTreeMap;

use serde_json::Value;
use thiserror::Error;

use super::figure::{Axis, AxisScale, Curves, Figure, HeatMap, Mark, NamedFigure, Palette, Series};

/// Schemas that are read, without their versions.
const READ: [&str; 3] = ["ropex.ppl", "ropex.needle", "ropex.sweep-cell"];

/// What a sweep measures: name of the measure, key of the value, what it is.
const SWEPT: [(&str, &str, &str); 2] =
    [("ppl", "ppl", "perplexity"), ("memory", "total_bytes", "memory (bytes)")];

/// Why a file holds no figure.
#[derive(Debug, Error)]
pub enum ResultError {
    #[error("line {line} is not JSON: {reason}")]
    Json { line: usize, reason: String },
    #[error("its schema is {found}; results of these are drawn: {}", READ.join(", "))]
    Schema { found: String },
    #[error("the result `{schema}` has nothing to draw: {missing}")]
    Nothing { schema: String, missing: &'static str },
    #[error("`{key}` must be {expected}, found {found}")]
    Value { key: String, expected: &'static str, found: String },
}

/// The results of one file.
#[derive(Debug)]
pub struct ResultFile {
    name: String,
    results: Vec<Value>,
}

impl ResultFile {
    /// Reads `text`: one JSON object, or one a line. `name` tells the file apart in legends and names of figures.
    ///
    /// # Errors
    /// [`ResultError::Json`] and [`ResultError::Schema`].
    pub fn parse(name: &str, text: &str) -> Result<Self, ResultError> {
        let results = match serde_json::from_str::<Value>(text) {
            Ok(value) => vec![value],
            Err(whole) => lines(text).map_err(|(line, error)| match line {
                // One object over several lines that is broken: its own message says where.
                1 => ResultError::Json { line: whole.line(), reason: whole.to_string() },
                _ => ResultError::Json { line, reason: error.to_string() },
            })?,
        };
        for result in &results {
            let found = result["schema"].as_str();
            if !found.is_some_and(|found| READ.contains(&family(found))) {
                let found = found.map_or("absent".to_string(), |found| format!("`{found}`"));
                return Err(ResultError::Schema { found });
            }
        }
        Ok(Self { name: name.to_string(), results })
    }
}

fn lines(text: &str) -> Result<Vec<Value>, (usize, serde_json::Error)> {
    let filled = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    filled.map(|(at, line)| serde_json::from_str(line).map_err(|source| (at + 1, source))).collect()
}

/// `ropex.ppl` of `ropex.ppl/1`.
fn family(schema: &str) -> &str {
    schema.split('/').next().unwrap_or(schema)
}

/// The figures of all `files`: perplexities of all share axes, each needle grid has its own map.
///
/// # Errors
/// [`ResultError::Nothing`] for a result without curves or cells, [`ResultError::Value`] for one of another shape.
pub fn figures(files: &[ResultFile]) -> Result<Vec<NamedFigure>, ResultError> {
    let mut drawn = Drawn::default();
    for file in files {
        for result in &file.results {
            match family(result["schema"].as_str().unwrap_or_default()) {
                "ropex.ppl" => drawn.perplexity(&file.name, result)?,
                "ropex.needle" => drawn.needle(&file.name, result)?,
                _ => drawn.cell(result)?,
            }
        }
    }
    Ok(drawn.finish())
}

/// What has been read so far.
#[derive(Default)]
struct Drawn {
    curves: Vec<Series>,
    by_position: Vec<Series>,
    maps: Vec<NamedFigure>,
    /// By index in [`SWEPT`], then by label: contexts and values.
    swept: BTreeMap<usize, Vec<Series>>,
    trained: Vec<f64>,
}

impl Drawn {
    fn perplexity(&mut self, file: &str, result: &Value) -> Result<(), ResultError> {
        let (curve, by_position) = (&result["result"]["curve"], &result["result"]["by_position"]);
        if curve.is_null() && by_position.is_null() {
            let missing = "measure it with `--curve` or `--by-position`";
            return Err(ResultError::Nothing { schema: schema(result), missing });
        }
        if let Some(trained) = result["rope"]["original_context"]["value"].as_f64() {
            self.trained.push(trained);
        }
        if !curve.is_null() {
            let xs = numbers(curve, "positions")?;
            let ys = numbers(curve, "ppl")?;
            let band = band(curve, &xs, f64::exp)?;
            let name = series_name(&self.curves, file, result);
            self.curves.push(Series { name, points: xs.into_iter().zip(ys).collect(), band });
        }
        if !by_position.is_null() {
            let (first, last) = (numbers(by_position, "positions")?, numbers(by_position, "last_positions")?);
            // A bucket stands in the middle of its positions, on a logarithmic axis; position 0 has no logarithm.
            let xs: Vec<f64> =
                first.iter().zip(&last).map(|(a, b)| (a.max(1.0) * b.max(1.0)).sqrt()).collect();
            let ys = numbers(by_position, "nll")?;
            let band = band(by_position, &xs, |nll| nll)?;
            let name = series_name(&self.by_position, file, result);
            self.by_position.push(Series { name, points: xs.into_iter().zip(ys).collect(), band });
        }
        Ok(())
    }

    fn needle(&mut self, file: &str, result: &Value) -> Result<(), ResultError> {
        let cells = result["result"]["cells"].as_array().map(Vec::as_slice).unwrap_or_default();
        let before = self.maps.len();
        for score in ["likelihood", "generation"] {
            let scored = cells.iter().filter(|cell| cell[score]["score"].is_number());
            let mut found = Vec::new();
            for cell in scored {
                found.push((number(cell, "length")?, number(cell, "depth")?, number(&cell[score], "score")?));
            }
            if !found.is_empty() {
                let title = format!("Needle by {score}: {}", label(result));
                let name = format!("needle-{score}-{}", file_name(file));
                self.maps.push(NamedFigure::new(unused(&self.maps, &name), needle_map(title, &found)));
            }
        }
        if self.maps.len() == before {
            return Err(ResultError::Nothing { schema: schema(result), missing: "no cell has a score" });
        }
        Ok(())
    }

    /// One cell of a sweep; a cell that failed, or a measure that is no curve, adds nothing.
    fn cell(&mut self, result: &Value) -> Result<(), ResultError> {
        let cell = &result["cell"];
        let measure = SWEPT.iter().position(|(measure, _, _)| cell["measure"] == *measure);
        let (Some(measure), "done") = (measure, result["status"].as_str().unwrap_or_default()) else {
            return Ok(());
        };
        let point = (number(cell, "context")?, number(&result["result"], SWEPT[measure].1)?);
        let name = cell["label"].as_str().unwrap_or_default();
        let all = self.swept.entry(measure).or_default();
        match all.iter_mut().find(|series| series.name == name) {
            Some(series) => series.points.push(point),
            None => all.push(Series { name: name.to_string(), points: vec![point], band: Vec::new() }),
        }
        Ok(())
    }

    fn finish(self) -> Vec<NamedFigure> {
        let mut figures = Vec::new();
        let marks: Vec<Mark> = match self.trained.first() {
            Some(first) if self.trained.iter().all(|trained| trained == first) => {
                vec![Mark { at: *first, label: "trained length".to_string() }]
            }
            _ => Vec::new(),
        };
        let mut add = |name: &str, title: &str, x: &str, y: &str, mut series: Vec<Series>, marks: &[Mark]| {
            series.iter_mut().for_each(|series| series.points.sort_by(|a, b| a.0.total_cmp(&b.0)));
            let curves = Curves {
                title: title.to_string(),
                x: Axis::new(x, AxisScale::Log2),
                y: Axis::new(y, scale(&series)),
                series,
                marks: marks.to_vec(),
            };
            figures.push(NamedFigure::new(name, Figure::Curves(curves)));
        };
        if !self.curves.is_empty() {
            add("ppl-curve", "Perplexity by length", "length (tokens)", "perplexity", self.curves, &marks);
        }
        if !self.by_position.is_empty() {
            let (title, x) = ("Loss by position", "tokens of context");
            add("ppl-by-position", title, x, "loss (nats per token)", self.by_position, &marks);
        }
        for (measure, series) in self.swept {
            let (name, _, value) = SWEPT[measure];
            add(&format!("sweep-{name}"), "Sweep by context", "context (tokens)", value, series, &[]);
        }
        figures.extend(self.maps);
        figures
    }
}

/// Logarithmic when the values span more than a factor of ten.
fn scale(series: &[Series]) -> AxisScale {
    let values = || series.iter().flat_map(|series| &series.points).map(|(_, y)| *y);
    let (low, high) = (values().fold(f64::INFINITY, f64::min), values().fold(0.0, f64::max));
    if low > 0.0 && high > 10.0 * low { AxisScale::Log10 } else { AxisScale::Linear }
}

fn needle_map(title: String, found: &[(f64, f64, f64)]) -> Figure {
    let distinct = |of: fn(&(f64, f64, f64)) -> f64| {
        let mut values: Vec<f64> = found.iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        values.dedup();
        values
    };
    let (lengths, depths) = (distinct(|cell| cell.0), distinct(|cell| cell.1));
    let cell = |length: f64, depth: f64| {
        found.iter().find(|(l, d, _)| *l == length && *d == depth).map(|(_, _, score)| 100.0 * score)
    };
    Figure::HeatMap(HeatMap {
        title,
        x_label: "length (tokens)".into(),
        y_label: "depth".into(),
        columns: lengths.iter().map(|length| super::axis::length(*length)).collect(),
        rows: depths.iter().map(f64::to_string).collect(),
        cells: depths.iter().map(|d| lengths.iter().map(|l| cell(*l, *d)).collect()).collect(),
        value_label: "found (%)".into(),
        range: Some((0.0, 100.0)),
        palette: Palette::Sequential,
        show_values: true,
    })
}

fn schema(result: &Value) -> String {
    result["schema"].as_str().unwrap_or_default().to_string()
}

/// `yarn x2`: the embedding that a result was measured with.
fn label(result: &Value) -> String {
    let scaling = result["rope"]["scaling"]["value"].as_str().unwrap_or("unknown scaling");
    match result["rope"]["factor"]["value"].as_f64() {
        Some(factor) => format!("{scaling} x{factor}"),
        None => scaling.to_string(),
    }
}

/// The embedding; with the file when another curve has that name.
fn series_name(known: &[Series], file: &str, result: &Value) -> String {
    let label = label(result);
    match known.iter().any(|series| series.name == label) {
        true => format!("{label} ({file})"),
        false => label,
    }
}

/// A name of files as part of the name of a figure.
fn file_name(file: &str) -> String {
    let kept = |letter: char| if letter.is_ascii_alphanumeric() || letter == '_' { letter } else { '-' };
    file.chars().map(kept).collect()
}

fn unused(known: &[NamedFigure], name: &str) -> String {
    let taken = |name: &str| known.iter().any(|figure| figure.name == name);
    let numbered = (2..).map(|number| format!("{name}-{number}"));
    std::iter::once(name.to_string()).chain(numbered).find(|name| !taken(name)).unwrap_or_default()
}

fn number(object: &Value, key: &str) -> Result<f64, ResultError> {
    object[key].as_f64().ok_or_else(|| ResultError::Value {
        key: key.to_string(),
        expected: "a number",
        found: object[key].to_string(),
    })
}

fn numbers(object: &Value, key: &str) -> Result<Vec<f64>, ResultError> {
    let wrong = || ResultError::Value {
        key: key.to_string(),
        expected: "a list of numbers",
        found: object[key].to_string(),
    };
    let list = object[key].as_array().ok_or_else(wrong)?;
    list.iter().map(|value| value.as_f64().ok_or_else(wrong)).collect()
}

/// The band of losses `nll_low` to `nll_high`, as `of` them; places without an interval are left out.
fn band(object: &Value, xs: &[f64], of: fn(f64) -> f64) -> Result<Vec<(f64, f64, f64)>, ResultError> {
    let list = |key: &str| object[key].as_array().map(Vec::as_slice).unwrap_or_default();
    let (lows, highs) = (list("nll_low"), list("nll_high"));
    let ends = xs.iter().zip(lows.iter().zip(highs));
    let known = ends.filter_map(|(x, (low, high))| Some((*x, of(low.as_f64()?), of(high.as_f64()?))));
    Ok(known.collect())
}

#[cfg(test)]
mod tests;
