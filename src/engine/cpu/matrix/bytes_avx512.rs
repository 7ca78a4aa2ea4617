//! Kernels on 8-bit dot products of 512-bit vectors (VNNI): unsigned weights, signed activations.
//!
//! For each block of 32 inputs, eight steps add products of quads in registers, starting from minus the offset of the
//! weights times the sum of the activations; then one multiplication by the scales of weights and activations.

use std::arch::x86_64::*;

use super::avx512::scales_of;
use super::byte_rows::{ByteRow, QUADS};
use super::format::{Format, LANES, Quants, Scales};
use super::kernels::{AHEAD, ExpandedTile, HALF_TILE_PANELS, Streamed, TILE_LANES, streamed};
use super::rows::{PackedRow, TILE_ROWS};

/// The eight quad vectors of the integers of a record.
///
/// # Safety
/// Needs AVX-512 F and BW; `quants` points to `Format::ALL[F].quants().size_bytes()` bytes of quads.
#[inline(always)]
unsafe fn quads<const F: usize>(quants: *const u8) -> [__m512i; QUADS] {
    // SAFETY: the loads stay inside the record; the caller's instruction set.
    unsafe {
        let vector = |index: usize| _mm512_loadu_si512(quants.add(64 * index).cast());
        let mut out = [_mm512_setzero_si512(); QUADS];
        if let Quants::QuadByte = Format::ALL[F].quants() {
            for (quad, out) in out.iter_mut().enumerate() {
                *out = vector(quad);
            }
        } else {
            let mask = _mm512_set1_epi8(15);
            for s in 0..QUADS / 2 {
                let both = vector(s);
                out[s] = _mm512_and_si512(both, mask);
                out[s + QUADS / 2] = _mm512_and_si512(_mm512_srli_epi16::<4>(both), mask);
            }
        }
        out
    }
}

/// Expands records `first..` of one panel into place `place` of a tile.
///
/// # Safety
/// Needs AVX-512 F, BW, DQ and VL.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub unsafe fn expand<const F: usize>(panel: &[u8], first: usize, place: usize, to: &mut ExpandedTile) {
    let format = Format::ALL[F];
    for block in 0..to.n_blocks() {
        // SAFETY: a panel holds whole records and headers, a tile's block has room for all panels; the features of this
        // function.
        unsafe {
            let record = panel[format.record_at(first + block)..][..format.record_bytes()].as_ptr();
            let header = panel[format.header_at(first + block)..].as_ptr();
            let (scale, minimum) = scales_of::<F>(record.add(format.quants().size_bytes()), header);
            let bytes = to.quads_mut(place / HALF_TILE_PANELS, block);
            for (quad, integers) in quads::<F>(record).into_iter().enumerate() {
                let at = (quad * HALF_TILE_PANELS + place % HALF_TILE_PANELS) * 4 * LANES;
                _mm512_storeu_si512(bytes[at..][..4 * LANES].as_mut_ptr().cast(), integers);
            }
            let (_, scales_to, minima_to) = to.block_mut(block);
            _mm512_storeu_ps(scales_to[place * LANES..][..LANES].as_mut_ptr(), scale);
            _mm512_storeu_ps(minima_to[place * LANES..][..LANES].as_mut_ptr(), minimum);
        }
    }
}

