//! Products of several matrices with the same rows, cut into pieces that any thread can take.

use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::float::{self, FloatRows};
use super::format::{Format, LANES};
use super::kernels::{ExpandedTile, TILE_BLOCKS, TILE_LANES, TILE_PANELS, multiply_tile};
use super::rows::{Forms, PackedRow, PackedRows, TILE_ROWS};
use super::{Matrix, Packed};
use crate::engine::cpu::aligned::Aligned;
use crate::engine::cpu::isa::{Isa, Vectorised};
use crate::engine::cpu::pool::Pool;
use crate::engine::cpu::shared::SharedMut;

/// Up to this many rows the weights are streamed, their integers taken apart in registers, instead of expanded.
const STREAM_ROWS: usize = 8;
/// Pieces per thread that a product is cut into, so that no thread waits long for the last one.
const PIECES_PER_THREAD: usize = 12;
/// Row tiles that a piece has at least, to be worth expanding the weights for.
const LEAST_ROW_TILES: usize = 16;
const TILE_SUMS: usize = TILE_ROWS * TILE_LANES;
const ONES: [f32; TILE_ROWS] = [1.0; TILE_ROWS];

/// Memory that products reuse: packed activations, and one expanded tile per thread.
#[derive(Default)]
pub struct MatrixWorkspace {
    pub(super) integers: PackedRows,
    floats: FloatRows,
    slots: Vec<Mutex<Slot>>,
}

/// Scratch of one thread.
#[derive(Default)]
struct Slot {
    tile: ExpandedTile,
    /// `[row tile, 6, 64]`
    sums: Aligned<f32>,
}

/// One product: `y = x W^T`, or `y += x W^T` with `accumulate`.
pub struct Product<'m, 'w, 'y> {
    pub matrix: &'m Matrix<'w>,
    /// `[rows, outputs]`
    pub y: &'y mut [f32],
    pub accumulate: bool,
}

/// Which part of which product: some rows times some outputs of one matrix.
#[derive(Clone, Copy)]
pub(super) struct Place {
    /// Index of the matrix.
    pub matrix: usize,
    pub first_row: usize,
    pub rows: usize,
    pub first_output: usize,
    pub outputs: usize,
}

/// What is done with finished parts of products. Each output is part of exactly one place.
pub(super) trait Sink: Sync {
    /// Called before the sums of a place are computed.
    fn prepare(&self, place: &Place);

    /// `sums`: `[rows, stride]`, to be multiplied by `steps`: `[rows]`.
    fn finish(&self, place: &Place, sums: &[f32], stride: usize, steps: &[f32]);
}

/// Writes the outputs `y` of each product.
struct Store<'y> {
    isa: Isa,
    targets: Vec<Target<'y>>,
}

struct Target<'y> {
    y: SharedMut<'y, f32>,
    outputs: usize,
    accumulate: bool,
}

impl<'y> Store<'y> {
    fn row(&self, place: &Place, row: usize) -> &'y mut [f32] {
        let target = &self.targets[place.matrix];
        let at = (place.first_row + row) * target.outputs + place.first_output;
        // SAFETY: places are disjoint, and the one call that is busy with a place takes its rows one after the other.
        unsafe { target.y.slice(at, place.outputs) }
    }
}

impl Sink for Store<'_> {
    /// Asks for the cache lines of `y`: arriving later, they would stall the stores and all behind them.
    fn prepare(&self, place: &Place) {
        #[cfg(target_arch = "x86_64")]
        for row in 0..place.rows {
            for line in self.row(place, row).chunks(16) {
                // SAFETY: a prefetch of any address is harmless; this one is valid.
                unsafe {
                    std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_ET0 }>(
                        line.as_ptr().cast(),
                    );
                }
            }
        }
    }

    fn finish(&self, place: &Place, sums: &[f32], stride: usize, steps: &[f32]) {
        let accumulate = self.targets[place.matrix].accumulate;
        for (row, step) in steps.iter().enumerate().take(place.rows) {
            let sums = &sums[row * stride..][..place.outputs];
            let (step, to) = (*step, self.row(place, row));
            // A single panel: too little to be worth a call.
            if place.outputs == LANES
                && let (Some(sums), Some(to)) = (sums.first_chunk::<LANES>(), to.first_chunk_mut::<LANES>())
            {
                StoreRow { sums, step, accumulate, to }.run();
                continue;
            }
            self.isa.vectorise(StoreRow { sums, step, accumulate, to });
        }
    }
}

