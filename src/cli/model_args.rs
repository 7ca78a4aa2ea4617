//! Which model a command runs, and the steps from its name to a decoder.

use std::path::PathBuf;
use std::time::Instant;

use serde_json::{Value, json};

use super::rope_args::RopeArgs;
use super::values::{format_number, format_size, parse_length, parse_size};
use super::{CommandError, Context, interrupt};
use crate::checkpoint::rope::{RopeOverrides, RopeSettings, in_force};
use crate::checkpoint::tokenizer::Tokenizer;
use crate::checkpoint::{Checkpoint, ModelRef, OpenOptions};
use crate::demo;
use crate::engine::KvType;
use crate::model::load::{LoadOptions, default_kv_type, load};
use crate::model::memory::MemoryPlan;
use crate::model::{DecoderOptions, LanguageModel, ModelConfig};
use crate::named::Named;

/// Which checkpoint.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Model")]
pub struct ModelArgs {
    /// A .gguf file, a folder with config.json and safetensors, or a Hub id: org/name[@revision][:QUANT]
    /// [default: the demonstration checkpoint inside the program]
    #[arg(long, short, value_name = "REF", value_parser = parse_reference)]
    pub model: Option<ModelRef>,
    /// tokenizer.json to use instead of the checkpoint's own
    #[arg(long, value_name = "FILE")]
    pub tokenizer: Option<PathBuf>,
    /// config.json to use instead of the folder's own; beside a GGUF file it is compared with the file
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

/// How it is held in memory.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Model")]
pub struct MemoryArgs {
    /// Number format of cached keys and values: f32, f16, bf16 or (engine cpu) q16, q8_0
    /// [default: q16, 16-bit integers with a scale for each key and value; f32 for f32 weights and the engine candle]
    #[arg(long, value_name = "TYPE", value_parser = KvType::parse)]
    kv_type: Option<KvType>,
    /// Tokens that go through the layers together
    #[arg(long, value_name = "TOKENS", default_value_t = DecoderOptions::DEFAULT_PREFILL_CHUNK, value_parser = parse_length)]
    pub prefill_chunk: usize,
    /// Refuse a run that needs more memory than this, before weights are read: 800M, 12G, ...
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub max_memory: Option<u64>,
}

/// A reference, with the advice that comes with a bad one.
pub fn parse_reference(text: &str) -> Result<ModelRef, String> {
    text.parse::<ModelRef>().map_err(|error| match error.hint() {
        Some(hint) => format!("{error}; {hint}"),
        None => error.to_string(),
    })
}

/// A checkpoint whose metadata have been read and whose weights have not.
pub struct OpenModel {
    pub checkpoint: Checkpoint,
    pub config: ModelConfig,
    tokenizer: Option<PathBuf>,
}

/// A model that runs.
pub struct ReadyModel<'a> {
    pub model: Box<dyn LanguageModel + 'a>,
    pub warnings: Vec<String>,
    pub load_s: f64,
    pub kv_type: KvType,
}

impl ModelArgs {
    /// Opens the checkpoint (downloading it if need be) and reads its configuration.
    pub fn open(&self, context: &Context) -> anyhow::Result<OpenModel> {
        let checkpoint = self.checkpoint(context)?;
        let config = ModelConfig::read(&checkpoint)?;
        Ok(OpenModel { checkpoint, config, tokenizer: self.tokenizer.clone() })
    }

    /// The tokenizer and `model` of the JSON result; whether the model itself can run does not matter.
    pub fn tokenizer_alone(&self, context: &Context) -> anyhow::Result<(Tokenizer, Value)> {
        let (tokenizer, name) = match (&self.model, &self.tokenizer) {
            (None, Some(path)) => (Tokenizer::open(path)?, path.display().to_string()),
            _ => {
                let checkpoint = self.checkpoint(context)?;
                (checkpoint.tokenizer(self.tokenizer.as_deref())?, checkpoint.name().to_owned())
            }
        };
        let model = json!({ "name": name, "tokenizer": describe_tokenizer(&tokenizer) });
        Ok((tokenizer, model))
    }

    fn checkpoint(&self, context: &Context) -> anyhow::Result<Checkpoint> {
        let reference = self.model.clone().unwrap_or(ModelRef::Builtin);
        if reference == ModelRef::Builtin {
            context.note("using the built-in demo checkpoint (2 million parameters, trained on 256 tokens); --model REF for another");
        }
        let options = OpenOptions {
            hub: context.hub.clone(),
            config: self.config.clone(),
            builtin: Some((demo::NAME, demo::GGUF)),
        };
        Ok(Checkpoint::open(&reference, &options)?)
    }
}

impl OpenModel {
    pub fn tokenizer(&self) -> anyhow::Result<Tokenizer> {
        Ok(self.checkpoint.tokenizer(self.tokenizer.as_deref())?)
    }

    /// The rotary embedding for a run of `length` tokens.
    pub fn rope(&self, args: &RopeArgs, length: usize) -> anyhow::Result<RopeSettings> {
        self.rope_with(&args.overrides()?, length)
    }

    /// The same for overrides that are no flags of the model.
    pub fn rope_with(&self, overrides: &RopeOverrides, length: usize) -> anyhow::Result<RopeSettings> {
        let error = match in_force(&self.config.rope, overrides, length) {
            Ok(settings) => return Ok(settings),
            Err(error) => error,
        };
        let replaced = overrides.scaling.is_some() || overrides.rope_parameters.is_some();
        if replaced || self.config.rope.scaling.is_ok() && *overrides != RopeOverrides::default() {
            return Err(CommandError::usage(error.to_string()).into());
        }
        let context =
            CommandError::failed(format!("cannot use the rope scaling of `{}`", self.checkpoint.name()))
                .hint("give the scaling yourself, for example `--scaling yarn --factor 4`");
        Err(anyhow::Error::new(error).context(context))
    }

