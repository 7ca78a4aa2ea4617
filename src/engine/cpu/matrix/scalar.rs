//! The kernels in plain Rust: what the others must equal to the last bit.

use super::byte_rows::ByteRow;
use super::expand::{Expanded, expand};
use super::format::{BLOCK, Format, LANES};
use super::kernels::{ExpandedTile, TILE_LANES};
use super::rows::{PackedRow, TILE_ROWS};

/// Products of a pair of packed activations and a pair of weights, added up.
#[inline(always)]
fn dot(x: [i16; 2], w: [i16; 2]) -> i32 {
    i32::from(x[0]) * i32::from(w[0]) + i32::from(x[1]) * i32::from(w[1])
}

/// Adds to `sums` (`[R, 64]`) the products of `R` rows with a tile.
pub fn tile<const R: usize, const MINIMA: bool>(
    rows: &[PackedRow<'_>; R],
    w: &ExpandedTile,
    sums: &mut [f32; TILE_ROWS * TILE_LANES],
) {
    for block in 0..w.n_blocks() {
        let (words, scales, minima) = w.block(block);
        for (row, sums) in rows.iter().zip(sums.as_chunks_mut::<TILE_LANES>().0) {
            let x = row.integers[block * BLOCK..].as_chunks::<2>().0;
            let mut products = [0i32; TILE_LANES];
            for (x, words) in x.iter().zip(words.chunks_exact(2 * TILE_LANES)) {
                for (product, words) in products.iter_mut().zip(words.as_chunks::<2>().0) {
                    *product += dot(*x, *words);
                }
            }
            let row_sum = row.sums[block];
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
    rows: &[PackedRow<'_>; R],
    sums: &mut [[f32; LANES]; R],
) {
    *sums = [[0.0; LANES]; R];
    let mut record = Expanded::ZERO;
    for block in 0..n_blocks {
        expand(format, panel, block, &mut record);
        for (row, sums) in rows.iter().zip(sums.iter_mut()) {
            let x = row.integers[block * BLOCK..].as_chunks::<2>().0;
            let mut products = [0i32; LANES];
            for (x, words) in x.iter().zip(record.words.chunks_exact(2 * LANES)) {
                for (product, words) in products.iter_mut().zip(words.as_chunks::<2>().0) {
                    *product += dot(*x, *words);
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

/// Products of one block of a row of 8-bit activations with expanded words `[pair, lane, 2]` of as many outputs as there
/// are products.
#[inline(always)]
fn products_by_eight(row: &ByteRow<'_>, block: usize, words: &[i16], products: &mut [i32]) {
    products.fill(0);
    let x = row.block(block);
    for (x, words) in x.as_chunks::<2>().0.iter().zip(words.chunks_exact(2 * products.len())) {
        let x = x.map(i16::from);
        for (product, words) in products.iter_mut().zip(words.as_chunks::<2>().0) {
            *product += dot(x, *words);
        }
    }
}

/// As [`tile`], with 8-bit activations.
pub fn tile_by_eight<const R: usize, const MINIMA: bool>(
    rows: &[PackedRow<'_>; R],
    w: &ExpandedTile,
    sums: &mut [f32; TILE_ROWS * TILE_LANES],
) {
    let mut products = [0i32; TILE_LANES];
    for block in 0..w.n_blocks() {
        let (words, scales, minima) = w.block(block);
        for (row, sums) in rows.iter().zip(sums.as_chunks_mut::<TILE_LANES>().0) {
            products_by_eight(&row.bytes, block, words, &mut products);
            let at = row.bytes.at(block);
            let (factor, value) = (row.bytes.factors[at], row.bytes.values[at]);
            for (lane, sum) in sums.iter_mut().enumerate() {
                *sum = (scales[lane] * factor).mul_add(products[lane] as f32, *sum);
                if MINIMA {
                    *sum = minima[lane].mul_add(value, *sum);
                }
            }
        }
    }
}

/// As [`stream`], with 8-bit activations.
pub fn stream_by_eight<const R: usize>(
    format: Format,
    panel: &[u8],
    n_blocks: usize,
    rows: &[PackedRow<'_>; R],
    sums: &mut [[f32; LANES]; R],
) {
    *sums = [[0.0; LANES]; R];
    let mut record = Expanded::ZERO;
    let mut products = [0i32; LANES];
    for block in 0..n_blocks {
        expand(format, panel, block, &mut record);
        for (row, sums) in rows.iter().zip(sums.iter_mut()) {
            products_by_eight(&row.bytes, block, &record.words, &mut products);
            let at = row.bytes.at(block);
            let (factor, value) = (row.bytes.factors[at], row.bytes.values[at]);
            for (lane, sum) in sums.iter_mut().enumerate() {
                *sum = (record.scales[lane] * factor).mul_add(products[lane] as f32, *sum);
                if format.scales().has_minimum() {
                    *sum = record.minima[lane].mul_add(value, *sum);
                }
            }
        }
    }
}
