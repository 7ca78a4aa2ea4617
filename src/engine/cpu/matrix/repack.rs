//! From stored rows to panels, once at load. Integers only change place; floats become 13-bit integers per 32.

use super::fields::stored_words;
use super::format::{BLOCK, Format, GROUP, LANES, Quants, Scales, WEIGHT_LIMIT};
use super::half_bits::{bf16_at_least, bf16_to_f32};
use super::unpack::{bits_q6k, integer_q3k, looked_up, scale_and_minimum, u32_at, unpack_block};
use crate::checkpoint::tensor::TensorType;
use crate::engine::cpu::isa::Vectorised;

/// Largest magnitude that floats are quantised to: one less than the limit, for a rounded-up quotient.
const FLOAT_LIMIT: f32 = (WEIGHT_LIMIT - 1) as f32;
/// Below this scale the inverse overflows and a block counts as zero.
const SMALLEST_SCALE: f32 = 1e-37;

/// Packs one panel.
pub struct RepackPanel<'a> {
    pub dtype: TensorType,
    pub format: Format,
    /// Stored rows of the outputs of the panel, one after the other: at most [`LANES`]; missing ones stay zero.
    pub rows: &'a [u8],
    pub row_bytes: usize,
    pub n_blocks: usize,
    /// Zeroed.
    pub panel: &'a mut [u8],
}

impl Vectorised for RepackPanel<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Self { dtype, format, rows, row_bytes, n_blocks, panel } = self;
        for block in 0..n_blocks {
            let (before, record) = panel.split_at_mut(format.record_at(block));
            let record = &mut record[..format.record_bytes()];
            for (lane, row) in rows.chunks_exact(row_bytes).enumerate() {
                if format.scales().header_bytes() > 0 && block % GROUP == 0 {
                    put_header(dtype, row, block, lane, &mut before[format.header_at(block)..]);
                }
                put_block(dtype, format, row, block, lane, record);
            }
        }
    }
}

/// Bytes `[a, b, c, d]` as `[a, c, b, d]`: the values of even inputs in the low word, of odd ones in the high word.
#[inline(always)]
fn even_then_odd(word: u32) -> u32 {
    word & 0xff00_00ff | word >> 8 & 0xff00 | word << 8 & 0xff_0000
}

/// Nibbles in ggml's order: byte `i` holds values `i` and `i + 16`.
#[inline(always)]
fn put_nibbles(quants: &mut [u8], lane: usize, nibbles: &[u8; 16]) {
    for (lanes, bytes) in lanes::<4>(quants).iter_mut().zip(nibbles.as_chunks::<4>().0) {
        lanes[lane % LANES] = even_then_odd(u32::from_le_bytes(*bytes)).to_le_bytes();
    }
}

/// Quads as they come: 32 bits of nibbles in ggml's order, or of bytes.
#[inline(always)]
fn put_quads<const N: usize>(quants: &mut [u8], lane: usize, bytes: &[u8; N], flip: u8) {
    let lanes = quants.as_chunks_mut::<4>().0;
    for (s, bytes) in bytes.as_chunks::<4>().0.iter().enumerate() {
        lanes[s * LANES + lane % LANES] = bytes.map(|byte| byte ^ flip);
    }
}

/// Signed bytes in their order.
#[inline(always)]
fn put_bytes(quants: &mut [u8], lane: usize, bytes: &[u8; BLOCK]) {
    for (lanes, bytes) in lanes::<8>(quants).iter_mut().zip(bytes.as_chunks::<4>().0) {
        lanes[lane % LANES] = even_then_odd(u32::from_le_bytes(*bytes)).to_le_bytes();
    }
}

/// Integers of 5, 6 or 13 bits.
#[inline(always)]
fn put_fields<const VECTORS: usize>(kind: Quants, quants: &mut [u8], lane: usize, values: &[u16; BLOCK]) {
    let pairs =
        std::array::from_fn(|pair| u32::from(values[2 * pair]) | u32::from(values[2 * pair + 1]) << 16);
    let lanes = lanes::<VECTORS>(quants);
    for (vector, lanes) in lanes.iter_mut().enumerate() {
        lanes[lane % LANES] = stored_words(kind, vector, &pairs).to_le_bytes();
    }
}

