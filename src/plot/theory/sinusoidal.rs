//! The absolute encoding that rotation replaced.

use crate::plot::figure::{Figure, HeatMap, Palette};
use crate::rope::base_frequencies;

/// Sinusoidal encodings: lane `2i` of position `p` is sin(p f_i), lane `2i + 1` is cos(p f_i), with
/// `f_i = theta^(-2i / width)`. `width` lanes in rows, `positions` in columns.
///
/// Source: Vaswani et al. 2017, arXiv:1706.03762, section 3.5. The caller has checked `theta` and `width`.
pub fn sinusoidal(theta: f64, width: usize, positions: usize) -> Figure {
    let frequencies = base_frequencies(theta, width);
    let lane = |lane: usize| {
        let value = move |angle: f64| if lane.is_multiple_of(2) { angle.sin() } else { angle.cos() };
        let inv_freq = frequencies[lane / 2];
        (0..positions).map(|position| Some(value(position as f64 * inv_freq))).collect()
    };
    Figure::HeatMap(HeatMap {
        title: format!("Sinusoidal encodings of {positions} positions in {width} lanes"),
        x_label: "position (tokens)".into(),
        y_label: "lane: sin and cos of each pair".into(),
        columns: (0..positions).map(|position| position.to_string()).collect(),
        rows: (0..frequencies.len() * 2).map(|lane| lane.to_string()).collect(),
        cells: (0..frequencies.len() * 2).map(lane).collect(),
        value_label: "value".into(),
        range: Some((-1.0, 1.0)),
        palette: Palette::Diverging,
        show_values: false,
    })
}
