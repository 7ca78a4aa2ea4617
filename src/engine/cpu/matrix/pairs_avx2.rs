//! Integers of a record on 256-bit vectors.

use std::arch::x86_64::*;

use super::fields::{fives, sixes, thirteen};
use super::format::{Format, LANES, PAIRS, Quants, nibble_pairs};

/// A value for each of the 16 outputs of a panel, or two words: what lies side by side in memory is used together.
pub type Wide = [__m256i; 2];
/// Outputs of a vector: half a panel.
pub const HALF_LANES: usize = LANES / 2;

macro_rules! on_both_halves {
    ($($name:ident($($operand:ident),+; $($other:ident: $type:ty)?) = $op:ident $(::<$n:ident>)?;)*) => {$(
        /// The intrinsic on both halves.
        #[inline]
        #[target_feature(enable = "avx2,fma,f16c")]
        pub fn $name$(<const $n: i32>)?($($operand: Wide,)+ $($other: $type)?) -> Wide {
            [$op$(::<$n>)?($($operand[0],)+ $($other)?), $op$(::<$n>)?($($operand[1],)+ $($other)?)]
        }
    )*};
}

on_both_halves! {
    and(a, b;) = _mm256_and_si256;
    or(a, b;) = _mm256_or_si256;
    add16(a, b;) = _mm256_add_epi16;
    add32(a, b;) = _mm256_add_epi32;
    sub16(a, b;) = _mm256_sub_epi16;
    multiply32(a, b;) = _mm256_mullo_epi32;
    shift_left(a; by: __m128i) = _mm256_sll_epi16;
    shift_right(a; by: __m128i) = _mm256_srl_epi16;
    left(a;) = _mm256_slli_epi16::<N>;
    right(a;) = _mm256_srli_epi16::<N>;
    right_signed(a;) = _mm256_srai_epi16::<N>;
}

/// A word in every lane.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub fn splat(word: i16) -> Wide {
    [_mm256_set1_epi16(word); 2]
}

/// 64 bytes.
///
/// # Safety
/// Needs AVX2; `from` points to as many.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn load(from: *const u8) -> Wide {
    // SAFETY: the two halves of what the caller points to.
    unsafe { [_mm256_loadu_si256(from.cast()), _mm256_loadu_si256(from.add(32).cast())] }
}

/// Hands the sixteen pair vectors of a record to `take(pair, words)`, offset not subtracted.
///
/// # Safety
/// Needs AVX2; `quants` points to `Format::ALL[F].quants().size_bytes()` bytes.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub unsafe fn for_each_pair<const F: usize>(quants: *const u8, mut take: impl FnMut(usize, Wide)) {
    // SAFETY: the loads stay inside the record.
    let vector = |index: usize| unsafe { load(quants.add(64 * index)) };
    match Format::ALL[F].quants() {
        Quants::QuadNibble | Quants::QuadByte => unreachable!("quads are multiplied with 8-bit activations"),
        Quants::Five => {
            fives!(vector, take, [and, or, add16, shift_left, shift_right, right_signed, splat])
        }
        Quants::Six => {
            sixes!(vector, take, [and, or, add16, shift_left, shift_right, right_signed, splat])
        }
        Quants::Thirteen => {
            thirteen!(vector, take, [and, or, add16, shift_left, shift_right, right_signed, splat])
        }
        Quants::Byte => {
            for s in 0..PAIRS / 2 {
                let bytes = vector(s);
                take(2 * s, right_signed::<8>(left::<8>(bytes)));
                take(2 * s + 1, right_signed::<8>(bytes));
            }
        }
        Quants::Nibble => {
            let mask = splat(15);
            for s in 0..4 {
                let words = vector(s);
                let [a, b, c, d] = nibble_pairs(s);
                take(a, and(words, mask));
                take(b, and(right::<4>(words), mask));
                take(c, and(right::<8>(words), mask));
                take(d, right::<12>(words));
            }
        }
    }
}
