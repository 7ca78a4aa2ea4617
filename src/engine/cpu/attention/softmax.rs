//! The middle of a step: from scores to weights, row after row.

use super::arithmetic::{Arithmetic, ScoredRow};
use super::kernel::{Group, STEP_ROWS, Step};
use crate::engine::cpu::cache::TILE;
use crate::engine::cpu::lanes::Lanes;

/// How far, in powers of two, a score may exceed the base of its row: weights stay below 2^40 and sums of a million of
/// them far from overflow.
pub const HEADROOM: f32 = 40.0;

/// What softmax leaves for the mix, of each row of a step.
pub struct Softmax {
    /// What to multiply earlier sums by, where a base moved.
    pub factors: [f32; STEP_ROWS],
    /// Scales of the weights.
    pub scales: [f32; STEP_ROWS],
}

/// Weights from scores for the keys that each group sees.
///
/// # Safety
/// As [`step`](super::kernel::step); scores of keys below the ends of the groups are there.
#[inline(always)]
pub unsafe fn softmax<A: Arithmetic>(step: &mut Step<'_, A>, groups: &mut [Group]) -> Softmax {
    let mut softmax = Softmax { factors: [1.0; STEP_ROWS], scales: [1.0; STEP_ROWS] };
    let mut widths = [0; STEP_ROWS];
    // SAFETY: `scores` and `weights` have `TILE` values per row, `total` one vector, `sums` two.
    unsafe {
        for group in groups.iter_mut().filter(|group| group.end > 0) {
            let rows = group.first..group.first + group.rows;
            // Weights are packed two vectors at a time.
            let width = group.end.next_multiple_of(2 * <A::L as Lanes>::N).min(TILE);
            widths[rows.clone()].fill(width);
            for r in rows {
                if let Some(factor) = weigh_row(step, r, width) {
                    softmax.factors[r] = factor;
                    group.moved = true;
                }
            }
        }
        let rows = step.seen.len();
        A::finish(&step.scored(0), &widths[..rows], &mut softmax.scales[..rows]);
    }
    softmax
}

impl<A: Arithmetic> Step<'_, A> {
    /// The scores of a row, none of them to look at yet.
    ///
    /// # Safety
    /// The row exists.
    #[inline(always)]
    unsafe fn scored(&self, r: usize) -> ScoredRow<A> {
        // SAFETY: the caller's promise.
        unsafe {
            ScoredRow {
                scores: self.products.scores.add(r * TILE),
                base: 0.0,
                width: 0,
                partly: None,
                value_scales: self.value_scales,
                weights: self.weights.add(r * TILE),
                sums: self.sums.add(r * 2 * <A::L as Lanes>::N),
            }
        }
    }
}

/// Weights from the scores of one row below `width`. Returns what to multiply earlier sums by, where its base moved.
///
/// # Safety
/// As [`softmax`].
#[inline(always)]
unsafe fn weigh_row<A: Arithmetic>(step: &mut Step<'_, A>, r: usize, width: usize) -> Option<f32> {
    let n = <A::L as Lanes>::N;
    // SAFETY: passed on from the caller.
    unsafe {
        let mut scored = step.scored(r);
        let (from, to) = step.seen[r];
        if from > 0 || to < width {
            scored.partly = Some((from, to));
            let nothing = A::L::splat(f32::NEG_INFINITY);
            for key in (0..width).step_by(n) {
                let x = A::L::load(scored.scores.add(key));
                let kept = A::L::keep(x, from.saturating_sub(key), to.saturating_sub(key), nothing);
                A::L::store(scored.scores.add(key), kept);
            }
        }
        let mut top = A::L::load(scored.scores);
        for key in (n..width).step_by(n) {
            top = A::L::max(top, A::L::load(scored.scores.add(key)));
        }
        let (old, mut factor) = (step.base[r], None);
        let unset = old == f32::NEG_INFINITY;
        if unset || A::L::any_above(top, A::L::splat(old + HEADROOM)) {
            let new = A::L::max_lane(top).ceil().max(old);
            step.base[r] = new;
            factor = (!unset).then(|| (old - new).exp2());
        }
        (scored.base, scored.width) =
            (if step.base[r] == f32::NEG_INFINITY { 0.0 } else { step.base[r] }, width);
        let total = step.total.add(r * n);
        let earlier = A::L::mul(A::L::load(total), A::L::splat(factor.unwrap_or(1.0)));
        A::L::store(total, A::weigh(&scored, earlier));
        factor
    }
}
