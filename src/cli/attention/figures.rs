//! The figures of `ropex attention`: heads as heat maps, distances and positions as curves.

use super::output::{Output, range};
use crate::engine::probe::AttentionProbe;
use crate::eval::attention::{Attention, Comparison, Statistic, Sums};
use crate::plot::{Axis, AxisScale, Curves, Figure, HeatMap, Mark, NamedFigure, Palette, Series};

/// A statistic shown as a heat map of layers and heads.
struct Map {
    statistic: Statistic,
    /// In the name of the file.
    name: &'static str,
    label: &'static str,
    range: Option<(f64, f64)>,
}

const MAPS: [Map; 3] = [
    Map {
        statistic: Statistic::Sink,
        name: "sink",
        label: "share of the first tokens",
        range: Some((0.0, 1.0)),
    },
    Map { statistic: Statistic::Distance, name: "distance", label: "mean distance (tokens)", range: None },
    Map { statistic: Statistic::Entropy, name: "entropy", label: "entropy (nats)", range: None },
];

impl Output<'_> {
    pub fn figures(&self) -> Vec<NamedFigure> {
        let mut figures: Vec<NamedFigure> = MAPS.iter().map(|map| self.map(map)).collect();
        if let Some(comparison) = self.comparison() {
            figures.extend(MAPS.iter().map(|map| self.difference_map(&comparison, map)));
        }
        figures.push(self.layers_by_distance());
        figures.push(self.by_distance());
        figures.push(self.by_position("entropy", "entropy (nats)", Statistic::Entropy));
        figures.push(self.by_position("distance", "mean distance (tokens)", Statistic::Distance));
        figures
    }

    fn map(&self, Map { statistic, name, label, range }: &Map) -> NamedFigure {
        let found = self.found;
        let title = format!("{label}, {} tokens, {}", found.tokens, self.name);
        let cells = cells(found, |layer, head| found.head(layer, head).mean(*statistic));
        let map =
            HeatMap { range: *range, palette: Palette::Sequential, ..heads(found, title, label, cells) };
        NamedFigure::new(format!("attention-{name}"), Figure::HeatMap(map))
    }

    fn difference_map(&self, comparison: &Comparison<'_>, map: &Map) -> NamedFigure {
        let (found, Map { statistic, name, label, .. }) = (self.found, map);
        let against = self.other.map_or("", |(_, name, _)| name);
        let title = format!("{label}: {} minus {against}, {} tokens", self.name, found.tokens);
        let cells = cells(found, |layer, head| comparison.head(layer, head, *statistic));
        let map = HeatMap { palette: Palette::Diverging, ..heads(found, title, label, cells) };
        NamedFigure::new(format!("attention-{name}-difference"), Figure::HeatMap(map))
    }

    fn layers_by_distance(&self) -> NamedFigure {
        let found = self.found;
        let n_buckets = found.all().mass().len();
        let map = HeatMap {
            title: format!("attention by distance, {} tokens, {}", found.tokens, self.name),
            x_label: "tokens away".to_string(),
            y_label: "layer".to_string(),
            columns: (0..n_buckets).map(range).collect(),
            rows: numbers(found.n_layers),
            cells: (0..found.n_layers)
                .map(|layer| found.layer(layer).mass().into_iter().map(Some).collect())
                .collect(),
            value_label: "share of attention, mean over heads".to_string(),
            ..HeatMap::default()
        };
        NamedFigure::new("attention-by-layer", Figure::HeatMap(map))
    }

    fn by_distance(&self) -> NamedFigure {
        let points = |found: &Attention| {
            let mass = found.all().mass().into_iter().enumerate();
            mass.map(|(bucket, mass)| (AttentionProbe::distances(bucket).end as f64, mass)).collect()
        };
        let figure = Curves {
            title: format!("attention by distance, {} tokens", self.found.tokens),
            x: Axis::new("tokens away: below this, at least half of it", AxisScale::Log2),
            y: Axis::new("share of attention, mean over heads", AxisScale::Linear),
            series: self.series(points),
            marks: self.marks(),
        };
        NamedFigure::new("attention-by-distance", Figure::Curves(figure))
    }

    fn by_position(&self, name: &str, label: &str, statistic: Statistic) -> NamedFigure {
        let points = |found: &Attention| {
            let point = |(bucket, sums): (usize, &Sums)| {
                let end = AttentionProbe::distances(bucket).end.min(found.tokens);
                Some((end as f64, sums.mean(statistic)?))
            };
            found.by_position.filled().filter_map(point).collect()
        };
        let figure = Curves {
            title: format!("{label} by position, {} tokens", self.found.tokens),
            x: Axis::new("position of the query: below this, at least half of it", AxisScale::Log2),
            y: Axis::new(format!("{label}, mean over heads"), AxisScale::Linear),
            series: self.series(points),
            marks: self.marks(),
        };
        NamedFigure::new(format!("attention-{name}-by-position"), Figure::Curves(figure))
    }

    fn series(&self, points: impl Fn(&Attention) -> Vec<(f64, f64)>) -> Vec<Series> {
        let one = |name: &str, found: &Attention| Series {
            name: name.to_string(),
            points: points(found),
            band: Vec::new(),
        };
        let other = self.other.map(|(other, name, _)| one(name, other));
        [one(&self.name, self.found)].into_iter().chain(other).collect()
    }

    /// The original context, where the text goes beyond it.
    fn marks(&self) -> Vec<Mark> {
        let beyond = self.found.tokens > self.original;
        let mark = Mark { at: self.original as f64, label: "original context".to_string() };
        beyond.then_some(mark).into_iter().collect()
    }
}

fn heads(found: &Attention, title: String, label: &str, cells: Vec<Vec<Option<f64>>>) -> HeatMap {
    HeatMap {
        title,
        x_label: "head".to_string(),
        y_label: "layer".to_string(),
        columns: numbers(found.n_heads),
        rows: numbers(found.n_layers),
        cells,
        value_label: label.to_string(),
        ..HeatMap::default()
    }
}

fn cells(found: &Attention, of: impl Fn(usize, usize) -> Option<f64>) -> Vec<Vec<Option<f64>>> {
    (0..found.n_layers).map(|layer| (0..found.n_heads).map(|head| of(layer, head)).collect()).collect()
}

fn numbers(count: usize) -> Vec<String> {
    (0..count).map(|number| number.to_string()).collect()
}
