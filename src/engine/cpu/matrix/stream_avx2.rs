//! Few rows on 256-bit vectors: integers are taken apart in registers, one row of weights in memory after the other.

use std::arch::x86_64::*;

use super::format::{BLOCK, Format, LANES, PAIRS, Scales};
use super::kernels::{AHEAD, Streamed, streamed};
use super::pairs_avx2::{HALF_LANES, Wide, add32, for_each_pair, multiply32};
use super::rows::PackedRow;

/// Products with the first and the last 16 inputs of a block; all in the first where the format scales both alike.
type Sums = [Wide; 2];

/// Adds the products of pair `pair` of each of `R` rows.
///
/// # Safety
/// Needs AVX2; each of `x` points to a block of 32 integers.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn add<const F: usize, const R: usize>(
    sums: &mut [Sums; R],
    x: [*const i16; R],
    pair: usize,
    integers: Wide,
) {
    let part = if two_parts::<F>() { pair / (PAIRS / 2) } else { 0 };
    for (sums, x) in sums.iter_mut().zip(x) {
        // SAFETY: a pair of the block.
        let both = unsafe { _mm256_set1_epi32(x.cast::<i32>().add(pair).read_unaligned()) };
        for (sum, integers) in sums[part].iter_mut().zip(integers) {
            *sum = _mm256_add_epi32(*sum, _mm256_madd_epi16(both, integers));
        }
    }
}

/// Whether the integers of the two halves of a block have scales of their own.
const fn two_parts<const F: usize>() -> bool {
    matches!(Format::ALL[F].scales(), Scales::Six)
}

/// Scales and minima of the eight outputs from `first` on of a record.
///
/// # Safety
/// Needs AVX2 and F16C; `scales` and `header` point to the bytes that the format has there, `first` is 0 or 8.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn scales_of<const F: usize>(scales: *const u8, header: *const u8, first: usize) -> (__m256, __m256) {
    // SAFETY: the loads stay inside what the caller points to.
    unsafe {
        let halves = |at: *const u8| _mm256_cvtph_ps(_mm_loadu_si128(at.add(2 * first).cast()));
        let bytes =
            |at: *const u8| _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64(at.add(first).cast())));
        let zero = _mm256_setzero_ps();
        match Format::ALL[F].scales() {
            Scales::Half => (halves(scales), zero),
            Scales::HalfMin => (halves(scales), halves(scales.add(2 * LANES))),
            Scales::Super => {
                let minima = _mm256_mul_ps(halves(header.add(2 * LANES)), bytes(scales.add(LANES)));
                (_mm256_mul_ps(halves(header), bytes(scales)), minima)
            }
            Scales::Six => (halves(header), zero),
            Scales::Brain => {
                let words = _mm256_cvtepu16_epi32(_mm_loadu_si128(scales.add(2 * first).cast()));
                (_mm256_castsi256_ps(_mm256_slli_epi32::<16>(words)), zero)
            }
            Scales::Single => (_mm256_loadu_ps(scales.cast::<f32>().add(first)), zero),
        }
    }
}

/// The 16 signed bytes of `Scales::Six` from `factors` on, one per 32-bit lane.
///
/// # Safety
/// Needs AVX2; `factors` points to 16 bytes.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn factors(factors: *const u8) -> Wide {
    // SAFETY: eight of the bytes each.
    unsafe {
        let low = _mm_loadl_epi64(factors.cast());
        let high = _mm_loadl_epi64(factors.add(HALF_LANES).cast());
        [_mm256_cvtepi8_epi32(low), _mm256_cvtepi8_epi32(high)]
    }
}

/// Minus the offset of the weights times the sums of the integers of block `block` of a row.
///
/// # Safety
/// Needs AVX2; the row has more than `block` blocks.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn offsets<const F: usize>(row: &PackedRow<'_>, block: usize) -> Sums {
    let offset = Format::ALL[F].offset();
    if offset == 0 {
        return [[_mm256_setzero_si256(); 2]; 2];
    }
    // SAFETY: a row has two half sums for each block.
    let [first, last] = unsafe { [0, 1].map(|half| *row.half_sums.as_ptr().add(block * 2 + half)) };
    let parts = if two_parts::<F>() { [first, last] } else { [first + last, 0] };
    [[_mm256_set1_epi32(-offset * parts[0]); 2], [_mm256_set1_epi32(-offset * parts[1]); 2]]
}

/// Bytes ahead of which a panel is asked for when `P` panels are read side by side.
///
/// With several, the core fetches ahead on its own, from farther and with more requests at a time than instructions can have
/// under way; what is asked for here is what comes next of the same panel, a few hundred bytes at least.
const fn ahead<const F: usize, const P: usize>() -> usize {
    const LEAST: usize = 512;
    let record = Format::ALL[F].record_bytes();
    if P == 1 { AHEAD } else { record * LEAST.div_ceil(record) }
}

/// Sets `sums` to the products of `R` rows with the 16 outputs of each of `P` panels, read side by side.
///
/// # Safety
/// Needs AVX2, FMA and F16C.
#[target_feature(enable = "avx2,fma,f16c")]
pub unsafe fn stream<const F: usize, const R: usize, const P: usize>(
    panels: &[&[u8]; P],
    n_blocks: usize,
    rows: &[PackedRow<'_>; R],
    sums: &mut [[[f32; LANES]; R]; P],
) {
    let format = Format::ALL[F];
    assert!(panels.iter().all(|panel| panel.len() >= format.panel_bytes(n_blocks)));
    for row in rows {
        assert!(row.integers.len() >= n_blocks * BLOCK);
        assert!(row.sums.len() >= n_blocks && row.half_sums.len() >= n_blocks * 2);
    }
    // SAFETY: lengths are checked above.
    unsafe {
        let mut totals = [[[_mm256_setzero_ps(); 2]; R]; P];
        for block in 0..n_blocks {
            let x = rows.each_ref().map(|row| row.integers.as_ptr().add(block * BLOCK));
            for (panel, totals) in panels.iter().zip(&mut totals) {
                let Streamed { quants, scales, header } =
                    streamed::<F>(panel.as_ptr(), block, ahead::<F, P>());
                let mut products = rows.each_ref().map(|row| offsets::<F>(row, block));
                for_each_pair::<F>(quants, |pair, words| add::<F, R>(&mut products, x, pair, words));
                for (r, [mut first, mut last]) in products.into_iter().enumerate() {
                    if two_parts::<F>() {
                        first = multiply32(first, factors(scales));
                        last = multiply32(last, factors(scales.add(LANES)));
                        first = add32(first, last);
                    }
                    for (half, product) in first.into_iter().enumerate() {
                        let (scale, minimum) = scales_of::<F>(scales, header, half * HALF_LANES);
                        let total = &mut totals[r][half];
                        *total = _mm256_fmadd_ps(scale, _mm256_cvtepi32_ps(product), *total);
                        if format.scales().has_minimum() {
                            let row_sum = _mm256_set1_ps(*rows[r].sums.as_ptr().add(block));
                            *total = _mm256_fmadd_ps(minimum, row_sum, *total);
                        }
                    }
                }
            }
        }
        for (totals, sums) in totals.as_flattened().iter().zip(sums.as_flattened_mut()) {
            for (half, total) in totals.iter().enumerate() {
                _mm256_storeu_ps(sums.as_mut_ptr().add(half * HALF_LANES), *total);
            }
        }
    }
}
