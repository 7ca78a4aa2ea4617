//! Every instruction set against plain arithmetic.

use super::exp::{COARSE_ERROR, FINE_ERROR, exp2_coarse, exp2_fine};
use super::*;
use crate::engine::cpu::isa::Isa;

/// # Safety
/// The instruction set of `L`.
#[inline(always)]
unsafe fn powers<L: Lanes>(x: &[f32], coarse: &mut [f32], fine: &mut [f32]) {
    for at in (0..x.len()).step_by(L::N) {
        // SAFETY: lengths are multiples of 16; the instruction set is the caller's promise.
        unsafe {
            let v = L::load(x.as_ptr().add(at));
            L::store(coarse.as_mut_ptr().add(at), exp2_coarse::<L>(v));
            L::store(fine.as_mut_ptr().add(at), exp2_fine::<L>(v));
        }
    }
}

on_lanes! {
    fn all_powers = powers(x: &[f32], coarse: &mut [f32], fine: &mut [f32])
}

fn powers_of(isa: Isa, x: &[f32]) -> (Vec<f32>, Vec<f32>) {
    let (mut coarse, mut fine) = (vec![0.0; x.len()], vec![0.0; x.len()]);
    all_powers(isa, x, &mut coarse, &mut fine);
    (coarse, fine)
}

#[test]
fn powers_of_two_keep_their_stated_error() {
    let x: Vec<f32> = (0..1 << 20).map(|i| -126.0 + i as f32 * (166.0 / (1 << 20) as f32)).collect();
    for isa in Isa::ALL_AVAILABLE() {
        let (coarse, fine) = powers_of(isa, &x);
        let worst = |found: &[f32]| {
            let errors = x.iter().zip(found).map(|(x, y)| (f64::from(*y) / f64::from(*x).exp2() - 1.0).abs());
            errors.fold(0.0, f64::max) as f32
        };
        let (coarse, fine) = (worst(&coarse), worst(&fine));
        println!("{isa}: coarse {coarse:.2e}, fine {fine:.2e}");
        assert!(coarse <= COARSE_ERROR && fine <= FINE_ERROR, "{isa}: {coarse} {fine}");
    }
}

#[test]
fn powers_of_two_at_the_ends() {
    let x = [
        0.0,
        -0.0,
        1.0,
        -3.0,
        40.0,
        -126.0,
        -200.0,
        f32::NEG_INFINITY,
        f32::INFINITY,
        f32::NAN,
        128.0,
        1e30,
        -1e30,
        -127.5,
        127.0,
        -1.0,
    ];
    let y = [
        1.0,
        1.0,
        2.0,
        0.125,
        40f32.exp2(),
        (-126f32).exp2(),
        0.0,
        0.0,
        f32::INFINITY,
        f32::NAN,
        f32::INFINITY,
        f32::INFINITY,
        0.0,
        0.0,
        127f32.exp2(),
        0.5,
    ];
    for isa in Isa::ALL_AVAILABLE() {
        let (coarse, fine) = powers_of(isa, &x);
        for found in [coarse, fine] {
            for ((x, y), expected) in x.iter().zip(&found).zip(&y) {
                // Below the normal numbers, zero or what is right.
                let small = *x < -126.0 && (0.0..1.2e-38).contains(y);
                assert!(y == expected || small || (y.is_nan() && expected.is_nan()), "{isa}: 2^{x} = {y}");
            }
        }
    }
}

