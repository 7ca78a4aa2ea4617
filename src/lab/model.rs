//! The toy decoder: one architecture, one place where the position encoding enters.

use candle_core::{Device, Tensor};

use super::encoding::{Encoding, T5_BUCKETS, alibi_slopes, sinusoids, t5_bucket, t5_max_distance};
use super::error::LabError;
use super::operations::{Bias, Rotation, causal_softmax, rms_norm, rotate};
use super::random::Random;
use super::settings::{Settings, VOCAB_SIZE};
use crate::rope::{Scaling, frequencies};

/// What a weight is, which decides how it starts and whether it decays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// One vector per token or position.
    Embedding,
    Matrix,
    /// A matrix whose result is added to the hidden state.
    Residual,
    Gain,
    /// Added to scores.
    Bias,
}

/// Name, shape and role of a weight.
#[derive(Debug, Clone)]
pub struct WeightSpec {
    pub name: String,
    pub shape: Vec<usize>,
    pub role: Role,
}

/// Every weight of the model, in a fixed order. Matrices are `[outputs, inputs]`.
pub fn weight_specs(settings: &Settings) -> Vec<WeightSpec> {
    let (width, inner) = (settings.width, settings.feed_forward);
    let mut specs = Vec::new();
    let mut add =
        |name: String, shape: &[usize], role| specs.push(WeightSpec { name, shape: shape.to_vec(), role });
    add("embedding".into(), &[VOCAB_SIZE, width], Role::Embedding);
    match settings.encoding {
        Encoding::Learned => add("positions".into(), &[settings.context, width], Role::Embedding),
        Encoding::T5 => add("distance_bias".into(), &[T5_BUCKETS, settings.heads], Role::Bias),
        _ => {}
    }
    for layer in 0..settings.layers {
        let mut add = |name: &str, shape: &[usize], role| add(format!("layers.{layer}.{name}"), shape, role);
        add("attention_norm", &[width], Role::Gain);
        add("query", &[width, width], Role::Matrix);
        add("key", &[width, width], Role::Matrix);
        add("value", &[width, width], Role::Matrix);
        add("output", &[width, width], Role::Residual);
        add("feed_forward_norm", &[width], Role::Gain);
        add("up", &[inner, width], Role::Matrix);
        add("down", &[width, inner], Role::Residual);
    }
    add("norm".into(), &[width], Role::Gain);
    add("head".into(), &[VOCAB_SIZE, width], Role::Matrix);
    specs
}

/// The starting values of a weight: normal with a standard deviation of `1 / sqrt(inputs)`, residual ones divided by
/// `sqrt(2 layers)`; gains are 1, biases 0. A stream of its own for each name: encodings share all that they can.
pub fn initial_values(spec: &WeightSpec, settings: &Settings) -> Vec<f32> {
    let count: usize = spec.shape.iter().product();
    let inputs = spec.shape.last().copied().unwrap_or(1) as f64;
    let deviation = match spec.role {
        Role::Gain => return vec![1.0; count],
        Role::Bias => return vec![0.0; count],
        Role::Embedding | Role::Matrix => inputs.powf(-0.5),
        Role::Residual => (inputs * 2.0 * settings.layers as f64).powf(-0.5),
    };
    let mut random = Random::new(settings.seed, &spec.name, 0);
    (0..count).map(|_| (deviation * random.normal()) as f32).collect()
}

struct Layer {
    attention_norm: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    output: Tensor,
    feed_forward_norm: Tensor,
    up: Tensor,
    down: Tensor,
}

/// A model over given weights.
pub struct Model {
    settings: Settings,
    embedding: Tensor,
    /// `positions` or `distance_bias`, where the encoding has one.
    encoding: Option<Tensor>,
    layers: Vec<Layer>,
    norm: Tensor,
    head: Tensor,
}

/// The position encoding laid out for windows of one length.
pub struct Positions {
    /// Added to embeddings, `[tokens, width]`.
    added: Option<Tensor>,
    /// Of queries and keys.
    rotation: Option<Rotation>,
    bias: PositionBias,
}

