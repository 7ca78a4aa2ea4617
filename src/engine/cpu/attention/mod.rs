//! Causal attention over the cache, for chunks of a prompt and for single tokens.
//!
//! Query heads that share a key head become rows of one product, and so do neighbouring tokens. A block of rows walks
//! over the tiles that it may see with a running softmax ([`kernel`]); tiles after its last token are never touched.
//! Chunks of a prompt are split into blocks of tokens. Few tokens over a long cache are split along the cache
//! instead, in runs of fixed length whose partial results are merged in order. Each row meets the same tiles with
//! the same arithmetic however the work is divided: results do not depend on the number of threads.

mod arithmetic;
mod block;
#[cfg(target_arch = "x86_64")]
mod integers;
mod kernel;
mod rotation;
mod softmax;
mod statistics;
mod stored;
mod tiles;

use std::sync::{Mutex, PoisonError};

use self::block::{Block, Output, Scratch};
pub use self::rotation::TiledRotation;
pub use self::statistics::statistics;
use self::tiles::Tiles;
use super::aligned::Aligned;
use super::cache::{HeadRows, LayerCache, TILE};
use super::isa::Isa;
use super::pool::Pool;

/// Up to this many tokens the cache is split instead of the tokens.
const SPLIT_UP_TO_TOKENS: usize = 16;

/// Tiles in one piece of a split cache.
const TILES_PER_SPLIT: usize = 8;

/// Query rows that share one pass over the tiles: enough to make converting a tile cheap.
const ROWS_PER_BLOCK: usize = 192;

/// Blocks per thread to aim for, so that nobody waits long for the last one.
const BLOCKS_PER_THREAD: usize = 4;

/// Values that one thread reads faster than another wakes up.
const SERIAL_BELOW: usize = 1 << 12;

/// One call of [`attend`].
#[derive(Clone, Copy)]
pub struct Problem<'a> {
    /// Rotated queries of `n_heads` heads at positions `start..start + tokens`.
    q: HeadRows<'a>,
    n_heads: usize,
    start: usize,
    /// Positions a query sees, itself included; `None`: all before it.
    window: Option<usize>,
    /// What scores are multiplied by.
    scale: f32,
    tiles: Tiles<'a>,
}

impl<'a> Problem<'a> {
    /// Queries at positions `start..` over a cache that holds all positions up to their last one.
    ///
    /// `key_rotation` covers these positions when the cache holds unrotated keys.
    ///
    /// # Panics
    /// When heads do not divide into groups, positions exceed the cache or its rotation, or pairs differ.
    pub fn new(
        q: HeadRows<'a>,
        n_heads: usize,
        start: usize,
        cache: &'a LayerCache,
        key_rotation: Option<&'a TiledRotation>,
    ) -> Self {
        let (shape, end) = (cache.shape(), start + q.tokens);
        assert!(
            n_heads.is_multiple_of(shape.n_kv_heads),
            "{n_heads} heads share {} key heads",
            shape.n_kv_heads
        );
        assert!(end <= cache.capacity(), "{end} positions in a cache of {}", cache.capacity());
        if let Some(rotation) = key_rotation {
            assert!(end <= rotation.positions(), "{end} positions, {} angles", rotation.positions());
            assert_eq!(rotation.pairs(), shape.rotary_dim / 2, "pairs of the rotation");
        }
        let scale = 1.0 / (shape.head_dim as f32).sqrt();
        let tiles = Tiles { cache, rotation: key_rotation, end };
        Self { q, n_heads, start, window: None, scale, tiles }
    }

    /// Multiplies scores by `scale` instead of 1 / sqrt(head_dim).
    pub fn with_scale(self, scale: f32) -> Self {
        Self { scale, ..self }
    }

    /// Limits what a query sees to the `window` positions up to its own.
    pub fn with_window(self, window: Option<usize>) -> Self {
        Self { window, ..self }
    }

    /// Multiplications and additions of scores and mixes, masked ones left out.
    pub fn operations(&self) -> f64 {
        let seen = |position: usize| self.window.map_or(position + 1, |window| window.min(position + 1));
        let keys: usize = (self.start..self.start + self.q.tokens).map(seen).sum();
        4.0 * keys as f64 * (self.n_heads * self.tiles.cache.shape().head_dim) as f64
    }

    /// Bytes of the keys and values that are seen, each once.
    pub fn bytes(&self) -> f64 {
        let (cache, oldest) = (self.tiles.cache, self.first_tile(0));
        LayerCache::size_bytes(cache.shape(), self.tiles.end - oldest, cache.cache_type()) as f64
    }

    /// Query heads per key head.
    fn group(&self) -> usize {
        self.n_heads / self.tiles.cache.shape().n_kv_heads
    }

    /// The first position that any of the tokens from `token` on sees, rounded down to a tile.
    fn first_tile(&self, token: usize) -> usize {
        let oldest = self.window.map_or(0, |window| (self.start + token + 1).saturating_sub(window));
        oldest / TILE * TILE
    }
}

/// Memory that [`attend`] keeps between calls.
pub struct AttentionWorkspace {
    slots: Vec<Mutex<Scratch>>,
    /// `[key heads, splits, rows, 2 + head_dim]`
    partial: Aligned<f32>,
}

impl AttentionWorkspace {
    /// For calls with `pool`, or another one with as many threads.
    pub fn new(pool: &Pool) -> Self {
        Self { slots: (0..pool.threads()).map(|_| Mutex::default()).collect(), partial: Aligned::default() }
    }
}

