//! Curves over a common pair of axes, each named at its right end.

use super::axis::Scaled;
use super::error::PlotError;
use super::figure::{Curves, Series};
use super::frame::{
    LABEL_SIZE, MARGIN, MarkStrip, SLACK, TICK_SIZE, WIDTH, check_value, horizontal_axis, title, written,
};
use super::scene::{Anchor, Area, Hover, HoverPoint, HoverSeries, Label, Paint, Scene, Shape};
use super::text::{CAP_HEIGHT, Font};
use super::theme::{MAX_SERIES, dash};

/// Height of the drawing, unless the names need more.
const HEIGHT: f64 = 330.0;
/// Widest column of names.
const NAMES: f64 = 210.0;
/// From the drawing to the text of a name: the line between them and a piece of the curve's own line.
const NAME_INDENT: f64 = 42.0;
const NAME_LINE: f64 = 17.0;
/// Curves with more points than this are drawn without dots.
const DOTS: usize = 40;

/// # Errors
/// [`PlotError::Empty`], [`PlotError::TooMany`], [`PlotError::Value`], [`PlotError::Band`] or [`PlotError::Logarithm`].
pub fn scene(figure: &Curves, font: &Font) -> Result<Scene, PlotError> {
    check(figure)?;
    let xs = figure.series.iter().flat_map(xs_of).chain(figure.marks.iter().map(|mark| mark.at));
    let x = Scaled::new(&figure.x, xs, false)?;
    let y = Scaled::new(&figure.y, figure.series.iter().flat_map(ys_of), true)?;
    let mut scene = Scene::new(WIDTH, 0.0, &figure.title);
    scene.description = description(figure);
    let mut top = title(&mut scene, font, &figure.title);
    let y_ticks = y.ticks(7);
    let widest = y_ticks.iter().map(|(_, text)| font.width(text, TICK_SIZE)).fold(0.0, f64::max);
    let left = MARGIN + widest * SLACK + 8.0;
    let names: Vec<Vec<String>> = figure.series.iter().map(|series| name_lines(font, &series.name)).collect();
    let right = WIDTH - MARGIN - names_width(font, &names);
    scene.label(Label::new((MARGIN, top + 12.0), figure.y.label.clone(), LABEL_SIZE));
    top += 22.0;
    let at: Vec<f64> = figure.marks.iter().map(|mark| left + x.share(mark.at) * (right - left)).collect();
    let strip = MarkStrip::new(font, &figure.marks, &at, left, WIDTH - MARGIN);
    top += strip.height();
    let names_height: f64 = names.iter().map(|lines| lines.len() as f64 * NAME_LINE).sum();
    let area = Area { left, top, width: right - left, height: HEIGHT.max(names_height) };
    let below = horizontal_axis(&mut scene, font, &x, &figure.x.label, area);
    for (value, text) in y_ticks {
        let y = area.bottom() - y.share(value) * area.height;
        scene.line((area.left, y), (area.right(), y), Paint::Grid, 1.0);
        let tick = Label::new((area.left - 7.0, y + TICK_SIZE * CAP_HEIGHT / 2.0), text, TICK_SIZE);
        scene.label(tick.anchor(Anchor::End).paint(Paint::Muted));
    }
    let placed = Placed { x: &x, y: &y, area };
    for (index, series) in figure.series.iter().enumerate() {
        placed.band(&mut scene, index, series);
    }
    strip.draw(&mut scene, &figure.marks, &at, area, Paint::Muted);
    for (index, series) in figure.series.iter().enumerate() {
        placed.curve(&mut scene, index, series);
    }
    placed.names(&mut scene, &figure.series, &names);
    scene.hover = placed.hover(figure);
    scene.height = area.bottom() + below;
    Ok(scene)
}

