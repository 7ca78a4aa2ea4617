//! Names of the rows and columns of a map: as many as have room.

use super::frame::{LABEL_SIZE, SLACK, TICK_SIZE};
use super::heat_map::Grid;
use super::scene::{Anchor, Label, Paint, Scene};
use super::text::{CAP_HEIGHT, Font};

/// Widest column of row names, and longest turned column name.
const ROW_NAMES: f64 = 190.0;
const TURNED: f64 = 150.0;
/// Turned names stand at this angle, in degrees.
const TURN: f64 = -40.0;
/// From this many columns on, names that have no room are left out, not turned: they count something.
const MANY: usize = 20;

/// Room that the row names need.
pub fn row_labels_width(font: &Font, rows: &[String]) -> f64 {
    let widest = rows.iter().map(|row| font.width(row, TICK_SIZE) * SLACK).fold(0.0, f64::max);
    widest.min(ROW_NAMES)
}

/// Every how-manieth name is written when each needs the room of `needed` cells: a power of two where the count allows
/// it, so that lengths and pairs stay round, else 1, 2 or 5 times a power of ten.
fn every(count: usize, needed: f64) -> usize {
    let round: Vec<usize> = if count.is_multiple_of(8) {
        (0..20).map(|exponent| 1 << exponent).collect()
    } else {
        (0..6).flat_map(|exponent| [1, 2, 5].map(|m| m * 10usize.pow(exponent))).collect()
    };
    round.into_iter().find(|step| *step as f64 >= needed).unwrap_or(count)
}

pub fn row_labels(scene: &mut Scene, font: &Font, rows: &[String], grid: &Grid) {
    let step = every(rows.len(), (TICK_SIZE + 2.0) / grid.cell_height);
    for (row, name) in rows.iter().enumerate().step_by(step) {
        let middle = grid.span(row..row + 1, 0..1);
        let y = middle.top + middle.height / 2.0 + TICK_SIZE * CAP_HEIGHT / 2.0;
        let text = font.shortened(name, TICK_SIZE, ROW_NAMES / SLACK);
        let label = Label::new((grid.area.left - 7.0, y), text, TICK_SIZE);
        scene.label(label.anchor(Anchor::End).paint(Paint::Muted));
    }
}

/// Draws the column names and the name of the axis. Returns the height used.
pub fn column_labels(scene: &mut Scene, font: &Font, columns: &[String], x_label: &str, grid: &Grid) -> f64 {
    let widest = columns.iter().map(|name| font.width(name, TICK_SIZE) * SLACK).fold(0.0, f64::max);
    let needed = (widest + 8.0) / grid.cell_width;
    let turned = needed > 1.0 && columns.len() < MANY;
    let step = if turned { 1 } else { every(columns.len(), needed) };
    let bottom = grid.area.bottom();
    for (column, name) in columns.iter().enumerate().step_by(step) {
        let cell = grid.span(0..1, column..column + 1);
        let x = cell.left + cell.width / 2.0;
        let label = if turned {
            let text = font.shortened(name, TICK_SIZE, TURNED / SLACK);
            Label::new((x + 4.0, bottom + 14.0), text, TICK_SIZE).anchor(Anchor::End).turn(TURN)
        } else {
            Label::new((x, bottom + 17.0), name.clone(), TICK_SIZE).anchor(Anchor::Middle)
        };
        scene.label(label.paint(Paint::Muted));
    }
    let names = if turned { widest.min(TURNED) * -TURN.to_radians().sin() + 14.0 } else { 17.0 };
    let middle = grid.area.left + grid.area.width / 2.0;
    scene.label(Label::new((middle, bottom + names + 20.0), x_label, LABEL_SIZE).anchor(Anchor::Middle));
    names + 34.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_left_out_in_round_steps() {
        assert_eq!(every(256, 20.0), 32);
        assert_eq!(every(48, 1.6), 2);
        assert_eq!(every(30, 2.5), 5);
        assert_eq!(every(30, 0.5), 1);
        assert_eq!(every(100, 17.0), 20);
    }
}
