//! Flags that `lab train` and `lab compare` share.

use std::fs;
use std::path::PathBuf;

use anyhow::Context as _;
use serde_json::{Value, json};

use crate::cli::CommandError;
use crate::lab::LabError;
use crate::lab::encoding::Encoding;
use crate::lab::settings::{Settings, VOCAB_SIZE};
use crate::lab::text::{GENERATED_BYTES, Text};

#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Model and training")]
pub struct SizeArgs {
    /// Text to train on, any bytes; its last tenth is measured [default: a text that the program makes]
    #[arg(long, value_name = "FILE")]
    text: Option<PathBuf>,
    /// Decoder layers
    #[arg(long, value_name = "N", default_value_t = Settings::default().layers)]
    layers: usize,
    /// Lanes of the hidden state
    #[arg(long, value_name = "LANES", default_value_t = Settings::default().width)]
    width: usize,
    /// Attention heads
    #[arg(long, value_name = "N", default_value_t = Settings::default().heads)]
    heads: usize,
    /// Lanes inside the feed-forward part [default: four times the width]
    #[arg(long, value_name = "LANES")]
    feed_forward: Option<usize>,
    /// Trained length
    #[arg(long, value_name = "TOKENS", default_value_t = Settings::default().context, value_parser = crate::cli::values::parse_length)]
    context: usize,
    /// Base of the rotary frequencies and of the sinusoids
    #[arg(long, value_name = "X", default_value_t = Settings::default().theta)]
    rope_theta: f64,
    /// Training steps
    #[arg(long, value_name = "N", default_value_t = Settings::default().steps)]
    steps: usize,
    /// Windows in a step
    #[arg(long, value_name = "N", default_value_t = Settings::default().batch)]
    batch: usize,
    /// Highest learning rate: linear warm-up to it, then a cosine down to a tenth
    #[arg(long, value_name = "X", default_value_t = Settings::default().learning_rate)]
    learning_rate: f64,
    /// Steps of the warm-up [default: a twentieth of the steps]
    #[arg(long, value_name = "N")]
    warmup: Option<usize>,
    /// Decoupled weight decay of the matrices
    #[arg(long, value_name = "X", default_value_t = Settings::default().weight_decay)]
    weight_decay: f64,
    /// Largest norm of a step's gradient
    #[arg(long, value_name = "X", default_value_t = Settings::default().clip)]
    clip: f64,
    /// Steps from one checkpoint to the next
    #[arg(long, value_name = "N", default_value_t = 100, requires = "out", value_parser = parse_count)]
    pub save_every: usize,
}

/// A whole number of at least 1.
pub fn parse_count(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) | Err(_) => Err(format!("`{text}` is not a whole number of at least 1")),
        Ok(count) => Ok(count),
    }
}

impl SizeArgs {
    /// The settings these flags stand for, checked.
    ///
    /// # Errors
    /// A [`CommandError`] with the first value that is out of range.
    pub fn settings(&self, encoding: Encoding, seed: u64) -> anyhow::Result<Settings> {
        let settings = Settings {
            encoding,
            layers: self.layers,
            width: self.width,
            heads: self.heads,
            feed_forward: self.feed_forward.unwrap_or(self.width.saturating_mul(4)),
            context: self.context,
            theta: self.rope_theta,
            batch: self.batch,
            steps: self.steps,
            learning_rate: self.learning_rate,
            warmup: self.warmup.unwrap_or(self.steps / 20),
            weight_decay: self.weight_decay,
            clip: self.clip,
            seed,
        };
        settings.validate().map_err(usage)?;
        Ok(settings)
    }

    /// The text to train on, and its name.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub fn text(&self, seed: u64) -> anyhow::Result<(Text, String)> {
        match &self.text {
            Some(path) => {
                let bytes = fs::read(path).with_context(|| format!("cannot read `{}`", path.display()))?;
                Ok((Text::new(bytes), path.display().to_string()))
            }
            None => Ok((Text::generated(seed, GENERATED_BYTES), format!("generated from seed {seed}"))),
        }
    }
}

/// Values out of range are bad usage, anything else a failure.
pub fn usage(error: LabError) -> anyhow::Error {
    match &error {
        LabError::Setting { .. } | LabError::Rope(_) => CommandError::usage(error.to_string()).into(),
        LabError::OtherRun { .. } => {
            let hint = "give the same flags to go on with it, or another `--out`";
            CommandError::usage(error.to_string()).hint(hint).into()
        }
        _ => error.into(),
    }
}

/// What was trained, for the `model` part of a result.
pub fn model_json(settings: &Settings) -> Value {
    json!({
        "layers": settings.layers,
        "width": settings.width,
        "heads": settings.heads,
        "feed_forward": settings.feed_forward,
        "vocab_size": VOCAB_SIZE,
        "trained_length": settings.context,
        "theta": settings.theta,
    })
}

/// How it was trained.
pub fn training_json(settings: &Settings) -> Value {
    json!({
        "steps": settings.steps,
        "batch": settings.batch,
        "learning_rate": settings.learning_rate,
        "warmup": settings.warmup,
        "weight_decay": settings.weight_decay,
        "clip": settings.clip,
    })
}

/// What it was trained on.
pub fn text_json(text: &Text, name: &str) -> Value {
    json!({
        "name": name,
        "hash": format!("{:016x}", text.hash()),
        "training_bytes": text.training().len(),
        "held_out_bytes": text.held_out().len(),
    })
}
