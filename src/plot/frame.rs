//! What diagrams have in common: sizes, the title, marks above the drawing, ticks below it.

use super::axis::{self, Scaled};
use super::error::PlotError;
use super::figure::{AxisScale, Mark};
use super::scene::{Anchor, Area, Label, Paint, Scene};
use super::text::Font;

/// Width of every figure; text of the sizes below is readable when a page shows it at this width or a little less.
pub const WIDTH: f64 = 800.0;
pub const MARGIN: f64 = 20.0;
pub const TITLE_SIZE: f64 = 17.0;
pub const LABEL_SIZE: f64 = 13.0;
pub const TICK_SIZE: f64 = 12.5;
/// A bold face is this much wider than the regular one that is measured, and a reader's font may differ.
const TITLE_SLACK: f64 = 1.12;
/// A reader's font may be wider than the one that is measured.
pub const SLACK: f64 = 1.06;
/// Size of coordinates that are believed; beyond it, differences leave the range of `f64`.
const LARGEST: f64 = 1e100;

/// Refuses what has no place on an axis.
pub fn check_value(series: &str, index: usize, found: f64) -> Result<(), PlotError> {
    if found.is_finite() && found.abs() < LARGEST {
        return Ok(());
    }
    Err(PlotError::Value { series: series.to_string(), index, found })
}

/// Draws the title and returns the height below it.
pub fn title(scene: &mut Scene, font: &Font, text: &str) -> f64 {
    let mut y = MARGIN - 8.0;
    for line in font.wrap(text, TITLE_SIZE * TITLE_SLACK, WIDTH - 2.0 * MARGIN) {
        y += 22.0;
        scene.label(Label::new((MARGIN, y), line, TITLE_SIZE).bold());
    }
    y + 8.0
}

/// The labels of marks above a drawing, in as many lines as keep them apart.
pub struct MarkStrip {
    /// Start and line of each label; line 0 is next to the drawing.
    places: Vec<(f64, usize)>,
    lines: usize,
}

const MARK_LINE: f64 = 17.0;

impl MarkStrip {
    /// `at`: places of the marks between `left` and `right`.
    ///
    /// A label stands over its mark, a little to the right of it. The rightmost mark comes first and next to the drawing;
    /// one further left whose label would touch it goes above it, so that no line crosses a label.
    pub fn new(font: &Font, marks: &[Mark], at: &[f64], left: f64, right: f64) -> Self {
        let mut order: Vec<usize> = (0..marks.len()).collect();
        order.sort_by(|a, b| at[*b].total_cmp(&at[*a]));
        // Where the last label of each line starts.
        let mut lines: Vec<f64> = Vec::new();
        let mut places = vec![(0.0, 0); marks.len()];
        for index in order {
            let width = font.width(&marks[index].label, LABEL_SIZE) * SLACK;
            let start = (at[index] - 6.0).min(right - width).max(left);
            let end = start.max(at[index]) + width + 10.0;
            let line = lines.iter().position(|taken| end <= *taken).unwrap_or(lines.len());
            if line == lines.len() {
                lines.push(0.0);
            }
            lines[line] = start;
            places[index] = (start, line);
        }
        Self { places, lines: lines.len() }
    }

    pub fn height(&self) -> f64 {
        if self.lines == 0 { 0.0 } else { self.lines as f64 * MARK_LINE + 6.0 }
    }

    /// Draws the lines through `area` and the labels above it.
    pub fn draw(&self, scene: &mut Scene, marks: &[Mark], at: &[f64], area: Area, paint: Paint) {
        for ((mark, x), (start, line)) in marks.iter().zip(at).zip(&self.places) {
            let baseline = area.top - 8.0 - *line as f64 * MARK_LINE;
            scene.dashed((*x, baseline + 4.0), (*x, area.bottom()), paint, 1.5);
            scene.label(Label::new((*start, baseline), mark.label.clone(), LABEL_SIZE).rim());
        }
    }
}

/// How a value of an axis is written in full.
pub fn written(scale: AxisScale, value: f64) -> String {
    if scale == AxisScale::Log2 { axis::length(value) } else { axis::number(value) }
}

/// Ticks of a horizontal axis that leave each other room.
pub fn horizontal_ticks(font: &Font, axis: &Scaled, width: f64) -> Vec<(f64, String)> {
    let mut most = 10;
    loop {
        let ticks = axis.ticks(most);
        let widest = ticks.iter().map(|(_, text)| font.width(text, TICK_SIZE)).fold(0.0, f64::max);
        let places: Vec<f64> = ticks.iter().map(|(value, _)| axis.share(*value) * width).collect();
        let apart = places.windows(2).all(|pair| pair[1] - pair[0] >= widest * SLACK + 10.0);
        if apart || most <= 2 {
            return ticks;
        }
        most -= 1;
    }
}

/// The horizontal axis below `area`: ticks, lines of the grid, the label. Returns the height used.
pub fn horizontal_axis(scene: &mut Scene, font: &Font, axis: &Scaled, label: &str, area: Area) -> f64 {
    for (value, text) in horizontal_ticks(font, axis, area.width) {
        let x = area.left + axis.share(value) * area.width;
        scene.line((x, area.top), (x, area.bottom()), Paint::Grid, 1.0);
        scene.line((x, area.bottom()), (x, area.bottom() + 4.0), Paint::Frame, 1.0);
        let tick = Label::new((x, area.bottom() + 18.0), text, TICK_SIZE);
        scene.label(tick.anchor(Anchor::Middle).paint(Paint::Muted));
    }
    scene.line((area.left, area.bottom()), (area.right(), area.bottom()), Paint::Frame, 1.0);
    let middle = area.left + area.width / 2.0;
    scene.label(Label::new((middle, area.bottom() + 38.0), label, LABEL_SIZE).anchor(Anchor::Middle));
    52.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_of_marks_touch_neither_each_other_nor_a_line() {
        let font = Font::new().unwrap();
        let marks: Vec<Mark> = ["trained length", "critical", "limit", "target length"]
            .map(|label| Mark { at: 0.0, label: label.into() })
            .to_vec();
        let at = [300.0, 310.0, 380.0, 590.0];
        let strip = MarkStrip::new(&font, &marks, &at, 60.0, 600.0);
        let spans: Vec<(f64, f64, usize)> = (0..4)
            .map(|i| {
                (
                    strip.places[i].0,
                    strip.places[i].0 + font.width(&marks[i].label, LABEL_SIZE),
                    strip.places[i].1,
                )
            })
            .collect();
        for (i, (start, end, line)) in spans.iter().enumerate() {
            assert!(*start >= 60.0 && *end <= 600.0);
            for (j, other) in spans.iter().enumerate().filter(|(j, _)| *j != i) {
                assert!(*line != other.2 || *end < other.0 || *start > other.1, "{i} touches {j}");
                // The line of a mark runs below its own label.
                let crosses = other.2 > *line && (*start..=*end).contains(&at[j]);
                assert!(!crosses, "the line of {j} crosses the label of {i}");
            }
        }
        assert!(strip.height() < 4.0 * MARK_LINE);
    }
}
