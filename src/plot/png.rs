//! A scene as PNG.

use tiny_skia::{
    FillRule, LineJoin, Paint as Brush, Path, PathBuilder, Pixmap, Rect, Stroke, StrokeDash, Transform,
};

use super::error::PlotError;
use super::scene::{Anchor, Area, Dash, Label, Paint, Scene, Shape};
use super::text::{Font, GlyphSink};
use super::theme::Theme;

/// Points per unit of the figure, so that text is sharp where pages show the figure at its own width.
const SCALE: f64 = 2.0;
/// Width of the line around letters that makes them bold, as a share of the size.
const BOLD: f64 = 0.045;

/// The drawing at [`SCALE`] points a unit, on the ground of `theme`.
///
/// # Errors
/// [`PlotError::Size`] when the figure is too large for an image.
pub fn write(scene: &Scene, font: &Font, theme: Theme) -> Result<Vec<u8>, PlotError> {
    let (width, height) = ((scene.width * SCALE).ceil() as u32, (scene.height * SCALE).ceil() as u32);
    let mut pixmap = Pixmap::new(width, height).ok_or(PlotError::Size { width, height })?;
    let [r, g, b] = theme.rgb(Paint::Surface);
    pixmap.fill(tiny_skia::Color::from_rgba8(r, g, b, 255));
    let mut canvas = Canvas { pixmap, font, theme };
    for shape in &scene.shapes {
        canvas.shape(shape);
    }
    canvas.pixmap.encode_png().map_err(|error| PlotError::Png(error.to_string()))
}

struct Canvas<'a> {
    pixmap: Pixmap,
    font: &'a Font,
    theme: Theme,
}

impl Canvas<'_> {
    fn brush(&self, paint: Paint, opacity: f64) -> Brush<'static> {
        let [r, g, b] = self.theme.rgb(paint);
        let mut brush = Brush { anti_alias: true, ..Brush::default() };
        brush.set_color_rgba8(r, g, b, (opacity * 255.0).round() as u8);
        brush
    }

    fn scale() -> Transform {
        Transform::from_scale(SCALE as f32, SCALE as f32)
    }

    fn fill(&mut self, path: Option<Path>, paint: Paint, opacity: f64) {
        let brush = self.brush(paint, opacity);
        // A path without area has nothing to fill.
        if let Some(path) = path {
            self.pixmap.fill_path(&path, &brush, FillRule::Winding, Self::scale(), None);
        }
    }

    fn stroke(&mut self, path: Option<Path>, paint: Paint, width: f64, dash: Dash) {
        let brush = self.brush(paint, 1.0);
        let dash = StrokeDash::new(dash.lengths().to_vec(), 0.0);
        let stroke = Stroke { width: width as f32, line_join: LineJoin::Round, dash, ..Stroke::default() };
        if let Some(path) = path {
            self.pixmap.stroke_path(&path, &brush, &stroke, Self::scale(), None);
        }
    }

    fn shape(&mut self, shape: &Shape) {
        match shape {
            Shape::Cells { areas, fill } => areas.iter().for_each(|area| self.cell(area, *fill)),
            Shape::Line { points, paint, width, dash } => {
                self.stroke(polyline(points, false), *paint, *width, *dash);
            }
            Shape::Polygon { points, fill, opacity } => self.fill(polyline(points, true), *fill, *opacity),
            Shape::Circle { center, radius, fill } => self.fill(circle(*center, *radius), *fill, 1.0),
            Shape::Ring { center, radius, paint, width } => {
                self.stroke(circle(*center, *radius), *paint, *width, Dash::Solid);
            }
            Shape::Label(label) => self.label(label),
        }
    }

    /// Edges go to whole points, the same for both neighbours.
    fn cell(&mut self, area: &Area, fill: Paint) {
        let point = |place: f64| (place * SCALE).round() as f32;
        let (left, top) = (point(area.left), point(area.top));
        let brush = self.brush(fill, 1.0);
        if let Some(rect) = Rect::from_ltrb(left, top, point(area.right()), point(area.bottom())) {
            self.pixmap.fill_rect(rect, &brush, Transform::identity(), None);
        }
    }

    fn label(&mut self, label: &Label) {
        let width = self.font.width(&label.text, label.size);
        let start = match label.anchor {
            Anchor::Start => 0.0,
            Anchor::Middle => -width / 2.0,
            Anchor::End => -width,
        };
        let mut sink = Outline(PathBuilder::new());
        self.font.outline(&label.text, &mut sink);
        let Some(path) = sink.0.finish() else { return };
        let transform = Self::scale()
            .pre_translate(label.at.0 as f32, label.at.1 as f32)
            .pre_rotate(label.turn as f32)
            .pre_translate(start as f32, 0.0)
            .pre_scale(label.size as f32, -label.size as f32);
        let ems =
            |width: f64| Stroke { width: width as f32, line_join: LineJoin::Round, ..Stroke::default() };
        if label.rim {
            let brush = self.brush(Paint::Surface, 1.0);
            self.pixmap.stroke_path(&path, &brush, &ems(3.0 / label.size), transform, None);
        }
        let brush = self.brush(label.paint, 1.0);
        self.pixmap.fill_path(&path, &brush, FillRule::Winding, transform, None);
        if label.bold {
            self.pixmap.stroke_path(&path, &brush, &ems(BOLD), transform, None);
        }
    }
}

fn polyline(points: &[(f64, f64)], close: bool) -> Option<Path> {
    let mut builder = PathBuilder::new();
    for (index, &(x, y)) in points.iter().enumerate() {
        match index {
            0 => builder.move_to(x as f32, y as f32),
            _ => builder.line_to(x as f32, y as f32),
        }
    }
    if close {
        builder.close();
    }
    builder.finish()
}

fn circle((x, y): (f64, f64), radius: f64) -> Option<Path> {
    PathBuilder::from_circle(x as f32, y as f32, radius as f32)
}

/// Outlines of letters as a path.
struct Outline(PathBuilder);

impl GlyphSink for Outline {
    fn move_to(&mut self, x: f64, y: f64) {
        self.0.move_to(x as f32, y as f32);
    }

    fn line_to(&mut self, x: f64, y: f64) {
        self.0.line_to(x as f32, y as f32);
    }

    fn quad_to(&mut self, control: (f64, f64), x: f64, y: f64) {
        self.0.quad_to(control.0 as f32, control.1 as f32, x as f32, y as f32);
    }

    fn curve_to(&mut self, first: (f64, f64), second: (f64, f64), x: f64, y: f64) {
        let [x1, y1, x2, y2, x, y] = [first.0, first.1, second.0, second.1, x, y].map(|v| v as f32);
        self.0.cubic_to(x1, y1, x2, y2, x, y);
    }

    fn close(&mut self) {
        self.0.close();
    }
}
