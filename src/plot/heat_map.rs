//! Values over a grid, as colours, with their scale at the right.

use std::collections::BTreeMap;

use super::axis::{number, significant};
use super::error::PlotError;
use super::figure::{BandedMap, HeatMap, Palette};
use super::frame::{LABEL_SIZE, MARGIN, MarkStrip, SLACK, TICK_SIZE, WIDTH, check_value, title};
use super::grid_labels::{column_labels, row_labels, row_labels_width};
use super::map_overlay::{Bands, check_overlay, draw_region};
use super::scene::{Anchor, Area, Hover, Label, Paint, Scene, Shape};
use super::text::{CAP_HEIGHT, Font};

/// Height of a row of a small map, and of all rows of a large one.
const ROW_HEIGHT: f64 = 36.0;
const LOWEST: f64 = 120.0;
const HIGHEST: f64 = 380.0;
/// Cells that are at least this large in both directions have a gap between them.
const GAP_FROM: f64 = 14.0;
/// Most cells of a map, so that a picture stays a picture.
const MAX_CELLS: usize = 1 << 20;
const SCALE_WIDTH: f64 = 14.0;
/// Sizes of numbers in cells, the largest that fits all of them is taken.
const VALUE_SIZES: [f64; 5] = [13.0, 12.0, 11.0, 10.0, 9.0];

/// # Errors
/// As [`banded_scene`].
pub fn scene(map: &HeatMap, font: &Font) -> Result<Scene, PlotError> {
    banded_scene(&BandedMap { map: map.clone(), ..BandedMap::default() }, font)
}

/// # Errors
/// [`PlotError::Empty`], [`PlotError::Shape`], [`PlotError::TooMany`], [`PlotError::Value`], [`PlotError::Range`] or
/// [`PlotError::Outside`].
pub fn banded_scene(figure: &BandedMap, font: &Font) -> Result<Scene, PlotError> {
    let map = &figure.map;
    check(map)?;
    check_overlay(figure)?;
    let levels = Levels::new(map)?;
    let mut scene = Scene::new(WIDTH, 0.0, &map.title);
    scene.description = description(map, &levels);
    let mut top = title(&mut scene, font, &map.title);
    scene.label(Label::new((MARGIN, top + 12.0), map.y_label.clone(), LABEL_SIZE));
    let value = Label::new((WIDTH - MARGIN, top + 12.0), map.value_label.clone(), LABEL_SIZE);
    scene.label(value.anchor(Anchor::End));
    top += 24.0;
    let left = MARGIN + row_labels_width(font, &map.rows) + 8.0;
    let scale_ticks = levels.ticks();
    let scale_text = scale_ticks.iter().map(|(_, text)| font.width(text, TICK_SIZE)).fold(0.0, f64::max);
    let scale_left = WIDTH - MARGIN - scale_text * SLACK - 8.0 - SCALE_WIDTH;
    let bands = Bands::new(font, &figure.bands);
    let width = scale_left - 18.0 - bands.width() - left;
    let cell_width = width / map.columns.len() as f64;
    let at: Vec<f64> = figure.marks.iter().map(|mark| left + mark.at * cell_width).collect();
    let strip = MarkStrip::new(font, &figure.marks, &at, left, left + width);
    top += strip.height();
    let rows = map.rows.len() as f64;
    let height = (rows * ROW_HEIGHT).clamp(LOWEST, HIGHEST);
    let area = Area { left, top, width, height };
    let grid = Grid { area, cell_width, cell_height: height / rows };
    grid.cells(&mut scene, map, &levels);
    draw_region(&mut scene, figure, &grid);
    grid.values(&mut scene, font, map, &levels);
    bands.draw(&mut scene, &figure.bands, &grid);
    strip.draw(&mut scene, &figure.marks, &at, area, Paint::Ink);
    row_labels(&mut scene, font, &map.rows, &grid);
    let below = column_labels(&mut scene, font, &map.columns, &map.x_label, &grid);
    levels.draw(&mut scene, scale_left, area, &scale_ticks);
    scene.height = area.bottom() + below + legend(&mut scene, figure, &grid, below);
    scene.hover = hover(map, area);
    Ok(scene)
}

