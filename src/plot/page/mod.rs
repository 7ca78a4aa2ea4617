//! One self-contained page: settings, tables, figures that answer to the pointer, and the raw result.
//!
//! The page loads nothing: style, script and data are inside it, and a policy in its head forbids connections. Text of
//! models, files and results is escaped wherever it stands.

mod hover;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::error::PlotError;
use super::figure::NamedFigure;
use super::scene::{Paint, Scene, Shape};
use super::svg::{self, Coloring, escape, variable};
use super::text::Font;
use super::theme::Theme;

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");
/// No connection, no file, no plug-in: only what the page itself holds (its empty icon is a data address).
const POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:";

/// A table of a page.
#[derive(Debug, Clone, Default)]
pub struct PageTable {
    pub title: String,
    pub columns: Vec<String>,
    pub rows: Vec<Vec<String>>,
}

/// What a page shows, top to bottom.
#[derive(Debug, Clone, Default)]
pub struct Page<'a> {
    /// Heading and title of the window.
    pub title: String,
    /// A line below the heading.
    pub subtitle: String,
    pub warnings: &'a [String],
    /// Running text.
    pub text: Option<&'a str>,
    pub figures: &'a [NamedFigure],
    pub tables: Vec<PageTable>,
    /// What was in force; shown small.
    pub settings: Vec<PageTable>,
    /// The result as JSON.
    pub json: String,
    /// A line at the foot.
    pub footer: String,
}

/// The page as HTML. Figure names must be valid and distinct, see [`NamedFigure`].
///
/// # Errors
/// The [`PlotError`] of a figure that cannot be drawn.
pub fn render_page(page: &Page) -> Result<String, PlotError> {
    let font = Font::new()?;
    let mut scenes = Vec::new();
    for NamedFigure { name, figure } in page.figures {
        scenes.push((name.as_str(), super::scene(figure, &font)?));
    }
    let title = escape(&page.title);
    let mut html = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\n\
         <link rel=\"icon\" href=\"data:,\">\n<title>{title}</title>\n<style>\n{}{STYLE}</style>\n</head>\n<body>\n\
         <header>\n<h1>{title}</h1>\n<button type=\"button\" id=\"theme\">theme: auto</button>\n<p>{}</p>\n</header>\n<main>\n",
        colors(&scenes),
        escape(&page.subtitle)
    );
    if !page.warnings.is_empty() {
        let items = page.warnings.iter().map(|warning| format!("<li>warning: {}</li>\n", escape(warning)));
        let _ = write!(html, "<ul class=\"warnings\">\n{}</ul>\n", items.collect::<String>());
    }
    if let Some(text) = page.text {
        let _ = write!(html, "<h2>Text</h2>\n<pre>{}</pre>\n", escape(text));
    }
    for (index, (name, scene)) in scenes.iter().enumerate() {
        html += if index == 0 { "<h2>Figures</h2>\n" } else { "" };
        html += &figure(name, scene);
    }
    for (index, table) in page.tables.iter().enumerate() {
        html += if index == 0 { "<h2>Tables</h2>\n" } else { "" };
        html += &section(table);
    }
    if !page.settings.is_empty() {
        let sections: String = page.settings.iter().map(section).collect();
        let _ = write!(html, "<h2>Settings</h2>\n<div class=\"settings\">\n{sections}</div>\n");
    }
    let _ = write!(
        html,
        "<h2>Result</h2>\n<p><button type=\"button\" id=\"download\">Download as JSON</button></p>\n\
         <details id=\"raw\">\n<summary>Show the JSON</summary>\n<pre></pre>\n</details>\n<footer>{}</footer>\n</main>\n\
         <script type=\"application/json\" id=\"result\">{}</script>\n<script>\n{SCRIPT}</script>\n</body>\n</html>\n",
        escape(&page.footer),
        json_in_script(&page.json)
    );
    Ok(html)
}

