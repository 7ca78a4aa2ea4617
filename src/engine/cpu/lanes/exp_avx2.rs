//! Powers of two by table and polynomial, for AVX2: fewer and shorter sums than by polynomial alone.

use std::arch::x86_64::*;
use std::f32::consts::SQRT_2;

/// 2^(j / 8) for j from 0 on, less what `j << 20` adds to its bits.
const EIGHTHS: [u32; 8] = {
    let powers: [f32; 8] =
        [1.0, 1.090_507_7, 1.189_207_1, 1.296_839_6, SQRT_2, 1.542_210_8, 1.681_792_9, 1.834_008_1];
    let mut bits = [0; 8];
    let mut j = 0;
    while j < 8 {
        bits[j] = powers[j].to_bits() - ((j as u32) << 20);
        j += 1;
    }
    bits
};

/// 2^(x / 8) to 3.6e-6, relative, for x below 1024: 2^-126 below -1008, not a number stays so.
///
/// 2^(x / 8) = 2^(n / 8) * p(x - n) with n the nearest integer: its low three bits pick from a table, the others are the
/// exponent. p is minimax in relative error on `[-1/2, 1/2]` with p(0) = 1.
///
/// # Safety
/// AVX2 and FMA.
#[inline(always)]
pub unsafe fn exp2_of_eighths(x: __m256) -> __m256 {
    const P: [f32; 3] = [1.0, 0.086_663_61, 0.003_753_529_4];
    // SAFETY: the caller's promise.
    unsafe {
        // Adding 1.5 * 2^23 leaves the nearest integer in the low bits.
        let round = _mm256_set1_ps(12_582_912.0);
        // The second operand comes through where one is not a number.
        let x = _mm256_max_ps(_mm256_set1_ps(-126.0 * 8.0), x);
        let n = _mm256_add_ps(x, round);
        let f = _mm256_sub_ps(x, _mm256_sub_ps(n, round));
        let n = _mm256_castps_si256(n);
        let table = _mm256_loadu_si256(EIGHTHS.as_ptr().cast());
        let power = _mm256_add_epi32(_mm256_permutevar8x32_epi32(table, n), _mm256_slli_epi32::<20>(n));
        let power = _mm256_castsi256_ps(power);
        let rest = _mm256_fmadd_ps(_mm256_set1_ps(P[2]), f, _mm256_set1_ps(P[1]));
        _mm256_fmadd_ps(_mm256_mul_ps(power, f), rest, power)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::cpu::isa::Isa;

    /// # Safety
    /// AVX2 and FMA.
    #[target_feature(enable = "avx2,fma")]
    unsafe fn powers(x: [f32; 8]) -> [f32; 8] {
        let mut y = [0.0; 8];
        // SAFETY: eight values each.
        unsafe {
            let eighths = _mm256_mul_ps(_mm256_loadu_ps(x.as_ptr()), _mm256_set1_ps(8.0));
            _mm256_storeu_ps(y.as_mut_ptr(), exp2_of_eighths(eighths));
        }
        y
    }

    #[test]
    fn powers_of_two_keep_their_stated_error() {
        if Isa::detect() < Isa::Avx2Fma {
            return;
        }
        let mut worst = 0.0f64;
        for step in 0..1 << 17 {
            let x =
                std::array::from_fn(|lane| -126.0 + (step * 8 + lane) as f32 * (166.0 / (1 << 20) as f32));
            // SAFETY: the CPU was asked.
            let y = unsafe { powers(x) };
            for (x, y) in x.into_iter().zip(y) {
                worst = worst.max((f64::from(y) / f64::from(x).exp2() - 1.0).abs());
            }
        }
        assert!(worst <= 3.6e-6, "{worst}");
        let nan = f32::NAN;
        // SAFETY: as above.
        let ends = unsafe { powers([0.0, -1.0, 3.0, -126.0, -500.0, f32::NEG_INFINITY, nan, f32::INFINITY]) };
        let least = f32::MIN_POSITIVE;
        assert_eq!(ends[..6], [1.0, 0.5, 8.0, least, least, least]);
        assert!(ends[6].is_nan() && ends[7].is_nan());
    }
}
