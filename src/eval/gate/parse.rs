//! From the text of a gate to the gate.

use super::{Bound, Comparison, Gate, MetricName};
use crate::named::Named;

/// What a bound may refer to.
const BASELINE: &str = "baseline";

impl Gate {
    /// Reads `METRIC[@LENGTH] COMPARISON BOUND`.
    ///
    /// A bound is a number (`12.5`), a percentage (`90%` = 0.9), a number of tokens (`16k` = 16384), or a multiple of
    /// the baseline (`1.05*baseline`, `105%*baseline`, `baseline`).
    ///
    /// # Errors
    /// A sentence with the text and what is accepted.
    pub fn parse(text: &str) -> Result<Self, String> {
        let found = Comparison::ALL.iter().filter_map(|sign| Some((text.find(sign.name())?, *sign)));
        // The leftmost sign; at one place the longer one, which comes first.
        let Some((at, comparison)) = found.min_by_key(|(at, _)| *at) else {
            let signs: Vec<&str> = Comparison::ALL.iter().map(|sign| sign.name()).collect();
            return Err(format!(
                "`{text}` has no comparison; write for example ppl<=12.5, with one of {}",
                signs.join(" ")
            ));
        };
        Ok(Self {
            text: text.to_string(),
            metric: parse_metric(text[..at].trim())?,
            comparison,
            bound: parse_bound(text[at + comparison.name().len()..].trim())?,
        })
    }
}

fn parse_metric(text: &str) -> Result<MetricName, String> {
    let (name, length) = match text.split_once('@') {
        None => (text, None),
        Some((name, length)) => {
            let tokens = parse_tokens(length).filter(|tokens| *tokens > 0);
            let bad =
                || format!("`{length}` in `{text}` is not a number of tokens; write for example ppl@16k");
            (name, Some(tokens.ok_or_else(bad)?))
        }
    };
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '/');
    if name.is_empty() || !name.chars().all(allowed) {
        return Err(format!("`{name}` is not the name of a metric; write for example ppl<=12.5"));
    }
    Ok(MetricName::new(name, length))
}

/// `8192`, `8k` or `8K` as tokens.
fn parse_tokens(text: &str) -> Option<usize> {
    match text.strip_suffix(['k', 'K']) {
        Some(thousands) => thousands.parse::<usize>().ok()?.checked_mul(1024),
        None => text.parse().ok(),
    }
}

fn parse_bound(text: &str) -> Result<Bound, String> {
    if text == BASELINE {
        return Ok(Bound::TimesBaseline(1.0));
    }
    if let Some((left, right)) = text.split_once('*') {
        let times = match (left.trim(), right.trim()) {
            (times, BASELINE) | (BASELINE, times) => parse_number(times),
            _ => None,
        };
        return times.map(Bound::TimesBaseline).ok_or_else(|| bad_bound(text));
    }
    parse_number(text).map(Bound::Value).ok_or_else(|| bad_bound(text))
}

fn bad_bound(text: &str) -> String {
    format!(
        "`{text}` is not a bound; accepted: a number (12.5), a percentage (90%), tokens (16k), a multiple of the baseline (1.05*baseline)"
    )
}

/// A finite number, a percentage or a number of tokens.
fn parse_number(text: &str) -> Option<f64> {
    // Names such as `inf` and `nan` would parse, and no gate on them says anything.
    if !text.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '-' | '+' | '.')) {
        return None;
    }
    let value = match text.strip_suffix('%') {
        Some(percent) => percent.trim_end().parse::<f64>().ok()? / 100.0,
        None if text.ends_with(['k', 'K']) => parse_tokens(text)? as f64,
        None => text.parse().ok()?,
    };
    value.is_finite().then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> (String, Option<usize>, Comparison, Bound) {
        let gate = Gate::parse(text).unwrap();
        assert_eq!(gate.text, text);
        (gate.metric.name, gate.metric.length, gate.comparison, gate.bound)
    }

    #[test]
    fn every_form_is_read() {
        let name = |name: &str| name.to_string();
        let value = Bound::Value;
        assert_eq!(parsed("ppl<=12.5"), (name("ppl"), None, Comparison::AtMost, value(12.5)));
        assert_eq!(parsed(" ppl < 12 "), (name("ppl"), None, Comparison::Below, value(12.0)));
        assert_eq!(parsed("needle>=90%"), (name("needle"), None, Comparison::AtLeast, value(0.9)));
        assert_eq!(parsed("a_b>-1e-3"), (name("a_b"), None, Comparison::Above, value(-1e-3)));
        assert_eq!(
            parsed("effective_context>=16k"),
            (name("effective_context"), None, Comparison::AtLeast, value(16384.0))
        );
        assert_eq!(parsed("tokens==1000"), (name("tokens"), None, Comparison::Equal, value(1000.0)));
        for text in ["ppl@16k<=1.05*baseline", "ppl@16384 <= 105% * baseline", "ppl@16K<=baseline*1.05"] {
            let expected = (name("ppl"), Some(16384), Comparison::AtMost, Bound::TimesBaseline(1.05));
            assert_eq!(parsed(text), expected, "{text}");
        }
        assert_eq!(parsed("ppl<=baseline").3, Bound::TimesBaseline(1.0));
        assert_eq!(parsed("yarn-x2.5/ppl@1000<9").0, "yarn-x2.5/ppl");
    }

    #[test]
    fn anything_else_is_refused_with_what_is_accepted() {
        for (text, expected) in [
            ("ppl", "`ppl` has no comparison; write for example ppl<=12.5, with one of <= >= == < >"),
            ("ppl=12", "has no comparison"),
            ("<=12", "`` is not the name of a metric"),
            ("p pl<=12", "`p pl` is not the name of a metric"),
            ("ppl@<=12", "`` in `ppl@` is not a number of tokens"),
            ("ppl@0<=12", "`0` in `ppl@0` is not a number of tokens"),
            ("ppl@x<=12", "`x` in `ppl@x`"),
            ("ppl<=", "`` is not a bound; accepted: a number (12.5)"),
            ("ppl<=nan", "`nan` is not a bound"),
            ("ppl<=inf", "`inf` is not a bound"),
            ("ppl<=1e999", "`1e999` is not a bound"),
            ("ppl<==12", "`=12` is not a bound"),
            ("ppl<=2*base", "`2*base` is not a bound"),
            ("ppl<=x*baseline", "`x*baseline` is not a bound"),
            ("1<ppl<2", "`ppl<2` is not a bound"),
        ] {
            let error = Gate::parse(text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
