//! How keys, values, queries and weights are multiplied: bfloat16 pairs where the CPU has the instruction, else f32.

use crate::engine::cpu::aligned::Element;
use crate::engine::cpu::lanes::{self, Lanes};

/// Products of packed pairs.
///
/// Everything that enters a product is *packed*: two consecutive terms of the sum lie next to each other. A vector of
/// packed elements holds [`Arithmetic::PAIRS`] pairs, one per column; its product with one repeated pair is added to
/// an accumulator, a vector of [`Lanes`].
///
/// # Safety
/// Every function needs a CPU with the instruction set that the type stands for.
#[allow(clippy::missing_safety_doc)]
pub unsafe trait Arithmetic: Copy + 'static {
    type L: Lanes;
    /// A packed element: f32, or the bits of a bfloat16.
    type E: Element;
    /// A vector of packed elements.
    type V: Copy;
    /// Pairs in a vector.
    const PAIRS: usize;
    /// Lanes of an accumulator that belong to one pair.
    const PARTS: usize;
    /// Rows that one pass of the kernel keeps in registers.
    const MAX_ROWS: usize;
    /// Whether packed elements are bfloat16.
    const BF16: bool;
    /// Whether to ask for the next tile while this one is multiplied. It pays where one pass covers a part of each
    /// row of a tile only; where it covers whole rows, the hardware follows by itself and better.
    const AHEAD: bool;

    /// `2 * PAIRS` elements.
    unsafe fn load(from: *const Self::E) -> Self::V;
    /// One pair, repeated.
    unsafe fn pair(from: *const Self::E) -> Self::V;
    /// Adds the products of the pairs of `a` and `b`.
    unsafe fn dot(acc: <Self::L as Lanes>::F, a: Self::V, b: Self::V) -> <Self::L as Lanes>::F;
    /// Rounds two vectors of values to `2 * Lanes::N` consecutive packed elements.
    unsafe fn pack(to: *mut Self::E, a: <Self::L as Lanes>::F, b: <Self::L as Lanes>::F);
    /// Adds the values that [`Arithmetic::pack`] wrote for `a` and `b`, after their rounding.
    unsafe fn add_packed(
        sum: <Self::L as Lanes>::F,
        packed: *const Self::E,
        a: <Self::L as Lanes>::F,
        b: <Self::L as Lanes>::F,
    ) -> <Self::L as Lanes>::F;
    /// 2^x to the accuracy of the packed elements.
    unsafe fn exp2(x: <Self::L as Lanes>::F) -> <Self::L as Lanes>::F;
    /// One value, packed.
    fn round(x: f32) -> Self::E;
}

/// f32 products on the lanes `L`; an accumulator keeps the two halves of each pair apart.
#[derive(Clone, Copy)]
pub struct Single<L>(std::marker::PhantomData<L>);

/// Rows that fit the registers beside four accumulators each.
const fn rows_for(lanes: usize) -> usize {
    match lanes {
        16 => 6,
        8 => 3,
        _ => 2,
    }
}

// SAFETY: uses the instruction set of `L` only.
#[allow(unsafe_op_in_unsafe_fn)]
unsafe impl<L: Lanes> Arithmetic for Single<L> {
    type L = L;
    type E = f32;
    type V = L::F;
    const PAIRS: usize = L::N / 2;
    const PARTS: usize = 2;
    const MAX_ROWS: usize = rows_for(L::N);
    const BF16: bool = false;
    const AHEAD: bool = true;

    #[inline(always)]
    unsafe fn load(from: *const f32) -> L::F {
        L::load(from)
    }

    #[inline(always)]
    unsafe fn pair(from: *const f32) -> L::F {
        L::load_pair(from)
    }

    #[inline(always)]
    unsafe fn dot(acc: L::F, a: L::F, b: L::F) -> L::F {
        L::mul_add(a, b, acc)
    }

    #[inline(always)]
    unsafe fn pack(to: *mut f32, a: L::F, b: L::F) {
        L::store(to, a);
        L::store(to.add(L::N), b);
    }

    #[inline(always)]
    unsafe fn add_packed(sum: L::F, _packed: *const f32, a: L::F, b: L::F) -> L::F {
        L::add(sum, L::add(a, b))
    }

    #[inline(always)]
    unsafe fn exp2(x: L::F) -> L::F {
        lanes::exp::exp2_fine::<L>(x)
    }

    #[inline(always)]
    fn round(x: f32) -> f32 {
        x
    }
}

#[cfg(target_arch = "x86_64")]
pub use bf16_pairs::Bf16Pairs;

#[cfg(target_arch = "x86_64")]
mod bf16_pairs {
    use std::arch::x86_64::*;

    use super::*;
    use crate::engine::cpu::lanes::Avx512;

    /// Sum of pairs in bfloat16 with f32 accumulators (AVX-512 BF16).
    #[derive(Clone, Copy)]
    pub struct Bf16Pairs;

    #[inline(always)]
    unsafe fn as_bf16(x: __m512i) -> __m512bh {
        // SAFETY: both are 64 bytes without invalid values.
        unsafe { std::mem::transmute(x) }
    }

    // SAFETY: AVX-512 F, BW and BF16 instructions only.
    #[allow(unsafe_op_in_unsafe_fn)]
    unsafe impl Arithmetic for Bf16Pairs {
        type L = Avx512;
        type E = u16;
        type V = __m512bh;
        const PAIRS: usize = 16;
        const PARTS: usize = 1;
        const MAX_ROWS: usize = 6;
        const BF16: bool = true;
        const AHEAD: bool = false;

        #[inline(always)]
        unsafe fn load(from: *const u16) -> __m512bh {
            as_bf16(_mm512_loadu_si512(from.cast()))
        }

        #[inline(always)]
        unsafe fn pair(from: *const u16) -> __m512bh {
            as_bf16(_mm512_set1_epi32(from.cast::<i32>().read_unaligned()))
        }

        #[inline(always)]
        unsafe fn dot(acc: __m512, a: __m512bh, b: __m512bh) -> __m512 {
            _mm512_dpbf16_ps(acc, a, b)
        }

        #[inline(always)]
        unsafe fn pack(to: *mut u16, a: __m512, b: __m512) {
            let both: __m512i = std::mem::transmute(_mm512_cvtne2ps_pbh(b, a));
            _mm512_storeu_si512(to.cast(), both);
        }

        #[inline(always)]
        unsafe fn add_packed(sum: __m512, packed: *const u16, _a: __m512, _b: __m512) -> __m512 {
            // Two ones as bfloat16: the weights of a row then sum to what multiplied the values.
            _mm512_dpbf16_ps(sum, Self::load(packed), as_bf16(_mm512_set1_epi16(0x3f80)))
        }

        #[inline(always)]
        unsafe fn exp2(x: __m512) -> __m512 {
            lanes::exp::exp2_coarse::<Avx512>(x)
        }

        #[inline(always)]
        fn round(x: f32) -> u16 {
            half::bf16::from_f32(x).to_bits()
        }
    }
}
