//! How weights lie in memory once packed.
//!
//! A matrix `[out, in]` is cut into *panels* of [`LANES`] outputs; a panel into *records* of [`BLOCK`] inputs, stored
//! one after the other. A record holds integers in vectors of 32 16-bit words, where the word pair `2n, 2n + 1` belongs
//! to output `n` and to an even and the following odd input: the operand of a 16-bit dot product. Several values share a
//! word (nibbles, bytes), so that one load, a shift and a mask give one such vector. After them come the scales of the
//! 16 outputs. Formats with super-blocks put a header before each group of [`GROUP`] records.
//!
//! Records for products with 8-bit activations hold quads of inputs instead of pairs: byte `j` of lane `n` of the vector
//! of quad `q` belongs to output `n` and input `4q + j`, unsigned, the operand of an 8-bit dot product.
//!
//! The value of a weight is `scale * integer + minimum`, with the integer after subtraction of [`Format::offset`].

use crate::checkpoint::tensor::TensorType;
use crate::named::Named;

/// Outputs of a panel: the 32-bit lanes of the widest vector.
pub const LANES: usize = 16;
/// Inputs of a record.
pub const BLOCK: usize = 32;
/// Pairs of inputs in a record.
pub const PAIRS: usize = BLOCK / 2;
/// Records that share a header in formats with super-blocks.
pub const GROUP: usize = 8;
/// Largest magnitude of a quantised activation.
pub const ACTIVATION_LIMIT: i32 = 16383;
/// Largest magnitude of an integer weight: 32 products of the two extremes fit an `i32`.
pub const WEIGHT_LIMIT: i32 = 4096;
const _: () = assert!(BLOCK as i64 * ACTIVATION_LIMIT as i64 * WEIGHT_LIMIT as i64 <= i32::MAX as i64);

/// How finely activations are quantised for a matrix.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Activations {
    /// 15 bits, one scale per row: an error far below that of bfloat16.
    #[default]
    Sixteen,
    /// 8 bits, one scale per 32 values, where the weights allow it: half the work. Others are multiplied as `Sixteen`.
    Eight,
}

impl Named for Activations {
    const WHAT: &'static str = "number of bits";
    const ALL: &'static [Self] = &[Self::Eight, Self::Sixteen];

    fn name(self) -> &'static str {
        match self {
            Self::Sixteen => "16",
            Self::Eight => "8",
        }
    }
}

/// How the integers of a record are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quants {
    /// 4 bits, unsigned: four vectors; see [`nibble_pairs`]
    Nibble,
    /// 5 bits, unsigned: five vectors; see [`fields`](super::fields)
    Five,
    /// 6 bits, unsigned: six vectors; see [`fields`](super::fields)
    Six,
    /// 8 bits, signed: eight vectors; vector `s` holds pair `2s` in the low bytes, `2s + 1` in the high ones
    Byte,
    /// 13 bits, signed: thirteen vectors; see [`fields`](super::fields)
    Thirteen,
    /// 4 bits, unsigned: four vectors of quads; vector `s` holds quad `s` in the low nibbles, `s + 4` in the high ones
    QuadNibble,
    /// 8 bits, unsigned: eight vectors of quads
    QuadByte,
}

/// Pairs held by the nibbles of vector `s`, lowest nibble first: what falls out of ggml's order by moving bytes only.
pub const fn nibble_pairs(s: usize) -> [usize; 4] {
    [2 * s, 2 * s + 8, 2 * s + 1, 2 * s + 9]
}

impl Quants {
    /// Bytes of the integers of one record.
    pub const fn size_bytes(self) -> usize {
        match self {
            Self::Nibble | Self::QuadNibble => 256,
            Self::Five => 5 * 64,
            Self::Six => 6 * 64,
            Self::Byte | Self::QuadByte => 512,
            Self::Thirteen => 13 * 64,
        }
    }
}

/// How the scales of a record are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scales {
    /// 16 f16 scales
    Half,
    /// 16 f16 scales, 16 f16 minima
    HalfMin,
    /// 16 u8 scales, 16 u8 minima; header: 16 f16 multipliers of the scales, 16 f16 of the (negative) minima
    Super,
    /// 16 i8 factors of the integers of the first 16 inputs, 16 of the others; header: 16 f16 scales, padding
    Six,
    /// 16 bf16 scales
    Brain,
    /// 16 f32 scales
    Single,
}

