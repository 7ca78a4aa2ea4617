//! Where values lie along an axis, and which of them are written at it.

use super::error::PlotError;
use super::figure::{Axis, AxisScale};

/// Share of its length that an axis is longer than the values at each end, where it is padded.
const PADDING: f64 = 0.05;

/// Fewer powers than this, and ticks are chosen as on a linear axis.
const FEW_POWERS: usize = 3;

/// An axis with its range.
#[derive(Debug, Clone, PartialEq)]
pub struct Scaled {
    scale: AxisScale,
    // both in units of the scale: values, powers of two or powers of ten
    low: f64,
    high: f64,
}

impl Scaled {
    /// The axis that holds all `values`, which must be finite; `padded`: with some room at both ends.
    ///
    /// # Errors
    /// [`PlotError::Logarithm`] for a value that is not above 0 on a logarithmic axis.
    pub fn new(axis: &Axis, values: impl Iterator<Item = f64>, padded: bool) -> Result<Self, PlotError> {
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in values {
            if axis.scale != AxisScale::Linear && value <= 0.0 {
                return Err(PlotError::Logarithm { axis: axis.label.clone(), found: value });
            }
            let place = unscaled(axis.scale, value);
            (low, high) = (low.min(place), high.max(place));
        }
        if low == high {
            let room = if axis.scale == AxisScale::Linear { (low.abs() * 0.1).max(0.5) } else { 0.5 };
            (low, high) = (low - room, high + room);
        } else if padded {
            let room = (high - low) * PADDING;
            // A scale that starts at zero keeps doing so.
            low -= if axis.scale == AxisScale::Linear && low == 0.0 { 0.0 } else { room };
            high += room;
        }
        Ok(Self { scale: axis.scale, low, high })
    }

    /// 0 at the low end of the axis, 1 at the high end.
    pub fn share(&self, value: f64) -> f64 {
        (unscaled(self.scale, value) - self.low) / (self.high - self.low)
    }

    /// At most about `most` round values within the axis, rising, with how they are written.
    pub fn ticks(&self, most: usize) -> Vec<(f64, String)> {
        match self.scale {
            AxisScale::Linear => linear_ticks(self.low, self.high, most),
            AxisScale::Log2 => self.powers(2.0, most, length),
            AxisScale::Log10 => self.powers(10.0, most, power_of_ten),
        }
    }

    fn powers(&self, base: f64, most: usize, written: fn(f64) -> String) -> Vec<(f64, String)> {
        // Rounding must not lose a power at the very end.
        let (first, last) = ((self.low - 1e-9).ceil() as i32, (self.high + 1e-9).floor() as i32);
        let count = usize::try_from(last - first + 1).unwrap_or(0);
        if count < FEW_POWERS {
            return self.between_powers(base, most);
        }
        let step = count.div_ceil(most.max(1)).max(1);
        let exponents = (first..=last).step_by(step);
        exponents.map(|exponent| base.powi(exponent)).map(|value| (value, written(value))).collect()
    }

    /// Ticks of a logarithmic axis that spans too little for powers alone.
    fn between_powers(&self, base: f64, most: usize) -> Vec<(f64, String)> {
        let (low, high) = (base.powf(self.low), base.powf(self.high));
        if high / low < 8.0 {
            return linear_ticks(low, high, most);
        }
        let decades = low.log10().floor() as i32..=high.log10().ceil() as i32;
        let steps = decades.flat_map(|decade| [1.0, 2.0, 5.0].map(|step| step * 10f64.powi(decade)));
        // Powers and logarithms round: an end that is a round value itself counts.
        let inside = steps.filter(|value| (low * (1.0 - 1e-9)..=high * (1.0 + 1e-9)).contains(value));
        inside.map(|value| (value, number(value))).collect()
    }
}

fn unscaled(scale: AxisScale, value: f64) -> f64 {
    match scale {
        AxisScale::Linear => value,
        AxisScale::Log2 => value.log2(),
        AxisScale::Log10 => value.log10(),
    }
}

/// Multiples of 1, 2 or 5 times a power of ten.
fn linear_ticks(low: f64, high: f64, most: usize) -> Vec<(f64, String)> {
    let rough = (high - low) / most.max(1) as f64;
    let decade = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|m| m * decade).into_iter().find(|step| *step >= rough * 0.999);
    let step = step.unwrap_or(10.0 * decade);
    let (first, last) = ((low / step - 1e-9).ceil(), (high / step + 1e-9).floor());
    let count = (last - first).max(-1.0) as usize + 1;
    let decimals = usize::try_from(-step.log10().floor() as i32).unwrap_or(0);
    let written = |value: f64| match value {
        // The whole axis speaks one language: powers of ten as soon as its ends need them.
        _ if value == 0.0 => "0".to_string(),
        _ if high.abs().max(low.abs()) >= 1e6 || step < 1e-4 => scientific(value),
        _ if decimals == 0 => grouped(value),
        _ => minus(format!("{value:.decimals$}")),
    };
    (0..count).map(|i| (first + i as f64) * step).map(|value| (value, written(value))).collect()
}

