//! Figures that need no measurement: every number comes from [`crate::rope`].

mod angles;
mod attention_factor;
mod critical;
mod decay;
mod methods;
mod pair;
mod sinusoidal;
#[cfg(test)]
mod tests;
mod wavelengths;

pub use angles::angles;
pub use attention_factor::attention_factor;
pub use critical::{Critical, critical};
pub use decay::{decay, decay_bound};
pub use methods::{Compared, compared};
pub use pair::pair;
pub use sinusoidal::sinusoidal;
pub use wavelengths::wavelength_figure;

use crate::rope::{Frequencies, RopeSpec, Scaling};

use super::axis::length;

/// Tokens as people write them: `4k`.
fn tokens(count: usize) -> String {
    length(count as f64)
}

/// The same embedding without scaling.
fn unscaled(spec: &RopeSpec) -> RopeSpec {
    RopeSpec { scaling: Scaling::None, ..spec.clone() }
}

/// `plain RoPE` or `yarn x4`, for titles.
fn method_name(spec: &RopeSpec) -> String {
    match (&spec.scaling, spec.scaling.factor()) {
        (Scaling::None, _) => "plain RoPE".to_string(),
        (scaling, Some(factor)) => format!("{} x{factor}", scaling.name()),
        (scaling, None) => scaling.name().to_string(),
    }
}

/// Mean of cos(position x frequency) over the whole positions `from..to`, by the sum of a geometric series.
fn mean_cos(inv_freq: f64, from: usize, to: usize) -> f64 {
    let half = (inv_freq / 2.0).sin();
    // A pair that rests, or turns whole turns from token to token: all angles are one.
    if half.abs() < 1e-12 {
        return (from as f64 * inv_freq).cos();
    }
    let count = (to - from) as f64;
    let middle = (from + to - 1) as f64 / 2.0;
    (middle * inv_freq).cos() * (count * inv_freq / 2.0).sin() / (count * half)
}

/// Mean over the pairs of cos(distance x frequency), averaged over the distances `from..to` and multiplied by the square
/// of the attention factor: the score of a query and an equal key of that distance, as a share of their squared length.
fn mean_score(frequencies: &Frequencies, from: usize, to: usize) -> f64 {
    let pairs = frequencies.inv_freq.len() as f64;
    let sum: f64 = frequencies.inv_freq.iter().map(|f| mean_cos(*f, from, to)).sum();
    sum / pairs * frequencies.attention_factor.powi(2)
}
