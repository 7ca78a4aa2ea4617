//! Kernels on 256-bit vectors.

use std::arch::x86_64::*;

use super::expand::{Expanded, expand};
use super::format::{BLOCK, Format, LANES, PAIRS};
use super::kernels::{ExpandedTile, TILE_LANES, TILE_PANELS};
use super::rows::{PackedRow, TILE_ROWS};

/// Half panels: vectors of eight outputs.
const HALVES: usize = 2;
const HALF_LANES: usize = LANES / HALVES;

/// Adds to `sums` (`[R, 64]`) the products of `R` rows with a tile, one panel after the other: `R x 2` sums in registers.
///
/// # Safety
/// Needs AVX2 and FMA.
#[target_feature(enable = "avx2,fma,f16c")]
pub unsafe fn tile<const R: usize, const MINIMA: bool>(
    rows: &[PackedRow<'_>; R],
    w: &ExpandedTile,
    sums: &mut [f32; TILE_ROWS * TILE_LANES],
) {
    let n_blocks = w.n_blocks();
    assert!(rows.iter().all(|row| row.n_blocks() == n_blocks));
    for block in 0..n_blocks {
        let (words, scales, minima) = w.block(block);
        for panel in 0..TILE_PANELS {
            let lanes = panel * LANES..(panel + 1) * LANES;
            // SAFETY: rows and tile have as many blocks (checked above); the rest are array lengths.
            unsafe {
                let x = rows.each_ref().map(|row| row.integers[block * BLOCK..].as_ptr());
                let integers = words.as_ptr().add(panel * 2 * LANES);
                let products = products::<R>(x, integers, 2 * TILE_LANES);
                for (r, products) in products.into_iter().enumerate() {
                    let minima = MINIMA.then(|| (minima[lanes.clone()].as_ptr(), rows[r].sums[block]));
                    let to = sums.as_mut_ptr().add(r * TILE_LANES + panel * LANES);
                    apply(products, scales[lanes.clone()].as_ptr(), minima, to);
                }
            }
        }
    }
}

/// Exact products of `R` rows with a block of 16 outputs whose pairs are `stride` words apart.
///
/// # Safety
/// Needs AVX2; each of `x` points to a block of 32 integers, `integers` to 16 vectors of 32 words, `stride` words apart.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn products<const R: usize>(
    x: [*const i16; R],
    mut integers: *const i16,
    stride: usize,
) -> [[__m256i; HALVES]; R] {
    let mut products = [[_mm256_setzero_si256(); HALVES]; R];
    for pair in 0..PAIRS {
        // SAFETY: the caller's promise.
        unsafe {
            let low = _mm256_loadu_si256(integers.cast());
            let high = _mm256_loadu_si256(integers.add(LANES).cast());
            for (r, [low_sum, high_sum]) in products.iter_mut().enumerate() {
                let pair = _mm256_set1_epi32(x[r].cast::<i32>().add(pair).read_unaligned());
                *low_sum = _mm256_add_epi32(*low_sum, _mm256_madd_epi16(pair, low));
                *high_sum = _mm256_add_epi32(*high_sum, _mm256_madd_epi16(pair, high));
            }
            integers = integers.wrapping_add(stride);
        }
    }
    products
}

/// Adds scaled products, and minima times the row's sum, to 16 sums.
///
/// # Safety
/// Needs AVX2 and FMA; the pointers are to 16 values each.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn apply(
    products: [__m256i; HALVES],
    scales: *const f32,
    minima: Option<(*const f32, f32)>,
    sums: *mut f32,
) {
    for (half, product) in products.into_iter().enumerate() {
        let at = half * HALF_LANES;
        // SAFETY: the caller's promise.
        unsafe {
            let to = sums.add(at);
            let scale = _mm256_loadu_ps(scales.add(at));
            let mut sum = _mm256_fmadd_ps(scale, _mm256_cvtepi32_ps(product), _mm256_loadu_ps(to));
            if let Some((minima, row_sum)) = minima {
                sum = _mm256_fmadd_ps(_mm256_loadu_ps(minima.add(at)), _mm256_set1_ps(row_sum), sum);
            }
            _mm256_storeu_ps(to, sum);
        }
    }
}

/// Sets `sums` to the products of `R` rows with the 16 outputs of a panel.
///
/// # Safety
/// Needs AVX2 and FMA.
#[target_feature(enable = "avx2,fma,f16c")]
pub unsafe fn stream<const F: usize, const R: usize>(
    panel: &[u8],
    n_blocks: usize,
    rows: &[PackedRow<'_>; R],
    sums: &mut [[f32; LANES]; R],
) {
    let format = Format::ALL[F];
    *sums = [[0.0; LANES]; R];
    let mut record = Expanded::ZERO;
    for block in 0..n_blocks {
        expand(format, panel, block, &mut record);
        for (row, sums) in rows.iter().zip(sums.iter_mut()) {
            let x = row.integers[block * BLOCK..][..BLOCK].as_ptr();
            let minima = format.scales().has_minimum().then(|| (record.minima.as_ptr(), row.sums[block]));
            // SAFETY: 32 integers, 16 vectors of 32 words, 16 scales, minima and sums.
            unsafe {
                let [products] = products::<1>([x], record.words.as_ptr(), 2 * LANES);
                apply(products, record.scales.as_ptr(), minima, sums.as_mut_ptr());
            }
        }
    }
}
