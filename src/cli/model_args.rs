//! Which model a command runs, and the steps from its name to a decoder.

use std::path::PathBuf;
use std::time::Instant;

use serde_json::{Value, json};

use super::rope_args::RopeArgs;
use super::values::{format_number, format_size, parse_length, parse_size};
use super::{Context, CommandError};
use crate::checkpoint::rope::{RopeOverrides, RopeSettings, in_force};
use crate::checkpoint::tokenizer::Tokenizer;
use crate::checkpoint::{Checkpoint, ModelRef, OpenOptions};
use crate::demo;
use crate::engine::KvType;
use crate::model::load::{LoadOptions, load};
use crate::model::memory::MemoryPlan;
use crate::model::{DecoderOptions, LanguageModel, ModelConfig};

#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Model")]
pub struct ModelArgs {
    /// A .gguf file, a folder with config.json and safetensors, or a Hub id: org/name[@revision][:QUANT]
    /// [default: the demonstration checkpoint inside the program]
    #[arg(long, short, value_name = "REF")]
    pub model: Option<ModelRef>,
    /// tokenizer.json to use instead of the checkpoint's own
    #[arg(long, value_name = "FILE")]
    pub tokenizer: Option<PathBuf>,
    /// config.json to use instead of the folder's own
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Number format of cached keys and values: f32, f16 or bf16
    #[arg(long, value_name = "TYPE", default_value_t = KvType::F32)]
    pub kv_type: KvType,
    /// Tokens that go through the layers together
    #[arg(long, value_name = "TOKENS", default_value_t = DecoderOptions::DEFAULT_PREFILL_CHUNK, value_parser = parse_length)]
    pub prefill_chunk: usize,
    /// Refuse a run that needs more memory than this, before weights are read: 800M, 12G, ...
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub max_memory: Option<u64>,
}

/// A checkpoint whose metadata have been read and whose weights have not.
pub struct OpenModel {
    pub checkpoint: Checkpoint,
    pub config: ModelConfig,
    args: ModelArgs,
}

/// A model that runs.
pub struct ReadyModel {
    pub model: Box<dyn LanguageModel>,
    pub warnings: Vec<String>,
    pub load_s: f64,
}

impl ModelArgs {
    /// Opens the checkpoint (downloading it if need be) and reads its configuration.
    pub fn open(&self, context: &Context) -> anyhow::Result<OpenModel> {
        let reference = self.model.clone().unwrap_or(ModelRef::Builtin);
        if reference == ModelRef::Builtin {
            context.note("using the built-in demo checkpoint (2 million parameters, trained on 256 tokens); --model REF for another");
        }
        let options = OpenOptions {
            hub: context.hub.clone(),
            config: self.config.clone(),
            builtin: Some((demo::NAME, demo::GGUF)),
        };
        let checkpoint = Checkpoint::open(&reference, &options)?;
        let config = ModelConfig::read(&checkpoint)?;
        Ok(OpenModel {
            checkpoint,
            config,
            args: self.clone(),
        })
    }
}

impl OpenModel {
    pub fn tokenizer(&self) -> anyhow::Result<Tokenizer> {
        Ok(self.checkpoint.tokenizer(self.args.tokenizer.as_deref())?)
    }

    /// The rotary embedding for a run of `length` tokens.
    pub fn rope(&self, args: &RopeArgs, length: usize) -> anyhow::Result<RopeSettings> {
        let overrides = args.overrides()?;
        match in_force(&self.config.rope, &overrides, length) {
            Ok(settings) => Ok(settings),
            Err(error) if overrides != RopeOverrides::default() => {
                Err(CommandError::usage(error.to_string()).into())
            }
            Err(error) => Err(anyhow::Error::new(error)
                .context(CommandError::failed(format!("cannot use the rope scaling of `{}`", self.checkpoint.name()))
                    .hint("give the scaling yourself, for example `--scaling yarn --factor 4`"))),
        }
    }

    pub fn memory(&self, rope: &RopeSettings, context: usize) -> MemoryPlan {
        let options = self.decoder_options(Default::default());
        MemoryPlan::new(&self.checkpoint, &self.config, &rope.spec, &options, context)
    }

    fn decoder_options(&self, dynamic: crate::model::DynamicPolicy) -> DecoderOptions {
        DecoderOptions {
            kv_type: self.args.kv_type,
            prefill_chunk: self.args.prefill_chunk,
            dynamic,
        }
    }

    /// Reads the weights, for contexts of at most `length` tokens.
    pub fn load(
        &self,
        rope: RopeSettings,
        args: &RopeArgs,
        length: usize,
        context: &Context,
    ) -> anyhow::Result<ReadyModel> {
        let memory = self.memory(&rope, length);
        memory.ensure_within(self.args.max_memory)?;
        context.note(&rope_line(&rope, length)?);
        let started = Instant::now();
        let mut warnings = rope.warnings.clone();
        let options = LoadOptions {
            device: context.device,
            weights: None,
            decoder: self.decoder_options(args.dynamic),
        };
        let loaded = load(&self.checkpoint, self.config.clone(), rope, &options)?;
        warnings.extend(loaded.warnings);
        let load_s = started.elapsed().as_secs_f64();
        context.detail(|| {
            let engine = loaded.model.engine();
            let size = format_size(memory.total_bytes());
            format!("{engine}; loaded in {load_s:.2} s; {size} for {length} tokens")
        });
        Ok(ReadyModel { model: loaded.model, warnings, load_s })
    }

    /// `model` of the JSON result.
    pub fn describe(&self, tokenizer: &Tokenizer) -> Value {
        json!({
            "name": self.checkpoint.name(),
            "architecture": self.config.architecture,
            "weights": self.checkpoint.n_weights(),
            "size_bytes": self.checkpoint.weights_bytes(),
            "tokenizer": { "source": tokenizer.source(), "vocab_hash": tokenizer.vocab_hash() },
        })
    }

    /// `engine` of the JSON result.
    pub fn describe_engine(&self, engine: &str, args: &RopeArgs, context: &Context) -> Value {
        json!({
            "name": engine,
            "device": context.device.to_string(),
            "threads": context.threads,
            "kv_type": self.args.kv_type.name(),
            "prefill_chunk": self.args.prefill_chunk,
            "dynamic": args.dynamic.name(),
        })
    }
}

/// What is in force, in one line.
pub fn rope_line(rope: &RopeSettings, length: usize) -> anyhow::Result<String> {
    let frequencies = crate::rope::frequencies(&rope.spec, length)?;
    let factor = rope.spec.scaling.factor().map_or(String::new(), |f| format!(" x{}", format_number(f)));
    let limit = rope.limit.map_or("follows the length".to_string(), |limit| limit.to_string());
    Ok(format!(
        "rope: {}{factor}, original context {}, theta {}, attention factor {}, limit {limit}",
        rope.spec.scaling.name(),
        rope.spec.original_context,
        format_number(rope.spec.theta),
        format_number(frequencies.attention_factor),
    ))
}
