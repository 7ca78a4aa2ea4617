//! Activations in 8 bits: each block of 32 becomes integers of magnitude at most 127 and one scale.

use super::format::BLOCK;
use super::rows::TILE_ROWS;
use crate::engine::cpu::aligned::Aligned;
use crate::engine::cpu::isa::{Isa, Vectorised};
use crate::engine::cpu::pool::Pool;
use crate::engine::cpu::shared::SharedMut;

/// Largest magnitude of an integer.
pub const BYTE_LIMIT: f32 = 127.0;
/// Smallest largest-magnitude that is not taken for zero: below it the inverse of the scale overflows.
const SMALLEST_MAXIMUM: f32 = 1e-30;

/// Quads of inputs in a block.
pub const QUADS: usize = BLOCK / 4;
/// Bytes of one block of a tile of rows.
const TILE_BYTES: usize = BLOCK * TILE_ROWS;

/// Rows `[rows, in]` as bytes, in tiles of [`TILE_ROWS`], so that a kernel reads all rows of a tile from one address.
#[derive(Default)]
pub struct ByteRows {
    n_blocks: usize,
    /// `[tile, block, quad, row, 4]`
    integers: Aligned<i8>,
    /// Value of one integer step of each block: `[tile, block, row]`. NaN when the block holds anything that is not finite.
    factors: Aligned<f32>,
    /// Sums of the integers of each block: `[tile, block, row]`.
    sums: Aligned<i32>,
    /// Sums of their values, factor times sum: `[tile, block, row]`.
    values: Aligned<f32>,
}

/// Some blocks of one row, as part of its tile; empty when rows are not packed as bytes.
#[derive(Clone, Copy, Default)]
pub struct ByteRow<'a> {
    /// Place of the row in its tile.
    pub row: usize,
    /// `[block, quad, row, 4]` of the tile
    pub integers: &'a [i8],
    /// `[block, row]` of the tile, as the next two
    pub factors: &'a [f32],
    pub sums: &'a [i32],
    pub values: &'a [f32],
}

impl ByteRow<'_> {
    pub fn n_blocks(&self) -> usize {
        self.factors.len() / TILE_ROWS
    }

    /// Integers of a block, in order of the inputs.
    pub fn block(&self, block: usize) -> [i8; BLOCK] {
        let quads = self.integers[block * TILE_BYTES..].as_chunks::<4>().0;
        std::array::from_fn(|k| quads[k / 4 * TILE_ROWS + self.row][k % 4])
    }

    /// Place of a block of this row among `factors`, `sums` and `values`.
    pub fn at(&self, block: usize) -> usize {
        block * TILE_ROWS + self.row
    }

    /// Whether all parts are as long as `n_blocks` blocks need.
    pub fn holds(&self, n_blocks: usize) -> bool {
        let n = n_blocks * TILE_ROWS;
        let lists = self.factors.len() >= n && self.sums.len() >= n && self.values.len() >= n;
        self.row < TILE_ROWS && self.integers.len() >= n_blocks * TILE_BYTES && lists
    }
}

impl ByteRows {
    /// Packs `x`, `[rows, in]`. Any earlier contents are replaced, memory is reused.
    pub fn pack(&mut self, pool: &Pool, isa: Isa, x: &[f32], rows: usize) {
        let inputs = x.len() / rows.max(1);
        let n_blocks = inputs.div_ceil(BLOCK);
        let (tiles, list) = (rows.div_ceil(TILE_ROWS), n_blocks * TILE_ROWS);
        self.n_blocks = n_blocks;
        self.integers.reserve(tiles * n_blocks * TILE_BYTES);
        self.factors.reserve(tiles * list);
        self.sums.reserve(tiles * list);
        self.values.reserve(tiles * list);
        let integers = SharedMut::new(&mut self.integers);
        let factors = SharedMut::new(&mut self.factors);
        let sums = SharedMut::new(&mut self.sums);
        let values = SharedMut::new(&mut self.values);
        pool.for_each(tiles, 2, |range| {
            for tile in range {
                let first = tile * TILE_ROWS * inputs;
                let end = (first + TILE_ROWS * inputs).min(x.len());
                // SAFETY: tiles are disjoint parts of the four buffers, and each is packed by one call.
                let work = unsafe {
                    PackTile {
                        x: &x[first..end],
                        inputs,
                        integers: integers.slice(tile * n_blocks * TILE_BYTES, n_blocks * TILE_BYTES),
                        factors: factors.slice(tile * list, list),
                        sums: sums.slice(tile * list, list),
                        values: values.slice(tile * list, list),
                    }
                };
                isa.vectorise(work);
            }
        });
    }

