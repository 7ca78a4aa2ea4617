//! What one cell of a sweep measures, and the order of cells.

use std::cmp::Ordering;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::checkpoint::rope::{Factor, Method, RopeOverrides};
use crate::named::Named;

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Measure {
    /// Perplexity of texts.
    Ppl,
    /// Retrieval by depth.
    Needle,
    /// Bytes that a run needs.
    Memory,
    /// Tokens per second.
    Speed,
}

impl Named for Measure {
    const WHAT: &'static str = "measure";
    const ALL: &'static [Self] = &[Self::Ppl, Self::Needle, Self::Memory, Self::Speed];

    fn name(self) -> &'static str {
        match self {
            Measure::Ppl => "ppl",
            Measure::Needle => "needle",
            Measure::Memory => "memory",
            Measure::Speed => "speed",
        }
    }
}

/// A rotary embedding to be compared, and what it is called.
#[derive(Debug, Clone, PartialEq)]
pub struct RopeChoice {
    /// Such as `yarn-x2`; unique within a sweep.
    pub label: String,
    pub overrides: RopeOverrides,
}

impl RopeChoice {
    /// A method under a factor; `base`: what all choices have in common.
    pub fn new(method: Method, factor: Option<Factor>, base: &RopeOverrides) -> Self {
        let label = match factor {
            Some(factor) => format!("{method}-x{factor}"),
            None => method.to_string(),
        };
        let overrides = RopeOverrides { scaling: Some(method), factor, ..base.clone() };
        Self { label, overrides }
    }

    /// What the checkpoint declares.
    pub fn declared(base: &RopeOverrides) -> Self {
        Self { label: "as-declared".to_string(), overrides: base.clone() }
    }

    /// Every method under every factor. `none` reads no factor and stands once.
    pub fn grid(methods: &[Method], factors: &[Factor], base: &RopeOverrides) -> Vec<Self> {
        let mut choices: Vec<Self> = Vec::new();
        for &method in methods {
            let factors: Vec<Option<Factor>> = match method {
                Method::None => vec![None],
                _ if factors.is_empty() => vec![None],
                _ => factors.iter().copied().map(Some).collect(),
            };
            choices.extend(factors.into_iter().map(|factor| Self::new(method, factor, base)));
        }
        choices
    }
}

/// Which cell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CellId {
    /// Name of a [`Measure`].
    pub measure: String,
    /// [`RopeChoice::label`]
    pub label: String,
    /// Name of the method in force.
    pub scaling: String,
    /// The factor of its formula; `null` for methods without one.
    pub factor: Option<f64>,
    /// Tokens.
    pub context: usize,
}

impl CellId {
    /// The order in which cells are measured and stored: short contexts first, so that there is something to see early.
    pub fn order(&self, other: &Self) -> Ordering {
        let rank = |id: &Self| {
            let method = Method::ALL.iter().position(|method| method.name() == id.scaling);
            let measure = Measure::ALL.iter().position(|measure| measure.name() == id.measure);
            (id.context, measure.unwrap_or(usize::MAX), method.unwrap_or(usize::MAX))
        };
        let factor = |id: &Self| id.factor.unwrap_or(0.0);
        let by_factor = || factor(self).total_cmp(&factor(other));
        rank(self).cmp(&rank(other)).then_with(by_factor).then_with(|| self.label.cmp(&other.label))
    }
}

impl fmt::Display for CellId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}@{}", self.label, self.measure, tokens(self.context))
    }
}

/// A length as gates write it: `16k` or `1000`.
pub fn tokens(length: usize) -> String {
    if length.is_multiple_of(1024) { format!("{}k", length / 1024) } else { length.to_string() }
}

/// The part of a sweep that one machine does: every `of`-th cell, beginning with number `index`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shard {
    pub index: usize,
    pub of: usize,
}

impl Shard {
    /// Reads `0/3`, `1/3` or `2/3`: counted from 0, as job arrays count.
    ///
    /// # Errors
    /// A sentence with the text and what is accepted.
    pub fn parse(text: &str) -> Result<Self, String> {
        let parts = text.split_once('/').and_then(|(i, n)| Some((i.parse().ok()?, n.parse().ok()?)));
        match parts {
            Some((index, of)) if index < of => Ok(Self { index, of }),
            Some((index, of)) => {
                let last = of.checked_sub(1).map_or("none".to_string(), |last| last.to_string());
                Err(format!("there is no shard {index} of {of}; shards count from 0, the last one is {last}"))
            }
            None => Err(format!("`{text}` is not a shard; write for example 0/3, 1/3 or 2/3")),
        }
    }

    /// Whether the cell at `position` in the order of all cells is part of it.
    pub fn holds(self, position: usize) -> bool {
        position % self.of == self.index
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(measure: &str, label: &str, scaling: &str, factor: Option<f64>, context: usize) -> CellId {
        let text = |text: &str| text.to_string();
        CellId { measure: text(measure), label: text(label), scaling: text(scaling), factor, context }
    }

    #[test]
    fn none_stands_once_and_labels_name_method_and_factor() {
        let methods = [Method::None, Method::Linear, Method::Yarn];
        let factors = [Factor::Value(2.0), Factor::Value(2.5)];
        let choices = RopeChoice::grid(&methods, &factors, &RopeOverrides::default());
        let labels: Vec<&str> = choices.iter().map(|choice| choice.label.as_str()).collect();
        assert_eq!(labels, ["none", "linear-x2", "linear-x2.5", "yarn-x2", "yarn-x2.5"]);
        assert_eq!(choices[0].overrides.factor, None);
        let auto = RopeChoice::grid(&[Method::Ntk], &[Factor::Auto], &RopeOverrides::default());
        assert_eq!(auto[0].label, "ntk-xauto");
    }

    #[test]
    fn cells_are_ordered_by_context_measure_method_and_factor() {
        let mut cells = [
            id("ppl", "yarn-x4", "yarn", Some(4.0), 2048),
            id("ppl", "none", "none", None, 2048),
            id("memory", "none", "none", None, 1024),
            id("ppl", "yarn-x2", "yarn", Some(2.0), 2048),
            id("ppl", "linear-x2", "linear", Some(2.0), 2048),
            id("ppl", "none", "none", None, 1000),
        ];
        cells.sort_by(CellId::order);
        let names: Vec<String> = cells.iter().map(CellId::to_string).collect();
        let expected = [
            "none/ppl@1000",
            "none/memory@1k",
            "none/ppl@2k",
            "linear-x2/ppl@2k",
            "yarn-x2/ppl@2k",
            "yarn-x4/ppl@2k",
        ];
        assert_eq!(names, expected);
    }

    #[test]
    fn shards_cover_every_cell_once() {
        for of in 1..5 {
            for position in 0..20 {
                let holders = (0..of).filter(|&index| Shard { index, of }.holds(position));
                assert_eq!(holders.count(), 1);
            }
        }
        assert_eq!(Shard::parse("1/3"), Ok(Shard { index: 1, of: 3 }));
        for (text, expected) in [
            ("3/3", "no shard 3 of 3; shards count from 0, the last one is 2"),
            ("0/0", "the last one is none"),
            ("1", "`1` is not a shard"),
            ("a/b", "`a/b` is not a shard"),
            ("-1/3", "is not a shard"),
        ] {
            assert!(Shard::parse(text).unwrap_err().contains(expected), "{text}");
        }
    }
}
