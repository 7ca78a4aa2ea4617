//! What a stored tensor is: its element type, its shape and its bytes.

use std::fmt;
use std::ops::Range;

/// Element types that the engines read, named as ggml names them.
///
/// Source: ggml `enum ggml_type` and its block structures (`ggml-common.h`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(non_camel_case_types)]
pub enum TensorType {
    /// 32-bit float
    F32,
    /// IEEE half precision
    F16,
    /// bfloat16
    BF16,
    /// 4 bits and one scale for 32 values
    Q4_0,
    /// 4 bits, scale and minimum for 32 values
    Q4_1,
    /// 5 bits and one scale for 32 values
    Q5_0,
    /// 5 bits, scale and minimum for 32 values
    Q5_1,
    /// 8 bits and one scale for 32 values
    Q8_0,
    /// 8 bits, scale and scaled sum for 32 values
    Q8_1,
    /// 2-bit super-block of 256 values
    Q2K,
    /// 3-bit super-block of 256 values
    Q3K,
    /// 4-bit super-block of 256 values
    Q4K,
    /// 5-bit super-block of 256 values
    Q5K,
    /// 6-bit super-block of 256 values
    Q6K,
    /// 8-bit super-block of 256 values
    Q8K,
    /// 4 bits, entries of a table of 16 levels, and one scale for 32 values
    IQ4_NL,
    /// 4-bit super-block of 256 values, entries of the table of `IQ4_NL`
    IQ4_XS,
    /// 4-bit floats and a power of two for 32 values
    MXFP4,
}

/// ggml types that exist in files but that no engine here reads.
const UNREAD_GGML_TYPES: [(u32, &str); 19] = [
    (4, "Q4_2"),
    (5, "Q4_3"),
    (16, "IQ2_XXS"),
    (17, "IQ2_XS"),
    (18, "IQ3_XXS"),
    (19, "IQ1_S"),
    (21, "IQ3_S"),
    (22, "IQ2_S"),
    (24, "I8"),
    (25, "I16"),
    (26, "I32"),
    (27, "I64"),
    (28, "F64"),
    (29, "IQ1_M"),
    (34, "TQ1_0"),
    (35, "TQ2_0"),
    (40, "NVFP4"),
    (41, "Q1_0"),
    (42, "Q2_0"),
];

impl TensorType {
    /// Every type, in the order of the ggml identifiers, bfloat16 after the other floats.
    pub const ALL: [Self; 18] = [
        Self::F32,
        Self::F16,
        Self::BF16,
        Self::Q4_0,
        Self::Q4_1,
        Self::Q5_0,
        Self::Q5_1,
        Self::Q8_0,
        Self::Q8_1,
        Self::Q2K,
        Self::Q3K,
        Self::Q4K,
        Self::Q5K,
        Self::Q6K,
        Self::Q8K,
        Self::IQ4_NL,
        Self::IQ4_XS,
        Self::MXFP4,
    ];