/// JSON that can stand inside a script element: what could end the element or start a comment is written as an escape,
/// which JSON allows in strings, the only place where these characters occur in it.
fn json_in_script(json: &str) -> String {
    let mut safe = String::with_capacity(json.len());
    for letter in json.chars() {
        match letter {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                let _ = write!(safe, "\\u{:04x}", u32::from(letter));
            }
            _ => safe.push(letter),
        }
    }
    safe
}

/// The colours in use as variables that follow the theme.
fn colors(scenes: &[(&str, Scene)]) -> String {
    let page = [Paint::Surface, Paint::Ink, Paint::Muted, Paint::Grid, Paint::Frame, Paint::Empty];
    let series = (0..super::theme::SERIES_COLORS).map(Paint::Series);
    let drawn = scenes.iter().flat_map(|(_, scene)| &scene.shapes).map(|shape| match shape {
        Shape::Cells { fill, .. } | Shape::Polygon { fill, .. } | Shape::Circle { fill, .. } => *fill,
        Shape::Line { paint, .. } | Shape::Ring { paint, .. } => *paint,
        Shape::Label(label) => label.paint,
    });
    let used: BTreeMap<String, Paint> =
        page.into_iter().chain(series).chain(drawn).map(|paint| (variable(paint), paint)).collect();
    let mut css = ":root {\n".to_string();
    for (name, paint) in used {
        let (light, dark) = (Theme::Light.hex(paint), Theme::Dark.hex(paint));
        let _ = writeln!(css, "--{name}: light-dark({light}, {dark});");
    }
    css + "}\n"
}

/// A figure, which can be reached by the keyboard when it has values to show.
fn figure(name: &str, scene: &Scene) -> String {
    let drawing = svg::write(scene, Coloring::Page(name));
    let (reach, data) = match hover::json(&scene.hover) {
        Some(data) => {
            let data = json_in_script(&data.to_string());
            let data = format!("<script type=\"application/json\">{data}</script>\n");
            (format!(" tabindex=\"0\" aria-label=\"{}: values by arrow keys\"", escape(&scene.title)), data)
        }
        None => (String::new(), String::new()),
    };
    format!("<figure id=\"{name}\"{reach}>\n{drawing}{data}</figure>\n")
}

fn section(table: &PageTable) -> String {
    let title = match table.title.is_empty() {
        true => String::new(),
        false => format!("<h3>{}</h3>\n", escape(&table.title)),
    };
    let class = |column: usize| if is_number(table, column) { " class=\"n\"" } else { "" };
    let heads = table.columns.iter().enumerate().map(|(column, name)| {
        let (class, name) = (class(column), escape(name));
        format!("<th scope=\"col\" aria-sort=\"none\"{class}><button type=\"button\">{name}</button></th>")
    });
    let mut html = format!(
        "<section>\n{title}<div class=\"scroll\"><table class=\"sortable\">\n<thead><tr>{}</tr></thead>\n<tbody>\n",
        heads.collect::<String>()
    );
    for row in &table.rows {
        let cells = row.iter().enumerate();
        let cells = cells.map(|(column, cell)| format!("<td{}>{}</td>", class(column), escape(cell)));
        let _ = writeln!(html, "<tr>{}</tr>", cells.collect::<String>());
    }
    html + "</tbody>\n</table></div>\n</section>\n"
}

/// Whether every cell of a column starts as a number or stands for a missing one.
fn is_number(table: &PageTable, column: usize) -> bool {
    let mut cells = table.rows.iter().filter_map(|row| row.get(column));
    // A flag such as `--factor` is none.
    let number = |cell: &String| {
        let digits = cell.strip_prefix(['-', '\u{2212}']);
        digits == Some("") || digits.unwrap_or(cell).starts_with(|c: char| c.is_ascii_digit())
    };
    !table.rows.is_empty() && cells.all(number)
}

#[cfg(test)]
mod tests;
