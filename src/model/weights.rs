//! Which tensor of a checkpoint plays which part in the decoder.

use std::collections::HashSet;

use crate::checkpoint::tensor::TensorView;
use crate::checkpoint::{Checkpoint, Content};
use crate::engine::{LayerSource, LinearSource, ModelSource};

use super::config::Biases;
use super::{ModelConfig, ModelError};

/// Divisors of the rotary frequencies in GGUF files: read with the rotary settings, not with the weights.
pub const ROPE_FREQS: &str = "rope_freqs.weight";
pub const ROPE_FACTORS_LONG: &str = "rope_factors_long.weight";
pub const ROPE_FACTORS_SHORT: &str = "rope_factors_short.weight";

/// Tensor names of one file format; layer tensors follow `layer_prefix`, the layer's number and a dot.
struct Names {
    embedding: &'static str,
    norm: &'static str,
    head: &'static str,
    layer_prefix: &'static str,
    attention_norm: &'static str,
    q: &'static str,
    k: &'static str,
    v: &'static str,
    q_norm: &'static str,
    k_norm: &'static str,
    o: &'static str,
    mlp_norm: &'static str,
    gate: &'static str,
    up: &'static str,
    down: &'static str,
}

/// Source: `gguf-py/gguf/constants.py` of llama.cpp.
const GGUF: Names = Names {
    embedding: "token_embd",
    norm: "output_norm",
    head: "output",
    layer_prefix: "blk.",
    attention_norm: "attn_norm",
    q: "attn_q",
    k: "attn_k",
    v: "attn_v",
    q_norm: "attn_q_norm",
    k_norm: "attn_k_norm",
    o: "attn_output",
    mlp_norm: "ffn_norm",
    gate: "ffn_gate",
    up: "ffn_up",
    down: "ffn_down",
};

/// Source: module names of transformers' Llama, Mistral, Qwen2 and Qwen3.
const HF: Names = Names {
    embedding: "model.embed_tokens",
    norm: "model.norm",
    head: "lm_head",
    layer_prefix: "model.layers.",
    attention_norm: "input_layernorm",
    q: "self_attn.q_proj",
    k: "self_attn.k_proj",
    v: "self_attn.v_proj",
    q_norm: "self_attn.q_norm",
    k_norm: "self_attn.k_norm",
    o: "self_attn.o_proj",
    mlp_norm: "post_attention_layernorm",
    gate: "mlp.gate_proj",
    up: "mlp.up_proj",
    down: "mlp.down_proj",
};

/// All weights of `checkpoint`, and warnings about oddities that were resolved.
///
/// # Errors
/// A missing tensor by name; tensors that nothing uses (the checkpoint is then not what its metadata says).
pub fn assemble<'a>(
    checkpoint: &'a Checkpoint,
    config: &ModelConfig,
) -> Result<(ModelSource<'a>, Vec<String>), ModelError> {
    let names = match checkpoint.content() {
        Content::Gguf(_) => GGUF,
        Content::Safetensors(_) => HF,
    };
    let mut assembly = Assembly { checkpoint, config, names, used: HashSet::new(), warnings: Vec::new() };
    let source = assembly.model()?;
    assembly.refuse_unused()?;
    Ok((source, assembly.warnings))
}

struct Assembly<'a, 'c> {
    checkpoint: &'a Checkpoint,
    config: &'c ModelConfig,
    names: Names,
    used: HashSet<String>,
    warnings: Vec<String>,
}