/// Multiplies `x`, `[rows, inputs]`, by several matrices with as many inputs.
///
/// # Panics
/// When a slice has another length.
pub fn multiply_many(
    pool: &Pool,
    x: &[f32],
    rows: usize,
    products: &mut [Product<'_, '_, '_>],
    workspace: &mut MatrixWorkspace,
) {
    for product in products.iter() {
        assert_eq!(x.len(), rows * product.matrix.inputs, "x must be [rows, inputs]");
        assert_eq!(product.y.len(), rows * product.matrix.outputs, "y must be [rows, outputs]");
    }
    let matrices: Vec<&Matrix<'_>> = products.iter().map(|product| product.matrix).collect();
    let Some(isa) = matrices.first().map(|matrix| matrix.isa) else { return };
    let targets = products.iter_mut().map(|product| Target {
        y: SharedMut::new(product.y),
        outputs: product.matrix.outputs,
        accumulate: product.accumulate,
    });
    let store = Store { isa, targets: targets.collect() };
    let integers = matrices.iter().all(|matrix| matches!(matrix.packed, Packed::Integers { .. }));
    let few = rows <= STREAM_ROWS && integers;
    workspace.pack(pool, &matrices, x, rows);
    if few {
        workspace.stream(pool, &matrices, rows, &store);
    } else {
        workspace.tiles(pool, &matrices, rows, &store);
    }
}

/// Sums in steps to finished outputs of one row.
struct StoreRow<'a> {
    sums: &'a [f32],
    step: f32,
    accumulate: bool,
    to: &'a mut [f32],
}

impl Vectorised for StoreRow<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let pairs = self.to.iter_mut().zip(self.sums);
        if self.accumulate {
            pairs.for_each(|(y, sum)| *y += sum * self.step);
        } else {
            pairs.for_each(|(y, sum)| *y = sum * self.step);
        }
    }
}

