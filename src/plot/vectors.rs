//! Drawings of vectors in the plane.

use super::error::PlotError;
use super::figure::{Arrow, VectorPanel, Vectors};
use super::frame::{LABEL_SIZE, MARGIN, WIDTH, check_value, title};
use super::scene::{Anchor, Area, Dash, Label, Paint, Scene, Shape};
use super::text::{CAP_HEIGHT, Font};
use super::theme::MAX_SERIES;

/// Between two drawings.
const GUTTER: f64 = 28.0;
/// Length and half width of an arrow's head.
const HEAD: (f64, f64) = (11.0, 4.5);
const NOTE_LINE: f64 = 17.0;
/// Share of a drawing that is left free around its vectors, for their labels.
const ROOM: f64 = 0.16;

/// # Errors
/// [`PlotError::Empty`], [`PlotError::Value`] or [`PlotError::TooMany`].
pub fn scene(figure: &Vectors, font: &Font) -> Result<Scene, PlotError> {
    check(figure)?;
    let mut scene = Scene::new(WIDTH, 0.0, &figure.title);
    scene.description = description(figure);
    let top = title(&mut scene, font, &figure.title) + 8.0;
    let count = figure.panels.len() as f64;
    let width = (WIDTH - 2.0 * MARGIN - (count - 1.0) * GUTTER) / count;
    let (low, high) = bounds(figure);
    let spread = (high.0 - low.0).max(high.1 - low.1) * (1.0 + 2.0 * ROOM);
    let height = width * ((high.1 - low.1) * (1.0 + 2.0 * ROOM) / spread).clamp(0.4, 1.0);
    let center = ((low.0 + high.0) / 2.0, (low.1 + high.1) / 2.0);
    let mut bottom = top;
    for (index, panel) in figure.panels.iter().enumerate() {
        let left = MARGIN + index as f64 * (width + GUTTER);
        scene.label(Label::new((left, top + 14.0), panel.title.clone(), LABEL_SIZE + 1.0).bold());
        let area = Area { left, top: top + 26.0, width, height };
        Plane { area, center, unit: width / spread }.draw(&mut scene, font, panel);
        let mut y = area.bottom() + 6.0;
        for line in panel.notes.iter().flat_map(|note| font.wrap(note, LABEL_SIZE, width * 0.94)) {
            y += NOTE_LINE;
            scene.label(Label::new((left, y), line, LABEL_SIZE).paint(Paint::Muted));
        }
        bottom = bottom.max(y);
    }
    scene.height = bottom + MARGIN;
    Ok(scene)
}

fn check(figure: &Vectors) -> Result<(), PlotError> {
    let empty = |what| Err(PlotError::Empty { figure: figure.title.clone(), what });
    if figure.panels.is_empty() {
        return empty("drawings");
    }
    if figure.panels.iter().any(|panel| panel.arrows.is_empty()) {
        return empty("arrows in one of its drawings");
    }
    for panel in &figure.panels {
        for (index, arrow) in panel.arrows.iter().enumerate() {
            for value in [arrow.from.0, arrow.from.1, arrow.to.0, arrow.to.1] {
                check_value(&panel.title, index, value)?;
            }
            if arrow.group >= MAX_SERIES {
                return Err(PlotError::TooMany {
                    what: "groups of arrows",
                    max: MAX_SERIES,
                    found: arrow.group + 1,
                });
            }
        }
        panel.circle.map_or(Ok(()), |radius| check_value(&panel.title, 0, radius))?;
    }
    Ok(())
}

fn description(figure: &Vectors) -> String {
    let panels = figure.panels.iter().map(|panel| format!("{}: {}", panel.title, panel.notes.join(" ")));
    panels.collect::<Vec<_>>().join(" ")
}

