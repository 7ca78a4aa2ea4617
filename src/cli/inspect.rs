//! `ropex inspect`

use serde_json::{Value, json};

use super::Context;
use super::model_args::{MemoryArgs, ModelArgs, OpenModel, rope_json};
use super::report::{Report, Table};
use super::rope_args::RopeArgs;
use super::values::{format_count, format_number, format_size, parse_length};
use crate::checkpoint::Content;
use crate::checkpoint::rope::RopeSettings;
use crate::engine::LayerRotation;
use crate::model::ModelConfig;
use crate::model::memory::MemoryPlan;
use crate::named::Named;
use crate::rope::{base_frequencies, frequencies, turning_pairs, wavelengths};

/// Show what is in a checkpoint, the rotary embedding in force and the memory that a context needs
///
/// Reads no weights. Every rope value is shown with its origin: a key of the checkpoint, a flag, a default or a formula.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ropex inspect
  ropex inspect --model model.gguf --scaling yarn --factor 4 --context 32k
  ropex inspect --model org/name --format json")]
pub struct Args {
    /// Tokens to plan memory for, and the length at which length-dependent frequencies are shown [default: the limit]
    #[arg(long, value_name = "TOKENS", value_parser = parse_length)]
    context: Option<usize>,
    /// Also list all metadata
    #[arg(long)]
    metadata: bool,
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    memory: MemoryArgs,
    #[command(flatten)]
    rope: RopeArgs,
}

pub fn run(args: Args, context: &Context) -> anyhow::Result<Report> {
    let open = args.model.open(context)?;
    let tokenizer = open.tokenizer()?;
    let declared = open.config.rope.limit;
    let rope = open.rope(&args.rope, args.context.unwrap_or(declared))?;
    let length = args.context.or(rope.limit).unwrap_or(declared);
    let mut warnings = [tokenizer.warnings(), &rope.warnings].concat();
    if let Some(limit) = rope.limit.filter(|limit| length > *limit) {
        warnings.push(format!("a context of {length} tokens is beyond the limit of {limit}"));
    }
    let memory = open.memory(&rope, (&args.rope, &args.memory), length, context);
    let rope_json = rope_json(&rope, length)?;
    let pairs = PairTable::new(&rope, length)?;
    if let Some(allowed) = args.memory.max_memory.filter(|allowed| memory.total_bytes() > *allowed) {
        warnings.push(format!(
            "{length} tokens need {}, more than the {} of --max-memory",
            format_size(memory.total_bytes()),
            format_size(allowed)
        ));
    }
    context.warn(&warnings);
    let mut tables = vec![
        model_table(&open, tokenizer.source()),
        rope_table(&rope_json, length),
        pairs.table(&rope),
        memory_table(&memory, length),
    ];
    if args.metadata {
        tables.push(metadata_table(&open));
    }
    Ok(Report {
        schema: "ropex.inspect/1",
        model: open.describe(&tokenizer),
        rope: rope_json,
        main_table: FREQUENCIES,
        result: json!({
            "config": config_json(&open.config),
            "tensor_types": open.checkpoint.tensor_types(),
            "metadata": args.metadata.then(|| metadata_json(&open)),
            "context": length,
            "rope_tensors": rope_tensors(&open),
            "frequencies": pairs.json(),
            "memory": {
                "weights_bytes": memory.weights_bytes,
                "kv_bytes": memory.kv_bytes,
                "workspace_bytes": memory.workspace_bytes,
                "total_bytes": memory.total_bytes(),
            },
        }),
        tables,
        warnings,
        ..Report::default()
    })
}

/// Position of the frequency table among the tables: the one that CSV holds.
const FREQUENCIES: usize = 2;

/// The rotated pairs before and after scaling.
struct PairTable {
    base: Vec<f64>,
    scaled: Vec<f64>,
    attention_factor: f64,
    turning: usize,
}

impl PairTable {
    fn new(rope: &RopeSettings, length: usize) -> anyhow::Result<Self> {
        let base = base_frequencies(rope.spec.theta, rope.spec.rotary_dim);
        let scaled = frequencies(&rope.spec, length)?;
        Ok(Self {
            turning: turning_pairs(&base, rope.spec.original_context),
            base,
            scaled: scaled.inv_freq,
            attention_factor: scaled.attention_factor,
        })
    }

    /// A short fingerprint of the table in force: FNV-1a over every frequency and the attention factor, rounded to f32.
    fn hash(&self) -> String {
        let values = self.scaled.iter().chain([&self.attention_factor]);
        let bytes = values.flat_map(|value| (*value as f32).to_le_bytes());
        let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        format!("{hash:016x}")
    }

    fn json(&self) -> Value {
        json!({
            "hash": self.hash(),
            "inv_freq": self.scaled,
            "base_inv_freq": self.base,
            "pairs_turning_in_original_context": self.turning,
        })
    }

    fn table(&self, rope: &RopeSettings) -> Table {
        let title = format!(
            "frequencies (hash {}; {} of {} pairs turn at least once within {} tokens)",
            self.hash(),
            self.turning,
            self.base.len(),
            rope.spec.original_context
        );
        let columns =
            ["pair", "inv_freq", "unscaled", "divided by", "wavelength", "turns in original context"];
        let mut table = Table::new(title, &columns);
        let waves = wavelengths(&self.scaled);
        for (pair, wavelength) in waves.iter().enumerate() {
            let (base, scaled) = (self.base[pair], self.scaled[pair]);
            let turns = rope.spec.original_context as f64 * base / std::f64::consts::TAU;
            table.row([
                pair.to_string(),
                format_number(scaled),
                format_number(base),
                format_number(base / scaled),
                format_number(*wavelength),
                format_number(turns),
            ]);
        }
        table
    }
}

