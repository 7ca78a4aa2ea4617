//! The numbers of figures as rows.

use crate::cli::report::Table;
use crate::plot::{Figure, HeatMap, NamedFigure};

/// One row a point or cell: curves have x, y and the ends of their band, maps their row, column and value, arrows their label and head.
pub fn values(figures: &[NamedFigure]) -> Table {
    let mut table = Table::new("values", &["figure", "series", "x", "y", "low", "high"]);
    for NamedFigure { name, figure } in figures {
        match figure {
            Figure::Curves(curves) => {
                for series in &curves.series {
                    for (x, y) in &series.points {
                        let band = series.band.iter().find(|(at, _, _)| at == x);
                        let (low, high) = band.map_or((String::new(), String::new()), |(_, low, high)| {
                            (low.to_string(), high.to_string())
                        });
                        table.row([
                            name.clone(),
                            series.name.clone(),
                            x.to_string(),
                            y.to_string(),
                            low,
                            high,
                        ]);
                    }
                }
            }
            Figure::HeatMap(map) => cells(&mut table, name, map),
            Figure::BandedMap(figure) => cells(&mut table, name, &figure.map),
            Figure::Vectors(vectors) => {
                for panel in &vectors.panels {
                    for arrow in panel.arrows.iter().filter(|arrow| !arrow.label.is_empty()) {
                        let series = format!("{}, {}", panel.title, arrow.label);
                        let (x, y) = (arrow.to.0.to_string(), arrow.to.1.to_string());
                        table.row([name.clone(), series, x, y, String::new(), String::new()]);
                    }
                }
            }
        }
    }
    table
}

fn cells(table: &mut Table, name: &str, map: &HeatMap) {
    for (row, cells) in map.rows.iter().zip(&map.cells) {
        for (column, cell) in map.columns.iter().zip(cells) {
            let value = cell.map_or(String::new(), |value| value.to_string());
            table.row([name.to_string(), row.clone(), column.clone(), value, String::new(), String::new()]);
        }
    }
}
