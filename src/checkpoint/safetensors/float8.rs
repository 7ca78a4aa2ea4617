//! 8-bit floats (E4M3) with scales, unpacked to bfloat16 when a folder is opened.
//!
//! A weight `W` is stored as 8-bit floats and a tensor of scales beside it: one for the matrix, one for each output, or
//! one for each block of 128 by 128. The value is `float8 * scale`, rounded once to bfloat16, as transformers does when
//! it takes such a checkpoint apart. Scales of activations have no use here: activations are not rounded to 8 bits.
//!
//! Source: OCP 8-bit floating point specification (E4M3, without infinities); `weight_scale_inv` of the FP8 releases of
//! Qwen3 and DeepSeek; `weight_scale` of compressed-tensors.

use std::collections::BTreeMap;

use half::bf16;
use rayon::prelude::*;

use super::SafetensorsProblem as Problem;
use crate::checkpoint::tensor::{TensorType, TensorView};

/// Ends of the names of scales, `weight` left out; despite the first name all of them multiply.
const SCALES: [&str; 2] = ["weight_scale_inv", "weight_scale"];
/// Ends of the names of scales of activations.
const ACTIVATION_SCALES: [&str; 3] = ["input_scale", "activation_scale", "input_global_scale"];
/// Outputs and inputs that share a scale.
const BLOCK: usize = 128;

/// A matrix of 8-bit floats as stored.
pub(super) struct Stored<'a> {
    pub(super) name: &'a str,
    pub(super) shape: &'a [usize],
    pub(super) bytes: &'a [u8],
}

/// Values as bfloat16.
#[derive(Debug)]
pub(super) struct Unpacked {
    pub(super) shape: Vec<usize>,
    pub(super) bytes: Vec<u8>,
}

/// Value of an 8-bit float: sign, four bits of exponent with a bias of 7, three of mantissa.
fn value(byte: u8) -> f32 {
    let (exponent, mantissa) = (i32::from(byte >> 3 & 15), f32::from(byte & 7));
    let size = match (exponent, byte & 7) {
        (15, 7) => f32::NAN,
        (0, _) => mantissa * 2f32.powi(-9),
        _ => (1.0 + mantissa / 8.0) * 2f32.powi(exponent - 7),
    };
    if byte >> 7 == 1 { -size } else { size }
}

/// Which scale belongs to an element.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Grid {
    Whole,
    Rows,
    Blocks,
}

/// Unpacks every matrix of `stored`. `tensor`: any other tensor of the folder by name.
///
/// Returns them by name, and the names of the scales, which are no weights of the model.
///
/// # Errors
/// A matrix without scales, or with scales of a shape that does not fit.
pub(super) fn unpack<'a>(
    stored: Vec<Stored<'a>>,
    tensor: &(dyn Fn(&str) -> Option<TensorView<'a>> + Sync),
) -> Result<(BTreeMap<String, Unpacked>, Vec<String>), Problem> {
    let unpacked = stored.par_iter().map(|stored| unpack_one(stored, tensor));
    let mut matrices = BTreeMap::new();
    let mut scales = Vec::new();
    for (stored, (matrix, scale)) in stored.iter().zip(unpacked.collect::<Result<Vec<_>, _>>()?) {
        let stem = stem(stored.name);
        let of_activations = ACTIVATION_SCALES.iter().map(|end| format!("{stem}{end}"));
        scales.extend(of_activations.filter(|name| tensor(name).is_some()));
        scales.push(scale);
        matrices.insert(stored.name.to_owned(), matrix);
    }
    Ok((matrices, scales))
}

/// `model.layers.0.mlp.up_proj.` of `model.layers.0.mlp.up_proj.weight`.
fn stem(name: &str) -> &str {
    name.strip_suffix("weight").unwrap_or(name)
}

