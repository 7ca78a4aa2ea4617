//! Activations, quantised once for all matrices that read them.
//!
//! Each row becomes integers of magnitude at most [`ACTIVATION_LIMIT`] (15 bits with the sign) and one scale. For rows
//! of up to 3,800 values that is a smaller error than rounding to bfloat16 even when one value holds all the energy,
//! and some 100 times smaller for ordinary rows. Products with integer weights are then exact until their
//! scales are applied, whatever the instruction set and the order.

use super::format::{ACTIVATION_LIMIT, BLOCK, PAIRS};
use crate::engine::cpu::aligned::Aligned;
use crate::engine::cpu::isa::{Isa, Vectorised};
use crate::engine::cpu::pool::Pool;
use crate::engine::cpu::shared::SharedMut;

/// Rows of a tile of the many-rows kernels.
pub const TILE_ROWS: usize = 6;
/// Smallest largest-magnitude that is not taken for zero: below it the scale's inverse overflows.
const SMALLEST_MAXIMUM: f32 = 1e-30;

/// Rows `[rows, in]` packed for integer products, grouped in tiles of [`PackedRows::tile_rows`] rows.
///
/// A tile of `r` rows (the last one may be shorter) is stored as `[block, pair, r]` words of two 16-bit integers.
#[derive(Default)]
pub struct PackedRows {
    rows: usize,
    n_blocks: usize,
    tile_rows: usize,
    /// Pairs `[tile, block, pair, r]`.
    pairs: Aligned<u32>,
    /// Sums of the integers of each block: `[tile, block, r]`.
    sums: Aligned<f32>,
    /// Sums of the integers of the first and second 16 inputs of each block: `[tile, block, r, 2]`.
    half_sums: Aligned<i32>,
    /// Value of one integer step, per row. NaN when the row holds anything that is not finite.
    steps: Aligned<f32>,
}

/// Where one tile of [`PackedRows`] lies.
#[derive(Clone, Copy)]
pub struct TileOfRows<'a> {
    /// First row and number of rows.
    pub first: usize,
    pub rows: usize,
    /// `[block, pair, rows]`
    pub pairs: &'a [u32],
    /// `[block, rows]`
    pub sums: &'a [f32],
    /// `[block, rows, 2]`
    pub half_sums: &'a [i32],
    /// `[rows]`
    pub steps: &'a [f32],
}

impl PackedRows {
    /// Packs `x`, `[rows, in]`, in tiles of `tile_rows`. Any earlier contents are replaced, memory is reused.
    ///
    /// # Panics
    /// When the length of `x` is not a multiple of `rows`.
    pub fn pack(&mut self, pool: &Pool, isa: Isa, tile_rows: usize, x: &[f32], rows: usize) {
        let inputs = x.len() / rows.max(1);
        assert_eq!(x.len(), rows * inputs, "x must be [rows, inputs]");
        let n_blocks = inputs.div_ceil(BLOCK);
        (self.rows, self.n_blocks, self.tile_rows) = (rows, n_blocks, tile_rows);
        self.pairs.reserve(rows * n_blocks * PAIRS);
        self.sums.reserve(rows * n_blocks);
        self.half_sums.reserve(rows * n_blocks * 2);
        self.steps.reserve(rows);
        let pairs = SharedMut::new(&mut self.pairs);
        let sums = SharedMut::new(&mut self.sums);
        let half_sums = SharedMut::new(&mut self.half_sums);
        let steps = SharedMut::new(&mut self.steps);
        let tile = |index: usize| {
            let first = index * tile_rows;
            let n = tile_rows.min(rows - first);
            // SAFETY: tiles are disjoint parts of the four buffers, and each tile is packed by one call.
            let target = unsafe {
                PackTile {
                    values: &x[first * inputs..][..n * inputs],
                    inputs,
                    pairs: pairs.slice(first * n_blocks * PAIRS, n * n_blocks * PAIRS),
                    sums: sums.slice(first * n_blocks, n * n_blocks),
                    half_sums: half_sums.slice(first * n_blocks * 2, n * n_blocks * 2),
                    steps: steps.slice(first, n),
                }
            };
            isa.vectorise(target);
        };
        if tile_rows == 1 {
            (0..rows).for_each(tile);
        } else {
            let n_tiles = rows.div_ceil(tile_rows);
            pool.for_each(n_tiles, 2, |range| range.for_each(tile));
        }
    }

    /// Value of one integer step, per row.
    pub fn steps(&self) -> &[f32] {
        &self.steps[..self.rows]
    }

    /// Tile `index`.
    pub fn tile(&self, index: usize) -> TileOfRows<'_> {
        let first = index * self.tile_rows;
        let rows = self.tile_rows.min(self.rows - first);
        let (at, n) = (first * self.n_blocks, rows * self.n_blocks);
        TileOfRows {
            first,
            rows,
            pairs: &self.pairs[at * PAIRS..][..n * PAIRS],
            sums: &self.sums[at..][..n],
            half_sums: &self.half_sums[at * 2..][..n * 2],
            steps: &self.steps[first..][..rows],
        }
    }
}

/// Packs one tile of rows.
struct PackTile<'a> {
    /// `[rows, inputs]`
    values: &'a [f32],
    inputs: usize,
    pairs: &'a mut [u32],
    sums: &'a mut [f32],
    half_sums: &'a mut [i32],
    steps: &'a mut [f32],
}

impl Vectorised for PackTile<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        match self.steps.len() {
            1 => self.pack::<1>(),
            2 => self.pack::<2>(),
            3 => self.pack::<3>(),
            4 => self.pack::<4>(),
            5 => self.pack::<5>(),
            _ => self.pack::<TILE_ROWS>(),
        }
    }
}

impl PackTile<'_> {
    #[inline(always)]
    fn pack<const R: usize>(self) {
        let mut inverses = [0.0; R];
        for (row, inverse) in inverses.iter_mut().enumerate() {
            (self.steps[row], *inverse) = step_of(&self.values[row * self.inputs..][..self.inputs]);
        }
        for block in 0..self.sums.len() / R {
            let from = block * BLOCK;
            let n = BLOCK.min(self.inputs - from);
            let mut words = [[0u32; PAIRS]; R];
            for (row, words) in words.iter_mut().enumerate() {
                let mut integers = [0i32; BLOCK];
                let values = &self.values[row * self.inputs + from..][..n];
                // Zero for rows of zeros, and for those that are not finite: their values are not numbers to round.
                if inverses[row] != 0.0 {
                    match values.first_chunk::<BLOCK>() {
                        Some(values) => quantise(values, inverses[row], &mut integers),
                        None => {
                            let mut padded = [0.0; BLOCK];
                            padded[..n].copy_from_slice(values);
                            quantise(&padded, inverses[row], &mut integers);
                        }
                    }
                }
                let low: i32 = integers[..PAIRS].iter().sum();
                let high: i32 = integers[PAIRS..].iter().sum();
                self.sums[block * R + row] = (low + high) as f32;
                self.half_sums[(block * R + row) * 2..][..2].copy_from_slice(&[low, high]);
                for (word, [even, odd]) in words.iter_mut().zip(integers.as_chunks::<2>().0) {
                    *word = (*even as u32 & 0xffff) | (*odd as u32) << 16;
                }
            }
            let pairs = &mut self.pairs[block * PAIRS * R..][..PAIRS * R];
            for (pair, to) in pairs.as_chunks_mut::<R>().0.iter_mut().enumerate() {
                *to = std::array::from_fn(|row| words[row][pair]);
            }
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
