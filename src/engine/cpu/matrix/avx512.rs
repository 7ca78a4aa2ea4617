//! Kernels on 512-bit vectors, with and without 16-bit dot products that accumulate (VNNI).
//!
//! The bodies are plain `#[inline(always)]` functions over intrinsics; the wrappers at the end of each kernel give them
//! their instruction set.

use std::arch::x86_64::*;

use super::fields::{fives, sixes, thirteen};
use super::format::{BLOCK, Format, LANES, PAIRS, Quants, Scales, nibble_pairs};
use super::kernels::{AHEAD, ExpandedTile, Streamed, TILE_LANES, TILE_PANELS, streamed};
use super::rows::{PackedRow, TILE_ROWS};

/// `sum + a0 * b0 + a1 * b1` in each 32-bit lane, on 16-bit integers; exact.
///
/// # Safety
/// Needs AVX-512 BW, and VNNI when `VNNI`.
#[inline(always)]
unsafe fn dot<const VNNI: bool>(sum: __m512i, a: __m512i, b: __m512i) -> __m512i {
    // SAFETY: the caller's instruction set.
    unsafe {
        if VNNI { _mm512_dpwssd_epi32(sum, a, b) } else { _mm512_add_epi32(sum, _mm512_madd_epi16(a, b)) }
    }
}

/// One of the macros of [`fields`](super::fields) on 512-bit vectors.
macro_rules! on_512 {
    ($fields:ident, $vector:expr, $take:expr) => {
        $fields!(
            $vector,
            $take,
            [
                _mm512_and_si512,
                _mm512_or_si512,
                _mm512_add_epi16,
                _mm512_sll_epi16,
                _mm512_srl_epi16,
                _mm512_srai_epi16,
                _mm512_set1_epi16
            ]
        )
    };
}

/// The sixteen pair vectors of the integers of a record, before the offset is subtracted.
///
/// # Safety
/// Needs AVX-512 BW; `quants` points to `Format::ALL[F].quants().size_bytes()` bytes.
#[inline(always)]
unsafe fn pairs<const F: usize>(quants: *const u8) -> [__m512i; PAIRS] {
    // SAFETY: the loads stay inside the record; the caller's instruction set.
    unsafe {
        let vector = |index: usize| _mm512_loadu_si512(quants.add(64 * index).cast());
        let mut out = [_mm512_setzero_si512(); PAIRS];
        match Format::ALL[F].quants() {
            Quants::QuadNibble | Quants::QuadByte => {
                unreachable!("quads are multiplied with 8-bit activations")
            }
            Quants::Five => on_512!(fives, vector, |pair, words| out[pair] = words),
            Quants::Six => on_512!(sixes, vector, |pair, words| out[pair] = words),
            Quants::Thirteen => on_512!(thirteen, vector, |pair, words| out[pair] = words),
            Quants::Byte => {
                for s in 0..PAIRS / 2 {
                    let bytes = vector(s);
                    out[2 * s] = _mm512_srai_epi16::<8>(_mm512_slli_epi16::<8>(bytes));
                    out[2 * s + 1] = _mm512_srai_epi16::<8>(bytes);
                }
            }
            Quants::Nibble => {
                let mask = _mm512_set1_epi16(15);
                for s in 0..4 {
                    let word = vector(s);
                    let [a, b, c, d] = nibble_pairs(s);
                    out[a] = _mm512_and_si512(word, mask);
                    out[b] = _mm512_and_si512(_mm512_srli_epi16::<4>(word), mask);
                    out[c] = _mm512_and_si512(_mm512_srli_epi16::<8>(word), mask);
                    out[d] = _mm512_srli_epi16::<12>(word);
                }
            }
        }
        out
    }
}

