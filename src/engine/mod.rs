//! Who computes: the seam between the one decoder and the hardware.
//!
//! An [`Engine`] offers a handful of fused operations over its own representation of activations,
//! weights and cached keys. The decoder in [`crate::model`] is written once against it.
//! [`candle`] is the portable implementation and the oracle of every faster one.

pub mod candle;
pub mod cpu;
pub mod probe;
pub mod stages;

use std::ops::Range;

use self::probe::{AttentionProbe, AttentionRows};
use self::stages::{Peaks, StageTimes};
use crate::checkpoint::tensor::TensorView;
use crate::named::Named;
use crate::rope::{Pairing, Table};

/// Why an engine could not load or compute.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    #[error("tensor `{name}` has shape {found:?}, expected {expected:?}")]
    Shape { name: String, found: Vec<usize>, expected: Vec<usize> },
    #[error("device `{device}` is not usable: {reason}")]
    Device { device: String, reason: String },
    #[error("engine `candle` holds caches in f32, f16 or bf16, not in `{}`", .0.name())]
    KvType(KvType),
    #[error("cache is full: {capacity} tokens planned, {wanted} wanted")]
    CacheFull { capacity: usize, wanted: usize },
    #[error("candle: {0}")]
    Candle(#[from] candle_core::Error),
}

/// A matrix `[out, in]` and its optional bias `[out]`, as the checkpoint stores them.
pub struct LinearSource<'a> {
    pub weight: TensorView<'a>,
    pub bias: Option<TensorView<'a>>,
}

/// One decoder layer as the checkpoint stores it.
pub struct LayerSource<'a> {
    /// RMSNorm weight before attention: `[hidden]`.
    pub attention_norm: TensorView<'a>,
    pub q: LinearSource<'a>,
    pub k: LinearSource<'a>,
    pub v: LinearSource<'a>,
    /// RMSNorm weight over each query head: `[head_dim]`.
    pub q_norm: Option<TensorView<'a>>,
    /// RMSNorm weight over each key head: `[head_dim]`.
    pub k_norm: Option<TensorView<'a>>,
    pub o: LinearSource<'a>,
    /// RMSNorm weight over what attention adds to the residual: `[hidden]`.
    pub post_attention_norm: Option<TensorView<'a>>,
    /// RMSNorm weight before the MLP: `[hidden]`.
    pub mlp_norm: TensorView<'a>,
    pub gate: LinearSource<'a>,
    pub up: LinearSource<'a>,
    pub down: LinearSource<'a>,
    /// RMSNorm weight over what the MLP adds to the residual: `[hidden]`.
    pub post_mlp_norm: Option<TensorView<'a>>,
}

/// All weights of a model as the checkpoint stores them.
pub struct ModelSource<'a> {
    /// `[vocab, hidden]`
    pub embedding: TensorView<'a>,
    pub layers: Vec<LayerSource<'a>>,
    /// RMSNorm weight before the head: `[hidden]`.
    pub norm: TensorView<'a>,
    /// `[vocab, hidden]`; `None`: the head is the embedding (tied).
    pub head: Option<TensorView<'a>>,
}

/// The function that gates the MLP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activation {
    /// x / (1 + e^-x)
    Silu,
    /// x / (1 + e^-2u) with u = sqrt(2 / pi) (x + 0.044715 x^3): GELU, its error function replaced by a tanh.
    GeluTanh,
}

impl Named for Activation {
    const WHAT: &'static str = "activation";
    const ALL: &'static [Self] = &[Self::Silu, Self::GeluTanh];

    fn name(self) -> &'static str {
        match self {
            Activation::Silu => "silu",
            Activation::GeluTanh => "gelu (tanh)",
        }
    }
}

/// Which rotary table turns the queries and keys of a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LayerRotation {
    /// The model's rotary embedding, with its scaling.
    Global,
    /// The plain one of layers with a short window, which has a base of its own.
    Local,
    /// None: queries and keys stay as they are projected.
    Unrotated,
}

/// In what a layer differs from the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LayerShape {
    pub rotation: LayerRotation,
    /// Tokens a query sees, itself included; `None`: all before it.
    pub sliding_window: Option<usize>,
}

impl LayerShape {
    /// Rotated by the model's embedding, sees everything before it.
    pub const FULL: Self = Self { rotation: LayerRotation::Global, sliding_window: None };
}

/// What an engine must know of the model besides its weights.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelShape {
    pub hidden_size: usize,
    pub intermediate_size: usize,
    pub vocab_size: usize,
    /// One entry a layer.
    pub layers: Vec<LayerShape>,
    pub n_heads: usize,
    pub n_kv_heads: usize,
    pub head_dim: usize,
    /// Lanes of each head that rotate; the rest pass through.
    pub rotary_dim: usize,
    pub pairing: Pairing,
    pub rms_norm_eps: f64,
    /// Added to every stored norm weight: 1 where a checkpoint stores the difference from 1.
    pub norm_offset: f32,
    /// What rows of the embedding are multiplied by when they enter the first layer.
    pub embedding_scale: f32,
    /// What products of queries and keys are multiplied by.
    pub attention_scale: f32,
    pub activation: Activation,
}

impl ModelShape {
    pub fn n_layers(&self) -> usize {
        self.layers.len()
    }
}

