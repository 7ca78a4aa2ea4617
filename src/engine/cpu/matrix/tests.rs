//! Every kernel against its scalar twin, and products against f64.

mod numbers;

use proptest::prelude::*;

use self::numbers::Numbers;
use super::expand::{Expanded, expand};
use super::format::{BLOCK, LANES, PAIRS, nibble_pairs};
use super::unpack::unpack_row;
use super::*;
use crate::checkpoint::tensor::TensorType;

/// Largest error of a product of thousands against f64 on the same stored weights, relative to the root of the sum of
/// squared terms; reached where large activations meet small weights. Activations have 15 bits, weights from 16-bit floats 13.
const PRODUCT_TOLERANCE: f64 = 2e-3;
/// Root of the mean square of that error for integer weights, and for 16-bit floats: activations and weights rounded to
/// bfloat16 would give 2e-3.
const MEAN_TOLERANCES: (f64, f64) = (1e-4, 2.5e-4);

fn view(dtype: TensorType, outputs: usize, inputs: usize, bytes: &[u8]) -> TensorView<'_> {
    TensorView { name: "w", dtype, shape: vec![outputs, inputs], bytes }
}

/// Every type, as it is multiplied with 15-bit and with 8-bit activations.
fn cases() -> impl Iterator<Item = (TensorType, Activations)> {
    let both = |dtype| [(dtype, Activations::Sixteen), (dtype, Activations::Eight)];
    TensorType::ALL.into_iter().flat_map(both)
}

/// `x` as 8-bit activations hold it, for types that are multiplied with them; in f64, block by block.
fn as_multiplied(dtype: TensorType, activations: Activations, x: &[f32], inputs: usize) -> Vec<f32> {
    if !Format::of(dtype, activations).is_some_and(Format::by_eight) {
        return x.to_vec();
    }
    let round = |block: &[f32]| {
        let largest = block.iter().fold(0.0f64, |all, x| all.max(f64::from(x.abs())));
        let step = largest / 127.0;
        let value = |x: &f32| if step == 0.0 { 0.0 } else { (f64::from(*x) / step).round_ties_even() * step };
        block.iter().map(|x| value(x) as f32).collect::<Vec<_>>()
    };
    x.chunks(inputs).flat_map(|row| row.chunks(BLOCK)).flat_map(round).collect()
}

fn product(matrix: &Matrix<'_>, threads: usize, x: &[f32], rows: usize) -> Vec<f32> {
    let mut y = vec![f32::NAN; rows * matrix.outputs()];
    matrix.multiply(&Pool::new(threads), x, rows, &mut y, &mut MatrixWorkspace::default());
    y
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|x| x.to_bits()).collect()
}

/// Largest error of `y` against f64 arithmetic on the stored weights, relative to the size of the terms.
fn error(dtype: TensorType, bytes: &[u8], inputs: usize, x: &[f32], y: &[f32], outputs: usize) -> f64 {
    errors(dtype, bytes, inputs, x, y, outputs).into_iter().fold(0.0, f64::max)
}

fn errors(dtype: TensorType, bytes: &[u8], inputs: usize, x: &[f32], y: &[f32], outputs: usize) -> Vec<f64> {
    let row_bytes = bytes.len() / outputs;
    let mut weights = vec![0.0; inputs];
    let mut all = Vec::new();
    for output in 0..outputs {
        unpack_row(dtype, &bytes[output * row_bytes..][..row_bytes], &mut weights);
        for (x, y) in x.chunks_exact(inputs).zip(y.chunks_exact(outputs)) {
            let terms = x.iter().zip(&weights).map(|(x, w)| f64::from(*x) * f64::from(*w));
            let (sum, squares) = terms.fold((0.0, 0.0), |(sum, squares), t| (sum + t, squares + t * t));
            all.push((sum - f64::from(y[output])).abs() / squares.sqrt().max(1e-30));
        }
    }
    all
}

