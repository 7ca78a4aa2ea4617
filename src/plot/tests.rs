//! Every kind of figure, drawn in both formats and both themes.

use std::collections::HashSet;

use tiny_skia::Pixmap;

use super::*;

const HOSTILE: &str = "</title><script>alert(\"1\")</script> & 'q' \u{1b}[31m";

fn curves(title: &str) -> Figure {
    let series = |name: &str, slope: f64, band: bool| {
        let points: Vec<(f64, f64)> =
            (9..=14).map(|e| (2f64.powi(e), 5.0 + slope * f64::from(e - 9))).collect();
        let band = points.iter().filter(|_| band).map(|(x, y)| (*x, y - 0.5, y + 0.5)).collect();
        Series { name: name.into(), points, band }
    };
    Figure::Curves(Curves {
        title: title.into(),
        x: Axis::new("context (tokens)", AxisScale::Log2),
        y: Axis::new("perplexity", AxisScale::Log10),
        series: vec![
            series("none", 8.0, true),
            series("linear x2", 1.0, false),
            series("yarn x2, a rather long name that needs two lines", 0.4, true),
            series("ntk x2", 0.42, false),
        ],
        marks: vec![
            Mark { at: 8192.0, label: "trained length".into() },
            Mark { at: 9000.0, label: "nearby mark".into() },
        ],
    })
}

fn map(show_values: bool, palette: Palette) -> HeatMap {
    let cells = (0..5).map(|r| (0..6).map(|c| (r != 3 || c != 4).then(|| f64::from(r * c) - 3.5)).collect());
    HeatMap {
        title: "retrieval by depth and length".into(),
        x_label: "length (tokens)".into(),
        y_label: "depth".into(),
        columns: ["1k", "2k", "4k", "8k", "16k", "32k"].map(String::from).to_vec(),
        rows: ["0", "0.25", "0.5", "0.75", "1"].map(String::from).to_vec(),
        cells: cells.collect(),
        value_label: "margin (nats)".into(),
        range: None,
        palette,
        show_values,
    }
}

fn banded() -> Figure {
    let cells = (0..48).map(|r| (0..256).map(|c| Some((f64::from(c) / f64::from(r + 1)).cos())).collect());
    Figure::BandedMap(BandedMap {
        map: HeatMap {
            columns: (0..256).map(|c| (c * 64).to_string()).collect(),
            rows: (0..48).map(|r| r.to_string()).collect(),
            cells: cells.collect(),
            ..map(false, Palette::Diverging)
        },
        marks: vec![Mark { at: 128.0, label: "trained length 8k".into() }],
        bands: vec![
            RowBand { rows: 0..20, label: "kept".into() },
            RowBand { rows: 20..30, label: "blended, linear in the pair".into() },
            RowBand { rows: 30..48, label: "interpolated".into() },
        ],
        region: (0..48).map(|r| if r < 31 { 256..256 } else { 128 + (48 - r)..256 }).collect(),
        region_label: "angles never seen in training".into(),
    })
}

fn vectors() -> Figure {
    let arrow = |to: (f64, f64), label: &str, group| Arrow {
        from: (0.0, 0.0),
        to,
        label: label.into(),
        group,
        dashed: group > 0,
    };
    let panel = |title: &str| VectorPanel {
        title: title.into(),
        notes: vec![
            "A note that is long enough to be broken into more than one line below the drawing.".into(),
        ],
        arrows: vec![
            arrow((1.0, 0.0), "q", 0),
            arrow((0.6, 0.8), "q at 5", 0),
            arrow((0.0, 0.0), "point", 1),
        ],
        circle: Some(1.0),
    };
    Figure::Vectors(Vectors { title: "two ways".into(), panels: vec![panel("added"), panel("rotated")] })
}

fn all() -> Vec<Figure> {
    vec![
        curves("perplexity by context"),
        Figure::HeatMap(map(true, Palette::Diverging)),
        Figure::HeatMap(map(true, Palette::Sequential)),
        banded(),
        vectors(),
    ]
}

const THEMES: [Theme; 2] = [Theme::Light, Theme::Dark];

/// A document that a strict parser reads, with a title, a description and no control characters.
#[test]
fn every_svg_is_well_formed_and_described() {
    for figure in all() {
        for theme in THEMES {
            let svg = render_svg(&figure, theme).unwrap();
            let document = roxmltree::Document::parse(&svg).unwrap();
            let root = document.root_element();
            let text = |tag: &str| {
                let node =
                    root.children().find(|node| node.has_tag_name(("http://www.w3.org/2000/svg", tag)));
                node.and_then(|node| node.text()).unwrap().to_string()
            };
            assert_eq!(text("title"), figure.title());
            assert!(text("desc").len() > 20, "{}", text("desc"));
            assert_eq!(root.attribute("width"), Some("800"));
            let ids: Vec<&str> = document.descendants().filter_map(|node| node.attribute("id")).collect();
            assert_eq!(ids.len(), ids.iter().collect::<HashSet<_>>().len());
            for bad in ["NaN", "inf"] {
                assert!(!svg.contains(bad), "{bad} in {svg}");
            }
        }
    }
}

#[test]
fn equal_figures_are_equal_bytes() {
    for figure in all() {
        assert_eq!(render_svg(&figure, Theme::Dark), render_svg(&figure, Theme::Dark));
        assert_eq!(render_png(&figure, Theme::Light), render_png(&figure, Theme::Light));
        assert_ne!(render_svg(&figure, Theme::Light), render_svg(&figure, Theme::Dark));
    }
}