    /// Blocks `first..first + n_blocks` of a row.
    pub fn row(&self, row: usize, first: usize, n_blocks: usize) -> ByteRow<'_> {
        let at = row / TILE_ROWS * self.n_blocks + first;
        let list = at * TILE_ROWS..(at + n_blocks) * TILE_ROWS;
        ByteRow {
            row: row % TILE_ROWS,
            integers: &self.integers[at * TILE_BYTES..][..n_blocks * TILE_BYTES],
            factors: &self.factors[list.clone()],
            sums: &self.sums[list.clone()],
            values: &self.values[list],
        }
    }
}

struct PackTile<'a> {
    /// `[rows, inputs]`, at most [`TILE_ROWS`] rows
    x: &'a [f32],
    inputs: usize,
    integers: &'a mut [i8],
    factors: &'a mut [f32],
    sums: &'a mut [i32],
    values: &'a mut [f32],
}

impl Vectorised for PackTile<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let quads = self.integers.as_chunks_mut::<4>().0;
        for (row, x) in self.x.chunks_exact(self.inputs).enumerate() {
            for (block, x) in x.chunks(BLOCK).enumerate() {
                let mut integers = [0; BLOCK];
                let (factor, sum) = match x.first_chunk::<BLOCK>() {
                    Some(x) => pack_block(x, &mut integers),
                    None => {
                        let mut padded = [0.0; BLOCK];
                        padded[..x.len()].copy_from_slice(x);
                        pack_block(&padded, &mut integers)
                    }
                };
                let to = quads[block * QUADS * TILE_ROWS + row..].iter_mut().step_by(TILE_ROWS);
                for (to, from) in to.zip(integers.as_chunks::<4>().0) {
                    *to = *from;
                }
                let at = block * TILE_ROWS + row;
                self.factors[at] = factor;
                self.sums[at] = sum;
                self.values[at] = factor * sum as f32;
            }
        }
    }
}

/// Rounds a block to the nearest integers, ties to even: the value of a step, and the sum of the integers.
#[inline(always)]
fn pack_block(x: &[f32; BLOCK], integers: &mut [i8; BLOCK]) -> (f32, i32) {
    /// Adding it leaves the rounded integer in the low bits of the sum.
    const ROUND: f32 = 12_582_912.0;
    let largest_bits = x.iter().fold(0, |all, x| all.max(x.to_bits() & 0x7fff_ffff));
    let largest = f32::from_bits(largest_bits);
    let (factor, inverse) = match largest {
        _ if !largest.is_finite() => (f32::NAN, 0.0),
        _ if largest < SMALLEST_MAXIMUM => (0.0, 0.0),
        _ => (largest / BYTE_LIMIT, BYTE_LIMIT / largest),
    };
    if inverse == 0.0 {
        // Values that are not finite are not numbers to round.
        *integers = [0; BLOCK];
        return (factor, 0);
    }
    let mut sum = 0;
    for (integer, x) in integers.iter_mut().zip(x) {
        let wide = (x * inverse + ROUND).to_bits() as i32 - ROUND.to_bits() as i32;
        *integer = wide as i8;
        sum += wide;
    }
    (factor, sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_rounded_to_its_own_scale() {
        let mut x = [0.0; BLOCK];
        (x[0], x[1], x[2]) = (-12.7, 0.05, 6.26);
        let mut integers = [0; BLOCK];
        let (factor, sum) = pack_block(&x, &mut integers);
        assert_eq!((integers[0], integers[1], integers[2]), (-127, 0, 63));
        assert!((factor - 0.1).abs() < 1e-6);
        assert_eq!(sum, -64);
    }

    #[test]
    fn zeros_and_values_that_are_not_finite_have_no_integers() {
        let mut integers = [1; BLOCK];
        assert_eq!(pack_block(&[0.0; BLOCK], &mut integers), (0.0, 0));
        assert_eq!(integers, [0; BLOCK]);
        let mut x = [1.0; BLOCK];
        x[7] = f32::INFINITY;
        assert!(pack_block(&x, &mut integers).0.is_nan());
        assert_eq!(integers, [0; BLOCK]);
    }
}
