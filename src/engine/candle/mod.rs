//! The portable engine: plain tensor operations on candle, any device, computed in f32.
//!
//! It is the oracle that faster engines are tested against: each operation is written as its formula.

mod attention;
mod device;
mod head;
mod statistics;
#[cfg(test)]
mod tests;
mod weights;
mod workspace;

use std::ops::Range;

use candle_core::{D, DType, Device, Tensor};
use rayon::prelude::*;

use self::attention::{attention, rotate};
pub use self::device::DeviceName;
use self::statistics::statistics;
use self::weights::{Layer, Linear, load_norm};
pub use self::weights::{WeightFormat, keeps_packed};
pub use self::workspace::Workspace;
use super::probe::{AttentionProbe, AttentionRows};
use super::{Activation, AttentionView, Engine, EngineError, KeyState, KvType, ModelShape, ModelSource};
use crate::rope::Table;

/// Model weights on a candle device.
pub struct CandleEngine {
    shape: ModelShape,
    device: Device,
    format: WeightFormat,
    embedding: Linear,
    layers: Vec<Layer>,
    norm: Tensor,
    /// `None`: tied to the embedding.
    head: Option<Linear>,
}

/// Queries, keys and values of a chunk.
pub struct Heads {
    /// `[n_heads, tokens, head_dim]`
    q: Tensor,
    /// `[n_kv_heads, tokens, head_dim]`
    k: Tensor,
    /// `[n_kv_heads, tokens, head_dim]`
    v: Tensor,
}

/// Keys and values of every layer: `[n_kv_heads, capacity, head_dim]` each.
pub struct Cache {
    capacity: usize,
    layers: Vec<(Tensor, Tensor)>,
}

/// Cosines and sines: `[positions, rotary_dim / 2]` each.
pub struct Rotation {
    cos: Tensor,
    sin: Tensor,
}

impl CandleEngine {
    /// Copies the weights of `source` to `device`.
    ///
    /// # Errors
    /// A tensor whose shape differs from what `shape` asks for, or a failing device.
    pub fn load(
        shape: ModelShape,
        source: &ModelSource,
        format: WeightFormat,
        device: Device,
    ) -> Result<Self, EngineError> {
        let layers = source
            .layers
            .par_iter()
            .map(|layer| Layer::load(layer, &shape, format, &device))
            .collect::<Result<Vec<_>, _>>()?;
        let table = (shape.vocab_size, shape.hidden_size);
        let head =
            source.head.as_ref().map(|head| Linear::load_plain(head, table, format, &device)).transpose()?;
        Ok(Self {
            embedding: Linear::load_plain(&source.embedding, table, format, &device)?,
            norm: load_norm(&source.norm, shape.hidden_size, shape.norm_offset, &device)?,
            layers,
            head,
            shape,
            device,
            format,
        })
    }

    fn rms_norm(&self, x: &Tensor, weight: &Tensor) -> Result<Tensor, EngineError> {
        let eps = self.shape.rms_norm_eps as f32;
        Ok(candle_nn::ops::rms_norm(&x.contiguous()?, weight, eps)?)
    }

    /// All keys that the chunk sees, in f32: `[n_kv_heads, start + tokens, head_dim]`.
    fn rotated_keys(&self, view: &AttentionView<'_, Self>) -> Result<Tensor, EngineError> {
        let end = view.start + view.heads.q.dim(1)?;
        let k = view.cache.layers[view.layer].0.narrow(1, 0, end)?.to_dtype(DType::F32)?;
        match view.key_rotation {
            Some(rotation) => rotate(&k.contiguous()?, rotation, &self.shape),
            None => Ok(k),
        }
    }

    /// hidden + added, the latter normed where `norm` is given: `[tokens, hidden]`
    fn add_normed(
        &self,
        hidden: Tensor,
        added: Tensor,
        norm: Option<&Tensor>,
    ) -> Result<Tensor, EngineError> {
        let added = match norm {
            Some(norm) => self.rms_norm(&added, norm)?,
            None => added,
        };
        Ok((hidden + added)?)
    }