enum PositionBias {
    None,
    /// `[heads, tokens, tokens]`
    Fixed(Tensor),
    /// Row of `distance_bias` for each query and key, `[tokens * tokens]`.
    Buckets(Tensor),
}

impl Model {
    /// `weights`: in the order of [`weight_specs`], with their shapes.
    ///
    /// # Errors
    /// [`LabError::Setting`] when their number is another.
    pub fn new(settings: &Settings, weights: Vec<Tensor>) -> Result<Self, LabError> {
        let expected = weight_specs(settings).len();
        let found = weights.len();
        let mut weights = weights.into_iter();
        let mut next = || {
            weights.next().ok_or(LabError::Setting {
                name: "weights",
                accepted: format!("{expected} tensors"),
                found: found.to_string(),
            })
        };
        let embedding = next()?;
        let encoding = match settings.encoding {
            Encoding::Learned | Encoding::T5 => Some(next()?),
            _ => None,
        };
        let mut layer = || -> Result<Layer, LabError> {
            Ok(Layer {
                attention_norm: next()?,
                query: next()?,
                key: next()?,
                value: next()?,
                output: next()?,
                feed_forward_norm: next()?,
                up: next()?,
                down: next()?,
            })
        };
        let layers = (0..settings.layers).map(|_| layer()).collect::<Result<_, _>>()?;
        Ok(Model { settings: settings.clone(), embedding, encoding, layers, norm: next()?, head: next()? })
    }

    /// The encoding of windows of `length` tokens; `scaling` changes rotations and nothing else.
    ///
    /// # Errors
    /// [`LabError::BeyondLearned`] for learned positions beyond the trained length, [`LabError::Rope`].
    pub fn positions(&self, length: usize, scaling: &Scaling) -> Result<Positions, LabError> {
        let settings = &self.settings;
        let (width, heads) = (settings.width, settings.heads);
        let mut positions = Positions { added: None, rotation: None, bias: PositionBias::None };
        match settings.encoding {
            Encoding::None => {}
            Encoding::Sinusoidal => {
                let table = sinusoids(length, width, settings.theta).iter().map(|v| *v as f32).collect();
                positions.added = Some(Tensor::from_vec(table, (length, width), &Device::Cpu)?);
            }
            Encoding::Learned if length > settings.context => {
                return Err(LabError::BeyondLearned { learned: settings.context, length });
            }
            // Read from the weights in each pass.
            Encoding::Learned => {}
            Encoding::Alibi => {
                let slope = |slope: f64| {
                    let row =
                        move |i: usize| (0..length).map(move |j| (-slope * i.abs_diff(j) as f64) as f32);
                    (0..length).flat_map(row)
                };
                let bias: Vec<f32> = alibi_slopes(heads).into_iter().flat_map(slope).collect();
                positions.bias =
                    PositionBias::Fixed(Tensor::from_vec(bias, (heads, length, length), &Device::Cpu)?);
            }
            Encoding::T5 => {
                let furthest = t5_max_distance(settings.context);
                let row =
                    |i: usize| (0..length).map(move |j| t5_bucket(i.saturating_sub(j), furthest) as u32);
                let buckets: Vec<u32> = (0..length).flat_map(row).collect();
                positions.bias =
                    PositionBias::Buckets(Tensor::from_vec(buckets, length * length, &Device::Cpu)?);
            }
            Encoding::Rope | Encoding::RopeAdjacent => {
                let spec = settings.rope(scaling.clone());
                let frequencies = frequencies(&spec, length)?;
                positions.rotation = Some(Rotation::new(&frequencies, length, spec.head_dim, spec.pairing));
            }
        }
        Ok(positions)
    }

