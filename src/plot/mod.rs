//! Figures: from plain data to SVG and PNG, on a light and on a dark ground.
//!
//! A [`Figure`] says what is shown. Layout turns it into a [`scene`](self::scene) of shapes at fixed places, which the
//! writers of SVG and PNG share, so that both formats show the same. Equal figures give equal bytes.

mod axis;
mod curves;
mod error;
mod figure;
mod frame;
mod grid_labels;
mod heat_map;
mod map_overlay;
mod page;
mod png;
pub mod results;
mod scene;
mod svg;
#[cfg(test)]
mod tests;
mod text;
mod theme;
pub mod theory;
mod vectors;

pub use error::PlotError;
pub use figure::{
    Arrow, Axis, AxisScale, BandedMap, Curves, Figure, HeatMap, Mark, NamedFigure, Palette, RowBand, Series,
    VectorPanel, Vectors,
};
pub use page::{Page, PageTable, render_page};
pub use theme::Theme;

use self::scene::Scene;
use self::svg::Coloring;
use self::text::Font;

fn scene(figure: &Figure, font: &Font) -> Result<Scene, PlotError> {
    match figure {
        Figure::Curves(figure) => curves::scene(figure, font),
        Figure::HeatMap(figure) => heat_map::scene(figure, font),
        Figure::BandedMap(figure) => heat_map::banded_scene(figure, font),
        Figure::Vectors(figure) => vectors::scene(figure, font),
    }
}

/// The figure as a complete SVG document, 800 units wide.
///
/// # Errors
/// The [`PlotError`] of data that make no figure.
pub fn render_svg(figure: &Figure, theme: Theme) -> Result<String, PlotError> {
    let font = Font::new()?;
    Ok(svg::write(&scene(figure, &font)?, Coloring::Fixed(theme)))
}

/// The figure as a PNG file, 1600 points wide.
///
/// # Errors
/// As [`render_svg`]; [`PlotError::Size`] and [`PlotError::Png`] for an image that cannot be made.
pub fn render_png(figure: &Figure, theme: Theme) -> Result<Vec<u8>, PlotError> {
    let font = Font::new()?;
    png::write(&scene(figure, &font)?, &font, theme)
}
