//! Sums over attention probabilities that are never kept: one pass over the tiles, in f32 whatever the cache holds.
//!
//! ```text
//! weight[key]  = 2^(score[key] - base)                 base as in the kernel of attention
//! total       += sum of weight
//! weighted    += sum of weight * (score - base)        entropy = ln total - ln 2 * weighted / total
//! position    += sum of weight * key                   mean distance = query - position / total
//! mass[b]     += sum of weight over the keys whose distance lies in bucket b
//! ```
//!
//! A tile is summed in f32, tiles in f64. When the base moves by a power of two, all sums move with it, so that one
//! pass is exact. Almost all tiles lie in one bucket: they cost no more than their sum.

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use super::arithmetic::{Pairs, Single};
use super::block::{Block, pack_queries, row_len, seen};
use super::kernel::{Products, ROWS, score};
use super::softmax::raise_base;
use super::{Problem, tokens_per_block};
use crate::engine::cpu::aligned::Aligned;
use crate::engine::cpu::cache::TILE;
use crate::engine::cpu::isa::Isa;
use crate::engine::cpu::lanes::{self, Lanes, on_lanes};
use crate::engine::cpu::pool::Pool;
use crate::engine::cpu::shared::SharedMut;
use crate::engine::probe::{AttentionProbe, AttentionRow, AttentionRows};

/// Takes the place of scores of keys that a row does not see: far below any score, but a number, because a weight of 0
/// is multiplied by it.
const UNSEEN: f32 = -1e30;

/// The keys of a tile, counted from its start.
const KEYS: [f32; TILE] = {
    let mut keys = [0.0; TILE];
    let mut key = 0;
    while key < TILE {
        keys[key] = key as f32;
        key += 1;
    }
    keys
};

/// The running sums of one row.
#[derive(Clone, Copy)]
struct Sums {
    base: f32,
    total: f64,
    weighted: f64,
    position: f64,
    first: f64,
    sink: f64,
    sink_position: f64,
}

const NOTHING: Sums = Sums {
    base: f32::NEG_INFINITY,
    total: 0.0,
    weighted: 0.0,
    position: 0.0,
    first: 0.0,
    sink: 0.0,
    sink_position: 0.0,
};

/// Memory of one thread.
#[derive(Default)]
struct Scratch {
    row: Aligned<f32>,
    packed: Aligned<f32>,
    /// `[row groups, pairs, rows, 2]`
    q: Aligned<f32>,
    /// `[rows]`; not looked at
    query_scales: Vec<f32>,
    /// `[pairs, TILE, 2]`
    keys: Aligned<f32>,
    /// `[ROWS, TILE]`
    scores: Aligned<f32>,
    sums: Vec<Sums>,
    /// `[rows, n_buckets]`
    mass: Vec<f64>,
}

impl Scratch {
    fn reset(&mut self, problem: &Problem<'_>, rows: usize, n_buckets: usize) {
        let shape = problem.tiles.cache.shape();
        self.row.reserve(row_len(problem));
        self.packed.reserve(row_len(problem));
        self.q.reserve(shape.key_pairs() * 2 * rows);
        self.query_scales.resize(rows, 0.0);
        self.keys.reserve(shape.key_tile());
        self.scores.reserve(ROWS * TILE);
        self.sums.clear();
        self.sums.resize(rows, NOTHING);
        self.mass.clear();
        self.mass.resize(rows * n_buckets, 0.0);
    }
}