/// Scales and minima of a record.
///
/// # Safety
/// Needs AVX-512 BW and VL; `scales` and `header` point to the bytes that the format has there.
#[inline(always)]
pub(super) unsafe fn scales_of<const F: usize>(scales: *const u8, header: *const u8) -> (__m512, __m512) {
    // SAFETY: the loads stay inside what the caller points to; the caller's instruction set.
    unsafe {
        let halves = |at: *const u8| _mm512_cvtph_ps(_mm256_loadu_si256(at.cast()));
        let bytes = |at: *const u8| _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128(at.cast())));
        let zero = _mm512_setzero_ps();
        match Format::ALL[F].scales() {
            Scales::Half => (halves(scales), zero),
            Scales::HalfMin => (halves(scales), halves(scales.add(2 * LANES))),
            Scales::Super => {
                let minima = _mm512_mul_ps(halves(header.add(2 * LANES)), bytes(scales.add(LANES)));
                (_mm512_mul_ps(halves(header), bytes(scales)), minima)
            }
            Scales::Six => (halves(header), zero),
            Scales::Brain => {
                let words = _mm512_cvtepu16_epi32(_mm256_loadu_si256(scales.cast()));
                (_mm512_castsi512_ps(_mm512_slli_epi32::<16>(words)), zero)
            }
            Scales::Single => (_mm512_loadu_ps(scales.cast()), zero),
        }
    }
}

/// Signed bytes of `Scales::Six` for the two halves of a record, one per 32-bit lane.
///
/// # Safety
/// Needs AVX-512 F; `scales` points to 32 bytes.
#[inline(always)]
unsafe fn factors(scales: *const u8) -> [__m512i; 2] {
    // SAFETY: 32 bytes of scales; the caller's instruction set.
    unsafe { [0, 1].map(|half| _mm512_cvtepi8_epi32(_mm_loadu_si128(scales.add(half * LANES).cast()))) }
}

///
/// # Safety
/// Needs AVX-512 F, BW, DQ and VL.
#[inline(always)]
unsafe fn expand_body<const F: usize>(panel: &[u8], first: usize, place: usize, to: &mut ExpandedTile) {
    let format = Format::ALL[F];
    for block in 0..to.n_blocks() {
        // SAFETY: a panel holds whole records and headers, a tile's block has room for `TILE_PANELS` panels; the
        // caller's instruction set.
        unsafe {
            let record = panel[format.record_at(first + block)..][..format.record_bytes()].as_ptr();
            let header = panel[format.header_at(first + block)..].as_ptr();
            let scales = record.add(format.quants().size_bytes());
            let (words, scales_to, minima_to) = to.block_mut(block);
            let integers = pairs::<F>(record);
            let offset = _mm512_set1_epi16(format.offset() as i16);
            let both = if matches!(format.scales(), Scales::Six) {
                // The factor of an output in both words of its lane.
                factors(scales).map(|f| {
                    _mm512_or_si512(
                        _mm512_slli_epi32::<16>(f),
                        _mm512_and_si512(f, _mm512_set1_epi32(0xffff)),
                    )
                })
            } else {
                [_mm512_setzero_si512(); 2]
            };
            for (pair, integers) in integers.into_iter().enumerate() {
                let mut integers =
                    if format.offset() == 0 { integers } else { _mm512_sub_epi16(integers, offset) };
                if matches!(format.scales(), Scales::Six) {
                    integers = _mm512_mullo_epi16(integers, both[pair / (PAIRS / 2)]);
                }
                let at = (pair * TILE_PANELS + place) * 2 * LANES;
                _mm512_storeu_si512(words[at..][..2 * LANES].as_mut_ptr().cast(), integers);
            }
            let (scale, minimum) = scales_of::<F>(scales, header);
            _mm512_storeu_ps(scales_to[place * LANES..][..LANES].as_mut_ptr(), scale);
            _mm512_storeu_ps(minima_to[place * LANES..][..LANES].as_mut_ptr(), minimum);
        }
    }
}

/// Expands records `first..` of one panel into column group `place` of a tile.
///
/// # Safety
/// Needs AVX-512 F, BW, DQ and VL.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub unsafe fn expand<const F: usize>(panel: &[u8], first: usize, place: usize, to: &mut ExpandedTile) {
    // SAFETY: the features of this function.
    unsafe { expand_body::<F>(panel, first, place, to) }
}

