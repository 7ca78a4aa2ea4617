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
    /// Middle and line of each label.
    places: Vec<(f64, usize)>,
    lines: usize,
}

const MARK_LINE: f64 = 16.0;

impl MarkStrip {
    /// `at`: places of the marks between `left` and `right`.
    pub fn new(font: &Font, marks: &[Mark], at: &[f64], left: f64, right: f64) -> Self {
        let mut lines: Vec<Vec<(f64, f64)>> = Vec::new();
        let mut places = Vec::new();
        for (mark, at) in marks.iter().zip(at) {
            let half = font.width(&mark.label, LABEL_SIZE) * SLACK / 2.0;
            let middle = at.min(right - half).max(left + half);
            let (from, to) = (middle - half - 6.0, middle + half + 6.0);
            let free = |line: &Vec<(f64, f64)>| line.iter().all(|(start, end)| to <= *start || from >= *end);
            let line = lines.iter().position(free).unwrap_or(lines.len());
            if line == lines.len() {
                lines.push(Vec::new());
            }
            lines[line].push((from, to));
            places.push((middle, line));
        }
        Self { places, lines: lines.len() }
    }

    pub fn height(&self) -> f64 {
        if self.lines == 0 { 0.0 } else { self.lines as f64 * MARK_LINE + 6.0 }
    }

    /// Draws the lines through `area` and the labels above it.
    pub fn draw(&self, scene: &mut Scene, marks: &[Mark], at: &[f64], area: Area, paint: Paint) {
        for ((mark, x), (middle, line)) in marks.iter().zip(at).zip(&self.places) {
            let baseline = area.top - 8.0 - (self.lines - 1 - line) as f64 * MARK_LINE;
            scene.dashed((*x, baseline + 4.0), (*x, area.bottom()), paint, 1.5);
            let label = Label::new((*middle, baseline), mark.label.clone(), LABEL_SIZE);
            scene.label(label.anchor(Anchor::Middle).rim());
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