    /// Name as llama.cpp prints it, for example `Q4_K`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "F32",
            Self::F16 => "F16",
            Self::BF16 => "BF16",
            Self::Q4_0 => "Q4_0",
            Self::Q4_1 => "Q4_1",
            Self::Q5_0 => "Q5_0",
            Self::Q5_1 => "Q5_1",
            Self::Q8_0 => "Q8_0",
            Self::Q8_1 => "Q8_1",
            Self::Q2K => "Q2_K",
            Self::Q3K => "Q3_K",
            Self::Q4K => "Q4_K",
            Self::Q5K => "Q5_K",
            Self::Q6K => "Q6_K",
            Self::Q8K => "Q8_K",
            Self::IQ4_NL => "IQ4_NL",
            Self::IQ4_XS => "IQ4_XS",
            Self::MXFP4 => "MXFP4",
        }
    }

    /// Identifier in a GGUF tensor record.
    pub const fn ggml_id(self) -> u32 {
        match self {
            Self::F32 => 0,
            Self::F16 => 1,
            Self::BF16 => 30,
            Self::Q4_0 => 2,
            Self::Q4_1 => 3,
            Self::Q5_0 => 6,
            Self::Q5_1 => 7,
            Self::Q8_0 => 8,
            Self::Q8_1 => 9,
            Self::Q2K => 10,
            Self::Q3K => 11,
            Self::Q4K => 12,
            Self::Q5K => 13,
            Self::Q6K => 14,
            Self::Q8K => 15,
            Self::IQ4_NL => 20,
            Self::IQ4_XS => 23,
            Self::MXFP4 => 39,
        }
    }

    /// Values that share one block along a row: 1, 32 or 256.
    pub const fn block_size(self) -> usize {
        match self {
            Self::F32 | Self::F16 | Self::BF16 => 1,
            Self::Q4_0 | Self::Q4_1 | Self::Q5_0 | Self::Q5_1 | Self::Q8_0 | Self::Q8_1 => 32,
            Self::IQ4_NL | Self::MXFP4 => 32,
            Self::IQ4_XS => 256,
            Self::Q2K | Self::Q3K | Self::Q4K | Self::Q5K | Self::Q6K | Self::Q8K => 256,
        }
    }

    /// Stored size of one block in bytes.
    pub const fn bytes_per_block(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::BF16 => 2,
            Self::Q4_0 => 2 + 16,
            Self::Q4_1 => 2 + 2 + 16,
            Self::Q5_0 => 2 + 4 + 16,
            Self::Q5_1 => 2 + 2 + 4 + 16,
            Self::Q8_0 => 2 + 32,
            Self::Q8_1 => 2 + 2 + 32,
            Self::Q2K => 16 + 64 + 2 + 2,
            Self::Q3K => 32 + 64 + 12 + 2,
            Self::Q4K => 2 + 2 + 12 + 128,
            Self::Q5K => 2 + 2 + 12 + 32 + 128,
            Self::Q6K => 128 + 64 + 16 + 2,
            Self::Q8K => 4 + 256 + 2 * 16,
            Self::IQ4_NL => 2 + 16,
            Self::IQ4_XS => 2 + 2 + 4 + 128,
            Self::MXFP4 => 1 + 16,
        }
    }

    /// Type of a ggml identifier.
    ///
    /// # Errors
    /// `UnsupportedType`, which names the type when ggml knows it.
    pub fn from_ggml_id(id: u32) -> Result<Self, UnsupportedType> {
        Self::ALL.into_iter().find(|dtype| dtype.ggml_id() == id).ok_or(UnsupportedType { id })
    }

    /// Bytes of a tensor of this type, or `None` when its rows are not whole blocks or the size overflows.
    ///
    /// `shape`: outermost first, so the last entry is the row length; an empty shape is one value.
    pub fn size_bytes(self, shape: &[usize]) -> Option<usize> {
        let row = shape.last().copied().unwrap_or(1);
        if !row.is_multiple_of(self.block_size()) {
            return None;
        }
        let values = shape.iter().try_fold(1usize, |all, n| all.checked_mul(*n))?;
        (values / self.block_size()).checked_mul(self.bytes_per_block())
    }

    /// Names of ggml types that are not read.
    pub fn unread() -> impl Iterator<Item = &'static str> {
        UNREAD_GGML_TYPES.iter().map(|(_, name)| *name)
    }

    /// Names of all types that are read, for messages.
    pub fn names() -> String {
        Self::ALL.map(Self::name).join(", ")
    }
}

impl fmt::Display for TensorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A ggml type that no engine here reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnsupportedType {
    /// Identifier found in the file
    pub id: u32,
}

impl UnsupportedType {
    /// Name that ggml gives to the type, if it has one.
    pub fn name(self) -> Option<&'static str> {
        let known = UNREAD_GGML_TYPES.iter().find(|(id, _)| *id == self.id);
        known.map(|(_, name)| *name)
    }
}

impl fmt::Display for UnsupportedType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(f, "type `{name}` (ggml id {})", self.id)?,
            None => write!(f, "an unknown type (ggml id `{}`)", self.id)?,
        }
        write!(f, " is not supported; supported are {}", TensorType::names())
    }
}

impl std::error::Error for UnsupportedType {}

/// A tensor as it lies in a checkpoint.
#[derive(Clone, Debug, PartialEq)]
pub struct TensorView<'a> {
    /// Name in the checkpoint
    pub name: &'a str,
    /// Element type
    pub dtype: TensorType,
    /// Row-major, outermost first: a matrix is `[out, in]` in both formats
    pub shape: Vec<usize>,
    /// Little-endian blocks, row after row; the address may be unaligned
    pub bytes: &'a [u8],
}

