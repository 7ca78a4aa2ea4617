//! Attention weights: scores scaled, biased, masked to the past and normalised.

use candle_core::{CpuStorage, CustomOp1, CustomOp2, Layout, Result, Shape, Tensor};

use super::{copied, values};

/// What is added to scaled scores, `[heads, tokens, tokens]`: row of the query, column of the key.
#[derive(Clone)]
pub enum Bias {
    None,
    /// Needs no gradient.
    Fixed(Tensor),
    Learned(Tensor),
}

/// Softmax over the keys up to each query of `scale * scores + bias`, 0 after it.
///
/// `scores`: `[batch, heads, tokens, tokens]`; returns the same shape.
pub fn causal_softmax(scores: &Tensor, bias: &Bias, scale: f32) -> Result<Tensor> {
    match bias {
        Bias::None => scores.apply_op1(Softmax { scale, learned: false }),
        Bias::Fixed(bias) => scores.apply_op2(bias, Softmax { scale, learned: false }),
        Bias::Learned(bias) => scores.apply_op2(bias, Softmax { scale, learned: true }),
    }
}

struct Softmax {
    scale: f32,
    /// Whether the bias gets a gradient.
    learned: bool,
}

impl Softmax {
    /// Weights of all rows; `bias` repeats over the batch.
    fn weights(&self, scores: &[f32], bias: Option<&[f32]>, tokens: usize) -> Vec<f32> {
        let mut out = vec![0f32; scores.len()];
        for (index, (row, out)) in scores.chunks_exact(tokens).zip(out.chunks_exact_mut(tokens)).enumerate() {
            let seen = index % tokens + 1;
            let (row, out) = (&row[..seen], &mut out[..seen]);
            match bias {
                Some(bias) => {
                    let start = index * tokens % bias.len();
                    let bias = &bias[start..start + seen];
                    out.iter_mut().zip(row).zip(bias).for_each(|((o, s), b)| *o = self.scale * s + b);
                }
                None => out.iter_mut().zip(row).for_each(|(o, s)| *o = self.scale * s),
            }
            let max = out.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            out.iter_mut().for_each(|o| *o = (*o - max).exp());
            let inverse = out.iter().sum::<f32>().recip();
            out.iter_mut().for_each(|o| *o *= inverse);
        }
        out
    }

    fn forward(
        &self,
        (scores, layout): (&CpuStorage, &Layout),
        bias: Option<&[f32]>,
    ) -> Result<(CpuStorage, Shape)> {
        let (_, _, _, tokens) = layout.shape().dims4()?;
        let out = self.weights(values(scores, layout)?, bias, tokens);
        Ok((CpuStorage::F32(out), layout.shape().clone()))
    }

    /// The gradient of scaled and biased scores: `p (grad - sum(p grad))`.
    fn gradient(weights: &Tensor, grad: &Tensor) -> Result<Vec<f32>> {
        let tokens = weights.dim(3)?;
        let (weights, mut grads) = (copied(weights)?, copied(grad)?);
        for (row, grad) in weights.chunks_exact(tokens).zip(grads.chunks_exact_mut(tokens)) {
            let dot: f32 = row.iter().zip(&*grad).map(|(p, d)| p * d).sum();
            grad.iter_mut().zip(row).for_each(|(d, p)| *d = p * (*d - dot));
        }
        Ok(grads)
    }

    /// That gradient for the scores themselves.
    fn for_scores(&self, mut grads: Vec<f32>, scores: &Tensor) -> Result<Tensor> {
        grads.iter_mut().for_each(|d| *d *= self.scale);
        Tensor::from_vec(grads, scores.shape().clone(), scores.device())
    }
}

impl CustomOp1 for Softmax {
    fn name(&self) -> &'static str {
        "lab-softmax"
    }

    fn cpu_fwd(&self, scores: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        self.forward((scores, layout), None)
    }

    fn bwd(&self, scores: &Tensor, weights: &Tensor, grad: &Tensor) -> Result<Option<Tensor>> {
        Ok(Some(self.for_scores(Softmax::gradient(weights, grad)?, scores)?))
    }
}

impl CustomOp2 for Softmax {
    fn name(&self) -> &'static str {
        "lab-biased-softmax"
    }

    fn cpu_fwd(
        &self,
        scores: &CpuStorage,
        layout: &Layout,
        bias: &CpuStorage,
        bias_layout: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        self.forward((scores, layout), Some(values(bias, bias_layout)?))
    }

    /// The bias takes the sum over the batch.
    fn bwd(
        &self,
        scores: &Tensor,
        bias: &Tensor,
        weights: &Tensor,
        grad: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>)> {
        let grads = Softmax::gradient(weights, grad)?;
        let for_bias = if self.learned {
            let mut sums = vec![0f32; bias.elem_count()];
            for window in grads.chunks_exact(sums.len()) {
                sums.iter_mut().zip(window).for_each(|(sum, d)| *sum += d);
            }
            Some(Tensor::from_vec(sums, bias.shape().clone(), bias.device())?)
        } else {
            None
        };
        Ok((Some(self.for_scores(grads, scores)?), for_bias))
    }
}
