//! The kinds of figure that need no measurement.

use serde_json::{Value, json};

use crate::cli::CommandError;
use crate::named::Named;
use crate::plot::theory::{
    angles, attention_factor, compared, critical, decay, decay_bound, pair, sinusoidal, wavelength_figure,
};
use crate::plot::{Figure, NamedFigure};
use crate::rope::{RopeSpec, Scaling};

/// What is compared when no scaling is given.
const FACTOR: f64 = 4.0;
/// Positions of the sinusoidal encodings.
const POSITIONS: usize = 128;

/// A figure from the mathematics alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Pair,
    Sinusoidal,
    Angles,
    Wavelength,
    Decay,
    DecayBound,
    AttentionFactor,
    Critical,
}

impl Named for Kind {
    const WHAT: &'static str = "kind of figure";
    const ALL: &'static [Self] = &[
        Kind::Pair,
        Kind::Sinusoidal,
        Kind::Angles,
        Kind::Wavelength,
        Kind::Decay,
        Kind::DecayBound,
        Kind::AttentionFactor,
        Kind::Critical,
    ];

    fn name(self) -> &'static str {
        match self {
            Kind::Pair => "pair",
            Kind::Sinusoidal => "sinusoidal",
            Kind::Angles => "angles",
            Kind::Wavelength => "wavelength",
            Kind::Decay => "decay",
            Kind::DecayBound => "decay-bound",
            Kind::AttentionFactor => "attention-factor",
            Kind::Critical => "critical",
        }
    }
}

/// The factor that methods are compared at: that of the scaling in force, else [`FACTOR`].
pub fn factor(spec: &RopeSpec) -> f64 {
    spec.scaling.factor().filter(|factor| *factor > 1.0).unwrap_or(FACTOR)
}

/// The length shown when none is given: the whole stretched context.
pub fn stretched(spec: &RopeSpec) -> usize {
    (spec.original_context as f64 * factor(spec)).round() as usize
}

/// Draws `kind` for `spec` over `length` tokens, and what its numbers say beside the drawing.
///
/// # Errors
/// Values that the figure cannot be computed from.
pub fn draw(kind: Kind, spec: &RopeSpec, length: Option<usize>) -> anyhow::Result<(NamedFigure, Value)> {
    let usage = |error: crate::rope::RopeError| CommandError::usage(error.to_string());
    let tokens = length.unwrap_or_else(|| stretched(spec));
    let methods = || compared(spec, factor(spec)).map_err(usage);
    let mut name = kind.name().to_string();
    let mut facts = Value::Null;
    let figure: Figure = match kind {
        Kind::Pair => pair().map_err(usage)?,
        Kind::Sinusoidal => sinusoidal(spec.theta, spec.rotary_dim, length.unwrap_or(POSITIONS)),
        Kind::Angles => {
            if spec.scaling != Scaling::None {
                name = format!("{name}-{}", spec.scaling.name());
            }
            angles(spec, tokens).map_err(usage)?
        }
        Kind::Wavelength => wavelength_figure(spec, factor(spec), &methods()?),
        Kind::Decay => decay(spec, tokens, &methods()?),
        Kind::DecayBound => decay_bound(spec, tokens, &methods()?),
        Kind::AttentionFactor => attention_factor(spec).map_err(usage)?,
        Kind::Critical => {
            let (figure, found) = critical(spec, tokens).map_err(usage)?;
            facts = json!({
                "critical_pair": found.turning,
                "pairs": found.pairs,
                "original_context": spec.original_context,
            });
            figure
        }
    };
    Ok((NamedFigure { name, figure }, facts))
}