#[test]
fn packed_panels_hold_the_stored_values() {
    for (dtype, activations) in cases() {
        let Some(format) = Format::of(dtype, activations) else { continue };
        let (outputs, inputs) = (LANES + 3, 512);
        let bytes = Numbers(7).stored(dtype, outputs, inputs);
        let arithmetic = Arithmetic { isa: Isa::Scalar, activations };
        let stored = view(dtype, outputs, inputs, &bytes);
        let matrix = Matrix::new(&stored, outputs, inputs, arithmetic, &Pool::new(1)).unwrap();
        let Packed::Integers { n_blocks, panels, .. } = &matrix.packed else { panic!("{dtype}") };
        let panel_bytes = format.panel_bytes(*n_blocks);
        let mut expected = vec![0.0; inputs];
        let mut record = Expanded::ZERO;
        for output in 0..outputs {
            matrix.row(output, &mut expected);
            let (panel, lane) = (output / LANES, output % LANES);
            for (block, expected) in expected.chunks_exact(BLOCK).enumerate() {
                expand(format, &panels[panel * panel_bytes..][..panel_bytes], block, &mut record);
                let largest = expected.iter().fold(0.0f32, |all, x| all.max(x.abs()));
                let tolerance =
                    if matches!(format, Format::Float13) { largest / 8000.0 } else { largest * 1e-6 };
                for (k, expected) in expected.iter().enumerate() {
                    let word = record.words[k / 2 * 2 * LANES + 2 * lane + k % 2];
                    let got = record.scales[lane] * f32::from(word) + record.minima[lane];
                    assert!(
                        (got - expected).abs() <= tolerance,
                        "{dtype} {output} {block} {k}: {got} {expected}"
                    );
                }
            }
        }
    }
}

#[test]
fn nibbles_cover_every_pair_once() {
    let mut pairs: Vec<usize> = (0..4).flat_map(nibble_pairs).collect();
    pairs.sort_unstable();
    assert_eq!(pairs, (0..PAIRS).collect::<Vec<_>>());
}

/// Shapes around the edges of panels, tiles, blocks and row tiles, for every type and instruction set.
#[test]
fn products_equal_f64_and_do_not_depend_on_the_instruction_set() {
    let mut numbers = Numbers(99);
    for (dtype, activations) in cases() {
        let inputs_of: &[usize] = match dtype.block_size() {
            1 => &[1, 31, 32, 100],
            32 => &[32, 96],
            _ => &[256, 512],
        };
        for inputs in inputs_of.iter().copied() {
            for (outputs, rows) in [(1, 1), (15, 2), (16, 3), (33, 7), (64, 8), (65, 9), (130, 13), (48, 24)]
            {
                let bytes = numbers.stored(dtype, outputs, inputs);
                let x = numbers.normals(rows * inputs);
                let rounded = as_multiplied(dtype, activations, &x, inputs);
                let mut first: Option<Vec<f32>> = None;
                for isa in Isa::ALL_AVAILABLE() {
                    let stored = view(dtype, outputs, inputs, &bytes);
                    let arithmetic = Arithmetic { isa, activations };
                    let matrix = Matrix::new(&stored, outputs, inputs, arithmetic, &Pool::new(2)).unwrap();
                    let y = product(&matrix, 2, &x, rows);
                    let error = error(dtype, &bytes, inputs, &rounded, &y, outputs);
                    assert!(error < PRODUCT_TOLERANCE, "{dtype} {isa} {outputs}x{inputs} {rows}: {error:e}");
                    let first = first.get_or_insert_with(|| y.clone());
                    if dtype != TensorType::F32 {
                        assert_eq!(bits(first), bits(&y), "{dtype} {isa} {outputs}x{inputs} {rows}");
                    }
                }
            }
        }
    }
}

