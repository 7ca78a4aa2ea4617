//! Lanes of AVX-512 F, BW, DQ and VL.

use std::arch::x86_64::*;

use super::Lanes;

/// Sixteen values in a 512-bit register.
#[derive(Clone, Copy)]
pub struct Avx512;

/// Ones in the first `count` of sixteen lanes.
#[inline(always)]
fn first(count: usize) -> __mmask16 {
    ((1u32 << count.min(16)) - 1) as __mmask16
}

// SAFETY: instructions of these four extensions only; each function accesses the elements that the trait names.
#[allow(unsafe_op_in_unsafe_fn)]
unsafe impl Lanes for Avx512 {
    type F = __m512;
    const N: usize = 16;

    #[inline(always)]
    fn prefetch<T>(at: *const T) {
        // SAFETY: a hint that never faults, part of every x86-64.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(at.cast()) };
    }

    #[inline(always)]
    unsafe fn splat(x: f32) -> __m512 {
        _mm512_set1_ps(x)
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> __m512 {
        _mm512_loadu_ps(from)
    }

    #[inline(always)]
    unsafe fn store(to: *mut f32, x: __m512) {
        _mm512_storeu_ps(to, x);
    }

    #[inline(always)]
    unsafe fn load_first(from: *const f32, count: usize) -> __m512 {
        _mm512_maskz_loadu_ps(first(count), from)
    }

    #[inline(always)]
    unsafe fn store_first(to: *mut f32, x: __m512, count: usize) {
        _mm512_mask_storeu_ps(to, first(count), x);
    }

    #[inline(always)]
    unsafe fn load_pair(from: *const f32) -> __m512 {
        _mm512_castpd_ps(_mm512_set1_pd(from.cast::<f64>().read_unaligned()))
    }

    #[inline(always)]
    unsafe fn load_doubled(from: *const f32) -> __m512 {
        let eight = _mm512_castps256_ps512(_mm256_loadu_ps(from));
        let twice = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
        _mm512_permutexvar_ps(twice, eight)
    }

    #[inline(always)]
    unsafe fn load_f16(from: *const u16) -> __m512 {
        _mm512_cvtph_ps(_mm256_loadu_si256(from.cast()))
    }

    #[inline(always)]
    unsafe fn load_bf16(from: *const u16) -> __m512 {
        let wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(from.cast()));
        _mm512_castsi512_ps(_mm512_slli_epi32::<16>(wide))
    }

    #[inline(always)]
    unsafe fn load_i16(from: *const i16) -> __m512 {
        _mm512_cvtepi32_ps(_mm512_cvtepi16_epi32(_mm256_loadu_si256(from.cast())))
    }

    #[inline(always)]
    unsafe fn load_i8(from: *const i8) -> __m512 {
        _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(from.cast())))
    }

    #[inline(always)]
    unsafe fn add(a: __m512, b: __m512) -> __m512 {
        _mm512_add_ps(a, b)
    }

    #[inline(always)]
    unsafe fn sub(a: __m512, b: __m512) -> __m512 {
        _mm512_sub_ps(a, b)
    }

    #[inline(always)]
    unsafe fn mul(a: __m512, b: __m512) -> __m512 {
        _mm512_mul_ps(a, b)
    }

    #[inline(always)]
    unsafe fn div(a: __m512, b: __m512) -> __m512 {
        _mm512_div_ps(a, b)
    }

    #[inline(always)]
    unsafe fn mul_add(a: __m512, b: __m512, c: __m512) -> __m512 {
        _mm512_fmadd_ps(a, b, c)
    }

    #[inline(always)]
    unsafe fn max(a: __m512, b: __m512) -> __m512 {
        _mm512_max_ps(a, b)
    }

    #[inline(always)]
    unsafe fn any_above(a: __m512, b: __m512) -> bool {
        _mm512_cmp_ps_mask::<_CMP_GT_OQ>(a, b) != 0
    }

    #[inline(always)]
    unsafe fn swap_pairs(x: __m512) -> __m512 {
        _mm512_permute_ps::<0b10_11_00_01>(x)
    }

    #[inline(always)]
    unsafe fn pair_sums(a: __m512, b: __m512) -> __m512 {
        let even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
        let odd = _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
        _mm512_add_ps(_mm512_permutex2var_ps(a, even, b), _mm512_permutex2var_ps(a, odd, b))
    }

    #[inline(always)]
    unsafe fn keep(x: __m512, from: usize, to: usize, other: __m512) -> __m512 {
        _mm512_mask_blend_ps(first(to) & !first(from), other, x)
    }

    #[inline(always)]
    unsafe fn split(x: __m512) -> (__m512, __m512) {
        // Rounding control 1 is down: the remainder is x - floor(x), 0 for infinities.
        (_mm512_reduce_ps::<0b0000_1001>(x), x)
    }

    #[inline(always)]
    unsafe fn scale(y: __m512, floor: __m512) -> __m512 {
        _mm512_scalef_ps(y, floor)
    }

    #[inline(always)]
    unsafe fn sum(x: __m512) -> f32 {
        let eight = _mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps::<1>(x));
        let four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps::<1>(eight));
        let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
        _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps::<1>(two, two)))
    }
}