fn config_json(config: &ModelConfig) -> Value {
    json!({
        "architecture": config.architecture,
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "vocab_size": config.vocab_size,
        "n_layers": config.n_layers(),
        "n_heads": config.n_heads,
        "n_kv_heads": config.n_kv_heads,
        "head_dim": config.head_dim,
        "rms_norm_eps": config.rms_norm_eps,
        "sliding_window": window_of(config).map(|(window, _)| window),
        "windowed_layers": window_of(config).map_or(0, |(_, layers)| layers),
        "unrotated_layers": unrotated_layers(config),
        "activation": config.activation.name(),
    })
}

/// The sliding window in tokens and the number of layers that have it.
fn window_of(config: &ModelConfig) -> Option<(usize, usize)> {
    let windows = || config.layers.iter().filter_map(|layer| layer.sliding_window);
    windows().next().map(|window| (window, windows().count()))
}

fn unrotated_layers(config: &ModelConfig) -> usize {
    config.layers.iter().filter(|layer| layer.rotation == LayerRotation::Unrotated).count()
}

/// Tensors that carry a rotary table of their own.
fn rope_tensors(open: &OpenModel) -> Value {
    use crate::model::weights::{ROPE_FACTORS_LONG, ROPE_FACTORS_SHORT, ROPE_FREQS};
    let names = open.checkpoint.tensor_names();
    let found = [ROPE_FREQS, ROPE_FACTORS_LONG, ROPE_FACTORS_SHORT].map(|tensor| {
        let present = names.contains(&tensor);
        (tensor.to_string(), Value::from(present))
    });
    found.into_iter().collect()
}

fn model_table(open: &OpenModel, tokenizer: &str) -> Table {
    let config = &open.config;
    let checkpoint = &open.checkpoint;
    let mut table = Table::new("model", &["what", "value"]);
    let mut row = |what: &str, value: String| table.row([what.to_string(), value]);
    row("name", checkpoint.name().to_string());
    row("architecture", config.architecture.clone());
    row(
        "weights",
        format!(
            "{} in {}",
            format_count(checkpoint.n_weights() as usize),
            format_size(checkpoint.weights_bytes())
        ),
    );
    row("tensor types", checkpoint.tensor_types());
    row("layers", config.n_layers().to_string());
    row("hidden / intermediate size", format!("{} / {}", config.hidden_size, config.intermediate_size));
    row("heads / key-value heads", format!("{} / {}", config.n_heads, config.n_kv_heads));
    row("head dimension", config.head_dim.to_string());
    row("vocabulary", config.vocab_size.to_string());
    let window = match window_of(config) {
        None => "none".to_string(),
        Some((window, layers)) => format!("{window} on {layers} of {} layers", config.n_layers()),
    };
    row("sliding window", window);
    if unrotated_layers(config) > 0 {
        row("layers without rotation", unrotated_layers(config).to_string());
    }
    row("tokenizer", tokenizer.to_string());
    if let Content::Gguf(_) = checkpoint.content() {
        let present = rope_tensors(open)[crate::model::weights::ROPE_FREQS] == true;
        row("rope_freqs", if present { "present" } else { "absent" }.to_string());
    }
    table
}

fn rope_table(parameters: &Value, length: usize) -> Table {
    let title = format!("rotary position embedding at {length} tokens");
    let mut table = Table::new(title, &["parameter", "value", "origin"]);
    for (name, entry) in parameters.as_object().into_iter().flatten() {
        let value = match &entry["value"] {
            Value::Number(number) => format_number(number.as_f64().unwrap_or(f64::NAN)),
            Value::String(text) => text.clone(),
            Value::Array(list) => format!("{} values", list.len()),
            other => other.to_string(),
        };
        let origin = entry["origin"].as_str().unwrap_or_default().to_string();
        table.row([name.clone(), value, origin]);
    }
    table
}

fn memory_table(memory: &MemoryPlan, length: usize) -> Table {
    let mut table = Table::new(format!("memory for {length} tokens"), &["part", "size"]);
    let parts = [
        ("weights", memory.weights_bytes),
        ("keys and values", memory.kv_bytes),
        ("workspace", memory.workspace_bytes),
        ("total", memory.total_bytes()),
    ];
    for (part, bytes) in parts {
        table.row([part.to_string(), format_size(bytes)]);
    }
    table
}

/// Keys and values for people: long texts are cut, lists counted.
fn metadata(open: &OpenModel) -> Vec<(String, String)> {
    match open.checkpoint.content() {
        Content::Gguf(file) => {
            file.metadata().iter().map(|(key, value)| (key.to_string(), value.to_string())).collect()
        }
        Content::Safetensors(_) => {
            let entries = open.checkpoint.config().into_iter().flat_map(|config| config.map());
            entries.map(|(key, value)| (key.clone(), value.to_string())).collect()
        }
    }
}

fn metadata_table(open: &OpenModel) -> Table {
    let mut table = Table::new("metadata", &["key", "value"]);
    for (key, value) in metadata(open) {
        table.row([key, value]);
    }
    table
}

fn metadata_json(open: &OpenModel) -> Value {
    metadata(open).into_iter().map(|(key, value)| (key, Value::from(value))).collect()
}