fn check(map: &HeatMap) -> Result<(), PlotError> {
    let (rows, columns) = (map.rows.len(), map.columns.len());
    for (what, count) in [("rows", rows), ("columns", columns)] {
        if count == 0 {
            return Err(PlotError::Empty { figure: map.title.clone(), what });
        }
    }
    if rows.saturating_mul(columns) > MAX_CELLS {
        return Err(PlotError::TooMany {
            what: "cells",
            max: MAX_CELLS,
            found: rows.saturating_mul(columns),
        });
    }
    let shape = |what: String, expected, found| match expected == found {
        true => Ok(()),
        false => Err(PlotError::Shape { figure: map.title.clone(), what, expected, found }),
    };
    shape("rows of cells".to_string(), rows, map.cells.len())?;
    for (name, cells) in map.rows.iter().zip(&map.cells) {
        shape(format!("cells in row `{name}`"), columns, cells.len())?;
        for (index, value) in cells.iter().enumerate() {
            value.map_or(Ok(()), |value| check_value(name, index, value))?;
        }
    }
    Ok(())
}

fn description(map: &HeatMap, levels: &Levels) -> String {
    let measured = map.cells.iter().flatten().flatten().count();
    let range = match measured {
        0 => "no cell is measured".to_string(),
        _ => format!("from {} to {}", number(levels.least), number(levels.most)),
    };
    format!(
        "Heat map of {} by {} ({} rows) and {} ({} columns), {range}.",
        map.value_label,
        map.y_label,
        map.rows.len(),
        map.x_label,
        map.columns.len()
    )
}

/// Where the cells of a map lie.
pub struct Grid {
    pub area: Area,
    pub cell_width: f64,
    pub cell_height: f64,
}

impl Grid {
    /// The rectangle of the columns `from..to` of the rows `top..bottom`.
    pub fn span(&self, rows: std::ops::Range<usize>, columns: std::ops::Range<usize>) -> Area {
        Area {
            left: self.area.left + columns.start as f64 * self.cell_width,
            top: self.area.top + rows.start as f64 * self.cell_height,
            width: columns.len() as f64 * self.cell_width,
            height: rows.len() as f64 * self.cell_height,
        }
    }

    fn gap(&self) -> f64 {
        if self.cell_width.min(self.cell_height) >= GAP_FROM { 1.0 } else { 0.0 }
    }

    /// Runs of equal cells are one rectangle, and all of one colour one shape, unless gaps part them.
    fn cells(&self, scene: &mut Scene, map: &HeatMap, levels: &Levels) {
        let gap = self.gap();
        let mut by_level: BTreeMap<Option<u8>, Vec<Area>> = BTreeMap::new();
        for (row, cells) in map.cells.iter().enumerate() {
            let levels: Vec<Option<u8>> = cells.iter().map(|cell| cell.map(|v| levels.level(v))).collect();
            let mut start = 0;
            for run in levels.chunk_by(|a, b| gap == 0.0 && a == b) {
                let area = self.span(row..row + 1, start..start + run.len());
                let area = Area { width: area.width - gap, height: area.height - gap, ..area };
                by_level.entry(run[0]).or_default().push(area);
                start += run.len();
            }
        }
        for (level, areas) in by_level {
            let fill = level.map_or(Paint::Empty, |level| Paint::Level(map.palette, level));
            scene.shapes.push(Shape::Cells { areas: areas.clone(), fill });
            if level.is_none() {
                areas.iter().for_each(|area| scene.hatch(*area, Paint::Frame, 1.0));
            }
        }
    }

    fn values(&self, scene: &mut Scene, font: &Font, map: &HeatMap, levels: &Levels) {
        let texts = map.cells.iter().map(|row| row.iter().map(|cell| cell.map(|v| (v, significant(v, 3)))));
        let texts: Vec<Vec<Option<(f64, String)>>> = texts.map(Iterator::collect).collect();
        let widest =
            texts.iter().flatten().flatten().map(|(_, text)| font.width(text, 1.0)).fold(0.0, f64::max);
        let fits =
            |size: &f64| widest * size * SLACK + 6.0 <= self.cell_width && size * 1.25 <= self.cell_height;
        let Some(size) = VALUE_SIZES.into_iter().find(|size| map.show_values && fits(size)) else {
            return;
        };
        for (row, cells) in texts.into_iter().enumerate() {
            for (column, cell) in cells.into_iter().enumerate() {
                let Some((value, text)) = cell else { continue };
                let area = self.span(row..row + 1, column..column + 1);
                let gap = self.gap();
                let x = area.left + (area.width - gap) / 2.0;
                let y = area.top + (area.height - gap) / 2.0 + size * CAP_HEIGHT / 2.0;
                let paint = Paint::OnLevel(map.palette, levels.level(value));
                scene.label(Label::new((x, y), text, size).anchor(Anchor::Middle).paint(paint));
            }
        }
    }
}

/// Which value has which colour.
struct Levels {
    palette: Palette,
    low: f64,
    high: f64,
    /// The range of what is measured.
    least: f64,
    most: f64,
}

