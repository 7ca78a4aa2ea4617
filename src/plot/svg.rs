//! A scene as SVG: one element a line, numbers of at most two decimals, so that equal figures are equal bytes.

use std::fmt::Write as _;

use super::scene::{Anchor, Area, Dash, Label, Paint, Scene, Shape};
use super::text::FAMILIES;
use super::theme::Theme;

/// How colours are written.
#[derive(Debug, Clone, Copy)]
pub enum Coloring<'a> {
    /// As colours, on a ground of the theme.
    Fixed(Theme),
    /// As `var(--...)` of the page around it, without a ground; the text is a prefix that keeps ids of the page apart.
    Page(&'a str),
}

/// The drawing as a complete SVG document.
pub fn write(scene: &Scene, coloring: Coloring) -> String {
    let (width, height) = (decimal(scene.width), decimal(scene.height));
    let prefix = match coloring {
        Coloring::Fixed(_) => "figure",
        Coloring::Page(prefix) => prefix,
    };
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" \
         role=\"img\" aria-labelledby=\"{prefix}-title {prefix}-desc\" font-family=\"{FAMILIES}\">\n"
    );
    let _ = writeln!(svg, "<title id=\"{prefix}-title\">{}</title>", escape(&scene.title));
    let _ = writeln!(svg, "<desc id=\"{prefix}-desc\">{}</desc>", escape(&scene.description));
    let writer = Writer { coloring };
    if let Coloring::Fixed(_) = coloring {
        let ground = writer.fill(Paint::Surface);
        let _ = writeln!(svg, "<rect width=\"{width}\" height=\"{height}\" {ground}/>");
    }
    for shape in &scene.shapes {
        let _ = writeln!(svg, "{}", writer.shape(shape));
    }
    svg.push_str("</svg>\n");
    svg
}

struct Writer<'a> {
    coloring: Coloring<'a>,
}

impl Writer<'_> {
    fn color(&self, paint: Paint) -> String {
        match self.coloring {
            Coloring::Fixed(theme) => theme.hex(paint),
            Coloring::Page(_) => format!("var(--{})", variable(paint)),
        }
    }

    fn fill(&self, paint: Paint) -> String {
        match self.coloring {
            Coloring::Fixed(theme) => format!("fill=\"{}\"", theme.hex(paint)),
            Coloring::Page(_) => format!("style=\"fill:{}\"", self.color(paint)),
        }
    }

    fn stroke(&self, paint: Paint, width: f64, dash: Dash) -> String {
        let lengths: Vec<String> = dash.lengths().iter().map(|length| decimal(f64::from(*length))).collect();
        let dashes = match lengths.is_empty() {
            true => String::new(),
            false => format!(" stroke-dasharray=\"{}\"", lengths.join(" ")),
        };
        let color = match self.coloring {
            Coloring::Fixed(theme) => format!("stroke=\"{}\"", theme.hex(paint)),
            Coloring::Page(_) => format!("style=\"stroke:{}\"", self.color(paint)),
        };
        format!("fill=\"none\" {color} stroke-width=\"{}\"{dashes}", decimal(width))
    }

    fn shape(&self, shape: &Shape) -> String {
        match shape {
            Shape::Cells { areas, fill } => {
                let path: String = areas.iter().map(rectangle).collect();
                format!("<path d=\"{path}\" {} shape-rendering=\"crispEdges\"/>", self.fill(*fill))
            }
            Shape::Line { points, paint, width, dash } => {
                let stroke = self.stroke(*paint, *width, *dash);
                format!("<path d=\"{}\" stroke-linejoin=\"round\" {stroke}/>", path(points))
            }
            Shape::Polygon { points, fill, opacity } => {
                format!("<path d=\"{}Z\" {}{}/>", path(points), self.fill(*fill), opaque(*opacity))
            }
            Shape::Circle { center, radius, fill } => format!(
                "<circle cx=\"{}\" cy=\"{}\" r=\"{}\" {}/>",
                decimal(center.0),
                decimal(center.1),
                decimal(*radius),
                self.fill(*fill)
            ),
            Shape::Ring { center, radius, paint, width } => format!(
                "<circle cx=\"{}\" cy=\"{}\" r=\"{}\" {}/>",
                decimal(center.0),
                decimal(center.1),
                decimal(*radius),
                self.stroke(*paint, *width, Dash::Solid)
            ),
            Shape::Label(label) => self.label(label),
        }
    }

    fn label(&self, label: &Label) -> String {
        let (x, y) = (decimal(label.at.0), decimal(label.at.1));
        let anchor = match label.anchor {
            Anchor::Start => "",
            Anchor::Middle => " text-anchor=\"middle\"",
            Anchor::End => " text-anchor=\"end\"",
        };
        let bold = if label.bold { " font-weight=\"600\"" } else { "" };
        let turn = match label.turn {
            0.0 => String::new(),
            degrees => format!(" transform=\"rotate({} {x} {y})\"", decimal(degrees)),
        };
        let (rim, color) = match (label.rim, self.coloring) {
            (false, _) => ("", self.fill(label.paint)),
            (true, Coloring::Fixed(theme)) => (
                " stroke-width=\"3\" stroke-linejoin=\"round\" paint-order=\"stroke\"",
                format!("fill=\"{}\" stroke=\"{}\"", theme.hex(label.paint), theme.hex(Paint::Surface)),
            ),
            (true, Coloring::Page(_)) => (
                " stroke-width=\"3\" stroke-linejoin=\"round\" paint-order=\"stroke\"",
                format!("style=\"fill:{};stroke:{}\"", self.color(label.paint), self.color(Paint::Surface)),
            ),
        };
        format!(
            "<text x=\"{x}\" y=\"{y}\" font-size=\"{}\"{anchor}{bold}{turn} {color}{rim}>{}</text>",
            decimal(label.size),
            escape(&label.text)
        )
    }
}

