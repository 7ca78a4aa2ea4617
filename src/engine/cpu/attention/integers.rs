//! Attention in 16-bit integers, exact up to the rounding of what enters a product (AVX2).
//!
//! - Queries and keys are rounded to steps of 1/46300 of their norm (or 1/32767 of their largest lane): by Cauchy and
//!   Schwarz their product and every part of its sum stay below 2^31, for heads of up to 4096 lanes.
//! - Values are rounded to steps of 1/16383 of the largest one of their position. That step goes into the weight: what is
//!   rounded is weight times step. The integers of a row in a tile add up to at most 2^17 (and each fits 16 bits), so sums
//!   stay below 2^31.
//!
//! A product of pairs takes 16 terms an instruction, twice what f32 does, and reads half the memory.

use std::arch::x86_64::*;

use super::arithmetic::{Arithmetic, Form, Pairs, ScoredRow};
use crate::engine::cpu::cache::{TILE, key_step, round_to_steps};
use crate::engine::cpu::lanes::{Avx2, Lanes};

/// What the weights of a row in a tile add up to at most; rounding adds less than one a key.
const WEIGHTS: f32 = 131_000.0;

/// The largest weight; rounding of its step leaves it there.
const LARGEST_WEIGHT: f32 = 32_767.0;

/// Sums of pairs of 16-bit integers in 32 bits.
#[derive(Clone, Copy)]
pub struct Integers;

/// 2^x to 3e-6, relative, for x below 128: 2^-126 below that, not a number stays so.
///
/// 2^x = 2^n * p(x - n) with n the nearest integer; p is minimax in relative error on `[-1/2, 1/2]` with p(0) = 1.
///
/// # Safety
/// AVX2 and FMA.
#[inline(always)]
unsafe fn exp2(x: __m256) -> __m256 {
    const P: [f32; 5] = [1.0, 0.693_124_2, 0.240_240_99, 0.055_906_426, 0.009_582_853];
    // SAFETY: the caller's promise.
    unsafe {
        // Adding 1.5 * 2^23 leaves the nearest integer in the low bits.
        let round = _mm256_set1_ps(12_582_912.0);
        // The second operand comes through where one is not a number.
        let x = _mm256_max_ps(_mm256_set1_ps(-126.0), x);
        let n = _mm256_add_ps(x, round);
        let f = _mm256_sub_ps(x, _mm256_sub_ps(n, round));
        let mut y = _mm256_set1_ps(P[4]);
        for &c in P[..4].iter().rev() {
            y = _mm256_fmadd_ps(y, f, _mm256_set1_ps(c));
        }
        let exponent = _mm256_slli_epi32::<23>(_mm256_castps_si256(n));
        _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(y), exponent))
    }
}

/// Reduces each of eight vectors to one lane with an operation on vectors.
macro_rules! reduce {
    ($rows:expr, $op:ident) => {{
        let rows: [__m256; 8] = $rows;
        let mut fours = [_mm256_setzero_ps(); 2];
        for (four, rows) in fours.iter_mut().zip(rows.as_chunks::<4>().0) {
            let a = $op(_mm256_unpacklo_ps(rows[0], rows[1]), _mm256_unpackhi_ps(rows[0], rows[1]));
            let b = $op(_mm256_unpacklo_ps(rows[2], rows[3]), _mm256_unpackhi_ps(rows[2], rows[3]));
            let (a, b) = (_mm256_castps_pd(a), _mm256_castps_pd(b));
            let (low, high) = (_mm256_unpacklo_pd(a, b), _mm256_unpackhi_pd(a, b));
            *four = $op(_mm256_castpd_ps(low), _mm256_castpd_ps(high));
        }
        let low = _mm256_permute2f128_ps::<0x20>(fours[0], fours[1]);
        $op(low, _mm256_permute2f128_ps::<0x31>(fours[0], fours[1]))
    }};
}

