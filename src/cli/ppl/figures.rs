//! The result of `ropex ppl` as figures.

use super::measure::{Extras, Measured};
use crate::eval::perplexity::by_position::ByPosition;
use crate::eval::perplexity::curve::Curve;
use crate::plot::{Axis, AxisScale, Curves, Figure, Mark, NamedFigure, Series};

/// Curves by length and by position, as far as they were asked for.
pub fn figures(found: &Measured, extras: &Extras) -> Vec<NamedFigure> {
    let mark = Mark { at: extras.trained as f64, label: "trained length".to_string() };
    let mut figures = Vec::new();
    let mut add = |name: &str, title: &str, x: &str, y: &str, series: Series| {
        let reaches = series.points.last().is_some_and(|point| point.0 >= mark.at);
        let curves = Curves {
            title: title.to_string(),
            x: Axis::new(x, AxisScale::Log2),
            y: Axis::new(y, AxisScale::Linear),
            series: vec![series],
            marks: if reaches { vec![mark.clone()] } else { Vec::new() },
        };
        figures.push(NamedFigure { name: name.to_string(), figure: Figure::Curves(curves) });
    };
    if let Some(by_position) = &found.by_position {
        let series = series("loss", by_position);
        add("by-position", "Loss by position", "tokens of context", "loss (nats per token)", series);
    }
    if let Some(curve) = &found.curve {
        let series = curve_series(curve);
        add("curve", "Perplexity by length", "length (tokens)", "perplexity", series);
    }
    if let Some((gain, Some(by_position))) = &found.gain {
        let title = format!("Gain over the last {} tokens", gain.last_tokens);
        let series = series("gain", by_position);
        add("gain", &title, "tokens of context", "gain (nats per token)", series);
    }
    if let Some(by_position) = found.paired.as_ref().and_then(|paired| paired.by_position.as_ref()) {
        let series = series("difference", by_position);
        let title = "Difference from the baseline";
        add("baseline", title, "tokens of context", "difference (nats per token)", series);
    }
    figures
}

/// A bucket stands at the geometric mean of its ends.
fn series(name: &str, found: &ByPosition) -> Series {
    let mut series = Series { name: name.to_string(), ..Series::default() };
    for score in &found.buckets {
        let x = ((score.bucket.first * score.bucket.last) as f64).sqrt();
        series.points.push((x, score.nll));
        series.band.extend(score.interval.map(|interval| (x, interval.low, interval.high)));
    }
    series
}

fn curve_series(found: &Curve) -> Series {
    let mut series = Series { name: "perplexity".to_string(), ..Series::default() };
    for point in &found.points {
        let x = point.length as f64;
        series.points.push((x, point.nll.exp()));
        series.band.extend(point.interval.map(|interval| (x, interval.low.exp(), interval.high.exp())));
    }
    series
}