/// The sums of the tokens `queries` of the chunk that `problem` asks about.
///
/// # Panics
/// When `queries` are not tokens of the chunk, or a distance exceeds those of `probe`.
pub fn statistics(
    isa: Isa,
    pool: &Pool,
    problem: &Problem<'_>,
    queries: Range<usize>,
    probe: &AttentionProbe,
) -> AttentionRows {
    assert!(queries.end <= problem.q.tokens, "{queries:?} of {} tokens", problem.q.tokens);
    assert!(problem.start + queries.end <= probe.longest, "positions beyond {}", probe.longest);
    let (n_heads, n_kv_heads) = (problem.n_heads, problem.tiles.cache.shape().n_kv_heads);
    let mut found = AttentionRows::new(queries.len(), n_heads, probe);
    let n_buckets = found.n_buckets;
    let per_block = tokens_per_block(problem, pool.threads());
    let n_blocks = queries.len().div_ceil(per_block);
    let slots: Vec<Mutex<Scratch>> = (0..pool.threads()).map(|_| Mutex::default()).collect();
    let (rows, mass) = (SharedMut::new(&mut found.rows), SharedMut::new(&mut found.mass));
    pool.for_each_slot(n_blocks * n_kv_heads, 1, |slot, items| {
        let mut scratch = slots[slot].lock().unwrap_or_else(PoisonError::into_inner);
        for item in items {
            // Later tokens see more: longest blocks first.
            let first = queries.start + (n_blocks - 1 - item / n_kv_heads) * per_block;
            let tokens = first..queries.end.min(first + per_block);
            let positions = problem.first_tile(first)..problem.start + tokens.end;
            let block = Block { kv_head: item % n_kv_heads, tokens, positions };
            sum_block(isa, problem, &block, probe, &mut scratch);
            for row in 0..scratch.sums.len() {
                let (token, head) = place(problem, &block, row);
                let index = (token - queries.start) * n_heads + head;
                // SAFETY: blocks differ in head or tokens, so each row is written once.
                let (to, to_mass) =
                    unsafe { (rows.slice(index, 1), mass.slice(index * n_buckets, n_buckets)) };
                let from_mass = &scratch.mass[row * n_buckets..][..n_buckets];
                to[0] = finished(problem, token, &scratch.sums[row]);
                for (to, from) in to_mass.iter_mut().zip(from_mass) {
                    *to = from / scratch.sums[row].total;
                }
            }
        }
    });
    found
}

/// Token of the chunk and query head of a row.
fn place(problem: &Problem<'_>, block: &Block, row: usize) -> (usize, usize) {
    let group = problem.group();
    (block.tokens.start + row / group, block.kv_head * group + row % group)
}

fn finished(problem: &Problem<'_>, token: usize, sums: &Sums) -> AttentionRow {
    let query = problem.start + token;
    let seen = problem.window.map_or(query + 1, |window| window.min(query + 1));
    let entropy = sums.total.ln() - std::f64::consts::LN_2 * sums.weighted / sums.total;
    let (query, sink) = (query as f64, sums.sink / sums.total);
    AttentionRow {
        seen,
        // Rounding of the weights can leave some 1e-7 below zero, which no entropy is; not a number stays so.
        entropy: if entropy < 0.0 { 0.0 } else { entropy },
        distance: query - sums.position / sums.total,
        first: sums.first / sums.total,
        sink,
        sink_distance: query * sink - sums.sink_position / sums.total,
    }
}

on_lanes! {
    fn sum_block = sum_block_on(
        problem: &Problem<'_>,
        block: &Block,
        probe: &AttentionProbe,
        scratch: &mut Scratch,
    )
}

/// # Safety
/// The instruction set of `L`.
#[inline(always)]
unsafe fn sum_block_on<L: Lanes>(
    problem: &Problem<'_>,
    block: &Block,
    probe: &AttentionProbe,
    scratch: &mut Scratch,
) {
    let (pairs, n_buckets) = (problem.tiles.cache.shape().key_pairs(), probe.n_buckets());
    let rows = block.tokens.len() * problem.group();
    let most = Single::<L>::MAX_ROWS;
    scratch.reset(problem, rows, n_buckets);
    // SAFETY: `reset` made room for these shapes; positions lie inside the cache.
    unsafe {
        let row = &mut scratch.row[..row_len(problem)];
        let to = (scratch.q.as_mut_ptr(), &mut scratch.query_scales[..]);
        pack_queries::<Single<L>>(problem, block, row, scratch.packed.as_mut_ptr(), to);
        for tile in block.positions.clone().step_by(TILE) {
            let k = problem.tiles.keys::<Single<L>>(block.kv_head, tile, scratch.keys.as_mut_ptr());
            for first in (0..rows).step_by(most) {
                let count = most.min(rows - first);
                let seen: [_; ROWS] = seen(problem, block, first..first + count, tile);
                let end = seen[..count].iter().map(|seen| seen.1).max().unwrap_or(0);
                let q = scratch.q.as_ptr().add(first * pairs * 2);
                score(
                    count,
                    &Products::<Single<L>> { q, k, pairs, scores: scratch.scores.as_mut_ptr() },
                    end,
                );
                for (r, seen) in seen[..count].iter().enumerate().filter(|(_, seen)| seen.0 < seen.1) {
                    let query = problem.start + place(problem, block, first + r).0;
                    let part = Part { tile, query, seen: seen.0..seen.1, sink_tokens: probe.sink_tokens };
                    let scores = &mut scratch.scores[r * TILE..][..TILE];
                    let mass = &mut scratch.mass[(first + r) * n_buckets..][..n_buckets];
                    add_tile::<L>(scores, &part, &mut scratch.sums[first + r], mass);
                }
            }
        }
    }
}