#[test]
fn mean_errors_are_far_below_those_of_bfloat16() {
    let (outputs, inputs, rows) = (64, 512, 12);
    let mut numbers = Numbers(17);
    for dtype in TensorType::ALL {
        let bytes = numbers.stored(dtype, outputs, inputs);
        let x = numbers.normals(rows * inputs);
        let isa = Isa::detect();
        let matrix =
            Matrix::new(&view(dtype, outputs, inputs, &bytes), outputs, inputs, isa, &Pool::new(1)).unwrap();
        let errors = errors(dtype, &bytes, inputs, &x, &product(&matrix, 1, &x, rows), outputs);
        let mean = (errors.iter().map(|e| e * e).sum::<f64>() / errors.len() as f64).sqrt();
        println!("{dtype}: {mean:.1e}");
        let (integers, floats) = MEAN_TOLERANCES;
        let format = Format::of(dtype, Activations::Sixteen);
        let limit = if matches!(format, Some(Format::Float13)) { floats } else { integers };
        assert!(mean < limit, "{dtype}: {mean:e}");
    }
}

/// What a user of 8-bit activations accepts: the error of a product as llama.cpp has it.
#[test]
fn mean_errors_of_8_bit_activations() {
    let (outputs, inputs, rows) = (64, 512, 12);
    let mut numbers = Numbers(17);
    for dtype in [TensorType::Q4_0, TensorType::Q4_1, TensorType::Q4K, TensorType::Q8_0] {
        let bytes = numbers.stored(dtype, outputs, inputs);
        let x = numbers.normals(rows * inputs);
        let arithmetic = Arithmetic { isa: Isa::detect(), activations: Activations::Eight };
        let stored = view(dtype, outputs, inputs, &bytes);
        let matrix = Matrix::new(&stored, outputs, inputs, arithmetic, &Pool::new(1)).unwrap();
        let errors = errors(dtype, &bytes, inputs, &x, &product(&matrix, 1, &x, rows), outputs);
        let mean = (errors.iter().map(|e| e * e).sum::<f64>() / errors.len() as f64).sqrt();
        println!("{dtype}: {mean:.1e}");
        assert!((1e-3..8e-3).contains(&mean), "{dtype}: {mean:e}");
    }
}

/// More inputs than a tile holds, so that sums outlive an expanded range.
#[test]
fn long_rows_are_multiplied_range_by_range() {
    let (outputs, inputs, rows) = (70, 32 * 64 * 2 + 32, 14);
    let mut numbers = Numbers(5);
    let types = [TensorType::Q4_1, TensorType::Q8_0, TensorType::BF16, TensorType::F32];
    for (dtype, activations) in cases().filter(|(dtype, _)| types.contains(dtype)) {
        let bytes = numbers.stored(dtype, outputs, inputs);
        let x = numbers.normals(rows * inputs);
        let arithmetic = Arithmetic { isa: Isa::detect(), activations };
        let stored = view(dtype, outputs, inputs, &bytes);
        let matrix = Matrix::new(&stored, outputs, inputs, arithmetic, &Pool::new(1)).unwrap();
        let y = product(&matrix, 3, &x, rows);
        let rounded = as_multiplied(dtype, activations, &x, inputs);
        let error = error(dtype, &bytes, inputs, &rounded, &y, outputs);
        assert!(error < PRODUCT_TOLERANCE, "{dtype}: {error:e}");
        let alone = product(&matrix, 1, &x[inputs..2 * inputs], 1);
        assert_eq!(bits(&alone), bits(&y[outputs..2 * outputs]), "{dtype}");
    }
}

/// Every number of panels side by side, in pieces for any number of threads, against the tiles of many rows.
#[test]
fn one_row_has_the_same_bits_alone_and_among_many() {
    let mut numbers = Numbers(31);
    let rows = 9;
    for (dtype, activations) in cases() {
        let inputs = if dtype.block_size() == 256 { 512 } else { 96 };
        for outputs in [16, 50, 100, 523] {
            let (bytes, x) = (numbers.stored(dtype, outputs, inputs), numbers.normals(rows * inputs));
            for isa in Isa::ALL_AVAILABLE() {
                let (stored, arithmetic) =
                    (view(dtype, outputs, inputs, &bytes), Arithmetic { isa, activations });
                let matrix = Matrix::new(&stored, outputs, inputs, arithmetic, &Pool::new(1)).unwrap();
                let all = product(&matrix, 1, &x, rows);
                for threads in [1, 2, 5] {
                    let alone = product(&matrix, threads, &x[..inputs], 1);
                    assert_eq!(bits(&alone), bits(&all[..outputs]), "{dtype} {isa} {outputs} {threads}");
                }
            }
        }
    }
}