/// Slices of a list of matrices numbered through: for the n-th, which matrix and which of its slices.
pub(super) fn locate(matrices: &[&Matrix<'_>], mut index: usize, panels: usize) -> (usize, usize) {
    for (number, matrix) in matrices.iter().enumerate() {
        let n = matrix.n_panels().div_ceil(panels);
        if index < n {
            return (number, index);
        }
        index -= n;
    }
    unreachable!("an index below the number of slices")
}

pub(super) fn count(matrices: &[&Matrix<'_>], panels: usize) -> usize {
    matrices.iter().map(|matrix| matrix.n_panels().div_ceil(panels)).sum()
}

impl Matrix<'_> {
    /// The place of some rows and panels in the product with this matrix, the `number`-th.
    pub(super) fn place(&self, number: usize, first_row: usize, rows: usize, panels: &Range<usize>) -> Place {
        let first_output = panels.start * LANES;
        let outputs = (panels.end * LANES).min(self.outputs) - first_output;
        Place { matrix: number, first_row, rows, first_output, outputs }
    }
}

impl MatrixWorkspace {
    /// Packs `x`, `[rows, inputs]`, in the forms that the matrices need.
    pub(super) fn pack(&mut self, pool: &Pool, matrices: &[&Matrix<'_>], x: &[f32], rows: usize) {
        let is_float = |matrix: &&Matrix<'_>| matches!(matrix.packed, Packed::Floats(_));
        let format = |matrix: &&Matrix<'_>| match matrix.packed {
            Packed::Integers { format, .. } => Some(format),
            Packed::Floats(_) => None,
        };
        let bytes = matrices.iter().filter_map(format).any(Format::by_eight);
        let words = matrices.iter().filter_map(format).any(|format| !format.by_eight());
        if let (Some(matrix), true) = (matrices.first(), bytes || words) {
            self.integers.pack(pool, matrix.isa, x, rows, Forms { words, bytes });
        }
        if matrices.iter().any(is_float) {
            self.floats.pack(pool, x, rows);
        }
        self.slots.resize_with(pool.threads().max(self.slots.len()), Mutex::default);
    }

    /// Many rows: 64 outputs at a time, expanded once per piece.
    pub(super) fn tiles(&self, pool: &Pool, matrices: &[&Matrix<'_>], rows: usize, sink: &dyn Sink) {
        let n_tiles = count(matrices, TILE_PANELS);
        let row_tiles = rows.div_ceil(TILE_ROWS);
        let wanted = (PIECES_PER_THREAD * pool.threads()).div_ceil(n_tiles.max(1));
        let parts = wanted.min(row_tiles.div_ceil(LEAST_ROW_TILES)).max(1);
        let per_part = row_tiles.div_ceil(parts);
        pool.for_each_slot(n_tiles * parts, 1, |slot, range| {
            let mut slot = self.slot(slot);
            for index in range {
                let (number, tile) = locate(matrices, index / parts, TILE_PANELS);
                let first = (index % parts * per_part).min(row_tiles);
                let row_range = first..(first + per_part).min(row_tiles);
                let matrix = matrices[number];
                let panels = tile * TILE_PANELS..((tile + 1) * TILE_PANELS).min(matrix.n_panels());
                if matches!(matrix.packed, Packed::Integers { .. }) {
                    self.integer_tiles((number, matrix), panels, row_range, &mut slot, sink);
                } else {
                    for row_tile in row_range {
                        self.float_tile((number, matrix), panels.clone(), row_tile, &mut slot, sink);
                    }
                }
            }
        });
    }

    /// Some row tiles times up to four panels: block range after block range, each expanded once.
    fn integer_tiles(
        &self,
        (number, matrix): (usize, &Matrix<'_>),
        panels: Range<usize>,
        row_tiles: Range<usize>,
        slot: &mut Slot,
        sink: &dyn Sink,
    ) {
        let Packed::Integers { format, n_blocks, panels: bytes } = &matrix.packed else { return };
        let size = format.panel_bytes(*n_blocks);
        let mut panel_bytes: [&[u8]; TILE_PANELS] = [&[]; TILE_PANELS];
        for (to, panel) in panel_bytes.iter_mut().zip(panels.clone()) {
            *to = &bytes[panel * size..][..size];
        }
        let panel_bytes = &panel_bytes[..panels.len()];
        // Sums outlive a block range only when there are several.
        let one_range = *n_blocks <= TILE_BLOCKS;
        slot.sums.reserve(if one_range { 1 } else { row_tiles.len() } * TILE_SUMS);
        for from in (0..*n_blocks).step_by(TILE_BLOCKS) {
            let here = TILE_BLOCKS.min(n_blocks - from);
            slot.tile.fill(matrix.isa, *format, panel_bytes, from, here);
            for row_tile in row_tiles.clone() {
                let at = if one_range { 0 } else { row_tile - row_tiles.start };
                let sums = slot.sums[at * TILE_SUMS..].first_chunk_mut::<TILE_SUMS>();
                let sums = sums.expect("room was made for all row tiles");
                if from == 0 {
                    sums.fill(0.0);
                }
                let first = row_tile * TILE_ROWS;
                let n = TILE_ROWS.min(self.integers.rows() - first);
                let rows: [PackedRow<'_>; TILE_ROWS] =
                    std::array::from_fn(|row| self.integers.row(first + row.min(n - 1), from, here));
                let place = matrix.place(number, first, n, &panels);
                let last = from + here == *n_blocks;
                if last {
                    sink.prepare(&place);
                }
                multiply_tile(matrix.isa, *format, &rows[..n], &slot.tile, sums);
                if last {
                    sink.finish(&place, sums, TILE_LANES, self.steps(*format, first, n));
                }
            }
        }
    }

    /// What the sums of `n` rows are to be multiplied by; 8-bit activations are scaled block by block.
    pub(super) fn steps(&self, format: Format, first: usize, n: usize) -> &[f32] {
        if format.by_eight() { &ONES[..n] } else { &self.integers.steps()[first..first + n] }
    }

    /// One row tile times up to four panels in f32.
    fn float_tile(
        &self,
        (number, matrix): (usize, &Matrix<'_>),
        panels: Range<usize>,
        row_tile: usize,
        slot: &mut Slot,
        sink: &dyn Sink,
    ) {
        let Packed::Floats(values) = &matrix.packed else { return };
        let size = matrix.inputs * LANES;
        // Missing panels are computed as the last one once more, and left out of the piece.
        let four = std::array::from_fn(|c| &values[(panels.start + c).min(panels.end - 1) * size..][..size]);
        slot.sums.reserve(TILE_SUMS);
        let sums = slot.sums.first_chunk_mut::<TILE_SUMS>().expect("room was made");
        let (first_row, rows, x) = self.floats.tile(row_tile);
        let place = matrix.place(number, first_row, rows, &panels);
        sink.prepare(&place);
        float::multiply_tile(matrix.isa, rows, x, four, sums);
        sink.finish(&place, sums, TILE_LANES, &ONES);
    }

    fn slot(&self, index: usize) -> MutexGuard<'_, Slot> {
        self.slots[index].lock().unwrap_or_else(PoisonError::into_inner)
    }
}
