//! What is drawn over and beside a heat map: marks, bands of rows, a hatched region.

use super::error::PlotError;
use super::figure::{BandedMap, RowBand};
use super::frame::{LABEL_SIZE, SLACK};
use super::heat_map::Grid;
use super::scene::{Label, Paint, Scene};
use super::text::{CAP_HEIGHT, Font};

/// Widest column of band names.
const NAMES: f64 = 130.0;
/// From the map to the text of a band's name.
const INDENT: f64 = 16.0;
const LINE: f64 = 16.0;

/// # Errors
/// [`PlotError::Outside`] for a mark, band or range that leaves the map, [`PlotError::Shape`] when there are ranges for
/// some rows only.
pub fn check_overlay(figure: &BandedMap) -> Result<(), PlotError> {
    let (rows, columns) = (figure.map.rows.len(), figure.map.columns.len());
    for mark in &figure.marks {
        if !(0.0..=columns as f64).contains(&mark.at) {
            let (what, found) = (mark.label.clone(), mark.at.to_string());
            return Err(PlotError::Outside { what, size: columns, unit: "columns", found });
        }
    }
    for RowBand { rows: band, label } in &figure.bands {
        if band.start > band.end || band.end > rows {
            let (what, found) = (label.clone(), format!("{band:?}"));
            return Err(PlotError::Outside { what, size: rows, unit: "rows", found });
        }
    }
    if !figure.region.is_empty() && figure.region.len() != rows {
        let (what, found) = ("ranges of its region".to_string(), figure.region.len());
        return Err(PlotError::Shape { figure: figure.map.title.clone(), what, expected: rows, found });
    }
    match figure.region.iter().find(|range| range.start > range.end || range.end > columns) {
        Some(range) => {
            let (what, found) = (figure.region_label.clone(), format!("{range:?}"));
            Err(PlotError::Outside { what, size: columns, unit: "columns", found })
        }
        None => Ok(()),
    }
}

/// Hatches the region and draws its border.
pub fn draw_region(scene: &mut Scene, figure: &BandedMap, grid: &Grid) {
    let mut row = 0;
    for run in figure.region.chunk_by(|a, b| a == b) {
        let rows = row..row + run.len();
        row = rows.end;
        if run[0].is_empty() {
            continue;
        }
        let area = grid.span(rows.clone(), run[0].clone());
        scene.hatch(area, Paint::Ink, 0.7);
        let left = area.left;
        scene.line((left, area.top), (left, area.bottom()), Paint::Ink, 1.2);
        // The step to the row above, or to where nothing is hatched.
        let above = rows.start.checked_sub(1).map(|above| &figure.region[above]);
        let step = match above {
            Some(above) if !above.is_empty() => grid.span(0..1, 0..above.start).right(),
            _ => area.right(),
        };
        scene.line((left, area.top), (step, area.top), Paint::Ink, 1.2);
    }
}

/// Names of bands at the right of a map.
pub struct Bands {
    names: Vec<Vec<String>>,
    width: f64,
}

impl Bands {
    pub fn new(font: &Font, bands: &[RowBand]) -> Self {
        let names: Vec<Vec<String>> =
            bands.iter().map(|band| font.wrap(&band.label, LABEL_SIZE, NAMES / SLACK)).collect();
        let widest =
            names.iter().flatten().map(|line| font.width(line, LABEL_SIZE) * SLACK).fold(0.0, f64::max);
        Self { width: if bands.is_empty() { 0.0 } else { widest + INDENT }, names }
    }

    pub fn width(&self) -> f64 {
        self.width
    }

    /// Draws a bracket and the name of each band, and lines through the map where bands meet.
    pub fn draw(&self, scene: &mut Scene, bands: &[RowBand], grid: &Grid) {
        let right = grid.area.right();
        for (band, lines) in bands.iter().zip(&self.names) {
            if band.rows.is_empty() {
                continue;
            }
            let span = grid.span(band.rows.clone(), 0..1);
            let (top, bottom) = (span.top + 2.0, span.bottom() - 2.0);
            let bracket =
                [(right + 4.0, top), (right + 9.0, top), (right + 9.0, bottom), (right + 4.0, bottom)];
            scene.outline(&bracket, Paint::Frame, 1.2);
            if span.top > grid.area.top {
                scene.dashed((grid.area.left, span.top), (right, span.top), Paint::Ink, 1.0);
            }
            let height = (lines.len() - 1) as f64 * LINE;
            let first = span.top + span.height / 2.0 - height / 2.0 + LABEL_SIZE * CAP_HEIGHT / 2.0;
            for (line, text) in lines.iter().enumerate() {
                let at = (right + INDENT, first + line as f64 * LINE);
                scene.label(Label::new(at, text.clone(), LABEL_SIZE));
            }
        }
    }
}
