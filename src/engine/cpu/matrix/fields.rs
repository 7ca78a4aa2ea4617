//! Integers of a width that does not divide 16: as many as fit lie in the words of a vector, the bits of the others in
//! what is left of the words.
//!
//! Which bits of a word are what, for the words of one output and one of its two inputs:
//!
//! - 5 bits, vector `v` of 5: bits 0 to 4 are pair `3v`, 6 to 10 pair `3v + 1`, 11 to 15 pair `3v + 2`; bit 5 is bit `v` of pair 15.
//! - 6 bits, vector `v` of 6: bits 0 to 5 are pair `2v`, 10 to 15 pair `2v + 1`; bits 6 to 9 of three vectors are two of
//!   the pairs from 12 on, lowest bits first.
//! - 13 bits, vector `v` of 13: bits 3 to 15 are pair `v`. Pair `13 + s` has its lowest bit in bit `s` of vector 12, and its bits from
//!   `1 + 3n` on in the lowest three of vector `4s + n`.

use super::format::{PAIRS, Quants};

/// The two words of vector `v` for the values of all pairs, of which the first lies in the low half. Values of 5 and 6 bits are not
/// negative; of 13 bits what is above them is ignored.
#[inline(always)]
pub fn stored_words(quants: Quants, v: usize, pairs: &[u32; PAIRS]) -> u32 {
    /// The same bits of both words.
    const fn both(mask: u32) -> u32 {
        mask | mask << 16
    }
    match quants {
        Quants::Five => {
            let last = (pairs[15] >> v & both(1)) << 5;
            pairs[3 * v] | last | pairs[3 * v + 1] << 6 | pairs[3 * v + 2] << 11
        }
        Quants::Six => {
            let first = 12 + v / 3 * 2;
            let rest = (pairs[first] | pairs[first + 1] << 6) >> (4 * (v % 3)) & both(15);
            pairs[2 * v] | rest << 6 | pairs[2 * v + 1] << 10
        }
        Quants::Thirteen => {
            let lowest = match v {
                12 => (0..3).fold(0, |all, s| all | (pairs[13 + s] & both(1)) << s),
                _ => pairs[13 + v / 4] >> (1 + 3 * (v % 4)) & both(7),
            };
            pairs[v] << 3 & both(0xfff8) | lowest
        }
        _ => unreachable!("widths that divide 16 have their own order"),
    }
}

/// The value of a pair, without its sign; `stored(v)` is the word of vector `v`. The inverse of [`stored_words`].
#[inline(always)]
pub fn value(quants: Quants, pair: usize, stored: impl Fn(usize) -> u16) -> u16 {
    match (quants, pair) {
        (Quants::Five, 15) => (0..5).fold(0, |all, v| all | (stored(v) >> 5 & 1) << v),
        (Quants::Five, _) => stored(pair / 3) >> [0, 6, 11][pair % 3] & 31,
        (Quants::Six, 12..) => {
            let first = (pair - 12) / 2 * 3;
            let both = (0..3).fold(0, |all, n| all | (stored(first + n) >> 6 & 15) << (4 * n));
            both >> (6 * (pair % 2)) & 63
        }
        (Quants::Six, _) => stored(pair / 2) >> [0, 10][pair % 2] & 63,
        (Quants::Thirteen, 13..) => {
            let lowest = stored(12) >> (pair - 13) & 1;
            (0..4).fold(lowest, |all, n| all | (stored(4 * (pair - 13) + n) & 7) << (1 + 3 * n))
        }
        (Quants::Thirteen, _) => stored(pair) >> 3,
        _ => unreachable!("widths that divide 16 have their own order"),
    }
}

