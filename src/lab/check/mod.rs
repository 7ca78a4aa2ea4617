//! The identities behind the position encodings, each as its largest deviation, and what goes wrong without them.

mod absolute;
mod attention;
mod precision;
mod rotation;
mod scaling;

use super::error::LabError;
use super::random::Random;
use crate::rope::{
    Divisors, Frequencies, Llama3, LongRope, LongRopeSelect, Magnitude, Pairing, Ramp, RopeSpec, Scaling,
    Yarn, frequencies,
};

/// What a value is held against.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Bound {
    /// An identity: the largest deviation from it.
    AtMost(f64),
    /// A mistake, or a difference that matters: its size.
    AtLeast(f64),
}

/// One identity or one mistake.
#[derive(Debug, Clone, PartialEq)]
pub struct Finding {
    /// Short name, unique.
    pub name: &'static str,
    /// What the value is, in one sentence.
    pub what: String,
    pub value: f64,
    pub bound: Bound,
}

impl Finding {
    fn identity(name: &'static str, value: f64, bound: f64, what: impl Into<String>) -> Self {
        Finding { name, what: what.into(), value, bound: Bound::AtMost(bound) }
    }

    fn mistake(name: &'static str, value: f64, bound: f64, what: impl Into<String>) -> Self {
        Finding { name, what: what.into(), value, bound: Bound::AtLeast(bound) }
    }

    /// Whether the value keeps to its bound; no number never does.
    pub fn holds(&self) -> bool {
        match self.bound {
            Bound::AtMost(bound) => self.value <= bound,
            Bound::AtLeast(bound) => self.value >= bound,
        }
    }
}

/// Everything that is checked, on random vectors of `seed`.
///
/// # Errors
/// [`LabError::Rope`] when a rotary embedding cannot be computed, which would be a fault of this program.
pub fn check(seed: u64) -> Result<Vec<Finding>, LabError> {
    let mut findings = rotation::findings(seed)?;
    findings.extend(absolute::findings(seed)?);
    findings.extend(precision::findings());
    findings.extend(scaling::findings(seed)?);
    Ok(findings)
}

/// Lanes of the heads that are checked, all of them rotated.
const HEAD_DIM: usize = 64;
/// Original context of every scaling that is checked.
const ORIGINAL_CONTEXT: usize = 4096;
const BOTH_PAIRINGS: [Pairing; 2] = [Pairing::HalfSplit, Pairing::Adjacent];

fn spec(scaling: Scaling) -> RopeSpec {
    RopeSpec {
        theta: 10_000.0,
        head_dim: HEAD_DIM,
        rotary_dim: HEAD_DIM,
        pairing: Pairing::HalfSplit,
        original_context: ORIGINAL_CONTEXT,
        scaling,
    }
}

/// Every scaling method at `factor`, for a text of `factor` times the original context.
fn all_scalings(factor: f64) -> Result<Vec<(&'static str, Frequencies)>, LabError> {
    let pairs = HEAD_DIM / 2;
    let yarn = Yarn { factor, ramp: Ramp::default(), magnitude: Magnitude::Default };
    let divisors: Vec<f64> = (0..pairs).map(|i| 1.0 + (factor - 1.0) * i as f64 / pairs as f64).collect();
    let scalings = [
        Scaling::None,
        Scaling::Linear { factor },
        Scaling::Ntk { factor },
        Scaling::NtkByParts { factor, ramp: Ramp::default() },
        Scaling::DynamicLinear,
        Scaling::DynamicNtk { factor: 1.0 },
        Scaling::Yarn(yarn.clone()),
        Scaling::DynamicYarn(yarn),
        Scaling::LongRope(LongRope {
            short_factor: vec![1.0; pairs],
            long_factor: divisors.clone(),
            factor,
            attention_factor: None,
            select: LongRopeSelect::Auto,
        }),
        Scaling::Llama3(Llama3 { factor, low_freq_factor: 1.0, high_freq_factor: 4.0 }),
        Scaling::Proportional { factor, rotated_pairs: pairs / 2 },
        Scaling::Divisors(Divisors { divisors, attention_factor: 1.1 }),
    ];
    let length = (factor * ORIGINAL_CONTEXT as f64) as usize;
    let named = |scaling: Scaling| Ok((scaling.name(), frequencies(&spec(scaling), length)?));
    scalings.into_iter().map(named).collect()
}

/// Normal numbers.
fn noise(random: &mut Random, count: usize) -> Vec<f64> {
    (0..count).map(|_| random.normal()).collect()
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn norm(a: &[f64]) -> f64 {
    dot(a, a).sqrt()
}

/// Norm of the difference over the norm of `b`.
fn relative_difference(a: &[f64], b: &[f64]) -> f64 {
    let difference: Vec<f64> = a.iter().zip(b).map(|(a, b)| a - b).collect();
    norm(&difference) / norm(b)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_holds_for_several_seeds() {
        for seed in 0..3 {
            for finding in check(seed).unwrap() {
                println!("{:32} {:10.3e} {:?}", finding.name, finding.value, finding.bound);
                assert!(finding.holds(), "seed {seed}: {finding:?}");
            }
        }
    }

    #[test]
    fn names_are_unique() {
        let findings = check(0).unwrap();
        for (index, finding) in findings.iter().enumerate() {
            assert!(findings[..index].iter().all(|other| other.name != finding.name), "{}", finding.name);
        }
    }

    #[test]
    fn a_value_that_is_no_number_never_holds() {
        assert!(!Finding::identity("x", f64::NAN, 1.0, "").holds());
        assert!(!Finding::mistake("x", f64::NAN, 1.0, "").holds());
        assert!(!Finding::identity("x", 2.0, 1.0, "").holds() && Finding::mistake("x", 2.0, 1.0, "").holds());
    }
}
