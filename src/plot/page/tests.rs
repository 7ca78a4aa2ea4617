//! The page's structure, and text that tries to leave its place.

use super::*;
use crate::plot::{Axis, AxisScale, Curves, Figure, HeatMap, Palette, Series};

const HOSTILE: &str = "</script><script>alert(1)</script><!--<b onmouseover='x'>\"&\u{2028}";

fn figures(text: &str) -> Vec<NamedFigure> {
    let series = vec![Series { name: text.into(), points: vec![(1.0, 2.0), (4.0, 3.0)], band: Vec::new() }];
    let x = Axis::new(text, AxisScale::Log2);
    let y = Axis::new(text, AxisScale::Linear);
    let curves = Curves { title: text.into(), x, y, series, marks: Vec::new() };
    let map = HeatMap {
        title: text.into(),
        x_label: text.into(),
        y_label: text.into(),
        columns: vec![text.into(), "b".into()],
        rows: vec![text.into()],
        cells: vec![vec![Some(0.25), None]],
        value_label: text.into(),
        range: Some((0.0, 1.0)),
        palette: Palette::Sequential,
        show_values: true,
    };
    vec![NamedFigure::new("loss", Figure::Curves(curves)), NamedFigure::new("grid", Figure::HeatMap(map))]
}

fn page(text: &str) -> String {
    let table = PageTable {
        title: text.into(),
        columns: vec![text.into(), "ppl".into()],
        rows: vec![vec![text.into(), "12.5".into()], vec!["b".into(), "-".into()]],
    };
    let figures = figures(text);
    let page = Page {
        title: text.into(),
        subtitle: text.into(),
        warnings: &[text.to_string()],
        text: Some(text),
        figures: &figures,
        tables: vec![table.clone()],
        settings: vec![table],
        json: serde_json::json!({ "name": text }).to_string(),
        footer: text.into(),
    };
    render_page(&page).unwrap()
}

/// The contents of every script element, as an HTML parser cuts them: up to the first `</script`.
fn scripts(html: &str) -> Vec<&str> {
    let starts = html.match_indices("<script");
    let content = starts.map(|(at, _)| {
        let open = at + html[at..].find('>').unwrap() + 1;
        &html[open..open + html[open..].find("</script").unwrap()]
    });
    content.collect()
}

#[test]
fn hostile_text_cannot_leave_its_place() {
    let (plain, hostile) = (page("plain"), page(HOSTILE));
    // Two figures, the result, the page's own script: as many as without the hostile text.
    assert_eq!(scripts(&hostile).len(), 4);
    assert_eq!(scripts(&plain).len(), 4);
    assert_eq!(hostile.matches("<script").count(), 4);
    for tag in ["<b", "<!--", "onmouseover='x'>"] {
        assert_eq!(hostile.matches(tag).count(), plain.matches(tag).count(), "{tag}");
    }
    assert!(hostile.contains("&lt;/script&gt;&lt;script&gt;alert(1)"));
}

/// Every JSON element reads back as what was put in.
#[test]
fn embedded_json_reads_back() {
    let html = page(HOSTILE);
    let scripts = scripts(&html);
    for data in &scripts[..3] {
        assert!(!data.contains(['<', '>', '&', '\u{2028}']), "{data}");
        let value: serde_json::Value = serde_json::from_str(data).unwrap();
        assert!(value.to_string().contains("onmouseover"), "{value}");
    }
    let result: serde_json::Value = serde_json::from_str(scripts[2]).unwrap();
    assert_eq!(result["name"], HOSTILE);
}

#[test]
fn the_page_loads_nothing() {
    let html = page("plain");
    assert!(html.contains("default-src 'none'"));
    let namespace = "http://www.w3.org/2000/svg";
    assert_eq!(
        html.matches("http").count(),
        html.matches(namespace).count() + html.matches("http-equiv").count()
    );
    for tag in ["src=", "@import", "url("] {
        assert!(!html.contains(tag), "{tag}");
    }
}

#[test]
fn colours_of_figures_are_variables_of_the_page() {
    let html = page("plain");
    let used = html.split("var(--").skip(1).map(|rest| rest.split(')').next().unwrap());
    let own = ["line", "raised", "link"]; // of the style
    for name in used.filter(|name| !own.contains(name) && !name.contains('$')) {
        assert!(html.contains(&format!("--{name}: light-dark(")), "{name}");
    }
}

#[test]
fn numbers_are_flush_right_and_missing_ones_do_not_matter() {
    let html = page("plain");
    assert!(html.contains("<td class=\"n\">12.5</td>"));
    assert!(html.contains("<td class=\"n\">-</td>"));
    assert!(html.contains("<td>plain</td>"));
}

#[test]
fn equal_pages_are_equal_bytes() {
    assert_eq!(page("plain"), page("plain"));
}
