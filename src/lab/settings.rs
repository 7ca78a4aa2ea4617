//! Sizes of a toy model and of its training.

use super::encoding::Encoding;
use super::error::LabError;
use crate::rope::{Pairing, RopeSpec, Scaling};

/// Tokens are bytes.
pub const VOCAB_SIZE: usize = 256;

/// Largest accepted value of any size; keeps products within `usize` and memory within reason.
const MAX_SIZE: usize = 1 << 16;

/// Everything that two runs must agree on to give the same weights.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Settings {
    pub encoding: Encoding,
    /// Decoder layers.
    pub layers: usize,
    /// Lanes of the hidden state.
    pub width: usize,
    /// Attention heads, each `width / heads` lanes wide.
    pub heads: usize,
    /// Lanes between the two matrices of the feed-forward part.
    pub feed_forward: usize,
    /// Tokens of a training window, the trained length.
    pub context: usize,
    /// Base of the rotary frequencies and of the sinusoids.
    pub theta: f64,
    /// Windows of one step.
    pub batch: usize,
    pub steps: usize,
    /// Highest learning rate, reached at the end of the warm-up.
    pub learning_rate: f64,
    /// Steps of linear warm-up before the cosine.
    pub warmup: usize,
    /// Decoupled weight decay of matrices.
    pub weight_decay: f64,
    /// Largest norm of the whole gradient.
    pub clip: f64,
    pub seed: u64,
}

impl Default for Settings {
    /// A run of about a quarter of a minute on one core of 2024.
    fn default() -> Self {
        Settings {
            encoding: Encoding::Rope,
            layers: 2,
            width: 64,
            heads: 4,
            feed_forward: 256,
            context: 64,
            theta: 10_000.0,
            batch: 16,
            steps: 600,
            learning_rate: 3e-3,
            warmup: 30,
            weight_decay: 0.1,
            clip: 1.0,
            seed: 0,
        }
    }
}

impl Settings {
    /// Lanes of one head.
    pub fn head_dim(&self) -> usize {
        self.width / self.heads
    }

    /// Checks every value.
    ///
    /// # Errors
    /// [`LabError::Setting`] for the first value that is out of range, [`LabError::Rope`] for `theta`.
    pub fn validate(&self) -> Result<(), LabError> {
        for (name, value) in [
            ("layers", self.layers),
            ("width", self.width),
            ("heads", self.heads),
            ("feed_forward", self.feed_forward),
            ("context", self.context),
            ("batch", self.batch),
        ] {
            ensure(name, (1..=MAX_SIZE).contains(&value), format!("between 1 and {MAX_SIZE}"), value)?;
        }
        let (width, heads) = (self.width, self.heads);
        ensure(
            "width",
            width.is_multiple_of(2 * heads),
            format!("a multiple of {}, twice the heads", 2 * heads),
            width,
        )?;
        ensure("context", self.context >= 4, "at least 4 tokens".into(), self.context)?;
        ensure("steps", self.steps >= 1, "at least 1".into(), self.steps)?;
        ensure("warmup", self.warmup < self.steps, format!("below the {} steps", self.steps), self.warmup)?;
        for (name, value) in [("learning_rate", self.learning_rate), ("clip", self.clip)] {
            ensure(name, value.is_finite() && value > 0.0, "a finite number above 0".into(), value)?;
        }
        let decay = self.weight_decay;
        ensure("weight_decay", (0.0..1.0).contains(&decay), "at least 0 and below 1".into(), decay)?;
        Ok(self.rope(Scaling::None).validate()?)
    }

    /// The rotary embedding of the model under `scaling`; the whole head rotates.
    pub fn rope(&self, scaling: Scaling) -> RopeSpec {
        RopeSpec {
            theta: self.theta,
            head_dim: self.head_dim(),
            rotary_dim: self.head_dim(),
            pairing: match self.encoding {
                Encoding::RopeAdjacent => Pairing::Adjacent,
                _ => Pairing::HalfSplit,
            },
            original_context: self.context,
            scaling,
        }
    }

    /// Learning rate of step `step`, counted from 0: linear up to the end of the warm-up, then a cosine that ends at a
    /// tenth of the highest value (Loshchilov and Hutter 2017, arXiv:1608.03983, without restarts).
    pub fn learning_rate_at(&self, step: usize) -> f64 {
        const FLOOR: f64 = 0.1;
        if step < self.warmup {
            return self.learning_rate * (step + 1) as f64 / self.warmup as f64;
        }
        let done = (step - self.warmup) as f64 / (self.steps - self.warmup) as f64;
        let cosine = 0.5 * (1.0 + (std::f64::consts::PI * done).cos());
        self.learning_rate * (FLOOR + (1.0 - FLOOR) * cosine)
    }
}

fn ensure(
    name: &'static str,
    holds: bool,
    accepted: String,
    found: impl std::fmt::Display,
) -> Result<(), LabError> {
    if holds { Ok(()) } else { Err(LabError::Setting { name, accepted, found: found.to_string() }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_learning_rate_rises_and_falls() {
        let settings = Settings { steps: 110, warmup: 10, learning_rate: 1.0, ..Settings::default() };
        assert!((settings.learning_rate_at(0) - 0.1).abs() < 1e-12);
        assert_eq!(settings.learning_rate_at(9), 1.0);
        assert_eq!(settings.learning_rate_at(10), 1.0);
        assert!((settings.learning_rate_at(60) - 0.55).abs() < 1e-12);
        assert!(settings.learning_rate_at(109) < 0.101);
    }

    #[test]
    fn values_out_of_range_are_named() {
        let default = Settings::default;
        for (settings, name) in [
            (Settings { layers: 0, ..default() }, "layers"),
            (Settings { width: 60, heads: 8, ..default() }, "width"),
            (Settings { context: 3, ..default() }, "context"),
            (Settings { steps: 0, ..default() }, "steps"),
            (Settings { warmup: 5000, ..default() }, "warmup"),
            (Settings { learning_rate: f64::NAN, ..default() }, "learning_rate"),
            (Settings { clip: 0.0, ..default() }, "clip"),
            (Settings { weight_decay: 1.0, ..default() }, "weight_decay"),
            (Settings { batch: usize::MAX, ..default() }, "batch"),
        ] {
            match settings.validate() {
                Err(LabError::Setting { name: found, .. }) => assert_eq!(found, name),
                other => panic!("{name}: {other:?}"),
            }
        }
        assert!(matches!(Settings { theta: 1.0, ..default() }.validate(), Err(LabError::Rope(_))));
        default().validate().unwrap();
    }
}