impl Scales {
    /// Bytes of the scales of one record.
    pub const fn size_bytes(self) -> usize {
        match self {
            Self::Half | Self::Super | Self::Six | Self::Brain => 32,
            Self::HalfMin | Self::Single => 64,
        }
    }

    /// Bytes before each group of records.
    pub const fn header_bytes(self) -> usize {
        match self {
            Self::Super | Self::Six => 64,
            _ => 0,
        }
    }

    /// Whether a minimum is added to each value.
    pub const fn has_minimum(self) -> bool {
        matches!(self, Self::HalfMin | Self::Super)
    }
}

/// A packed number format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(non_camel_case_types)]
pub enum Format {
    /// From `Q4_0`
    Q4_0,
    /// From `Q4_1`
    Q4_1,
    /// From `Q5_0`
    Q5_0,
    /// From `Q5_1`
    Q5_1,
    /// From `Q8_0`, `Q8_1` and, through its table, `IQ4_NL`
    Q8_0,
    /// From `Q8_K` and, through their tables, `IQ4_XS` and `MXFP4`
    Q8K,
    /// From `Q4_K`
    Q4K,
    /// From `Q5_K`
    Q5K,
    /// From `Q6_K`
    Q6K,
    /// From `Q3_K`: scale times value, exactly
    Integer,
    /// From `F16`, `BF16` and `Q2_K`: 12 bits and a sign per value, one scale per 32, so that the error is at most
    /// 1/8190 of the largest of the 32 (rounding to bf16 would cost each value up to 1/512 of itself)
    Float13,
    /// From `Q4_0`, for 8-bit activations
    Q4_0By8,
    /// From `Q4_1`, for 8-bit activations
    Q4_1By8,
    /// From `Q4_K`, for 8-bit activations
    Q4KBy8,
    /// From `Q8_0`, for 8-bit activations: 128 is added to the integers
    Q8_0By8,
}

impl Format {
    /// Every format, in the order of the kernels' generic parameter.
    pub const ALL: [Self; 15] = [
        Self::Q4_0,
        Self::Q4_1,
        Self::Q5_0,
        Self::Q5_1,
        Self::Q8_0,
        Self::Q8K,
        Self::Q4K,
        Self::Q5K,
        Self::Q6K,
        Self::Integer,
        Self::Float13,
        Self::Q4_0By8,
        Self::Q4_1By8,
        Self::Q4KBy8,
        Self::Q8_0By8,
    ];

    /// Format into which a stored type is packed; `None` for `F32`, which keeps its own kernels.
    pub const fn of(dtype: TensorType, activations: Activations) -> Option<Self> {
        if let Activations::Eight = activations {
            match dtype {
                TensorType::Q4_0 => return Some(Self::Q4_0By8),
                TensorType::Q4_1 => return Some(Self::Q4_1By8),
                TensorType::Q4K => return Some(Self::Q4KBy8),
                TensorType::Q8_0 => return Some(Self::Q8_0By8),
                _ => {}
            }
        }
        Some(match dtype {
            TensorType::F32 => return None,
            TensorType::F16 | TensorType::BF16 | TensorType::Q2K => Self::Float13,
            TensorType::Q3K => Self::Integer,
            TensorType::Q4_0 => Self::Q4_0,
            TensorType::Q4_1 => Self::Q4_1,
            TensorType::Q5_0 => Self::Q5_0,
            TensorType::Q5_1 => Self::Q5_1,
            TensorType::Q8_0 | TensorType::Q8_1 | TensorType::IQ4_NL => Self::Q8_0,
            TensorType::Q8K | TensorType::IQ4_XS | TensorType::MXFP4 => Self::Q8K,
            TensorType::Q4K => Self::Q4K,
            TensorType::Q5K => Self::Q5K,
            TensorType::Q6K => Self::Q6K,
        })
    }

    pub const fn quants(self) -> Quants {
        match self {
            Self::Q4_0 | Self::Q4_1 | Self::Q4K => Quants::Nibble,
            Self::Q5_0 | Self::Q5_1 | Self::Q5K => Quants::Five,
            Self::Q6K => Quants::Six,
            Self::Q8_0 | Self::Q8K => Quants::Byte,
            Self::Integer | Self::Float13 => Quants::Thirteen,
            Self::Q4_0By8 | Self::Q4_1By8 | Self::Q4KBy8 => Quants::QuadNibble,
            Self::Q8_0By8 => Quants::QuadByte,
        }
    }

