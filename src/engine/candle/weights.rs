//! Checkpoint tensors as candle tensors.

use std::borrow::Cow;
use std::sync::Arc;

use candle_core::quantized::{GgmlDType, QMatMul, QStorage, QTensor};
use candle_core::{DType, Device, Module, Tensor};

use crate::checkpoint::tensor::{TensorType, TensorView};
use crate::engine::cpu::matrix::unpack_row;
use crate::engine::{EngineError, LayerSource, LinearSource, ModelShape};

/// How matrices are held in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WeightFormat {
    /// Everything as f32: exact and fast per token, four bytes a weight.
    Unpacked,
    /// As in the file. Long chunks unpack each matrix for the time of one product; short ones use
    /// candle's quantised product, which rounds the activations to 8 bits.
    Packed,
}

impl WeightFormat {
    /// Checkpoints whose weights fit into this many bytes as f32 are unpacked.
    pub const UNPACK_LIMIT_BYTES: u64 = 1 << 30;

    /// The format used for a model of `n_weights` elements.
    pub fn for_size(n_weights: u64) -> Self {
        if n_weights.saturating_mul(4) <= Self::UNPACK_LIMIT_BYTES {
            WeightFormat::Unpacked
        } else {
            WeightFormat::Packed
        }
    }
}

/// From this many rows on, unpacking a quantised matrix costs less than it saves.
const UNPACK_FROM_ROWS: usize = 32;

enum Matrix {
    F32(Tensor),
    /// f16 or bf16 as stored, widened for each product.
    Half(Tensor),
    Quantised(QMatMul, Arc<QTensor>),
}

/// A matrix `[out, in]` with an optional bias `[out]`.
pub struct Linear {
    weight: Matrix,
    bias: Option<Tensor>,
}

impl Linear {
    pub fn load(
        source: &LinearSource,
        (out, input): (usize, usize),
        format: WeightFormat,
        device: &Device,
    ) -> Result<Self, EngineError> {
        let weight = load_matrix(&source.weight, (out, input), format, device)?;
        let bias = source.bias.as_ref().map(|bias| load_vector(bias, out, device)).transpose()?;
        Ok(Self { weight, bias })
    }

    /// A matrix without bias.
    pub fn load_plain(
        weight: &TensorView,
        (out, input): (usize, usize),
        format: WeightFormat,
        device: &Device,
    ) -> Result<Self, EngineError> {
        let weight = load_matrix(weight, (out, input), format, device)?;
        Ok(Self { weight, bias: None })
    }

    /// x: `[rows, in]` f32 -> `[rows, out]` f32.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor, EngineError> {
        let product = match &self.weight {
            Matrix::F32(weight) => x.matmul(&weight.t()?)?,
            Matrix::Half(weight) => x.matmul(&weight.to_dtype(DType::F32)?.t()?)?,
            Matrix::Quantised(_, weight) if x.dim(0)? >= UNPACK_FROM_ROWS => {
                x.matmul(&weight.dequantize(x.device())?.t()?)?
            }
            Matrix::Quantised(product, _) => product.forward(x)?,
        };
        Ok(match &self.bias {
            Some(bias) => product.broadcast_add(bias)?,
            None => product,
        })
    }

    /// The rows of the matrix named by `ids`: `[ids.len(), in]` f32.
    pub fn rows(&self, ids: &Tensor) -> Result<Tensor, EngineError> {
        Ok(match &self.weight {
            Matrix::F32(weight) => weight.index_select(ids, 0)?,
            Matrix::Half(weight) => weight.index_select(ids, 0)?.to_dtype(DType::F32)?,
            Matrix::Quantised(_, weight) => weight.embedding(ids)?.to_dtype(DType::F32)?,
        })
    }
}

/// Weights of one decoder layer.
pub struct Layer {
    pub attention_norm: Tensor,
    pub q: Linear,
    pub k: Linear,
    pub v: Linear,
    pub q_norm: Option<Tensor>,
    pub k_norm: Option<Tensor>,
    pub o: Linear,
    pub post_attention_norm: Option<Tensor>,
    pub mlp_norm: Tensor,
    pub gate: Linear,
    pub up: Linear,
    pub down: Linear,
    pub post_mlp_norm: Option<Tensor>,
}

impl Layer {
    pub fn load(
        source: &LayerSource,
        shape: &ModelShape,
        format: WeightFormat,
        device: &Device,
    ) -> Result<Self, EngineError> {
        let hidden = shape.hidden_size;
        let heads = shape.n_heads * shape.head_dim;
        let kv_heads = shape.n_kv_heads * shape.head_dim;
        let inner = shape.intermediate_size;
        let linear = |source: &LinearSource, out, input| Linear::load(source, (out, input), format, device);
        let norm = |view: &TensorView, len| load_norm(view, len, shape.norm_offset, device);
        let optional = |view: &Option<TensorView>, len| view.as_ref().map(|view| norm(view, len)).transpose();
        Ok(Self {
            attention_norm: norm(&source.attention_norm, hidden)?,
            q: linear(&source.q, heads, hidden)?,
            k: linear(&source.k, kv_heads, hidden)?,
            v: linear(&source.v, kv_heads, hidden)?,
            q_norm: optional(&source.q_norm, shape.head_dim)?,
            k_norm: optional(&source.k_norm, shape.head_dim)?,
            o: linear(&source.o, hidden, heads)?,
            post_attention_norm: optional(&source.post_attention_norm, hidden)?,
            mlp_norm: norm(&source.mlp_norm, hidden)?,
            gate: linear(&source.gate, inner, hidden)?,
            up: linear(&source.up, inner, hidden)?,
            down: linear(&source.down, hidden, inner)?,
            post_mlp_norm: optional(&source.post_mlp_norm, hidden)?,
        })
    }
}

