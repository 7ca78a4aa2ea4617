//! Products with weight matrices of every number format: `y = x W^T`.
//!
//! Weights are packed once at load ([`repack`]) into panels of 16 outputs that a vector kernel streams ([`format`]
//! describes them), at about their stored size. Activations are quantised once for all matrices that read them
//! ([`rows`]). Few rows stream the panels, taking integers apart in registers; many rows expand 64 outputs at a time into
//! a tile in cache and multiply it register tile by register tile ([`product`]). Both compute the same numbers to the
//! last bit ([`kernels`]).

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod byte_rows;
#[cfg(target_arch = "x86_64")]
mod bytes_avx512;
mod expand;
mod fields;
mod float;
pub(crate) mod format;
mod half_bits;
mod head;
pub(crate) mod kernels;
#[cfg(target_arch = "x86_64")]
mod pairs_avx2;
mod product;
mod repack;
pub(crate) mod rows;
mod scalar;
mod stream;
#[cfg(target_arch = "x86_64")]
mod stream_avx2;
#[cfg(test)]
mod tests;
mod unpack;

pub use head::head_bytes;

pub use format::Activations;
use format::{BLOCK, Format, LANES};
pub use product::{MatrixWorkspace, Product, multiply_many};
use repack::RepackPanel;
pub use unpack::unpack_row;

use crate::checkpoint::tensor::{TensorType, TensorView};
use crate::engine::EngineError;
use crate::engine::cpu::aligned::{Aligned, Arena};
use crate::engine::cpu::isa::Isa;
use crate::engine::cpu::pool::Pool;
use crate::engine::cpu::shared::SharedMut;

/// How products are computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arithmetic {
    pub isa: Isa,
    pub activations: Activations,
}

impl Arithmetic {
    /// `activations` where the instruction set has products that make use of them, 16 bits elsewhere.
    pub fn available(isa: Isa, activations: Activations) -> Self {
        let eight = isa == Isa::Avx512Bf16Vnni;
        Self { isa, activations: if eight { activations } else { Activations::Sixteen } }
    }
}

impl From<Isa> for Arithmetic {
    /// With 16-bit activations.
    fn from(isa: Isa) -> Self {
        Self { isa, activations: Activations::Sixteen }
    }
}

/// A weight matrix `[outputs, inputs]`, packed for the kernels.
pub struct Matrix<'a> {
    stored: TensorView<'a>,
    outputs: usize,
    inputs: usize,
    isa: Isa,
    packed: Packed,
}

/// Panels one after the other, the last one filled up with zeros.
enum Packed {
    Integers {
        format: Format,
        n_blocks: usize,
        panels: Aligned<u8>,
    },
    /// `[panel, input, lane]`
    Floats(Aligned<f32>),
}

impl<'a> Matrix<'a> {
    /// Packs `stored`, which must be `[outputs, inputs]`, with all threads of `pool`, for products in `arithmetic`.
    ///
    /// # Errors
    /// `EngineError::Shape` when the shape is another, empty, or does not fit the bytes.
    pub fn new(
        stored: &TensorView<'a>,
        outputs: usize,
        inputs: usize,
        arithmetic: impl Into<Arithmetic>,
        pool: &Pool,
    ) -> Result<Self, EngineError> {
        Self::new_in(&Arena::default(), stored, outputs, inputs, arithmetic, pool)
    }

    /// As [`Matrix::new`], beside the matrices that `arena` holds.
    ///
    /// # Errors
    /// As [`Matrix::new`].
    pub fn new_in(
        arena: &Arena,
        stored: &TensorView<'a>,
        outputs: usize,
        inputs: usize,
        arithmetic: impl Into<Arithmetic>,
        pool: &Pool,
    ) -> Result<Self, EngineError> {
        let Arithmetic { isa, activations } = arithmetic.into();
        let fits = stored.dtype.size_bytes(&stored.shape) == Some(stored.bytes.len());
        if stored.shape != [outputs, inputs] || !fits || outputs == 0 || inputs == 0 {
            return Err(EngineError::Shape {
                name: stored.name.to_owned(),
                found: stored.shape.clone(),
                expected: vec![outputs, inputs],
            });
        }
        let packed = match Format::of(stored.dtype, activations) {
            Some(format) => pack_integers(arena, stored, format, isa, pool),
            None => pack_floats(arena, stored, pool),
        };
        Ok(Self { stored: stored.clone(), outputs, inputs, isa, packed })
    }

