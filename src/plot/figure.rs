//! What a figure shows, without any thought of how it looks.

use std::ops::Range;

use serde::Serialize;

/// How values are spread along an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum AxisScale {
    #[default]
    Linear,
    /// Equal steps double; ticks are powers of two, written as lengths (`512`, `1k`, `16k`, with `k` = 1024).
    Log2,
    /// Equal steps multiply by ten.
    Log10,
}

/// One axis of a diagram. Its range follows from the values.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Axis {
    /// What is measured, with its unit.
    pub label: String,
    pub scale: AxisScale,
}

impl Axis {
    pub fn new(label: impl Into<String>, scale: AxisScale) -> Self {
        Self { label: label.into(), scale }
    }
}

/// One curve.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Series {
    pub name: String,
    /// `(x, y)`, joined in this order. One point is drawn as a dot.
    pub points: Vec<(f64, f64)>,
    /// `(x, low, high)`, the error band around the curve; may be empty.
    pub band: Vec<(f64, f64, f64)>,
}

/// A vertical line with a label at its top, such as the trained length.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Mark {
    /// Where on the x axis. A mark widens the range of the axis if need be.
    pub at: f64,
    pub label: String,
}

/// Curves over a common pair of axes.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Curves {
    pub title: String,
    pub x: Axis,
    pub y: Axis,
    pub series: Vec<Series>,
    pub marks: Vec<Mark>,
}

/// Colours of a heat map. Both are told apart with any common colour blindness.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Palette {
    /// From dark violet to yellow: more is lighter.
    #[default]
    Sequential,
    /// From blue over a neutral middle to orange: below and above.
    Diverging,
}

/// Values over a grid.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct HeatMap {
    pub title: String,
    pub x_label: String,
    pub y_label: String,
    /// Names along the x axis, left to right.
    pub columns: Vec<String>,
    /// Names along the y axis, top to bottom.
    pub rows: Vec<String>,
    /// `[rows][columns]`; `None`: not measured, drawn grey and hatched.
    pub cells: Vec<Vec<Option<f64>>>,
    /// What a cell holds, with its unit.
    pub value_label: String,
    /// Values of the two ends of the palette; the range of the cells when `None`, around 0 for a diverging palette.
    /// Values outside get the colour of the nearer end, and the scale says so.
    pub range: Option<(f64, f64)>,
    pub palette: Palette,
    /// Whether each cell that is large enough also shows its value as a number.
    pub show_values: bool,
}

/// Rows of a [`BandedMap`] that have something in common.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RowBand {
    pub rows: Range<usize>,
    pub label: String,
}

/// A heat map with annotations: lines between columns, named bands of rows, a marked region.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct BandedMap {
    pub map: HeatMap,
    /// Vertical lines; `at` counts columns from the left edge, so that 3 is the border before column 3.
    pub marks: Vec<Mark>,
    /// Named at the right of the map; lines separate them.
    pub bands: Vec<RowBand>,
    /// Columns of each row that are hatched over their colour; empty, or one range per row.
    pub region: Vec<Range<usize>>,
    /// What the hatching means.
    pub region_label: String,
}

/// An arrow in the plane.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Arrow {
    pub from: (f64, f64),
    pub to: (f64, f64),
    /// Written at its head; may be empty.
    pub label: String,
    /// Arrows of one group share a colour.
    pub group: usize,
    /// A thin dashed line: help, not the thing itself.
    pub dashed: bool,
}

/// One drawing of a plane with its origin.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct VectorPanel {
    pub title: String,
    /// Sentences below the drawing.
    pub notes: Vec<String>,
    pub arrows: Vec<Arrow>,
    /// Radius of a circle around the origin.
    pub circle: Option<f64>,
}

/// Drawings of vectors beside each other, all at the same size of a unit.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Vectors {
    pub title: String,
    pub panels: Vec<VectorPanel>,
}

/// Anything that can be drawn.
///
/// As JSON: its fields, and `kind`.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Figure {
    Curves(Curves),
    HeatMap(HeatMap),
    BandedMap(BandedMap),
    Vectors(Vectors),
}

impl Figure {
    pub fn title(&self) -> &str {
        match self {
            Figure::Curves(figure) => &figure.title,
            Figure::HeatMap(figure) => &figure.title,
            Figure::BandedMap(figure) => &figure.map.title,
            Figure::Vectors(figure) => &figure.title,
        }
    }
}

/// A figure and the stem of the files it is written to.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct NamedFigure {
    /// Letters, digits, `-`, `_` and `.`; unique among the figures of a result.
    pub name: String,
    pub figure: Figure,
}

impl NamedFigure {
    pub fn new(name: impl Into<String>, figure: Figure) -> Self {
        Self { name: name.into(), figure }
    }
}