    /// x: `[tokens, n * head_dim]` -> `[n, tokens, head_dim]`
    fn split_heads(&self, x: Tensor, n: usize) -> Result<Tensor, EngineError> {
        let tokens = x.dim(0)?;
        let heads = x.reshape((tokens, n, self.shape.head_dim))?;
        Ok(heads.transpose(0, 1)?.contiguous()?)
    }
}

fn dtype(kv_type: KvType) -> Result<DType, EngineError> {
    match kv_type {
        KvType::F32 => Ok(DType::F32),
        KvType::F16 => Ok(DType::F16),
        KvType::BF16 => Ok(DType::BF16),
        KvType::Q16 | KvType::Q8_0 => Err(EngineError::KvType(kv_type)),
    }
}

impl Engine for CandleEngine {
    type Hidden = Tensor;
    type Heads = Heads;
    type Cache = Cache;
    type Rotation = Rotation;

    fn describe(&self) -> String {
        let device = match &self.device {
            Device::Cpu => "cpu",
            Device::Cuda(_) => "cuda",
            Device::Metal(_) => "metal",
        };
        let weights = match self.format {
            WeightFormat::Unpacked => "f32",
            WeightFormat::Packed => "as stored",
        };
        format!("candle, {device}, weights {weights}")
    }

    fn new_cache(&self, capacity: usize, kv_type: KvType) -> Result<Cache, EngineError> {
        let shape = (self.shape.n_kv_heads, capacity, self.shape.head_dim);
        let dtype = dtype(kv_type)?;
        let zeros = || Tensor::zeros(shape, dtype, &self.device);
        let layers = (0..self.shape.n_layers())
            .map(|_| Ok((zeros()?, zeros()?)))
            .collect::<Result<_, EngineError>>()?;
        Ok(Cache { capacity, layers })
    }

    fn rotation(&self, table: &Table) -> Result<Rotation, EngineError> {
        let shape = (table.positions().len(), table.pairs());
        Ok(Rotation {
            cos: Tensor::from_slice(table.cos(), shape, &self.device)?,
            sin: Tensor::from_slice(table.sin(), shape, &self.device)?,
        })
    }

    fn embed(&self, tokens: &[u32]) -> Result<Tensor, EngineError> {
        let ids = Tensor::from_slice(tokens, tokens.len(), &self.device)?;
        let rows = self.embedding.rows(&ids)?;
        Ok((rows * f64::from(self.shape.embedding_scale))?)
    }

    fn project_qkv(&self, layer: usize, hidden: &Tensor) -> Result<Heads, EngineError> {
        let weights = &self.layers[layer];
        let x = self.rms_norm(hidden, &weights.attention_norm)?;
        let (n_heads, n_kv_heads) = (self.shape.n_heads, self.shape.n_kv_heads);
        let mut q = self.split_heads(weights.q.forward(&x)?, n_heads)?;
        let mut k = self.split_heads(weights.k.forward(&x)?, n_kv_heads)?;
        let v = self.split_heads(weights.v.forward(&x)?, n_kv_heads)?;
        if let Some(norm) = &weights.q_norm {
            q = self.rms_norm(&q, norm)?;
        }
        if let Some(norm) = &weights.k_norm {
            k = self.rms_norm(&k, norm)?;
        }
        Ok(Heads { q, k, v })
    }