    /// The plan for a run of `context` tokens.
    pub fn memory(
        &self,
        rope: &RopeSettings,
        args: (&RopeArgs, &MemoryArgs),
        context: usize,
        global: &Context,
    ) -> MemoryPlan {
        let options = self.load_options(args, global);
        MemoryPlan::new(&self.checkpoint, &self.config, &rope.spec, &options, context)
    }

    fn load_options(&self, (rope, memory): (&RopeArgs, &MemoryArgs), context: &Context) -> LoadOptions {
        let mut options = LoadOptions {
            engine: context.engine,
            device: context.device,
            threads: context.threads,
            isa: context.isa,
            activations: context.activations,
            weights: None,
            decoder: DecoderOptions {
                prefill_chunk: memory.prefill_chunk,
                dynamic: rope.dynamic,
                ..DecoderOptions::default()
            },
            cancel: None,
        };
        let unasked = || default_kv_type(options.resolved_engine(), &self.checkpoint);
        options.decoder.kv_type = memory.kv_type.unwrap_or_else(unasked);
        options
    }

    /// Reads the weights, for contexts of at most `length` tokens, `known`: warnings of the command, said first.
    pub fn load(
        &self,
        rope: RopeSettings,
        args: (&RopeArgs, &MemoryArgs),
        length: usize,
        known: &[String],
        context: &Context,
    ) -> anyhow::Result<ReadyModel<'_>> {
        context.note(&rope_line(&rope, length)?);
        let known = [known, &rope.warnings].concat();
        self.load_shared(rope, args, length, &known, context)
    }

    /// The same for sessions under several rotary embeddings, `rope` being one of them: nothing is said about it.
    pub fn load_shared(
        &self,
        rope: RopeSettings,
        args: (&RopeArgs, &MemoryArgs),
        length: usize,
        known: &[String],
        context: &Context,
    ) -> anyhow::Result<ReadyModel<'_>> {
        let memory = self.memory(&rope, args, length, context);
        memory.ensure_within(args.1.max_memory)?;
        let mut warnings = known.to_vec();
        context.warn(&warnings);
        let started = Instant::now();
        let cancel = Some(interrupt::cancel()?);
        let options = LoadOptions { cancel, ..self.load_options(args, context) };
        let loaded = load(&self.checkpoint, self.config.clone(), rope, &options)?;
        context.warn(&loaded.warnings);
        warnings.extend(loaded.warnings);
        let load_s = started.elapsed().as_secs_f64();
        context.detail(|| {
            let engine = loaded.model.engine();
            let size = format_size(memory.total_bytes());
            format!("{engine}; loaded in {load_s:.2} s; {size} for {length} tokens")
        });
        Ok(ReadyModel { model: loaded.model, warnings, load_s, kv_type: options.decoder.kv_type })
    }

    /// `model` of the JSON result.
    pub fn describe(&self, tokenizer: &Tokenizer) -> Value {
        json!({
            "name": self.checkpoint.name(),
            "architecture": self.config.architecture,
            "weights": self.checkpoint.n_weights(),
            "size_bytes": self.checkpoint.weights_bytes(),
            "tokenizer": describe_tokenizer(tokenizer),
        })
    }
}

fn describe_tokenizer(tokenizer: &Tokenizer) -> Value {
    json!({ "source": tokenizer.source(), "vocab_hash": tokenizer.vocab_hash() })
}

impl ReadyModel<'_> {
    /// `engine` of the JSON result.
    pub fn describe_engine(&self, args: (&RopeArgs, &MemoryArgs), context: &Context) -> Value {
        let (rope, memory) = args;
        json!({
            "name": self.model.engine(),
            "device": context.device.to_string(),
            "threads": context.threads,
            "kv_type": self.kv_type.name(),
            "prefill_chunk": memory.prefill_chunk,
            "dynamic": rope.dynamic.name(),
        })
    }
}

/// `rope` of the JSON result: every value with its origin, at the length that length-dependent frequencies are shown for.
pub fn rope_json(rope: &RopeSettings, length: usize) -> anyhow::Result<Value> {
    let mut parameters = rope.parameters(length)?;
    if let Some(object) = parameters.as_object_mut() {
        let origin = "derived: the tokens planned for";
        object.insert("at_length".to_string(), json!({ "value": length, "origin": origin }));
    }
    Ok(parameters)
}

/// The scaling in a few letters, such as `yarn x2`.
pub fn rope_name(rope: &RopeSettings) -> String {
    let factor = rope.spec.scaling.factor().map_or(String::new(), |f| format!(" x{}", format_number(f)));
    format!("{}{factor}", rope.spec.scaling.name())
}

/// What is in force, in one line.
pub fn rope_line(rope: &RopeSettings, length: usize) -> anyhow::Result<String> {
    let frequencies = crate::rope::frequencies(&rope.spec, length)?;
    let limit = rope.limit.map_or("follows the length".to_string(), |limit| limit.to_string());
    Ok(format!(
        "rope: {}, original context {}, theta {}, attention factor {}, limit {limit}",
        rope_name(rope),
        rope.spec.original_context,
        format_number(rope.spec.theta),
        format_number(frequencies.attention_factor),
    ))
}