/// Corners of the smallest upright rectangle around the origin, every arrow and every circle; never empty.
fn bounds(figure: &Vectors) -> ((f64, f64), (f64, f64)) {
    let arrows =
        figure.panels.iter().flat_map(|panel| &panel.arrows).flat_map(|arrow| [arrow.from, arrow.to]);
    let circles = figure.panels.iter().filter_map(|panel| panel.circle);
    let corners = circles.flat_map(|radius| [(-radius, -radius), (radius, radius)]);
    let grow = |((ax, ay), (bx, by)): ((f64, f64), (f64, f64)), (x, y): (f64, f64)| {
        ((x.min(ax), y.min(ay)), (x.max(bx), y.max(by)))
    };
    let (low, high) = arrows.chain(corners).fold(((0.0, 0.0), (0.0, 0.0)), grow);
    match low == high {
        true => ((-1.0, -1.0), (1.0, 1.0)),
        false => (low, high),
    }
}

struct Plane {
    area: Area,
    center: (f64, f64),
    /// Length of one unit on the figure.
    unit: f64,
}

impl Plane {
    fn at(&self, (x, y): (f64, f64)) -> (f64, f64) {
        let middle = (self.area.left + self.area.width / 2.0, self.area.top + self.area.height / 2.0);
        (middle.0 + (x - self.center.0) * self.unit, middle.1 - (y - self.center.1) * self.unit)
    }

    fn draw(&self, scene: &mut Scene, font: &Font, panel: &VectorPanel) {
        let origin = self.at((0.0, 0.0));
        scene.line((self.area.left, origin.1), (self.area.right(), origin.1), Paint::Grid, 1.0);
        scene.line((origin.0, self.area.top), (origin.0, self.area.bottom()), Paint::Grid, 1.0);
        if let Some(radius) = panel.circle {
            let radius = radius * self.unit;
            scene.shapes.push(Shape::Ring { center: origin, radius, paint: Paint::Frame, width: 1.0 });
        }
        for arrow in &panel.arrows {
            self.arrow(scene, arrow);
        }
        for arrow in &panel.arrows {
            self.name(scene, font, arrow);
        }
    }

    fn arrow(&self, scene: &mut Scene, arrow: &Arrow) {
        let (from, to) = (self.at(arrow.from), self.at(arrow.to));
        let (dx, dy) = (to.0 - from.0, to.1 - from.1);
        let length = dx.hypot(dy);
        let paint = Paint::Series(arrow.group);
        if length < 1e-6 {
            scene.shapes.push(Shape::Circle { center: to, radius: 2.5, fill: paint });
            return;
        }
        let (ux, uy) = (dx / length, dy / length);
        let size = if arrow.dashed { 0.75 } else { 1.0 };
        let (head, half) = ((HEAD.0 * size).min(length), HEAD.1 * size);
        let neck = (to.0 - ux * head, to.1 - uy * head);
        let (width, dash) = if arrow.dashed { (1.3, Dash::Dashed) } else { (2.2, Dash::Solid) };
        scene.shapes.push(Shape::Line { points: vec![from, neck], paint, width, dash });
        let points =
            vec![to, (neck.0 - uy * half, neck.1 + ux * half), (neck.0 + uy * half, neck.1 - ux * half)];
        scene.shapes.push(Shape::Polygon { points, fill: paint, opacity: 1.0 });
    }

    /// The label of an arrow, beyond its head and away from its line.
    fn name(&self, scene: &mut Scene, font: &Font, arrow: &Arrow) {
        if arrow.label.is_empty() {
            return;
        }
        let (from, to) = (self.at(arrow.from), self.at(arrow.to));
        let (dx, dy) = (to.0 - from.0, to.1 - from.1);
        let length = dx.hypot(dy).max(1e-6);
        let (ux, uy) = (dx / length, dy / length);
        let half = font.width(&arrow.label, LABEL_SIZE) / 2.0;
        let distance = 7.0 + ux.abs() * half + uy.abs() * LABEL_SIZE / 2.0;
        let at = (to.0 + ux * distance, to.1 + uy * distance + LABEL_SIZE * CAP_HEIGHT / 2.0);
        scene.label(Label::new(at, arrow.label.clone(), LABEL_SIZE).anchor(Anchor::Middle).rim());
    }
}
