//! From an opened checkpoint to a model that runs.

use super::cancel::Cancel;
use super::weights::assemble;
use super::{Decoder, DecoderOptions, LanguageModel, ModelConfig, ModelError};
use crate::checkpoint::Checkpoint;
use crate::checkpoint::rope::RopeSettings;
use crate::checkpoint::tensor::{TensorType, TensorView};
use crate::engine::candle::{CandleEngine, DeviceName, WeightFormat};
use crate::engine::cpu::CpuEngine;
use crate::engine::cpu::isa::Isa;
use crate::engine::cpu::matrix::Activations;
use crate::engine::{EngineError, KvType};
use crate::named::Named;

/// What computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum EngineName {
    /// The best one for the device.
    #[default]
    Auto,
    /// Own kernels for the instruction set of this CPU.
    Cpu,
    /// Plain tensor operations on candle.
    Candle,
}

impl Named for EngineName {
    const WHAT: &'static str = "engine";
    const ALL: &'static [Self] = &[Self::Auto, Self::Cpu, Self::Candle];

    fn name(self) -> &'static str {
        match self {
            EngineName::Auto => "auto",
            EngineName::Cpu => "cpu",
            EngineName::Candle => "candle",
        }
    }
}

/// Where and how a model runs.
#[derive(Debug, Clone, Copy, Default)]
pub struct LoadOptions {
    pub engine: EngineName,
    pub device: DeviceName,
    /// Threads of the engine `cpu`; 0: one.
    pub threads: usize,
    /// Instruction set of the engine `cpu`; `None`: the best one here.
    pub isa: Option<Isa>,
    /// How finely the engine `cpu` quantises activations, where the instruction set and the weights give a choice.
    pub activations: Activations,
    /// How the engine `candle` holds weights; `None`: by size, see [`WeightFormat::for_size`].
    pub weights: Option<WeightFormat>,
    pub decoder: DecoderOptions,
    /// Ends runs of the model between two chunks once set.
    pub cancel: Option<Cancel>,
}

impl LoadOptions {
    /// The engine that `auto` stands for, or the one asked for.
    pub fn resolved_engine(&self) -> EngineName {
        match (self.engine, self.device) {
            (EngineName::Auto, DeviceName::Cpu) => EngineName::Cpu,
            (EngineName::Auto, _) => EngineName::Candle,
            (named, _) => named,
        }
    }
}

/// The format of the cache where none is asked for: 16-bit integers on the engine `cpu`, which rounds activations for all
/// weights but f32; otherwise f32.
pub fn default_kv_type(engine: EngineName, checkpoint: &Checkpoint) -> KvType {
    let rounds = |view: TensorView<'_>| view.shape.len() > 1 && view.dtype != TensorType::F32;
    match engine {
        EngineName::Cpu if checkpoint.views().any(rounds) => KvType::Q16,
        _ => KvType::F32,
    }
}

/// A loaded model and what the user should know about the way it was loaded.
pub struct Loaded<'a> {
    pub model: Box<dyn LanguageModel + 'a>,
    pub warnings: Vec<String>,
}

/// Loads the weights of `checkpoint` under the rotary embedding `rope`.
///
/// # Errors
/// Missing or unused tensors, shapes that do not fit, a device that is not there.
pub fn load<'a>(
    checkpoint: &'a Checkpoint,
    config: ModelConfig,
    rope: RopeSettings,
    options: &LoadOptions,
) -> Result<Loaded<'a>, ModelError> {
    rope.spec.validate()?;
    let (source, warnings) = assemble(checkpoint, &config)?;
    let shape = config.shape(&rope.spec);
    let decoder = options.decoder;
    let model: Box<dyn LanguageModel + 'a> = match options.resolved_engine() {
        EngineName::Auto | EngineName::Cpu => {
            if options.device != DeviceName::Cpu {
                let reason = "the engine `cpu` computes on the CPU only; leave `--engine` out".to_owned();
                return Err(EngineError::Device { device: options.device.to_string(), reason }.into());
            }
            let isa = options.isa.unwrap_or_else(Isa::detect);
            let engine = CpuEngine::load(shape, &source, (isa, options.activations), options.threads.max(1))?;
            Box::new(Decoder::new(engine, config, rope, decoder).cancelled_by(options.cancel))
        }
        EngineName::Candle => {
            let format = options.weights.unwrap_or_else(|| weight_format(checkpoint));
            let engine = CandleEngine::load(shape, &source, format, options.device.open()?)?;
            Box::new(Decoder::new(engine, config, rope, decoder).cancelled_by(options.cancel))
        }
    };
    // Both engines have made copies of their own.
    checkpoint.release_pages();
    Ok(Loaded { model, warnings })
}

/// The format that [`load`] chooses by itself for the engine `candle`.
pub fn weight_format(checkpoint: &Checkpoint) -> WeightFormat {
    WeightFormat::for_size(checkpoint.n_weights())
}
