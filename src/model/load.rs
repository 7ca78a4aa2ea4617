//! From an opened checkpoint to a model that runs.

use super::weights::assemble;
use super::{Decoder, DecoderOptions, LanguageModel, ModelConfig, ModelError};
use crate::checkpoint::Checkpoint;
use crate::checkpoint::rope::RopeSettings;
use crate::engine::candle::{CandleEngine, DeviceName, WeightFormat};
use crate::named::Named;

/// What computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum EngineName {
    /// The best one for the device.
    #[default]
    Auto,
    /// Plain tensor operations on candle.
    Candle,
}

impl Named for EngineName {
    const WHAT: &'static str = "engine";
    const ALL: &'static [Self] = &[Self::Auto, Self::Candle];

    fn name(self) -> &'static str {
        match self {
            EngineName::Auto => "auto",
            EngineName::Candle => "candle",
        }
    }
}

/// Where and how a model runs.
#[derive(Debug, Clone, Copy, Default)]
pub struct LoadOptions {
    pub engine: EngineName,
    pub device: DeviceName,
    /// `None`: by size, see [`WeightFormat::for_size`].
    pub weights: Option<WeightFormat>,
    pub decoder: DecoderOptions,
}

/// A loaded model and what the user should know about the way it was loaded.
pub struct Loaded {
    pub model: Box<dyn LanguageModel>,
    pub warnings: Vec<String>,
}

/// Loads the weights of `checkpoint` under the rotary embedding `rope`.
///
/// # Errors
/// Missing or unused tensors, shapes that do not fit, a device that is not there.
pub fn load(
    checkpoint: &Checkpoint,
    config: ModelConfig,
    rope: RopeSettings,
    options: &LoadOptions,
) -> Result<Loaded, ModelError> {
    rope.spec.validate()?;
    let (source, warnings) = assemble(checkpoint, &config)?;
    let format = options.weights.unwrap_or_else(|| weight_format(checkpoint));
    let shape = config.shape(&rope.spec);
    let engine = match options.engine {
        EngineName::Auto | EngineName::Candle => {
            CandleEngine::load(shape, &source, format, options.device.open()?)?
        }
    };
    let decoder = Decoder::new(engine, config, rope, options.decoder);
    Ok(Loaded { model: Box::new(decoder), warnings })
}

/// The format that [`load`] chooses by itself.
pub fn weight_format(checkpoint: &Checkpoint) -> WeightFormat {
    WeightFormat::for_size(checkpoint.n_weights())
}