/// The step of the integer weights of up to eight rows and its inverse, both 0 where nothing is left of the weights.
///
/// # Safety
/// AVX2; `sums`: `[rows, 2, 8]`, sums and largest weights.
#[inline(always)]
unsafe fn steps(sums: *const f32, rows: usize) -> ([f32; 8], [f32; 8]) {
    let (mut step, mut inverse) = ([0.0; 8], [0.0; 8]);
    // SAFETY: the caller's promise.
    unsafe {
        let (mut all, mut largest) = ([_mm256_setzero_ps(); 8], [_mm256_setzero_ps(); 8]);
        for (row, (all, largest)) in all.iter_mut().zip(&mut largest).take(rows).enumerate() {
            *all = _mm256_loadu_ps(sums.add(row * 16));
            *largest = _mm256_loadu_ps(sums.add(row * 16 + 8));
        }
        let by_sum = _mm256_mul_ps(reduce!(all, _mm256_add_ps), _mm256_set1_ps(1.0 / WEIGHTS));
        let by_largest = _mm256_mul_ps(reduce!(largest, _mm256_max_ps), _mm256_set1_ps(1.0 / LARGEST_WEIGHT));
        // The second operand comes through where one is not a number: the sum, when a weight is none.
        let steps = _mm256_max_ps(by_largest, by_sum);
        // Less would be lost beside the weights of any other tile, and cannot be divided by.
        let lost = _mm256_cmp_ps::<_CMP_LT_OQ>(steps, _mm256_set1_ps(f32::MIN_POSITIVE));
        let inverses = _mm256_div_ps(_mm256_set1_ps(1.0), steps);
        _mm256_storeu_ps(step.as_mut_ptr(), _mm256_andnot_ps(lost, steps));
        _mm256_storeu_ps(inverse.as_mut_ptr(), _mm256_andnot_ps(lost, inverses));
    }
    (step, inverse)
}

// SAFETY: AVX2 instructions only.
#[allow(unsafe_op_in_unsafe_fn)]
unsafe impl Pairs for Integers {
    type L = Avx2;
    type E = i16;
    type V = __m256i;
    type Acc = __m256i;
    const PAIRS: usize = 8;
    const PARTS: usize = 1;
    const MAX_ROWS: usize = 6;
    const COLUMNS: usize = 2;
    const FORM: Form = Form::Integers;
    const GROUPS: usize = 4;
    const AHEAD: bool = true;

    #[inline(always)]
    unsafe fn load(from: *const i16) -> __m256i {
        _mm256_loadu_si256(from.cast())
    }

    #[inline(always)]
    unsafe fn pair(from: *const i16) -> __m256i {
        _mm256_set1_epi32(from.cast::<i32>().read_unaligned())
    }

    #[inline(always)]
    unsafe fn zero() -> __m256i {
        _mm256_setzero_si256()
    }

    #[inline(always)]
    unsafe fn dot(acc: __m256i, a: __m256i, b: __m256i) -> __m256i {
        _mm256_add_epi32(acc, _mm256_madd_epi16(a, b))
    }

    #[inline(always)]
    unsafe fn pack(to: *mut i16, a: __m256, b: __m256) {
        let halves = _mm256_packs_epi32(_mm256_cvtps_epi32(a), _mm256_cvtps_epi32(b));
        _mm256_storeu_si256(to.cast(), _mm256_permute4x64_epi64::<0b11_01_10_00>(halves));
    }

    #[inline(always)]
    fn round(x: f32) -> i16 {
        x.round_ties_even() as i16
    }
}

/// [`Arithmetic::weigh`]; `PARTLY`: only the keys from..to are seen.
///
/// # Safety
/// As there.
#[inline(always)]
unsafe fn weigh_keys<const PARTLY: bool>(
    row: &ScoredRow<Integers>,
    (from, to): (usize, usize),
    mut total: __m256,
) -> __m256 {
    // SAFETY: the caller's promise; a row is whole pairs of vectors.
    unsafe {
        let base = _mm256_set1_ps(row.base);
        let (mut sum, mut largest) = (_mm256_setzero_ps(), _mm256_setzero_ps());
        for key in (0..row.width).step_by(8) {
            let at = row.scores.add(key);
            let mut weight = exp2(_mm256_sub_ps(_mm256_loadu_ps(at), base));
            let mut scaled = _mm256_mul_ps(weight, _mm256_loadu_ps(row.value_scales.add(key)));
            if PARTLY {
                // A scale that the row does not see may be no number.
                let (from, to) = (from.saturating_sub(key), to.saturating_sub(key));
                weight = Avx2::keep(weight, from, to, _mm256_setzero_ps());
                scaled = Avx2::keep(scaled, from, to, _mm256_setzero_ps());
            }
            total = _mm256_add_ps(total, weight);
            sum = _mm256_add_ps(sum, scaled);
            largest = _mm256_max_ps(largest, scaled);
            _mm256_storeu_ps(at, scaled);
        }
        _mm256_storeu_ps(row.sums, sum);
        _mm256_storeu_ps(row.sums.add(8), largest);
    }
    total
}

