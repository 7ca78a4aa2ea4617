//! Root mean square normalisation.

use candle_core::{CpuStorage, CustomOp2, Layout, Result, Shape, Tensor};

use super::{copied, values};

/// Added to the mean square.
const EPSILON: f32 = 1e-6;

/// Each row of `x: [rows, width]` divided by its root mean square, times `gain: [width]`.
///
/// Source: Zhang and Sennrich 2019, arXiv:1910.07467.
pub fn rms_norm(x: &Tensor, gain: &Tensor) -> Result<Tensor> {
    x.apply_op2(gain, RmsNorm)
}

struct RmsNorm;

/// One over the root mean square of a row.
fn inverse_rms(row: &[f32]) -> f32 {
    let squares: f32 = row.iter().map(|v| v * v).sum();
    (squares / row.len() as f32 + EPSILON).sqrt().recip()
}

impl CustomOp2 for RmsNorm {
    fn name(&self) -> &'static str {
        "lab-rms-norm"
    }

    fn cpu_fwd(
        &self,
        x: &CpuStorage,
        x_layout: &Layout,
        gain: &CpuStorage,
        gain_layout: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let (x, gain) = (values(x, x_layout)?, values(gain, gain_layout)?);
        let mut out = Vec::with_capacity(x.len());
        for row in x.chunks_exact(gain.len()) {
            let inverse = inverse_rms(row);
            out.extend(row.iter().zip(gain).map(|(v, g)| v * inverse * g));
        }
        Ok((CpuStorage::F32(out), x_layout.shape().clone()))
    }

    /// With `r` the inverse root mean square and `u = grad * gain`: `r (u - x r^2 mean(u x))` for `x`, and the sum over
    /// rows of `grad x r` for the gain.
    fn bwd(
        &self,
        x: &Tensor,
        gain: &Tensor,
        _: &Tensor,
        grad: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>)> {
        let (shape, device) = (x.shape().clone(), x.device());
        let (xs, gains, grads) = (copied(x)?, copied(gain)?, copied(grad)?);
        let width = gains.len();
        let mut for_x = Vec::with_capacity(xs.len());
        let mut for_gain = vec![0f32; width];
        for (row, grad) in xs.chunks_exact(width).zip(grads.chunks_exact(width)) {
            let inverse = inverse_rms(row);
            let dot: f32 = row.iter().zip(grad).zip(&gains).map(|((v, d), g)| v * d * g).sum();
            let along = dot / width as f32 * inverse * inverse;
            for (((v, d), g), sum) in row.iter().zip(grad).zip(&gains).zip(&mut for_gain) {
                for_x.push(inverse * (d * g - v * along));
                *sum += d * v * inverse;
            }
        }
        let for_x = Tensor::from_vec(for_x, shape, device)?;
        Ok((Some(for_x), Some(Tensor::from_vec(for_gain, width, device)?)))
    }
}
