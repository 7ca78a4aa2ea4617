//! Activations, quantised once for all matrices that read them.
//!
//! Each row becomes integers of magnitude at most [`ACTIVATION_LIMIT`] (15 bits with the sign) and one scale. For rows
//! of up to 3,800 values that is a smaller error than rounding to bfloat16 even when one value holds all the energy,
//! and some 100 times smaller for ordinary rows. Products with integer weights are then exact until their
//! scales are applied, whatever the instruction set and the order.

use super::byte_rows::{ByteRow, ByteRows};
use super::format::{ACTIVATION_LIMIT, BLOCK, PAIRS};
use crate::engine::cpu::aligned::Aligned;
use crate::engine::cpu::isa::{Isa, Vectorised};
use crate::engine::cpu::pool::Pool;
use crate::engine::cpu::shared::SharedMut;

/// Rows of a tile of the many-rows kernels.
pub const TILE_ROWS: usize = 6;
/// Rows that a thread packs before it asks for more work.
const ROWS_PER_PIECE: usize = 16;
/// Smallest largest-magnitude that is not taken for zero: below it the scale's inverse overflows.
const SMALLEST_MAXIMUM: f32 = 1e-30;

/// The forms in which rows are packed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Forms {
    /// 15 bits
    pub words: bool,
    /// 8 bits
    pub bytes: bool,
}

/// Rows `[rows, in]` as integers.
#[derive(Default)]
pub struct PackedRows {
    rows: usize,
    n_blocks: usize,
    /// Distance of rows in `integers`.
    stride: usize,
    /// `[row, stride]`, of which the first whole blocks are used.
    integers: Aligned<i16>,
    /// Sums of the integers of each block: `[row, block]`.
    sums: Aligned<f32>,
    /// Sums of the integers of the first and second 16 inputs of each block: `[row, block, 2]`.
    half_sums: Aligned<i32>,
    /// Value of one integer step, per row. NaN when the row holds anything that is not finite.
    steps: Aligned<f32>,
    /// The same rows in 8 bits.
    bytes: ByteRows,
    forms: Forms,
}

/// Some blocks of one row.
#[derive(Clone, Copy)]
pub struct PackedRow<'a> {
    /// `[block, 32]`
    pub integers: &'a [i16],
    /// `[block]`
    pub sums: &'a [f32],
    /// `[block, 2]`
    pub half_sums: &'a [i32],
    /// The same in 8 bits.
    pub bytes: ByteRow<'a>,
}

impl PackedRows {
    /// Packs `x`, `[rows, in]`, in the given forms. Any earlier contents are replaced, memory is reused.
    ///
    /// # Panics
    /// When the length of `x` is not a multiple of `rows`.
    pub fn pack(&mut self, pool: &Pool, isa: Isa, x: &[f32], rows: usize, forms: Forms) {
        let inputs = x.len() / rows.max(1);
        assert_eq!(x.len(), rows * inputs, "x must be [rows, inputs]");
        (self.rows, self.n_blocks) = (rows, inputs.div_ceil(BLOCK));
        self.forms = forms;
        if forms.bytes {
            self.bytes.pack(pool, isa, x, rows);
        }
        if forms.words {
            self.pack_words(pool, isa, x, rows);
        }
    }

    fn pack_words(&mut self, pool: &Pool, isa: Isa, x: &[f32], rows: usize) {
        let n_blocks = self.n_blocks;
        let inputs = x.len() / rows.max(1);
        // Rows a multiple of a page apart would compete for the same cache sets.
        let page = (n_blocks * BLOCK * size_of::<i16>()).is_multiple_of(4096);
        let stride = (n_blocks + usize::from(page)) * BLOCK;
        self.stride = stride;
        self.integers.reserve(rows * stride);
        self.sums.reserve(rows * n_blocks);
        self.half_sums.reserve(rows * n_blocks * 2);
        self.steps.reserve(rows);
        let integers = SharedMut::new(&mut self.integers);
        let sums = SharedMut::new(&mut self.sums);
        let half_sums = SharedMut::new(&mut self.half_sums);
        let steps = SharedMut::new(&mut self.steps);
        pool.for_each(rows, ROWS_PER_PIECE, |range| {
            for row in range {
                // SAFETY: rows are disjoint parts of the four buffers, and each is packed by one call.
                let work = unsafe {
                    PackRow {
                        values: &x[row * inputs..][..inputs],
                        integers: integers.slice(row * stride, n_blocks * BLOCK),
                        sums: sums.slice(row * n_blocks, n_blocks),
                        half_sums: half_sums.slice(row * n_blocks * 2, n_blocks * 2),
                        step: &mut steps.slice(row, 1)[0],
                    }
                };
                isa.vectorise(work);
            }
        });
    }

