//! The operations on packed matrices, and which instruction set runs them.
//!
//! All of them compute the same numbers: products of integers are exact, and each output is then a sum over blocks in
//! order, one fused multiply-add for the scale and one for the minimum. So results are equal to the last bit between
//! instruction sets, between few and many rows, and for any number of threads.

use super::expand::{Expanded, WORDS, expand};
use super::format::{BLOCK, Format, LANES};
#[cfg(target_arch = "x86_64")]
use super::format::{with_format, with_quad_format};
use super::rows::{PackedRow, TILE_ROWS};
use super::scalar;
use crate::engine::cpu::aligned::Aligned;
use crate::engine::cpu::isa::{Isa, Vectorised};

/// Panels of a tile.
pub const TILE_PANELS: usize = 4;
/// Outputs of a tile.
pub const TILE_LANES: usize = TILE_PANELS * LANES;
/// Blocks that a tile holds at most: 2048 inputs, 256 KiB, so that it stays in a core's second-level cache.
pub const TILE_BLOCKS: usize = 64;
/// 16-bit words of one block of a tile.
const BLOCK_WORDS: usize = TILE_PANELS * WORDS;

/// Panels of half a tile, which a kernel multiplies with six rows without leaving its registers.
pub const HALF_TILE_PANELS: usize = TILE_PANELS / 2;
/// Bytes of one block of half a tile of quads.
const QUAD_BYTES: usize = HALF_TILE_PANELS * LANES * BLOCK;

/// Bytes between what a kernel multiplies that streams panel after panel and what it asks memory for: what arrives in the
/// time of one access.
#[cfg(target_arch = "x86_64")]
pub const AHEAD: usize = 4096;

/// Integers, scales and header of a record that is streamed.
#[cfg(target_arch = "x86_64")]
pub struct Streamed {
    pub quants: *const u8,
    pub scales: *const u8,
    pub header: *const u8,
}

/// Record `block` of a panel of format `F`; asks memory for what lies `ahead` bytes after it.
///
/// # Safety
/// The panel has more than `block` records.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub unsafe fn streamed<const F: usize>(panel: *const u8, block: usize, ahead: usize) -> Streamed {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    let format = Format::ALL[F];
    // SAFETY: the record lies inside the panel. A prefetch of any address is harmless, and every x86-64 has it.
    unsafe {
        let quants = panel.add(format.record_at(block));
        for line in (0..format.record_bytes()).step_by(64) {
            _mm_prefetch::<_MM_HINT_T0>(quants.wrapping_add(ahead + line).cast());
        }
        let scales = quants.add(format.quants().size_bytes());
        Streamed { quants, scales, header: panel.add(format.header_at(block)) }
    }
}

/// Integers, scales and minima of some blocks of four panels.
pub struct ExpandedTile {
    n_blocks: usize,
    /// Formats multiplied with 8-bit activations, on instruction sets that have such products: `[half, block, quad, panel, lane, 4]`
    bytes: Aligned<u8>,
    /// `[block, pair, panel, lane, 2]`
    words: Aligned<i16>,
    /// `[block, panel, lane]`
    scales: Aligned<f32>,
    minima: Aligned<f32>,
}

impl Default for ExpandedTile {
    fn default() -> Self {
        Self {
            n_blocks: 0,
            bytes: Aligned::zeroed(TILE_BLOCKS * 2 * QUAD_BYTES),
            words: Aligned::zeroed(TILE_BLOCKS * BLOCK_WORDS),
            scales: Aligned::zeroed(TILE_BLOCKS * TILE_LANES),
            minima: Aligned::zeroed(TILE_BLOCKS * TILE_LANES),
        }
    }
}

/// Words `[pair, panel, lane, 2]`, scales and minima `[panel, lane]` of one block of a tile, each 64-byte aligned.
type Block<'a> = (&'a [i16; BLOCK_WORDS], &'a [f32; TILE_LANES], &'a [f32; TILE_LANES]);
type BlockMut<'a> = (&'a mut [i16; BLOCK_WORDS], &'a mut [f32; TILE_LANES], &'a mut [f32; TILE_LANES]);

impl ExpandedTile {
    pub fn n_blocks(&self) -> usize {
        self.n_blocks
    }

    /// Bytes `[quad, panel, lane, 4]` of one block of half a tile, 64-byte aligned.
    #[inline(always)]
    pub fn quads(&self, half: usize, block: usize) -> &[u8; QUAD_BYTES] {
        let at = (half * TILE_BLOCKS + block) * QUAD_BYTES;
        self.bytes[at..].first_chunk().expect("a tile has room for all its blocks")
    }

