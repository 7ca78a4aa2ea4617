//! The rotation itself, one value at a time: what every kernel is compared with.

use super::base::Frequencies;
use super::error::RopeError;
use super::spec::Pairing;
use super::table::Table;

/// The two lanes of pair `pair` among `pairs`.
fn lanes(pairing: Pairing, pair: usize, pairs: usize) -> (usize, usize) {
    match pairing {
        Pairing::Adjacent => (2 * pair, 2 * pair + 1),
        Pairing::HalfSplit => (pair, pair + pairs),
    }
}

/// Checks that `found` values are whole heads of `head_dim`, each wide enough for `pairs` pairs.
fn check_shape(found: usize, head_dim: usize, pairs: usize) -> Result<(), RopeError> {
    let whole = head_dim > 0 && found.is_multiple_of(head_dim);
    if whole && 2 * pairs <= head_dim {
        return Ok(());
    }
    Err(RopeError::VectorLength { found, head_dim, rotary_dim: 2 * pairs })
}

/// Rotates `x: [heads, head_dim]` in place by row `row` of `table`; lanes past the rotated ones pass through.
///
/// A pair `(a, b)` becomes `(a cos - b sin, a sin + b cos)`.
///
/// # Errors
/// [`RopeError::Row`] for a row outside the table, [`RopeError::VectorLength`] when `x` is not whole heads.
pub fn rotate(
    x: &mut [f32],
    head_dim: usize,
    table: &Table,
    row: usize,
    pairing: Pairing,
) -> Result<(), RopeError> {
    let pairs = table.pairs();
    check_shape(x.len(), head_dim, pairs)?;
    let (cos, sin) = table.row(row).ok_or(RopeError::Row { row, rows: table.positions().len() })?;
    for head in x.chunks_exact_mut(head_dim) {
        for pair in 0..pairs {
            let (i, j) = lanes(pairing, pair, pairs);
            let (a, b) = (head[i], head[j]);
            head[i] = a * cos[pair] - b * sin[pair];
            head[j] = a * sin[pair] + b * cos[pair];
        }
    }
    Ok(())
}

/// As [`rotate`], in `f64` and without a table: `x: [heads, head_dim]` at `position` tokens from the start.
///
/// # Errors
/// [`RopeError::VectorLength`] when `x` is not whole heads.
pub fn rotate_f64(
    x: &mut [f64],
    head_dim: usize,
    frequencies: &Frequencies,
    position: usize,
    pairing: Pairing,
) -> Result<(), RopeError> {
    let pairs = frequencies.inv_freq.len();
    check_shape(x.len(), head_dim, pairs)?;
    let m = frequencies.attention_factor;
    for head in x.chunks_exact_mut(head_dim) {
        for (pair, inv_freq) in frequencies.inv_freq.iter().enumerate() {
            let (sin, cos) = (position as f64 * inv_freq).sin_cos();
            let (i, j) = lanes(pairing, pair, pairs);
            let (a, b) = (head[i], head[j]);
            head[i] = m * (a * cos - b * sin);
            head[j] = m * (a * sin + b * cos);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::f64::consts::FRAC_PI_2;

    /// Both pairs turn a quarter per token.
    fn quarter() -> Frequencies {
        Frequencies { inv_freq: vec![FRAC_PI_2, FRAC_PI_2], attention_factor: 1.0 }
    }

    fn turned(pairing: Pairing) -> Vec<f32> {
        let mut x = [1.0, 2.0, 3.0, 4.0, 9.0, 9.0];
        rotate(&mut x, 6, &Table::new(&quarter(), 0..2), 1, pairing).unwrap();
        x.iter().map(|v| (v * 1e4).round() / 1e4).collect()
    }

    #[test]
    fn adjacent_lanes_turn_together() {
        assert_eq!(turned(Pairing::Adjacent), [-2.0, 1.0, -4.0, 3.0, 9.0, 9.0]);
    }

    #[test]
    fn halves_of_the_rotated_part_turn_together() {
        assert_eq!(turned(Pairing::HalfSplit), [-3.0, -4.0, 1.0, 2.0, 9.0, 9.0]);
    }

    #[test]
    fn d039_the_magnitude_enters_a_score_squared_and_once() {
        let f = Frequencies { attention_factor: 1.5, ..quarter() };
        let (mut q, mut k) = ([1.0, 2.0, 3.0, 4.0], [0.5, -1.0, 2.0, 0.25]);
        let plain: f64 = q.iter().zip(&k).map(|(a, b)| a * b).sum();
        rotate_f64(&mut q, 4, &f, 7, Pairing::HalfSplit).unwrap();
        rotate_f64(&mut k, 4, &f, 7, Pairing::HalfSplit).unwrap();
        let score: f64 = q.iter().zip(&k).map(|(a, b)| a * b).sum();
        assert!((score - 2.25 * plain).abs() < 1e-12);
    }

    #[test]
    fn shapes_and_rows_are_checked() {
        let table = Table::new(&quarter(), 0..2);
        let mut x = [0.0; 6];
        assert_eq!(rotate(&mut x, 6, &table, 2, Pairing::Adjacent), Err(RopeError::Row { row: 2, rows: 2 }));
        let error = RopeError::VectorLength { found: 6, head_dim: 4, rotary_dim: 4 };
        assert_eq!(rotate(&mut x, 4, &table, 0, Pairing::Adjacent), Err(error));
        assert!(rotate(&mut x, 0, &table, 0, Pairing::Adjacent).is_err());
        assert!(rotate(&mut x, 3, &table, 0, Pairing::Adjacent).is_err());
        assert!(rotate_f64(&mut [0.0; 3], 3, &quarter(), 0, Pairing::Adjacent).is_err());
    }
}