/// The image has twice the size of the drawing, and something on it.
#[test]
fn every_png_shows_the_drawing() {
    for figure in all() {
        for theme in THEMES {
            let image = Pixmap::decode_png(&render_png(&figure, theme).unwrap()).unwrap();
            assert_eq!(image.width(), 1600);
            let ground = image.pixel(0, 0).unwrap();
            let drawn = image.pixels().iter().filter(|pixel| **pixel != ground).count();
            assert!(drawn > image.pixels().len() / 200, "{drawn}");
            let edge = (0..image.height()).all(|y| image.pixel(1599, y) == Some(ground));
            assert!(edge, "{} reaches over the right edge", figure.title());
        }
    }
}

/// Text of models and files cannot leave its element.
#[test]
fn hostile_text_stays_text() {
    let Figure::Curves(mut figure) = curves(HOSTILE) else { unreachable!() };
    figure.series[0].name = HOSTILE.into();
    figure.x.label = HOSTILE.into();
    figure.y.label = HOSTILE.into();
    figure.marks[0].label = HOSTILE.into();
    let hostile_map = HeatMap {
        title: HOSTILE.into(),
        rows: vec![HOSTILE.into(); 5],
        columns: vec![HOSTILE.into(); 6],
        value_label: HOSTILE.into(),
        ..map(true, Palette::Sequential)
    };
    for figure in [Figure::Curves(figure), Figure::HeatMap(hostile_map)] {
        let svg = render_svg(&figure, Theme::Light).unwrap();
        let document = roxmltree::Document::parse(&svg).unwrap();
        assert!(document.descendants().all(|node| node.tag_name().name() != "script"));
        assert!(!svg.contains('\u{1b}'));
        render_png(&figure, Theme::Dark).unwrap();
    }
}

#[test]
fn maps_without_sense_are_refused() {
    let plain = map(true, Palette::Sequential);
    let error = |map: HeatMap| render_svg(&Figure::HeatMap(map), Theme::Light).unwrap_err();
    assert!(matches!(
        error(HeatMap { rows: vec![], ..plain.clone() }),
        PlotError::Empty { what: "rows", .. }
    ));
    assert!(matches!(
        error(HeatMap { columns: vec![], ..plain.clone() }),
        PlotError::Empty { what: "columns", .. }
    ));
    let short = HeatMap { cells: vec![vec![Some(1.0)]; 5], ..plain.clone() };
    assert_eq!(
        error(short).to_string(),
        "the heat map `retrieval by depth and length` must have 6 cells in row `0`, found 1"
    );
    assert!(matches!(error(HeatMap { cells: vec![], ..plain.clone() }), PlotError::Shape { found: 0, .. }));
    for (low, high) in [(1.0, 1.0), (2.0, 1.0)] {
        assert_eq!(
            error(HeatMap { range: Some((low, high)), ..plain.clone() }),
            PlotError::Range { low, high }
        );
    }
    for bad in [f64::NAN, f64::INFINITY] {
        let mut wrong = plain.clone();
        wrong.cells[1][2] = Some(bad);
        assert!(matches!(error(wrong), PlotError::Value { index: 2, .. }));
        let wrong = HeatMap { range: Some((0.0, bad)), ..plain.clone() };
        assert!(matches!(error(wrong), PlotError::Value { index: 1, .. }));
    }
}

#[test]
fn annotations_outside_the_map_are_refused() {
    let Figure::BandedMap(plain) = banded() else { unreachable!() };
    let error = |figure: BandedMap| render_svg(&Figure::BandedMap(figure), Theme::Light).unwrap_err();
    for at in [-1.0, 257.0, f64::NAN] {
        let marks = vec![Mark { at, label: "mark".into() }];
        let found = error(BandedMap { marks, ..plain.clone() });
        assert!(matches!(found, PlotError::Outside { unit: "columns", .. }), "{found}");
    }
    let bands = vec![RowBand { rows: 40..49, label: "band".into() }];
    let found = error(BandedMap { bands, ..plain.clone() });
    assert_eq!(found.to_string(), "`band` must lie within the 48 rows of the map, found 40..49");
    let found = error(BandedMap { region: vec![0..1, 0..1], ..plain.clone() });
    assert!(matches!(found, PlotError::Shape { expected: 48, found: 2, .. }), "{found}");
    let found = error(BandedMap { region: vec![0..300; 48], ..plain });
    assert!(matches!(found, PlotError::Outside { .. }), "{found}");
}

#[test]
fn a_map_of_which_nothing_is_measured_is_grey() {
    let empty = HeatMap { cells: vec![vec![None; 6]; 5], ..map(true, Palette::Sequential) };
    let svg = render_svg(&Figure::HeatMap(empty), Theme::Light).unwrap();
    assert!(svg.contains("not measured") && svg.contains("no cell is measured"));
}

#[test]
fn vectors_without_sense_are_refused() {
    let Figure::Vectors(plain) = vectors() else { unreachable!() };
    let error = |figure: Vectors| render_svg(&Figure::Vectors(figure), Theme::Light).unwrap_err();
    assert!(matches!(error(Vectors::default()), PlotError::Empty { what: "drawings", .. }));
    let mut wrong = plain.clone();
    wrong.panels[0].arrows[1].to.1 = f64::NAN;
    assert!(matches!(error(wrong), PlotError::Value { index: 1, .. }));
    let mut wrong = plain;
    wrong.panels[1].arrows.clear();
    assert!(matches!(error(wrong), PlotError::Empty { .. }));
}
