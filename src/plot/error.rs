//! Why a figure cannot be drawn.

use thiserror::Error;

/// Data that make no figure.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum PlotError {
    #[error("the figure `{figure}` has no {what}")]
    Empty { figure: String, what: &'static str },
    #[error(
        "a value of `{series}` must be a finite number below 1e100 in size, found {found} at index {index}"
    )]
    Value { series: String, index: usize, found: f64 },
    #[error("a logarithmic axis needs values above 0, found {found} on the axis `{axis}`")]
    Logarithm { axis: String, found: f64 },
    #[error(
        "the band of `{series}` must have its low end below its high end, found {low} and {high} at index {index}"
    )]
    Band { series: String, index: usize, low: f64, high: f64 },
    #[error("the heat map `{figure}` must have {expected} {what}, found {found}")]
    Shape { figure: String, what: String, expected: usize, found: usize },
    #[error("the range of a palette must rise, found {low} to {high}")]
    Range { low: f64, high: f64 },
    #[error("`{what}` must lie within the {size} {unit} of the map, found {found}")]
    Outside { what: String, size: usize, unit: &'static str, found: String },
    #[error("a figure holds at most {max} {what}, found {found}")]
    TooMany { what: &'static str, max: usize, found: usize },
    #[error("the image has {width} by {height} points, more than can be drawn")]
    Size { width: u32, height: u32 },
    #[error("the font inside the program is damaged: {0}")]
    Font(String),
    #[error("cannot write the image: {0}")]
    Png(String),
    #[error("a figure's name may hold letters, digits, `-`, `_` and `.`, found `{0}`")]
    Name(String),
    #[error("two figures have the name `{0}`")]
    SameName(String),
}
