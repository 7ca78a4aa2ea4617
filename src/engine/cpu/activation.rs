//! Gated activations, residual and scale.

use super::lanes::{Lanes, exp, on_lanes};

on_lanes! {
    /// gate = silu(gate) * up, where silu(x) = x / (1 + e^-x).
    ///
    /// # Panics
    /// When the lengths differ.
    pub fn silu_mul = silu_mul_on(gate: &mut [f32], up: &[f32])
}

on_lanes! {
    /// gate = gelu(gate) * up, where gelu(x) = x / (1 + e^-2u) and u = sqrt(2 / pi) (x + 0.044715 x^3).
    ///
    /// # Panics
    /// When the lengths differ.
    pub fn gelu_mul = gelu_mul_on(gate: &mut [f32], up: &[f32])
}

on_lanes! {
    /// x *= factor
    pub fn scale = scale_on(x: &mut [f32], factor: f32)
}

on_lanes! {
    /// x += y
    ///
    /// # Panics
    /// When the lengths differ.
    pub fn add = add_on(x: &mut [f32], y: &[f32])
}

/// An operation on two vectors. Not a closure: closures are compiled without the instruction set of their surroundings.
trait Operation<L: Lanes> {
    /// # Safety
    /// The instruction set of `L`.
    unsafe fn apply(x: L::F, y: L::F) -> L::F;
}

struct SiluMul;
struct GeluMul;
struct Add;

impl<L: Lanes> Operation<L> for SiluMul {
    #[inline(always)]
    unsafe fn apply(x: L::F, y: L::F) -> L::F {
        // SAFETY: the caller promises the instruction set.
        unsafe {
            // e^-x is infinite below -88, which makes the quotient 0.
            let power = exp::exp2_fine::<L>(L::mul(x, L::splat(-exp::LOG2_E)));
            L::mul(L::div(x, L::add(L::splat(1.0), power)), y)
        }
    }
}

impl<L: Lanes> Operation<L> for GeluMul {
    #[inline(always)]
    unsafe fn apply(x: L::F, y: L::F) -> L::F {
        /// -2 sqrt(2 / pi) log2(e): e^-2u = 2^(x (1 + 0.044715 x^2) * this).
        const POWER: f32 = -2.302_208_2;
        const CUBE: f32 = 0.044_715;
        // SAFETY: the caller promises the instruction set.
        unsafe {
            let bend = L::mul_add(L::mul(x, x), L::splat(CUBE), L::splat(1.0));
            let power = exp::exp2_fine::<L>(L::mul(L::mul(x, bend), L::splat(POWER)));
            L::mul(L::div(x, L::add(L::splat(1.0), power)), y)
        }
    }
}

impl<L: Lanes> Operation<L> for Add {
    #[inline(always)]
    unsafe fn apply(x: L::F, y: L::F) -> L::F {
        // SAFETY: the caller promises the instruction set.
        unsafe { L::add(x, y) }
    }
}

/// # Safety
/// The instruction set of `L`.
#[inline(always)]
unsafe fn silu_mul_on<L: Lanes>(gate: &mut [f32], up: &[f32]) {
    // SAFETY: the caller promises the instruction set.
    unsafe { each::<L, SiluMul>(gate, up) };
}

/// # Safety
/// The instruction set of `L`.
#[inline(always)]
unsafe fn gelu_mul_on<L: Lanes>(gate: &mut [f32], up: &[f32]) {
    // SAFETY: the caller promises the instruction set.
    unsafe { each::<L, GeluMul>(gate, up) };
}

/// # Safety
/// The instruction set of `L`.
#[inline(always)]
unsafe fn scale_on<L: Lanes>(x: &mut [f32], factor: f32) {
    let whole = x.len() / L::N * L::N;
    let (to, rest) = (x.as_mut_ptr(), x.len() - whole);
    // SAFETY: all accesses are below the length.
    unsafe {
        let factor = L::splat(factor);
        for at in (0..whole).step_by(L::N) {
            L::store(to.add(at), L::mul(L::load(to.add(at)), factor));
        }
        if rest > 0 {
            L::store_first(to.add(whole), L::mul(L::load_first(to.add(whole), rest), factor), rest);
        }
    }
}

