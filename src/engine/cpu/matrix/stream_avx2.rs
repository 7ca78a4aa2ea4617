//! Few rows on 256-bit vectors: integers are taken apart in registers, one row of weights in memory after the other.

use std::arch::x86_64::*;

use super::format::{BLOCK, Format, LANES, PAIRS, Quants, Scales, nibble_pairs};
use super::kernels::{AHEAD, Streamed, streamed, thirteen};
use super::rows::PackedRow;

/// Outputs of a vector: half a panel.
const HALF_LANES: usize = LANES / 2;
/// A value for each of the 16 outputs of a panel, or two words: what lies side by side in memory is used together.
type Wide = [__m256i; 2];
/// Products with the first and the last 16 inputs of a block; all in the first where the format scales both alike.
type Sums = [Wide; 2];

macro_rules! on_both_halves {
    ($($name:ident($($operand:ident),+; $($other:ident: $type:ty)?) = $op:ident $(::<$n:ident>)?;)*) => {$(
        /// The intrinsic on both halves.
        #[inline]
        #[target_feature(enable = "avx2,fma,f16c")]
        fn $name$(<const $n: i32>)?($($operand: Wide,)+ $($other: $type)?) -> Wide {
            [$op$(::<$n>)?($($operand[0],)+ $($other)?), $op$(::<$n>)?($($operand[1],)+ $($other)?)]
        }
    )*};
}

on_both_halves! {
    and(a, b;) = _mm256_and_si256;
    or(a, b;) = _mm256_or_si256;
    add32(a, b;) = _mm256_add_epi32;
    multiply32(a, b;) = _mm256_mullo_epi32;
    shift_left(a; by: __m128i) = _mm256_sll_epi16;
    shift_right(a; by: __m128i) = _mm256_srl_epi16;
    left(a;) = _mm256_slli_epi16::<N>;
    right(a;) = _mm256_srli_epi16::<N>;
    right_signed(a;) = _mm256_srai_epi16::<N>;
}

/// A word in every lane.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn splat(word: i16) -> Wide {
    [_mm256_set1_epi16(word); 2]
}

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

/// Adds to `sums` the products of `R` rows with the integers of a record, offset not subtracted.
///
/// # Safety
/// Needs AVX2; `quants` points to `Format::ALL[F].quants().size_bytes()` bytes, each of `x` to a block of 32 integers.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn products<const F: usize, const R: usize>(
    quants: *const u8,
    x: [*const i16; R],
    sums: &mut [Sums; R],
) {
    // SAFETY: the loads stay inside the record, pairs are below 16.
    unsafe {
        let vector = |index: usize| wide(quants.add(64 * index));
        match Format::ALL[F].quants() {
            Quants::QuadNibble | Quants::QuadByte => {
                unreachable!("quads are multiplied with 8-bit activations")
            }
            Quants::Thirteen => {
                let take = |pair, words| add::<F, R>(sums, x, pair, words);
                thirteen!(vector, take, and, or, shift_left, right_signed, splat)
            }
            Quants::Byte => {
                for s in 0..PAIRS / 2 {
                    let bytes = vector(s);
                    add::<F, R>(sums, x, 2 * s, right_signed::<8>(left::<8>(bytes)));
                    add::<F, R>(sums, x, 2 * s + 1, right_signed::<8>(bytes));
                }
            }
            Quants::Nibble | Quants::Nibble5 | Quants::Nibble6 => {
                let mask = splat(15);
                for s in 0..4 {
                    let word = vector(s);
                    let [a, b, c, d] = nibble_pairs(s);
                    let with_high = |pair: usize, low: Wide| high_bits::<F>(quants, pair, low);
                    add::<F, R>(sums, x, a, with_high(a, and(word, mask)));
                    add::<F, R>(sums, x, b, with_high(b, and(right::<4>(word), mask)));
                    add::<F, R>(sums, x, c, with_high(c, and(right::<8>(word), mask)));
                    add::<F, R>(sums, x, d, with_high(d, right::<12>(word)));
                }
            }
        }
    }
}

/// 64 bytes.
///
/// # Safety
/// Needs AVX2; `from` points to as many.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn wide(from: *const u8) -> Wide {
    // SAFETY: the two halves of what the caller points to.
    unsafe { [_mm256_loadu_si256(from.cast()), _mm256_loadu_si256(from.add(32).cast())] }
}

/// `low` with the bits above the nibbles of a pair, where the format has any.
///
/// # Safety
/// As [`products`].
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn high_bits<const F: usize>(quants: *const u8, pair: usize, low: Wide) -> Wide {
    // Their vector, their place in it, and where they go.
    let (from, at, mask) = match Format::ALL[F].quants() {
        Quants::Nibble5 => (4, pair, 16),
        Quants::Nibble6 => (4 + pair / 8, 2 * (pair % 8), 48),
        _ => return low,
    };
    // SAFETY: the vectors behind those of the nibbles.
    let bits = unsafe { wide(quants.add(64 * from)) };
    let shifted = if at <= 4 {
        shift_left(bits, _mm_cvtsi32_si128(4 - at as i32))
    } else {
        shift_right(bits, _mm_cvtsi32_si128(at as i32 - 4))
    };
    or(low, and(shifted, splat(mask)))
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
                let mut products_of = [[[_mm256_setzero_si256(); 2]; 2]; R];
                for (sums, row) in products_of.iter_mut().zip(rows) {
                    *sums = offsets::<F>(row, block);
                }
                products::<F, R>(quants, x, &mut products_of);
                for (r, [mut first, mut last]) in products_of.into_iter().enumerate() {
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
