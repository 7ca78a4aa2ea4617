//! A figure as shapes at fixed places: what the writers of SVG and PNG share.

use super::figure::Palette;

/// A colour by its purpose; a theme knows how it looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Paint {
    /// Behind everything.
    Surface,
    /// Titles, labels, values.
    Ink,
    /// Axis labels and notes.
    Muted,
    /// Lines of the grid.
    Grid,
    /// Axes and frames.
    Frame,
    /// A cell without a value.
    Empty,
    /// The curve of this index.
    Series(usize),
    /// A level of a palette, 0 to 255.
    Level(Palette, u8),
    /// Readable on that level.
    OnLevel(Palette, u8),
}

/// Dots and dashes of a line, in units of the figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dash {
    Solid,
    Dashed,
    Dotted,
    Mixed,
}

impl Dash {
    /// Lengths of strokes and gaps; empty for a solid line.
    pub fn lengths(self) -> &'static [f32] {
        match self {
            Dash::Solid => &[],
            Dash::Dashed => &[6.0, 4.0],
            Dash::Dotted => &[1.5, 3.5],
            Dash::Mixed => &[8.0, 3.0, 2.0, 3.0],
        }
    }
}

/// Which point of a text its position means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Anchor {
    Start,
    Middle,
    End,
}

/// A line of text.
#[derive(Debug, Clone, PartialEq)]
pub struct Label {
    pub at: (f64, f64),
    pub text: String,
    pub size: f64,
    pub anchor: Anchor,
    pub paint: Paint,
    pub bold: bool,
    /// Degrees, clockwise, about `at`.
    pub turn: f64,
    /// Whether a rim in the colour of the surface keeps it readable over lines.
    pub rim: bool,
}

impl Label {
    pub fn new(at: (f64, f64), text: impl Into<String>, size: f64) -> Self {
        let text = text.into();
        Self { at, text, size, anchor: Anchor::Start, paint: Paint::Ink, bold: false, turn: 0.0, rim: false }
    }

    pub fn anchor(self, anchor: Anchor) -> Self {
        Self { anchor, ..self }
    }

    pub fn paint(self, paint: Paint) -> Self {
        Self { paint, ..self }
    }

    pub fn bold(self) -> Self {
        Self { bold: true, ..self }
    }

    pub fn turn(self, degrees: f64) -> Self {
        Self { turn: degrees, ..self }
    }

    pub fn rim(self) -> Self {
        Self { rim: true, ..self }
    }
}

/// One thing to draw. Lengths are in units of the figure, y grows downwards.
#[derive(Debug, Clone, PartialEq)]
pub enum Shape {
    /// Rectangles of one colour whose edges are sharp, so that no seam shows between neighbours.
    Cells {
        areas: Vec<Area>,
        fill: Paint,
    },
    Line {
        points: Vec<(f64, f64)>,
        paint: Paint,
        width: f64,
        dash: Dash,
    },
    Polygon {
        points: Vec<(f64, f64)>,
        fill: Paint,
        opacity: f64,
    },
    Circle {
        center: (f64, f64),
        radius: f64,
        fill: Paint,
    },
    Ring {
        center: (f64, f64),
        radius: f64,
        paint: Paint,
        width: f64,
    },
    Label(Label),
}

/// An upright rectangle.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Area {
    pub left: f64,
    pub top: f64,
    pub width: f64,
    pub height: f64,
}

impl Area {
    pub fn right(&self) -> f64 {
        self.left + self.width
    }

    pub fn bottom(&self) -> f64 {
        self.top + self.height
    }
}

/// A point that answers to the pointer.
#[derive(Debug, Clone, PartialEq)]
pub struct HoverPoint {
    pub at: (f64, f64),
    pub x: String,
    pub value: String,
}

/// A curve that answers to the pointer.
#[derive(Debug, Clone, PartialEq)]
pub struct HoverSeries {
    pub name: String,
    pub index: usize,
    pub points: Vec<HoverPoint>,
}

/// What a page shows under the pointer.
#[derive(Debug, Clone, PartialEq)]
pub enum Hover {
    Nothing,
    Curves {
        area: Area,
        x_label: String,
        y_label: String,
        series: Vec<HoverSeries>,
    },
    /// `cells`: `[rows][columns]`, as text.
    HeatMap {
        area: Area,
        x_label: String,
        y_label: String,
        value_label: String,
        columns: Vec<String>,
        rows: Vec<String>,
        cells: Vec<Vec<String>>,
    },
}

/// A finished drawing.
#[derive(Debug, Clone, PartialEq)]
pub struct Scene {
    pub width: f64,
    pub height: f64,
    pub title: String,
    /// The figure in words, for those who cannot see it.
    pub description: String,
    pub shapes: Vec<Shape>,
    pub hover: Hover,
}

impl Scene {
    pub fn new(width: f64, height: f64, title: &str) -> Self {
        Self {
            width,
            height,
            title: title.to_string(),
            description: String::new(),
            shapes: Vec::new(),
            hover: Hover::Nothing,
        }
    }

    pub fn rect(&mut self, area: Area, fill: Paint) {
        self.shapes.push(Shape::Cells { areas: vec![area], fill });
    }

    pub fn line(&mut self, from: (f64, f64), to: (f64, f64), paint: Paint, width: f64) {
        self.shapes.push(Shape::Line { points: vec![from, to], paint, width, dash: Dash::Solid });
    }

    pub fn dashed(&mut self, from: (f64, f64), to: (f64, f64), paint: Paint, width: f64) {
        self.shapes.push(Shape::Line { points: vec![from, to], paint, width, dash: Dash::Dashed });
    }

    /// A line through several points.
    pub fn outline(&mut self, points: &[(f64, f64)], paint: Paint, width: f64) {
        self.shapes.push(Shape::Line { points: points.to_vec(), paint, width, dash: Dash::Solid });
    }

    pub fn label(&mut self, label: Label) {
        self.shapes.push(Shape::Label(label));
    }

    /// Diagonal lines over `area`, in step with those of every other area.
    pub fn hatch(&mut self, area: Area, paint: Paint, width: f64) {
        const STEP: f64 = 7.0;
        let (left, top, right, bottom) = (area.left, area.top, area.right(), area.bottom());
        // Each line is x + y = sum.
        let mut sum = ((left + top) / STEP).ceil() * STEP;
        while sum < right + bottom {
            let from = if sum - top <= right { (sum - top, top) } else { (right, sum - right) };
            let to = if sum - bottom >= left { (sum - bottom, bottom) } else { (left, sum - left) };
            self.line(from, to, paint, width);
            sum += STEP;
        }
    }
}