fn check(figure: &Curves) -> Result<(), PlotError> {
    let empty = |what| Err(PlotError::Empty { figure: figure.title.clone(), what });
    if figure.series.is_empty() {
        return empty("curves");
    }
    if figure.series.len() > MAX_SERIES {
        return Err(PlotError::TooMany { what: "curves", max: MAX_SERIES, found: figure.series.len() });
    }
    for series in &figure.series {
        if series.points.is_empty() {
            return empty("points in one of its curves");
        }
        for (index, (x, y)) in series.points.iter().enumerate() {
            check_value(&series.name, index, *x)?;
            check_value(&series.name, index, *y)?;
        }
        for (index, &(x, low, high)) in series.band.iter().enumerate() {
            for value in [x, low, high] {
                check_value(&series.name, index, value)?;
            }
            if low > high {
                return Err(PlotError::Band { series: series.name.clone(), index, low, high });
            }
        }
    }
    figure.marks.iter().enumerate().try_for_each(|(index, mark)| check_value(&mark.label, index, mark.at))
}

fn xs_of(series: &Series) -> impl Iterator<Item = f64> {
    let points = series.points.iter().map(|(x, _)| *x);
    points.chain(series.band.iter().map(|(x, _, _)| *x))
}

fn ys_of(series: &Series) -> impl Iterator<Item = f64> {
    let points = series.points.iter().map(|(_, y)| *y);
    points.chain(series.band.iter().flat_map(|(_, low, high)| [*low, *high]))
}

fn description(figure: &Curves) -> String {
    let names: Vec<&str> = figure.series.iter().map(|series| series.name.as_str()).collect();
    let mut text = format!("{} against {}: {}.", figure.y.label, figure.x.label, names.join(", "));
    for mark in &figure.marks {
        text += &format!(" Marked at {}: {}.", written(figure.x.scale, mark.at), mark.label);
    }
    text
}

/// The name in as few lines as the column allows; a word that is wider than it ends in an ellipsis.
fn name_lines(font: &Font, name: &str) -> Vec<String> {
    let room = (NAMES - NAME_INDENT) / SLACK;
    let lines = font.wrap(name, LABEL_SIZE, room);
    lines.into_iter().map(|line| font.shortened(&line, LABEL_SIZE, room)).collect()
}

fn names_width(font: &Font, names: &[Vec<String>]) -> f64 {
    let widths = names.iter().flatten().map(|line| font.width(line, LABEL_SIZE));
    let widest = widths.fold(0.0, f64::max);
    if widest == 0.0 { 0.0 } else { widest * SLACK + NAME_INDENT }
}

/// A drawing with its axes.
struct Placed<'a> {
    x: &'a Scaled,
    y: &'a Scaled,
    area: Area,
}

