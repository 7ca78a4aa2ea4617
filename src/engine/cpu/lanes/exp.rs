//! Powers of two by polynomial.
//!
//! 2^x = 2^floor(x) * p(x - floor(x)). Both polynomials are minimax in relative error on `[0, 1]` under the
//! constraints p(0) = 1 and p(1) = 2: powers of two are exact and the pieces meet.

use super::Lanes;

/// log2(e): e^x = 2^(x * LOG2_E).
pub const LOG2_E: f32 = std::f32::consts::LOG2_E;

#[cfg(test)]
/// Largest relative error of [`exp2_coarse`]: a twentieth of the rounding to bfloat16 that follows it.
pub const COARSE_ERROR: f32 = 1.1e-4;

#[cfg(test)]
/// Largest relative error of [`exp2_fine`], the rounding of its f32 operations included.
pub const FINE_ERROR: f32 = 3e-7;

/// Degree 3, lowest first.
const COARSE: [f32; 4] = [1.0, 0.695_424_3, 0.226_307_68, 0.078_267_97];

/// Degree 5, lowest first.
const FINE: [f32; 6] = [1.0, 0.693_151_7, 0.240_159_27, 0.055_818_677, 0.008_990_995, 0.001_879_318_6];

/// # Safety
/// The instruction set of `L`.
#[inline(always)]
unsafe fn exp2<L: Lanes, const TERMS: usize>(x: L::F, p: &[f32; TERMS]) -> L::F {
    // SAFETY: the caller promises the instruction set.
    unsafe {
        let (f, floor) = L::split(x);
        let mut y = L::splat(p[TERMS - 1]);
        for &c in p[..TERMS - 1].iter().rev() {
            y = L::mul_add(y, f, L::splat(c));
        }
        L::scale(y, floor)
    }
}

/// 2^x to [`COARSE_ERROR`]; 0 for minus infinity, infinite for infinity, not a number stays so.
///
/// # Safety
/// The instruction set of `L`.
#[inline(always)]
pub unsafe fn exp2_coarse<L: Lanes>(x: L::F) -> L::F {
    // SAFETY: the caller promises the instruction set.
    unsafe { exp2::<L, 4>(x, &COARSE) }
}

/// 2^x to [`FINE_ERROR`]; 0 for minus infinity, infinite for infinity, not a number stays so.
///
/// # Safety
/// The instruction set of `L`.
#[inline(always)]
pub unsafe fn exp2_fine<L: Lanes>(x: L::F) -> L::F {
    // SAFETY: the caller promises the instruction set.
    unsafe { exp2::<L, 6>(x, &FINE) }
}
