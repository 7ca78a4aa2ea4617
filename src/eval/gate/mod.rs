//! Gates: conditions on measured values that decide whether a run passes.
//!
//! A gate reads `METRIC[@LENGTH] COMPARISON BOUND`, for example `ppl<=12.5`, `ppl@16k<=1.05*baseline` or `needle>=90%`.

pub mod junit;
mod parse;

use std::fmt;

use crate::named::Named;

/// What a gate compares by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Comparison {
    AtMost,
    AtLeast,
    Below,
    Above,
    Equal,
}

impl Comparison {
    fn holds(self, value: f64, bound: f64) -> bool {
        match self {
            Comparison::AtMost => value <= bound,
            Comparison::AtLeast => value >= bound,
            Comparison::Below => value < bound,
            Comparison::Above => value > bound,
            Comparison::Equal => value == bound,
        }
    }
}

impl Named for Comparison {
    const WHAT: &'static str = "comparison";
    /// Longer signs first: `<=` is not `<` with a bound that begins with `=`.
    const ALL: &'static [Self] = &[Self::AtMost, Self::AtLeast, Self::Equal, Self::Below, Self::Above];

    fn name(self) -> &'static str {
        match self {
            Comparison::AtMost => "<=",
            Comparison::AtLeast => ">=",
            Comparison::Below => "<",
            Comparison::Above => ">",
            Comparison::Equal => "==",
        }
    }
}

/// What a value is compared with.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Bound {
    Value(f64),
    /// So many times the same metric of an earlier result.
    TimesBaseline(f64),
}

/// The name of a measured value: `ppl`, or `ppl@16384` for the value at one length in tokens.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct MetricName {
    pub name: String,
    pub length: Option<usize>,
}

impl MetricName {
    pub fn new(name: impl Into<String>, length: Option<usize>) -> Self {
        Self { name: name.into(), length }
    }
}

impl fmt::Display for MetricName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.length {
            None => f.write_str(&self.name),
            Some(length) if length.is_multiple_of(1024) => write!(f, "{}@{}k", self.name, length / 1024),
            Some(length) => write!(f, "{}@{length}", self.name),
        }
    }
}

/// A measured value; `None` where it could not be measured.
#[derive(Debug, Clone, PartialEq)]
pub struct Metric {
    pub name: MetricName,
    pub value: Option<f64>,
}

/// A condition that a run must meet.
#[derive(Debug, Clone, PartialEq)]
pub struct Gate {
    /// As it was written.
    pub text: String,
    pub metric: MetricName,
    pub comparison: Comparison,
    pub bound: Bound,
}

/// Why a gate cannot be checked at all.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GateError {
    #[error("gate `{gate}` names `{metric}`, which this run does not measure; it measures {available}")]
    UnknownMetric { gate: String, metric: String, available: String },
    #[error("gate `{gate}` refers to a baseline, and there is none")]
    NoBaseline { gate: String },
    #[error("gate `{gate}` refers to `{metric}` of the baseline, which has {available}")]
    NotInBaseline { gate: String, metric: String, available: String },
}

/// Checks that every gate speaks of something that the run will measure and the baseline holds.
///
/// # Errors
/// The first gate that does not, with what there is.
pub fn validate(
    gates: &[Gate],
    available: &[MetricName],
    baseline: Option<&[Metric]>,
) -> Result<(), GateError> {
    for gate in gates {
        let (text, metric) = (gate.text.clone(), gate.metric.to_string());
        if !available.contains(&gate.metric) {
            return Err(GateError::UnknownMetric { gate: text, metric, available: listed(available.iter()) });
        }
        if !matches!(gate.bound, Bound::TimesBaseline(_)) {
            continue;
        }
        let Some(baseline) = baseline else {
            return Err(GateError::NoBaseline { gate: text });
        };
        if value_of(baseline, &gate.metric).is_none() {
            let available = listed(baseline.iter().filter(|m| m.value.is_some()).map(|m| &m.name));
            return Err(GateError::NotInBaseline { gate: text, metric, available });
        }
    }
    Ok(())
}

fn listed<'a>(names: impl Iterator<Item = &'a MetricName>) -> String {
    let names: Vec<String> = names.map(|name| format!("`{name}`")).collect();
    if names.is_empty() { "nothing".to_string() } else { names.join(", ") }
}

/// The finite value of a metric.
fn value_of(metrics: &[Metric], name: &MetricName) -> Option<f64> {
    let found = metrics.iter().find(|metric| metric.name == *name);
    found.and_then(|metric| metric.value).filter(|value| value.is_finite())
}

/// What became of a gate.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    pub gate: Gate,
    /// `None`: not measured, or not a finite number. Such a gate never holds.
    pub value: Option<f64>,
    /// The bound as a number; `None` when the baseline lacks the metric.
    pub wanted: Option<f64>,
    /// The metric of the baseline, where the gate refers to it.
    pub baseline: Option<f64>,
    pub holds: bool,
}

/// Compares every gate with what was measured.
pub fn check(gates: &[Gate], measured: &[Metric], baseline: Option<&[Metric]>) -> Vec<Outcome> {
    let outcome = |gate: &Gate| {
        let value = value_of(measured, &gate.metric);
        let (wanted, baseline) = match gate.bound {
            Bound::Value(bound) => (Some(bound), None),
            Bound::TimesBaseline(times) => {
                let earlier = baseline.and_then(|baseline| value_of(baseline, &gate.metric));
                (earlier.map(|earlier| times * earlier), earlier)
            }
        };
        let holds = value.zip(wanted).is_some_and(|(value, wanted)| gate.comparison.holds(value, wanted));
        Outcome { gate: gate.clone(), value, wanted, baseline, holds }
    };
    gates.iter().map(outcome).collect()
}

