//! The supported families: one row each.

use crate::checkpoint::rope::LayerBases;
use crate::engine::Activation;
use crate::model::ModelError;
use crate::rope::Pairing;

/// Whether the q, k and v projections carry biases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Biases {
    /// Always (Qwen2).
    Qkv,
    /// Wherever the checkpoint stores one (GGUF), or none stored at all.
    AsStored,
}

/// How `config.json` speaks of a sliding window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WindowRule {
    /// The family has none.
    Never,
    /// `sliding_window` on every layer, this many tokens when the key is absent.
    Always(Option<usize>),
    /// Only with `use_sliding_window`, on the layers of `layer_types` or from `max_window_layers` on.
    WhenUsed,
    /// Only with `use_sliding_window`, on the layers of `layer_types` or on those without rotation.
    WhenUsedUnrotated,
    /// `sliding_window` on all layers but the last of every so many, unless `layer_types` says otherwise.
    AllButEvery(usize),
}

/// Which layers rotate, and by what.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum RotationRule {
    /// All, by one embedding.
    Every,
    /// All but the last of every so many, unless `no_rope_layers` says otherwise.
    AllButEvery(usize),
    /// All; those with a sliding window by a plain embedding of their own.
    LocalInWindow(LayerBases),
}

/// One supported family.
#[derive(Debug, Clone, Copy)]
pub(super) struct Family {
    /// `model_type` of `config.json`.
    pub hf: &'static str,
    /// `general.architecture` of a GGUF file.
    pub gguf: &'static str,
    /// Releases that belong to it, for people.
    pub models: &'static str,
    /// Lanes that form a pair in GGUF files. Converters reorder the q/k rows of some architectures for adjacent pairs;
    /// safetensors always pair the halves.
    pub gguf_pairing: Pairing,
    pub biases: Biases,
    /// RMSNorm over each query and key head.
    pub qk_norm: bool,
    /// q, k and v are the rows of one matrix, gate and up of another.
    pub fused: bool,
    /// RMSNorm over what attention and MLP add to the residual.
    pub post_norms: bool,
    /// Added to the norm weights of safetensors; GGUF files have it in them.
    pub hf_norm_offset: f32,
    /// Rows of the embedding are multiplied by the square root of the hidden size.
    pub scaled_embedding: bool,
    pub activation: Activation,
    /// `head_dim` when `config.json` has none; `None`: hidden size over heads.
    pub default_head_dim: Option<usize>,
    pub window: WindowRule,
    pub rotation: RotationRule,
}

const LLAMA: Family = Family {
    hf: "llama",
    gguf: "llama",
    models: "Llama 1, 2, 3 to 3.3, SmolLM 1 and 2, TinyLlama, Yi and others built alike",
    gguf_pairing: Pairing::Adjacent,
    biases: Biases::AsStored,
    qk_norm: false,
    fused: false,
    post_norms: false,
    hf_norm_offset: 0.0,
    scaled_embedding: false,
    activation: Activation::Silu,
    default_head_dim: None,
    window: WindowRule::Never,
    rotation: RotationRule::Every,
};

