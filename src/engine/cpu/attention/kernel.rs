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

/// Rows at most that one pass keeps in registers, over all instruction sets.
pub const ROWS: usize = 6;

/// Such groups of rows at most in one step: scores and weights of all of them stay in a first-level cache beside the
/// columns of keys or values that they all read.
pub const GROUPS: usize = 8;

/// Rows at most in one step.
pub const STEP_ROWS: usize = ROWS * GROUPS;

/// Queries, the keys of one tile, and room for their scores.
#[derive(Clone, Copy)]
pub struct Products<A: Arithmetic> {
    /// `[groups of rows, pairs of head_dim, rows of the group, 2]`, scaled
    pub q: *const A::E,
    /// `[pairs of head_dim, TILE, 2]`
    pub k: *const A::E,
    /// Pairs of a head: half of `head_dim`, rounded up.
    pub pairs: usize,
    /// `[rows, TILE]`
    pub scores: *mut f32,
}

/// One tile and the part of the running softmax that belongs to the rows of this step.
pub struct Step<'a, A: Arithmetic> {
    pub products: Products<A>,
    /// `[TILE / 2, lanes, 2]`
    pub v: *const A::E,
    /// Values per position, rounded up to whole vectors.
    pub lanes: usize,
    /// Keys of the tile that each row sees, from..to: `[rows]`.
    pub seen: &'a [(usize, usize)],
    /// `[rows]`; minus infinity before the first key
    pub base: &'a mut [f32],
    /// `[rows, Lanes::N]`: partial sums
    pub total: *mut f32,
    /// `[rows, lanes * PARTS]`
    pub mixed: *mut f32,
    /// `[rows, TILE]`
    pub weights: *mut A::E,
    /// Whether to ask for the next tile: once for all rows that share this one.
    pub ahead: bool,
}

/// Rows that go through registers together.
#[derive(Clone, Copy, Default)]
struct Group {
    first: usize,
    rows: usize,
    /// No row sees a key from here on; 0 where none sees any.
    end: usize,
    /// What to multiply earlier sums by, where a base moved.
    factors: Option<[f32; ROWS]>,
}

/// Runs an expression with a number of rows, at most `MAX_ROWS` of the arithmetic, as a constant.
macro_rules! by_rows {
    ($A:ident, $rows:expr, $M:ident => $run:expr) => {
        match $rows {
            1 => {
                const $M: usize = 1;
                $run
            }
            2 => {
                const $M: usize = 2;
                $run
            }
            3 if $A::MAX_ROWS >= 3 => {
                const $M: usize = 3;
                $run
            }
            4 if $A::MAX_ROWS >= 4 => {
                const $M: usize = 4;
                $run
            }
            5 if $A::MAX_ROWS >= 5 => {
                const $M: usize = 5;
                $run
            }
            6 if $A::MAX_ROWS >= 6 => {
                const $M: usize = 6;
                $run
            }
            _ => unreachable!("a group has 1 to {} rows", $A::MAX_ROWS),
        }
    };
}