// SAFETY: AVX2 and FMA instructions only.
#[allow(unsafe_op_in_unsafe_fn)]
unsafe impl Arithmetic for Integers {
    #[inline(always)]
    unsafe fn scores(sums: [__m256i; 2], keys: *const f32, query: *const f32) -> __m256 {
        let scale = _mm256_mul_ps(_mm256_loadu_ps(keys), _mm256_set1_ps(*query));
        _mm256_mul_ps(_mm256_cvtepi32_ps(sums[0]), scale)
    }

    #[inline(always)]
    unsafe fn pack_query(to: *mut i16, values: &[f32]) -> f32 {
        let to = std::slice::from_raw_parts_mut(to, values.len());
        round_to_steps(values, to, key_step(values))
    }

    #[inline(always)]
    unsafe fn weigh(row: &ScoredRow<Self>, total: __m256) -> __m256 {
        match row.partly {
            None => weigh_keys::<false>(row, (0, row.width), total),
            Some(seen) => weigh_keys::<true>(row, seen, total),
        }
    }

    #[inline(always)]
    unsafe fn finish(first: &ScoredRow<Self>, widths: &[usize], scales: &mut [f32]) {
        for (eight, (widths, scales)) in widths.chunks(8).zip(scales.chunks_mut(8)).enumerate() {
            let (steps, inverses) = steps(first.sums.add(eight * 8 * 16), widths.len());
            scales.copy_from_slice(&steps[..scales.len()]);
            for (row, (&width, inverse)) in (eight * 8..).zip(widths.iter().zip(inverses)) {
                let (scores, weights) = (first.scores.add(row * TILE), first.weights.add(row * TILE));
                let inverse = _mm256_set1_ps(inverse);
                for key in (0..width).step_by(16) {
                    let at = scores.add(key);
                    let a = _mm256_mul_ps(_mm256_loadu_ps(at), inverse);
                    let b = _mm256_mul_ps(_mm256_loadu_ps(at.add(8)), inverse);
                    Self::pack(weights.add(key), a, b);
                }
            }
        }
    }

    #[inline(always)]
    unsafe fn begin(_mixed: *const f32, _factor: Option<f32>) -> __m256i {
        _mm256_setzero_si256()
    }

    #[inline(always)]
    unsafe fn end(acc: __m256i, mixed: *const f32, factor: Option<f32>, scale: f32) -> __m256 {
        let (mixed, sums) = (_mm256_loadu_ps(mixed), _mm256_cvtepi32_ps(acc));
        let mixed = match factor {
            Some(factor) => _mm256_mul_ps(mixed, _mm256_set1_ps(factor)),
            None => mixed,
        };
        _mm256_fmadd_ps(sums, _mm256_set1_ps(scale), mixed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::cpu::isa::Isa;

    /// # Safety
    /// AVX2 and FMA.
    #[target_feature(enable = "avx2,fma")]
    unsafe fn powers(x: [f32; 8]) -> [f32; 8] {
        let mut y = [0.0; 8];
        // SAFETY: eight values each.
        unsafe { _mm256_storeu_ps(y.as_mut_ptr(), exp2(_mm256_loadu_ps(x.as_ptr()))) };
        y
    }

    #[test]
    fn powers_of_two_keep_their_stated_error() {
        if Isa::detect() < Isa::Avx2Fma {
            return;
        }
        let mut worst = 0.0f64;
        for step in 0..1 << 17 {
            let x =
                std::array::from_fn(|lane| -126.0 + (step * 8 + lane) as f32 * (166.0 / (1 << 20) as f32));
            // SAFETY: the CPU was asked.
            let y = unsafe { powers(x) };
            for (x, y) in x.into_iter().zip(y) {
                worst = worst.max((f64::from(y) / f64::from(x).exp2() - 1.0).abs());
            }
        }
        assert!(worst <= 3e-6, "{worst}");
        let nan = f32::NAN;
        // SAFETY: as above.
        let ends = unsafe { powers([0.0, -1.0, 3.0, -126.0, -500.0, f32::NEG_INFINITY, nan, f32::INFINITY]) };
        let least = f32::MIN_POSITIVE;
        assert_eq!(ends[..6], [1.0, 0.5, 8.0, least, least, least]);
        assert!(ends[6].is_nan() && ends[7].is_nan());
    }
}