    pub fn rows(&self) -> usize {
        self.rows
    }

    pub fn n_blocks(&self) -> usize {
        self.n_blocks
    }

    /// Value of one integer step, per row.
    pub fn steps(&self) -> &[f32] {
        &self.steps[..self.rows]
    }

    /// Blocks `first..first + n_blocks` of a row.
    pub fn row(&self, row: usize, first: usize, n_blocks: usize) -> PackedRow<'_> {
        let at = row * self.n_blocks + first;
        let bytes = if self.forms.bytes { self.bytes.row(row, first, n_blocks) } else { ByteRow::default() };
        if !self.forms.words {
            return PackedRow { integers: &[], sums: &[], half_sums: &[], bytes };
        }
        PackedRow {
            bytes,
            integers: &self.integers[row * self.stride + first * BLOCK..][..n_blocks * BLOCK],
            sums: &self.sums[at..][..n_blocks],
            half_sums: &self.half_sums[at * 2..][..n_blocks * 2],
        }
    }
}

/// Packs one row.
struct PackRow<'a> {
    values: &'a [f32],
    integers: &'a mut [i16],
    sums: &'a mut [f32],
    half_sums: &'a mut [i32],
    step: &'a mut f32,
}

impl Vectorised for PackRow<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let (step, inverse) = step_of(self.values);
        *self.step = step;
        let blocks = self.integers.as_chunks_mut::<BLOCK>().0.iter_mut();
        let sums = self.sums.iter_mut().zip(self.half_sums.as_chunks_mut::<2>().0);
        for (block, (integers, (sum, half_sums))) in blocks.zip(sums).enumerate() {
            let values = &self.values[block * BLOCK..];
            let mut wide = [0i32; BLOCK];
            // Zero for rows of zeros, and for those that are not finite: their values are not numbers to round.
            if inverse != 0.0 {
                match values.first_chunk::<BLOCK>() {
                    Some(values) => quantise(values, inverse, &mut wide),
                    None => {
                        let mut padded = [0.0; BLOCK];
                        padded[..values.len()].copy_from_slice(values);
                        quantise(&padded, inverse, &mut wide);
                    }
                }
            }
            for (integer, wide) in integers.iter_mut().zip(wide) {
                *integer = wide as i16;
            }
            *half_sums = [wide[..PAIRS].iter().sum(), wide[PAIRS..].iter().sum()];
            *sum = (half_sums[0] + half_sums[1]) as f32;
        }
    }
}

/// Value of one integer step for a row, and its inverse.
#[inline(always)]
fn step_of(values: &[f32]) -> (f32, f32) {
    let largest_bits = values.iter().fold(0, |all, x| all.max(x.to_bits() & 0x7fff_ffff));
    let largest = f32::from_bits(largest_bits);
    match largest {
        _ if !largest.is_finite() => (f32::NAN, 0.0),
        _ if largest < SMALLEST_MAXIMUM => (0.0, 0.0),
        _ => (largest / ACTIVATION_LIMIT as f32, ACTIVATION_LIMIT as f32 / largest),
    }
}

/// Rounds `values * inverse`, of magnitude below 2^22, to the nearest integers, ties to even.
#[inline(always)]
fn quantise(values: &[f32; BLOCK], inverse: f32, integers: &mut [i32; BLOCK]) {
    /// Adding it leaves the rounded integer in the low bits of the sum.
    const ROUND: f32 = 12_582_912.0;
    for (integer, value) in integers.iter_mut().zip(values) {
        *integer = (value * inverse + ROUND).to_bits() as i32 - ROUND.to_bits() as i32;
    }
}
