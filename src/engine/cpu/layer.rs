//! Weights of the engine: packed matrices, norms and biases as f32.

use super::aligned::Arena;
use super::matrix::{Arithmetic, Matrix, unpack_row};
use super::pool::Pool;
use crate::checkpoint::tensor::TensorView;
use crate::engine::{EngineError, LayerSource, LinearSource, ModelShape};

/// `[out]`, if there is one.
pub type Bias = Option<Vec<f32>>;

/// A matrix `[out, in]` with its bias.
pub struct Linear<'a> {
    pub matrix: Matrix<'a>,
    pub bias: Bias,
}

impl<'a> Linear<'a> {
    pub fn load(
        source: &LinearSource<'a>,
        (out, input): (usize, usize),
        arithmetic: Arithmetic,
        pool: &Pool,
        arena: &Arena,
    ) -> Result<Self, EngineError> {
        let bias = source.bias.as_ref().map(|bias| floats(bias, out)).transpose()?;
        Ok(Self { bias, ..Self::load_plain(&source.weight, (out, input), arithmetic, pool, arena)? })
    }

    /// A matrix without bias.
    pub fn load_plain(
        weight: &TensorView<'a>,
        (out, input): (usize, usize),
        arithmetic: impl Into<Arithmetic>,
        pool: &Pool,
        arena: &Arena,
    ) -> Result<Self, EngineError> {
        Ok(Self { matrix: Matrix::new_in(arena, weight, out, input, arithmetic, pool)?, bias: None })
    }
}

/// Weights of one decoder layer.
pub struct Layer<'a> {
    pub attention_norm: Vec<f32>,
    pub q: Linear<'a>,
    pub k: Linear<'a>,
    pub v: Linear<'a>,
    pub q_norm: Option<Vec<f32>>,
    pub k_norm: Option<Vec<f32>>,
    pub o: Linear<'a>,
    pub post_attention_norm: Option<Vec<f32>>,
    pub mlp_norm: Vec<f32>,
    pub gate: Linear<'a>,
    pub up: Linear<'a>,
    pub down: Linear<'a>,
    pub post_mlp_norm: Option<Vec<f32>>,
}

impl<'a> Layer<'a> {
    pub fn load(
        source: &LayerSource<'a>,
        shape: &ModelShape,
        arithmetic: Arithmetic,
        pool: &Pool,
        arena: &Arena,
    ) -> Result<Self, EngineError> {
        let hidden = shape.hidden_size;
        let heads = shape.n_heads * shape.head_dim;
        let kv_heads = shape.n_kv_heads * shape.head_dim;
        let inner = shape.intermediate_size;
        let load = |source: &LinearSource<'a>, out, input, arithmetic| {
            Linear::load(source, (out, input), arithmetic, pool, arena)
        };
        // Queries and keys suffer most from coarse activations: they keep the finer ones.
        let exact = |source: &LinearSource<'a>, out, input| load(source, out, input, arithmetic.isa.into());
        let linear = |source: &LinearSource<'a>, out, input| load(source, out, input, arithmetic);
        let norm = |view: &TensorView<'a>, len| norm_weights(view, len, shape.norm_offset);
        let optional =
            |view: &Option<TensorView<'a>>, len| view.as_ref().map(|view| norm(view, len)).transpose();
        Ok(Self {
            attention_norm: norm(&source.attention_norm, hidden)?,
            q: exact(&source.q, heads, hidden)?,
            k: exact(&source.k, kv_heads, hidden)?,
            v: exact(&source.v, kv_heads, hidden)?,
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

/// The weights of a norm: `offset` plus what is stored.
///
/// # Errors
/// As [`floats`].
pub fn norm_weights(view: &TensorView<'_>, len: usize, offset: f32) -> Result<Vec<f32>, EngineError> {
    let mut weights = floats(view, len)?;
    weights.iter_mut().for_each(|weight| *weight += offset);
    Ok(weights)
}

/// A vector of `len` values of any stored type.
///
/// # Errors
/// [`EngineError::Shape`] when the shape is another.
pub fn floats(view: &TensorView<'_>, len: usize) -> Result<Vec<f32>, EngineError> {
    if view.shape != [len] || view.dtype.size_bytes(&view.shape) != Some(view.bytes.len()) {
        let (found, name) = (view.shape.clone(), view.name.to_owned());
        return Err(EngineError::Shape { name, found, expected: vec![len] });
    }
    let mut values = vec![0.0; len];
    unpack_row(view.dtype, view.bytes, &mut values);
    Ok(values)
}
