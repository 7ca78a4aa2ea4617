//! Colours: what each [`Paint`] looks like on a light and on a dark ground.

use super::figure::Palette;
use super::scene::{Dash, Paint};
use crate::named::Named;

/// The ground that a figure stands on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Theme {
    #[default]
    Light,
    Dark,
}

impl Named for Theme {
    const WHAT: &'static str = "theme";
    const ALL: &'static [Self] = &[Theme::Light, Theme::Dark];

    fn name(self) -> &'static str {
        match self {
            Theme::Light => "light",
            Theme::Dark => "dark",
        }
    }
}

/// Red, green and blue of sRGB, 0 to 255.
pub type Rgb = [u8; 3];

/// Colours of curves, told apart with the common colour blindnesses (after Okabe and Ito), darker or lighter by theme.
const SERIES: [[Rgb; 2]; 8] = [
    [[0x00, 0x6b, 0xa8], [0x5a, 0xad, 0xf2]],
    [[0xd5, 0x5e, 0x00], [0xff, 0x8d, 0x4a]],
    [[0x00, 0x8f, 0x68], [0x35, 0xc9, 0x9c]],
    [[0xb2, 0x4f, 0x8c], [0xe9, 0x9b, 0xc9]],
    [[0xc0, 0x85, 0x00], [0xf2, 0xbd, 0x3a]],
    [[0x3b, 0x9c, 0xd6], [0xb0, 0xdd, 0xff]],
    [[0x6a, 0x4f, 0xa3], [0xb5, 0xa1, 0xf0]],
    [[0x4a, 0x50, 0x58], [0xc3, 0xc9, 0xd2]],
];

/// Curves that can be told apart: each colour in each kind of line.
pub const MAX_SERIES: usize = SERIES.len() * DASHES.len();

/// Colours of curves before they repeat.
pub const SERIES_COLORS: usize = SERIES.len();

const DASHES: [Dash; 4] = [Dash::Solid, Dash::Dashed, Dash::Dotted, Dash::Mixed];

/// The kind of line of the curve `index`.
pub fn dash(index: usize) -> Dash {
    DASHES[index / SERIES.len() % DASHES.len()]
}

/// Stops of the sequential palette at equal distances; lightness rises all the way.
const SEQUENTIAL: [Rgb; 9] = [
    [0x2a, 0x12, 0x4f],
    [0x3d, 0x2c, 0x7c],
    [0x38, 0x4b, 0x93],
    [0x2b, 0x6a, 0x97],
    [0x20, 0x88, 0x94],
    [0x2c, 0xa6, 0x86],
    [0x65, 0xc2, 0x6a],
    [0xb3, 0xd8, 0x4b],
    [0xfa, 0xea, 0x50],
];

/// Stops of the diverging palette: blue, neutral, orange. The middle is near the ground, so that it recedes.
const DIVERGING: [[Rgb; 7]; 2] = [
    [
        [0x12, 0x4a, 0x8f],
        [0x4b, 0x86, 0xc0],
        [0xa3, 0xc5, 0xe3],
        [0xf3, 0xf1, 0xec],
        [0xf2, 0xc0, 0x8c],
        [0xda, 0x83, 0x2e],
        [0xa1, 0x4c, 0x00],
    ],
    [
        [0x8c, 0xc8, 0xff],
        [0x4d, 0x91, 0xd6],
        [0x2f, 0x59, 0x89],
        [0x2a, 0x2d, 0x33],
        [0x85, 0x52, 0x1c],
        [0xd8, 0x86, 0x2d],
        [0xff, 0xc3, 0x80],
    ],
];

impl Theme {
    /// The colour of `paint`.
    pub fn rgb(self, paint: Paint) -> Rgb {
        let pick = |light: u32, dark: u32| {
            let [_, r, g, b] = (if self == Theme::Light { light } else { dark }).to_be_bytes();
            [r, g, b]
        };
        match paint {
            Paint::Surface => pick(0xffffff, 0x14171c),
            Paint::Ink => pick(0x1c2026, 0xe8eaed),
            Paint::Muted => pick(0x555d69, 0xaab2bf),
            Paint::Grid => pick(0xe4e7eb, 0x2b3038),
            Paint::Frame => pick(0x9aa2ad, 0x6a7380),
            Paint::Empty => pick(0xdfe2e6, 0x3a404a),
            Paint::Series(index) => SERIES[index % SERIES.len()][self as usize],
            Paint::Level(Palette::Sequential, level) => between(&SEQUENTIAL, level),
            Paint::Level(Palette::Diverging, level) => between(&DIVERGING[self as usize], level),
            Paint::OnLevel(palette, level) => readable_on(self.rgb(Paint::Level(palette, level))),
        }
    }

