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
//! 2. `base` need not be the maximum, only near it: it moves when a score is more than
//!    [`HEADROOM`](super::softmax::HEADROOM) above it. That almost always happens once per row, in its first tile, so the
//!    common case needs no maximum across lanes.
//! 3. `base` is an integer: moving it multiplies by a power of two, which is exact, and weights round to bfloat16 in
//!    the same way whatever it is. Results depend on the order of keys only, not on how queries are grouped.

use super::arithmetic::Arithmetic;
use super::softmax::{Softmax, softmax};
use crate::engine::cpu::cache::TILE;
use crate::engine::cpu::lanes::Lanes;

/// Rows at most that one pass keeps in registers, over all instruction sets.
pub const ROWS: usize = 6;

/// Groups of rows at most in one step, over all instruction sets.
const GROUPS: usize = 8;

/// Rows at most in one step.
pub const STEP_ROWS: usize = ROWS * GROUPS;

/// Queries, the keys of one tile, and room for their scores.
#[derive(Clone, Copy)]
pub struct Products<A: Arithmetic> {
    /// `[groups of rows, pairs of head_dim, rows of the group, 2]`, scaled
    pub q: *const A::E,
    /// `[rows]`, for integers
    pub query_scales: *const f32,
    /// `[pairs of head_dim, TILE, 2]`
    pub k: *const A::E,
    /// `[TILE]`, for integers
    pub key_scales: *const f32,
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
    /// `[TILE]`, for integers
    pub value_scales: *const f32,
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
    /// `[rows, 2, Lanes::N]`, for integers
    pub sums: *mut f32,
    /// Whether to ask for the next tile: once for all rows that share this one.
    pub ahead: bool,
}

