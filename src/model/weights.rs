//! Which tensor of a checkpoint plays which part in the decoder.

use std::collections::HashSet;

use crate::checkpoint::tensor::TensorView;
use crate::checkpoint::{Checkpoint, Content};
use crate::engine::{EngineError, LayerSource, LinearSource, ModelSource};

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
    /// Rows of q, k and v in one matrix.
    qkv: &'static str,
    q_norm: &'static str,
    k_norm: &'static str,
    o: &'static str,
    post_attention_norm: &'static str,
    mlp_norm: &'static str,
    gate: &'static str,
    up: &'static str,
    /// Rows of gate and up in one matrix.
    gate_up: &'static str,
    down: &'static str,
    post_mlp_norm: &'static str,
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
    qkv: "attn_qkv",
    q_norm: "attn_q_norm",
    k_norm: "attn_k_norm",
    o: "attn_output",
    post_attention_norm: "post_attention_norm",
    mlp_norm: "ffn_norm",
    gate: "ffn_gate",
    up: "ffn_up",
    gate_up: "ffn_up",
    down: "ffn_down",
    post_mlp_norm: "post_ffw_norm",
};

/// Source: module names of transformers' Llama, Mistral, Qwen2, Qwen3 and Phi-3.
const HF: Names = Names {
    embedding: "model.embed_tokens",
    norm: "model.norm",
    head: "lm_head",
    layer_prefix: "model.layers.",
    attention_norm: "input_layernorm",
    q: "self_attn.q_proj",
    k: "self_attn.k_proj",
    v: "self_attn.v_proj",
    qkv: "self_attn.qkv_proj",
    q_norm: "self_attn.q_norm",
    k_norm: "self_attn.k_norm",
    o: "self_attn.o_proj",
    post_attention_norm: "post_attention_layernorm",
    mlp_norm: "post_attention_layernorm",
    gate: "mlp.gate_proj",
    up: "mlp.up_proj",
    gate_up: "mlp.gate_up_proj",
    down: "mlp.down_proj",
    post_mlp_norm: "post_feedforward_layernorm",
};

/// Source: module names of transformers' Gemma 3, where the norm after attention is not the one before the MLP.
const HF_POST_NORMS: Names = Names { mlp_norm: "pre_feedforward_layernorm", ..HF };

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
        Content::Safetensors(_) if config.post_norms => HF_POST_NORMS,
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
        let layers = (0..self.config.n_layers()).map(|layer| self.layer(layer)).collect::<Result<_, _>>()?;
        let norm = self.weight(self.names.norm)?;
        let head = self.head(&embedding);
        Ok(ModelSource { embedding, layers, norm, head })
    }

    fn layer(&mut self, layer: usize) -> Result<LayerSource<'a>, ModelError> {
        let name = |part: &str| format!("{}{layer}.{part}", self.names.layer_prefix);
        let names = &self.names;
        let [attention_norm, q_norm, k_norm, mlp_norm] =
            [names.attention_norm, names.q_norm, names.k_norm, names.mlp_norm].map(name);
        let [post_attention_norm, post_mlp_norm] = [names.post_attention_norm, names.post_mlp_norm].map(name);
        let [o, down] = [names.o, names.down].map(name);
        let [q, k, v, qkv] = [names.q, names.k, names.v, names.qkv].map(name);
        let [gate, up, gate_up] = [names.gate, names.up, names.gate_up].map(name);
        let ModelConfig { qk_norm, post_norms, fused, head_dim, .. } = *self.config;
        let kv_rows = self.config.n_kv_heads * head_dim;
        let inner = self.config.intermediate_size;
        let ([q, k, v], [gate, up]) = if fused {
            let rows = [self.config.n_heads * head_dim, kv_rows, kv_rows];
            (self.split(&qkv, rows)?, self.split(&gate_up, [inner, inner])?)
        } else {
            ([self.linear(&q)?, self.linear(&k)?, self.linear(&v)?], [self.linear(&gate)?, self.linear(&up)?])
        };
        let source = LayerSource {
            attention_norm: self.weight(&attention_norm)?,
            q,
            k,
            v,
            q_norm: self.weight_if(qk_norm, &q_norm)?,
            k_norm: self.weight_if(qk_norm, &k_norm)?,
            o: self.linear(&o)?,
            post_attention_norm: self.weight_if(post_norms, &post_attention_norm)?,
            mlp_norm: self.weight(&mlp_norm)?,
            gate,
            up,
            down: self.linear(&down)?,
            post_mlp_norm: self.weight_if(post_norms, &post_mlp_norm)?,
        };
        self.check_biases(&source)?;
        Ok(source)
    }

    fn weight_if(&mut self, needed: bool, name: &str) -> Result<Option<TensorView<'a>>, ModelError> {
        needed.then(|| self.weight(name)).transpose()
    }

    /// Matrices, and their biases, that are stored one below the other: `rows` says how many rows each has.
    fn split<const N: usize>(
        &mut self,
        name: &str,
        rows: [usize; N],
    ) -> Result<[LinearSource<'a>; N], ModelError> {
        let joined = self.linear(name)?;
        let mut first = 0usize;
        let mut parts = rows.map(|n_rows| {
            let rows = first..first.saturating_add(n_rows);
            first = rows.end;
            let bias = joined.bias.as_ref().map(|bias| bias.rows(rows.clone()));
            (joined.weight.rows(rows), bias)
        });
        let (found, inputs) = (joined.weight.shape.clone(), joined.weight.shape.last().copied().unwrap_or(0));
        let complete = parts.iter().all(|(weight, bias)| weight.is_some() && !matches!(bias, Some(None)));
        if found.first() != Some(&first) || !complete {
            let (name, expected) = (joined.weight.name.to_string(), vec![first, inputs]);
            return Err(EngineError::Shape { name, found, expected }.into());
        }
        let sources = parts.each_mut().map(|(weight, bias)| {
            let weight = weight.take().expect("all parts are there");
            LinearSource { weight, bias: bias.take().flatten() }
        });
        Ok(sources)
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