/// 32-bit lanes of the first `VECTORS` vectors of a record.
#[inline(always)]
fn lanes<const VECTORS: usize>(quants: &mut [u8]) -> &mut [[[u8; 4]; LANES]; VECTORS] {
    let lanes = quants.as_chunks_mut().0.as_chunks_mut().0;
    lanes.first_chunk_mut().expect("a record has all vectors of its format")
}

#[inline(always)]
fn put_block(dtype: TensorType, format: Format, row: &[u8], block: usize, lane: usize, record: &mut [u8]) {
    let size = dtype.bytes_per_block();
    let (quants, scales) = record.split_at_mut(format.quants().size_bytes());
    match dtype.block_size() {
        _ if matches!(dtype, TensorType::IQ4_NL | TensorType::IQ4_XS | TensorType::MXFP4) => {
            put_looked_up(dtype, row, block, lane, quants, scales);
        }
        1 => put_floats(dtype, row, block, lane, quants, scales),
        32 => put_small(format, &row[block * size..][..size], lane, quants, scales),
        _ if dtype == TensorType::Q2K => put_floats(dtype, row, block, lane, quants, scales),
        _ => {
            let stored = &row[block / GROUP * size..][..size];
            put_large((dtype, format), stored, block % GROUP, lane, quants, scales);
        }
    }
}

/// `F16`, `BF16` and, through its values, `Q2_K`.
#[inline(always)]
fn put_floats(
    dtype: TensorType,
    row: &[u8],
    block: usize,
    lane: usize,
    quants: &mut [u8],
    scales: &mut [u8],
) {
    /// Adding it leaves the rounded integer in the low bits of the sum.
    const ROUND: f32 = 12_582_912.0;
    let mut values = [0.0; BLOCK];
    unpack_block(dtype, row, block, &mut values);
    let largest_bits = values.iter().fold(0, |all, x| all.max(x.to_bits() & 0x7fff_ffff));
    let largest = f32::from_bits(largest_bits);
    let mut words = [0; BLOCK];
    let scale =
        if !largest.is_finite() { half::bf16::NAN.to_bits() } else { bf16_at_least(largest / FLOAT_LIMIT) };
    if bf16_to_f32(scale) >= SMALLEST_SCALE {
        let inverse = 1.0 / bf16_to_f32(scale);
        for (word, value) in words.iter_mut().zip(values) {
            *word = ((value * inverse + ROUND).to_bits() as i32 - ROUND.to_bits() as i32) as u16;
        }
    }
    put_fields::<13>(Quants::Thirteen, quants, lane, &words);
    scales[2 * lane..][..2].copy_from_slice(&scale.to_le_bytes());
}

/// Types whose nibbles are entries of a table: as the bytes that they stand for.
#[inline(always)]
fn put_looked_up(
    dtype: TensorType,
    row: &[u8],
    block: usize,
    lane: usize,
    quants: &mut [u8],
    scales: &mut [u8],
) {
    let (scale, integers) = looked_up(dtype, row, block);
    put_bytes(quants, lane, &integers.map(|q| q as u8));
    if dtype == TensorType::IQ4_NL {
        let at = block * dtype.bytes_per_block();
        scales[2 * lane..][..2].copy_from_slice(&row[at..at + 2]);
    } else {
        scales[4 * lane..][..4].copy_from_slice(&scale.to_le_bytes());
    }
}