/// `R` rows times the 64 outputs of a tile: for each block, 16 steps that add `R x 4` vectors of pair products in
/// registers, then one multiplication by the scales into the sums.
///
/// # Safety
/// Needs AVX-512 F, BW, DQ and VL, and VNNI when `VNNI`.
#[inline(always)]
unsafe fn tile_body<const R: usize, const MINIMA: bool, const VNNI: bool>(
    rows: &[PackedRow<'_>; R],
    w: &ExpandedTile,
    sums: &mut [f32; TILE_ROWS * TILE_LANES],
) {
    let n_blocks = w.n_blocks();
    assert!(rows.iter().all(|row| row.sums.len() == n_blocks && row.integers.len() == n_blocks * BLOCK));
    let addresses = [&rows[0], &rows[1 % R]].map(|row| row.integers.as_ptr().addr());
    let next_tile = addresses[1].wrapping_sub(addresses[0]).wrapping_mul(R);
    for block in 0..n_blocks {
        let (words, scales, minima) = w.block(block);
        // SAFETY: rows and tile have as many blocks (checked above), the rest are array lengths; the caller's
        // instruction set.
        unsafe {
            // Hides the address from the compiler, which would otherwise keep the sums of all blocks in registers that
            // it does not have, and spill them twice.
            let mut to_sums = sums.as_mut_ptr();
            std::arch::asm!("/* {0} */", inout(reg) to_sums, options(nostack, preserves_flags));
            let x = rows.each_ref().map(|row| row.integers.as_ptr().add(block * BLOCK).cast::<i32>());
            for x in x {
                // The same block of the rows of the next tile: a prefetch past the end does nothing.
                _mm_prefetch::<_MM_HINT_T0>(x.wrapping_byte_add(next_tile).cast());
            }
            let mut products = [[_mm512_setzero_si512(); TILE_PANELS]; R];
            let mut words = words.as_ptr();
            for pair in 0..PAIRS {
                let mut columns = [_mm512_setzero_si512(); TILE_PANELS];
                for (c, column) in columns.iter_mut().enumerate() {
                    *column = _mm512_load_si512(words.add(c * 2 * LANES).cast());
                }
                for (r, products) in products.iter_mut().enumerate() {
                    let pair = _mm512_set1_epi32(x[r].add(pair).read_unaligned());
                    for (product, column) in products.iter_mut().zip(columns) {
                        *product = dot::<VNNI>(*product, pair, column);
                    }
                }
                words = words.add(TILE_LANES * 2);
            }
            for c in 0..TILE_PANELS {
                let scale = _mm512_load_ps(scales.as_ptr().add(c * LANES));
                for (r, products) in products.iter().enumerate() {
                    let to = to_sums.add(r * TILE_LANES + c * LANES);
                    let mut sum =
                        _mm512_fmadd_ps(scale, _mm512_cvtepi32_ps(products[c]), _mm512_loadu_ps(to));
                    if MINIMA {
                        let minimum = _mm512_load_ps(minima.as_ptr().add(c * LANES));
                        let row_sum = _mm512_set1_ps(*rows[r].sums.as_ptr().add(block));
                        sum = _mm512_fmadd_ps(minimum, row_sum, sum);
                    }
                    _mm512_storeu_ps(to, sum);
                }
            }
        }
    }
}

/// Adds to `sums` (`[R, 64]`) the products of `R` rows with a tile.
///
/// # Safety
/// Needs AVX-512 F, BW, DQ and VL.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub unsafe fn tile<const R: usize, const MINIMA: bool>(
    rows: &[PackedRow<'_>; R],
    w: &ExpandedTile,
    sums: &mut [f32; TILE_ROWS * TILE_LANES],
) {
    // SAFETY: the features of this function.
    unsafe { tile_body::<R, MINIMA, false>(rows, w, sums) }
}

/// As [`tile`].
///
/// # Safety
/// Needs AVX-512 F, BW, DQ, VL and VNNI.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
pub unsafe fn tile_vnni<const R: usize, const MINIMA: bool>(
    rows: &[PackedRow<'_>; R],
    w: &ExpandedTile,
    sums: &mut [f32; TILE_ROWS * TILE_LANES],
) {
    // SAFETY: the features of this function.
    unsafe { tile_body::<R, MINIMA, true>(rows, w, sums) }
}

/// `R` rows times one panel, integers taken apart in registers.
///
/// # Safety
/// Needs AVX-512 F, BW, DQ and VL, and VNNI when `VNNI`.
#[inline(always)]
unsafe fn stream_body<const F: usize, const R: usize, const VNNI: bool>(
    panel: &[u8],
    n_blocks: usize,
    rows: &[PackedRow<'_>; R],
    sums: &mut [[f32; LANES]; R],
) {
    let format = Format::ALL[F];
    assert!(panel.len() >= format.panel_bytes(n_blocks));
    for row in rows {
        assert!(row.integers.len() >= n_blocks * BLOCK);
        assert!(row.sums.len() >= n_blocks && row.half_sums.len() >= n_blocks * 2);
    }
    // SAFETY: lengths are checked above; the caller's instruction set.
    unsafe {
        let mut totals = [_mm512_setzero_ps(); R];
        for block in 0..n_blocks {
            let Streamed { quants, scales, header } = streamed::<F>(panel.as_ptr(), block, AHEAD);
            let integers = pairs::<F>(quants);
            let (scale, minimum) = scales_of::<F>(scales, header);
            for (row, total) in rows.iter().zip(&mut totals) {
                let x = row.integers.as_ptr().add(block * BLOCK).cast::<i32>();
                let mut halves = [0, 1].map(|half| {
                    let offset = format.offset() * *row.half_sums.as_ptr().add(block * 2 + half);
                    _mm512_set1_epi32(-offset)
                });
                for (pair, integers) in integers.into_iter().enumerate() {
                    let half = &mut halves[pair / (PAIRS / 2)];
                    *half = dot::<VNNI>(*half, integers, _mm512_set1_epi32(x.add(pair).read_unaligned()));
                }
                if matches!(format.scales(), Scales::Six) {
                    let factors = factors(scales);
                    halves = [0, 1].map(|h| _mm512_mullo_epi32(halves[h], factors[h]));
                }
                let product = _mm512_cvtepi32_ps(_mm512_add_epi32(halves[0], halves[1]));
                *total = _mm512_fmadd_ps(scale, product, *total);
                if format.scales().has_minimum() {
                    let row_sum = _mm512_set1_ps(*row.sums.as_ptr().add(block));
                    *total = _mm512_fmadd_ps(minimum, row_sum, *total);
                }
            }
        }
        for (total, sums) in totals.into_iter().zip(sums) {
            _mm512_storeu_ps(sums.as_mut_ptr(), total);
        }
    }
}

/// Sets `sums` to the products of `R` rows with the 16 outputs of a panel.
///
/// # Safety
/// Needs AVX-512 F, BW, DQ and VL.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub unsafe fn stream<const F: usize, const R: usize>(
    panel: &[u8],
    n_blocks: usize,
    rows: &[PackedRow<'_>; R],
    sums: &mut [[f32; LANES]; R],
) {
    // SAFETY: the features of this function.
    unsafe { stream_body::<F, R, false>(panel, n_blocks, rows, sums) }
}

/// As [`stream`].
///
/// # Safety
/// Needs AVX-512 F, BW, DQ, VL and VNNI.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
pub unsafe fn stream_vnni<const F: usize, const R: usize>(
    panel: &[u8],
    n_blocks: usize,
    rows: &[PackedRow<'_>; R],
    sums: &mut [[f32; LANES]; R],
) {
    // SAFETY: the features of this function.
    unsafe { stream_body::<F, R, true>(panel, n_blocks, rows, sums) }
}
