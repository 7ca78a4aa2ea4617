//! One step of attention in one pass: a few query rows against one tile of keys and values.
//!
//! ```text
//! scores[r][key]  = q[r] . k[key]                      (rows x 64, products of packed pairs)
//! base[r]         = at least the largest score so far, an integer
//! weights[r][key] = 2^(scores[r][key] - base[r])       (0 where the row does not see the key)
//! total[r]       += sum of weights[r]
//! mixed[r]       += weights[r] . v                     (rows x head_dim)
//! ```
//!
//! 1. Queries carry the scale of the scores times log2(e), so the softmax needs powers of two only.
//! 2. `base` need not be the maximum, only near it: it moves when a score is more than [`HEADROOM`] above it. That
//!    almost always happens once per row, in its first tile, so the common case needs no maximum across lanes.
//! 3. `base` is an integer: moving it multiplies by a power of two, which is exact, and weights round to bfloat16 in
//!    the same way whatever it is. Results depend on the order of keys only, not on how queries are grouped.

use super::arithmetic::Arithmetic;
use crate::engine::cpu::cache::TILE;
use crate::engine::cpu::lanes::Lanes;

/// How far, in powers of two, a score may exceed the base of its row: weights stay below 2^40 and sums of a million of
/// them far from overflow.
pub const HEADROOM: f32 = 40.0;

/// Vectors of accumulators per row.
const COLUMNS: usize = 4;

/// Rows at most in one step, over all instruction sets.
pub const ROWS: usize = 6;

/// Queries, the keys of one tile, and room for their scores.
#[derive(Clone, Copy)]
pub struct Products<A: Arithmetic> {
    /// `[pairs of head_dim, rows, 2]`, scaled
    pub q: *const A::E,
    /// `[pairs of head_dim, TILE, 2]`
    pub k: *const A::E,
    /// Pairs of a head: half of `head_dim`, rounded up.
    pub pairs: usize,
    /// `[ROWS, TILE]`
    pub scores: *mut f32,
}

/// One tile and the part of the running softmax that belongs to the rows of this step.
pub struct Step<'a, A: Arithmetic> {
    pub products: Products<A>,
    /// `[TILE / 2, lanes, 2]`
    pub v: *const A::E,
    /// Values per position, rounded up to whole vectors.
    pub lanes: usize,
    /// Keys of the tile that each row sees, from..to.
    pub seen: [(usize, usize); ROWS],
    /// `[rows]`; minus infinity before the first key
    pub base: &'a mut [f32],
    /// `[rows, Lanes::N]`: partial sums
    pub total: *mut f32,
    /// `[rows, lanes * PARTS]`
    pub mixed: *mut f32,
    /// `[ROWS, TILE]`
    pub weights: *mut A::E,
}

/// Runs a step of `rows` (1..=`MAX_ROWS`) rows.
///
/// # Safety
/// The pointers of `step` have the shapes stated there and nobody else uses what they write; the instruction set is that of `A`.
#[inline(always)]
pub unsafe fn step<A: Arithmetic>(rows: usize, step: &mut Step<'_, A>) {
    debug_assert!((1..=A::MAX_ROWS).contains(&rows));
    // SAFETY: passed on from the caller.
    unsafe {
        match rows {
            1 => step_rows::<A, 1>(step),
            2 => step_rows::<A, 2>(step),
            3 if A::MAX_ROWS >= 3 => step_rows::<A, 3>(step),
            4 if A::MAX_ROWS >= 4 => step_rows::<A, 4>(step),
            5 if A::MAX_ROWS >= 5 => step_rows::<A, 5>(step),
            6 if A::MAX_ROWS >= 6 => step_rows::<A, 6>(step),
            _ => unreachable!("a step has at most {} rows", A::MAX_ROWS),
        }
    }
}

