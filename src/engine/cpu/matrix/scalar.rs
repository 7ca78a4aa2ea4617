//! The kernels in plain Rust: what the others must equal to the last bit.

use super::expand::{Expanded, expand};
use super::format::{BLOCK, Format, LANES};
use super::kernels::{ExpandedTile, TILE_LANES};
use super::rows::{PackedRow, TILE_ROWS};

/// One block of a row of activations.
struct RowBlock {
    integers: [i16; BLOCK],
    /// Value of one integer step, where it belongs to the block; else 1.
    factor: f32,
    /// Sum of the values, in the unit that minima are multiplied by.
    sum: f32,
}

impl RowBlock {
    /// `eight`: the activations of 8 bits.
    #[inline(always)]
    fn new(row: &PackedRow<'_>, block: usize, eight: bool) -> Self {
        if eight {
            let (bytes, at) = (row.bytes, row.bytes.at(block));
            let integers = bytes.block(block).map(i16::from);
            return Self { integers, factor: bytes.factors[at], sum: bytes.values[at] };
        }
        let integers = std::array::from_fn(|k| row.integers[block * BLOCK + k]);
        Self { integers, factor: 1.0, sum: row.sums[block] }
    }

    /// Adds the products with expanded `words`, `[pair, lane, 2]`, to `N` sums.
    #[inline(always)]
    fn add<const N: usize, const MINIMA: bool>(
        &self,
        words: &[i16],
        scales: &[f32; N],
        minima: &[f32; N],
        sums: &mut [f32; N],
    ) {
        let mut products = [0i32; N];
        for (x, words) in self.integers.as_chunks::<2>().0.iter().zip(words.chunks_exact(2 * N)) {
            for (product, w) in products.iter_mut().zip(words.as_chunks::<2>().0) {
                *product += i32::from(x[0]) * i32::from(w[0]) + i32::from(x[1]) * i32::from(w[1]);
            }
        }
        for (lane, sum) in sums.iter_mut().enumerate() {
            *sum = (scales[lane] * self.factor).mul_add(products[lane] as f32, *sum);
            if MINIMA {
                *sum = minima[lane].mul_add(self.sum, *sum);
            }
        }
    }
}

/// Adds to `sums` (`[R, 64]`) the products of `R` rows with a tile; `EIGHT`: activations of 8 bits.
#[inline(always)]
fn tile_of<const R: usize, const MINIMA: bool, const EIGHT: bool>(
    rows: &[PackedRow<'_>; R],
    w: &ExpandedTile,
    sums: &mut [f32; TILE_ROWS * TILE_LANES],
) {
    for block in 0..w.n_blocks() {
        let (words, scales, minima) = w.block(block);
        for (row, sums) in rows.iter().zip(sums.as_chunks_mut::<TILE_LANES>().0) {
            RowBlock::new(row, block, EIGHT).add::<TILE_LANES, MINIMA>(words, scales, minima, sums);
        }
    }
}

/// As [`tile_of`], with activations of 15 bits.
pub fn tile<const R: usize, const MINIMA: bool>(
    rows: &[PackedRow<'_>; R],
    w: &ExpandedTile,
    sums: &mut [f32; TILE_ROWS * TILE_LANES],
) {
    tile_of::<R, MINIMA, false>(rows, w, sums);
}

/// As [`tile_of`], with activations of 8 bits.
pub fn tile_by_eight<const R: usize, const MINIMA: bool>(
    rows: &[PackedRow<'_>; R],
    w: &ExpandedTile,
    sums: &mut [f32; TILE_ROWS * TILE_LANES],
) {
    tile_of::<R, MINIMA, true>(rows, w, sums);
}

/// Sets `sums` to the products of `R` rows with the 16 outputs of a panel; the format says which activations.
#[inline(always)]
pub fn stream<const R: usize>(
    format: Format,
    panel: &[u8],
    n_blocks: usize,
    rows: &[PackedRow<'_>; R],
    sums: &mut [[f32; LANES]; R],
) {
    *sums = [[0.0; LANES]; R];
    let mut record = Expanded::ZERO;
    for block in 0..n_blocks {
        expand(format, panel, block, &mut record);
        let Expanded { words, scales, minima } = &record;
        for (row, sums) in rows.iter().zip(sums.iter_mut()) {
            let row = RowBlock::new(row, block, format.by_eight());
            if format.scales().has_minimum() {
                row.add::<LANES, true>(words, scales, minima, sums);
            } else {
                row.add::<LANES, false>(words, scales, minima, sums);
            }
        }
    }
}
