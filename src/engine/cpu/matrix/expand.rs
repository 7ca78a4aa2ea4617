//! A packed record back to its integers, scales and minima: the scalar twin of the vector expanders, and their stand-in
//! where there are none.

use super::fields::value;
use super::format::{BLOCK, Format, LANES, PAIRS, Quants, Scales, nibble_pairs};
use super::half_bits::{bf16_to_f32, f16_to_f32};

/// 16-bit words of an expanded record: `[pair, lane, 2]`.
pub const WORDS: usize = BLOCK * LANES;

/// Integers, scales and minima of one record.
#[derive(Clone, Debug, PartialEq)]
pub struct Expanded {
    /// `[pair, lane, 2]`
    pub words: [i16; WORDS],
    pub scales: [f32; LANES],
    /// Zero in formats without minima.
    pub minima: [f32; LANES],
}

impl Expanded {
    pub const ZERO: Self = Self { words: [0; WORDS], scales: [0.0; LANES], minima: [0.0; LANES] };
}

#[inline(always)]
fn word_at(bytes: &[u8], index: usize) -> u16 {
    u16::from_le_bytes([bytes[2 * index], bytes[2 * index + 1]])
}

/// Expands record `block` of `panel`.
#[inline(always)]
pub fn expand(format: Format, panel: &[u8], block: usize, to: &mut Expanded) {
    let record = &panel[format.record_at(block)..][..format.record_bytes()];
    let (quants, scales) = record.split_at(format.quants().size_bytes());
    let header = &panel[format.header_at(block)..][..format.scales().header_bytes()];
    integers(format, quants, &mut to.words);
    finish(format, scales, header, to);
}

/// Scales of a record whose integers are expanded, and factors of the integers where there are any.
#[inline(always)]
pub fn finish(format: Format, scales: &[u8], header: &[u8], to: &mut Expanded) {
    if format.scales() == Scales::Six {
        let halves = to.words.chunks_exact_mut(WORDS / 2).zip(scales.chunks_exact(LANES));
        for (words, factors) in halves {
            let factors: [i16; LANES] = std::array::from_fn(|lane| i16::from(factors[lane] as i8));
            for words in words.chunks_exact_mut(2 * LANES) {
                for (words, factor) in words.as_chunks_mut::<2>().0.iter_mut().zip(factors) {
                    *words = [words[0] * factor, words[1] * factor];
                }
            }
        }
    }
    read_scales(format.scales(), scales, header, to);
}

/// Integers of a record, after the offset: `[pair, lane, 2]`.
#[inline(always)]
fn integers(format: Format, quants: &[u8], words: &mut [i16; WORDS]) {
    const VECTOR: usize = 2 * LANES;
    let offset = format.offset() as i16;
    match format.quants() {
        Quants::Nibble => {
            for s in 0..4 {
                for (place, pair) in nibble_pairs(s).into_iter().enumerate() {
                    for lane in 0..VECTOR {
                        let bits = word_at(quants, s * VECTOR + lane) >> (4 * place) & 15;
                        words[pair * VECTOR + lane] = bits as i16 - offset;
                    }
                }
            }
        }
        Quants::Byte => {
            for (index, word) in words.iter_mut().enumerate() {
                let (pair, lane) = (index / VECTOR, index % VECTOR);
                *word = i16::from(quants[pair / 2 * 2 * VECTOR + 2 * lane + pair % 2] as i8);
            }
        }
        Quants::QuadNibble | Quants::QuadByte => {
            for (index, word) in words.iter_mut().enumerate() {
                let (k, lane) = (index / VECTOR * 2 + index % 2, index % VECTOR / 2);
                *word = quad_value(format.quants(), quants, k, lane) - offset;
            }
        }
        kind @ (Quants::Five | Quants::Six | Quants::Thirteen) => {
            for (index, word) in words.iter_mut().enumerate() {
                let (pair, lane) = (index / VECTOR, index % VECTOR);
                let bits = value(kind, pair, |vector| word_at(quants, vector * VECTOR + lane));
                let integer = if kind == Quants::Thirteen { (bits << 3) as i16 >> 3 } else { bits as i16 };
                *word = integer - offset;
            }
        }
    }
}

/// Stored integer of input `k` and output `lane` of a record of quads.
#[inline(always)]
fn quad_value(kind: Quants, quants: &[u8], k: usize, lane: usize) -> i16 {
    let byte = |quad: usize| i16::from(quants[(quad * LANES + lane) * 4 + k % 4]);
    match (kind, k / 4) {
        (Quants::QuadByte, quad) => byte(quad),
        (_, quad @ 0..4) => byte(quad) & 15,
        (_, quad) => byte(quad - 4) >> 4,
    }
}

#[inline(always)]
fn read_scales(kind: Scales, scales: &[u8], header: &[u8], to: &mut Expanded) {
    for lane in 0..LANES {
        let half = |index: usize| f16_to_f32(word_at(scales, index * LANES + lane));
        let header_half = |index: usize| f16_to_f32(word_at(header, index * LANES + lane));
        let (scale, minimum) = match kind {
            Scales::Half => (half(0), 0.0),
            Scales::HalfMin => (half(0), half(1)),
            Scales::Super => {
                let (scale, minimum) = (f32::from(scales[lane]), f32::from(scales[LANES + lane]));
                (header_half(0) * scale, header_half(1) * minimum)
            }
            Scales::Six => (header_half(0), 0.0),
            Scales::Brain => (bf16_to_f32(word_at(scales, lane)), 0.0),
            Scales::Single => {
                let at = &scales[4 * lane..][..4];
                (f32::from_le_bytes([at[0], at[1], at[2], at[3]]), 0.0)
            }
        };
        (to.scales[lane], to.minima[lane]) = (scale, minimum);
    }
}

const _: () = assert!(PAIRS * 2 * LANES == WORDS);