/// Writes the result of each operation on the first vectors of `a` and `b`.
///
/// # Safety
/// The instruction set of `L`.
#[inline(always)]
unsafe fn operations<L: Lanes>(
    a: &[f32],
    b: &[f32],
    words: &[u16],
    bytes: &[i8],
    count: usize,
    out: &mut Vec<Vec<f32>>,
) {
    // SAFETY: all inputs hold 16 elements and more; the instruction set is the caller's promise.
    unsafe {
        let (x, y) = (L::load(a.as_ptr()), L::load(b.as_ptr()));
        let partly = count % L::N;
        let mut first = vec![7.0; L::N];
        L::store_first(first.as_mut_ptr(), x, partly);
        let all = [
            L::add(x, y),
            L::sub(x, y),
            L::mul(x, y),
            L::div(x, y),
            L::mul_add(x, y, x),
            L::max(x, y),
            L::swap_pairs(x),
            L::pair_sums(x, y),
            L::keep(x, partly / 2, partly, y),
            L::load_first(a.as_ptr(), partly),
            L::load_pair(a.as_ptr()),
            L::load_doubled(a.as_ptr()),
            L::load_f16(words.as_ptr()),
            L::load_bf16(words.as_ptr()),
            L::load_i16(words.as_ptr().cast()),
            L::load_i8(bytes.as_ptr()),
            L::splat(L::sum(x)),
            L::splat(L::max_lane(x)),
            L::splat(if L::any_above(x, y) { 1.0 } else { 0.0 }),
        ];
        for vector in all {
            let mut values = vec![0.0; L::N];
            L::store(values.as_mut_ptr(), vector);
            out.push(values);
        }
        out.push(first);
    }
}

on_lanes! {
    fn all_operations = operations(a: &[f32], b: &[f32], words: &[u16], bytes: &[i8], count: usize, out: &mut Vec<Vec<f32>>)
}

fn expected(n: usize, a: &[f32], b: &[f32], words: &[u16], bytes: &[i8], count: usize) -> Vec<Vec<f32>> {
    let each = |f: &dyn Fn(usize) -> f32| (0..n).map(f).collect::<Vec<f32>>();
    let partly = count % n;
    let half = n / 2;
    vec![
        each(&|i| a[i] + b[i]),
        each(&|i| a[i] - b[i]),
        each(&|i| a[i] * b[i]),
        each(&|i| a[i] / b[i]),
        each(&|i| a[i] * b[i] + a[i]),
        each(&|i| a[i].max(b[i])),
        each(&|i| a[i ^ 1]),
        each(&|i| if i < half { a[2 * i] + a[2 * i + 1] } else { b[2 * i - n] + b[2 * i - n + 1] }),
        each(&|i| if (partly / 2..partly).contains(&i) { a[i] } else { b[i] }),
        each(&|i| if i < partly { a[i] } else { 0.0 }),
        each(&|i| a[i % 2]),
        each(&|i| a[i / 2]),
        each(&|i| half::f16::from_bits(words[i]).to_f32()),
        each(&|i| half::bf16::from_bits(words[i]).to_f32()),
        each(&|i| f32::from(words[i] as i16)),
        each(&|i| f32::from(bytes[i])),
        each(&|_| a[..n].iter().sum()),
        each(&|_| a[..n].iter().copied().fold(f32::NEG_INFINITY, f32::max)),
        each(&|_| if (0..n).any(|i| a[i] > b[i]) { 1.0 } else { 0.0 }),
        each(&|i| if i < partly { a[i] } else { 7.0 }),
    ]
}

#[test]
fn every_operation_equals_plain_arithmetic() {
    // Small whole numbers and quarters: every sum and product is exact.
    let a: Vec<f32> = (0..20).map(|i| (i * 7 % 11) as f32 - 4.0).collect();
    let b: Vec<f32> = (0..20).map(|i| [0.5, -2.0, 4.0, 1.0, 8.0][i * 3 % 5]).collect();
    let words: Vec<u16> =
        (0..20).map(|i| 0x3c00 + 37 * i as u16 + if i % 3 == 0 { 0x8000 } else { 0 }).collect();
    let bytes: Vec<i8> = (0..20).map(|i| (i as i8 - 10) * 12).collect();
    for isa in Isa::ALL_AVAILABLE() {
        for shift in 0..4 {
            for count in 0..16 {
                let (a, b, words, bytes) = (&a[shift..], &b[shift..], &words[shift..], &bytes[shift..]);
                let mut found = Vec::new();
                all_operations(isa, a, b, words, bytes, count, &mut found);
                let expected = expected(found[0].len(), a, b, words, bytes, count);
                for (index, (found, expected)) in found.iter().zip(&expected).enumerate() {
                    assert_eq!(found, expected, "{isa}, operation {index}, count {count}");
                }
            }
        }
    }
}
