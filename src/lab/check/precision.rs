//! How well number formats hold an angle at a distant position.

use half::bf16;

use super::{Finding, HEAD_DIM};
use crate::rope::{Frequencies, Table, base_frequencies};

/// The last of 2^20 positions.
const POSITION: usize = (1 << 20) - 1;
const THETA: f64 = 10_000.0;

pub fn findings() -> Vec<Finding> {
    let inv_freq = base_frequencies(THETA, HEAD_DIM);
    let largest = |error: &dyn Fn(f64) -> f64| inv_freq.iter().map(|f| error(*f).abs()).fold(0.0, f64::max);
    let exact = |f: f64| POSITION as f64 * f;
    // The product's own rounding, exactly, and one unit in the last place of the frequency.
    let in_f64 =
        largest(&|f| POSITION as f64 * f * f64::EPSILON + (POSITION as f64).mul_add(f, -exact(f)).abs());
    let in_f32 = largest(&|f| f64::from(POSITION as f32 * f as f32) - exact(f));
    let in_bf16 = largest(&|f| {
        let product = bf16::from_f64(POSITION as f64).to_f64() * bf16::from_f64(f).to_f64();
        bf16::from_f64(product).to_f64() - exact(f)
    });
    vec![
        Finding::identity(
            "angles/f64",
            in_f64,
            1e-9,
            "angles at position 1,048,575 multiplied out in f64: largest error in radians",
        ),
        Finding::identity(
            "angles/table",
            table_error(&inv_freq),
            1e-6,
            "the tables of this program there (f64 angles, f32 cos and sin): largest error in radians",
        ),
        Finding::mistake(
            "angles/f32",
            in_f32,
            1e-2,
            "the same angles multiplied out in f32: largest error in radians",
        ),
        Finding::mistake(
            "angles/bf16",
            in_bf16,
            1.0,
            "the same in bf16: largest error in radians, many turns",
        ),
        Finding::mistake(
            "positions/bf16",
            merged_positions(4096),
            0.5,
            "share of positions 0 to 4095 that bf16 cannot tell from the one before; the first is 257",
        ),
    ]
}

/// Largest angle between the table's row and the f64 one.
fn table_error(inv_freq: &[f64]) -> f64 {
    let frequencies = Frequencies { inv_freq: inv_freq.to_vec(), attention_factor: 1.0 };
    let table = Table::new(&frequencies, POSITION..POSITION + 1);
    let error = |((cos, sin), f): ((&f32, &f32), &f64)| {
        let (s, c) = (POSITION as f64 * f).sin_cos();
        let (cos, sin) = (f64::from(*cos), f64::from(*sin));
        (sin * c - cos * s).atan2(cos * c + sin * s).abs()
    };
    table.cos().iter().zip(table.sin()).zip(inv_freq).map(error).fold(0.0, f64::max)
}

fn merged_positions(count: usize) -> f64 {
    let held = |position: usize| bf16::from_f64(position as f64);
    (1..count).filter(|position| held(*position) == held(position - 1)).count() as f64 / count as f64
}