impl<'a> Assembly<'a, '_> {
    fn optional(&mut self, name: String) -> Option<TensorView<'a>> {
        let view = self.checkpoint.tensor(&name);
        if view.is_some() {
            self.used.insert(name);
        }
        view
    }

    fn required(&mut self, name: String) -> Result<TensorView<'a>, ModelError> {
        let view = self.optional(name.clone());
        view.ok_or(ModelError::MissingTensor(name))
    }

    fn weight(&mut self, name: &str) -> Result<TensorView<'a>, ModelError> {
        self.required(format!("{name}.weight"))
    }

    /// A matrix with the bias that is stored beside it, if any.
    fn linear(&mut self, name: &str) -> Result<LinearSource<'a>, ModelError> {
        Ok(LinearSource { weight: self.weight(name)?, bias: self.optional(format!("{name}.bias")) })
    }

    fn model(&mut self) -> Result<ModelSource<'a>, ModelError> {
        let embedding = self.weight(self.names.embedding)?;
        let layers = (0..self.config.n_layers).map(|layer| self.layer(layer)).collect::<Result<_, _>>()?;
        let norm = self.weight(self.names.norm)?;
        let head = self.head(&embedding);
        Ok(ModelSource { embedding, layers, norm, head })
    }

    fn layer(&mut self, layer: usize) -> Result<LayerSource<'a>, ModelError> {
        let name = |part: &str| format!("{}{layer}.{part}", self.names.layer_prefix);
        let [attention_norm, q, k, v] =
            [self.names.attention_norm, self.names.q, self.names.k, self.names.v].map(name);
        let [q_norm, k_norm, o, mlp_norm] =
            [self.names.q_norm, self.names.k_norm, self.names.o, self.names.mlp_norm].map(name);
        let [gate, up, down] = [self.names.gate, self.names.up, self.names.down].map(name);
        let qk_norm = self.config.qk_norm;
        let source = LayerSource {
            attention_norm: self.weight(&attention_norm)?,
            q: self.linear(&q)?,
            k: self.linear(&k)?,
            v: self.linear(&v)?,
            q_norm: qk_norm.then(|| self.weight(&q_norm)).transpose()?,
            k_norm: qk_norm.then(|| self.weight(&k_norm)).transpose()?,
            o: self.linear(&o)?,
            mlp_norm: self.weight(&mlp_norm)?,
            gate: self.linear(&gate)?,
            up: self.linear(&up)?,
            down: self.linear(&down)?,
        };
        self.check_biases(&source)?;
        Ok(source)
    }

    /// A family with biases must have them; elsewhere q, k and v have them together or not at all.
    fn check_biases(&self, source: &LayerSource) -> Result<(), ModelError> {
        let needed = self.config.biases == Biases::Qkv;
        let stored = [&source.q, &source.k, &source.v];
        let any = needed || stored.iter().any(|linear| linear.bias.is_some());
        match stored.iter().find(|linear| any && linear.bias.is_none()) {
            None => Ok(()),
            Some(linear) => {
                let name = linear.weight.name.trim_end_matches(".weight");
                Err(ModelError::MissingTensor(format!("{name}.bias")))
            }
        }
    }

    /// Decided by what is stored, then by the flag; a stored head that differs from a tied embedding is not used,
    /// as in transformers, and said.
    fn head(&mut self, embedding: &TensorView<'a>) -> Option<TensorView<'a>> {
        let name = format!("{}.weight", self.names.head);
        let Some(weight) = self.optional(name.clone()) else {
            if self.config.tied_flag == Some(false) {
                self.warnings.push(format!(
                    "`tie_word_embeddings` is false but `{name}` is missing: the embedding is used as the head"
                ));
            }
            return None;
        };
        if weight.dtype == embedding.dtype && weight.bytes == embedding.bytes {
            return None;
        }
        if self.config.tied_flag == Some(true) {
            self.warnings.push(format!(
                "`tie_word_embeddings` is true but `{name}` differs from the embedding: the embedding is used, as \
                 transformers does"
            ));
            return None;
        }
        Some(weight)
    }

    fn refuse_unused(&self) -> Result<(), ModelError> {
        let is_weight = |name: &str| {
            !matches!(name, ROPE_FREQS | ROPE_FACTORS_LONG | ROPE_FACTORS_SHORT)
                && !name.ends_with("rotary_emb.inv_freq")
        };
        let mut unused = self.checkpoint.tensor_names().into_iter();
        let mut unused = unused.by_ref().filter(|name| is_weight(name) && !self.used.contains(*name));
        match unused.next() {
            None => Ok(()),
            Some(first) => {
                Err(ModelError::UnusedTensors { count: 1 + unused.count(), first: first.to_string() })
            }
        }
    }
}