/// Rows that go through registers together.
#[derive(Clone, Copy, Default)]
pub struct Group {
    pub first: usize,
    pub rows: usize,
    /// No row sees a key from here on; 0 where none sees any.
    pub end: usize,
    /// Whether the base of a row moved.
    pub moved: bool,
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

/// Runs a step of at most `GROUPS` times `MAX_ROWS` rows.
///
/// Each column of keys, and then of values, meets all rows while it is in cache.
///
/// # Safety
/// The pointers of `step` have the shapes stated there and nobody else uses what they write; the instruction set is that of `A`.
#[inline(always)]
pub unsafe fn step<A: Arithmetic>(step: &mut Step<'_, A>) {
    debug_assert!(A::GROUPS <= GROUPS && A::MAX_ROWS <= ROWS);
    let mut groups = [Group::default(); GROUPS];
    let n_groups = step.seen.len().div_ceil(A::MAX_ROWS);
    for (index, (group, seen)) in groups.iter_mut().zip(step.seen.chunks(A::MAX_ROWS)).enumerate() {
        let (first, end) = seen.iter().fold((TILE, 0), |(a, b), s| (a.min(s.0), b.max(s.1)));
        let end = if first < end { end } else { 0 };
        *group = Group { first: index * A::MAX_ROWS, rows: seen.len(), end, ..Group::default() };
    }
    let groups = &mut groups[..n_groups];
    let end = groups.iter().map(|group| group.end).max().unwrap_or(0);
    // SAFETY: passed on from the caller; columns from `end` rounded up to a vector lie inside the tile.
    unsafe {
        for column in (0..end).step_by(A::PAIRS * A::COLUMNS) {
            let mut ahead = step.ahead;
            for group in groups.iter().filter(|group| column < group.end) {
                let products = step.products.of_group(group);
                by_rows!(A, group.rows, M => score_columns::<A, M>(&products, column, group.end, ahead));
                ahead = false;
            }
        }
        let softmax = softmax(step, groups);
        let vectors = step.lanes / A::PAIRS;
        for vector in (0..vectors).step_by(A::COLUMNS) {
            let mut ahead = step.ahead;
            for group in groups.iter().filter(|group| group.end > 0) {
                let (lane, columns) = (vector * A::PAIRS, (vectors - vector).min(A::COLUMNS));
                by_rows!(A, group.rows, M => mix_columns::<A, M>(step, (group, &softmax), lane, columns, ahead));
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
            Self {
                q: self.q.add(group.first * self.pairs * 2),
                query_scales: self.query_scales.wrapping_add(group.first),
                scores: self.scores.add(group.first * TILE),
                ..self
            }
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
    for column in (0..end).step_by(A::PAIRS * A::COLUMNS) {
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
        match (end - column).div_ceil(A::PAIRS).min(A::COLUMNS) {
            1 => scores::<A, M, 1, true>(products, column),
            2 if ahead || A::COLUMNS > 2 => scores::<A, M, 2, true>(products, column),
            2 => scores::<A, M, 2, false>(products, column),
            3 => scores::<A, M, 3, true>(products, column),
            _ if ahead => scores::<A, M, 4, true>(products, column),
            _ => scores::<A, M, 4, false>(products, column),
        }
    }
}

/// Asks for the cache lines of `columns` vectors of packed elements.
#[inline(always)]
fn prefetch_columns<A: Arithmetic>(from: *const A::E, columns: usize) {
    let size = 2 * A::PAIRS * size_of::<A::E>();
    for c in (0..columns).filter(|c| (c * size).is_multiple_of(64)) {
        A::L::prefetch(from.wrapping_add(c * 2 * A::PAIRS));
    }
}

/// Adds the products of one pair of each row, `stride` elements apart, and `C` vectors of pairs.
///
/// # Safety
/// These elements exist; the instruction set is that of `A`.
#[inline(always)]
unsafe fn add_products<A: Arithmetic, const M: usize, const C: usize>(
    acc: &mut [[A::Acc; C]; M],
    (rows, stride): (*const A::E, usize),
    columns: *const A::E,
) {
    // SAFETY: the caller's promise.
    unsafe {
        if A::COLUMNS == 2 {
            // Twelve accumulators, two columns, one row at a time.
            let mut vectors = [A::load(columns); C];
            for (c, vector) in vectors.iter_mut().enumerate() {
                *vector = A::load(columns.add(c * 2 * A::PAIRS));
            }
            for (r, sums) in acc.iter_mut().enumerate() {
                let pair = A::pair(rows.add(r * stride));
                for (sum, vector) in sums.iter_mut().zip(vectors) {
                    *sum = A::dot(*sum, pair, vector);
                }
            }
            return;
        }
        let mut pairs = [A::pair(rows); M];
        for (r, pair) in pairs.iter_mut().enumerate() {
            *pair = A::pair(rows.add(r * stride));
        }
        for c in 0..C {
            let vector = A::load(columns.add(c * 2 * A::PAIRS));
            for (sums, pair) in acc.iter_mut().zip(pairs) {
                sums[c] = A::dot(sums[c], pair, vector);
            }
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
        let mut acc = [[A::zero(); C]; M];
        let (mut k, mut q) = (products.k.add(2 * column), products.q);
        // The next tile from its start to its end, over all columns of this one.
        let mut next = products.k.wrapping_add(products.pairs * 2 * (TILE + column));
        for _ in 0..products.pairs {
            if A::AHEAD && AHEAD {
                prefetch_columns::<A>(next, C);
            }
            add_products::<A, M, C>(&mut acc, (q, 2), k);
            k = k.add(2 * TILE);
            q = q.add(2 * M);
            next = next.wrapping_add(C * 2 * A::PAIRS);
        }
        for (r, row) in acc.iter().enumerate() {
            let to = products.scores.add(r * TILE + column);
            let query = products.query_scales.wrapping_add(r);
            for c in (0..C).step_by(A::PARTS) {
                // An odd number of half vectors leaves the upper half of the last one unused.
                let sums = [row[c], row[(c + 1).min(C - 1)]];
                let keys = products.key_scales.wrapping_add(column + c * A::PAIRS);
                A::L::store(to.add(c * A::PAIRS), A::scores(sums, keys, query));
            }
        }
    }
}

/// Adds weights times values for the rows of a group and `columns` (at most `COLUMNS`) vectors of lanes from `lane` on.
///
/// # Safety
/// As [`step`]; weights of keys below the end of the group rounded up to a pair are there, and the lanes exist.
#[inline(always)]
unsafe fn mix_columns<A: Arithmetic, const M: usize>(
    step: &Step<'_, A>,
    group: (&Group, &Softmax),
    lane: usize,
    columns: usize,
    ahead: bool,
) {
    // SAFETY: passed on from the caller.
    unsafe {
        match columns {
            1 => mix::<A, M, 1, true>(step, group, lane),
            2 if ahead || A::COLUMNS > 2 => mix::<A, M, 2, true>(step, group, lane),
            2 => mix::<A, M, 2, false>(step, group, lane),
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
    (group, softmax): (&Group, &Softmax),
    lane: usize,
) {
    let factor = |r: usize| group.moved.then(|| softmax.factors[group.first + r]);
    let n = <A::L as Lanes>::N;
    let stride = step.lanes * A::PARTS;
    // SAFETY: a row of `v` has `2 * lanes` elements, of `mixed` `stride` values, of `weights` `TILE` elements.
    unsafe {
        let mut acc = [[A::zero(); C]; M];
        let mixed = step.mixed.add(group.first * stride + lane * A::PARTS);
        for (r, row) in acc.iter_mut().enumerate() {
            for (c, sum) in row.iter_mut().enumerate() {
                *sum = A::begin(mixed.add(r * stride + c * n), factor(r));
            }
        }
        let mut w = step.weights.add(group.first * TILE).cast_const();
        let mut v = step.v.add(2 * lane);
        let mut next = step.v.wrapping_add((step.lanes + lane) * TILE);
        for _ in 0..group.end.div_ceil(2) {
            if A::AHEAD && AHEAD {
                prefetch_columns::<A>(next, C);
            }
            add_products::<A, M, C>(&mut acc, (w, TILE), v);
            v = v.add(2 * step.lanes);
            w = w.add(2);
            next = next.wrapping_add(C * 2 * A::PAIRS);
        }
        for (r, row) in acc.iter().enumerate() {
            for (c, sum) in row.iter().enumerate() {
                let at = mixed.add(r * stride + c * n);
                A::L::store(at, A::end(*sum, at, factor(r), softmax.scales[group.first + r]));
            }
        }
    }
}