/// A number of tokens: `512`, `1k`, `1.5k` no more than that, `2M`; powers below one as fractions.
pub fn length(value: f64) -> String {
    const K: f64 = 1024.0;
    match value {
        _ if value >= K * K && value % (K * K) == 0.0 => format!("{}M", value / (K * K)),
        _ if value >= K && value % K == 0.0 => format!("{}k", value / K),
        _ if value > 0.0 && value < 1.0 && (1.0 / value).fract() == 0.0 => format!("1/{}", 1.0 / value),
        _ => number(value),
    }
}

fn power_of_ten(value: f64) -> String {
    if (1e-3..1e5).contains(&value) { number(value) } else { scientific(value) }
}

/// Four significant digits, without trailing zeros.
pub fn number(value: f64) -> String {
    significant(value, 4)
}

/// That many significant digits, without trailing zeros.
pub fn significant(value: f64, digits: i32) -> String {
    let magnitude = value.abs();
    if magnitude == 0.0 {
        return "0".to_string();
    }
    if !(1e-3..1e6).contains(&magnitude) {
        return scientific(value);
    }
    let before = magnitude.log10().floor() as i32 + 1;
    let decimals = usize::try_from(digits - before).unwrap_or(0);
    if decimals == 0 {
        return grouped(value.round());
    }
    let text = format!("{value:.decimals$}");
    minus(text.trim_end_matches('0').trim_end_matches('.').to_string())
}

/// `1.5e6`, at most three digits.
fn scientific(value: f64) -> String {
    let text = format!("{value:.2e}");
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let mantissa = mantissa.trim_end_matches('0').trim_end_matches('.');
    minus(format!("{mantissa}e{exponent}"))
}

/// Whole numbers above 9999 in groups of three.
fn grouped(value: f64) -> String {
    let digits = format!("{:.0}", value.abs());
    if digits.len() < 5 {
        return minus(format!("{value:.0}"));
    }
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    if value < 0.0 { format!("\u{2212}{text}") } else { text }
}

/// The hyphen of a number as a minus sign.
fn minus(text: String) -> String {
    text.replace('-', "\u{2212}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticks(scale: AxisScale, values: &[f64], most: usize) -> Vec<String> {
        let axis = Axis::new("x", scale);
        let scaled = Scaled::new(&axis, values.iter().copied(), false).unwrap();
        scaled.ticks(most).into_iter().map(|(_, text)| text).collect()
    }

    #[test]
    fn lengths_are_written_in_k() {
        assert_eq!(ticks(AxisScale::Log2, &[512.0, 16384.0], 8), ["512", "1k", "2k", "4k", "8k", "16k"]);
        assert_eq!(ticks(AxisScale::Log2, &[1.0, 1048576.0], 6), ["1", "16", "256", "4k", "64k", "1M"]);
        assert_eq!(ticks(AxisScale::Log2, &[0.25, 2.0], 6), ["1/4", "1/2", "1", "2"]);
    }

    #[test]
    fn linear_ticks_are_round() {
        assert_eq!(ticks(AxisScale::Linear, &[0.0, 1.0], 5), ["0", "0.2", "0.4", "0.6", "0.8", "1.0"]);
        assert_eq!(ticks(AxisScale::Linear, &[0.0, 16000.0], 4), ["0", "5000", "10 000", "15 000"]);
        assert_eq!(
            ticks(AxisScale::Linear, &[-1.0, 1.0], 4),
            ["\u{2212}1.0", "\u{2212}0.5", "0", "0.5", "1.0"]
        );
        assert_eq!(ticks(AxisScale::Linear, &[0.0, 3e6], 3), ["0", "1e6", "2e6", "3e6"]);
    }

    #[test]
    fn logarithmic_ticks_follow_the_span() {
        assert_eq!(
            ticks(AxisScale::Log10, &[1.0, 1e6], 8),
            ["1", "10", "100", "1000", "10 000", "1e5", "1e6"]
        );
        assert_eq!(ticks(AxisScale::Log10, &[5.0, 80.0], 8), ["5", "10", "20", "50"]);
        assert_eq!(ticks(AxisScale::Log10, &[5.0, 7.0], 4), ["5.0", "5.5", "6.0", "6.5", "7.0"]);
    }

    #[test]
    fn a_single_value_lies_in_the_middle() {
        for scale in [AxisScale::Linear, AxisScale::Log2, AxisScale::Log10] {
            let scaled = Scaled::new(&Axis::new("x", scale), [8.0].into_iter(), true).unwrap();
            assert!((scaled.share(8.0) - 0.5).abs() < 1e-12, "{scale:?}");
            assert!(!scaled.ticks(5).is_empty(), "{scale:?}");
        }
    }

    #[test]
    fn logarithms_need_positive_values() {
        for found in [0.0, -1.0] {
            let error = Scaled::new(&Axis::new("tokens", AxisScale::Log2), [1.0, found].into_iter(), true);
            assert_eq!(error, Err(PlotError::Logarithm { axis: "tokens".into(), found }));
        }
    }

    #[test]
    fn numbers_are_short() {
        let written = [0.0, 12.5, 0.123456, 99.999, 16384.0, -2.5, 1e-9, 3.25e8].map(number);
        let expected = ["0", "12.5", "0.1235", "100", "16 384", "\u{2212}2.5", "1e\u{2212}9", "3.25e8"];
        assert_eq!(written, expected);
    }
}
