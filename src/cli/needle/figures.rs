//! Heat maps over depth and length, and curves over length.

use super::super::values::format_number;
use super::report::View;
use crate::eval::needle::{Cell, Share};
use crate::plot::{Axis, AxisScale, Curves, Figure, HeatMap, NamedFigure, Palette, Series};

/// `1k` for 1024.
fn length_name(length: usize) -> String {
    if length.is_multiple_of(1024) { format!("{}k", length / 1024) } else { length.to_string() }
}

impl View<'_> {
    /// What `--figures` and `--report` draw: a map for every score that was taken, and the scores by length.
    pub fn figures(&self) -> Vec<NamedFigure> {
        let percent = |share: Option<Share>| share.map(|share| 100.0 * share.mean);
        let mut figures = Vec::new();
        if self.request.score.likelihood() {
            let first = |cell: &Cell| percent(cell.likelihood());
            let title = "Right answer more likely than every decoy";
            figures.push(self.map("needle-likelihood", title, "%", Some((0.0, 100.0)), first));
            let title = "How much more likely than the best decoy";
            figures.push(self.map("needle-margin", title, "nats", None, Cell::margin));
        }
        if self.request.score.generation() {
            let strict = |cell: &Cell| percent(cell.generation());
            let title = "Right answer in the greedy continuation";
            figures.push(self.map("needle-generation", title, "%", Some((0.0, 100.0)), strict));
        }
        figures.push(self.curves());
        figures
    }

    fn map(
        &self,
        name: &str,
        title: &str,
        unit: &str,
        range: Option<(f64, f64)>,
        value: impl Fn(&Cell) -> Option<f64>,
    ) -> NamedFigure {
        let depths = self.request.depths.cells();
        let row = |index: usize| {
            let cells = self.found.cells.iter().skip(index).step_by(depths.len());
            cells.map(|cell| value(cell).filter(|value| value.is_finite())).collect()
        };
        let map = HeatMap {
            title: title.to_string(),
            x_label: "length, tokens".to_string(),
            y_label: "depth (0: start)".to_string(),
            columns: self.request.lengths.iter().map(|length| length_name(*length)).collect(),
            rows: depths.iter().map(|depth| depth.map_or("spread".to_string(), format_number)).collect(),
            cells: (0..depths.len()).map(row).collect(),
            value_label: unit.to_string(),
            range,
            palette: if range.is_some() { Palette::Sequential } else { Palette::Diverging },
            show_values: true,
        };
        NamedFigure { name: name.to_string(), figure: Figure::HeatMap(map) }
    }

    fn curves(&self) -> NamedFigure {
        let found = self.found;
        let control = |length: usize| found.controls.iter().find(|cell| cell.length == length);
        let mut series = Vec::new();
        if self.request.score.likelihood() {
            series.push(self.series("likelihood", |length| found.likelihood_at(length)));
            series.push(self.series("likelihood, control", |length| control(length)?.likelihood()));
        }
        if self.request.score.generation() {
            series.push(self.series("generation", |length| found.generation_at(length)));
            series.push(self.series("generation, control", |length| control(length)?.generation()));
        }
        series.retain(|series| !series.points.is_empty());
        let curves = Curves {
            title: "Retrieval by length, all depths".to_string(),
            x: Axis::new("length, tokens", AxisScale::Log2),
            y: Axis::new("score, %", AxisScale::Linear),
            series,
            marks: Vec::new(),
        };
        NamedFigure { name: "needle-by-length".to_string(), figure: Figure::Curves(curves) }
    }

    fn series(&self, name: &str, share: impl Fn(usize) -> Option<Share>) -> Series {
        let mut lengths = self.request.lengths.clone();
        lengths.sort_unstable();
        let shares = lengths.iter().filter_map(|length| Some((*length as f64, share(*length)?)));
        let shares: Vec<(f64, Share)> = shares.collect();
        let band = |(x, share): &(f64, Share)| (*x, 100.0 * share.interval.low, 100.0 * share.interval.high);
        Series {
            name: name.to_string(),
            points: shares.iter().map(|(x, share)| (*x, 100.0 * share.mean)).collect(),
            // Four bands over each other cannot be told apart.
            band: if name.contains("control") { Vec::new() } else { shares.iter().map(band).collect() },
        }
    }
}