#[test]
fn several_matrices_share_rows_and_may_add_to_their_outputs() {
    let inputs = 256;
    let mut numbers = Numbers(3);
    let types = [TensorType::Q4K, TensorType::F32, TensorType::Q8_0];
    let kinds = [Activations::Eight, Activations::Sixteen, Activations::Sixteen];
    let stored: Vec<_> = types.iter().map(|dtype| (*dtype, numbers.stored(*dtype, 80, inputs))).collect();
    let pool = Pool::new(2);
    for rows in [1, 5, 40] {
        let x = numbers.normals(rows * inputs);
        let matrices: Vec<Matrix<'_>> = stored
            .iter()
            .zip(kinds)
            .map(|((dtype, bytes), activations)| {
                let arithmetic = Arithmetic { isa: Isa::detect(), activations };
                Matrix::new(&view(*dtype, 80, inputs, bytes), 80, inputs, arithmetic, &pool).unwrap()
            })
            .collect();
        let mut outputs = vec![vec![1.0; rows * 80]; 3];
        let mut products: Vec<Product<'_, '_, '_>> = matrices
            .iter()
            .zip(&mut outputs)
            .map(|(matrix, y)| Product { matrix, y, accumulate: true })
            .collect();
        multiply_many(&pool, &x, rows, &mut products, &mut MatrixWorkspace::default());
        for (matrix, y) in matrices.iter().zip(&outputs) {
            let expected: Vec<f32> = product(matrix, 1, &x, rows).iter().map(|y| 1.0 + y).collect();
            let equal = y.iter().zip(&expected).all(|(a, b)| (a - b).abs() <= 1e-6 * (1.0 + b.abs()));
            assert!(equal, "{:?} {rows}", matrix.stored.dtype);
        }
    }
}

#[test]
fn rows_that_are_not_finite_give_nan_and_leave_the_others_alone() {
    let (outputs, inputs) = (20, 64);
    let mut numbers = Numbers(11);
    let types = [TensorType::Q4_0, TensorType::F16, TensorType::F32];
    for (dtype, activations) in cases().filter(|(dtype, _)| types.contains(dtype)) {
        let bytes = numbers.stored(dtype, outputs, inputs);
        for rows in [3, 12] {
            for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                let mut x = numbers.normals(rows * inputs);
                x[inputs + 5] = bad;
                for isa in Isa::ALL_AVAILABLE() {
                    let stored = view(dtype, outputs, inputs, &bytes);
                    let arithmetic = Arithmetic { isa, activations };
                    let matrix = Matrix::new(&stored, outputs, inputs, arithmetic, &Pool::new(1)).unwrap();
                    let y = product(&matrix, 1, &x, rows);
                    for (row, y) in y.chunks_exact(outputs).enumerate() {
                        let finite = y.iter().filter(|y| y.is_finite()).count();
                        assert_eq!(finite, if row == 1 { 0 } else { outputs }, "{dtype} {isa} {bad} {row}");
                    }
                }
            }
        }
    }
}

#[test]
fn weights_that_are_not_finite_reach_the_outputs() {
    let (outputs, inputs) = (18, 64);
    for (dtype, at) in
        [(TensorType::Q4_0, 0), (TensorType::Q8_0, 0), (TensorType::F16, 6), (TensorType::F32, 0)]
    {
        let mut bytes = Numbers(1).stored(dtype, outputs, inputs);
        let row_bytes = bytes.len() / outputs;
        let nan: &[u8] = if dtype == TensorType::F32 { &[0, 0, 0xc0, 0x7f] } else { &[0x00, 0x7e] };
        bytes[17 * row_bytes + at..][..nan.len()].copy_from_slice(nan);
        for rows in [1, 9] {
            let x = vec![0.5; rows * inputs];
            let matrix = Matrix::new(
                &view(dtype, outputs, inputs, &bytes),
                outputs,
                inputs,
                Isa::detect(),
                &Pool::new(1),
            );
            for y in product(&matrix.unwrap(), 1, &x, rows).chunks_exact(outputs) {
                assert!(y[17].is_nan() && y[..17].iter().all(|y| y.is_finite()), "{dtype} {rows}");
            }
        }
    }
}