impl Placed<'_> {
    fn at(&self, x: f64, y: f64) -> (f64, f64) {
        let Area { left, width, height, .. } = self.area;
        (left + self.x.share(x) * width, self.area.bottom() - self.y.share(y) * height)
    }

    fn band(&self, scene: &mut Scene, index: usize, series: &Series) {
        if series.band.is_empty() {
            return;
        }
        let lows = series.band.iter().map(|(x, low, _)| self.at(*x, *low));
        let highs = series.band.iter().rev().map(|(x, _, high)| self.at(*x, *high));
        let points = lows.chain(highs).collect();
        scene.shapes.push(Shape::Polygon { points, fill: Paint::Series(index), opacity: 0.18 });
        // An interval without neighbours has no area: where they can be told apart, each is a bar as well.
        if series.band.len() <= DOTS {
            for (x, low, high) in &series.band {
                scene.line(self.at(*x, *low), self.at(*x, *high), Paint::Series(index), 1.0);
            }
        }
    }

    fn curve(&self, scene: &mut Scene, index: usize, series: &Series) {
        let points: Vec<(f64, f64)> = series.points.iter().map(|(x, y)| self.at(*x, *y)).collect();
        let (paint, dash) = (Paint::Series(index), dash(index));
        if points.len() <= DOTS {
            let radius = if points.len() == 1 { 4.0 } else { 2.6 };
            let dots = points.iter().map(|center| Shape::Circle { center: *center, radius, fill: paint });
            scene.shapes.extend(dots);
        }
        if points.len() > 1 {
            scene.shapes.push(Shape::Line { points, paint, width: 2.0, dash });
        }
    }

    /// Names at the right, as near to the ends of their curves as they can be without touching each other.
    fn names(&self, scene: &mut Scene, series: &[Series], names: &[Vec<String>]) {
        let ends: Vec<(f64, f64)> = series
            .iter()
            .map(|series| series.points.last().map_or((0.0, 0.0), |(x, y)| self.at(*x, *y)))
            .collect();
        let wanted: Vec<(f64, f64)> =
            ends.iter().zip(names).map(|(end, lines)| (end.1, lines.len() as f64 * NAME_LINE)).collect();
        // Not above the drawing, where marks have their labels.
        let middles = spread(&wanted, self.area.top, self.area.bottom() + NAME_LINE / 2.0);
        for (index, (lines, middle)) in names.iter().zip(middles).enumerate() {
            if lines.is_empty() {
                continue;
            }
            let (sample, text) = (self.area.right() + 14.0, self.area.right() + NAME_INDENT);
            let (paint, end) = (Paint::Series(index), ends[index]);
            if end.0 > self.area.right() - 1.0 {
                scene.line((end.0 + 3.0, end.1), (sample, middle), paint, 0.8);
            }
            let points = vec![(sample, middle), (text - 6.0, middle)];
            scene.shapes.push(Shape::Line { points, paint, width: 2.0, dash: dash(index) });
            let first = middle - (lines.len() - 1) as f64 * NAME_LINE / 2.0 + LABEL_SIZE * CAP_HEIGHT / 2.0;
            for (line, name) in lines.iter().enumerate() {
                let at = (text, first + line as f64 * NAME_LINE);
                scene.label(Label::new(at, name.clone(), LABEL_SIZE));
            }
        }
    }

    fn hover(&self, figure: &Curves) -> Hover {
        let point = |&(x, y): &(f64, f64), band: Option<&(f64, f64, f64)>| {
            let write = |value| written(figure.y.scale, value);
            let value = match band {
                Some((_, low, high)) => format!("{} ({} to {})", write(y), write(*low), write(*high)),
                None => write(y),
            };
            HoverPoint { at: self.at(x, y), x: written(figure.x.scale, x), value }
        };
        let series = figure.series.iter().enumerate().map(|(index, series)| HoverSeries {
            name: series.name.clone(),
            index,
            points: series
                .points
                .iter()
                .map(|at| point(at, series.band.iter().find(|(x, _, _)| *x == at.0)))
                .collect(),
        });
        Hover::Curves {
            area: self.area,
            x_label: figure.x.label.clone(),
            y_label: figure.y.label.clone(),
            series: series.collect(),
        }
    }
}

/// Middles for blocks of `(wanted middle, height)` that do not overlap, stay within the ends if they fit, and are each as
/// near to what they want as their neighbours let them.
fn spread(wanted: &[(f64, f64)], top: f64, bottom: f64) -> Vec<f64> {
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by(|a, b| wanted[*a].0.total_cmp(&wanted[*b].0));
    // Neighbours that would overlap become one group around their mean, as in isotonic regression.
    let mut groups: Vec<(f64, f64, Vec<usize>)> = Vec::new();
    for index in order {
        let mut group = (wanted[index].0, wanted[index].1, vec![index]);
        clamp_group(&mut group, top, bottom);
        while let Some(above) = groups.pop() {
            if above.0 + above.1 / 2.0 <= group.0 - group.1 / 2.0 {
                groups.push(above);
                break;
            }
            let members = [above.2, group.2].concat();
            let middle = members.iter().map(|i| wanted[*i].0).sum::<f64>() / members.len() as f64;
            group = (middle, above.1 + group.1, members);
            clamp_group(&mut group, top, bottom);
        }
        groups.push(group);
    }
    let mut middles = vec![0.0; wanted.len()];
    for (middle, height, members) in groups {
        let mut edge = middle - height / 2.0;
        for index in members {
            middles[index] = edge + wanted[index].1 / 2.0;
            edge += wanted[index].1;
        }
    }
    middles
}

