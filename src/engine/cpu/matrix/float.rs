//! Kernels for weights in f32, which stay as they are: panels `[input, lane]`, products and sums in f32.

use super::format::LANES;
use super::kernels::{TILE_LANES, TILE_PANELS};
use super::rows::TILE_ROWS;
use crate::engine::cpu::aligned::Aligned;
use crate::engine::cpu::isa::Isa;
use crate::engine::cpu::pool::Pool;
use crate::engine::cpu::shared::SharedMut;

/// Rows `[rows, in]` in tiles of [`TILE_ROWS`], the last one shorter: `[tile, input, row]`.
#[derive(Default)]
pub struct FloatRows {
    rows: usize,
    inputs: usize,
    values: Aligned<f32>,
}

impl FloatRows {
    /// Packs `x`, `[rows, in]`.
    ///
    /// # Panics
    /// When the length of `x` is not a multiple of `rows`.
    pub fn pack(&mut self, pool: &Pool, x: &[f32], rows: usize) {
        let inputs = x.len() / rows.max(1);
        assert_eq!(x.len(), rows * inputs, "x must be [rows, inputs]");
        (self.rows, self.inputs) = (rows, inputs);
        self.values.reserve(x.len());
        let values = SharedMut::new(&mut self.values);
        pool.for_each(rows.div_ceil(TILE_ROWS), 2, |range| {
            for tile in range {
                let first = tile * TILE_ROWS;
                let n = TILE_ROWS.min(rows - first);
                // SAFETY: tiles are disjoint, each is packed by one call.
                let to = unsafe { values.slice(first * inputs, n * inputs) };
                for row in 0..n {
                    let from = &x[(first + row) * inputs..][..inputs];
                    for (place, value) in to.chunks_exact_mut(n).zip(from) {
                        place[row] = *value;
                    }
                }
            }
        });
    }

    /// First row, number of rows and values `[input, row]` of tile `index`.
    pub fn tile(&self, index: usize) -> (usize, usize, &[f32]) {
        let first = index * TILE_ROWS;
        let rows = TILE_ROWS.min(self.rows - first);
        (first, rows, &self.values[first * self.inputs..][..rows * self.inputs])
    }
}

/// Copies stored rows (at most 16, little-endian f32) into a panel `[input, lane]`.
pub fn repack_panel(rows: &[u8], inputs: usize, panel: &mut [f32]) {
    for (lane, row) in rows.chunks_exact(4 * inputs).enumerate() {
        for (to, word) in panel.chunks_exact_mut(LANES).zip(row.as_chunks::<4>().0) {
            to[lane] = f32::from_le_bytes(*word);
        }
    }
}

