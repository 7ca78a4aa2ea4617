//! A block of query rows against a run of tiles: the unit of work that threads share.

use std::ops::Range;
use std::ptr;

use super::arithmetic::{Arithmetic, Single};
use super::kernel::{Products, STEP_ROWS, Step};
use super::{Problem, TiledRotation};
use crate::engine::KvType;
use crate::engine::cpu::aligned::Aligned;
use crate::engine::cpu::cache::TILE;
use crate::engine::cpu::isa::Isa;
use crate::engine::cpu::lanes::{self, Lanes};

/// Values in the widest vector.
const WIDEST: usize = 16;

/// Query rows of all heads that share a key head, over consecutive tokens, and the positions to look at.
#[derive(Clone, Debug)]
pub struct Block {
    pub kv_head: usize,
    /// Tokens of the chunk.
    pub tokens: Range<usize>,
    /// Positions of the cache; starts at a tile.
    pub positions: Range<usize>,
}

/// Where the rows of a block go.
#[derive(Clone, Copy)]
pub enum Output {
    /// Divided by the sum of weights, to `[tokens, n_heads * head_dim]`.
    Mixed(*mut f32),
    /// To be merged with other runs of tiles: `[rows, 2 + head_dim]`, base and sum of weights first.
    Partial(*mut f32),
}

impl Output {
    /// The same `values` further on.
    ///
    /// # Safety
    /// They belong to the same buffer.
    pub unsafe fn skip(self, values: usize) -> Self {
        // SAFETY: the caller's promise.
        unsafe {
            match self {
                Self::Mixed(to) => Self::Mixed(to.add(values)),
                Self::Partial(to) => Self::Partial(to.add(values)),
            }
        }
    }
}

// SAFETY: threads write the rows of different blocks.
unsafe impl Send for Output {}
// SAFETY: threads write the rows of different blocks.
unsafe impl Sync for Output {}

/// Memory of one thread, kept between calls.
#[derive(Default)]
pub struct Scratch {
    /// One query in the order of packed keys.
    row: Aligned<f32>,
    /// `[row groups, pairs, rows, 2]`, packed
    q: Aligned<f32>,
    /// `[rows]`
    query_scales: Aligned<f32>,
    /// `[pairs, TILE, 2]`, packed
    keys: Aligned<f32>,
    /// `[TILE / 2, lanes, 2]`, packed
    values: Aligned<f32>,
    /// `[STEP_ROWS, TILE]`
    scores: Aligned<f32>,
    /// `[STEP_ROWS, TILE]`, packed
    weights: Aligned<f32>,
    /// `[STEP_ROWS, lanes of a vector]`
    sums: Aligned<f32>,
    /// `[rows]`
    base: Aligned<f32>,
    /// `[rows, lanes of a vector]`
    total: Aligned<f32>,
    /// `[rows, lanes, parts]`
    mixed: Aligned<f32>,
}

/// Values of a query in whole pairs of the widest vectors.
pub fn row_len(problem: &Problem<'_>) -> usize {
    problem.tiles.cache.shape().head_dim.next_multiple_of(2 * WIDEST)
}

impl Scratch {
    /// Makes room for `rows` rows of the heads of `problem`.
    fn reserve(&mut self, problem: &Problem<'_>, rows: usize) {
        let shape = problem.tiles.cache.shape();
        self.row.reserve(row_len(problem));
        self.q.reserve(shape.key_pairs() * 2 * rows);
        self.query_scales.reserve(rows);
        self.keys.reserve(shape.key_tile());
        self.values.reserve(shape.value_tile());
        self.scores.reserve(STEP_ROWS * TILE);
        self.weights.reserve((STEP_ROWS * TILE).max(row_len(problem)));
        self.sums.reserve(STEP_ROWS * WIDEST);
        self.base.reserve(rows);
        self.total.reserve(rows * WIDEST);
        self.mixed.reserve(rows * shape.value_lanes() * 2);
        self.base[..rows].fill(f32::NEG_INFINITY);
        self.total[..rows * WIDEST].fill(0.0);
        self.mixed[..rows * shape.value_lanes() * 2].fill(0.0);
    }
}

