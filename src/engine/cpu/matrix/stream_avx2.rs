//! Few rows on 256-bit vectors: integers are taken apart in registers, eight outputs at a time.

use std::arch::x86_64::*;

use super::format::{BLOCK, Format, LANES, PAIRS, Quants, Scales, nibble_pairs};
use super::kernels::{Streamed, streamed, thirteen};
use super::rows::PackedRow;

/// Outputs of a vector: half a panel.
const HALF_LANES: usize = LANES / 2;
/// Accumulators of a row: products with the first and the last 16 inputs of a block.
type Sums = [__m256i; 2];

/// Adds the products of pair `pair` of each of `R` rows.
///
/// # Safety
/// Needs AVX2; each of `x` points to a block of 32 integers.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn add<const R: usize>(sums: &mut [Sums; R], x: [*const i16; R], pair: usize, integers: __m256i) {
    for (sums, x) in sums.iter_mut().zip(x) {
        // SAFETY: a pair of the block.
        let both = unsafe { _mm256_set1_epi32(x.cast::<i32>().add(pair).read_unaligned()) };
        let sum = &mut sums[pair / (PAIRS / 2)];
        *sum = _mm256_add_epi32(*sum, _mm256_madd_epi16(both, integers));
    }
}

/// Adds the products of `R` rows with the integers of eight outputs of a record, offset not subtracted.
///
/// # Safety
/// Needs AVX2; `quants` points to the first of these outputs in `Format::ALL[F].quants().size_bytes()` bytes, each of `x`
/// to a block of 32 integers.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn products<const F: usize, const R: usize>(
    quants: *const u8,
    x: [*const i16; R],
    sums: &mut [Sums; R],
) {
    // SAFETY: the loads stay inside the record, pairs are below 16.
    unsafe {
        let vector = |index: usize| _mm256_loadu_si256(quants.add(64 * index).cast());
        match Format::ALL[F].quants() {
            Quants::QuadNibble | Quants::QuadByte => {
                unreachable!("quads are multiplied with 8-bit activations")
            }
            Quants::Thirteen => thirteen!(256, vector, |pair, words| add(sums, x, pair, words)),
            Quants::Byte => {
                for s in 0..PAIRS / 2 {
                    let bytes = vector(s);
                    add(sums, x, 2 * s, _mm256_srai_epi16::<8>(_mm256_slli_epi16::<8>(bytes)));
                    add(sums, x, 2 * s + 1, _mm256_srai_epi16::<8>(bytes));
                }
            }
            Quants::Nibble | Quants::Nibble5 | Quants::Nibble6 => {
                let mask = _mm256_set1_epi16(15);
                for s in 0..4 {
                    let word = vector(s);
                    let [a, b, c, d] = nibble_pairs(s);
                    let with_high = |pair: usize, low: __m256i| high_bits::<F>(quants, pair, low);
                    add(sums, x, a, with_high(a, _mm256_and_si256(word, mask)));
                    let second = _mm256_and_si256(_mm256_srli_epi16::<4>(word), mask);
                    add(sums, x, b, with_high(b, second));
                    let third = _mm256_and_si256(_mm256_srli_epi16::<8>(word), mask);
                    add(sums, x, c, with_high(c, third));
                    add(sums, x, d, with_high(d, _mm256_srli_epi16::<12>(word)));
                }
            }
        }
    }
}

/// `low` with the bits above the nibbles of a pair, where the format has any.
///
/// # Safety
/// As [`products`].
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn high_bits<const F: usize>(quants: *const u8, pair: usize, low: __m256i) -> __m256i {
    // Their vector, their place in it, and where they go.
    let (from, at, mask) = match Format::ALL[F].quants() {
        Quants::Nibble5 => (4, pair, 16),
        Quants::Nibble6 => (4 + pair / 8, 2 * (pair % 8), 48),
        _ => return low,
    };
    // SAFETY: the vectors behind those of the nibbles.
    let bits = unsafe { _mm256_loadu_si256(quants.add(64 * from).cast()) };
    let shifted = if at <= 4 {
        _mm256_sll_epi16(bits, _mm_cvtsi32_si128(4 - at as i32))
    } else {
        _mm256_srl_epi16(bits, _mm_cvtsi32_si128(at as i32 - 4))
    };
    _mm256_or_si256(low, _mm256_and_si256(shifted, _mm256_set1_epi16(mask)))
}