impl Outcome {
    /// `ppl = 13.1, wanted <= 12.5`, with the baseline where there is one.
    pub fn reason(&self) -> String {
        let gate = &self.gate;
        let value = match (self.value, self.wanted) {
            (None, _) => "not a number".to_string(),
            (Some(value), None) => short(value),
            (Some(value), Some(wanted)) => beside(value, wanted),
        };
        let wanted = self.wanted.map_or("an unknown bound".to_string(), short);
        let text = format!("{} = {value}, wanted {} {wanted}", gate.metric, gate.comparison.name());
        match (gate.bound, self.baseline) {
            (Bound::TimesBaseline(times), Some(baseline)) => {
                format!("{text} ({} * baseline {})", short(times), short(baseline))
            }
            _ => text,
        }
    }
}

/// At most six significant digits.
fn short(value: f64) -> String {
    let rounded: f64 = format!("{value:.5e}").parse().unwrap_or(value);
    format!("{rounded}")
}

/// `value` in six digits, or in all of them when fewer would put it on another side of `wanted`.
fn beside(value: f64, wanted: f64) -> String {
    let text = short(value);
    let rounded = text.parse::<f64>().ok().zip(short(wanted).parse::<f64>().ok());
    let same =
        rounded.is_some_and(|(value_, wanted_)| value_.partial_cmp(&wanted_) == value.partial_cmp(&wanted));
    if same { text } else { format!("{value}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metric(name: &str, length: Option<usize>, value: f64) -> Metric {
        Metric { name: MetricName::new(name, length), value: Some(value) }
    }

    fn outcome(gate: &str, measured: &[Metric], baseline: Option<&[Metric]>) -> Outcome {
        check(&[Gate::parse(gate).unwrap()], measured, baseline).remove(0)
    }

    #[test]
    fn a_gate_holds_or_says_why_not() {
        let measured = [metric("ppl", None, 13.1), metric("ppl", Some(16384), 12.0)];
        assert!(outcome("ppl<=13.1", &measured, None).holds);
        assert!(outcome("ppl@16k==12", &measured, None).holds);
        assert!(!outcome("ppl<13.1", &measured, None).holds);
        assert!(outcome("ppl>=13.1", &measured, None).holds && outcome("ppl>13", &measured, None).holds);
        let failed = outcome("ppl <= 12.5", &measured, None);
        assert!(!failed.holds);
        assert_eq!(failed.reason(), "ppl = 13.1, wanted <= 12.5");
    }

    #[test]
    fn a_value_close_to_its_bound_is_written_in_full() {
        let measured = [metric("ppl", None, 12.500_000_1)];
        assert_eq!(outcome("ppl<=12.5", &measured, None).reason(), "ppl = 12.5000001, wanted <= 12.5");
    }

    #[test]
    fn the_baseline_is_multiplied() {
        let measured = [metric("ppl", None, 10.6)];
        let baseline = [metric("ppl", None, 10.0)];
        let failed = outcome("ppl<=1.05*baseline", &measured, Some(&baseline));
        assert!(!failed.holds);
        assert_eq!(failed.reason(), "ppl = 10.6, wanted <= 10.5 (1.05 * baseline 10)");
        assert!(outcome("ppl<=106%*baseline", &measured, Some(&baseline)).holds);
    }

    #[test]
    fn what_is_not_a_number_never_passes() {
        for value in [None, Some(f64::NAN), Some(f64::INFINITY)] {
            let measured = [Metric { name: MetricName::new("ppl", None), value }];
            for gate in ["ppl<=12", "ppl>=12", "ppl>0", "ppl<1e300"] {
                let outcome = outcome(gate, &measured, None);
                assert!(!outcome.holds, "{gate} {value:?}");
                assert!(outcome.reason().starts_with("ppl = not a number, wanted"), "{}", outcome.reason());
            }
        }
        assert!(!outcome("ppl<=2*baseline", &[metric("ppl", None, 1.0)], None).holds);
        assert!(!outcome("ppl<=2", &[], None).holds);
    }

    #[test]
    fn gates_on_unknown_things_are_refused_with_what_exists() {
        let available = [MetricName::new("ppl", None), MetricName::new("ppl", Some(8192))];
        let gate = |text: &str| [Gate::parse(text).unwrap()];
        assert_eq!(validate(&gate("ppl@8k<=3"), &available, None), Ok(()));
        let unknown = validate(&gate("ppl@4k<=3"), &available, None).unwrap_err().to_string();
        assert_eq!(
            unknown,
            "gate `ppl@4k<=3` names `ppl@4k`, which this run does not measure; it measures `ppl`, `ppl@8k`"
        );
        let missing = validate(&gate("ppl<=baseline"), &available, None).unwrap_err();
        assert_eq!(missing, GateError::NoBaseline { gate: "ppl<=baseline".to_string() });
        let other = [metric("ppl", None, 3.0)];
        assert_eq!(validate(&gate("ppl<=baseline"), &available, Some(&other)), Ok(()));
        let lacking = validate(&gate("ppl@8k<=baseline"), &available, Some(&other)).unwrap_err();
        assert_eq!(
            lacking.to_string(),
            "gate `ppl@8k<=baseline` refers to `ppl@8k` of the baseline, which has `ppl`"
        );
    }
}
