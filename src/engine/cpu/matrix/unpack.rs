//! Stored blocks to f32, one value after the other: what each ggml type means, the twin that packed forms are tested
//! against, and the way single rows of an embedding are read.
//!
//! Source: block structures of ggml (`ggml-common.h`) and its `dequantize_row_*` functions.

use super::format::BLOCK;
use super::half_bits::{bf16_to_f32, f16_to_f32};
use crate::checkpoint::tensor::TensorType;

#[inline(always)]
pub(super) fn half_at(bytes: &[u8], at: usize) -> f32 {
    f16_to_f32(u16::from_le_bytes([bytes[at], bytes[at + 1]]))
}

#[inline(always)]
pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// 6-bit scale and minimum of sub-block `j` in the 12 bytes of `Q4_K` and `Q5_K`.
#[inline(always)]
pub(super) fn scale_and_minimum(packed: &[u8], j: usize) -> (u8, u8) {
    if j < 4 {
        (packed[j] & 63, packed[j + 4] & 63)
    } else {
        let scale = packed[j + 4] & 15 | packed[j - 4] >> 6 << 4;
        let minimum = packed[j + 4] >> 4 | packed[j] >> 6 << 4;
        (scale, minimum)
    }
}

/// Signed 6-bit scale `j` (of 16 values) in the 12 bytes of `Q3_K`.
#[inline(always)]
pub(super) fn signed_scale(packed: &[u8], j: usize) -> i16 {
    let low = if j < 8 { packed[j] & 15 } else { packed[j - 8] >> 4 };
    let high = packed[8 + j % 4] >> (2 * (j / 4)) & 3;
    i16::from(low | high << 4) - 32
}

/// What a nibble of `IQ4_NL` and `IQ4_XS` stands for: levels that are closer together near zero.
const LEVELS: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

/// Twice the 4-bit floats of the OCP Microscaling format (E2M1): sign, two bits of exponent, one of mantissa.
const DOUBLED_FLOATS: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

/// Types whose nibbles are entries of a table: scale and 32 integers of block `block` of a row.
///
/// `MXFP4` stores the scale as the exponent of a power of two, biased by 127; integers are doubled, so it is halved.
#[inline(always)]
pub(super) fn looked_up(dtype: TensorType, row: &[u8], block: usize) -> (f32, [i8; BLOCK]) {
    let size = dtype.bytes_per_block();
    let (stored, scale, nibbles, table) = match dtype {
        TensorType::IQ4_XS => {
            let (stored, j) = (&row[block / 8 * size..][..size], block % 8);
            let low = stored[4 + j / 2] >> (4 * (j % 2)) & 15;
            let high = u16::from_le_bytes([stored[2], stored[3]]) >> (2 * j) & 3;
            let factor = i16::from(low) | (high << 4) as i16;
            (stored, half_at(stored, 0) * f32::from(factor - 32), 8 + 16 * j, &LEVELS)
        }
        TensorType::MXFP4 => {
            let stored = &row[block * size..][..size];
            // 2^(e - 128): below the normal numbers for the two smallest exponents.
            let scale = match stored[0] {
                small @ 0..=1 => f32::from_bits(0x0020_0000 << small),
                exponent => f32::from_bits(u32::from(exponent - 1) << 23),
            };
            (stored, scale, 1, &DOUBLED_FLOATS)
        }
        _ => {
            let stored = &row[block * size..][..size];
            (stored, half_at(stored, 0), 2, &LEVELS)
        }
    };
    let nibbles = &stored[nibbles..][..BLOCK / 2];
    let value = |k: usize| table[usize::from(nibbles[k % 16] >> (4 * (k / 16)) & 15)];
    (scale, std::array::from_fn(value))
}

/// Values `32 * block..32 * (block + 1)` of a stored row; `row` is whole, and past its end the values are zero.
#[inline(always)]
pub fn unpack_block(dtype: TensorType, row: &[u8], block: usize, values: &mut [f32; BLOCK]) {
    match dtype {
        TensorType::F32 | TensorType::F16 | TensorType::BF16 => floats(dtype, row, block, values),
        TensorType::Q4_0 | TensorType::Q4_1 | TensorType::Q5_0 | TensorType::Q5_1 => {
            small(dtype, &row[block * dtype.bytes_per_block()..], values);
        }
        TensorType::Q8_0 | TensorType::Q8_1 => {
            let size = dtype.bytes_per_block();
            let stored = &row[block * size..][..size];
            let scale = half_at(stored, 0);
            let integers = &stored[size - BLOCK..];
            for (value, q) in values.iter_mut().zip(integers) {
                *value = scale * f32::from(*q as i8);
            }
        }
        TensorType::IQ4_NL | TensorType::IQ4_XS | TensorType::MXFP4 => {
            let (scale, integers) = looked_up(dtype, row, block);
            for (value, q) in values.iter_mut().zip(integers) {
                *value = scale * f32::from(q);
            }
        }
        _ => {
            let size = dtype.bytes_per_block();
            large(dtype, &row[block / 8 * size..][..size], block % 8, values);
        }
    }
}