fn unpack_one<'a>(
    stored: &Stored<'a>,
    tensor: &dyn Fn(&str) -> Option<TensorView<'a>>,
) -> Result<(Unpacked, String), Problem> {
    let names = SCALES.map(|end| format!("{}{end}", stem(stored.name)));
    let found = names.into_iter().find_map(|name| Some((tensor(&name)?, name)));
    let missing = || Problem::Float8Unscaled { tensor: stored.name.to_owned() };
    let (scale, scale_name) = found.ok_or_else(missing)?;
    let (&[outputs, inputs], Some(scales)) = (stored.shape, scale.to_f32()) else {
        return Err(misfit(stored, &scale));
    };
    let blocks = [outputs.div_ceil(BLOCK), inputs.div_ceil(BLOCK)];
    let grid = match scale.shape[..] {
        _ if scales.len() == 1 => Grid::Whole,
        [rows] | [rows, 1] if rows == outputs => Grid::Rows,
        [rows, columns] if [rows, columns] == blocks => Grid::Blocks,
        _ => return Err(misfit(stored, &scale)),
    };
    let values: [f32; 256] = std::array::from_fn(|byte| value(byte as u8));
    let mut bytes = Vec::with_capacity(2 * stored.bytes.len());
    for (row, line) in stored.bytes.chunks(inputs.max(1)).enumerate() {
        for (block, part) in line.chunks(BLOCK).enumerate() {
            let scale = match grid {
                Grid::Whole => scales[0],
                Grid::Rows => scales[row],
                Grid::Blocks => scales[row / BLOCK * blocks[1] + block],
            };
            bytes.extend(
                part.iter().flat_map(|byte| bf16::from_f32(values[usize::from(*byte)] * scale).to_le_bytes()),
            );
        }
    }
    Ok((Unpacked { shape: stored.shape.to_vec(), bytes }, scale_name))
}

fn misfit(stored: &Stored<'_>, scale: &TensorView<'_>) -> Problem {
    Problem::Float8Scale {
        tensor: stored.name.to_owned(),
        shape: stored.shape.to_vec(),
        scale: scale.name.to_owned(),
        found: scale.shape.clone(),
    }
}

impl Unpacked {
    pub(super) fn view<'a>(&'a self, name: &'a str) -> TensorView<'a> {
        TensorView { name, dtype: TensorType::BF16, shape: self.shape.clone(), bytes: &self.bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::safetensors::SafetensorsFolder;
    use std::path::Path;

    fn fixture(name: &str) -> SafetensorsFolder {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/float8").join(name);
        SafetensorsFolder::open(&path).unwrap()
    }

    /// Golden values: `fixtures/make_float8.py`, PyTorch's `float8_e4m3fn`.
    #[test]
    fn matrices_unpack_as_in_pytorch() {
        let (stored, golden) = (fixture("stored"), fixture("golden"));
        let names = ["blocks.weight", "matrix.weight", "plain.weight", "rows.weight"];
        assert_eq!(stored.tensor_names().collect::<Vec<_>>(), names);
        for name in names {
            let (found, expected) = (stored.tensor(name).unwrap(), golden.tensor(name).unwrap());
            assert_eq!((found.dtype, &found.shape), (expected.dtype, &expected.shape), "{name}");
            assert!(found.bytes == expected.bytes, "{name}");
        }
    }

    #[test]
    fn scales_are_needed_and_must_fit() {
        let bytes = [0u8; 6];
        let stored = || vec![Stored { name: "a.weight", shape: &[3, 2], bytes: &bytes }];
        let error = unpack(stored(), &|_| None).unwrap_err().to_string();
        assert!(error.contains("`a.weight`") && error.contains("weight_scale"), "{error}");
        let scales = [0u8; 8];
        let two = |name: &str| {
            let view = TensorView { name: "s", dtype: TensorType::F32, shape: vec![2], bytes: &scales };
            (name == "a.weight_scale").then_some(view)
        };
        let error = unpack(stored(), &two).unwrap_err().to_string();
        assert!(error.contains("[3, 2]") && error.contains("[2]"), "{error}");
    }
}
