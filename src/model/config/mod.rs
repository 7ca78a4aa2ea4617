//! What differs between architectures: one row a family, read from GGUF metadata or from `config.json`.

mod families;
mod gguf;
mod hf;
mod layers;

use crate::checkpoint::config::HfConfig;
use crate::checkpoint::rope::{HeadLayout, RopeDeclaration};
use crate::checkpoint::{Checkpoint, Content};
use crate::engine::{Activation, LayerShape, ModelShape};
use crate::rope::RopeSpec;

use super::ModelError;
pub use families::{Biases, Supported, supported};
use families::{FAMILIES, Family};

/// Largest number of heads, lanes or tokens of a vocabulary: far above any model, low enough to multiply.
const MAX_SIZE: usize = 1 << 24;

/// Everything in which models differ, apart from weights.
#[derive(Debug, Clone)]
pub struct ModelConfig {
    pub architecture: String,
    pub hidden_size: usize,
    pub intermediate_size: usize,
    pub vocab_size: usize,
    /// One entry a layer.
    pub layers: Vec<LayerShape>,
    pub n_heads: usize,
    pub n_kv_heads: usize,
    pub head_dim: usize,
    pub rms_norm_eps: f64,
    /// Added to every stored norm weight.
    pub norm_offset: f32,
    /// What rows of the embedding are multiplied by.
    pub embedding_scale: f32,
    /// What products of queries and keys are multiplied by.
    pub attention_scale: f32,
    pub activation: Activation,
    pub biases: Biases,
    pub qk_norm: bool,
    /// q, k and v are stored as the rows of one matrix, gate and up of another.
    pub fused: bool,
    /// Whether what attention and MLP add to the residual goes through a norm.
    pub post_norms: bool,
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
                let mut config = gguf::read(checkpoint, file.metadata())?;
                if let Some(beside) = checkpoint.config() {
                    config.compare_rope(beside)?;
                }
                config
            }
            Content::Safetensors(_) => match checkpoint.config() {
                Some(config) => hf::read(config)?,
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
            layers: self.layers.clone(),
            n_heads: self.n_heads,
            n_kv_heads: self.n_kv_heads,
            head_dim: self.head_dim,
            rotary_dim: rope.rotary_dim,
            pairing: rope.pairing,
            rms_norm_eps: self.rms_norm_eps,
            norm_offset: self.norm_offset,
            embedding_scale: self.embedding_scale,
            attention_scale: self.attention_scale,
            activation: self.activation,
        }
    }

    pub fn n_layers(&self) -> usize {
        self.layers.len()
    }

    fn family(&self) -> Result<&'static Family, ModelError> {
        FAMILIES
            .iter()
            .find(|family| [family.gguf, family.hf].contains(&self.architecture.as_str()))
            .ok_or_else(|| ModelError::MissingKey("architecture".to_string()))
    }

    /// Notes where a `config.json` given beside a GGUF file declares another rotary embedding than the file:
    /// converters lose settings, and the file is what runs.
    fn compare_rope(&mut self, config: &HfConfig) -> Result<(), ModelError> {
        let layout = HeadLayout { head_dim: self.head_dim, pairing: self.rope.pairing };
        let other = hf::read_rope(config.map(), layout, self.family()?)?;
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
            ("layers", self.n_layers()),
            ("attention heads", self.n_heads),
            ("key/value heads", self.n_kv_heads),
            ("head dimension", self.head_dim),
        ];
        if let Some((name, _)) = sizes.iter().find(|(_, size)| *size == 0) {
            return Err(ModelError::Inconsistent(format!("{name} is 0")));
        }
        if let Some((name, size)) = sizes.iter().find(|(_, size)| *size > MAX_SIZE) {
            return Err(ModelError::Inconsistent(format!("{name} is {size}, more than {MAX_SIZE}")));
        }
        if !self.n_heads.is_multiple_of(self.n_kv_heads) {
            return Err(ModelError::Inconsistent(format!(
                "{} attention heads are not a multiple of {} key/value heads",
                self.n_heads, self.n_kv_heads
            )));
        }
        if !(self.attention_scale > 0.0 && self.attention_scale.is_finite()) {
            return Err(ModelError::Inconsistent(format!(
                "the scale of scores is `{}`",
                self.attention_scale
            )));
        }
        if self.rms_norm_eps <= 0.0 {
            return Err(ModelError::Inconsistent(format!("the RMSNorm epsilon is `{}`", self.rms_norm_eps)));
        }
        Ok(())
    }
}

/// The factor on rows of the embedding.
fn embedding_scale(family: &Family, hidden_size: usize) -> f32 {
    if family.scaled_embedding { (hidden_size as f32).sqrt() } else { 1.0 }
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
