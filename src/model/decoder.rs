//! The decoder: one forward pass for every architecture, over the fused operations of an [`Engine`].

use std::ops::Range;

use super::cancel::Cancel;
use super::observe::AttentionObserver;
use super::session::DecoderSession;
use super::{DynamicPolicy, LanguageModel, ModelConfig, ModelError, Session};
use crate::checkpoint::rope::RopeSettings;
use crate::engine::stages::{Peaks, StageTimes};
use crate::engine::{AttentionView, Engine, KeyState, KvType, LayerRotation};
use crate::rope::{Frequencies, RopeSpec, Table, frequencies};

/// How a decoder runs, apart from its weights and its rotary embedding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DecoderOptions {
    pub kv_type: KvType,
    /// Tokens that go through the layers together; at least 1.
    pub prefill_chunk: usize,
    pub dynamic: DynamicPolicy,
}

impl DecoderOptions {
    pub const DEFAULT_PREFILL_CHUNK: usize = 512;
}

impl Default for DecoderOptions {
    fn default() -> Self {
        Self {
            kv_type: KvType::F32,
            prefill_chunk: Self::DEFAULT_PREFILL_CHUNK,
            dynamic: DynamicPolicy::default(),
        }
    }
}

/// Angles per token of both kinds of rotating layers.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct LayerFrequencies {
    pub global: Frequencies,
    /// `None` where no layer has an embedding of its own.
    pub local: Option<Frequencies>,
}

impl LayerFrequencies {
    /// For a text of `length` tokens under `rope` in the layers that share the model's embedding.
    ///
    /// # Errors
    /// Frequencies that cannot be built.
    pub fn new(rope: &RopeSpec, local: Option<&RopeSpec>, length: usize) -> Result<Self, ModelError> {
        let local = local.map(|spec| frequencies(spec, length)).transpose()?;
        Ok(Self { global: frequencies(rope, length)?, local })
    }
}

/// A model: weights on an engine, an architecture and a rotary embedding.
pub struct Decoder<E: Engine> {
    pub(super) engine: E,
    pub(super) config: ModelConfig,
    pub(super) rope: RopeSettings,
    pub(super) options: DecoderOptions,
    pub(super) cancel: Option<Cancel>,
}

impl<E: Engine> Decoder<E> {
    pub fn new(engine: E, config: ModelConfig, rope: RopeSettings, options: DecoderOptions) -> Self {
        Self { engine, config, rope, options, cancel: None }
    }

    /// The same, stopping between chunks once `cancel` is set.
    pub fn cancelled_by(self, cancel: Option<Cancel>) -> Self {
        Self { cancel, ..self }
    }

    /// Whether keys cached under `rope` must stay unrotated because the frequencies may still change.
    pub(super) fn key_state(&self, rope: &RopeSpec) -> KeyState {
        let follows = self.options.dynamic == DynamicPolicy::Current;
        if follows && rope.depends_on_length() { KeyState::Unrotated } else { KeyState::Rotated }
    }

    /// One chunk through all layers: hidden states `[tokens, hidden]` before the final norm, of the wanted tokens, for
    /// which alone the last layer is computed once all keys and values are cached. `observer` sees the attention of
    /// each layer on the way.
    pub(super) fn forward(
        &self,
        chunk: &Chunk<'_, E>,
        cache: &mut E::Cache,
        mut observer: Option<&mut AttentionObserver<'_>>,
    ) -> Result<E::Hidden, ModelError> {
        let engine = &self.engine;
        let Chunk { tokens, start, ref wanted, frequencies, key_rotation } = *chunk;
        let rotation = |frequencies: &Frequencies| {
            engine.rotation(&Table::new(frequencies, start..start + tokens.len()))
        };
        let global = rotation(&frequencies.global)?;
        let local = frequencies.local.as_ref().map(rotation).transpose()?;
        let mut hidden = engine.embed(tokens)?;
        for (layer, shape) in self.config.layers.iter().enumerate() {
            let (rotation, key_rotation) = match shape.rotation {
                LayerRotation::Global => (Some(&global), key_rotation),
                LayerRotation::Local => (local.as_ref(), None),
                LayerRotation::Unrotated => (None, None),
            };
            let keys = if key_rotation.is_some() { KeyState::Unrotated } else { KeyState::Rotated };
            let mut heads = engine.project_qkv(layer, &hidden)?;
            engine.rotate_append(layer, &mut heads, rotation, cache, start, keys)?;
            if let Some(observer) = observer.as_deref_mut() {
                let view = AttentionView { layer, heads: &heads, cache, start, key_rotation };
                observer.look(engine, &view, tokens.len())?;
            }
            let mut first = start;
            if layer + 1 == self.config.layers.len() && wanted.len() < tokens.len() {
                if wanted.is_empty() {
                    break;
                }
                engine.keep(wanted.clone(), &mut heads, &mut hidden)?;
                first += wanted.start;
            }
            hidden = engine.attend(layer, heads, hidden, cache, first, key_rotation)?;
            hidden = engine.mlp(layer, hidden)?;
        }
        Ok(hidden)
    }
}

/// Tokens that go through the layers together.
pub(super) struct Chunk<'a, E: Engine> {
    pub tokens: &'a [u32],
    /// Position of the first one.
    pub start: usize,
    /// Those whose hidden states are asked for, counted from `start`.
    pub wanted: Range<usize>,
    pub frequencies: &'a LayerFrequencies,
    /// Covers `0..start + tokens` when the cache holds unrotated keys, `None` when it holds rotated ones.
    pub key_rotation: Option<&'a E::Rotation>,
}

impl<E: Engine> LanguageModel for Decoder<E> {
    fn config(&self) -> &ModelConfig {
        &self.config
    }

    fn rope(&self) -> &RopeSettings {
        &self.rope
    }

    fn engine(&self) -> String {
        self.engine.describe()
    }

    fn stage_times(&self) -> Option<StageTimes> {
        self.engine.stage_times()
    }

    fn peaks(&self) -> Option<Peaks> {
        self.engine.peaks()
    }

    fn session_with(
        &self,
        rope: &RopeSettings,
        planned_length: usize,
    ) -> Result<Box<dyn Session + '_>, ModelError> {
        Ok(Box::new(DecoderSession::new(self, &rope.spec, planned_length)?))
    }
}
