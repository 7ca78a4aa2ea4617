//! Operations that candle has no gradient or only slow ones for: each a loop over rows with its derivative beside it.
//!
//! All take contiguous f32 tensors on the CPU.

mod loss;
mod norm;
mod rotation;
mod softmax;
#[cfg(test)]
mod tests;

use candle_core::{CpuStorage, Layout, Result, Tensor};

pub use self::loss::{cross_entropy, negative_log_likelihoods};
pub use self::norm::rms_norm;
pub use self::rotation::{Rotation, rotate};
pub use self::softmax::{Bias, causal_softmax};

/// The values of a contiguous f32 operand.
fn values<'a>(storage: &'a CpuStorage, layout: &Layout) -> Result<&'a [f32]> {
    let all = storage.as_slice::<f32>()?;
    match layout.contiguous_offsets() {
        Some((start, end)) => Ok(&all[start..end]),
        None => candle_core::bail!("an operand of shape {:?} is not contiguous", layout.shape()),
    }
}

/// A copy of the values of a tensor, row-major.
fn copied(tensor: &Tensor) -> Result<Vec<f32>> {
    tensor.flatten_all()?.to_vec1()
}