/// Hands the sixteen pair vectors of [`Quants::Five`] to `$take(pair, words)`; `$vector(v)` loads one of the stored vectors. The list names
/// the instructions: and, or, addition and shifts (left, right, right with sign) of 16-bit words, and a word in all lanes.
#[cfg(target_arch = "x86_64")]
macro_rules! fives {
    ($vector:expr, $take:expr,
     [$and:ident, $or:ident, $add:ident, $left:ident, $right:ident, $signed:ident, $splat:ident]) => {{
        let (vector, mut take) = ($vector, $take);
        let (value, mut last) = ($splat(31), $splat(0));
        for v in (0..5).rev() {
            let words = vector(v);
            take(3 * v, $and(words, value));
            take(3 * v + 1, $and($right(words, _mm_cvtsi32_si128(6)), value));
            take(3 * v + 2, $right(words, _mm_cvtsi32_si128(11)));
            last = $or($add(last, last), $and(words, $splat(32)));
        }
        take(15, $right(last, _mm_cvtsi32_si128(5)));
    }};
}

/// As [`fives`], for [`Quants::Six`].
#[cfg(target_arch = "x86_64")]
macro_rules! sixes {
    ($vector:expr, $take:expr,
     [$and:ident, $or:ident, $add:ident, $left:ident, $right:ident, $signed:ident, $splat:ident]) => {{
        let (vector, mut take) = ($vector, $take);
        let value = $splat(63);
        for s in 0..2 {
            let mut words = [$splat(0); 3];
            for (n, words) in words.iter_mut().enumerate() {
                let v = 3 * s + n;
                *words = vector(v);
                take(2 * v, $and(*words, value));
                take(2 * v + 1, $right(*words, _mm_cvtsi32_si128(10)));
            }
            let low = $and($right(words[0], _mm_cvtsi32_si128(6)), $splat(15));
            let high = $right($and(words[1], $splat(3 << 6)), _mm_cvtsi32_si128(2));
            take(12 + 2 * s, $or(low, high));
            let low = $and($right(words[1], _mm_cvtsi32_si128(8)), $splat(3));
            let high = $right($and(words[2], $splat(15 << 6)), _mm_cvtsi32_si128(4));
            take(13 + 2 * s, $or(low, high));
        }
    }};
}

/// As [`fives`], for [`Quants::Thirteen`]; the values have signs.
#[cfg(target_arch = "x86_64")]
macro_rules! thirteen {
    ($vector:expr, $take:expr,
     [$and:ident, $or:ident, $add:ident, $left:ident, $right:ident, $signed:ident, $splat:ident]) => {{
        let (vector, mut take) = ($vector, $take);
        let last = vector(12);
        for s in 0..3 {
            let lowest = $and(last, $splat(1 << s));
            let mut rest = $left(lowest, _mm_cvtsi32_si128(3 - s as i32));
            for n in 0..4 {
                let words = vector(4 * s + n);
                take(4 * s + n, $signed::<3>(words));
                let bits = $and(words, $splat(7));
                rest = $or(rest, $left(bits, _mm_cvtsi32_si128(4 + 3 * n as i32)));
            }
            take(13 + s, $signed::<3>(rest));
        }
        take(12, $signed::<3>(last));
    }};
}
#[cfg(target_arch = "x86_64")]
pub(super) use {fives, sixes, thirteen};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_come_back_from_their_words() {
        for (quants, vectors, bits) in [(Quants::Five, 5, 5), (Quants::Six, 6, 6), (Quants::Thirteen, 13, 13)]
        {
            assert_eq!(quants.size_bytes(), vectors * 64);
            for round in 0..200u32 {
                let mask = (1 << bits) - 1;
                let original: [u32; PAIRS] = std::array::from_fn(|pair| {
                    ((round * 2557) ^ (pair as u32).wrapping_mul(0x9e37_79b9)) & (mask | mask << 16)
                });
                let words: Vec<u32> = (0..vectors).map(|v| stored_words(quants, v, &original)).collect();
                for (pair, original) in original.into_iter().enumerate() {
                    let values = [0, 16].map(|half| value(quants, pair, |v| (words[v] >> half) as u16));
                    assert_eq!(values, [0, 16].map(|half| (original >> half) as u16 & mask as u16), "{pair}");
                }
            }
        }
    }
}