    /// Logits `[batch * last, vocab]` of the `last` tokens of each window.
    ///
    /// `tokens`: `[batch, length]` u32; `positions`: those of `length`.
    ///
    /// # Errors
    /// [`LabError::Tensor`] when shapes disagree.
    pub fn logits(&self, tokens: &Tensor, positions: &Positions, last: usize) -> Result<Tensor, LabError> {
        let (batch, length) = tokens.dims2()?;
        let width = self.settings.width;
        let bias = self.bias(positions, length)?;
        let mut x = self.embed(tokens, positions)?;
        for layer in &self.layers {
            x = (layer.attention(&x, (batch, length), positions, &bias, &self.settings)? + x)?;
            x = (layer.feed_forward(&x)? + x)?;
        }
        if last < length {
            x = x.reshape((batch, length, width))?.narrow(1, length - last, last)?.contiguous()?;
            x = x.reshape((batch * last, width))?;
        }
        Ok(linear(&rms_norm(&x, &self.norm)?, &self.head)?)
    }

    /// Embeddings with what is added to them, `[batch * length, width]`. The factor `sqrt(width)` gives them a variance of
    /// one, so that sinusoids weigh as much (Vaswani et al. 2017, section 3.4).
    fn embed(&self, tokens: &Tensor, positions: &Positions) -> Result<Tensor, LabError> {
        let (batch, length) = tokens.dims2()?;
        let width = self.settings.width;
        let scale = (width as f64).sqrt();
        let x = (self.embedding.index_select(&tokens.flatten_all()?, 0)? * scale)?;
        let added = match (self.settings.encoding, &self.encoding) {
            (Encoding::Learned, Some(learned)) => (learned.narrow(0, 0, length)? * scale)?,
            _ => match &positions.added {
                Some(added) => added.clone(),
                None => return Ok(x),
            },
        };
        let x = x.reshape((batch, length, width))?.broadcast_add(&added)?;
        Ok(x.reshape((batch * length, width))?)
    }

    fn bias(&self, positions: &Positions, length: usize) -> Result<Bias, LabError> {
        Ok(match (&positions.bias, &self.encoding) {
            (PositionBias::Fixed(bias), _) => Bias::Fixed(bias.clone()),
            (PositionBias::Buckets(buckets), Some(table)) => {
                let bias = table.t()?.contiguous()?.index_select(buckets, 1)?;
                Bias::Learned(bias.reshape((self.settings.heads, length, length))?)
            }
            _ => Bias::None,
        })
    }
}

/// `x: [rows, inputs]` times a matrix `[outputs, inputs]`.
fn linear(x: &Tensor, matrix: &Tensor) -> candle_core::Result<Tensor> {
    x.matmul(&matrix.t()?)
}

impl Layer {
    /// What attention adds to `x: [batch * length, width]`.
    fn attention(
        &self,
        x: &Tensor,
        (batch, length): (usize, usize),
        positions: &Positions,
        bias: &Bias,
        settings: &Settings,
    ) -> Result<Tensor, LabError> {
        let (width, heads, head_dim) = (settings.width, settings.heads, settings.head_dim());
        let x = rms_norm(x, &self.attention_norm)?;
        // [batch, heads, length, head_dim]
        let split = |x: Tensor| x.reshape((batch, length, heads, head_dim))?.transpose(1, 2)?.contiguous();
        let turned = |matrix: &Tensor| {
            let x = linear(&x, matrix)?.reshape((batch, length, width))?;
            match &positions.rotation {
                Some(rotation) => rotate(&x, rotation),
                None => Ok(x),
            }
        };
        let (q, k) = (split(turned(&self.query)?)?, split(turned(&self.key)?)?);
        let v = split(linear(&x, &self.value)?)?;
        let scores = q.matmul(&k.transpose(2, 3)?)?;
        let weights = causal_softmax(&scores, bias, (head_dim as f32).sqrt().recip())?;
        let mixed = weights.matmul(&v)?.transpose(1, 2)?.reshape((batch * length, width))?;
        Ok(linear(&mixed, &self.output)?)
    }

    /// What the feed-forward part adds: two matrices with a rectifier between.
    fn feed_forward(&self, x: &Tensor) -> Result<Tensor, LabError> {
        let inner = linear(&rms_norm(x, &self.feed_forward_norm)?, &self.up)?.relu()?;
        Ok(linear(&inner, &self.down)?)
    }
}
