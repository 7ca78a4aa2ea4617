//! How wide a text is, and the outlines of its letters, by the font inside the program.

use ttf_parser::{Face, GlyphId, OutlineBuilder};

use super::error::PlotError;

/// Families that an SVG asks for; the first one is the font inside the program.
pub const FAMILIES: &str = "Noto Sans, DejaVu Sans, Segoe UI, Helvetica, Arial, sans-serif";

/// Share of the font size from the baseline to the top of a capital letter.
pub const CAP_HEIGHT: f64 = 0.714;

/// Noto Sans, regular.
pub struct Font {
    face: Face<'static>,
    units_per_em: f64,
}

impl Font {
    /// # Errors
    /// [`PlotError::Font`] when the font inside the program is damaged.
    pub fn new() -> Result<Font, PlotError> {
        let face =
            Face::parse(ttf_noto_sans::REGULAR, 0).map_err(|error| PlotError::Font(error.to_string()))?;
        let units_per_em = f64::from(face.units_per_em());
        Ok(Font { face, units_per_em })
    }

    /// The glyph of `letter`; the font's own sign for a missing one when it has none.
    fn glyph(&self, letter: char) -> GlyphId {
        self.face.glyph_index(letter).unwrap_or(GlyphId(0))
    }

    fn advance(&self, letter: char) -> f64 {
        let units = self.face.glyph_hor_advance(self.glyph(letter)).unwrap_or(0);
        f64::from(units) / self.units_per_em
    }

    /// Width of `text` at `size`, in the unit of `size`.
    pub fn width(&self, text: &str, size: f64) -> f64 {
        text.chars().map(|letter| self.advance(letter)).sum::<f64>() * size
    }

    /// Draws `text` with its baseline starting at the origin, in ems, y upwards.
    pub fn outline(&self, text: &str, builder: &mut dyn GlyphSink) {
        let mut pen = 0.0;
        for letter in text.chars() {
            let mut placed = Placed { builder: &mut *builder, pen, units_per_em: self.units_per_em };
            self.face.outline_glyph(self.glyph(letter), &mut placed);
            pen += self.advance(letter);
        }
    }

    /// `text` broken between words into lines of at most `width`; a longer word has a line of its own.
    pub fn wrap(&self, text: &str, size: f64, width: f64) -> Vec<String> {
        let mut lines: Vec<String> = Vec::new();
        for word in text.split_whitespace() {
            match lines.last_mut() {
                Some(line) if self.width(&format!("{line} {word}"), size) <= width => {
                    line.push(' ');
                    line.push_str(word);
                }
                _ => lines.push(word.to_string()),
            }
        }
        lines
    }

    /// `text` if it is at most `width` wide, else as much of its start as fits before an ellipsis.
    pub fn shortened(&self, text: &str, size: f64, width: f64) -> String {
        if self.width(text, size) <= width {
            return text.to_string();
        }
        let mut kept = String::new();
        for letter in text.chars() {
            if self.width(&format!("{kept}{letter}\u{2026}"), size) > width {
                break;
            }
            kept.push(letter);
        }
        kept + "\u{2026}"
    }
}

/// Receives outlines, in ems.
pub trait GlyphSink {
    fn move_to(&mut self, x: f64, y: f64);
    fn line_to(&mut self, x: f64, y: f64);
    fn quad_to(&mut self, control: (f64, f64), x: f64, y: f64);
    fn curve_to(&mut self, first: (f64, f64), second: (f64, f64), x: f64, y: f64);
    fn close(&mut self);
}

/// Moves one letter to its place in the line.
struct Placed<'a> {
    builder: &'a mut dyn GlyphSink,
    pen: f64,
    units_per_em: f64,
}

impl Placed<'_> {
    fn at(&self, x: f32, y: f32) -> (f64, f64) {
        (self.pen + f64::from(x) / self.units_per_em, f64::from(y) / self.units_per_em)
    }
}

impl OutlineBuilder for Placed<'_> {
    fn move_to(&mut self, x: f32, y: f32) {
        let (x, y) = self.at(x, y);
        self.builder.move_to(x, y);
    }

    fn line_to(&mut self, x: f32, y: f32) {
        let (x, y) = self.at(x, y);
        self.builder.line_to(x, y);
    }

    fn quad_to(&mut self, x1: f32, y1: f32, x: f32, y: f32) {
        let (control, (x, y)) = (self.at(x1, y1), self.at(x, y));
        self.builder.quad_to(control, x, y);
    }

    fn curve_to(&mut self, x1: f32, y1: f32, x2: f32, y2: f32, x: f32, y: f32) {
        let (first, second, (x, y)) = (self.at(x1, y1), self.at(x2, y2), self.at(x, y));
        self.builder.curve_to(first, second, x, y);
    }

    fn close(&mut self) {
        self.builder.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn widths_grow_with_text_and_size() {
        let font = Font::new().unwrap();
        assert_eq!(font.width("", 12.0), 0.0);
        let (one, two) = (font.width("m", 12.0), font.width("mm", 12.0));
        assert!((two - 2.0 * one).abs() < 1e-9 && one > font.width("i", 12.0));
        assert!((font.width("wavelength", 24.0) - 2.0 * font.width("wavelength", 12.0)).abs() < 1e-9);
        // A letter that the font lacks still takes room.
        assert!(font.width("\u{4e00}", 10.0) > 3.0);
    }

    #[test]
    fn lines_break_between_words() {
        let font = Font::new().unwrap();
        let text = "a few words that go on";
        let lines = font.wrap(text, 10.0, 60.0);
        assert!(lines.len() > 1);
        assert_eq!(lines.join(" "), text);
        assert!(lines.iter().all(|line| font.width(line, 10.0) <= 60.0), "{lines:?}");
        assert_eq!(font.wrap("incomprehensibilities", 10.0, 20.0), ["incomprehensibilities"]);
        assert!(font.wrap(" ", 10.0, 20.0).is_empty());
    }
}
