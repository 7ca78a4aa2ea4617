//! Log-probabilities of targets straight from slices of the vocabulary.
//!
//! Each slice of 64 logits is reduced at once to its largest value and the sum of exponentials relative to it; the
//! slices are merged in order, so the result does not depend on who computed which. Rows times vocabulary never exists.

use super::Matrix;
use super::kernels::TILE_LANES;
use super::product::{MatrixWorkspace, Place, Sink};
use crate::engine::cpu::isa::{Isa, Vectorised};
use crate::engine::cpu::pool::Pool;
use crate::engine::cpu::shared::SharedMut;

/// Rows whose slices are kept at the same time: 3 MB for a vocabulary of 50,000.
const ROWS_AT_ONCE: usize = 512;

impl Matrix<'_> {
    /// Natural log-probability of `targets[i]` under the softmax over all outputs of row `i`. `x`: `[rows, inputs]`.
    ///
    /// A row with anything that is not finite gives NaN.
    ///
    /// # Panics
    /// When `x` has another length, or a target is not below `outputs`.
    pub fn log_probs(
        &self,
        pool: &Pool,
        x: &[f32],
        targets: &[u32],
        workspace: &mut MatrixWorkspace,
    ) -> Vec<f32> {
        let inputs = self.inputs();
        assert_eq!(x.len(), targets.len() * inputs, "x must be [rows, inputs]");
        assert!(
            targets.iter().all(|t| (*t as usize) < self.outputs()),
            "a target must be below the vocabulary"
        );
        let chunks = x.chunks(ROWS_AT_ONCE * inputs).zip(targets.chunks(ROWS_AT_ONCE));
        chunks.flat_map(|(x, targets)| self.log_probs_of_chunk(pool, x, targets, workspace)).collect()
    }

    fn log_probs_of_chunk(
        &self,
        pool: &Pool,
        x: &[f32],
        targets: &[u32],
        workspace: &mut MatrixWorkspace,
    ) -> Vec<f32> {
        let rows = targets.len();
        let mut slices = vec![Slice::default(); self.outputs().div_ceil(TILE_LANES) * rows];
        let mut target_logits = vec![f32::NAN; rows];
        let sink = Reduce {
            isa: self.isa,
            rows,
            targets,
            slices: SharedMut::new(&mut slices),
            target_logits: SharedMut::new(&mut target_logits),
        };
        workspace.pack(pool, &[self], x, rows);
        workspace.tiles(pool, &[self], rows, &sink);
        let merged = (0..rows).map(|row| log_sum(slices[row..].iter().step_by(rows)));
        merged.zip(&target_logits).map(|(log_sum, logit)| (f64::from(*logit) - log_sum) as f32).collect()
    }
}

/// Bytes that log-probabilities of `rows` rows over `outputs` tokens need at a time.
pub fn head_bytes(outputs: usize, rows: usize) -> usize {
    outputs.div_ceil(TILE_LANES) * rows.min(ROWS_AT_ONCE) * size_of::<Slice>()
}

/// Largest logit of a slice, and sum of `exp(logit - largest)`.
#[derive(Clone, Copy, Default)]
struct Slice {
    largest: f32,
    sum: f32,
}

/// Logarithm of the sum of exponentials over slices.
fn log_sum<'a>(slices: impl Iterator<Item = &'a Slice> + Clone) -> f64 {
    let largest = slices.clone().fold(f64::NEG_INFINITY, |all, slice| all.max(f64::from(slice.largest)));
    let sum: f64 =
        slices.map(|slice| f64::from(slice.sum) * (f64::from(slice.largest) - largest).exp()).sum();
    largest + sum.ln()
}

struct Reduce<'a> {
    isa: Isa,
    rows: usize,
    targets: &'a [u32],
    /// `[slice, row]`
    slices: SharedMut<'a, Slice>,
    /// `[row]`
    target_logits: SharedMut<'a, f32>,
}

impl Sink for Reduce<'_> {
    fn prepare(&self, _: &Place) {}

    fn finish(&self, place: &Place, sums: &[f32], stride: usize, steps: &[f32]) {
        let at = place.first_output / TILE_LANES * self.rows + place.first_row;
        // SAFETY: places are disjoint, each is finished by one call.
        let slices = unsafe { self.slices.slice(at, place.rows) };
        for (row, slice) in slices.iter_mut().enumerate() {
            let sums = &sums[row * stride..][..place.outputs];
            *slice = self.isa.vectorise(ReduceSlice { sums, step: steps[row] });
            let target = self.targets[place.first_row + row] as usize;
            if let Some(sum) = target.checked_sub(place.first_output).and_then(|index| sums.get(index)) {
                // SAFETY: the target of a row is in one slice only.
                let logit = unsafe { self.target_logits.slice(place.first_row + row, 1) };
                logit[0] = sum * steps[row];
            }
        }
    }
}

/// Reduces at most 64 logits, given as sums in steps.
struct ReduceSlice<'a> {
    sums: &'a [f32],
    step: f32,
}

impl Vectorised for ReduceSlice<'_> {
    type Output = Slice;

    #[inline(always)]
    fn run(self) -> Slice {
        let mut logits = [f32::NEG_INFINITY; TILE_LANES];
        for (logit, sum) in logits.iter_mut().zip(self.sums) {
            *logit = sum * self.step;
        }
        let largest = logits.iter().fold(f32::NEG_INFINITY, |all, x| if *x > all { *x } else { all });
        let mut lanes = [0.0f32; 16];
        for chunk in logits.as_chunks::<16>().0 {
            for (lane, logit) in lanes.iter_mut().zip(chunk) {
                *lane += exp_not_positive(logit - largest);
            }
        }
        Slice { largest, sum: lanes.iter().sum() }
    }
}

