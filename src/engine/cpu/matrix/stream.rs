//! Products with few rows: the weights are streamed, each read once.

use std::ops::Range;

use super::format::LANES;
use super::kernels::{reads_side_by_side, stream_panels};
use super::product::{MatrixWorkspace, Sink, count, locate};
use super::rows::PackedRow;
use super::{Matrix, Packed};
use crate::engine::cpu::pool::Pool;

/// Panels that are read side by side at most.
const SIDE_BY_SIDE: usize = 4;
/// Panels in the smallest piece.
const LEAST: usize = 2;

/// Borders of pieces of `0..n`: nearly all goes in one long piece for each thread, because streams are slow to start, the
/// rest in shorter and shorter ones, because others wait for the last. Most pieces are some whole times [`SIDE_BY_SIDE`].
fn shrinking_pieces(n: usize, threads: usize) -> Vec<usize> {
    let mut borders = vec![0];
    let mut done = 0;
    while done < n {
        let share = (n - done) * 7 / (8 * threads);
        done += ((share + 1) / SIDE_BY_SIDE * SIDE_BY_SIDE).max(LEAST).min(n - done);
        borders.push(done);
    }
    borders
}

/// Some rows and one of the matrices they are multiplied by.
struct Stream<'a, 'w, S: Sink> {
    workspace: &'a MatrixWorkspace,
    rows: &'a [PackedRow<'a>],
    number: usize,
    matrix: &'a Matrix<'w>,
    sink: &'a S,
}

impl MatrixWorkspace {
    /// Few rows with matrices of integers.
    pub(super) fn stream(&self, pool: &Pool, matrices: &[&Matrix<'_>], rows: usize, sink: &impl Sink) {
        let blocks = self.integers.n_blocks();
        let rows: Vec<PackedRow<'_>> = (0..rows).map(|row| self.integers.row(row, 0, blocks)).collect();
        let borders = shrinking_pieces(count(matrices, 1), pool.threads());
        pool.for_each_slot(borders.len() - 1, 1, |_, range| {
            let (mut from, end) = (borders[range.start], borders[range.end]);
            while from < end {
                let (number, panel) = locate(matrices, from, 1);
                let matrix = matrices[number];
                let panels = panel..matrix.n_panels().min(panel + end - from);
                from += panels.len();
                Stream { workspace: self, rows: &rows, number, matrix, sink }.multiply(panels);
            }
        });
    }
}

impl<S: Sink> Stream<'_, '_, S> {
    /// All rows with some panels: one row with several panels side by side where that is faster, else four rows, two or one with a
    /// panel.
    fn multiply(&self, panels: Range<usize>) {
        let Packed::Integers { format, .. } = &self.matrix.packed else { return };
        let mut rest = panels;
        if let [row] = self.rows
            && reads_side_by_side(self.matrix.isa, *format)
        {
            rest = self.side_by_side::<SIDE_BY_SIDE>(row, rest);
            rest = self.side_by_side::<2>(row, rest);
        }
        for panel in rest {
            let mut first = 0;
            while first < self.rows.len() {
                let rows = &self.rows[first..];
                first += if let Some(rows) = rows.first_chunk::<4>() {
                    self.run([panel], first, rows)
                } else if let Some(rows) = rows.first_chunk::<2>() {
                    self.run([panel], first, rows)
                } else if let Some(rows) = rows.first_chunk::<1>() {
                    self.run([panel], first, rows)
                } else {
                    return;
                };
            }
        }
    }

    /// One row with the first panels of `panels`, a multiple of `P`; returns the rest.
    ///
    /// Each of those that are read side by side is followed by the next one in memory, so that streams are as long as they can be.
    fn side_by_side<const P: usize>(&self, row: &PackedRow<'_>, panels: Range<usize>) -> Range<usize> {
        let length = panels.len() / P;
        for place in 0..length {
            let panels = std::array::from_fn(|stream| panels.start + stream * length + place);
            self.run::<1, P>(panels, 0, std::array::from_ref(row));
        }
        panels.start + P * length..panels.end
    }

    /// `R` rows, of which the first one is row `first`, with `P` panels. Returns the number of rows.
    fn run<const R: usize, const P: usize>(
        &self,
        panels: [usize; P],
        first: usize,
        rows: &[PackedRow<'_>; R],
    ) -> usize {
        let Packed::Integers { format, n_blocks, panels: bytes } = &self.matrix.packed else { return R };
        let size = format.panel_bytes(*n_blocks);
        let bytes = panels.map(|panel| &bytes[panel * size..][..size]);
        let mut sums = [[[0.0; LANES]; R]; P];
        stream_panels((self.matrix.isa, *format, &bytes, *n_blocks), rows, &mut sums);
        let steps = self.workspace.steps(*format, first, R);
        for (panel, sums) in panels.into_iter().zip(&sums) {
            let place = self.matrix.place(self.number, first, R, &(panel..panel + 1));
            self.sink.finish(&place, sums.as_flattened(), LANES, steps);
        }
        R
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_shrink_and_leave_nothing_out() {
        for (n, threads) in [(0, 2), (1, 1), (3, 8), (60, 2), (61, 2), (768, 3)] {
            let borders = shrinking_pieces(n, threads);
            assert_eq!((borders[0], borders[borders.len() - 1]), (0, n));
            let sizes: Vec<usize> = borders.windows(2).map(|pair| pair[1] - pair[0]).collect();
            assert!(sizes.iter().all(|size| *size > 0), "{sizes:?}");
            assert!(sizes.is_sorted_by(|a, b| a >= b), "{sizes:?}");
        }
    }
}