/// Sets `sums` (`[rows, 64]`) to the products of `rows` rows (at most 6) with four panels.
pub fn multiply_tile(
    isa: Isa,
    rows: usize,
    x: &[f32],
    panels: [&[f32]; TILE_PANELS],
    sums: &mut [f32; TILE_ROWS * TILE_LANES],
) {
    macro_rules! by_rows {
        ($($kernel:ident)::+) => {
            match rows {
                1 => $($kernel)::+::<1>(x, panels, sums),
                2 => $($kernel)::+::<2>(x, panels, sums),
                3 => $($kernel)::+::<3>(x, panels, sums),
                4 => $($kernel)::+::<4>(x, panels, sums),
                5 => $($kernel)::+::<5>(x, panels, sums),
                _ => $($kernel)::+::<6>(x, panels, sums),
            }
        };
    }
    match isa {
        // SAFETY: an `Isa` value is the promise that the CPU runs it.
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 | Isa::Avx512Bf16Vnni => unsafe { by_rows!(x86::tile_avx512) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2Fma => unsafe { by_rows!(x86::tile_avx2) },
        _ => by_rows!(tile_scalar),
    }
}

fn tile_scalar<const R: usize>(
    x: &[f32],
    panels: [&[f32]; TILE_PANELS],
    sums: &mut [f32; TILE_ROWS * TILE_LANES],
) {
    for (c, panel) in panels.into_iter().enumerate() {
        let mut totals = [[0.0; LANES]; R];
        for (x, weights) in x.as_chunks::<R>().0.iter().zip(panel.as_chunks::<LANES>().0) {
            for (totals, x) in totals.iter_mut().zip(x) {
                for (total, weight) in totals.iter_mut().zip(weights) {
                    *total += x * weight;
                }
            }
        }
        for (r, totals) in totals.iter().enumerate() {
            sums[r * TILE_LANES + c * LANES..][..LANES].copy_from_slice(totals);
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::{LANES, TILE_LANES, TILE_PANELS, TILE_ROWS};

    /// # Safety
    /// Needs AVX-512 F.
    #[target_feature(enable = "avx512f")]
    pub unsafe fn tile_avx512<const R: usize>(
        x: &[f32],
        panels: [&[f32]; TILE_PANELS],
        sums: &mut [f32; TILE_ROWS * TILE_LANES],
    ) {
        let inputs = x.len() / R;
        assert!(panels.iter().all(|panel| panel.len() >= inputs * LANES));
        let mut totals = [[_mm512_setzero_ps(); TILE_PANELS]; R];
        for k in 0..inputs {
            // SAFETY: lengths are checked above.
            unsafe {
                let mut columns = [_mm512_setzero_ps(); TILE_PANELS];
                for (column, panel) in columns.iter_mut().zip(panels) {
                    *column = _mm512_loadu_ps(panel.as_ptr().add(k * LANES));
                }
                for (r, totals) in totals.iter_mut().enumerate() {
                    let value = _mm512_set1_ps(*x.as_ptr().add(k * R + r));
                    for (total, column) in totals.iter_mut().zip(columns) {
                        *total = _mm512_fmadd_ps(value, column, *total);
                    }
                }
            }
        }
        for (r, totals) in totals.into_iter().enumerate() {
            for (c, total) in totals.into_iter().enumerate() {
                let to = &mut sums[r * TILE_LANES + c * LANES..][..LANES];
                // SAFETY: `to` is 16 values.
                unsafe { _mm512_storeu_ps(to.as_mut_ptr(), total) };
            }
        }
    }

    /// # Safety
    /// Needs AVX2 and FMA.
    #[target_feature(enable = "avx2,fma")]
    pub unsafe fn tile_avx2<const R: usize>(
        x: &[f32],
        panels: [&[f32]; TILE_PANELS],
        sums: &mut [f32; TILE_ROWS * TILE_LANES],
    ) {
        let inputs = x.len() / R;
        for (c, panel) in panels.into_iter().enumerate() {
            assert!(panel.len() >= inputs * LANES);
            let mut totals = [[_mm256_setzero_ps(); 2]; R];
            for k in 0..inputs {
                // SAFETY: lengths are checked above.
                unsafe {
                    let low = _mm256_loadu_ps(panel.as_ptr().add(k * LANES));
                    let high = _mm256_loadu_ps(panel.as_ptr().add(k * LANES + LANES / 2));
                    for (r, [low_total, high_total]) in totals.iter_mut().enumerate() {
                        let value = _mm256_set1_ps(*x.as_ptr().add(k * R + r));
                        *low_total = _mm256_fmadd_ps(value, low, *low_total);
                        *high_total = _mm256_fmadd_ps(value, high, *high_total);
                    }
                }
            }
            for (r, totals) in totals.into_iter().enumerate() {
                for (half, total) in totals.into_iter().enumerate() {
                    let to = &mut sums[r * TILE_LANES + c * LANES + half * LANES / 2..][..LANES / 2];
                    // SAFETY: `to` is 8 values.
                    unsafe { _mm256_storeu_ps(to.as_mut_ptr(), total) };
                }
            }
        }
    }
}