/// The name of the page's variable that holds a colour.
pub fn variable(paint: Paint) -> String {
    use super::figure::Palette;
    let palette = |palette| if palette == Palette::Sequential { 's' } else { 'd' };
    match paint {
        Paint::Surface => "surface".to_string(),
        Paint::Ink => "ink".to_string(),
        Paint::Muted => "muted".to_string(),
        Paint::Grid => "grid".to_string(),
        Paint::Frame => "frame".to_string(),
        Paint::Empty => "empty".to_string(),
        Paint::Series(index) => format!("c{}", index % super::theme::SERIES_COLORS),
        Paint::Level(kind, level) => format!("{}{level}", palette(kind)),
        Paint::OnLevel(kind, level) => format!("o{}{level}", palette(kind)),
    }
}

fn path(points: &[(f64, f64)]) -> String {
    let mut text = String::new();
    for (index, (x, y)) in points.iter().enumerate() {
        let step = if index == 0 { 'M' } else { 'L' };
        let _ = write!(text, "{step}{} {}", decimal(*x), decimal(*y));
    }
    text
}

fn rectangle(area: &Area) -> String {
    let (width, height) = (decimal(area.width), decimal(area.height));
    format!("M{} {}h{width}v{height}h-{width}z", decimal(area.left), decimal(area.top))
}

fn opaque(opacity: f64) -> String {
    if opacity >= 1.0 { String::new() } else { format!(" fill-opacity=\"{}\"", decimal(opacity)) }
}

/// At most two decimals.
pub fn decimal(value: f64) -> String {
    let text = format!("{value:.2}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0".to_string() } else { text.to_string() }
}

/// Text as it may stand in XML and HTML, in elements and in quoted attributes. Characters that XML forbids become U+FFFD.
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            '\t' | '\n' | '\r' => escaped.push(letter),
            '\u{fffe}' | '\u{ffff}' => escaped.push('\u{fffd}'),
            _ if letter.is_control() => escaped.push('\u{fffd}'),
            _ => escaped.push(letter),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_two_decimals_and_one_zero() {
        assert_eq!([1.0, 0.5, -0.001, 12.345, 100.0].map(decimal), ["1", "0.5", "0", "12.35", "100"]);
    }

    #[test]
    fn hostile_text_is_text() {
        assert_eq!(
            escape("<b a=\"1\" c='2'>&\u{0}\u{1b}"),
            "&lt;b a=&quot;1&quot; c=&#39;2&#39;&gt;&amp;\u{fffd}\u{fffd}"
        );
    }
}