#[test]
fn other_shapes_and_short_bytes_are_refused() {
    let bytes = [0u8; 36];
    let pool = Pool::new(1);
    let check = |dtype, shape: Vec<usize>, outputs, inputs| {
        let stored = TensorView { name: "w", dtype, shape, bytes: &bytes };
        Matrix::new(&stored, outputs, inputs, Isa::Scalar, &pool).is_ok()
    };
    assert!(check(TensorType::Q4_0, vec![2, 32], 2, 32));
    assert!(!check(TensorType::Q4_0, vec![2, 32], 1, 64));
    assert!(!check(TensorType::Q4_0, vec![3, 32], 3, 32));
    assert!(!check(TensorType::Q4_0, vec![0, 32], 0, 32));
    assert!(!check(TensorType::F32, vec![usize::MAX, 9], usize::MAX, 9));
}

/// Activations of very different sizes, and rows of zeros.
#[test]
fn rows_of_any_size_are_quantised() {
    let (outputs, inputs) = (16, 32);
    let bytes = Numbers(21).stored(TensorType::Q8_0, outputs, inputs);
    let stored = view(TensorType::Q8_0, outputs, inputs, &bytes);
    let matrix = Matrix::new(&stored, outputs, inputs, Isa::detect(), &Pool::new(1)).unwrap();
    for size in [0.0, 1e-35, 1e-20, 1.0, 1e20] {
        let x: Vec<f32> = Numbers(4).normals(inputs).iter().map(|x| x * size).collect();
        let y = product(&matrix, 1, &x, 1);
        assert!(y.iter().all(|y| y.is_finite()), "{size}");
        if size > 1e-30 {
            assert!(error(TensorType::Q8_0, &bytes, inputs, &x, &y, outputs) < PRODUCT_TOLERANCE, "{size}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Any shape, from bytes at any address, with any number of threads: equal to one row alone on one thread.
    #[test]
    fn a_row_does_not_depend_on_its_neighbours_or_the_threads(
        (dtype, activations) in proptest::sample::select(cases().collect::<Vec<_>>()),
        outputs in 1usize..150,
        blocks in 1usize..4,
        tail in 0usize..32,
        rows in 1usize..40,
        threads in 1usize..5,
        shift in 0usize..4,
        seed in 1u64..u64::MAX,
    ) {
        let inputs = if dtype.block_size() == 1 { blocks * 32 + tail } else { blocks * dtype.block_size() };
        let mut numbers = Numbers(seed);
        let mut bytes = vec![0; shift];
        bytes.extend(numbers.stored(dtype, outputs, inputs));
        let x = numbers.normals(rows * inputs);
        let mut all: Option<Vec<u32>> = None;
        for isa in Isa::ALL_AVAILABLE() {
            let stored = view(dtype, outputs, inputs, &bytes[shift..]);
            let arithmetic = Arithmetic { isa, activations };
            let matrix = Matrix::new(&stored, outputs, inputs, arithmetic, &Pool::new(threads)).unwrap();
            let y = product(&matrix, threads, &x, rows);
            for row in [0, rows / 2, rows - 1] {
                let alone = product(&matrix, 1, &x[row * inputs..][..inputs], 1);
                prop_assert_eq!(bits(&alone), bits(&y[row * outputs..][..outputs]), "{} {}", isa, row);
            }
            if dtype != TensorType::F32 {
                let all = all.get_or_insert_with(|| bits(&y));
                prop_assert_eq!(&*all, &bits(&y), "{}", isa);
            }
        }
    }
}
