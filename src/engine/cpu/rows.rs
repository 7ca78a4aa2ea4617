//! Sharing the rows of a buffer between threads.

use super::pool::Pool;

/// Values that one thread finishes in about the time that another needs to wake up.
const SERIAL_BELOW: usize = 1 << 15;

/// Values handed out at a time.
const PIECE: usize = 1 << 14;

/// The start of a buffer whose pieces go to different threads.
struct Start(*mut f32);

// SAFETY: pieces do not overlap.
unsafe impl Sync for Start {}

impl Start {
    /// # Safety
    /// The values lie inside the buffer, which outlives `'a`; nobody else uses them meanwhile.
    unsafe fn piece<'a>(&self, from: usize, len: usize) -> &'a mut [f32] {
        // SAFETY: the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.0.add(from), len) }
    }
}

/// Calls `f(first row, rows)` on pieces of `values: [rows, width]`, whoever is free taking the next. Which rows form
/// a piece depends on `width` only.
///
/// # Panics
/// When `values` is not whole rows.
pub fn for_each_rows(pool: &Pool, values: &mut [f32], width: usize, f: impl Fn(usize, &mut [f32]) + Sync) {
    if values.is_empty() {
        return;
    }
    assert!(width > 0 && values.len().is_multiple_of(width), "{} values in rows of {width}", values.len());
    if values.len() < SERIAL_BELOW {
        f(0, values);
        return;
    }
    let start = Start(values.as_mut_ptr());
    pool.for_each(values.len() / width, (PIECE / width).max(1), |rows| {
        // SAFETY: ranges of rows are disjoint and inside `values`, which is borrowed until all are done.
        let piece = unsafe { start.piece(rows.start * width, rows.len() * width) };
        f(rows.start, piece);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_visited_once_with_its_number() {
        for (rows, width, threads) in [(0, 0, 2), (1, 5, 2), (3000, 13, 3), (2, 40_000, 2), (40_000, 1, 1)] {
            let mut values = vec![0.0; rows * width];
            for_each_rows(&Pool::new(threads), &mut values, width, |first, piece| {
                for (i, row) in piece.chunks_mut(width).enumerate() {
                    row.iter_mut().for_each(|x| *x += (first + i) as f32 + 1.0);
                }
            });
            for (row, found) in values.chunks(width.max(1)).enumerate() {
                assert!(found.iter().all(|x| *x == row as f32 + 1.0), "{rows} {width} {threads}");
            }
        }
    }
}