    /// `#rrggbb`
    pub fn hex(self, paint: Paint) -> String {
        let [r, g, b] = self.rgb(paint);
        format!("#{r:02x}{g:02x}{b:02x}")
    }
}

/// The colour at `level` / 255 of the way along `stops`.
fn between(stops: &[Rgb], level: u8) -> Rgb {
    let place = f64::from(level) / 255.0 * (stops.len() - 1) as f64;
    let before = (place as usize).min(stops.len() - 2);
    let share = place - before as f64;
    let mix = |channel: usize| {
        let (a, b) = (f64::from(stops[before][channel]), f64::from(stops[before + 1][channel]));
        (a + (b - a) * share).round() as u8
    };
    [mix(0), mix(1), mix(2)]
}

/// Relative luminance by WCAG 2.2: 0 for black, 1 for white.
fn luminance(color: Rgb) -> f64 {
    let linear = |channel: u8| {
        let value = f64::from(channel) / 255.0;
        if value <= 0.04045 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
    };
    0.2126 * linear(color[0]) + 0.7152 * linear(color[1]) + 0.0722 * linear(color[2])
}

/// Contrast of two colours by WCAG 2.2: 1 to 21.
fn contrast(a: Rgb, b: Rgb) -> f64 {
    let (a, b) = (luminance(a) + 0.05, luminance(b) + 0.05);
    if a > b { a / b } else { b / a }
}

/// Black or white, whichever is easier to read on `ground`.
fn readable_on(ground: Rgb) -> Rgb {
    const DARK: Rgb = [0x00, 0x00, 0x00];
    const LIGHT: Rgb = [0xff, 0xff, 0xff];
    if contrast(ground, DARK) >= contrast(ground, LIGHT) { DARK } else { LIGHT }
}

#[cfg(test)]
mod tests {
    use super::*;

    const THEMES: [Theme; 2] = [Theme::Light, Theme::Dark];

    /// WCAG AA: 4.5 for text, 3 for graphics.
    #[test]
    fn text_and_curves_stand_out_from_the_ground() {
        for theme in THEMES {
            let surface = theme.rgb(Paint::Surface);
            for paint in [Paint::Ink, Paint::Muted] {
                assert!(contrast(theme.rgb(paint), surface) >= 4.5, "{theme:?} {paint:?}");
            }
            for index in 0..SERIES.len() {
                let found = contrast(theme.rgb(Paint::Series(index)), surface);
                assert!(found >= 3.0, "{theme:?} series {index}: {found:.2}");
            }
        }
    }

    #[test]
    fn numbers_are_readable_on_every_level() {
        for theme in THEMES {
            for palette in [Palette::Sequential, Palette::Diverging] {
                for level in 0..=255 {
                    let ground = theme.rgb(Paint::Level(palette, level));
                    let found = contrast(ground, theme.rgb(Paint::OnLevel(palette, level)));
                    assert!(found >= 4.5, "{theme:?} {palette:?} {level}: {found:.2}");
                }
            }
        }
    }

    /// Order survives any colour blindness, and grey print, when luminance alone tells it.
    #[test]
    fn the_sequential_palette_rises_in_luminance() {
        // Steps that rounding to whole channels cannot reverse.
        let levels: Vec<f64> = (0..=255)
            .step_by(5)
            .map(|l| luminance(Theme::Light.rgb(Paint::Level(Palette::Sequential, l))))
            .collect();
        assert!(levels.windows(2).all(|w| w[0] < w[1]), "{levels:?}");
    }

    #[test]
    fn the_middle_of_the_diverging_palette_recedes() {
        for theme in THEMES {
            let surface = theme.rgb(Paint::Surface);
            let at = |level| contrast(theme.rgb(Paint::Level(Palette::Diverging, level)), surface);
            assert!(at(128) < 1.4 && at(0) > 6.0 && at(255) > 5.0, "{} {} {}", at(128), at(0), at(255));
        }
    }

    #[test]
    fn every_curve_differs_in_colour_or_line() {
        let looks: Vec<_> = (0..MAX_SERIES).map(|i| (Theme::Dark.rgb(Paint::Series(i)), dash(i))).collect();
        for (i, look) in looks.iter().enumerate() {
            assert!(!looks[..i].contains(look), "{i}");
        }
    }
}