/// Types with blocks of 32.
#[inline(always)]
fn put_small(format: Format, stored: &[u8], lane: usize, quants: &mut [u8], scales: &mut [u8]) {
    scales[2 * lane..][..2].copy_from_slice(&stored[..2]);
    if format.scales() == Scales::HalfMin {
        scales[2 * (LANES + lane)..][..2].copy_from_slice(&stored[2..4]);
    }
    let bytes = || stored.last_chunk().expect("a block ends in 32 bytes");
    let nibbles: fn(&[u8]) -> &[u8; 16] = |stored| stored.last_chunk().expect("a block ends in 16 bytes");
    match format.quants() {
        Quants::Byte => return put_bytes(quants, lane, bytes()),
        // Adding 128 to a signed byte flips its highest bit.
        Quants::QuadByte => return put_quads::<BLOCK>(quants, lane, bytes(), 0x80),
        Quants::QuadNibble => return put_quads::<16>(quants, lane, nibbles(stored), 0),
        Quants::Five => {}
        _ => return put_nibbles(quants, lane, nibbles(stored)),
    }
    let fifth = u32_at(stored, stored.len() - BLOCK / 2 - 4);
    let nibbles = nibbles(stored);
    let mut values = [0; BLOCK];
    for (k, nibbles) in nibbles.iter().enumerate() {
        (values[k], values[k + 16]) = (u16::from(nibbles & 15), u16::from(nibbles >> 4));
    }
    for (k, value) in values.iter_mut().enumerate() {
        *value |= (fifth >> k & 1) as u16 * 16;
    }
    put_fields::<5>(Quants::Five, quants, lane, &values);
}

/// Types with super-blocks of 256 values, sub-block `j`.
#[inline(always)]
fn put_large(
    (dtype, format): (TensorType, Format),
    stored: &[u8],
    j: usize,
    lane: usize,
    quants: &mut [u8],
    scales: &mut [u8],
) {
    match dtype {
        TensorType::Q3K => {
            let words = std::array::from_fn(|k| integer_q3k(stored, j, k) as u16);
            put_fields::<13>(Quants::Thirteen, quants, lane, &words);
            scales[2 * lane..][..2].copy_from_slice(&stored[108..110]);
        }
        TensorType::Q4K | TensorType::Q5K => {
            let (scale, minimum) = scale_and_minimum(&stored[4..16], j);
            (scales[lane], scales[LANES + lane]) = (scale, minimum);
            let all = &stored[if dtype == TensorType::Q4K { 16 } else { 48 }..][j / 2 * 32..][..32];
            let low = |k: usize| all[k] >> (4 * (j % 2)) & 15;
            if dtype == TensorType::Q5K {
                let values = std::array::from_fn(|k| u16::from(low(k) | (stored[16 + k] >> j & 1) << 4));
                return put_fields::<5>(Quants::Five, quants, lane, &values);
            }
            let nibbles: [u8; 16] = std::array::from_fn(|i| low(i) | low(i + 16) << 4);
            if format.quants() == Quants::QuadNibble {
                return put_quads(quants, lane, &nibbles, 0);
            }
            put_nibbles(quants, lane, &nibbles);
        }
        TensorType::Q6K => {
            (scales[lane], scales[LANES + lane]) = (stored[192 + 2 * j], stored[193 + 2 * j]);
            let values = std::array::from_fn(|k| {
                let (low, high) = bits_q6k(stored, j, k);
                u16::from(low | high << 4)
            });
            put_fields::<6>(Quants::Six, quants, lane, &values);
        }
        _ => {
            scales[4 * lane..][..4].copy_from_slice(&stored[..4]);
            let bytes = stored[4 + j * BLOCK..].first_chunk();
            put_bytes(quants, lane, bytes.expect("a super-block has 256 bytes"));
        }
    }
}

/// What the sub-blocks of a super-block share.
#[inline(always)]
fn put_header(dtype: TensorType, row: &[u8], block: usize, lane: usize, header: &mut [u8]) {
    let size = dtype.bytes_per_block();
    let stored = &row[block / GROUP * size..][..size];
    if dtype == TensorType::Q6K {
        header[2 * lane..][..2].copy_from_slice(&stored[208..210]);
        return;
    }
    header[2 * lane..][..2].copy_from_slice(&stored[..2]);
    // The stored multiplier is subtracted: flip its sign.
    header[2 * (LANES + lane)..][..2].copy_from_slice(&[stored[2], stored[3] ^ 0x80]);
}