#[inline(always)]
fn floats(dtype: TensorType, row: &[u8], block: usize, values: &mut [f32; BLOCK]) {
    let size = dtype.bytes_per_block();
    let stored = &row[(block * BLOCK * size).min(row.len())..];
    if size == 2
        && let Some(whole) = stored.first_chunk::<{ 2 * BLOCK }>()
    {
        // Of known length, so that it is vectorised whole.
        let halves = whole.as_chunks::<2>().0;
        if dtype == TensorType::F16 {
            *values = std::array::from_fn(|k| f16_to_f32(u16::from_le_bytes(halves[k])));
        } else {
            *values = std::array::from_fn(|k| bf16_to_f32(u16::from_le_bytes(halves[k])));
        }
        return;
    }
    values.fill(0.0);
    match dtype {
        TensorType::F32 => {
            for (value, word) in values.iter_mut().zip(stored.as_chunks::<4>().0) {
                *value = f32::from_le_bytes(*word);
            }
        }
        TensorType::F16 => {
            for (value, pair) in values.iter_mut().zip(stored.as_chunks::<2>().0) {
                *value = f16_to_f32(u16::from_le_bytes(*pair));
            }
        }
        _ => {
            for (value, pair) in values.iter_mut().zip(stored.as_chunks::<2>().0) {
                *value = bf16_to_f32(u16::from_le_bytes(*pair));
            }
        }
    }
}

/// `Q4_0`, `Q4_1`, `Q5_0`, `Q5_1`.
#[inline(always)]
fn small(dtype: TensorType, stored: &[u8], values: &mut [f32; BLOCK]) {
    let scale = half_at(stored, 0);
    let (high, nibbles_at, minimum) = match dtype {
        TensorType::Q4_0 => (0, 2, -8.0 * scale),
        TensorType::Q4_1 => (0, 4, half_at(stored, 2)),
        TensorType::Q5_0 => (u32_at(stored, 2), 6, -16.0 * scale),
        _ => (u32_at(stored, 4), 8, half_at(stored, 2)),
    };
    for (k, value) in values.iter_mut().enumerate() {
        let nibble = stored[nibbles_at + k % 16] >> (4 * (k / 16)) & 15;
        let q = u32::from(nibble) | (high >> k & 1) << 4;
        *value = scale * q as f32 + minimum;
    }
}

/// Types with super-blocks of 256: sub-block `j` of one.
#[inline(always)]
fn large(dtype: TensorType, stored: &[u8], j: usize, values: &mut [f32; BLOCK]) {
    for (k, value) in values.iter_mut().enumerate() {
        let sixteenth = 2 * j + k / 16;
        *value = match dtype {
            TensorType::Q2K => {
                let factors = stored[sixteenth];
                let q = stored[16 + j / 4 * 32 + k] >> (2 * (j % 4)) & 3;
                let scale = half_at(stored, 80) * f32::from(factors & 15);
                scale * f32::from(q) - half_at(stored, 82) * f32::from(factors >> 4)
            }
            TensorType::Q3K => half_at(stored, 108) * f32::from(integer_q3k(stored, j, k)),
            TensorType::Q4K | TensorType::Q5K => {
                let (scale, minimum) = scale_and_minimum(&stored[4..16], j);
                let quants = &stored[if dtype == TensorType::Q4K { 16 } else { 48 }..];
                let low = quants[j / 2 * 32 + k] >> (4 * (j % 2)) & 15;
                let high = if dtype == TensorType::Q4K { 0 } else { stored[16 + k] >> j & 1 };
                let scale = half_at(stored, 0) * f32::from(scale);
                scale * f32::from(low | high << 4) - half_at(stored, 2) * f32::from(minimum)
            }
            TensorType::Q6K => {
                let scale = half_at(stored, 208) * f32::from(stored[192 + sixteenth] as i8);
                let (low, high) = bits_q6k(stored, j, k);
                scale * (f32::from(low | high << 4) - 32.0)
            }
            _ => f32::from_bits(u32_at(stored, 0)) * f32::from(stored[4 + j * BLOCK + k] as i8),
        };
    }
}

/// Scale times value of `Q3_K`, an integer of magnitude at most 128.
#[inline(always)]
pub(super) fn integer_q3k(stored: &[u8], j: usize, k: usize) -> i16 {
    let low = stored[32 + j / 4 * 32 + k] >> (2 * (j % 4)) & 3;
    let high = stored[k] >> j & 1;
    let scale = signed_scale(&stored[96..108], 2 * j + k / 16);
    scale * (i16::from(low | high << 2) - 4)
}

/// Low four and high two bits of a value of `Q6_K`.
#[inline(always)]
pub(super) fn bits_q6k(stored: &[u8], j: usize, k: usize) -> (u8, u8) {
    let half = j / 4;
    let low = stored[64 * half + 32 * (j % 2) + k] >> (4 * (j % 4 / 2)) & 15;
    let high = stored[128 + 32 * half + k] >> (2 * (j % 4)) & 3;
    (low, high)
}

/// A whole stored row to f32.
///
/// # Panics
/// When `row` holds fewer values than `values` (rounded up to whole blocks).
pub fn unpack_row(dtype: TensorType, row: &[u8], values: &mut [f32]) {
    let mut block_values = [0.0; BLOCK];
    for (block, chunk) in values.chunks_mut(BLOCK).enumerate() {
        unpack_block(dtype, row, block, &mut block_values);
        chunk.copy_from_slice(&block_values[..chunk.len()]);
    }
}