/// Runs a step of at most [`GROUPS`] times `MAX_ROWS` rows.
///
/// Each column of keys, and then of values, meets all rows while it is in cache.
///
/// # Safety
/// The pointers of `step` have the shapes stated there and nobody else uses what they write; the instruction set is that of `A`.
#[inline(always)]
pub unsafe fn step<A: Arithmetic>(step: &mut Step<'_, A>) {
    let mut groups = [Group::default(); GROUPS];
    let n_groups = step.seen.len().div_ceil(A::MAX_ROWS);
    for (index, (group, seen)) in groups.iter_mut().zip(step.seen.chunks(A::MAX_ROWS)).enumerate() {
        let (first, end) = seen.iter().fold((TILE, 0), |(a, b), s| (a.min(s.0), b.max(s.1)));
        let end = if first < end { end } else { 0 };
        *group = Group { first: index * A::MAX_ROWS, rows: seen.len(), end, factors: None };
    }
    let groups = &mut groups[..n_groups];
    let end = groups.iter().map(|group| group.end).max().unwrap_or(0);
    // SAFETY: passed on from the caller; columns from `end` rounded up to a vector lie inside the tile.
    unsafe {
        for column in (0..end).step_by(A::PAIRS * COLUMNS) {
            let mut ahead = step.ahead;
            for group in groups.iter().filter(|group| column < group.end) {
                let products = step.products.of_group(group);
                by_rows!(A, group.rows, M => score_columns::<A, M>(&products, column, group.end, ahead));
                ahead = false;
            }
        }
        for group in groups.iter_mut().filter(|group| group.end > 0) {
            by_rows!(A, group.rows, M => softmax::<A, M>(step, group));
        }
        let vectors = step.lanes / A::PAIRS;
        for vector in (0..vectors).step_by(COLUMNS) {
            let mut ahead = step.ahead;
            for group in groups.iter().filter(|group| group.end > 0) {
                let (lane, columns) = (vector * A::PAIRS, (vectors - vector).min(COLUMNS));
                by_rows!(A, group.rows, M => mix_columns::<A, M>(step, group, lane, columns, ahead));
                ahead = false;
            }
        }
    }
}

