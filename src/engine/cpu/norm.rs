//! Root mean square normalisation.

use super::lanes::{Lanes, on_lanes};

/// Accumulators that a sum of squares is spread over.
const WAYS: usize = 4;

on_lanes! {
    /// out = x * weight / sqrt(mean(x^2) + epsilon) for each row.
    ///
    /// x, out: `[rows, width]`; weight: `[width]`.
    ///
    /// # Panics
    /// When `x` and `out` differ in length or are not whole rows.
    pub fn rms_norm = norm_rows(x: &[f32], weight: &[f32], epsilon: f32, out: &mut [f32])
}

on_lanes! {
    /// [`rms_norm`] in place.
    ///
    /// # Panics
    /// When `x` is not whole rows.
    pub fn rms_norm_in_place = norm_rows_in_place(x: &mut [f32], weight: &[f32], epsilon: f32)
}

/// # Safety
/// The instruction set of `L`.
#[inline(always)]
unsafe fn norm_rows<L: Lanes>(x: &[f32], weight: &[f32], epsilon: f32, out: &mut [f32]) {
    let width = weight.len();
    assert_eq!(x.len(), out.len(), "as many results as values");
    if x.is_empty() {
        return;
    }
    assert!(width > 0 && x.len().is_multiple_of(width), "{} values in rows of {width}", x.len());
    for (x, out) in x.chunks_exact(width).zip(out.chunks_exact_mut(width)) {
        // SAFETY: rows of `width` values; the instruction set is the caller's promise.
        unsafe { norm_row::<L>(x.as_ptr(), weight, epsilon, out.as_mut_ptr()) };
    }
}

/// # Safety
/// The instruction set of `L`.
#[inline(always)]
unsafe fn norm_rows_in_place<L: Lanes>(x: &mut [f32], weight: &[f32], epsilon: f32) {
    let width = weight.len();
    if x.is_empty() {
        return;
    }
    assert!(width > 0 && x.len().is_multiple_of(width), "{} values in rows of {width}", x.len());
    for x in x.chunks_exact_mut(width) {
        // SAFETY: rows of `width` values, each read before it is written; the instruction set is the caller's promise.
        unsafe { norm_row::<L>(x.as_ptr(), weight, epsilon, x.as_mut_ptr()) };
    }
}

/// # Safety
/// `x` and `out` have `weight.len()` values and are the same or apart; the instruction set of `L`.
#[inline(always)]
unsafe fn norm_row<L: Lanes>(x: *const f32, weight: &[f32], epsilon: f32, out: *mut f32) {
    let width = weight.len();
    let (whole, step) = (width / L::N * L::N, WAYS * L::N);
    // SAFETY: all accesses are below `width`.
    unsafe {
        let mut sums = [L::splat(0.0); WAYS];
        let mut at = 0;
        while at + step <= width {
            for (way, sum) in sums.iter_mut().enumerate() {
                let v = L::load(x.add(at + way * L::N));
                *sum = L::mul_add(v, v, *sum);
            }
            at += step;
        }
        while at < width {
            let v = if at < whole { L::load(x.add(at)) } else { L::load_first(x.add(at), width - at) };
            sums[0] = L::mul_add(v, v, sums[0]);
            at += L::N;
        }
        let squares = L::sum(L::add(L::add(sums[0], sums[1]), L::add(sums[2], sums[3])));
        let factor = L::splat(1.0 / (squares / width as f32 + epsilon).sqrt());
        for at in (0..whole).step_by(L::N) {
            let v = L::mul(L::load(x.add(at)), factor);
            L::store(out.add(at), L::mul(v, L::load(weight.as_ptr().add(at))));
        }
        if whole < width {
            let rest = width - whole;
            let v = L::mul(L::load_first(x.add(whole), rest), factor);
            L::store_first(out.add(whole), L::mul(v, L::load_first(weight.as_ptr().add(whole), rest)), rest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::cpu::isa::Isa;

    fn twin(x: &[f32], weight: &[f32], epsilon: f32) -> Vec<f32> {
        let row = |x: &[f32]| {
            let squares: f64 = x.iter().map(|x| f64::from(*x) * f64::from(*x)).sum();
            let factor = 1.0 / (squares / x.len() as f64 + f64::from(epsilon)).sqrt();
            x.iter()
                .zip(weight)
                .map(|(x, w)| (f64::from(*x) * factor * f64::from(*w)) as f32)
                .collect::<Vec<_>>()
        };
        x.chunks(weight.len()).flat_map(row).collect()
    }

    #[test]
    fn every_width_equals_its_twin() {
        for isa in Isa::ALL_AVAILABLE() {
            for width in (1..200).chain([576, 1536]) {
                let x: Vec<f32> = (0..3 * width).map(|i| ((i * 37 % 101) as f32 - 50.0) / 7.0).collect();
                let weight: Vec<f32> = (0..width).map(|i| 0.5 + (i % 13) as f32 / 9.0).collect();
                let expected = twin(&x, &weight, 1e-5);
                let mut out = vec![0.0; x.len()];
                rms_norm(isa, &x, &weight, 1e-5, &mut out);
                let close = |(a, b): (&f32, &f32)| (a - b).abs() <= 2e-6 * b.abs().max(1e-3);
                assert!(out.iter().zip(&expected).all(close), "{isa} {width}");
                let mut same = x.clone();
                rms_norm_in_place(isa, &mut same, &weight, 1e-5);
                assert_eq!(same, out, "{isa} {width}");
            }
        }
    }

    #[test]
    fn one_value_that_is_not_finite_spoils_its_row_only() {
        for isa in Isa::ALL_AVAILABLE() {
            for at in [0, 17, 36] {
                let mut x = vec![1.0; 2 * 37];
                x[at] = f32::NAN;
                rms_norm_in_place(isa, &mut x, &[1.0; 37], 1e-5);
                assert!(x[..37].iter().all(|x| x.is_nan()) && x[37..].iter().all(|x| x.is_finite()), "{isa}");
            }
        }
    }

    #[test]
    fn no_rows_are_no_work() {
        rms_norm(Isa::Scalar, &[], &[1.0], 1e-5, &mut []);
    }
}