/// # Safety
/// As [`step`].
#[inline(always)]
unsafe fn step_rows<A: Arithmetic, const M: usize>(step: &mut Step<'_, A>) {
    let (first, end) = step.seen[..M].iter().fold((TILE, 0), |(a, b), s| (a.min(s.0), b.max(s.1)));
    if first >= end {
        return;
    }
    // SAFETY: passed on from the caller; columns from `end` rounded up to a vector lie inside the tile.
    unsafe {
        score_tile::<A, M>(&step.products, end);
        let moved = softmax::<A, M>(step, end);
        let vectors = step.lanes / A::PAIRS;
        let mut lane = 0;
        for _ in 0..vectors / COLUMNS {
            mix::<A, M, COLUMNS>(step, lane, end, &moved);
            lane += A::PAIRS * COLUMNS;
        }
        match vectors % COLUMNS {
            1 => mix::<A, M, 1>(step, lane, end, &moved),
            2 => mix::<A, M, 2>(step, lane, end, &moved),
            3 => mix::<A, M, 3>(step, lane, end, &moved),
            _ => {}
        }
    }
}

/// Scores of `rows` (1..=`MAX_ROWS`) rows for the keys below `end`; those up to the next whole vector are written too.
///
/// # Safety
/// The pointers have the shapes stated there and nobody else uses the scores; the instruction set is that of `A`.
#[inline(always)]
pub unsafe fn score<A: Arithmetic>(rows: usize, products: &Products<A>, end: usize) {
    debug_assert!((1..=A::MAX_ROWS).contains(&rows) && end <= TILE);
    // SAFETY: passed on from the caller.
    unsafe {
        match rows {
            1 => score_tile::<A, 1>(products, end),
            2 => score_tile::<A, 2>(products, end),
            3 if A::MAX_ROWS >= 3 => score_tile::<A, 3>(products, end),
            4 if A::MAX_ROWS >= 4 => score_tile::<A, 4>(products, end),
            5 if A::MAX_ROWS >= 5 => score_tile::<A, 5>(products, end),
            6 if A::MAX_ROWS >= 6 => score_tile::<A, 6>(products, end),
            _ => unreachable!("a step has at most {} rows", A::MAX_ROWS),
        }
    }
}

/// # Safety
/// As [`score`].
#[inline(always)]
unsafe fn score_tile<A: Arithmetic, const M: usize>(products: &Products<A>, end: usize) {
    for column in (0..end).step_by(A::PAIRS * COLUMNS) {
        // SAFETY: passed on from the caller; columns from `end` rounded up to a vector lie inside the tile.
        unsafe {
            match (end - column).div_ceil(A::PAIRS).min(COLUMNS) {
                1 => scores::<A, M, 1>(products, column),
                2 => scores::<A, M, 2>(products, column),
                3 => scores::<A, M, 3>(products, column),
                _ => scores::<A, M, 4>(products, column),
            }
        }
    }
}

/// Scores of `M` rows and `C` vectors of keys from `column` on.
///
/// # Safety
/// As [`score`]; the columns lie inside the tile.
#[inline(always)]
unsafe fn scores<A: Arithmetic, const M: usize, const C: usize>(products: &Products<A>, column: usize) {
    // SAFETY: row `p` of `k` has `2 * TILE` elements, of `q` `2 * M`; `scores` has `TILE` values per row.
    unsafe {
        let mut acc = [[A::L::splat(0.0); C]; M];
        let mut queries = [A::pair(products.q); M];
        let (mut k, mut q) = (products.k.add(2 * column), products.q);
        for _ in 0..products.pairs {
            for (r, query) in queries.iter_mut().enumerate() {
                *query = A::pair(q.add(2 * r));
            }
            for c in 0..C {
                let at = k.add(c * 2 * A::PAIRS);
                if A::AHEAD {
                    A::L::prefetch(at.wrapping_add(products.pairs * 2 * TILE));
                }
                let keys = A::load(at);
                for (row, query) in acc.iter_mut().zip(queries) {
                    row[c] = A::dot(row[c], query, keys);
                }
            }
            k = k.add(2 * TILE);
            q = q.add(2 * M);
        }
        for (r, row) in acc.iter().enumerate() {
            let to = products.scores.add(r * TILE + column);
            for c in (0..C).step_by(A::PARTS) {
                // An odd number of half vectors leaves the upper half of the last one unused.
                let sums =
                    if A::PARTS == 1 { row[c] } else { A::L::pair_sums(row[c], row[(c + 1).min(C - 1)]) };
                A::L::store(to.add(c * A::PAIRS), sums);
            }
        }
    }
}