/// softmax(scale * q k^T) v with a causal mask, to `out`: `[tokens, n_heads * head_dim]`.
///
/// # Panics
/// When `out` or the queries have another size, or `workspace` was made for fewer threads.
pub fn attend(
    isa: Isa,
    pool: &Pool,
    problem: &Problem<'_>,
    workspace: &mut AttentionWorkspace,
    out: &mut [f32],
) {
    let shape = problem.tiles.cache.shape();
    let tokens = problem.q.tokens;
    assert_eq!(out.len(), tokens * problem.n_heads * shape.head_dim, "size of the output");
    assert!(pool.threads() <= workspace.slots.len(), "a workspace for {} threads", workspace.slots.len());
    if tokens == 0 || shape.head_dim == 0 {
        return;
    }
    if tokens <= SPLIT_UP_TO_TOKENS {
        attend_split(isa, pool, problem, workspace, out);
        return;
    }
    let per_block = tokens_per_block(problem, pool.threads());
    let n_blocks = tokens.div_ceil(per_block);
    let output = Output::Mixed(out.as_mut_ptr());
    let slots = &workspace.slots;
    pool.for_each_slot(n_blocks * shape.n_kv_heads, 1, |slot, items| {
        for item in items {
            // Later tokens see more: longest blocks first.
            let first = (n_blocks - 1 - item / shape.n_kv_heads) * per_block;
            let tokens = first..tokens.min(first + per_block);
            let positions = problem.first_tile(first)..problem.start + tokens.end;
            let block = Block { kv_head: item % shape.n_kv_heads, tokens, positions };
            // SAFETY: `out` has room for all tokens; blocks differ in head or tokens.
            unsafe { block::run(isa, problem, &block, &mut lock(&slots[slot]), output) };
        }
    });
}

/// The scratch of a slot; nothing in it outlives a panic.
fn lock(slot: &Mutex<Scratch>) -> std::sync::MutexGuard<'_, Scratch> {
    slot.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Tokens in one block. Rows do not depend on it, so it may depend on the number of threads.
fn tokens_per_block(problem: &Problem<'_>, threads: usize) -> usize {
    let most = (ROWS_PER_BLOCK / problem.group()).max(1);
    let n_kv_heads = problem.tiles.cache.shape().n_kv_heads;
    let wanted_blocks = (threads * BLOCKS_PER_THREAD).div_ceil(n_kv_heads);
    problem.q.tokens.div_ceil(wanted_blocks).next_multiple_of(SPLIT_UP_TO_TOKENS).min(most)
}

/// [`attend`] with the cache split in runs of [`TILES_PER_SPLIT`] tiles.
fn attend_split(
    isa: Isa,
    pool: &Pool,
    problem: &Problem<'_>,
    workspace: &mut AttentionWorkspace,
    out: &mut [f32],
) {
    let shape = problem.tiles.cache.shape();
    let tokens = problem.q.tokens;
    let (begin, end) = (problem.first_tile(0), problem.start + tokens);
    let split = TILES_PER_SPLIT * TILE;
    // Counted from position 0, whatever the window: where a run starts never depends on the query.
    let (first, last) = (begin / split, end.div_ceil(split));
    let n_splits = last - first;
    let row = 2 + shape.head_dim;
    let rows = tokens * problem.group();
    workspace.partial.reserve(shape.n_kv_heads * n_splits * rows * row);
    let output = Output::Partial(workspace.partial.as_mut_ptr());
    let slots = &workspace.slots;
    let work = |slot: usize, items: std::ops::Range<usize>| {
        for item in items {
            let (kv_head, run) = (item / n_splits, first + item % n_splits);
            let positions = begin.max(run * split)..end.min((run + 1) * split);
            let block = Block { kv_head, tokens: 0..tokens, positions };
            // SAFETY: `partial` has room for `rows` rows of every item.
            unsafe {
                let output = output.skip(item * rows * row);
                block::run(isa, problem, &block, &mut lock(&slots[slot]), output);
            }
        }
    };
    let items = shape.n_kv_heads * n_splits;
    if (end - begin) * shape.n_kv_heads * shape.head_dim < SERIAL_BELOW {
        work(0, 0..items);
    } else {
        pool.for_each_slot(items, 1, work);
    }
    for kv_head in 0..shape.n_kv_heads {
        let partial = &workspace.partial[kv_head * n_splits * rows * row..][..n_splits * rows * row];
        for r in 0..rows {
            let (token, head) = (r / problem.group(), kv_head * problem.group() + r % problem.group());
            let to = (token * problem.n_heads + head) * shape.head_dim;
            merge(
                partial[r * row..].chunks(rows * row).map(|run| &run[..row]),
                &mut out[to..to + shape.head_dim],
            );
        }
    }
}

/// Merges the runs of one row, each `[2 + head_dim]`: base, sum of weights, weighted sum of values.
fn merge<'a>(runs: impl Iterator<Item = &'a [f32]> + Clone, out: &mut [f32]) {
    let base = runs.clone().map(|run| run[0]).fold(f32::NEG_INFINITY, f32::max);
    let mut total = 0.0;
    out.fill(0.0);
    for run in runs {
        // A run in which the row sees nothing has weight 0.
        let weight = if run[0] == f32::NEG_INFINITY && base > run[0] { 0.0 } else { (run[0] - base).exp2() };
        total += weight * run[1];
        for (sum, x) in out.iter_mut().zip(&run[2..]) {
            *sum += weight * x;
        }
    }
    let inverse = 1.0 / total;
    for sum in out {
        *sum *= inverse;
    }
}

#[cfg(test)]
mod tests;