    #[inline(always)]
    pub fn quads_mut(&mut self, half: usize, block: usize) -> &mut [u8; QUAD_BYTES] {
        let at = (half * TILE_BLOCKS + block) * QUAD_BYTES;
        self.bytes[at..].first_chunk_mut().expect("a tile has room for all its blocks")
    }

    #[inline(always)]
    pub fn block(&self, block: usize) -> Block<'_> {
        let part = "a tile has room for all its blocks";
        (
            self.words[block * BLOCK_WORDS..].first_chunk().expect(part),
            self.scales[block * TILE_LANES..].first_chunk().expect(part),
            self.minima[block * TILE_LANES..].first_chunk().expect(part),
        )
    }

    #[inline(always)]
    pub fn block_mut(&mut self, block: usize) -> BlockMut<'_> {
        let part = "a tile has room for all its blocks";
        (
            self.words[block * BLOCK_WORDS..].first_chunk_mut().expect(part),
            self.scales[block * TILE_LANES..].first_chunk_mut().expect(part),
            self.minima[block * TILE_LANES..].first_chunk_mut().expect(part),
        )
    }

    /// Copies an expanded record to column group `place` of `block`.
    #[inline(always)]
    pub fn put(&mut self, block: usize, place: usize, record: &Expanded) {
        let (words, scales, minima) = self.block_mut(block);
        for (pair, integers) in record.words.chunks_exact(2 * LANES).enumerate() {
            let at = (pair * TILE_PANELS + place) * 2 * LANES;
            words[at..][..2 * LANES].copy_from_slice(integers);
        }
        scales[place * LANES..][..LANES].copy_from_slice(&record.scales);
        minima[place * LANES..][..LANES].copy_from_slice(&record.minima);
    }

    /// Fills the tile with blocks `first..first + n_blocks` of up to four panels; outputs of missing panels are zero.
    pub fn fill(&mut self, isa: Isa, format: Format, panels: &[&[u8]], first: usize, n_blocks: usize) {
        assert!(n_blocks <= TILE_BLOCKS && panels.len() <= TILE_PANELS);
        self.n_blocks = n_blocks;
        for (place, panel) in panels.iter().enumerate() {
            self.fill_panel(isa, format, panel, first, place);
        }
        for place in panels.len()..TILE_PANELS {
            for block in 0..n_blocks {
                let (_, scales, minima) = self.block_mut(block);
                scales[place * LANES..][..LANES].fill(0.0);
                minima[place * LANES..][..LANES].fill(0.0);
            }
        }
    }

    fn fill_panel(&mut self, isa: Isa, format: Format, panel: &[u8], first: usize, place: usize) {
        #[cfg(target_arch = "x86_64")]
        if format.by_eight() && isa == Isa::Avx512Bf16Vnni {
            return with_quad_format!(format, F => {
                // SAFETY: an `Isa` value is the promise that the CPU runs it.
                unsafe { super::bytes_avx512::expand::<F>(panel, first, place, self) }
            });
        }
        #[cfg(target_arch = "x86_64")]
        if isa >= Isa::Avx512 && !format.by_eight() {
            // SAFETY: an `Isa` value is the promise that the CPU runs it.
            return with_format!(format, F => unsafe { super::avx512::expand::<F>(panel, first, place, self) });
        }
        #[cfg(target_arch = "x86_64")]
        if isa == Isa::Avx2Fma && !format.by_eight() {
            // SAFETY: as above.
            return with_format!(format, F => unsafe { super::avx2::fill::<F>(panel, first, place, self) });
        }
        isa.vectorise(FillPanel { format, panel, first, place, to: self });
    }
}

struct FillPanel<'a> {
    format: Format,
    panel: &'a [u8],
    first: usize,
    place: usize,
    to: &'a mut ExpandedTile,
}

impl Vectorised for FillPanel<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let mut record = Expanded::ZERO;
        for block in 0..self.to.n_blocks {
            expand(self.format, self.panel, self.first + block, &mut record);
            self.to.put(block, self.place, &record);
        }
    }
}

