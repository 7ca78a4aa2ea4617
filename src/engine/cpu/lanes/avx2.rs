//! Lanes of AVX2 with FMA and F16C.

use std::arch::x86_64::*;

use super::Lanes;

/// Eight values in a 256-bit register.
#[derive(Clone, Copy)]
pub struct Avx2;

/// All ones in the first `count` of eight lanes, read at `8 - count`.
const FIRST: [i32; 16] = [-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0];

/// # Safety
/// AVX2; `count <= 8`.
#[inline(always)]
unsafe fn first(count: usize) -> __m256i {
    debug_assert!(count <= 8);
    // SAFETY: eight integers from `8 - count` on lie inside the table.
    unsafe { _mm256_loadu_si256(FIRST.as_ptr().add(8 - count).cast()) }
}

// SAFETY: AVX2, FMA and F16C instructions only; each function accesses the elements that the trait names.
#[allow(unsafe_op_in_unsafe_fn)]
unsafe impl Lanes for Avx2 {
    type F = __m256;
    const N: usize = 8;

    #[inline(always)]
    fn prefetch<T>(at: *const T) {
        // SAFETY: a hint that never faults, part of every x86-64.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(at.cast()) };
    }

    #[inline(always)]
    unsafe fn splat(x: f32) -> __m256 {
        _mm256_set1_ps(x)
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> __m256 {
        _mm256_loadu_ps(from)
    }

    #[inline(always)]
    unsafe fn store(to: *mut f32, x: __m256) {
        _mm256_storeu_ps(to, x);
    }

    #[inline(always)]
    unsafe fn load_first(from: *const f32, count: usize) -> __m256 {
        _mm256_maskload_ps(from, first(count))
    }

    #[inline(always)]
    unsafe fn store_first(to: *mut f32, x: __m256, count: usize) {
        _mm256_maskstore_ps(to, first(count), x);
    }

    #[inline(always)]
    unsafe fn load_pair(from: *const f32) -> __m256 {
        _mm256_castpd_ps(_mm256_set1_pd(from.cast::<f64>().read_unaligned()))
    }

    #[inline(always)]
    unsafe fn load_doubled(from: *const f32) -> __m256 {
        let four = _mm256_castps128_ps256(_mm_loadu_ps(from));
        _mm256_permutevar8x32_ps(four, _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3))
    }

    #[inline(always)]
    unsafe fn load_f16(from: *const u16) -> __m256 {
        _mm256_cvtph_ps(_mm_loadu_si128(from.cast()))
    }

    #[inline(always)]
    unsafe fn load_bf16(from: *const u16) -> __m256 {
        let wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(from.cast()));
        _mm256_castsi256_ps(_mm256_slli_epi32::<16>(wide))
    }

    #[inline(always)]
    unsafe fn load_i16(from: *const i16) -> __m256 {
        _mm256_cvtepi32_ps(_mm256_cvtepi16_epi32(_mm_loadu_si128(from.cast())))
    }

    #[inline(always)]
    unsafe fn load_i8(from: *const i8) -> __m256 {
        _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(from.cast())))
    }

    #[inline(always)]
    unsafe fn add(a: __m256, b: __m256) -> __m256 {
        _mm256_add_ps(a, b)
    }

    #[inline(always)]
    unsafe fn sub(a: __m256, b: __m256) -> __m256 {
        _mm256_sub_ps(a, b)
    }

    #[inline(always)]
    unsafe fn mul(a: __m256, b: __m256) -> __m256 {
        _mm256_mul_ps(a, b)
    }

    #[inline(always)]
    unsafe fn div(a: __m256, b: __m256) -> __m256 {
        _mm256_div_ps(a, b)
    }

    #[inline(always)]
    unsafe fn mul_add(a: __m256, b: __m256, c: __m256) -> __m256 {
        _mm256_fmadd_ps(a, b, c)
    }

    #[inline(always)]
    unsafe fn max(a: __m256, b: __m256) -> __m256 {
        _mm256_max_ps(a, b)
    }

    #[inline(always)]
    unsafe fn any_above(a: __m256, b: __m256) -> bool {
        _mm256_movemask_ps(_mm256_cmp_ps::<_CMP_GT_OQ>(a, b)) != 0
    }

    #[inline(always)]
    unsafe fn swap_pairs(x: __m256) -> __m256 {
        _mm256_permute_ps::<0b10_11_00_01>(x)
    }

    #[inline(always)]
    unsafe fn pair_sums(a: __m256, b: __m256) -> __m256 {
        // a0+a1 a2+a3 b0+b1 b2+b3 | a4+a5 a6+a7 b4+b5 b6+b7, then the middle quarters exchanged.
        let sums = _mm256_castps_pd(_mm256_hadd_ps(a, b));
        _mm256_castpd_ps(_mm256_permute4x64_pd::<0b11_01_10_00>(sums))
    }

    #[inline(always)]
    unsafe fn keep(x: __m256, from: usize, to: usize, other: __m256) -> __m256 {
        let kept = _mm256_andnot_si256(first(from.min(8)), first(to.min(8)));
        _mm256_blendv_ps(other, x, _mm256_castsi256_ps(kept))
    }

    #[inline(always)]
    unsafe fn split(x: __m256) -> (__m256, __m256) {
        // The second operand of max and min comes through where one is not a number.
        let low = _mm256_max_ps(_mm256_set1_ps(-127.0), x);
        let clamped = _mm256_min_ps(_mm256_set1_ps(128.0), low);
        let floor = _mm256_floor_ps(clamped);
        (_mm256_sub_ps(clamped, floor), floor)
    }

    #[inline(always)]
    unsafe fn scale(y: __m256, floor: __m256) -> __m256 {
        let exponent = _mm256_add_epi32(_mm256_cvtps_epi32(floor), _mm256_set1_epi32(127));
        let power = _mm256_castsi256_ps(_mm256_slli_epi32::<23>(exponent));
        _mm256_mul_ps(y, power)
    }

    #[inline(always)]
    unsafe fn sum(x: __m256) -> f32 {
        let four = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps::<1>(x));
        let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
        _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps::<1>(two, two)))
    }
}