/// A vector of `len` f32 values.
pub fn load_vector(view: &TensorView, len: usize, device: &Device) -> Result<Tensor, EngineError> {
    check_shape(view, &[len])?;
    Ok(quantised(view, device)?.dequantize(device)?)
}

/// The weights of a norm: `offset` plus what is stored.
pub fn load_norm(view: &TensorView, len: usize, offset: f32, device: &Device) -> Result<Tensor, EngineError> {
    Ok((load_vector(view, len, device)? + f64::from(offset))?)
}

fn load_matrix(
    view: &TensorView,
    (out, input): (usize, usize),
    format: WeightFormat,
    device: &Device,
) -> Result<Matrix, EngineError> {
    check_shape(view, &[out, input])?;
    let tensor = quantised(view, device)?;
    let dtype = match (format, view.dtype) {
        (WeightFormat::Unpacked, _) | (_, TensorType::F32) => DType::F32,
        (_, TensorType::F16) => DType::F16,
        (_, TensorType::BF16) => DType::BF16,
        (_, other) if ggml_type(other).is_none() => DType::F32,
        _ => {
            let tensor = Arc::new(tensor);
            return Ok(Matrix::Quantised(QMatMul::from_arc(tensor.clone())?, tensor));
        }
    };
    let dense = tensor.dequantize(device)?;
    Ok(match dtype {
        DType::F32 => Matrix::F32(dense),
        // Exact: the values came from this type.
        narrow => Matrix::Half(dense.to_dtype(narrow)?),
    })
}

fn check_shape(view: &TensorView, expected: &[usize]) -> Result<(), EngineError> {
    if view.shape == expected {
        return Ok(());
    }
    Err(EngineError::Shape {
        name: view.name.to_string(),
        found: view.shape.clone(),
        expected: expected.to_vec(),
    })
}

fn quantised(view: &TensorView, device: &Device) -> Result<QTensor, EngineError> {
    let storage = match ggml_type(view.dtype) {
        Some(dtype) => QStorage::from_data(aligned(view.bytes), device, dtype)?,
        None => QStorage::from_data(Cow::Owned(unpacked(view)), device, GgmlDType::F32)?,
    };
    Ok(QTensor::new(storage, view.shape.clone())?)
}

/// The values of a type that candle does not have, as bytes of f32.
fn unpacked(view: &TensorView) -> Vec<u8> {
    let mut values = vec![0.0; view.n_values()];
    let row = view.shape.last().copied().unwrap_or(1).max(1);
    let row_bytes = view.bytes.len() / (values.len() / row).max(1);
    for (values, bytes) in values.chunks_mut(row).zip(view.bytes.chunks(row_bytes)) {
        unpack_row(view.dtype, bytes, values);
    }
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// Candle reads blocks in place and needs them aligned for their widest field; a file may place them anywhere.
fn aligned(bytes: &[u8]) -> Cow<'_, [u8]> {
    const ALIGNMENT: usize = align_of::<f32>();
    if bytes.as_ptr().addr().is_multiple_of(ALIGNMENT) {
        Cow::Borrowed(bytes)
    } else {
        Cow::Owned(bytes.to_vec())
    }
}

/// Whether matrices of this type can be held as stored.
pub fn keeps_packed(dtype: TensorType) -> bool {
    ggml_type(dtype).is_some()
}

/// `None`: candle has no such type.
fn ggml_type(dtype: TensorType) -> Option<GgmlDType> {
    Some(match dtype {
        TensorType::F32 => GgmlDType::F32,
        TensorType::F16 => GgmlDType::F16,
        TensorType::BF16 => GgmlDType::BF16,
        TensorType::Q4_0 => GgmlDType::Q4_0,
        TensorType::Q4_1 => GgmlDType::Q4_1,
        TensorType::Q5_0 => GgmlDType::Q5_0,
        TensorType::Q5_1 => GgmlDType::Q5_1,
        TensorType::Q8_0 => GgmlDType::Q8_0,
        TensorType::Q8_1 => GgmlDType::Q8_1,
        TensorType::Q2K => GgmlDType::Q2K,
        TensorType::Q3K => GgmlDType::Q3K,
        TensorType::Q4K => GgmlDType::Q4K,
        TensorType::Q5K => GgmlDType::Q5K,
        TensorType::Q6K => GgmlDType::Q6K,
        TensorType::Q8K => GgmlDType::Q8K,
        TensorType::IQ4_NL | TensorType::IQ4_XS | TensorType::MXFP4 => return None,
    })
}
