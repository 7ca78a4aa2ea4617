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

use super::arithmetic::{Arithmetic, Form, Pairs};
use super::kernel::{Step, by_count};
use super::softmax::raise_base;
use crate::engine::cpu::cache::{TILE, key_step, round_to_steps};
use crate::engine::cpu::lanes::exp_avx2::exp2_of_eighths;
use crate::engine::cpu::lanes::{Avx2, Lanes};

/// What the weights of a row in a tile add up to at most; rounding adds less than one a key.
const WEIGHTS: f32 = 131_000.0;

/// The largest weight; rounding of its step leaves it there.
const LARGEST_WEIGHT: f32 = 32_767.0;

/// Vectors of keys or values that a row is multiplied with at a time: a whole tile of keys. Each comes straight from memory, as
/// the operand of its product: with fewer rows and columns there is more to load, with more rows more to hold in registers.
const VECTORS: usize = 8;

/// Sums of pairs of 16-bit integers in 32 bits.
#[derive(Clone, Copy)]
pub struct Integers;

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
/// No weight is larger than the sum of its lane, and where one stands out, it is little smaller.
///
/// # Safety
/// AVX2; `sums`: `[rows, 8]`, of the weights in each lane.
#[inline(always)]
unsafe fn steps(sums: *const f32, rows: usize) -> ([f32; 8], [f32; 8]) {
    let (mut step, mut inverse) = ([0.0; 8], [0.0; 8]);
    // SAFETY: the caller's promise.
    unsafe {
        let mut all = [_mm256_setzero_ps(); 8];
        for (row, all) in all.iter_mut().enumerate().take(rows) {
            *all = _mm256_loadu_ps(sums.add(row * 8));
        }
        let by_sum = _mm256_mul_ps(reduce!(all, _mm256_add_ps), _mm256_set1_ps(1.0 / WEIGHTS));
        let by_lane = _mm256_mul_ps(reduce!(all, _mm256_max_ps), _mm256_set1_ps(1.0 / LARGEST_WEIGHT));
        // The second operand comes through where one is not a number: the sum, when a weight is none.
        let steps = _mm256_max_ps(by_lane, by_sum);
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
    const PARTS: usize = 1;
    const MAX_ROWS: usize = 1;
    const FORM: Form = Form::Integers;

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

// SAFETY: AVX2 and FMA instructions only.
#[allow(unsafe_op_in_unsafe_fn)]
unsafe impl Arithmetic for Integers {
    const STEP_ROWS: usize = 24;

    #[inline(always)]
    unsafe fn pack_query(to: *mut i16, values: &[f32]) -> f32 {
        let to = std::slice::from_raw_parts_mut(to, values.len());
        round_to_steps(values, to, key_step(values))
    }

    #[inline(always)]
    unsafe fn step(step: &mut Step<'_, Self>) {
        if step.seen.iter().all(|seen| *seen == (0, TILE)) {
            step_whole(step);
        } else {
            step_partly(step);
        }
    }
}

/// [`Arithmetic::step`] of rows that all see the whole tile. On its own, for the sake of its registers.
///
/// # Safety
/// As there.
#[target_feature(enable = "avx2,fma")]
#[inline(never)]
unsafe fn step_whole(step: &mut Step<'_, Integers>) {
    let mut scales = [0.0; Integers::STEP_ROWS];
    let ahead = Ahead::new(step);
    // SAFETY: the caller's promise.
    unsafe {
        for r in 0..step.seen.len() {
            ahead.prefetch(r);
            weigh::<VECTORS, false>(step, r);
        }
        pack_weights::<true>(step, &mut scales);
        for first in (0..step.lanes).step_by(8 * VECTORS) {
            by_count!(VECTORS, ((step.lanes - first) / 8).min(VECTORS), C => {
                for (r, scale) in scales.into_iter().enumerate().take(step.seen.len()) {
                    mix::<C>(step, (r, TILE), scale, first);
                }
            });
        }
    }
}

/// [`Arithmetic::step`] of rows some of which see a part of the tile, or nothing.
///
/// # Safety
/// As there.
#[target_feature(enable = "avx2,fma")]
#[inline(never)]
unsafe fn step_partly(step: &mut Step<'_, Integers>) {
    let mut scales = [0.0; Integers::STEP_ROWS];
    // SAFETY: the caller's promise.
    unsafe {
        for r in 0..step.seen.len() {
            match step.seen[r] {
                (0, TILE) => weigh::<VECTORS, false>(step, r),
                (from, to) if from < to => {
                    by_count!(VECTORS, to.div_ceil(8), C => weigh::<C, true>(step, r));
                }
                _ => {}
            }
        }
        pack_weights::<false>(step, &mut scales);
        for first in (0..step.lanes).step_by(8 * VECTORS) {
            by_count!(VECTORS, ((step.lanes - first) / 8).min(VECTORS), C => {
                for (r, (&(from, to), scale)) in step.seen.iter().zip(scales).enumerate() {
                    if from < to {
                        mix::<C>(step, (r, to), scale, first);
                    }
                }
            });
        }
    }
}

/// Adds the products of a pair and `C` vectors of pairs.
///
/// # Safety
/// AVX2; the elements exist.
#[inline(always)]
unsafe fn add_products<const C: usize>(acc: &mut [__m256i; C], pair: *const i16, vectors: *const i16) {
    // SAFETY: the caller's promise.
    unsafe {
        let pair = _mm256_set1_epi32(pair.cast::<i32>().read_unaligned());
        for (c, sum) in acc.iter_mut().enumerate() {
            let vector = _mm256_loadu_si256(vectors.add(c * 16).cast());
            *sum = _mm256_add_epi32(*sum, _mm256_madd_epi16(pair, vector));
        }
    }
}

/// Asks for the next tile, spread over all rows of the block: asking for all of it at once would wait for memory.
struct Ahead {
    /// Keys and values of the next tile, and lines of them that each row asks for.
    parts: [(*const i16, usize); 2],
    /// Rows of the block before the step.
    first: usize,
}

impl Ahead {
    /// Elements of a cache line.
    const LINE: usize = 32;

    fn new(step: &Step<'_, Integers>) -> Self {
        let part = |from: *const i16, len: usize| {
            (from.wrapping_add(len), (len / Self::LINE).div_ceil(step.block_rows))
        };
        let keys = part(step.products.k, step.products.pairs * 2 * TILE);
        Self { parts: [keys, part(step.v, step.lanes * TILE)], first: step.first }
    }

    #[inline(always)]
    fn prefetch(&self, r: usize) {
        for (from, lines) in self.parts {
            for line in (self.first + r) * lines..(self.first + r + 1) * lines {
                Avx2::prefetch(from.wrapping_add(line * Self::LINE));
            }
        }
    }
}

/// The weights, times the scales of their values, of row `r` for the first `C` vectors of keys, in the place of scores; adds to
/// its total. `PARTLY`: the row does not see all of these keys.
///
/// # Safety
/// As [`Arithmetic::step`].
#[inline(always)]
unsafe fn weigh<const C: usize, const PARTLY: bool>(step: &mut Step<'_, Integers>, r: usize) {
    // SAFETY: passed on from the caller.
    unsafe {
        let products = step.products;
        let mut acc = [_mm256_setzero_si256(); C];
        let (mut q, mut k) = (products.q.add(r * products.pairs * 2), products.k);
        for _ in 0..products.pairs {
            add_products(&mut acc, q, k);
            q = q.add(2);
            k = k.add(2 * TILE);
        }
        let (from, to) = step.seen[r];
        let seen = |c: usize| (from.saturating_sub(c * 8), to.saturating_sub(c * 8));
        // Not negative: the largest score is the largest without it.
        let query_scale = _mm256_set1_ps(*step.query_scales.add(r));
        let mut scores = [_mm256_setzero_ps(); C];
        for (c, score) in scores.iter_mut().enumerate() {
            *score = _mm256_mul_ps(_mm256_cvtepi32_ps(acc[c]), _mm256_loadu_ps(step.key_scales.add(c * 8)));
            if PARTLY {
                let (from, to) = seen(c);
                *score = Avx2::keep(*score, from, to, _mm256_set1_ps(f32::NEG_INFINITY));
            }
        }
        let mut top = scores[0];
        for score in &scores[1..] {
            top = _mm256_max_ps(top, *score);
        }
        let top = _mm256_mul_ps(top, query_scale);
        let total = step.total.add(r * 8);
        let base = &mut step.base[r];
        if let Some(moved) = raise_base::<Avx2>(base, top) {
            let factor = moved.exp2();
            let mixed = std::slice::from_raw_parts_mut(step.mixed.add(r * step.lanes), step.lanes);
            mixed.iter_mut().for_each(|sum| *sum *= factor);
            _mm256_storeu_ps(total, _mm256_mul_ps(_mm256_loadu_ps(total), _mm256_set1_ps(factor)));
        }
        // Before the first score that is not minus infinity: minus infinity less a number, not itself.
        let base = _mm256_set1_ps(8.0 * base.max(f32::MIN / 8.0));
        let query_scale = _mm256_mul_ps(query_scale, _mm256_set1_ps(8.0));
        let (mut weights, mut sum) = (_mm256_loadu_ps(total), _mm256_setzero_ps());
        for (c, score) in scores.into_iter().enumerate() {
            let mut weight = exp2_of_eighths(_mm256_fmsub_ps(score, query_scale, base));
            let mut value_scale = _mm256_loadu_ps(step.value_scales.add(c * 8));
            if PARTLY {
                // A scale that the row does not see may be no number.
                let (from, to) = seen(c);
                weight = Avx2::keep(weight, from, to, _mm256_setzero_ps());
                value_scale = Avx2::keep(value_scale, from, to, _mm256_setzero_ps());
            }
            let scaled = _mm256_mul_ps(weight, value_scale);
            weights = _mm256_add_ps(weights, weight);
            sum = if c == 0 { scaled } else { _mm256_fmadd_ps(weight, value_scale, sum) };
            _mm256_storeu_ps(products.scores.add(r * TILE + c * 8), scaled);
        }
        _mm256_storeu_ps(total, weights);
        _mm256_storeu_ps(step.sums.add(r * 8), sum);
    }
}

/// Rounds the weights of all rows to whole steps and returns the steps. `WHOLE`: all rows see the whole tile.
///
/// # Safety
/// As [`Arithmetic::step`]; [`weigh`] ran for every row that sees a key.
#[inline(always)]
unsafe fn pack_weights<const WHOLE: bool>(step: &Step<'_, Integers>, scales: &mut [f32]) {
    for (eight, (seen, scales)) in step.seen.chunks(8).zip(scales.chunks_mut(8)).enumerate() {
        // SAFETY: the caller's promise.
        unsafe {
            let (steps, inverses) = steps(step.sums.add(eight * 8 * 8), seen.len());
            scales.copy_from_slice(&steps);
            for (row, (&(_, to), inverse)) in (eight * 8..).zip(seen.iter().zip(inverses)) {
                let (scores, weights) = (step.products.scores.add(row * TILE), step.weights.add(row * TILE));
                let inverse = _mm256_set1_ps(inverse);
                for key in (0..if WHOLE { TILE } else { to }).step_by(16) {
                    let at = scores.add(key);
                    let a = _mm256_mul_ps(_mm256_loadu_ps(at), inverse);
                    let b = _mm256_mul_ps(_mm256_loadu_ps(at.add(8)), inverse);
                    Integers::pack(weights.add(key), a, b);
                }
            }
        }
    }
}

/// Adds weights, in steps of `scale`, times values of row `r`, which sees no key from `end` on, for `C` vectors of lanes from
/// `first` on.
///
/// # Safety
/// As [`Arithmetic::step`]; weights of the keys that the row sees, rounded up to a pair, are there.
#[inline(always)]
unsafe fn mix<const C: usize>(step: &Step<'_, Integers>, (r, end): (usize, usize), scale: f32, first: usize) {
    // SAFETY: passed on from the caller.
    unsafe {
        let mut acc = [_mm256_setzero_si256(); C];
        let (mut w, mut v) = (step.weights.add(r * TILE).cast_const(), step.v.add(2 * first));
        for _ in 0..end.div_ceil(2) {
            add_products(&mut acc, w, v);
            w = w.add(2);
            v = v.add(2 * step.lanes);
        }
        let scale = _mm256_set1_ps(scale);
        for (c, sum) in acc.into_iter().enumerate() {
            let mixed = step.mixed.add(r * step.lanes + first + c * 8);
            let sum = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum), scale, _mm256_loadu_ps(mixed));
            _mm256_storeu_ps(mixed, sum);
        }
    }
}
