//! The rotary embedding of queries and keys, by the tables and the rotation of [`crate::rope`].

use std::sync::Arc;

use candle_core::{CpuStorage, CustomOp1, Layout, Result, Shape, Tensor};

use super::values;
use crate::rope::{Frequencies, Pairing, Table, rotate as rotate_heads};

/// Tables for positions `0..length`, forwards and backwards.
#[derive(Clone)]
pub struct Rotation {
    forwards: Arc<Table>,
    backwards: Arc<Table>,
    head_dim: usize,
    pairing: Pairing,
}

impl Rotation {
    pub fn new(frequencies: &Frequencies, length: usize, head_dim: usize, pairing: Pairing) -> Self {
        // The transpose of a rotation turns the other way by the same factor.
        let inv_freq = frequencies.inv_freq.iter().map(|f| -f).collect();
        let reversed = Frequencies { inv_freq, attention_factor: frequencies.attention_factor };
        Rotation {
            forwards: Arc::new(Table::new(frequencies, 0..length)),
            backwards: Arc::new(Table::new(&reversed, 0..length)),
            head_dim,
            pairing,
        }
    }

    fn reversed(&self) -> Self {
        Rotation { forwards: self.backwards.clone(), backwards: self.forwards.clone(), ..self.clone() }
    }
}

/// Rotates the heads of `x: [batch, tokens, width]`, row `t` of each window by position `t`.
pub fn rotate(x: &Tensor, rotation: &Rotation) -> Result<Tensor> {
    x.apply_op1(rotation.clone())
}

impl CustomOp1 for Rotation {
    fn name(&self) -> &'static str {
        "lab-rotation"
    }

    fn cpu_fwd(&self, x: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        let (_, tokens, width) = layout.shape().dims3()?;
        let mut out = values(x, layout)?.to_vec();
        for (index, row) in out.chunks_exact_mut(width).enumerate() {
            rotate_heads(row, self.head_dim, &self.forwards, index % tokens, self.pairing)
                .map_err(candle_core::Error::wrap)?;
        }
        Ok((CpuStorage::F32(out), layout.shape().clone()))
    }

    fn bwd(&self, _: &Tensor, _: &Tensor, grad: &Tensor) -> Result<Option<Tensor>> {
        Ok(Some(grad.contiguous()?.apply_op1_no_bwd(&self.reversed())?))
    }
}