/// Adds to `sums` (`[rows, 64]`) the products of `rows` rows (at most 6) with a tile, in steps of the rows' quantisation.
///
/// # Panics
/// When there are no rows, or a row has another number of blocks than the tile.
pub fn multiply_tile(
    isa: Isa,
    format: Format,
    rows: &[PackedRow<'_>],
    w: &ExpandedTile,
    sums: &mut [f32; TILE_ROWS * TILE_LANES],
) {
    let minima = format.scales().has_minimum();
    if format.by_eight() {
        assert!(rows.iter().all(|row| row.bytes.n_blocks() == w.n_blocks()));
    } else {
        assert!(rows.iter().all(|row| row.sums.len() == w.n_blocks()));
    }
    macro_rules! by_rows {
        ($($kernel:ident)::+ $(, $offset:expr)?) => {
            match (rows.len(), minima) {
                (1, false) => $($kernel)::+::<1, false>(first(rows), w, $($offset,)? sums),
                (2, false) => $($kernel)::+::<2, false>(first(rows), w, $($offset,)? sums),
                (3, false) => $($kernel)::+::<3, false>(first(rows), w, $($offset,)? sums),
                (4, false) => $($kernel)::+::<4, false>(first(rows), w, $($offset,)? sums),
                (5, false) => $($kernel)::+::<5, false>(first(rows), w, $($offset,)? sums),
                (6, false) => $($kernel)::+::<6, false>(first(rows), w, $($offset,)? sums),
                (1, true) => $($kernel)::+::<1, true>(first(rows), w, $($offset,)? sums),
                (2, true) => $($kernel)::+::<2, true>(first(rows), w, $($offset,)? sums),
                (3, true) => $($kernel)::+::<3, true>(first(rows), w, $($offset,)? sums),
                (4, true) => $($kernel)::+::<4, true>(first(rows), w, $($offset,)? sums),
                (5, true) => $($kernel)::+::<5, true>(first(rows), w, $($offset,)? sums),
                (6, true) => $($kernel)::+::<6, true>(first(rows), w, $($offset,)? sums),
                (n, _) => panic!("a tile has 1 to 6 rows, not {n}"),
            }
        };
    }
    match isa {
        // SAFETY: an `Isa` value is the promise that the CPU runs it.
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512Bf16Vnni if format.by_eight() => unsafe {
            by_rows!(super::bytes_avx512::tile, format.offset())
        },
        _ if format.by_eight() => by_rows!(scalar::tile_by_eight),
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512Bf16Vnni => unsafe { by_rows!(super::avx512::tile_vnni) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => unsafe { by_rows!(super::avx512::tile) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2Fma => unsafe { by_rows!(super::avx2::tile) },
        _ => by_rows!(scalar::tile),
    }
}

fn first<'a, 'b, const R: usize>(rows: &'a [PackedRow<'b>]) -> &'a [PackedRow<'b>; R] {
    rows.first_chunk().expect("chosen by the number of rows")
}

/// Whether [`stream_panels`] reads panels side by side, rather than one after the other.
pub fn reads_side_by_side(isa: Isa, format: Format) -> bool {
    isa == Isa::Avx2Fma && !format.by_eight()
}

/// Sets `sums` to the products of `R` rows with the 16 outputs of each of `P` panels, in steps of the rows' quantisation.
///
/// `weights`: the panels and their number of blocks, in a format, for an instruction set.
pub fn stream_panels<const R: usize, const P: usize>(
    (isa, format, panels, n_blocks): (Isa, Format, &[&[u8]; P], usize),
    rows: &[PackedRow<'_>; R],
    sums: &mut [[[f32; LANES]; R]; P],
) {
    #[cfg(target_arch = "x86_64")]
    if reads_side_by_side(isa, format) {
        return with_format!(format, F => {
            // SAFETY: an `Isa` value is the promise that the CPU runs it.
            unsafe { super::stream_avx2::stream::<F, R, P>(panels, n_blocks, rows, sums) }
        });
    }
    for (panel, sums) in panels.iter().zip(sums) {
        stream_panel((isa, format, panel, n_blocks), rows, sums);
    }
}

/// Sets `sums` to the products of `R` rows with the 16 outputs of a panel, in steps of the rows' quantisation.
///
/// `weights`: the panel and its number of blocks, in a format, for an instruction set.
fn stream_panel<const R: usize>(
    (isa, format, panel, n_blocks): (Isa, Format, &[u8], usize),
    rows: &[PackedRow<'_>; R],
    sums: &mut [[f32; LANES]; R],
) {
    match isa {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512Bf16Vnni if format.by_eight() => with_quad_format!(format, F => {
            // SAFETY: an `Isa` value is the promise that the CPU runs it.
            unsafe { super::bytes_avx512::stream::<F, R>(panel, n_blocks, rows, sums) }
        }),
        _ if format.by_eight() => scalar::stream(format, panel, n_blocks, rows, sums),
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512Bf16Vnni => with_format!(format, F => {
            // SAFETY: an `Isa` value is the promise that the CPU runs it.
            unsafe { super::avx512::stream_vnni::<F, R>(panel, n_blocks, rows, sums) }
        }),
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => with_format!(format, F => {
            // SAFETY: as above.
            unsafe { super::avx512::stream::<F, R>(panel, n_blocks, rows, sums) }
        }),
        _ => scalar::stream(format, panel, n_blocks, rows, sums),
    }
}