/// Computes a block with the instructions of `isa`.
///
/// # Safety
/// `output` has room for the rows of the block, which nobody else writes.
pub unsafe fn run(isa: Isa, problem: &Problem<'_>, block: &Block, scratch: &mut Scratch, output: Output) {
    // SAFETY: an `Isa` value is the promise that this CPU runs it; the output is the caller's promise.
    unsafe {
        match isa {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2Fma | Isa::Avx512 | Isa::Avx512Bf16Vnni
                if problem.tiles.cache.cache_type() == KvType::Q16 =>
            {
                run_integers(problem, block, scratch, output);
            }
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512Bf16Vnni => run_bf16(problem, block, scratch, output),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => run_avx512(problem, block, scratch, output),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2Fma => run_avx2(problem, block, scratch, output),
            _ => run_on::<Single<lanes::Portable>>(problem, block, scratch, output),
        }
    }
}

/// # Safety
/// As [`run`], on a CPU with AVX-512 F, BW, DQ, VL and BF16.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma,f16c")]
unsafe fn run_bf16(problem: &Problem<'_>, block: &Block, scratch: &mut Scratch, output: Output) {
    // SAFETY: passed on from the caller.
    unsafe { run_on::<super::arithmetic::Bf16Pairs>(problem, block, scratch, output) }
}

/// # Safety
/// As [`run`], on a CPU with AVX-512 F, BW, DQ and VL.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
unsafe fn run_avx512(problem: &Problem<'_>, block: &Block, scratch: &mut Scratch, output: Output) {
    // SAFETY: passed on from the caller.
    unsafe { run_on::<Single<lanes::Avx512>>(problem, block, scratch, output) }
}

/// # Safety
/// As [`run`], on a CPU with AVX2, FMA and F16C.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn run_avx2(problem: &Problem<'_>, block: &Block, scratch: &mut Scratch, output: Output) {
    // SAFETY: passed on from the caller.
    unsafe { run_on::<Single<lanes::Avx2>>(problem, block, scratch, output) }
}

/// # Safety
/// As [`run`], on a CPU with AVX2, FMA and F16C; the cache holds 16-bit integers.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn run_integers(problem: &Problem<'_>, block: &Block, scratch: &mut Scratch, output: Output) {
    // SAFETY: passed on from the caller.
    unsafe { run_on::<super::integers::Integers>(problem, block, scratch, output) }
}

/// # Safety
/// As [`run`], with the instruction set of `A`.
#[inline(always)]
unsafe fn run_on<A: Arithmetic>(problem: &Problem<'_>, block: &Block, scratch: &mut Scratch, output: Output) {
    const { assert!(A::STEP_ROWS <= STEP_ROWS, "room for the rows of a step") };
    let shape = problem.tiles.cache.shape();
    let rows = block.tokens.len() * problem.group();
    scratch.reserve(problem, rows);
    // SAFETY: `reserve` made room for these shapes; positions lie inside the cache.
    unsafe {
        let (row, packed) = (&mut scratch.row[..row_len(problem)], scratch.weights.as_mut_ptr().cast());
        let scales = &mut scratch.query_scales[..rows];
        pack_queries::<A>(problem, block, row, packed, (scratch.q.as_mut_ptr().cast(), scales));
        for tile in block.positions.clone().step_by(TILE) {
            let k = problem.tiles.keys::<A>(block.kv_head, tile, scratch.keys.as_mut_ptr().cast());
            let v = problem.tiles.values::<A>(block.kv_head, tile, scratch.values.as_mut_ptr().cast());
            let (key_scales, value_scales) = match problem.tiles.scales(block.kv_head, tile) {
                Some((keys, values)) => (keys.as_ptr(), values.as_ptr()),
                None => (ptr::null(), ptr::null()),
            };
            for first in (0..rows).step_by(A::STEP_ROWS) {
                let count = A::STEP_ROWS.min(rows - first);
                let seen: [_; STEP_ROWS] = seen(problem, block, first..first + count, tile);
                let mut work = Step::<A> {
                    products: Products {
                        q: scratch.q.as_ptr().cast::<A::E>().add(first * shape.key_pairs() * 2),
                        k,
                        pairs: shape.key_pairs(),
                        scores: scratch.scores.as_mut_ptr(),
                    },
                    v,
                    query_scales: scratch.query_scales.as_ptr().add(first),
                    key_scales,
                    value_scales,
                    lanes: shape.value_lanes(),
                    seen: &seen[..count],
                    base: &mut scratch.base[first..first + count],
                    total: scratch.total.as_mut_ptr().add(first * <A::L as Lanes>::N),
                    mixed: scratch.mixed.as_mut_ptr().add(first * shape.value_lanes() * A::PARTS),
                    weights: scratch.weights.as_mut_ptr().cast(),
                    sums: scratch.sums.as_mut_ptr(),
                    first,
                    block_rows: rows,
                };
                A::step(&mut work);
            }
        }
        write::<A>(problem, block, scratch, output);
    }
}