/// Weights from scores for keys below `end`; returns what to multiply earlier sums by, where a base moved.
///
/// # Safety
/// As [`step`]; scores of keys below `end` are there.
#[inline(always)]
unsafe fn softmax<A: Arithmetic, const M: usize>(step: &mut Step<'_, A>, end: usize) -> Option<[f32; M]> {
    let n = <A::L as Lanes>::N;
    let mut factors = [1.0; M];
    let mut moved = false;
    // Weights are packed two vectors at a time.
    let width = end.next_multiple_of(2 * n).min(TILE);
    // SAFETY: `scores` and `weights` have `TILE` values per row, `total` one vector.
    unsafe {
        let nothing = A::L::splat(f32::NEG_INFINITY);
        for (r, factor) in factors.iter_mut().enumerate() {
            let row = step.products.scores.add(r * TILE);
            let (from, to) = step.seen[r];
            if from > 0 || to < width {
                for key in (0..width).step_by(n) {
                    let x = A::L::load(row.add(key));
                    let kept = A::L::keep(x, from.saturating_sub(key), to.saturating_sub(key), nothing);
                    A::L::store(row.add(key), kept);
                }
            }
            let mut top = A::L::load(row);
            for key in (n..width).step_by(n) {
                top = A::L::max(top, A::L::load(row.add(key)));
            }
            let old = step.base[r];
            let unset = old == f32::NEG_INFINITY;
            if unset || A::L::any_above(top, A::L::splat(old + HEADROOM)) {
                let new = A::L::max_lane(top).ceil().max(old);
                step.base[r] = new;
                if !unset {
                    *factor = (old - new).exp2();
                    moved = true;
                }
            }
            let base = A::L::splat(if step.base[r] == f32::NEG_INFINITY { 0.0 } else { step.base[r] });
            let total = step.total.add(r * n);
            let mut sum = A::L::mul(A::L::load(total), A::L::splat(*factor));
            for key in (0..width).step_by(2 * n) {
                let a = A::exp2(A::L::sub(A::L::load(row.add(key)), base));
                let b = A::exp2(A::L::sub(A::L::load(row.add(key + n)), base));
                let packed = step.weights.add(r * TILE + key);
                A::pack(packed, a, b);
                sum = A::add_packed(sum, packed, a, b);
            }
            A::L::store(total, sum);
        }
    }
    moved.then_some(factors)
}

/// Adds weights times values for keys below `end` and `C` vectors of lanes from `lane` on.
///
/// # Safety
/// As [`step`]; weights of keys below `end` rounded up to a pair are there, and the lanes exist.
#[inline(always)]
unsafe fn mix<A: Arithmetic, const M: usize, const C: usize>(
    step: &Step<'_, A>,
    lane: usize,
    end: usize,
    moved: &Option<[f32; M]>,
) {
    let n = <A::L as Lanes>::N;
    let stride = step.lanes * A::PARTS;
    // SAFETY: a row of `v` has `2 * lanes` elements, of `mixed` `stride` values, of `weights` `TILE` elements.
    unsafe {
        let mut acc = [[A::L::splat(0.0); C]; M];
        let mixed = step.mixed.add(lane * A::PARTS);
        for (r, row) in acc.iter_mut().enumerate() {
            for (c, sum) in row.iter_mut().enumerate() {
                *sum = A::L::load(mixed.add(r * stride + c * n));
            }
        }
        if let Some(factors) = moved {
            for (row, factor) in acc.iter_mut().zip(factors) {
                for sum in row.iter_mut() {
                    *sum = A::L::mul(*sum, A::L::splat(*factor));
                }
            }
        }
        let mut weights = [A::pair(step.weights); M];
        let (mut v, mut w) = (step.v.add(2 * lane), step.weights.cast_const());
        for _ in 0..end.div_ceil(2) {
            for (r, weight) in weights.iter_mut().enumerate() {
                *weight = A::pair(w.add(r * TILE));
            }
            for c in 0..C {
                let at = v.add(c * 2 * A::PAIRS);
                if A::AHEAD {
                    A::L::prefetch(at.wrapping_add(step.lanes * TILE));
                }
                let values = A::load(at);
                for (row, weight) in acc.iter_mut().zip(weights) {
                    row[c] = A::dot(row[c], weight, values);
                }
            }
            v = v.add(2 * step.lanes);
            w = w.add(2);
        }
        for (r, row) in acc.iter().enumerate() {
            for (c, sum) in row.iter().enumerate() {
                A::L::store(mixed.add(r * stride + c * n), *sum);
            }
        }
    }
}
