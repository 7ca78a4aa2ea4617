//! Pairs that never completed a turn in training.

use std::f64::consts::TAU;

use super::{method_name, tokens, unscaled};
use crate::plot::figure::{Axis, AxisScale, Curves, Figure, Mark, Series};
use crate::rope::{RopeError, RopeSpec, Scaling, frequencies, turning_pairs};

/// What training showed of the pairs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Critical {
    /// Pairs that completed at least one turn within the original context; also the index of the first that did not, the
    /// critical pair `ceil(d/2 * log_theta(L / 2 pi))` of LongRoPE2 (Shang et al. 2025, arXiv:2502.20082).
    pub turning: usize,
    pub pairs: usize,
}

/// Turns that each pair completed within the original context, without and with the scaling of `spec` over `length`
/// tokens in all.
///
/// # Errors
/// The [`RopeError`] of a spec that cannot be computed.
pub fn critical(spec: &RopeSpec, length: usize) -> Result<(Figure, Critical), RopeError> {
    let trained = spec.original_context;
    let plain = frequencies(&unscaled(spec), trained)?.inv_freq;
    let found = Critical { turning: turning_pairs(&plain, trained), pairs: plain.len() };
    let turns = |name: String, inv_freq: &[f64], context: usize| {
        let points = inv_freq.iter().enumerate().filter(|(_, f)| **f > 0.0);
        let points = points.map(|(pair, f)| (pair as f64, context as f64 * f / TAU)).collect();
        Series { name, points, band: Vec::new() }
    };
    let mut series = vec![turns(format!("in training, {} tokens", tokens(trained)), &plain, trained)];
    if spec.scaling != Scaling::None {
        let scaled = frequencies(spec, length)?.inv_freq;
        series.push(turns(format!("{} over {} tokens", method_name(spec), tokens(length)), &scaled, length));
    }
    let last = (plain.len() - 1) as f64;
    series.push(Series { name: "one turn".into(), points: vec![(0.0, 1.0), (last, 1.0)], band: Vec::new() });
    let mark = Mark { at: found.turning as f64, label: format!("critical pair {}", found.turning) };
    let title = format!(
        "Turns of each pair: {} of {} complete one within {} tokens",
        found.turning,
        found.pairs,
        tokens(trained)
    );
    let figure = Curves {
        title,
        x: Axis::new("pair", AxisScale::Linear),
        y: Axis::new("turns", AxisScale::Log10),
        series,
        marks: if found.turning < found.pairs { vec![mark] } else { Vec::new() },
    };
    Ok((Figure::Curves(figure), found))
}