/// `exp(x)` for `x <= 0`, relative error below 3e-7; zero below -87; NaN for NaN.
///
/// `x = n ln 2 + r` with `|r| <= ln 2 / 2`: a polynomial in `r`, and `n` added to the exponent.
#[inline(always)]
fn exp_not_positive(x: f32) -> f32 {
    /// Adding it leaves the rounded integer in the low bits of the sum.
    const ROUND: f32 = 12_582_912.0;
    // ln 2 in two parts, the first with few enough bits for exact products.
    const LN_2_HIGH: f32 = 0.693_359_4;
    const LN_2_LOW: f32 = -2.121_944_4e-4;
    let clamped = if x < -87.0 { -87.0 } else { x };
    let shifted = clamped * std::f32::consts::LOG2_E + ROUND;
    let n = shifted - ROUND;
    let r = clamped - n * LN_2_HIGH - n * LN_2_LOW;
    // Taylor: the next term is at most r^7 / 5040 = 1.2e-7.
    let polynomial =
        1.0 + r * (1.0 + r * (0.5 + r * (1.0 / 6.0 + r * (1.0 / 24.0 + r * (1.0 / 120.0 + r / 720.0)))));
    let exponent = (shifted.to_bits() as i32).wrapping_sub(ROUND.to_bits() as i32).wrapping_add(127);
    let value = polynomial * f32::from_bits((exponent as u32) << 23);
    if x < -87.0 { 0.0 } else { value }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::tensor::{TensorType, TensorView};

    #[test]
    fn exponentials_are_accurate_and_keep_nan() {
        for i in 0..=870_000 {
            let x = -(i as f32) * 1e-4;
            let (got, exact) = (f64::from(exp_not_positive(x)), f64::from(x).exp());
            assert!((got - exact).abs() <= 3e-7 * exact, "{x}: {got} {exact}");
        }
        assert_eq!(exp_not_positive(0.0), 1.0);
        assert_eq!(exp_not_positive(-100.0), 0.0);
        assert_eq!(exp_not_positive(f32::NEG_INFINITY), 0.0);
        assert!(exp_not_positive(f32::NAN).is_nan());
    }

    #[test]
    fn log_probabilities_equal_those_of_whole_rows() {
        let (outputs, inputs) = (150, 40);
        let weights: Vec<f32> =
            (0..outputs * inputs).map(|i| ((i * 37 % 101) as f32 - 50.0) * 0.02).collect();
        let bytes: Vec<u8> = weights.iter().flat_map(|w| w.to_le_bytes()).collect();
        let halves: Vec<u8> = weights.iter().flat_map(|w| half::bf16::from_f32(*w).to_le_bytes()).collect();
        for (dtype, bytes) in [(TensorType::F32, &bytes), (TensorType::BF16, &halves)] {
            let stored = TensorView { name: "w", dtype, shape: vec![outputs, inputs], bytes };
            for (isa, rows) in
                Isa::ALL_AVAILABLE().into_iter().flat_map(|isa| [(isa, 1), (isa, 7), (isa, 520)])
            {
                let mut workspace = MatrixWorkspace::default();
                let pool = Pool::new(2);
                let matrix = Matrix::new(&stored, outputs, inputs, isa, &pool).unwrap();
                let x: Vec<f32> = (0..rows * inputs).map(|i| ((i * 29 % 83) as f32 - 41.0) * 0.05).collect();
                let targets: Vec<u32> = (0..rows).map(|row| (row * 71 % outputs) as u32).collect();
                let got = matrix.log_probs(&pool, &x, &targets, &mut workspace);
                let mut logits = vec![0.0; rows * outputs];
                matrix.multiply(&pool, &x, rows, &mut logits, &mut workspace);
                for (row, logits) in logits.chunks_exact(outputs).enumerate() {
                    let largest = logits.iter().fold(f64::NEG_INFINITY, |all, x| all.max(f64::from(*x)));
                    let sum: f64 = logits.iter().map(|x| (f64::from(*x) - largest).exp()).sum();
                    let expected = f64::from(logits[targets[row] as usize]) - largest - sum.ln();
                    assert!(
                        (f64::from(got[row]) - expected).abs() < 2e-6 * expected.abs().max(1.0),
                        "{isa} {row}"
                    );
                }
                let single = matrix.log_probs(&Pool::new(1), &x[..inputs], &targets[..1], &mut workspace);
                assert_eq!(single[0].to_bits(), got[0].to_bits());
            }
        }
    }

    #[test]
    fn rows_that_are_not_finite_have_no_log_probability() {
        let bytes = [0u8; 2 * 32 * 70];
        let stored = TensorView { name: "w", dtype: TensorType::F16, shape: vec![70, 32], bytes: &bytes };
        let pool = Pool::new(1);
        let matrix = Matrix::new(&stored, 70, 32, Isa::detect(), &pool).unwrap();
        let mut x = vec![1.0; 64];
        x[40] = f32::NAN;
        let got = matrix.log_probs(&pool, &x, &[3, 69], &mut MatrixWorkspace::default());
        assert!((got[0] + 70f32.ln()).abs() < 1e-6 && got[1].is_nan(), "{got:?}");
    }
}
