//! The kernels in plain Rust: what the others must equal to the last bit.

use super::expand::{Expanded, expand};
use super::format::{Format, LANES, PAIRS};
use super::kernels::{ExpandedTile, StreamRow, TILE_LANES, TileOperands};
use super::rows::TILE_ROWS;

/// Products of a pair of packed activations and a pair of weights, added up.
#[inline(always)]
fn dot(x: u32, even: i16, odd: i16) -> i32 {
    i32::from(x as i16) * i32::from(even) + i32::from((x >> 16) as i16) * i32::from(odd)
}

/// Adds to `sums` (`[R, 64]`) the products of `R` rows with a tile.
pub fn tile<const R: usize, const MINIMA: bool>(
    x: &TileOperands<'_>,
    w: &ExpandedTile,
    sums: &mut [f32; TILE_ROWS * TILE_LANES],
) {
    for block in 0..w.n_blocks() {
        let (words, scales, minima) = w.block(block);
        for row in 0..R {
            let mut products = [0i32; TILE_LANES];
            for (pair, words) in words.chunks_exact(2 * TILE_LANES).enumerate() {
                let x = x.pairs[(block * PAIRS + pair) * R + row];
                for (product, [even, odd]) in products.iter_mut().zip(words.as_chunks::<2>().0) {
                    *product += dot(x, *even, *odd);
                }
            }
            let row_sum = x.sums[block * R + row];
            let sums = &mut sums[row * TILE_LANES..][..TILE_LANES];
            for (lane, sum) in sums.iter_mut().enumerate() {
                *sum = scales[lane].mul_add(products[lane] as f32, *sum);
                if MINIMA {
                    *sum = minima[lane].mul_add(row_sum, *sum);
                }
            }
        }
    }
}

/// Sets `sums` to the products of `R` rows with the 16 outputs of a panel.
#[inline(always)]
pub fn stream<const R: usize>(
    format: Format,
    panel: &[u8],
    n_blocks: usize,
    rows: &[StreamRow<'_>; R],
    sums: &mut [[f32; LANES]; R],
) {
    *sums = [[0.0; LANES]; R];
    let mut record = Expanded::ZERO;
    for block in 0..n_blocks {
        expand(format, panel, block, &mut record);
        for (row, sums) in rows.iter().zip(sums.iter_mut()) {
            let mut products = [0i32; LANES];
            for (pair, words) in record.words.chunks_exact(2 * LANES).enumerate() {
                let x = row.pairs[block * PAIRS + pair];
                for (product, [even, odd]) in products.iter_mut().zip(words.as_chunks::<2>().0) {
                    *product += dot(x, *even, *odd);
                }
            }
            for (lane, sum) in sums.iter_mut().enumerate() {
                *sum = record.scales[lane].mul_add(products[lane] as f32, *sum);
                if format.scales().has_minimum() {
                    *sum = record.minima[lane].mul_add(row.sums[block], *sum);
                }
            }
        }
    }
}