/// Adds to `sums` (`[R, 64]`) the products of the first `R` rows of a tile of rows with a tile of weights, two panels at a
/// time: their sums and products stay in registers, 12 each with six rows.
///
/// # Safety
/// Needs AVX-512 F, BW, DQ, VL and VNNI.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
pub unsafe fn tile<const R: usize, const MINIMA: bool>(
    rows: &[PackedRow<'_>; R],
    w: &ExpandedTile,
    offset: i32,
    sums: &mut [f32; TILE_ROWS * TILE_LANES],
) {
    let n_blocks = w.n_blocks();
    let one_tile = rows
        .iter()
        .enumerate()
        .all(|(r, row)| row.bytes.row == r && std::ptr::eq(row.bytes.integers, rows[0].bytes.integers));
    let x = rows[0].bytes;
    assert!(one_tile && x.holds(n_blocks), "the first rows of one tile");
    for half in 0..TILE_LANES / LANES / HALF_TILE_PANELS {
        let at = |r: usize, c: usize| r * TILE_LANES + (half * HALF_TILE_PANELS + c) * LANES;
        // SAFETY: rows and tile have as many blocks (checked above), the rest are array lengths; the features of this
        // function. No closures over vectors: they are compiled without the instruction set of this function.
        unsafe {
            let mut totals = [[_mm512_setzero_ps(); HALF_TILE_PANELS]; R];
            for (r, totals) in totals.iter_mut().enumerate() {
                for (c, total) in totals.iter_mut().enumerate() {
                    *total = _mm512_loadu_ps(sums[at(r, c)..][..LANES].as_ptr());
                }
            }
            let mut four = x.integers.as_ptr().cast::<i32>();
            for block in 0..n_blocks {
                let mut quads = w.quads(half, block).as_ptr();
                let (_, scales, minima) = w.block(block);
                let list = block * TILE_ROWS;
                let mut products = [[_mm512_setzero_si512(); HALF_TILE_PANELS]; R];
                for (r, products) in products.iter_mut().enumerate() {
                    let start = _mm512_set1_epi32(-offset * *x.sums.as_ptr().add(list + r));
                    *products = [start; HALF_TILE_PANELS];
                }
                for _ in 0..QUADS {
                    let mut columns = [_mm512_setzero_si512(); HALF_TILE_PANELS];
                    for (c, column) in columns.iter_mut().enumerate() {
                        *column = _mm512_load_si512(quads.add(c * 4 * LANES).cast());
                    }
                    for (r, products) in products.iter_mut().enumerate() {
                        let four = _mm512_set1_epi32(four.add(r).read_unaligned());
                        for (product, column) in products.iter_mut().zip(columns) {
                            *product = _mm512_dpbusd_epi32(*product, column, four);
                        }
                    }
                    quads = quads.add(HALF_TILE_PANELS * 4 * LANES);
                    four = four.add(TILE_ROWS);
                }
                for c in 0..HALF_TILE_PANELS {
                    let lane = (half * HALF_TILE_PANELS + c) * LANES;
                    let scale = _mm512_load_ps(scales.as_ptr().add(lane));
                    let minimum = _mm512_load_ps(minima.as_ptr().add(lane));
                    for (r, products) in products.iter().enumerate() {
                        let factor = _mm512_set1_ps(*x.factors.as_ptr().add(list + r));
                        let total = &mut totals[r][c];
                        let both = _mm512_mul_ps(scale, factor);
                        *total = _mm512_fmadd_ps(both, _mm512_cvtepi32_ps(products[c]), *total);
                        if MINIMA {
                            let value = _mm512_set1_ps(*x.values.as_ptr().add(list + r));
                            *total = _mm512_fmadd_ps(minimum, value, *total);
                        }
                    }
                }
            }
            for (r, totals) in totals.iter().enumerate() {
                for (c, total) in totals.iter().enumerate() {
                    _mm512_storeu_ps(sums[at(r, c)..][..LANES].as_mut_ptr(), *total);
                }
            }
        }
    }
}

/// Sets `sums` to the products of `R` rows with the 16 outputs of a panel, integers taken apart in registers.
///
/// # Safety
/// Needs AVX-512 F, BW, DQ, VL and VNNI.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
pub unsafe fn stream<const F: usize, const R: usize>(
    panel: &[u8],
    n_blocks: usize,
    rows: &[PackedRow<'_>; R],
    sums: &mut [[f32; LANES]; R],
) {
    let format = Format::ALL[F];
    assert!(panel.len() >= format.panel_bytes(n_blocks));
    let rows: [ByteRow<'_>; R] = std::array::from_fn(|r| rows[r].bytes);
    assert!(rows.iter().all(|row| row.holds(n_blocks)));
    // SAFETY: lengths are checked above; the features of this function.
    unsafe {
        let mut totals = [_mm512_setzero_ps(); R];
        for block in 0..n_blocks {
            let Streamed { quants, scales, header } = streamed::<F>(panel.as_ptr(), block, AHEAD);
            let integers = quads::<F>(quants);
            let (scale, minimum) = scales_of::<F>(scales, header);
            for (row, total) in rows.iter().zip(&mut totals) {
                let x = row.integers.as_ptr().cast::<i32>().add(block * QUADS * TILE_ROWS + row.row);
                // Two chains: each product waits for the one before it.
                let start = -format.offset() * *row.sums.as_ptr().add(row.at(block));
                let mut chains = [_mm512_set1_epi32(start), _mm512_setzero_si512()];
                for (quad, integers) in integers.into_iter().enumerate() {
                    let four = _mm512_set1_epi32(x.add(quad * TILE_ROWS).read_unaligned());
                    chains[quad % 2] = _mm512_dpbusd_epi32(chains[quad % 2], integers, four);
                }
                let product = _mm512_cvtepi32_ps(_mm512_add_epi32(chains[0], chains[1]));
                let both = _mm512_mul_ps(scale, _mm512_set1_ps(*row.factors.as_ptr().add(row.at(block))));
                *total = _mm512_fmadd_ps(both, product, *total);
                if matches!(format.scales(), Scales::HalfMin | Scales::Super) {
                    let value = _mm512_set1_ps(*row.values.as_ptr().add(row.at(block)));
                    *total = _mm512_fmadd_ps(minimum, value, *total);
                }
            }
        }
        for (total, sums) in totals.into_iter().zip(sums) {
            _mm512_storeu_ps(sums.as_mut_ptr(), total);
        }
    }
}
