//! Rotary embedding of query and key rows.

use super::lanes::{Lanes, on_lanes};
use crate::rope::{Pairing, Table};

/// Where the heads lie in a buffer of rows.
#[derive(Clone, Copy, Debug)]
pub struct HeadLayout {
    /// Values from one token to the next.
    pub row: usize,
    /// Heads at the start of each row.
    pub n_heads: usize,
    pub head_dim: usize,
    pub pairing: Pairing,
}

/// Turns the heads of consecutive tokens in place: token `i` by row `first + i` of `table`.
///
/// x: `[tokens, row]`. A pair `(a, b)` becomes `(a cos - b sin, a sin + b cos)`; lanes after the rotated ones, and
/// values after the heads, pass through.
///
/// # Panics
/// When the heads do not fit a row, the pairs do not fit a head, or the table has too few rows.
pub fn rotate(isa: super::isa::Isa, x: &mut [f32], layout: HeadLayout, table: &Table, first: usize) {
    assert!(layout.n_heads * layout.head_dim <= layout.row, "{layout:?}");
    assert!(2 * table.pairs() <= layout.head_dim, "{} pairs in {layout:?}", table.pairs());
    if x.is_empty() || table.pairs() == 0 {
        return;
    }
    assert!(x.len().is_multiple_of(layout.row), "{} values in rows of {}", x.len(), layout.row);
    assert!(first + x.len() / layout.row <= table.positions().len(), "rows of the table");
    rotate_rows(isa, x, layout, table, first);
}

on_lanes! {
    fn rotate_rows = rotate_on(x: &mut [f32], layout: HeadLayout, table: &Table, first: usize)
}

/// # Safety
/// The instruction set of `L`; sizes as [`rotate`] checks them.
#[inline(always)]
unsafe fn rotate_on<L: Lanes>(x: &mut [f32], layout: HeadLayout, table: &Table, first: usize) {
    let pairs = table.pairs();
    for (token, row) in x.chunks_exact_mut(layout.row).enumerate() {
        let at = (first + token) * pairs;
        let (cos, sin) = (&table.cos()[at..at + pairs], &table.sin()[at..at + pairs]);
        for head in row[..layout.n_heads * layout.head_dim].chunks_exact_mut(layout.head_dim) {
            // SAFETY: two lanes per pair fit a head; the instruction set is the caller's promise.
            unsafe {
                match layout.pairing {
                    Pairing::HalfSplit => turn_halves::<L>(head.as_mut_ptr(), cos, sin),
                    Pairing::Adjacent => turn_neighbours::<L>(head.as_mut_ptr(), cos, sin),
                }
            }
        }
    }
}

/// # Safety
/// `head` has `2 * cos.len()` values; `sin` is as long as `cos`; the instruction set of `L`.
#[inline(always)]
unsafe fn turn_halves<L: Lanes>(head: *mut f32, cos: &[f32], sin: &[f32]) {
    let pairs = cos.len();
    let whole = pairs / L::N * L::N;
    let (a, b, cos, sin) = (head, head.wrapping_add(pairs), cos.as_ptr(), sin.as_ptr());
    // SAFETY: all accesses are below `pairs`.
    unsafe {
        for at in (0..whole).step_by(L::N) {
            let (x, y) = (L::load(a.add(at)), L::load(b.add(at)));
            let (c, s) = (L::load(cos.add(at)), L::load(sin.add(at)));
            L::store(a.add(at), L::sub(L::mul(x, c), L::mul(y, s)));
            L::store(b.add(at), L::mul_add(y, c, L::mul(x, s)));
        }
        if whole < pairs {
            let (at, n) = (whole, pairs - whole);
            let (x, y) = (L::load_first(a.add(at), n), L::load_first(b.add(at), n));
            let (c, s) = (L::load_first(cos.add(at), n), L::load_first(sin.add(at), n));
            L::store_first(a.add(at), L::sub(L::mul(x, c), L::mul(y, s)), n);
            L::store_first(b.add(at), L::mul_add(y, c, L::mul(x, s)), n);
        }
    }
}

/// # Safety
/// As [`turn_halves`].
#[inline(always)]
unsafe fn turn_neighbours<L: Lanes>(head: *mut f32, cos: &[f32], sin: &[f32]) {
    let step = L::N / 2;
    let whole = cos.len() / step * step;
    // SAFETY: all accesses are below `2 * cos.len()` and `cos.len()`.
    unsafe {
        let signs = L::load_pair([-1.0f32, 1.0].as_ptr());
        for at in (0..whole).step_by(step) {
            let x = L::load(head.add(2 * at));
            let c = L::load_doubled(cos.as_ptr().add(at));
            let s = L::mul(L::load_doubled(sin.as_ptr().add(at)), signs);
            L::store(head.add(2 * at), L::mul_add(x, c, L::mul(L::swap_pairs(x), s)));
        }
        for pair in whole..cos.len() {
            let (x, y) = (*head.add(2 * pair), *head.add(2 * pair + 1));
            *head.add(2 * pair) = x * cos[pair] - y * sin[pair];
            *head.add(2 * pair + 1) = x * sin[pair] + y * cos[pair];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::cpu::isa::Isa;
    use crate::rope::{Frequencies, rotate as twin};

    #[test]
    fn every_width_equals_its_twin() {
        for isa in Isa::ALL_AVAILABLE() {
            for pairs in 0..40usize {
                for (rest, pairing) in [
                    (0, Pairing::HalfSplit),
                    (3, Pairing::HalfSplit),
                    (0, Pairing::Adjacent),
                    (5, Pairing::Adjacent),
                ] {
                    let head_dim = (2 * pairs + rest).max(1);
                    let inv_freq = (0..pairs).map(|i| 0.9f64.powi(i as i32)).collect();
                    let table = Table::new(&Frequencies { inv_freq, attention_factor: 1.2 }, 10..20);
                    let layout = HeadLayout { row: 2 * head_dim + 3, n_heads: 2, head_dim, pairing };
                    let x: Vec<f32> = (0..4 * layout.row).map(|i| (i * 31 % 67) as f32 / 8.0 - 4.0).collect();
                    let mut expected = x.clone();
                    for (token, row) in expected.chunks_mut(layout.row).enumerate() {
                        twin(&mut row[..2 * head_dim], head_dim, &table, 3 + token, pairing).unwrap();
                    }
                    let mut found = x.clone();
                    rotate(isa, &mut found, layout, &table, 3);
                    let close = |(a, b): (&f32, &f32)| (a - b).abs() <= 2e-6;
                    assert!(found.iter().zip(&expected).all(close), "{isa} {pairs} {pairing:?}");
                    let passes = |(i, _): &(usize, &f32)| {
                        let lane = i % layout.row;
                        lane >= 2 * head_dim || lane % head_dim >= 2 * pairs
                    };
                    assert!(
                        found.iter().enumerate().filter(passes).all(|(i, v)| *v == x[i]),
                        "{isa} {pairs}"
                    );
                }
            }
        }
    }
}