/// # Safety
/// The instruction set of `L`.
#[inline(always)]
unsafe fn add_on<L: Lanes>(x: &mut [f32], y: &[f32]) {
    // SAFETY: the caller promises the instruction set.
    unsafe { each::<L, Add>(x, y) };
}

/// Applies the operation vector by vector, results to `x`.
///
/// # Safety
/// The instruction set of `L`.
#[inline(always)]
unsafe fn each<L: Lanes, O: Operation<L>>(x: &mut [f32], y: &[f32]) {
    assert_eq!(x.len(), y.len(), "two operands of one length");
    let whole = x.len() / L::N * L::N;
    let (to, from, rest) = (x.as_mut_ptr(), y.as_ptr(), x.len() - whole);
    // SAFETY: all accesses are below the common length.
    unsafe {
        for at in (0..whole).step_by(L::N) {
            L::store(to.add(at), O::apply(L::load(to.add(at)), L::load(from.add(at))));
        }
        if rest > 0 {
            let (a, b) = (L::load_first(to.add(whole), rest), L::load_first(from.add(whole), rest));
            L::store_first(to.add(whole), O::apply(a, b), rest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::cpu::isa::Isa;

    #[test]
    fn every_length_equals_its_twin() {
        for isa in Isa::ALL_AVAILABLE() {
            for len in 0..70 {
                let gate: Vec<f32> = (0..len).map(|i| (i * 29 % 83) as f32 / 3.0 - 14.0).collect();
                let up: Vec<f32> = (0..len).map(|i| 1.5 - (i % 7) as f32).collect();
                let mut found = gate.clone();
                silu_mul(isa, &mut found, &up);
                for ((found, gate), up) in found.iter().zip(&gate).zip(&up) {
                    let x = f64::from(*gate);
                    let expected = (x / (1.0 + (-x).exp()) * f64::from(*up)) as f32;
                    assert!(
                        (found - expected).abs() <= 1e-6 * expected.abs(),
                        "{isa} {len}: {found} {expected}"
                    );
                }
                let mut found = gate.clone();
                gelu_mul(isa, &mut found, &up);
                for ((found, gate), up) in found.iter().zip(&gate).zip(&up) {
                    let x = f64::from(*gate);
                    let u = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x);
                    let expected = (0.5 * x * (1.0 + u.tanh()) * f64::from(*up)) as f32;
                    // The exponent is rounded to f32: its error grows with the argument.
                    assert!(
                        (found - expected).abs() <= 1e-5 * expected.abs() + 1e-6,
                        "{isa} {len}: {found} {expected}"
                    );
                }
                let mut found = gate.clone();
                scale(isa, &mut found, 3.0);
                assert!(found.iter().zip(&gate).all(|(x, a)| *x == a * 3.0), "{isa} {len}");
                let mut found = gate.clone();
                add(isa, &mut found, &up);
                assert!(found.iter().zip(gate.iter().zip(&up)).all(|(x, (a, b))| *x == a + b), "{isa} {len}");
            }
        }
    }

    #[test]
    fn the_ends_of_the_activations() {
        for isa in Isa::ALL_AVAILABLE() {
            let mut x = [-1e30, -200.0, -89.0, 0.0, 200.0, 1e30, f32::INFINITY, f32::NAN, f32::NEG_INFINITY];
            silu_mul(isa, &mut x, &[1.0; 9]);
            assert!(x[..3].iter().all(|x| x.abs() < 1e-36), "{isa} {x:?}");
            assert_eq!(x[3..7], [0.0, 200.0, 1e30, f32::INFINITY], "{isa}");
            // As the formula: minus infinity over infinity.
            assert!(x[7].is_nan() && x[8].is_nan(), "{isa} {x:?}");
            let mut x = [-1e12, -200.0, -20.0, 0.0, 200.0, 1e12, f32::INFINITY, f32::NAN, f32::NEG_INFINITY];
            gelu_mul(isa, &mut x, &[1.0; 9]);
            assert!(x[..3].iter().all(|x| x.abs() < 1e-36), "{isa} {x:?}");
            assert_eq!(x[3..7], [0.0, 200.0, 1e12, f32::INFINITY], "{isa}");
            assert!(x[7].is_nan() && x[8].is_nan(), "{isa} {x:?}");
        }
    }
}