impl<'a> TensorView<'a> {
    /// Rows `range` (entries of a vector), as a tensor of its own under the same name; `None` when they are not there.
    pub fn rows(&self, range: Range<usize>) -> Option<TensorView<'a>> {
        let n_rows = *self.shape.first()?;
        if n_rows == 0 || !self.bytes.len().is_multiple_of(n_rows) {
            return None;
        }
        let row_bytes = self.bytes.len() / n_rows;
        let (from, to) = (range.start.checked_mul(row_bytes)?, range.end.checked_mul(row_bytes)?);
        let mut shape = self.shape.clone();
        shape[0] = range.len();
        Some(TensorView { name: self.name, dtype: self.dtype, shape, bytes: self.bytes.get(from..to)? })
    }

    /// Number of values.
    pub fn n_values(&self) -> usize {
        self.shape.iter().product()
    }

    /// The values of an `F32`, `F16` or `BF16` tensor as `f32`, row-major; `None` for quantised types.
    pub fn to_f32(&self) -> Option<Vec<f32>> {
        let halves = |convert: fn([u8; 2]) -> f32| {
            let pairs = self.bytes.as_chunks::<2>().0;
            pairs.iter().map(|pair| convert(*pair)).collect()
        };
        match self.dtype {
            TensorType::F32 => {
                let words = self.bytes.as_chunks::<4>().0;
                Some(words.iter().map(|word| f32::from_le_bytes(*word)).collect())
            }
            TensorType::F16 => Some(halves(|pair| half::f16::from_le_bytes(pair).to_f32())),
            TensorType::BF16 => Some(halves(|pair| half::bf16::from_le_bytes(pair).to_f32())),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_ggml_id_comes_back_as_the_same_type() {
        for dtype in TensorType::ALL {
            assert_eq!(TensorType::from_ggml_id(dtype.ggml_id()), Ok(dtype));
        }
    }

    /// Sizes of `GGML_QUANT_SIZES` in llama.cpp's `gguf-py/gguf/constants.py`.
    #[test]
    fn block_sizes_equal_those_of_ggml() {
        let expected = [4, 2, 2, 18, 20, 22, 24, 34, 36, 84, 110, 144, 176, 210, 292, 18, 136, 17];
        for (dtype, bytes) in TensorType::ALL.into_iter().zip(expected) {
            assert_eq!(dtype.bytes_per_block(), bytes, "{dtype}");
        }
    }

    #[test]
    fn d014_unsupported_types_are_named_with_the_supported_list() {
        for (id, name) in [(16, "IQ2_XXS"), (21, "IQ3_S"), (29, "IQ1_M"), (35, "TQ2_0"), (40, "NVFP4")] {
            let text = TensorType::from_ggml_id(id).unwrap_err().to_string();
            assert!(text.contains(name), "{text}");
            for dtype in TensorType::ALL {
                assert!(text.contains(dtype.name()), "{text}");
            }
        }
        let text = TensorType::from_ggml_id(777).unwrap_err().to_string();
        assert!(text.contains("unknown type (ggml id `777`)"), "{text}");
    }

    #[test]
    fn sizes_need_whole_blocks_and_do_not_overflow() {
        assert_eq!(TensorType::Q4_0.size_bytes(&[3, 64]), Some(3 * 2 * 18));
        assert_eq!(TensorType::Q4_0.size_bytes(&[64, 3]), None);
        assert_eq!(TensorType::F32.size_bytes(&[]), Some(4));
        assert_eq!(TensorType::F32.size_bytes(&[usize::MAX, 2]), None);
        assert_eq!(TensorType::F32.size_bytes(&[usize::MAX / 2]), None);
    }

    #[test]
    fn rows_are_cut_out_or_refused() {
        let bytes = [0u8, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11];
        let matrix = TensorView { name: "t", dtype: TensorType::F16, shape: vec![3, 2], bytes: &bytes };
        let cut = matrix.rows(1..3).unwrap();
        assert_eq!((cut.shape, cut.bytes), (vec![2, 2], &bytes[4..]));
        assert!(matrix.rows(1..4).is_none() && matrix.rows(0..usize::MAX).is_none());
    }

    #[test]
    fn float_tensors_are_converted_without_alignment() {
        let store = [0u8, 0, 0, 0x80, 0x3f];
        let view = |dtype, bytes| TensorView { name: "t", dtype, shape: vec![1], bytes };
        let one = Some(vec![1.0f32]);
        assert_eq!(view(TensorType::F32, &store[1..]).to_f32(), one);
        assert_eq!(view(TensorType::BF16, &store[3..]).to_f32(), one);
        assert_eq!(view(TensorType::F16, &[0x00, 0x3c]).to_f32(), one);
        assert_eq!(view(TensorType::Q8_0, &store).to_f32(), None);
        assert_eq!(view(TensorType::F32, &store[1..]).n_values(), 1);
    }
}