pub(super) const FAMILIES: [Family; 7] = [
    LLAMA,
    Family {
        hf: "mistral",
        models: "Mistral 7B, Nemo, Small (text)",
        window: WindowRule::Always(Some(4096)),
        ..LLAMA
    },
    Family {
        hf: "qwen2",
        gguf: "qwen2",
        models: "Qwen2, Qwen2.5 (dense)",
        gguf_pairing: Pairing::HalfSplit,
        biases: Biases::Qkv,
        window: WindowRule::WhenUsed,
        ..LLAMA
    },
    Family {
        hf: "qwen3",
        gguf: "qwen3",
        models: "Qwen3 (dense)",
        gguf_pairing: Pairing::HalfSplit,
        qk_norm: true,
        default_head_dim: Some(128),
        window: WindowRule::WhenUsed,
        ..LLAMA
    },
    Family {
        hf: "phi3",
        gguf: "phi3",
        models: "Phi-3 and 3.5 mini and medium, Phi-4, Phi-4-mini",
        gguf_pairing: Pairing::HalfSplit,
        fused: true,
        window: WindowRule::Always(None),
        ..LLAMA
    },
    Family {
        hf: "smollm3",
        gguf: "smollm3",
        models: "SmolLM3",
        window: WindowRule::WhenUsedUnrotated,
        rotation: RotationRule::AllButEvery(4),
        ..LLAMA
    },
    Family {
        hf: "gemma3_text",
        gguf: "gemma3",
        models: "Gemma 3 (text)",
        gguf_pairing: Pairing::HalfSplit,
        qk_norm: true,
        post_norms: true,
        hf_norm_offset: 1.0,
        scaled_embedding: true,
        activation: Activation::GeluTanh,
        default_head_dim: Some(256),
        window: WindowRule::AllButEvery(6),
        rotation: RotationRule::LocalInWindow(LayerBases { theta: 1e6, local_theta: 1e4 }),
        ..LLAMA
    },
];

/// The row of a name; `key` says which of the two names it is.
///
/// # Errors
/// [`ModelError::Architecture`] with the names that are known.
pub(super) fn find(name: &str, key: fn(&Family) -> &'static str) -> Result<&'static Family, ModelError> {
    FAMILIES.iter().find(|family| key(family) == name).ok_or_else(|| {
        let mut supported: Vec<&str> = FAMILIES.iter().map(key).collect();
        supported.dedup();
        let experts = ["moe", "mixtral", "deepseek", "gpt-oss", "gpt_oss"];
        let reason = match experts.iter().any(|word| name.contains(word)) {
            true => " (mixtures of experts are not)",
            false => "",
        };
        let supported = format!("{}{reason}", supported.join(", "));
        ModelError::Architecture { name: name.to_string(), supported }
    })
}

/// A family in words, for the documentation.
#[derive(Debug, Clone)]
pub struct Supported {
    pub models: &'static str,
    /// `general.architecture` of GGUF files.
    pub gguf: &'static str,
    /// `model_type` of `config.json`.
    pub hf: &'static str,
    pub pairing: &'static str,
    pub window: &'static str,
    pub rotation: String,
    pub also: String,
}

/// Every supported family.
pub fn supported() -> Vec<Supported> {
    FAMILIES.iter().map(Supported::of).collect()
}

impl Supported {
    fn of(family: &Family) -> Self {
        let window = match family.window {
            WindowRule::Never => "none",
            WindowRule::Always(_) => "all layers, if the checkpoint says so",
            WindowRule::WhenUsed | WindowRule::WhenUsedUnrotated => "some layers, if the checkpoint says so",
            WindowRule::AllButEvery(_) => "most layers",
        };
        let rotation = match family.rotation {
            RotationRule::Every => "all layers".to_string(),
            RotationRule::AllButEvery(period) => format!("all but every {period}th layer"),
            RotationRule::LocalInWindow(bases) => {
                format!("two bases: {} with a window, {} without", bases.local_theta, bases.theta)
            }
        };
        let parts = [
            (family.biases == Biases::Qkv, "q, k and v biases"),
            (family.qk_norm, "norms over queries and keys"),
            (family.fused, "q, k, v and gate, up in one matrix each"),
            (family.post_norms, "norms after attention and MLP"),
            (family.scaled_embedding, "scaled embedding"),
            (family.activation == Activation::GeluTanh, "GeGLU"),
        ];
        let also: Vec<&str> = parts.iter().filter(|(there, _)| *there).map(|(_, text)| *text).collect();
        Self {
            models: family.models,
            gguf: family.gguf,
            hf: family.hf,
            pairing: match family.gguf_pairing {
                Pairing::Adjacent => "adjacent",
                Pairing::HalfSplit => "halves",
            },
            window,
            rotation,
            also: also.join(", "),
        }
    }
}
