//! Kernels on 256-bit vectors.

use std::arch::x86_64::*;

use super::expand::{Expanded, WORDS, finish};
use super::format::{BLOCK, Format, LANES, PAIRS};
use super::kernels::{ExpandedTile, TILE_LANES, TILE_PANELS};
use super::pairs_avx2::{HALF_LANES, for_each_pair, splat, sub16};
use super::rows::{PackedRow, TILE_ROWS};

/// Half panels: vectors of eight outputs.
const HALVES: usize = 2;

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
    assert!(rows.iter().all(|row| row.sums.len() == n_blocks));
    for block in 0..n_blocks {
        let (words, scales, minima) = w.block(block);
        for panel in 0..TILE_PANELS {
            // SAFETY: rows and tile have as many blocks (checked above); the rest are array lengths.
            unsafe {
                let x = rows.each_ref().map(|row| row.integers[block * BLOCK..].as_ptr());
                let integers = words.as_ptr().add(panel * 2 * LANES);
                let products = products::<R>(x, integers);
                for (r, products) in products.into_iter().enumerate() {
                    let to = sums.as_mut_ptr().add(r * TILE_LANES + panel * LANES);
                    apply(products, scales.as_ptr().add(panel * LANES), to);
                    if MINIMA {
                        let row_sum = *rows[r].sums.as_ptr().add(block);
                        add_minima(minima.as_ptr().add(panel * LANES), row_sum, to);
                    }
                }
            }
        }
    }
}

/// Exact products of `R` rows with a block of 16 outputs of a tile.
///
/// # Safety
/// Needs AVX2; each of `x` points to a block of 32 integers, `integers` to 16 vectors of 32 words, a row of the tile apart.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn products<const R: usize>(x: [*const i16; R], mut integers: *const i16) -> [[__m256i; HALVES]; R] {
    let mut products = [[_mm256_setzero_si256(); HALVES]; R];
    for pair in 0..PAIRS {
        // SAFETY: the caller's promise.
        unsafe {
            let low = _mm256_loadu_si256(integers.cast());
            let high = _mm256_loadu_si256(integers.add(LANES).cast());
            // Asks for the same of the next block.
            _mm_prefetch::<_MM_HINT_T0>(integers.wrapping_add(TILE_PANELS * WORDS).cast());
            for (r, [low_sum, high_sum]) in products.iter_mut().enumerate() {
                let pair = _mm256_set1_epi32(x[r].cast::<i32>().add(pair).read_unaligned());
                *low_sum = _mm256_add_epi32(*low_sum, _mm256_madd_epi16(pair, low));
                *high_sum = _mm256_add_epi32(*high_sum, _mm256_madd_epi16(pair, high));
            }
            integers = integers.wrapping_add(2 * TILE_LANES);
        }
    }
    products
}

/// Adds scaled products to 16 sums.
///
/// # Safety
/// Needs AVX2 and FMA; the pointers are to 16 values each.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn apply(products: [__m256i; HALVES], scales: *const f32, sums: *mut f32) {
    for (half, product) in products.into_iter().enumerate() {
        let at = half * HALF_LANES;
        // SAFETY: the caller's promise.
        unsafe {
            let sum = _mm256_loadu_ps(sums.add(at));
            let sum = _mm256_fmadd_ps(_mm256_loadu_ps(scales.add(at)), _mm256_cvtepi32_ps(product), sum);
            _mm256_storeu_ps(sums.add(at), sum);
        }
    }
}

/// Adds minima times the sum of a row's integers to 16 sums.
///
/// # Safety
/// Needs AVX2 and FMA; the pointers are to 16 values each.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn add_minima(minima: *const f32, row_sum: f32, sums: *mut f32) {
    for at in [0, HALF_LANES] {
        // SAFETY: the caller's promise.
        unsafe {
            let sum = _mm256_loadu_ps(sums.add(at));
            let sum = _mm256_fmadd_ps(_mm256_loadu_ps(minima.add(at)), _mm256_set1_ps(row_sum), sum);
            _mm256_storeu_ps(sums.add(at), sum);
        }
    }
}

/// Expands records `first..` of one panel into column group `place` of a tile.
///
/// # Safety
/// Needs AVX2 and FMA.
#[target_feature(enable = "avx2,fma,f16c")]
pub unsafe fn fill<const F: usize>(panel: &[u8], first: usize, place: usize, to: &mut ExpandedTile) {
    let mut record = Expanded::ZERO;
    for block in 0..to.n_blocks() {
        // SAFETY: the features of this function.
        unsafe { expand::<F>(panel, first + block, &mut record) };
        to.put(block, place, &record);
    }
}

/// Expands record `block` of `panel`.
///
/// # Safety
/// Needs AVX2 and FMA.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn expand<const F: usize>(panel: &[u8], block: usize, to: &mut Expanded) {
    let format = Format::ALL[F];
    let record = &panel[format.record_at(block)..][..format.record_bytes()];
    let (quants, scales) = record.split_at(format.quants().size_bytes());
    let header = &panel[format.header_at(block)..][..format.scales().header_bytes()];
    // SAFETY: `quants` is as long as the format says; the features of this function.
    unsafe {
        let offset = splat(format.offset() as i16);
        for_each_pair::<F>(quants.as_ptr(), |pair, integers| {
            let words = to.words[pair * 2 * LANES..][..2 * LANES].as_mut_ptr();
            for (half, integers) in sub16(integers, offset).into_iter().enumerate() {
                _mm256_storeu_si256(words.add(half * LANES).cast(), integers);
            }
        });
    }
    finish(format, scales, header, to);
}
