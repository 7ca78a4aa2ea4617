//! How keys, values, queries and weights are multiplied: in f32, as bfloat16 pairs where the CPU has the instruction, or as
//! 16-bit integers ([`super::integers`]).

use super::kernel::{self, Step};
use crate::engine::cpu::aligned::Element;
use crate::engine::cpu::lanes::{self, Lanes};

/// What packed elements are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Single,
    Bf16,
    /// With a scale for each query, key and value, and for the weights of a row in a tile.
    Integers,
}

/// What a number of a query, a key, a value or a weight is while it is multiplied.
///
/// Everything that enters a product is *packed*: two consecutive terms of the sum lie next to each other.
///
/// # Safety
/// Every function needs a CPU with the instruction set that the type stands for.
#[allow(clippy::missing_safety_doc)]
pub unsafe trait Pairs: Copy + 'static {
    type L: Lanes;
    /// A packed element: f32, the bits of a bfloat16, or an integer.
    type E: Element;
    /// Sums that belong to one column.
    const PARTS: usize;
    /// Rows whose queries are packed together: as many as one pass of the kernel keeps in registers.
    const MAX_ROWS: usize;
    const FORM: Form;

    /// Rounds two vectors of values to `2 * Lanes::N` consecutive packed elements.
    unsafe fn pack(to: *mut Self::E, a: <Self::L as Lanes>::F, b: <Self::L as Lanes>::F);
    /// One value, packed.
    fn round(x: f32) -> Self::E;
}

/// The steps of attention on packed pairs.
///
/// # Safety
/// As [`Pairs`].
#[allow(clippy::missing_safety_doc)]
pub unsafe trait Arithmetic: Pairs {
    /// Rows at most in one step: scores and weights of all of them stay in a first-level cache beside the keys or values
    /// that they all read.
    const STEP_ROWS: usize;

    /// Packs a query, whole pairs of vectors, and returns its scale.
    unsafe fn pack_query(to: *mut Self::E, values: &[f32]) -> f32;
    /// Runs a step of 1 to `STEP_ROWS` rows. Its pointers have the shapes stated there, and nobody else uses what they write.
    unsafe fn step(step: &mut Step<'_, Self>);
}

/// Pairs without scales, whose sums over tiles go on in the same accumulator, a vector of the lanes.
///
/// A vector of packed elements holds [`Floats::PAIRS`] pairs, one per column; its product with one repeated pair is added
/// to an accumulator.
///
/// # Safety
/// As [`Pairs`].
#[allow(clippy::missing_safety_doc)]
pub unsafe trait Floats: Pairs {
    /// A vector of packed elements.
    type V: Copy;
    /// Pairs in a vector.
    const PAIRS: usize;
    /// Whether to ask for the next tile while this one is multiplied. It pays where one pass covers a part of each
    /// row of a tile only; where it covers whole rows, the hardware follows by itself and better.
    const AHEAD: bool;

    /// `2 * PAIRS` elements.
    unsafe fn load(from: *const Self::E) -> Self::V;
    /// One pair, repeated.
    unsafe fn pair(from: *const Self::E) -> Self::V;
    /// Adds the products of the pairs of `a` and `b`.
    unsafe fn dot(acc: Sums<Self>, a: Self::V, b: Self::V) -> Sums<Self>;
    /// The sums of the two parts of each pair of `a`, then those of `b`; `a` where there is one part.
    unsafe fn join(a: Sums<Self>, b: Sums<Self>) -> Sums<Self>;
    /// Adds the values that [`Pairs::pack`] wrote for `a` and `b`, after their rounding.
    unsafe fn add_packed(sum: Sums<Self>, packed: *const Self::E, a: Sums<Self>, b: Sums<Self>)
    -> Sums<Self>;
    /// 2^x to the accuracy of the packed elements.
    unsafe fn exp2(x: Sums<Self>) -> Sums<Self>;
}

/// A vector of sums.
pub type Sums<A> = <<A as Pairs>::L as Lanes>::F;

// SAFETY: the functions of `A` and of its lanes only.
#[allow(unsafe_op_in_unsafe_fn)]
unsafe impl<A: Floats> Arithmetic for A {
    const STEP_ROWS: usize = A::MAX_ROWS * kernel::GROUPS;

    #[inline(always)]
    unsafe fn pack_query(to: *mut A::E, values: &[f32]) -> f32 {
        let n = A::L::N;
        for at in (0..values.len()).step_by(2 * n) {
            let from = values.as_ptr().add(at);
            A::pack(to.add(at), A::L::load(from), A::L::load(from.add(n)));
        }
        1.0
    }

    #[inline(always)]
    unsafe fn step(step: &mut Step<'_, A>) {
        kernel::step(step);
    }
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
unsafe impl<L: Lanes> Pairs for Single<L> {
    type L = L;
    type E = f32;
    const PARTS: usize = 2;
    const MAX_ROWS: usize = rows_for(L::N);
    const FORM: Form = Form::Single;

    #[inline(always)]
    unsafe fn pack(to: *mut f32, a: L::F, b: L::F) {
        L::store(to, a);
        L::store(to.add(L::N), b);
    }

    #[inline(always)]
    fn round(x: f32) -> f32 {
        x
    }
}

// SAFETY: uses the instruction set of `L` only.
#[allow(unsafe_op_in_unsafe_fn)]
unsafe impl<L: Lanes> Floats for Single<L> {
    type V = L::F;
    const PAIRS: usize = L::N / 2;
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
    unsafe fn join(a: L::F, b: L::F) -> L::F {
        L::pair_sums(a, b)
    }

    #[inline(always)]
    unsafe fn add_packed(sum: L::F, _packed: *const f32, a: L::F, b: L::F) -> L::F {
        L::add(sum, L::add(a, b))
    }

    #[inline(always)]
    unsafe fn exp2(x: L::F) -> L::F {
        lanes::exp::exp2_fine::<L>(x)
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
    unsafe impl Pairs for Bf16Pairs {
        type L = Avx512;
        type E = u16;
        const PARTS: usize = 1;
        const MAX_ROWS: usize = 6;
        const FORM: Form = Form::Bf16;

        #[inline(always)]
        unsafe fn pack(to: *mut u16, a: __m512, b: __m512) {
            let both: __m512i = std::mem::transmute(_mm512_cvtne2ps_pbh(b, a));
            _mm512_storeu_si512(to.cast(), both);
        }

        #[inline(always)]
        fn round(x: f32) -> u16 {
            half::bf16::from_f32(x).to_bits()
        }
    }

    // SAFETY: AVX-512 F, BW and BF16 instructions only.
    #[allow(unsafe_op_in_unsafe_fn)]
    unsafe impl Floats for Bf16Pairs {
        type V = __m512bh;
        const PAIRS: usize = 16;
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
        unsafe fn join(a: __m512, _b: __m512) -> __m512 {
            a
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
    }
}