/// Number format of cached keys and values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KvType {
    F32,
    F16,
    BF16,
    /// 16-bit integers, one f32 scale for each key and value of a head.
    Q16,
    /// 8-bit integers, one f32 scale for 32 lanes of a head.
    Q8_0,
}

impl Named for KvType {
    const WHAT: &'static str = "cache type";
    const ALL: &'static [Self] = &[Self::F32, Self::F16, Self::BF16, Self::Q16, Self::Q8_0];

    fn name(self) -> &'static str {
        match self {
            KvType::F32 => "f32",
            KvType::F16 => "f16",
            KvType::BF16 => "bf16",
            KvType::Q16 => "q16",
            KvType::Q8_0 => "q8_0",
        }
    }
}

/// Whether the cache holds keys after rotation (fixed frequencies) or before it
/// (frequencies that change with the length: keys are rotated each time they are read).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyState {
    Rotated,
    Unrotated,
}

/// What [`Engine::attend`] looks at: one chunk's queries over the cache of one layer.
pub struct AttentionView<'a, E: Engine> {
    pub layer: usize,
    /// Rotated queries of the chunk.
    pub heads: &'a E::Heads,
    /// Holds positions `0..start + tokens`.
    pub cache: &'a E::Cache,
    /// Position of the chunk's first token.
    pub start: usize,
    /// Covers these positions when the cache holds unrotated keys.
    pub key_rotation: Option<&'a E::Rotation>,
}

/// The fused operations that one decoder layer is made of.
///
/// `tokens` below is the number of tokens in the chunk being processed.
pub trait Engine: Sized {
    /// Activations `[tokens, hidden]`.
    type Hidden;
    /// Queries `[n_heads, tokens, head_dim]`, keys and values `[n_kv_heads, tokens, head_dim]`.
    type Heads;
    /// Keys and values of every layer for all tokens seen so far.
    type Cache;
    /// Cosines and sines `[positions, rotary_dim / 2]` in the engine's own form.
    type Rotation;

    /// `candle cpu`, ...: for reports.
    fn describe(&self) -> String;

    /// Where the time of all calls so far went; `None`: not kept.
    fn stage_times(&self) -> Option<StageTimes> {
        None
    }

    /// Measures what the machine can do at most with this engine's threads; `None`: not known.
    fn peaks(&self) -> Option<Peaks> {
        None
    }

    /// An empty cache for at most `capacity` tokens.
    fn new_cache(&self, capacity: usize, kv_type: KvType) -> Result<Self::Cache, EngineError>;

    fn rotation(&self, table: &Table) -> Result<Self::Rotation, EngineError>;

    /// Rows of the embedding, scaled: one per token id (each below `vocab_size`).
    fn embed(&self, tokens: &[u32]) -> Result<Self::Hidden, EngineError>;

    /// RMSNorm, q/k/v projections with biases, q/k norms.
    fn project_qkv(&self, layer: usize, hidden: &Self::Hidden) -> Result<Self::Heads, EngineError>;

    /// Rotates the queries, and the keys when `keys` is [`KeyState::Rotated`]; writes keys and values to
    /// the cache at positions `start..start + tokens`. Values are never rotated, and nothing is without a `rotation`.
    fn rotate_append(
        &self,
        layer: usize,
        heads: &mut Self::Heads,
        rotation: Option<&Self::Rotation>,
        cache: &mut Self::Cache,
        start: usize,
        keys: KeyState,
    ) -> Result<(), EngineError>;

    /// Leaves only `tokens` of a chunk whose keys and values are cached.
    fn keep(
        &self,
        tokens: Range<usize>,
        heads: &mut Self::Heads,
        hidden: &mut Self::Hidden,
    ) -> Result<(), EngineError>;

    /// Causal attention of the chunk's queries over positions `0..start + tokens` of the cache, then output
    /// projection, its norm where there is one, and residual. `key_rotation` covers those positions when the cache holds unrotated keys.
    fn attend(
        &self,
        layer: usize,
        heads: Self::Heads,
        hidden: Self::Hidden,
        cache: &Self::Cache,
        start: usize,
        key_rotation: Option<&Self::Rotation>,
    ) -> Result<Self::Hidden, EngineError>;

    /// Sums over the attention probabilities of the chunk's tokens `queries`, computed anew in f32 and in memory that does
    /// not grow with their number times the keys. The text must not exceed `probe.longest`.
    fn attention_rows(
        &self,
        view: &AttentionView<'_, Self>,
        queries: Range<usize>,
        probe: &AttentionProbe,
    ) -> Result<AttentionRows, EngineError>;

    /// RMSNorm, gated MLP, its norm where there is one, and residual.
    fn mlp(&self, layer: usize, hidden: Self::Hidden) -> Result<Self::Hidden, EngineError>;

    /// Final RMSNorm and head: `[tokens, vocab]`, row-major.
    fn logits(&self, hidden: &Self::Hidden) -> Result<Vec<f32>, EngineError>;

    /// Natural log-probability of `targets[i]` at token `i`, without keeping the logits.
    fn log_probs(&self, hidden: &Self::Hidden, targets: &[u32]) -> Result<Vec<f32>, EngineError>;
}