/// What one row sees of one tile.
struct Part {
    /// Position of its first key.
    tile: usize,
    /// Position of the query.
    query: usize,
    /// Keys of the tile that the query sees; not empty.
    seen: Range<usize>,
    sink_tokens: usize,
}

/// Adds the keys of a tile to the sums of a row; `scores` become weights.
///
/// # Safety
/// The instruction set of `L`.
#[inline(always)]
unsafe fn add_tile<L: Lanes>(scores: &mut [f32], part: &Part, sums: &mut Sums, mass: &mut [f64]) {
    // SAFETY: passed on from the caller.
    let [total, weighted, keys] = unsafe {
        move_base::<L>(scores, part, sums, mass);
        weigh::<L>(scores, part.seen.end, sums.base)
    };
    let total = f64::from(total);
    sums.total += total;
    sums.weighted += f64::from(weighted);
    sums.position += f64::from(keys) + part.tile as f64 * total;
    let weights = &scores[..part.seen.end];
    let distance = |key: usize| part.query - part.tile - key;
    let mut key = part.seen.start;
    let [furthest, nearest] = [key, part.seen.end - 1].map(|key| AttentionProbe::bucket(distance(key)));
    if furthest == nearest {
        mass[nearest] += total;
        key = part.seen.end;
    }
    while key < part.seen.end {
        let bucket = AttentionProbe::bucket(distance(key));
        // Keys grow as distances fall.
        let end = (distance(0) - AttentionProbe::smallest(bucket) + 1).min(part.seen.end);
        mass[bucket] += weights[key..end].iter().map(|weight| f64::from(*weight)).sum::<f64>();
        key = end;
    }
    let sinks = part.seen.end.min(part.sink_tokens.saturating_sub(part.tile));
    for (key, weight) in weights[..sinks].iter().enumerate().skip(part.seen.start) {
        let weight = f64::from(*weight);
        sums.sink += weight;
        sums.sink_position += weight * (part.tile + key) as f64;
    }
    if part.tile + part.seen.start == 0 {
        sums.first += f64::from(weights[0]);
    }
}

/// Hides keys that the row does not see and raises the base where a score is far above it, with all sums so far.
///
/// # Safety
/// The instruction set of `L`.
#[inline(always)]
unsafe fn move_base<L: Lanes>(scores: &mut [f32], part: &Part, sums: &mut Sums, mass: &mut [f64]) {
    let width = part.seen.end.next_multiple_of(L::N);
    let hide = part.seen.start > 0 || part.seen.end < width;
    let row = scores[..width].as_mut_ptr();
    // SAFETY: `width` scores are whole vectors inside the slice; the instruction set is the caller's promise.
    let moved = unsafe {
        let unseen = L::splat(UNSEEN);
        let mut top = unseen;
        for key in (0..width).step_by(L::N) {
            let mut x = L::load(row.add(key));
            if hide {
                let (from, to) = (part.seen.start.saturating_sub(key), part.seen.end - key);
                x = L::keep(x, from, to, unseen);
                L::store(row.add(key), x);
            }
            top = L::max(top, x);
        }
        raise_base::<L>(&mut sums.base, top)
    };
    if let Some(moved) = moved.map(f64::from) {
        let factor = moved.exp2();
        sums.weighted = factor * (sums.weighted + moved * sums.total);
        let Sums { total, position, first, sink, sink_position, .. } = sums;
        for sum in [total, position, first, sink, sink_position].into_iter().chain(mass) {
            *sum *= factor;
        }
    }
}

/// Turns scores into weights. Returns the sums of weight, of weight times score above the base, and of weight times key.
///
/// # Safety
/// The instruction set of `L`.
#[inline(always)]
unsafe fn weigh<L: Lanes>(scores: &mut [f32], end: usize, base: f32) -> [f32; 3] {
    let row = scores[..end.next_multiple_of(L::N)].as_mut_ptr();
    // SAFETY: whole vectors inside the slice; the instruction set is the caller's promise.
    unsafe {
        let base = L::splat(base);
        let mut sums = [L::splat(0.0); 3];
        for key in (0..end).step_by(L::N) {
            let above = L::sub(L::load(row.add(key)), base);
            let weight = lanes::exp::exp2_fine::<L>(above);
            L::store(row.add(key), weight);
            sums[0] = L::add(sums[0], weight);
            sums[1] = L::mul_add(weight, above, sums[1]);
            sums[2] = L::mul_add(weight, L::load(KEYS.as_ptr().add(key)), sums[2]);
        }
        [L::sum(sums[0]), L::sum(sums[1]), L::sum(sums[2])]
    }
}

#[cfg(test)]
mod tests;