    pub fn outputs(&self) -> usize {
        self.outputs
    }

    pub fn inputs(&self) -> usize {
        self.inputs
    }

    /// Memory of the packed form, in bytes: what one product with few rows reads.
    pub fn size_bytes(&self) -> usize {
        match &self.packed {
            Packed::Integers { panels, .. } => panels.len(),
            Packed::Floats(panels) => panels.len() * size_of::<f32>(),
        }
    }

    /// Multiplications and additions of a product with `rows` rows.
    pub fn operations(&self, rows: usize) -> f64 {
        2.0 * rows as f64 * self.outputs as f64 * self.inputs as f64
    }

    /// `y = x W^T`; `x`: `[rows, inputs]`, `y`: `[rows, outputs]`.
    ///
    /// # Panics
    /// When a slice has another length.
    pub fn multiply(
        &self,
        pool: &Pool,
        x: &[f32],
        rows: usize,
        y: &mut [f32],
        workspace: &mut MatrixWorkspace,
    ) {
        multiply_many(pool, x, rows, &mut [Product { matrix: self, y, accumulate: false }], workspace);
    }

    /// Row `index` of the matrix as f32, as it is stored.
    ///
    /// # Panics
    /// When `index` is not below `outputs`, or `values` is not `inputs` long.
    pub fn row(&self, index: usize, values: &mut [f32]) {
        assert!(index < self.outputs && values.len() == self.inputs);
        let row_bytes = self.row_bytes();
        unpack::unpack_row(self.stored.dtype, &self.stored.bytes[index * row_bytes..][..row_bytes], values);
    }

    fn row_bytes(&self) -> usize {
        self.stored.bytes.len() / self.outputs
    }

    fn n_panels(&self) -> usize {
        self.outputs.div_ceil(LANES)
    }
}

/// Bytes of a matrix in packed form: what [`Matrix::size_bytes`] will be, for any activations.
pub fn packed_bytes(dtype: TensorType, outputs: usize, inputs: usize) -> usize {
    let n_panels = outputs.div_ceil(LANES);
    match Format::of(dtype, Activations::Sixteen) {
        Some(format) => n_panels * format.panel_bytes(inputs.div_ceil(BLOCK)),
        None => n_panels * inputs * LANES * size_of::<f32>(),
    }
}

/// Stored bytes of the outputs of panel `index`.
fn rows_of_panel<'a>(stored: &TensorView<'a>, row_bytes: usize, index: usize) -> &'a [u8] {
    let from = index * LANES * row_bytes;
    let to = (from + LANES * row_bytes).min(stored.bytes.len());
    &stored.bytes[from..to]
}

fn pack_integers(arena: &Arena, stored: &TensorView<'_>, format: Format, isa: Isa, pool: &Pool) -> Packed {
    let (outputs, inputs) = (stored.shape[0], stored.shape[1]);
    let row_bytes = stored.bytes.len() / outputs;
    let n_panels = outputs.div_ceil(LANES);
    let n_blocks = inputs.div_ceil(BLOCK);
    let panel_bytes = format.panel_bytes(n_blocks);
    let mut panels = arena.zeroed(n_panels * panel_bytes);
    let shared = SharedMut::new(&mut panels);
    pool.for_each(n_panels, 4, |range| {
        for index in range {
            // SAFETY: panels are disjoint, each is packed by one call.
            let panel = unsafe { shared.slice(index * panel_bytes, panel_bytes) };
            let rows = rows_of_panel(stored, row_bytes, index);
            isa.vectorise(RepackPanel { dtype: stored.dtype, format, rows, row_bytes, n_blocks, panel });
        }
    });
    Packed::Integers { format, n_blocks, panels }
}

fn pack_floats(arena: &Arena, stored: &TensorView<'_>, pool: &Pool) -> Packed {
    let (outputs, inputs) = (stored.shape[0], stored.shape[1]);
    let row_bytes = stored.bytes.len() / outputs;
    let n_panels = outputs.div_ceil(LANES);
    let mut panels = arena.zeroed(n_panels * inputs * LANES);
    let shared = SharedMut::new(&mut panels);
    pool.for_each(n_panels, 4, |range| {
        for index in range {
            // SAFETY: as in `pack_integers`.
            let panel = unsafe { shared.slice(index * inputs * LANES, inputs * LANES) };
            float::repack_panel(rows_of_panel(stored, row_bytes, index), inputs, panel);
        }
    });
    Packed::Floats(panels)
}