/// Keys of the tile at position `tile` that each of `rows` (at most `N`) sees, from..to.
#[inline(always)]
pub fn seen<const N: usize>(
    problem: &Problem<'_>,
    block: &Block,
    rows: Range<usize>,
    tile: usize,
) -> [(usize, usize); N] {
    let mut seen = [(0, TILE); N];
    let first = problem.start + block.tokens.start + rows.start / problem.group() + 1;
    if tile + TILE <= first && problem.window.is_none() {
        return seen;
    }
    for (row, seen) in rows.zip(&mut seen) {
        let end = problem.start + block.tokens.start + row / problem.group() + 1;
        let from = problem.window.map_or(0, |window| end.saturating_sub(window));
        *seen = (from.saturating_sub(tile).min(TILE), end.saturating_sub(tile).min(TILE));
    }
    seen
}

/// Scales, reorders and rounds the queries of a block: `[row groups, pairs, rows of the group, 2]`, and notes their scales.
///
/// # Safety
/// `to` has room for them, `values` and `packed` for one row in whole pairs of vectors.
#[inline(always)]
pub unsafe fn pack_queries<A: Arithmetic>(
    problem: &Problem<'_>,
    block: &Block,
    values: &mut [f32],
    packed: *mut A::E,
    (to, scales): (*mut A::E, &mut [f32]),
) {
    let cache = problem.tiles.cache;
    let (head_dim, pairs, group) = (cache.shape().head_dim, cache.shape().key_pairs(), problem.group());
    let rows = block.tokens.len() * group;
    // Integers of turned keys are that much smaller.
    let shrink = problem.tiles.rotation.map_or(1.0, TiledRotation::shrink);
    // Softmax of x is that of powers of two of x * log2(e).
    let factor = problem.scale * lanes::exp::LOG2_E;
    values.fill(0.0);
    for (row, scale) in scales[..rows].iter_mut().enumerate() {
        let first = row / A::MAX_ROWS * A::MAX_ROWS;
        let count = A::MAX_ROWS.min(rows - first);
        let query =
            problem.q.row(block.kv_head * group + row % group, block.tokens.start + row / group, head_dim);
        for (value, &lane) in values.iter_mut().zip(cache.order()) {
            *value = query[lane] * factor;
        }
        // SAFETY: `values` and `packed` are whole vectors; groups before this one took `first * pairs * 2` elements.
        unsafe {
            *scale = A::pack_query(packed, values) / shrink;
            let to = to.add(first * pairs * 2 + (row - first) * 2).cast::<[A::E; 2]>();
            let from = packed.cast::<[A::E; 2]>();
            for pair in 0..pairs {
                *to.add(pair * count) = *from.add(pair);
            }
        }
    }
}

/// Writes the rows of a finished block.
///
/// # Safety
/// As [`run`].
#[inline(always)]
unsafe fn write<A: Arithmetic>(problem: &Problem<'_>, block: &Block, scratch: &Scratch, output: Output) {
    let shape = problem.tiles.cache.shape();
    let (head_dim, group, n) = (shape.head_dim, problem.group(), <A::L as Lanes>::N);
    for row in 0..block.tokens.len() * group {
        // SAFETY: `total` holds a vector per row; the output is the caller's promise.
        let (total, to) = unsafe {
            let total = A::L::sum(A::L::load(scratch.total.as_ptr().add(row * n)));
            let to = match output {
                Output::Mixed(to) => {
                    let (token, head) =
                        (block.tokens.start + row / group, block.kv_head * group + row % group);
                    to.add((token * shape.n_kv_heads * group + head) * head_dim)
                }
                Output::Partial(to) => {
                    let to = to.add(row * (2 + head_dim));
                    *to = scratch.base[row];
                    *to.add(1) = total;
                    to.add(2)
                }
            };
            (total, to)
        };
        let factor = if matches!(output, Output::Mixed(_)) { 1.0 / total } else { 1.0 };
        let mixed = &scratch.mixed[row * shape.value_lanes() * A::PARTS..][..head_dim * A::PARTS];
        for (lane, parts) in mixed.chunks_exact(A::PARTS).enumerate() {
            // SAFETY: `head_dim` values from `to` on belong to this row.
            unsafe { *to.add(lane) = parts.iter().sum::<f32>() * factor };
        }
    }
}
