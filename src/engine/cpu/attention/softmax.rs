//! The middle of a step: from scores to weights, row after row.

use super::arithmetic::Floats;
use super::kernel::{Group, STEP_ROWS, Step};
use crate::engine::cpu::cache::TILE;
use crate::engine::cpu::lanes::Lanes;

/// How far, in powers of two, a score may exceed the base of its row: weights stay below 2^40 and sums of a million of
/// them far from overflow.
const HEADROOM: f32 = 40.0;

/// Weights from scores for the keys that each group sees. Returns what to multiply earlier sums of each row by, where its
/// base moved.
///
/// # Safety
/// As [`step`](super::kernel::step); scores of keys below the ends of the groups are there.
#[inline(always)]
pub unsafe fn softmax<A: Floats>(step: &mut Step<'_, A>, groups: &mut [Group]) -> [f32; STEP_ROWS] {
    let mut factors = [1.0; STEP_ROWS];
    for group in groups.iter_mut().filter(|group| group.end > 0) {
        // Weights are packed two vectors at a time.
        let width = group.end.next_multiple_of(2 * <A::L as Lanes>::N).min(TILE);
        for (r, factor) in factors.iter_mut().enumerate().skip(group.first).take(group.rows) {
            // SAFETY: passed on from the caller.
            if let Some(moved) = unsafe { weigh_row(step, r, width) } {
                *factor = moved;
                group.moved = true;
            }
        }
    }
    factors
}

/// Moves the base of a row to the largest of its scores, rounded up, where that is far above it; `top`: the largest in each lane.
/// Returns by how much the base fell short, below 0, when it was set before: the binary logarithm of what to multiply earlier sums by.
///
/// # Safety
/// The instruction set of `L`.
#[inline(always)]
pub unsafe fn raise_base<L: Lanes>(base: &mut f32, top: L::F) -> Option<f32> {
    let old = *base;
    // SAFETY: the caller's promise.
    unsafe {
        if !L::any_above(top, L::splat(old + HEADROOM)) {
            return None;
        }
        *base = L::max_lane(top).ceil().max(old);
    }
    (old != f32::NEG_INFINITY).then_some(old - *base)
}

/// Weights from the scores of one row below `width`. Returns what to multiply earlier sums by, where its base moved.
///
/// # Safety
/// As [`softmax`].
#[inline(always)]
unsafe fn weigh_row<A: Floats>(step: &mut Step<'_, A>, r: usize, width: usize) -> Option<f32> {
    let n = <A::L as Lanes>::N;
    // SAFETY: `scores` and `weights` have `TILE` values per row, `total` one vector.
    unsafe {
        let (scores, weights) = (step.products.scores.add(r * TILE), step.weights.add(r * TILE));
        let (from, to) = step.seen[r];
        if from > 0 || to < width {
            let nothing = A::L::splat(f32::NEG_INFINITY);
            for key in (0..width).step_by(n) {
                let x = A::L::load(scores.add(key));
                let kept = A::L::keep(x, from.saturating_sub(key), to.saturating_sub(key), nothing);
                A::L::store(scores.add(key), kept);
            }
        }
        let mut top = A::L::load(scores);
        for key in (n..width).step_by(n) {
            top = A::L::max(top, A::L::load(scores.add(key)));
        }
        let base = &mut step.base[r];
        let factor = raise_base::<A::L>(base, top).map(f32::exp2);
        let base = A::L::splat(if *base == f32::NEG_INFINITY { 0.0 } else { *base });
        let at = step.total.add(r * n);
        let mut total = A::L::mul(A::L::load(at), A::L::splat(factor.unwrap_or(1.0)));
        for key in (0..width).step_by(2 * n) {
            let a = A::exp2(A::L::sub(A::L::load(scores.add(key)), base));
            let b = A::exp2(A::L::sub(A::L::load(scores.add(key + n)), base));
            let packed = weights.add(key);
            A::pack(packed, a, b);
            total = A::add_packed(total, packed, a, b);
        }
        A::L::store(at, total);
        factor
    }
}