fn clamp_group(group: &mut (f64, f64, Vec<usize>), top: f64, bottom: f64) {
    let half = group.1 / 2.0;
    group.0 = group.0.min(bottom - half).max(top + half);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plot::figure::{Axis, AxisScale, Mark};

    fn line(name: &str, points: &[(f64, f64)]) -> Series {
        Series { name: name.into(), points: points.to_vec(), band: Vec::new() }
    }

    fn figure(series: Vec<Series>) -> Curves {
        let x = Axis::new("context", AxisScale::Log2);
        let y = Axis::new("ppl", AxisScale::Linear);
        Curves { title: "t".into(), x, y, series, marks: Vec::new() }
    }

    fn error(figure: &Curves) -> PlotError {
        scene(figure, &Font::new().unwrap()).unwrap_err()
    }

    #[test]
    fn data_that_make_no_curve_are_refused() {
        assert_eq!(error(&figure(vec![])), PlotError::Empty { figure: "t".into(), what: "curves" });
        assert!(matches!(error(&figure(vec![line("a", &[])])), PlotError::Empty { .. }));
        for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e300] {
            let found = error(&figure(vec![line("a", &[(1.0, 2.0), (2.0, bad)])]));
            assert!(matches!(found, PlotError::Value { index: 1, .. }), "{found}");
            let mut marked = figure(vec![line("a", &[(1.0, 2.0)])]);
            marked.marks.push(Mark { at: bad, label: "trained".into() });
            assert!(matches!(error(&marked), PlotError::Value { .. }));
        }
        let zero = error(&figure(vec![line("a", &[(0.0, 2.0)])]));
        assert_eq!(zero, PlotError::Logarithm { axis: "context".into(), found: 0.0 });
        let banded = Series { band: vec![(1.0, 3.0, 2.0)], ..line("a", &[(1.0, 2.0)]) };
        assert!(matches!(error(&figure(vec![banded])), PlotError::Band { index: 0, .. }));
        let many = vec![line("a", &[(1.0, 2.0)]); MAX_SERIES + 1];
        assert!(matches!(error(&figure(many)), PlotError::TooMany { .. }));
    }

    #[test]
    fn names_never_overlap_and_stay_inside() {
        let wanted = vec![(10.0, 17.0), (11.0, 17.0), (12.0, 34.0), (90.0, 17.0), (99.0, 17.0)];
        let middles = spread(&wanted, 0.0, 105.0);
        let mut blocks: Vec<(f64, f64)> =
            middles.iter().zip(&wanted).map(|(m, (_, h))| (m - h / 2.0, m + h / 2.0)).collect();
        blocks.sort_by(|a, b| a.0.total_cmp(&b.0));
        assert!(blocks.windows(2).all(|pair| pair[0].1 <= pair[1].0 + 1e-9), "{blocks:?}");
        assert!(blocks[0].0 >= 0.0 && blocks[4].1 <= 105.0, "{blocks:?}");
        assert_eq!(spread(&[(50.0, 17.0)], 0.0, 100.0), [50.0]);
    }

    #[test]
    fn an_interval_without_neighbours_is_a_bar() {
        let mut curves = figure(vec![line("a", &[(512.0, 5.0), (1024.0, 7.0)])]);
        let bars = |curves: &Curves| {
            let shapes = scene(curves, &Font::new().unwrap()).unwrap().shapes;
            let bar = |shape: &&Shape| {
                let Shape::Line { points, paint: Paint::Series(0), width: 1.0, .. } = shape else {
                    return false;
                };
                points.len() == 2 && points[0].0 == points[1].0 && points[0].1 > points[1].1
            };
            shapes.iter().filter(bar).count()
        };
        assert_eq!(bars(&curves), 0);
        curves.series[0].band = vec![(1024.0, 6.0, 8.0)];
        assert_eq!(bars(&curves), 1);
    }

    #[test]
    fn every_point_lies_inside_the_drawing() {
        let mut curves = figure(vec![line("a", &[(1024.0, 5.0), (16384.0, -7.0)])]);
        curves.series[0].band = vec![(512.0, -9.0, 6.0)];
        curves.marks.push(Mark { at: 32768.0, label: "limit".into() });
        let scene = scene(&curves, &Font::new().unwrap()).unwrap();
        let Hover::Curves { area, series, .. } = &scene.hover else { panic!("no hover") };
        for point in &series[0].points {
            assert!(point.at.0 >= area.left && point.at.0 <= area.right(), "{point:?}");
            assert!(point.at.1 >= area.top && point.at.1 <= area.bottom(), "{point:?}");
        }
        assert_eq!(series[0].points[1].x, "16k");
        assert!(area.right() < scene.width && area.bottom() < scene.height);
    }
}
