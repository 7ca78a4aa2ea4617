//! How the score of a query and a key falls with their distance, by the rotation alone.

use super::{Compared, mean_score, tokens};
use crate::plot::figure::{Axis, AxisScale, Curves, Figure, Mark, Series};
use crate::rope::{Frequencies, RopeSpec};

/// Points of a curve.
const POINTS: usize = 64;

/// The score of a query and an equal key against their distance, as a share of their squared length: the mean over the
/// pairs of cos(distance x frequency), times the square of the attention factor. Each point is the mean over the
/// distances up to the next one, so that no curve depends on where fast pairs happen to be sampled.
pub fn decay(spec: &RopeSpec, length: usize, methods: &[Compared]) -> Figure {
    let edges = distances(length);
    let series = methods.iter().map(|method| {
        let point = |edge: &[usize]| (edge[0] as f64, mean_score(&method.frequencies, edge[0], edge[1]));
        let points = edges.windows(2).map(point).collect();
        Series { name: method.name.clone(), points, band: Vec::new() }
    });
    figure(
        "Score of a query and an equal key by distance",
        "mean over the pairs of cos(distance \u{d7} frequency), times attention factor squared",
        spec,
        length,
        series.collect(),
    )
}

/// The bound of Su et al. 2021, arXiv:2104.09864, section 3.4.3: the mean over j of |S_j|, where S_j is the sum of
/// e^(i x distance x frequency) over the pairs before j. It bounds how far any score can be from 0 up to a
/// factor that does not depend on the distance. Times the square of the attention factor, as a share of the value at 0.
pub fn decay_bound(spec: &RopeSpec, length: usize, methods: &[Compared]) -> Figure {
    let distances = distances(length);
    let series = methods.iter().map(|method| {
        let point = |distance: &usize| (*distance as f64, bound(&method.frequencies, *distance));
        let points = distances.iter().map(point).collect();
        Series { name: method.name.clone(), points, band: Vec::new() }
    });
    figure(
        "Bound of the score by distance (Su et al. 2021, section 3.4.3)",
        "mean size of the partial sums over the pairs, as a share of that at distance 0",
        spec,
        length,
        series.collect(),
    )
}

fn figure(title: &str, y: &str, spec: &RopeSpec, length: usize, series: Vec<Series>) -> Figure {
    let trained = spec.original_context;
    let marks = match trained <= length {
        true => vec![Mark { at: trained as f64, label: format!("trained length {}", tokens(trained)) }],
        false => Vec::new(),
    };
    Figure::Curves(Curves {
        title: title.into(),
        x: Axis::new("distance (tokens)", AxisScale::Log2),
        y: Axis::new(y, AxisScale::Linear),
        series,
        marks,
    })
}

/// Whole distances from 1 to `length`, each once, evenly spread over its logarithm.
fn distances(length: usize) -> Vec<usize> {
    let last = length.max(2) as f64;
    let mut found: Vec<usize> =
        (0..=POINTS).map(|i| last.powf(i as f64 / POINTS as f64).round() as usize).collect();
    found.dedup();
    found
}

pub(super) fn bound(frequencies: &Frequencies, distance: usize) -> f64 {
    let pairs = frequencies.inv_freq.len();
    let (mut re, mut im, mut sum) = (0.0, 0.0, 0.0);
    for inv_freq in &frequencies.inv_freq {
        let (sin, cos) = (distance as f64 * inv_freq).sin_cos();
        (re, im) = (re + cos, im + sin);
        sum += f64::hypot(re, im);
    }
    // At distance 0 the partial sums are 1, 2, ..., pairs.
    let at_zero = (pairs * (pairs + 1)) as f64 / 2.0;
    sum / at_zero * frequencies.attention_factor.powi(2)
}
