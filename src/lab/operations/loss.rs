//! Mean negative log-likelihood of target tokens.

use candle_core::{CpuStorage, CustomOp2, Layout, Result, Shape, Tensor};

use super::{copied, values};

/// Mean over the rows of `logits: [rows, vocab]` of the negative log-likelihood of `targets: [rows]` (u32), in nats.
pub fn cross_entropy(logits: &Tensor, targets: &Tensor) -> Result<Tensor> {
    logits.apply_op2(targets, CrossEntropy)
}

/// Negative log-likelihood in nats of one target in each row of `logits: [rows, vocab]`, summed in f64.
pub fn negative_log_likelihoods(logits: &Tensor, targets: &[u32]) -> Result<Vec<f64>> {
    let vocab = logits.dim(1)?;
    let logits = copied(logits)?;
    let nll = |(row, target): (&[f32], &u32)| log_sum_exp(row) - f64::from(row[*target as usize]);
    Ok(logits.chunks_exact(vocab).zip(targets).map(nll).collect())
}

fn log_sum_exp(row: &[f32]) -> f64 {
    let max = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = row.iter().map(|v| f64::from((v - max).exp())).sum();
    f64::from(max) + sum.ln()
}

struct CrossEntropy;

impl CustomOp2 for CrossEntropy {
    fn name(&self) -> &'static str {
        "lab-cross-entropy"
    }

    fn cpu_fwd(
        &self,
        logits: &CpuStorage,
        logits_layout: &Layout,
        targets: &CpuStorage,
        targets_layout: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let (rows, vocab) = logits_layout.shape().dims2()?;
        let logits = values(logits, logits_layout)?;
        let targets = &targets.as_slice::<u32>()?[targets_layout.start_offset()..][..rows];
        let nll = |(row, target): (&[f32], &u32)| log_sum_exp(row) - f64::from(row[*target as usize]);
        let total: f64 = logits.chunks_exact(vocab).zip(targets).map(nll).sum();
        Ok((CpuStorage::F32(vec![(total / rows as f64) as f32]), Shape::from(())))
    }

    /// `(softmax - one at the target) / rows`, times the gradient of the mean.
    fn bwd(
        &self,
        logits: &Tensor,
        targets: &Tensor,
        _: &Tensor,
        grad: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>)> {
        let (rows, vocab) = logits.dims2()?;
        let share = grad.to_scalar::<f32>()? / rows as f32;
        let targets = targets.to_vec1::<u32>()?;
        let mut grads = copied(logits)?;
        for (row, target) in grads.chunks_exact_mut(vocab).zip(targets) {
            let max = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            row.iter_mut().for_each(|v| *v = (*v - max).exp());
            let scale = share / row.iter().sum::<f32>();
            row.iter_mut().for_each(|v| *v *= scale);
            row[target as usize] -= share;
        }
        Ok((Some(Tensor::from_vec(grads, (rows, vocab), logits.device())?), None))
    }
}