    pub const fn scales(self) -> Scales {
        match self {
            Self::Q4_0 | Self::Q5_0 | Self::Q8_0 | Self::Integer => Scales::Half,
            Self::Q4_0By8 | Self::Q8_0By8 => Scales::Half,
            Self::Q4_1 | Self::Q5_1 | Self::Q4_1By8 => Scales::HalfMin,
            Self::Q4K | Self::Q5K | Self::Q4KBy8 => Scales::Super,
            Self::Q6K => Scales::Six,
            Self::Q8K => Scales::Single,
            Self::Float13 => Scales::Brain,
        }
    }

    /// What is subtracted from the stored integer.
    pub const fn offset(self) -> i32 {
        match self {
            Self::Q4_0 | Self::Q4_0By8 => 8,
            Self::Q8_0By8 => 128,
            Self::Q5_0 => 16,
            Self::Q6K => 32,
            _ => 0,
        }
    }

    /// Whether it is multiplied with activations of 8 bits.
    pub const fn by_eight(self) -> bool {
        matches!(self.quants(), Quants::QuadNibble | Quants::QuadByte)
    }

    /// Bytes of one record.
    pub const fn record_bytes(self) -> usize {
        self.quants().size_bytes() + self.scales().size_bytes()
    }

    /// Byte of record `block` within its panel.
    pub const fn record_at(self, block: usize) -> usize {
        block * self.record_bytes() + (block / GROUP + 1) * self.scales().header_bytes()
    }

    /// Byte of the header of record `block` within its panel.
    pub const fn header_at(self, block: usize) -> usize {
        block / GROUP * (GROUP * self.record_bytes() + self.scales().header_bytes())
    }

    /// Bytes of a panel of `n_blocks` records.
    pub const fn panel_bytes(self, n_blocks: usize) -> usize {
        n_blocks * self.record_bytes() + n_blocks.div_ceil(GROUP) * self.scales().header_bytes()
    }
}

/// Runs an expression with a run-time [`Format`] of pairs as the constant index `$F` into [`Format::ALL`].
macro_rules! with_format {
    ($format:expr, $F:ident => $run:expr) => {
        match $format as usize {
            0 => {
                const $F: usize = 0;
                $run
            }
            1 => {
                const $F: usize = 1;
                $run
            }
            2 => {
                const $F: usize = 2;
                $run
            }
            3 => {
                const $F: usize = 3;
                $run
            }
            4 => {
                const $F: usize = 4;
                $run
            }
            5 => {
                const $F: usize = 5;
                $run
            }
            6 => {
                const $F: usize = 6;
                $run
            }
            7 => {
                const $F: usize = 7;
                $run
            }
            8 => {
                const $F: usize = 8;
                $run
            }
            9 => {
                const $F: usize = 9;
                $run
            }
            _ => {
                const $F: usize = 10;
                $run
            }
        }
    };
}
pub(super) use with_format;

/// As [`with_format`], for the formats that are multiplied with 8-bit activations.
macro_rules! with_quad_format {
    ($format:expr, $F:ident => $run:expr) => {
        match $format as usize {
            11 => {
                const $F: usize = 11;
                $run
            }
            12 => {
                const $F: usize = 12;
                $run
            }
            13 => {
                const $F: usize = 13;
                $run
            }
            _ => {
                const $F: usize = 14;
                $run
            }
        }
    };
}
pub(super) use with_quad_format;
const _: () = assert!(Format::ALL.len() == 15);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_listed_in_the_order_of_their_discriminants() {
        for (index, format) in Format::ALL.into_iter().enumerate() {
            assert_eq!(format as usize, index);
            let found = if format.by_eight() {
                with_quad_format!(format, F => F)
            } else {
                with_format!(format, F => F)
            };
            assert_eq!(found, index);
        }
    }

    #[test]
    fn records_fill_their_panel_without_overlap() {
        for format in Format::ALL {
            for block in 0..40 {
                let end = format.record_at(block) + format.record_bytes();
                assert_eq!(format.panel_bytes(block + 1), end, "{format:?}");
                assert!(format.header_at(block) + format.scales().header_bytes() <= format.record_at(block));
            }
        }
    }
}
