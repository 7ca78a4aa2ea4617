//! The factor on cos and sin against the scaling factor.

use crate::plot::figure::{Axis, AxisScale, Curves, Figure, Series};
use crate::rope::{LongRope, LongRopeSelect, Magnitude, RopeError, RopeSpec, base_frequencies, longrope};

/// Largest factor shown is two to this power.
const OCTAVES: usize = 7;
/// Points per octave.
const STEPS: usize = 8;

/// YaRN's `0.1 ln(factor) + 1` and LongRoPE's `sqrt(1 + ln(factor) / ln(original context))`, and the square of each, which
/// is what a score is multiplied by: the factor stands on the rotated query and on the rotated key.
///
/// # Errors
/// [`RopeError::OriginalContext`] for an original context of one token, of which LongRoPE has no logarithm.
pub fn attention_factor(spec: &RopeSpec) -> Result<Figure, RopeError> {
    let base = base_frequencies(spec.theta, spec.rotary_dim);
    let ones = vec![1.0; base.len()];
    let by_longrope = |factor: f64| {
        let parameters = LongRope {
            short_factor: ones.clone(),
            long_factor: ones.clone(),
            factor,
            attention_factor: None,
            select: LongRopeSelect::Auto,
        };
        longrope(&base, spec.original_context, &parameters, 1).map(|found| found.attention_factor)
    };
    let by_yarn = |factor: f64| Magnitude::Default.attention_factor(factor);
    let factors: Vec<f64> = (0..=OCTAVES * STEPS).map(|i| 2f64.powf(i as f64 / STEPS as f64)).collect();
    let series = |name: &str, of: &dyn Fn(f64) -> Result<f64, RopeError>, power: i32| {
        let points = factors.iter().map(|factor| Ok((*factor, of(*factor)?.powi(power))));
        Ok::<_, RopeError>(Series {
            name: name.into(),
            points: points.collect::<Result<_, RopeError>>()?,
            band: Vec::new(),
        })
    };
    Ok(Figure::Curves(Curves {
        title: format!(
            "Attention factor by scaling factor, original context {}",
            super::tokens(spec.original_context)
        ),
        x: Axis::new("scaling factor", AxisScale::Log2),
        y: Axis::new("factor", AxisScale::Linear),
        series: vec![
            series("yarn: on cos and sin", &by_yarn, 1)?,
            series("longrope: on cos and sin", &by_longrope, 1)?,
            series("yarn: on scores (square)", &by_yarn, 2)?,
            series("longrope: on scores (square)", &by_longrope, 2)?,
        ],
        marks: Vec::new(),
    }))
}
