//! The configuration of a Hugging Face folder.

use serde_json::{Map, Value};

use super::families::{Family, RotationRule, find};
use super::gguf::believed_layers;
use super::{ModelConfig, embedding_scale, layers, refuse, split_evenly};
use crate::checkpoint::config::HfConfig;
use crate::checkpoint::rope::{HeadLayout, RopeDeclaration, from_hf, from_hf_layered};
use crate::engine::Activation;
use crate::model::ModelError;
use crate::rope::Pairing;

/// The configuration that a `config.json` describes.
///
/// # Errors
/// Unknown architectures and features by name, missing keys.
pub(super) fn read(config: &HfConfig) -> Result<ModelConfig, ModelError> {
    let required = |key: &str| {
        let value = config.usize(key)?;
        value.ok_or_else(|| ModelError::MissingKey(key.to_string()))
    };
    let name = config.str("model_type")?;
    let name = name.ok_or_else(|| ModelError::MissingKey("model_type".to_string()))?;
    let family = find(name, |family| family.hf)?;
    refuse_unknown_features(config, family)?;
    let hidden_size = required("hidden_size")?;
    let n_heads = required("num_attention_heads")?;
    let head_dim = match (config.usize("head_dim")?, family.default_head_dim) {
        (Some(head_dim), _) | (None, Some(head_dim)) => head_dim,
        (None, None) => split_evenly(hidden_size, n_heads)?,
    };
    let n_layers = believed_layers("num_hidden_layers", required("num_hidden_layers")?)?;
    let per_head = config.f64("query_pre_attn_scalar")?.unwrap_or(head_dim as f64);
    let layout = HeadLayout { head_dim, pairing: Pairing::HalfSplit };
    Ok(ModelConfig {
        architecture: name.to_string(),
        hidden_size,
        intermediate_size: required("intermediate_size")?,
        vocab_size: required("vocab_size")?,
        layers: layers::from_hf(config, family, n_layers)?,
        n_heads,
        n_kv_heads: config.usize("num_key_value_heads")?.unwrap_or(n_heads),
        head_dim,
        // The default of every supported family in transformers.
        rms_norm_eps: config.f64("rms_norm_eps")?.unwrap_or(1e-6),
        norm_offset: family.hf_norm_offset,
        embedding_scale: embedding_scale(family, hidden_size),
        attention_scale: (1.0 / per_head.sqrt()) as f32,
        activation: family.activation,
        biases: family.biases,
        qk_norm: family.qk_norm,
        fused: family.fused,
        post_norms: family.post_norms,
        tied_flag: config.bool("tie_word_embeddings")?,
        rope: read_rope(config.map(), layout, family)?,
    })
}

/// Keys that change the arithmetic in a way the decoder does not follow.
fn refuse_unknown_features(config: &HfConfig, family: &Family) -> Result<(), ModelError> {
    let (names, reason): (&[&str], _) = match family.activation {
        Activation::Silu => (&["silu", "swish"], "only `silu` is supported in this family"),
        Activation::GeluTanh => {
            (&["gelu_pytorch_tanh"], "only `gelu_pytorch_tanh` is supported in this family")
        }
    };
    // Configs of Gemma carry a `hidden_act` of earlier versions, which nothing reads.
    let key = if config.get("hidden_activation").is_some() { "hidden_activation" } else { "hidden_act" };
    refuse(key, config.str(key)?.filter(|name| !names.contains(name)), reason)?;
    for key in ["attn_logit_softcapping", "final_logit_softcapping"] {
        refuse(key, config.f64(key)?, "logits are not capped here")?;
    }
    let key = "use_bidirectional_attention";
    refuse(key, config.bool(key)?.filter(|both| *both), "attention is causal here")?;
    let quantisation = config.map().get("quantization_config").filter(|v| !v.is_null());
    let method = quantisation.map(|config| config.get("quant_method").unwrap_or(config));
    // Tensors of any other kind than 8-bit floats are refused by their type or as unused.
    let method = method.filter(|method| !["fp8", "compressed-tensors"].iter().any(|known| *method == known));
    refuse(
        "quantization_config",
        method,
        "of quantised safetensors only 8-bit floats are read; take the unquantised or the GGUF release",
    )?;
    for key in ["num_local_experts", "num_experts", "n_routed_experts"] {
        let experts = config.usize(key)?.filter(|&n| n > 1);
        refuse(key, experts, "mixtures of experts are not supported")?;
    }
    Ok(())
}

/// The rope keys of a config, as the family spells them.
pub(super) fn read_rope(
    config: &Map<String, Value>,
    layout: HeadLayout,
    family: &Family,
) -> Result<RopeDeclaration, ModelError> {
    Ok(match family.rotation {
        RotationRule::LocalInWindow(bases) => from_hf_layered(config, layout, bases)?,
        _ => from_hf(config, layout)?,
    })
}