    fn rotate_append(
        &self,
        layer: usize,
        heads: &mut Heads,
        rotation: Option<&Rotation>,
        cache: &mut Cache,
        start: usize,
        keys: KeyState,
    ) -> Result<(), EngineError> {
        let wanted = start + heads.k.dim(1)?;
        if wanted > cache.capacity {
            let capacity = cache.capacity;
            return Err(EngineError::CacheFull { capacity, wanted });
        }
        if let Some(rotation) = rotation {
            heads.q = rotate(&heads.q, rotation, &self.shape)?;
            if keys == KeyState::Rotated {
                heads.k = rotate(&heads.k, rotation, &self.shape)?;
            }
        }
        let (k, v) = &cache.layers[layer];
        k.slice_set(&heads.k.to_dtype(k.dtype())?, 1, start)?;
        v.slice_set(&heads.v.to_dtype(v.dtype())?, 1, start)?;
        Ok(())
    }

    fn keep(&self, tokens: Range<usize>, heads: &mut Heads, hidden: &mut Tensor) -> Result<(), EngineError> {
        let keep = |tensor: &Tensor, dim: usize| tensor.narrow(dim, tokens.start, tokens.len());
        let Heads { q, k, v } = heads;
        (*q, *k, *v, *hidden) = (keep(q, 1)?, keep(k, 1)?, keep(v, 1)?, keep(hidden, 0)?);
        Ok(())
    }

    fn attend(
        &self,
        layer: usize,
        heads: Heads,
        hidden: Tensor,
        cache: &Cache,
        start: usize,
        key_rotation: Option<&Rotation>,
    ) -> Result<Tensor, EngineError> {
        let view = AttentionView { layer, heads: &heads, cache, start, key_rotation };
        let k = self.rotated_keys(&view)?;
        let v = cache.layers[layer].1.narrow(1, 0, k.dim(1)?)?.to_dtype(DType::F32)?;
        let q = (heads.q * f64::from(self.shape.attention_scale))?;
        let mixed = attention(&q, &k, &v, start, self.shape.layers[layer].sliding_window)?;
        let weights = &self.layers[layer];
        self.add_normed(hidden, weights.o.forward(&mixed)?, weights.post_attention_norm.as_ref())
    }

    fn attention_rows(
        &self,
        view: &AttentionView<'_, Self>,
        queries: Range<usize>,
        probe: &AttentionProbe,
    ) -> Result<AttentionRows, EngineError> {
        let k = self.rotated_keys(view)?;
        let q = (&view.heads.q * f64::from(self.shape.attention_scale))?;
        let window = self.shape.layers[view.layer].sliding_window;
        statistics(&q, &k, (view.start, window), queries, probe)
    }

    fn mlp(&self, layer: usize, hidden: Tensor) -> Result<Tensor, EngineError> {
        let weights = &self.layers[layer];
        let x = self.rms_norm(&hidden, &weights.mlp_norm)?;
        let gate = weights.gate.forward(&x)?;
        let gate = match self.shape.activation {
            Activation::Silu => gate.silu()?,
            Activation::GeluTanh => gate.gelu()?,
        };
        let inner = (gate * weights.up.forward(&x)?)?;
        self.add_normed(hidden, weights.down.forward(&inner)?, weights.post_mlp_norm.as_ref())
    }

    fn logits(&self, hidden: &Tensor) -> Result<Vec<f32>, EngineError> {
        Ok(self.head_logits(hidden)?.flatten_all()?.to_vec1()?)
    }

    fn log_probs(&self, hidden: &Tensor, targets: &[u32]) -> Result<Vec<f32>, EngineError> {
        let mut all = Vec::with_capacity(targets.len());
        for (slice, targets) in targets.chunks(head::ROWS_PER_SLICE).enumerate() {
            let rows = hidden.narrow(0, slice * head::ROWS_PER_SLICE, targets.len())?;
            let logits = self.head_logits(&rows)?;
            let targets = Tensor::from_slice(targets, (targets.len(), 1), &self.device)?;
            let chosen = logits.gather(&targets, D::Minus1)?.squeeze(D::Minus1)?;
            let total = logits.log_sum_exp(D::Minus1)?;
            all.extend((chosen - total)?.to_vec1::<f32>()?);
        }
        Ok(all)
    }
}