impl Levels {
    fn new(map: &HeatMap) -> Result<Self, PlotError> {
        let values = map.cells.iter().flatten().flatten();
        let (least, most) =
            values.fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), value| (a.min(*value), b.max(*value)));
        let (low, high) = match map.range {
            Some((low, high)) => {
                check_value("range", 0, low)?;
                check_value("range", 1, high)?;
                if low >= high {
                    return Err(PlotError::Range { low, high });
                }
                (low, high)
            }
            None if least > most => (0.0, 1.0),
            None => match map.palette {
                Palette::Diverging => (-least.abs().max(most.abs()), least.abs().max(most.abs())),
                Palette::Sequential => (least, most),
            },
        };
        let room = if low == high { (low.abs() * 0.1).max(0.5) } else { 0.0 };
        Ok(Self { palette: map.palette, low: low - room, high: high + room, least, most })
    }

    fn level(&self, value: f64) -> u8 {
        let share = (value - self.low) / (self.high - self.low);
        // The scale marks ends that stand for more than themselves.
        (share.clamp(0.0, 1.0) * 255.0).round() as u8
    }

    /// Values written beside the scale, with their share of its height.
    fn ticks(&self) -> Vec<(f64, String)> {
        let sign = |beyond: bool, sign: &str| if beyond { sign.to_string() } else { String::new() };
        let values = [
            (0.0, sign(self.least < self.low, "\u{2264} ")),
            (0.5, String::new()),
            (1.0, sign(self.most > self.high, "\u{2265} ")),
        ];
        let write = |(share, sign): (f64, String)| {
            let value = self.low + (self.high - self.low) * share;
            (share, sign + &significant(value, 3))
        };
        values.map(write).to_vec()
    }

    fn draw(&self, scene: &mut Scene, left: f64, area: Area, ticks: &[(f64, String)]) {
        let steps = 64;
        let height = area.height / steps as f64;
        for step in 0..steps {
            let level = ((step as f64 + 0.5) / steps as f64 * 255.0).round() as u8;
            let top = area.bottom() - (step + 1) as f64 * height;
            let areas = vec![Area { left, top, width: SCALE_WIDTH, height }];
            scene.shapes.push(Shape::Cells { areas, fill: Paint::Level(self.palette, level) });
        }
        let cap = TICK_SIZE * CAP_HEIGHT;
        for (share, text) in ticks {
            let middle = area.bottom() - share * area.height + cap / 2.0;
            let y = middle.max(area.top + cap).min(area.bottom());
            let tick = Label::new((left + SCALE_WIDTH + 6.0, y), text.clone(), TICK_SIZE);
            scene.label(tick.paint(Paint::Muted));
        }
    }
}

/// What hatching means, below the map. Returns the height used.
fn legend(scene: &mut Scene, figure: &BandedMap, grid: &Grid, below: f64) -> f64 {
    let missing = figure.map.cells.iter().flatten().any(Option::is_none);
    let mut entries = Vec::new();
    if !figure.region.is_empty() {
        entries.push((Paint::Surface, Paint::Ink, figure.region_label.as_str()));
    }
    if missing {
        entries.push((Paint::Empty, Paint::Frame, "not measured"));
    }
    for (line, (fill, hatch, text)) in entries.iter().enumerate() {
        let top = grid.area.bottom() + below + line as f64 * 22.0;
        let swatch = Area { left: grid.area.left, top, width: 26.0, height: 14.0 };
        scene.rect(swatch, *fill);
        scene.hatch(swatch, *hatch, 1.0);
        let outline = [
            (swatch.left, swatch.top),
            (swatch.right(), swatch.top),
            (swatch.right(), swatch.bottom()),
            (swatch.left, swatch.bottom()),
            (swatch.left, swatch.top),
        ];
        scene.outline(&outline, Paint::Frame, 1.0);
        scene.label(Label::new((swatch.right() + 8.0, top + 11.5), *text, LABEL_SIZE));
    }
    if entries.is_empty() { 0.0 } else { entries.len() as f64 * 22.0 + 4.0 }
}

fn hover(map: &HeatMap, area: Area) -> Hover {
    let write = |cell: &Option<f64>| cell.map_or("not measured".to_string(), number);
    Hover::HeatMap {
        area,
        x_label: map.x_label.clone(),
        y_label: map.y_label.clone(),
        value_label: map.value_label.clone(),
        columns: map.columns.clone(),
        rows: map.rows.clone(),
        cells: map.cells.iter().map(|row| row.iter().map(write).collect()).collect(),
    }
}
