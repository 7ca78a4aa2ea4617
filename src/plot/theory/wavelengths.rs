//! Tokens per turn of every pair, by every method.

use super::{Compared, tokens};
use crate::plot::figure::{Axis, AxisScale, Curves, Figure, Mark, Series};
use crate::rope::{RopeSpec, base_frequencies, turning_pairs, wavelengths};

/// Wavelength against pair for each of `methods`, with the original context, the stretched one and the first pair that
/// does not complete a turn in training. Pairs that do not turn have no wavelength and are left out.
pub fn wavelength_figure(spec: &RopeSpec, factor: f64, methods: &[Compared]) -> Figure {
    let mut series: Vec<Series> = Vec::new();
    for method in methods {
        let waves = wavelengths(&method.frequencies.inv_freq);
        let points = waves.iter().enumerate().filter(|(_, wave)| wave.is_finite());
        let points: Vec<(f64, f64)> = points.map(|(pair, wave)| (pair as f64, *wave)).collect();
        // Methods that differ in their attention factor alone are one curve.
        match series.iter_mut().find(|known| known.points == points) {
            Some(known) => known.name = format!("{}, {}", known.name, method.name),
            None if points.is_empty() => {}
            None => series.push(Series { name: method.name.clone(), points, band: Vec::new() }),
        }
    }
    let last = (spec.pairs() - 1) as f64;
    let level = |name: String, tokens: f64| Series {
        name,
        points: vec![(0.0, tokens), (last, tokens)],
        band: Vec::new(),
    };
    let trained = spec.original_context;
    let stretched = (trained as f64 * factor).round() as usize;
    let mut levels = vec![level(format!("trained length {}", tokens(trained)), trained as f64)];
    if stretched > trained {
        levels.push(level(format!("target length {}", tokens(stretched)), stretched as f64));
    }
    let turning = turning_pairs(&base_frequencies(spec.theta, spec.rotary_dim), trained);
    let marks = match turning < spec.pairs() {
        true => vec![Mark { at: turning as f64, label: format!("pair {turning}: no full turn in training") }],
        false => Vec::new(),
    };
    Figure::Curves(Curves {
        title: format!("Wavelength of each pair at a factor of {factor}"),
        x: Axis::new("pair", AxisScale::Linear),
        y: Axis::new("tokens per turn", AxisScale::Log2),
        series: series.into_iter().chain(levels).collect(),
        marks,
    })
}