impl<A: Arithmetic> Products<A> {
    /// The same for the rows of a group.
    ///
    /// # Safety
    /// They exist.
    #[inline(always)]
    unsafe fn of_group(self, group: &Group) -> Self {
        // SAFETY: the caller's promise.
        unsafe {
            let q = self.q.add(group.first * self.pairs * 2);
            Self { q, scores: self.scores.add(group.first * TILE), ..self }
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
    for column in (0..end).step_by(A::PAIRS * COLUMNS) {
        // SAFETY: passed on from the caller.
        unsafe { by_rows!(A, rows, M => score_columns::<A, M>(products, column, end, true)) }
    }
}

/// Scores of `M` rows for at most `COLUMNS` vectors of keys from `column` on, as far as keys are below `end`.
///
/// # Safety
/// As [`score`].
#[inline(always)]
unsafe fn score_columns<A: Arithmetic, const M: usize>(
    products: &Products<A>,
    column: usize,
    end: usize,
    ahead: bool,
) {
    // SAFETY: passed on from the caller; columns from `end` rounded up to a vector lie inside the tile.
    unsafe {
        match (end - column).div_ceil(A::PAIRS).min(COLUMNS) {
            1 => scores::<A, M, 1, true>(products, column),
            2 => scores::<A, M, 2, true>(products, column),
            3 => scores::<A, M, 3, true>(products, column),
            _ if ahead => scores::<A, M, 4, true>(products, column),
            _ => scores::<A, M, 4, false>(products, column),
        }
    }
}

/// Scores of `M` rows and `C` vectors of keys from `column` on.
///
/// # Safety
/// As [`score`]; the columns lie inside the tile.
#[inline(always)]
unsafe fn scores<A: Arithmetic, const M: usize, const C: usize, const AHEAD: bool>(
    products: &Products<A>,
    column: usize,
) {
    // SAFETY: row `p` of `k` has `2 * TILE` elements, of `q` `2 * M`; `scores` has `TILE` values per row.
    unsafe {
        let mut acc = [[A::L::splat(0.0); C]; M];
        let mut queries = [A::pair(products.q); M];
        let (mut k, mut q) = (products.k.add(2 * column), products.q);
        // The next tile from its start to its end, over all columns of this one.
        let mut next = products.k.wrapping_add(products.pairs * 2 * (TILE + column));
        for _ in 0..products.pairs {
            for (r, query) in queries.iter_mut().enumerate() {
                *query = A::pair(q.add(2 * r));
            }
            for c in 0..C {
                let at = k.add(c * 2 * A::PAIRS);
                if A::AHEAD && AHEAD {
                    A::L::prefetch(next.wrapping_add(c * 2 * A::PAIRS));
                }
                let keys = A::load(at);
                for (row, query) in acc.iter_mut().zip(queries) {
                    row[c] = A::dot(row[c], query, keys);
                }
            }
            k = k.add(2 * TILE);
            q = q.add(2 * M);
            next = next.wrapping_add(C * 2 * A::PAIRS);
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

/// Weights from scores for keys below the end of a group; notes what to multiply earlier sums by, where a base moved.
///
/// # Safety
/// As [`step`]; scores of keys below the end are there.
#[inline(always)]
unsafe fn softmax<A: Arithmetic, const M: usize>(step: &mut Step<'_, A>, group: &mut Group) {
    let (n, end) = (<A::L as Lanes>::N, group.end);
    let mut factors = [1.0; ROWS];
    let mut moved = false;
    // Weights are packed two vectors at a time.
    let width = end.next_multiple_of(2 * n).min(TILE);
    // SAFETY: `scores` and `weights` have `TILE` values per row, `total` one vector.
    unsafe {
        let nothing = A::L::splat(f32::NEG_INFINITY);
        for (r, factor) in (group.first..).zip(&mut factors[..M]) {
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
    group.factors = moved.then_some(factors);
}

/// Adds weights times values for the rows of a group and `columns` (1..=`COLUMNS`) vectors of lanes from `lane` on.
///
/// # Safety
/// As [`step`]; weights of keys below the end of the group rounded up to a pair are there, and the lanes exist.
#[inline(always)]
unsafe fn mix_columns<A: Arithmetic, const M: usize>(
    step: &Step<'_, A>,
    group: &Group,
    lane: usize,
    columns: usize,
    ahead: bool,
) {
    // SAFETY: passed on from the caller.
    unsafe {
        match columns {
            1 => mix::<A, M, 1, true>(step, group, lane),
            2 => mix::<A, M, 2, true>(step, group, lane),
            3 => mix::<A, M, 3, true>(step, group, lane),
            _ if ahead => mix::<A, M, 4, true>(step, group, lane),
            _ => mix::<A, M, 4, false>(step, group, lane),
        }
    }
}

/// # Safety
/// As [`mix_columns`].
#[inline(always)]
unsafe fn mix<A: Arithmetic, const M: usize, const C: usize, const AHEAD: bool>(
    step: &Step<'_, A>,
    group: &Group,
    lane: usize,
) {
    let n = <A::L as Lanes>::N;
    let stride = step.lanes * A::PARTS;
    // SAFETY: a row of `v` has `2 * lanes` elements, of `mixed` `stride` values, of `weights` `TILE` elements.
    unsafe {
        let mut acc = [[A::L::splat(0.0); C]; M];
        let mixed = step.mixed.add(group.first * stride + lane * A::PARTS);
        for (r, row) in acc.iter_mut().enumerate() {
            for (c, sum) in row.iter_mut().enumerate() {
                *sum = A::L::load(mixed.add(r * stride + c * n));
            }
        }
        if let Some(factors) = &group.factors {
            for (row, factor) in acc.iter_mut().zip(factors) {
                for sum in row.iter_mut() {
                    *sum = A::L::mul(*sum, A::L::splat(*factor));
                }
            }
        }
        let mut w = step.weights.add(group.first * TILE).cast_const();
        let mut weights = [A::pair(w); M];
        let mut v = step.v.add(2 * lane);
        let mut next = step.v.wrapping_add((step.lanes + lane) * TILE);
        for _ in 0..group.end.div_ceil(2) {
            for (r, weight) in weights.iter_mut().enumerate() {
                *weight = A::pair(w.add(r * TILE));
            }
            for c in 0..C {
                let at = v.add(c * 2 * A::PAIRS);
                if A::AHEAD && AHEAD {
                    A::L::prefetch(next.wrapping_add(c * 2 * A::PAIRS));
                }
                let values = A::load(at);
                for (row, weight) in acc.iter_mut().zip(weights) {
                    row[c] = A::dot(row[c], weight, values);
                }
            }
            v = v.add(2 * step.lanes);
            w = w.add(2);
            next = next.wrapping_add(C * 2 * A::PAIRS);
        }
        for (r, row) in acc.iter().enumerate() {
            for (c, sum) in row.iter().enumerate() {
                A::L::store(mixed.add(r * stride + c * n), *sum);
            }
        }
    }
}
