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
//! 2. `base` need not be the maximum, only near it: it moves when a score is far above it
//!    ([`raise_base`](super::softmax::raise_base)). That almost always happens once per row, in its first tile, so the
//!    common case needs no maximum across lanes.
//! 3. `base` is an integer: moving it multiplies by a power of two, which is exact, and weights round to bfloat16 in
//!    the same way whatever it is. Results depend on the order of keys only, not on how queries are grouped.

use super::arithmetic::{Floats, Pairs, Sums};
use super::softmax::softmax;
use crate::engine::cpu::cache::TILE;
use crate::engine::cpu::lanes::Lanes;

/// Rows at most that one pass keeps in registers, over all instruction sets.
pub const ROWS: usize = 6;

/// Groups of rows at most in one step.
pub const GROUPS: usize = 8;

/// Vectors of accumulators for each row of a group.
const COLUMNS: usize = 4;

/// Rows at most in one step.
pub const STEP_ROWS: usize = ROWS * GROUPS;

/// Queries, the keys of one tile, and room for their scores.
#[derive(Clone, Copy)]
pub struct Products<A: Pairs> {
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
pub struct Step<'a, A: Pairs> {
    pub products: Products<A>,
    /// `[TILE / 2, lanes, 2]`
    pub v: *const A::E,
    /// `[rows]`, for integers; likewise below.
    pub query_scales: *const f32,
    /// `[TILE]`
    pub key_scales: *const f32,
    /// `[TILE]`
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
    /// `[rows, Lanes::N]`, for integers
    pub sums: *mut f32,
    /// Rows of the block before these.
    pub first: usize,
    /// All rows of the block, which share this tile and, after it, the next one.
    pub block_rows: usize,
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

/// Runs an expression with a number of rows or columns, 1 to `most`, as a constant.
macro_rules! by_count {
    ($most:expr, $count:expr, $N:ident => $run:expr) => {
        by_count!(@ $most, $count, $N => $run, 1 2 3 4 5 6 7 8)
    };
    (@ $most:expr, $count:expr, $N:ident => $run:expr, $($n:literal)*) => {
        match $count {
            $($n if $n <= $most => {
                const $N: usize = $n;
                $run
            })*
            _ => unreachable!("1 to {} at a time", $most),
        }
    };
}
pub(super) use by_count;

/// Runs a step of at most [`GROUPS`] times `MAX_ROWS` rows.
///
/// Each column of keys, and then of values, meets all rows while it is in cache.
///
/// # Safety
/// The pointers of `step` have the shapes stated there and nobody else uses what they write; the instruction set is that of `A`.
#[inline(always)]
pub unsafe fn step<A: Floats>(step: &mut Step<'_, A>) {
    debug_assert!(step.seen.len() <= GROUPS * A::MAX_ROWS && A::MAX_ROWS <= ROWS);
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
        for column in (0..end).step_by(A::PAIRS * COLUMNS) {
            let mut ahead = step.first == 0;
            for group in groups.iter().filter(|group| column < group.end) {
                let products = step.products.of_group(group);
                by_count!(A::MAX_ROWS, group.rows, M => score_columns::<A, M>(&products, column, group.end, ahead));
                ahead = false;
            }
        }
        let factors = softmax(step, groups);
        let vectors = step.lanes / A::PAIRS;
        for vector in (0..vectors).step_by(COLUMNS) {
            let mut ahead = step.first == 0;
            for group in groups.iter().filter(|group| group.end > 0) {
                let (lane, columns) = (vector * A::PAIRS, (vectors - vector).min(COLUMNS));
                by_count!(A::MAX_ROWS, group.rows, M => mix_columns::<A, M>(step, (group, &factors), lane, columns, ahead));
                ahead = false;
            }
        }
    }
}

impl<A: Pairs> Products<A> {
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
pub unsafe fn score<A: Floats>(rows: usize, products: &Products<A>, end: usize) {
    debug_assert!((1..=A::MAX_ROWS).contains(&rows) && end <= TILE);
    for column in (0..end).step_by(A::PAIRS * COLUMNS) {
        // SAFETY: passed on from the caller.
        unsafe { by_count!(A::MAX_ROWS, rows, M => score_columns::<A, M>(products, column, end, true)) }
    }
}

/// Scores of `M` rows for at most `COLUMNS` vectors of keys from `column` on, as far as keys are below `end`.
///
/// # Safety
/// As [`score`].
#[inline(always)]
unsafe fn score_columns<A: Floats, const M: usize>(
    products: &Products<A>,
    column: usize,
    end: usize,
    ahead: bool,
) {
    let columns = (end - column).div_ceil(A::PAIRS).min(COLUMNS);
    // SAFETY: passed on from the caller; columns from `end` rounded up to a vector lie inside the tile.
    unsafe {
        by_count!(COLUMNS, columns, C => match ahead {
            true => scores::<A, M, C, true>(products, column),
            false => scores::<A, M, C, false>(products, column),
        })
    }
}

/// Asks for the cache lines of `columns` vectors of packed elements.
#[inline(always)]
fn prefetch_columns<A: Floats>(from: *const A::E, columns: usize) {
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
unsafe fn add_products<A: Floats, const M: usize, const C: usize>(
    acc: &mut [[Sums<A>; C]; M],
    (rows, stride): (*const A::E, usize),
    columns: *const A::E,
) {
    // SAFETY: the caller's promise.
    unsafe {
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
unsafe fn scores<A: Floats, const M: usize, const C: usize, const AHEAD: bool>(
    products: &Products<A>,
    column: usize,
) {
    // SAFETY: row `p` of `k` has `2 * TILE` elements, of `q` `2 * M`; `scores` has `TILE` values per row.
    unsafe {
        let mut acc = [[A::L::splat(0.0); C]; M];
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
            for c in (0..C).step_by(A::PARTS) {
                // An odd number of half vectors leaves the upper half of the last one unused.
                A::L::store(to.add(c * A::PAIRS), A::join(row[c], row[(c + 1).min(C - 1)]));
            }
        }
    }
}

/// Adds weights times values for the rows of a group and `columns` (at most `COLUMNS`) vectors of lanes from `lane` on.
///
/// # Safety
/// As [`step`]; weights of keys below the end of the group rounded up to a pair are there, and the lanes exist.
#[inline(always)]
unsafe fn mix_columns<A: Floats, const M: usize>(
    step: &Step<'_, A>,
    group: (&Group, &[f32; STEP_ROWS]),
    lane: usize,
    columns: usize,
    ahead: bool,
) {
    // SAFETY: passed on from the caller.
    unsafe {
        by_count!(COLUMNS, columns, C => match ahead {
            true => mix::<A, M, C, true>(step, group, lane),
            false => mix::<A, M, C, false>(step, group, lane),
        })
    }
}

/// # Safety
/// As [`mix_columns`].
#[inline(always)]
unsafe fn mix<A: Floats, const M: usize, const C: usize, const AHEAD: bool>(
    step: &Step<'_, A>,
    (group, factors): (&Group, &[f32; STEP_ROWS]),
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
                if group.moved {
                    *sum = A::L::mul(*sum, A::L::splat(factors[group.first + r]));
                }
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
                A::L::store(mixed.add(r * stride + c * n), *sum);
            }
        }
    }
}
