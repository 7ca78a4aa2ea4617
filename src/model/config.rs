//! What differs between architectures: one row a family, read from GGUF metadata or from `config.json`.

use crate::checkpoint::config::HfConfig;
use crate::checkpoint::gguf::Metadata;
use crate::checkpoint::rope::{HeadLayout, RopeDeclaration, RopeTensors, from_gguf, from_hf};
use crate::checkpoint::{Checkpoint, Content};
use crate::engine::ModelShape;
use crate::rope::{Pairing, RopeSpec};

use super::ModelError;

/// Whether the q, k and v projections carry biases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Biases {
    /// Always (Qwen2).
    Qkv,
    /// Wherever the checkpoint stores one (GGUF), or none stored at all.
    AsStored,
}

/// One supported family.
#[derive(Debug)]
struct Row {
    /// `model_type` of `config.json`.
    hf: &'static str,
    /// `general.architecture` of a GGUF file.
    gguf: &'static str,
    /// Lanes that form a pair in GGUF files. Converters reorder the q/k rows of the `llama` architecture for
    /// adjacent pairs; safetensors always pair the halves.
    gguf_pairing: Pairing,
    biases: Biases,
    /// RMSNorm over each query and key head.
    qk_norm: bool,
    /// `head_dim` when `config.json` has none; `None`: hidden size over heads.
    default_head_dim: Option<usize>,
    /// How `config.json` speaks of a sliding window.
    window: WindowRule,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WindowRule {
    /// The family has none.
    Never,
    /// `sliding_window`, this many tokens when the key is absent (Mistral).
    Always(usize),
    /// Only with `use_sliding_window`, and then on some layers (Qwen).
    WhenUsed,
}

const ROWS: [Row; 4] = [
    Row {
        hf: "llama",
        gguf: "llama",
        gguf_pairing: Pairing::Adjacent,
        biases: Biases::AsStored,
        qk_norm: false,
        default_head_dim: None,
        window: WindowRule::Never,
    },
    Row {
        hf: "mistral",
        gguf: "llama",
        gguf_pairing: Pairing::Adjacent,
        biases: Biases::AsStored,
        qk_norm: false,
        default_head_dim: None,
        window: WindowRule::Always(4096),
    },
    Row {
        hf: "qwen2",
        gguf: "qwen2",
        gguf_pairing: Pairing::HalfSplit,
        biases: Biases::Qkv,
        qk_norm: false,
        default_head_dim: None,
        window: WindowRule::WhenUsed,
    },
    Row {
        hf: "qwen3",
        gguf: "qwen3",
        gguf_pairing: Pairing::HalfSplit,
        biases: Biases::AsStored,
        qk_norm: true,
        default_head_dim: Some(128),
        window: WindowRule::WhenUsed,
    },
];

fn unsupported_architecture(name: &str, key: fn(&Row) -> &'static str) -> ModelError {
    let mut supported: Vec<&str> = ROWS.iter().map(key).collect();
    supported.dedup();
    ModelError::Architecture { name: name.to_string(), supported: supported.join(", ") }
}

/// Everything in which models differ, apart from weights.
#[derive(Debug, Clone)]
pub struct ModelConfig {
    pub architecture: String,
    pub hidden_size: usize,
    pub intermediate_size: usize,
    pub vocab_size: usize,
    pub n_layers: usize,
    pub n_heads: usize,
    pub n_kv_heads: usize,
    pub head_dim: usize,
    pub rms_norm_eps: f64,
    pub sliding_window: Option<usize>,
    pub biases: Biases,
    pub qk_norm: bool,
    /// What `config.json` says of a tied head; `None` when the file does not say.
    pub tied_flag: Option<bool>,
    /// The rotary embedding as the checkpoint declares it.
    pub rope: RopeDeclaration,
}

impl ModelConfig {
    /// Reads the configuration of an opened checkpoint.
    ///
    /// # Errors
    /// Unknown architectures and features by name, missing keys, values that do not fit together.
    pub fn read(checkpoint: &Checkpoint) -> Result<Self, ModelError> {
        let config = match checkpoint.content() {
            Content::Gguf(file) => {
                let mut config = from_gguf_metadata(checkpoint, file.metadata())?;
                if let Some(beside) = checkpoint.config() {
                    config.compare_rope(beside)?;
                }
                config
            }
            Content::Safetensors(_) => match checkpoint.config() {
                Some(config) => from_hf_config(config)?,
                None => return Err(ModelError::MissingKey("config.json".to_string())),
            },
        };
        config.check()?;
        Ok(config)
    }

    /// The sizes an engine needs, with the rotary embedding in force.
    pub fn shape(&self, rope: &RopeSpec) -> ModelShape {
        ModelShape {
            hidden_size: self.hidden_size,
            intermediate_size: self.intermediate_size,
            vocab_size: self.vocab_size,
            n_layers: self.n_layers,
            n_heads: self.n_heads,
            n_kv_heads: self.n_kv_heads,
            head_dim: self.head_dim,
            rotary_dim: rope.rotary_dim,
            pairing: rope.pairing,
            rms_norm_eps: self.rms_norm_eps,
            sliding_window: self.sliding_window,
        }
    }

