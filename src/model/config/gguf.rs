//! The configuration of a GGUF file.

use super::families::{Family, RotationRule, find};
use super::{ModelConfig, embedding_scale, layers, refuse, split_evenly};
use crate::checkpoint::Checkpoint;
use crate::checkpoint::gguf::Metadata;
use crate::checkpoint::rope::{HeadLayout, RopeTensors, from_gguf, from_gguf_layered};
use crate::model::ModelError;

/// The configuration that a GGUF file describes.
///
/// # Errors
/// Unknown architectures and features by name, missing keys.
pub(super) fn read(checkpoint: &Checkpoint, meta: &Metadata) -> Result<ModelConfig, ModelError> {
    let name = meta.architecture()?;
    let family = find(name, |family| family.gguf)?;
    let key = |suffix: &str| format!("{name}.{suffix}");
    let size = |suffix: &str| {
        let key = key(suffix);
        meta.usize(&key)?.ok_or(ModelError::MissingKey(key))
    };
    refuse_unknown_features(meta, name)?;
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
    let tensors = rope_tensors(checkpoint)?;
    let n_layers = believed_layers(&key("block_count"), size("block_count")?)?;
    let layout = HeadLayout { head_dim, pairing: family.gguf_pairing };
    Ok(ModelConfig {
        architecture: name.to_string(),
        hidden_size,
        intermediate_size: size("feed_forward_length")?,
        vocab_size: gguf_vocab_size(checkpoint)?,
        layers: layers::from_gguf(meta, family, n_layers)?,
        n_heads,
        n_kv_heads: meta.usize(&key("attention.head_count_kv"))?.unwrap_or(n_heads),
        head_dim,
        rms_norm_eps: meta.f64(&epsilon_key)?.ok_or(ModelError::MissingKey(epsilon_key))?,
        norm_offset: 0.0,
        embedding_scale: embedding_scale(family, hidden_size),
        attention_scale: attention_scale(family, n_layers, hidden_size, n_heads, head_dim),
        activation: family.activation,
        biases: family.biases,
        qk_norm: family.qk_norm,
        fused: family.fused,
        post_norms: family.post_norms,
        tied_flag: None,
        rope: match family.rotation {
            RotationRule::LocalInWindow(bases) => from_gguf_layered(meta, &tensors, layout, bases)?,
            _ => from_gguf(meta, &tensors, layout)?,
        },
    })
}

/// More layers than any model has.
const MAX_LAYERS: usize = 1 << 14;

/// `count`, which lists of that length are made for.
pub(super) fn believed_layers(key: &str, count: usize) -> Result<usize, ModelError> {
    refuse(key, Some(count).filter(|&count| count > MAX_LAYERS), "no model has so many layers")?;
    Ok(count)
}

/// Keys that change the arithmetic in a way the decoder does not follow.
fn refuse_unknown_features(meta: &Metadata, name: &str) -> Result<(), ModelError> {
    let key = format!("{name}.expert_count");
    refuse(&key, meta.usize(&key)?.filter(|&n| n > 0), "mixtures of experts are not supported")?;
    for suffix in ["attn_logit_softcapping", "final_logit_softcapping", "logit_scale"] {
        let key = format!("{name}.{suffix}");
        refuse(&key, meta.f64(&key)?.filter(|&x| x != 0.0), "logits are neither capped nor scaled here")?;
    }
    let key = format!("{name}.attention.causal");
    refuse(&key, meta.bool(&key)?.filter(|causal| !causal), "attention is causal here")
}

/// Files do not say what scores are multiplied by. As llama.cpp: 1 / sqrt(head_dim), except for the Gemma 3 of 62
/// layers, which was trained with the square root of hidden size over heads.
fn attention_scale(
    family: &Family,
    n_layers: usize,
    hidden_size: usize,
    n_heads: usize,
    head_dim: usize,
) -> f32 {
    let is_largest_gemma = family.post_norms && n_layers == 62;
    let per_head = if is_largest_gemma && n_heads > 0 { hidden_size / n_heads } else { head_dim };
    1.0 / (per_head as f32).sqrt()
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
        rope_freqs: read(crate::model::weights::ROPE_FREQS)?,
        factors_long: read(crate::model::weights::ROPE_FACTORS_LONG)?,
        factors_short: read(crate::model::weights::ROPE_FACTORS_SHORT)?,
    })
}