/// Scales and minima of eight outputs of a record.
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

/// Signed bytes of `Scales::Six` for the two halves of a record, one per 32-bit lane.
///
/// # Safety
/// Needs AVX2; `scales` points to 32 bytes, `first` is 0 or 8.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn factors(scales: *const u8, first: usize) -> Sums {
    // SAFETY: eight of the bytes of each half.
    unsafe {
        let low = _mm_loadl_epi64(scales.add(first).cast());
        let high = _mm_loadl_epi64(scales.add(LANES + first).cast());
        [_mm256_cvtepi8_epi32(low), _mm256_cvtepi8_epi32(high)]
    }
}

/// Sets `sums` to the products of `R` rows with the 16 outputs of a panel.
///
/// # Safety
/// Needs AVX2, FMA and F16C.
#[target_feature(enable = "avx2,fma,f16c")]
pub unsafe fn stream<const F: usize, const R: usize>(
    panel: &[u8],
    n_blocks: usize,
    rows: &[PackedRow<'_>; R],
    sums: &mut [[f32; LANES]; R],
) {
    let format = Format::ALL[F];
    assert!(panel.len() >= format.panel_bytes(n_blocks));
    for row in rows {
        assert!(row.integers.len() >= n_blocks * BLOCK);
        assert!(row.sums.len() >= n_blocks && row.half_sums.len() >= n_blocks * 2);
    }
    // SAFETY: lengths are checked above.
    unsafe {
        let mut totals = [[_mm256_setzero_ps(); R]; 2];
        for block in 0..n_blocks {
            let Streamed { quants, scales, header } = streamed::<F>(panel.as_ptr(), block);
            let x = rows.each_ref().map(|row| row.integers.as_ptr().add(block * BLOCK));
            for (half, totals) in totals.iter_mut().enumerate() {
                let first = half * HALF_LANES;
                let mut products_of = [[_mm256_setzero_si256(); 2]; R];
                if format.offset() != 0 {
                    for (sums, row) in products_of.iter_mut().zip(rows) {
                        for (part, sum) in sums.iter_mut().enumerate() {
                            let of_row = *row.half_sums.as_ptr().add(block * 2 + part);
                            *sum = _mm256_set1_epi32(-format.offset() * of_row);
                        }
                    }
                }
                products::<F, R>(quants.add(32 * half), x, &mut products_of);
                let (scale, minimum) = scales_of::<F>(scales, header, first);
                for (r, [mut low, mut high]) in products_of.into_iter().enumerate() {
                    if matches!(format.scales(), Scales::Six) {
                        let [a, b] = factors(scales, first);
                        (low, high) = (_mm256_mullo_epi32(low, a), _mm256_mullo_epi32(high, b));
                    }
                    let product = _mm256_cvtepi32_ps(_mm256_add_epi32(low, high));
                    let total = &mut totals[r];
                    *total = _mm256_fmadd_ps(scale, product, *total);
                    if format.scales().has_minimum() {
                        let row_sum = _mm256_set1_ps(*rows[r].sums.as_ptr().add(block));
                        *total = _mm256_fmadd_ps(minimum, row_sum, *total);
                    }
                }
            }
        }
        for (half, totals) in totals.iter().enumerate() {
            for (total, sums) in totals.iter().zip(sums.iter_mut()) {
                _mm256_storeu_ps(sums.as_mut_ptr().add(half * HALF_LANES), *total);
            }
        }
    }
}