    /// Notes where a `config.json` given beside a GGUF file declares another rotary embedding than the file:
    /// converters lose settings, and the file is what runs.
    fn compare_rope(&mut self, config: &HfConfig) -> Result<(), ModelError> {
        let layout = HeadLayout { head_dim: self.head_dim, pairing: self.rope.pairing };
        let other = from_hf(config.map(), layout)?;
        let describe = |rope: &RopeDeclaration| match &rope.scaling {
            Ok(scaling) => {
                let factor = scaling.factor().map_or(String::new(), |factor| format!(" x{factor}"));
                let (theta, context) = (rope.theta as f32, rope.original_context);
                format!("`{}`{factor}, theta {theta}, original context {context}", scaling.name())
            }
            Err(error) => format!("a scaling that cannot be used ({error})"),
        };
        let (here, there) = (describe(&self.rope), describe(&other));
        if here != there {
            self.rope.notes.push(format!(
                "the GGUF file declares {here}, the given config.json {there}: the file's is used; \
                 `--rope-parameters` takes the dictionary of a config.json"
            ));
        }
        Ok(())
    }

    fn check(&self) -> Result<(), ModelError> {
        let sizes = [
            ("hidden size", self.hidden_size),
            ("intermediate size", self.intermediate_size),
            ("vocabulary", self.vocab_size),
            ("layers", self.n_layers),
            ("attention heads", self.n_heads),
            ("key/value heads", self.n_kv_heads),
            ("head dimension", self.head_dim),
        ];
        if let Some((name, _)) = sizes.iter().find(|(_, size)| *size == 0) {
            return Err(ModelError::Inconsistent(format!("{name} is 0")));
        }
        if !self.n_heads.is_multiple_of(self.n_kv_heads) {
            return Err(ModelError::Inconsistent(format!(
                "{} attention heads are not a multiple of {} key/value heads",
                self.n_heads, self.n_kv_heads
            )));
        }
        if self.rms_norm_eps <= 0.0 {
            return Err(ModelError::Inconsistent(format!("the RMSNorm epsilon is `{}`", self.rms_norm_eps)));
        }
        Ok(())
    }
}

fn from_gguf_metadata(checkpoint: &Checkpoint, meta: &Metadata) -> Result<ModelConfig, ModelError> {
    let name = meta.architecture()?;
    let row = ROWS.iter().find(|row| row.gguf == name);
    let row = row.ok_or_else(|| unsupported_architecture(name, |row| row.gguf))?;
    let key = |suffix: &str| format!("{name}.{suffix}");
    let size = |suffix: &str| {
        let key = key(suffix);
        meta.usize(&key)?.ok_or(ModelError::MissingKey(key))
    };
    let expert_key = key("expert_count");
    refuse(
        &expert_key,
        meta.usize(&expert_key)?.filter(|&n| n > 0),
        "mixtures of experts are not supported",
    )?;
    let hidden_size = size("embedding_length")?;
    let n_heads = size("attention.head_count")?;
    let head_dim = match meta.usize(&key("attention.key_length"))? {
        Some(head_dim) => head_dim,
        None => split_evenly(hidden_size, n_heads)?,
    };
    let value_key = key("attention.value_length");
    let odd_values = meta.usize(&value_key)?.filter(|&length| length != head_dim);
    refuse(&value_key, odd_values, "value heads must be as long as key heads")?;
    let epsilon_key = key("attention.layer_norm_rms_epsilon");
    let layout = HeadLayout { head_dim, pairing: row.gguf_pairing };
    Ok(ModelConfig {
        architecture: name.to_string(),
        hidden_size,
        intermediate_size: size("feed_forward_length")?,
        vocab_size: gguf_vocab_size(checkpoint)?,
        n_layers: size("block_count")?,
        n_heads,
        n_kv_heads: meta.usize(&key("attention.head_count_kv"))?.unwrap_or(n_heads),
        head_dim,
        rms_norm_eps: meta.f64(&epsilon_key)?.ok_or(ModelError::MissingKey(epsilon_key))?,
        sliding_window: meta.usize(&key("attention.sliding_window"))?.filter(|&n| n > 0),
        biases: row.biases,
        qk_norm: row.qk_norm,
        tied_flag: None,
        rope: from_gguf(meta, &rope_tensors(checkpoint)?, layout)?,
    })
}

/// The vocabulary is as long as the embedding: metadata need not repeat it.
fn gguf_vocab_size(checkpoint: &Checkpoint) -> Result<usize, ModelError> {
    const EMBEDDING: &str = "token_embd.weight";
    let embedding = checkpoint.tensor(EMBEDDING);
    let embedding = embedding.ok_or_else(|| ModelError::MissingTensor(EMBEDDING.to_string()))?;
    Ok(embedding.shape.first().copied().unwrap_or(0))
}

fn rope_tensors(checkpoint: &Checkpoint) -> Result<RopeTensors, ModelError> {
    let read = |name: &str| -> Result<Option<Vec<f32>>, ModelError> {
        let Some(view) = checkpoint.tensor(name) else {
            return Ok(None);
        };
        let values = view.to_f32().ok_or_else(|| ModelError::Unsupported {
            key: name.to_string(),
            value: view.dtype.to_string(),
            reason: "divisors must be stored as floats".to_string(),
        })?;
        Ok(Some(values))
    };
    Ok(RopeTensors {
        rope_freqs: read(super::weights::ROPE_FREQS)?,
        factors_long: read(super::weights::ROPE_FACTORS_LONG)?,
        factors_short: read(super::weights::ROPE_FACTORS_SHORT)?,
    })
}

fn from_hf_config(config: &HfConfig) -> Result<ModelConfig, ModelError> {
    let required = |key: &str| {
        let value = config.usize(key)?;
        value.ok_or_else(|| ModelError::MissingKey(key.to_string()))
    };
    let name = config.str("model_type")?;
    let name = name.ok_or_else(|| ModelError::MissingKey("model_type".to_string()))?;
    let row = ROWS.iter().find(|row| row.hf == name);
    let row = row.ok_or_else(|| unsupported_architecture(name, |row| row.hf))?;
    refuse_unknown_features(config)?;
    let hidden_size = required("hidden_size")?;
    let n_heads = required("num_attention_heads")?;
    let head_dim = match (config.usize("head_dim")?, row.default_head_dim) {
        (Some(head_dim), _) | (None, Some(head_dim)) => head_dim,
        (None, None) => split_evenly(hidden_size, n_heads)?,
    };
    let layout = HeadLayout { head_dim, pairing: Pairing::HalfSplit };
    Ok(ModelConfig {
        architecture: name.to_string(),
        hidden_size,
        intermediate_size: required("intermediate_size")?,
        vocab_size: required("vocab_size")?,
        n_layers: required("num_hidden_layers")?,
        n_heads,
        n_kv_heads: config.usize("num_key_value_heads")?.unwrap_or(n_heads),
        head_dim,
        // The default of every supported family in transformers.
        rms_norm_eps: config.f64("rms_norm_eps")?.unwrap_or(1e-6),
        sliding_window: hf_window(config, row)?,
        biases: row.biases,
        qk_norm: row.qk_norm,
        tied_flag: config.bool("tie_word_embeddings")?,
        rope: from_hf(config.map(), layout)?,
    })
}

/// Keys that change the arithmetic in a way the decoder does not follow.
fn refuse_unknown_features(config: &HfConfig) -> Result<(), ModelError> {
    let activation = config.str("hidden_act")?.filter(|act| !matches!(*act, "silu" | "swish"));
    refuse("hidden_act", activation, "only `silu` is supported")?;
    let quantisation = config.map().get("quantization_config").filter(|v| !v.is_null());
    let method = quantisation.map(|config| config.get("quant_method").unwrap_or(config));
    refuse(
        "quantization_config",
        method,
        "quantised safetensors are not read; take the unquantised or the GGUF release",
    )?;
    let experts = config.usize("num_local_experts")?.filter(|&n| n > 1);
    refuse("num_local_experts", experts, "mixtures of experts are not supported")
}

/// `sliding_window` counts the query's own token: a query at p sees keys above p - window.
fn hf_window(config: &HfConfig, row: &Row) -> Result<Option<usize>, ModelError> {
    let is_given = config.map().contains_key("sliding_window");
    let window = config.usize("sliding_window")?;
    match row.window {
        WindowRule::Never => Ok(None),
        WindowRule::Always(default) if !is_given => Ok(Some(default)),
        WindowRule::Always(_) => Ok(window),
        WindowRule::WhenUsed => {
            let used = config.bool("use_sliding_window")?.filter(|&used| used);
            refuse("use_sliding_window", used, "a sliding window on some of the layers is not supported")?;
            Ok(None)
        }
    }
}

fn refuse(key: &str, value: Option<impl ToString>, reason: &str) -> Result<(), ModelError> {
    match value {
        None => Ok(()),
        Some(value) => Err(ModelError::Unsupported {
            key: key.to_string(),
            value: value.to_string(),
            reason: reason.to_string(),
        }),
    }
}

fn split_evenly(hidden_size: usize, n_heads: usize) -> Result<usize, ModelError> {
    if n_heads == 0 || !hidden_size.is_multiple_of(n_heads) {
        return Err(ModelError::Inconsistent(format!(
            "a hidden size of {hidden_size} does not split into {n_heads} heads and no head dimension is given"
        )));
    }
    Ok(hidden_size / n_heads)
}
