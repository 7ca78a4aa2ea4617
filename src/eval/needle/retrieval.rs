//! Needles in a haystack: facts hidden between its sentences.

use super::NeedleError;
use super::exam::{Body, Filled};
use super::fragments::Fragments;
use super::haystack::Haystack;

/// A sentence to hide, as tokens in both ways of joining it to its neighbours.
#[derive(Debug, Clone, PartialEq)]
pub struct Needle {
    /// Behind a space, before a sentence that brings its own.
    inline: Vec<u32>,
    /// At the start of a line, ended by a line break.
    line: Vec<u32>,
    pub place: Place,
}

/// Where a needle goes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Place {
    /// The depth of the cell; at random depth `.0` when the cell has none. Several share the depth, a sentence apart.
    Cell(f64),
    /// This depth in every cell, and its sentence is no answer.
    Fixed(f64),
    /// This depth in every cell, and its sentence belongs to the answer.
    FixedAnswer(f64),
}

impl Needle {
    /// # Errors
    /// A vocabulary that cannot write it.
    pub fn new(text: &str, place: Place, fragments: &Fragments<'_>) -> Result<Self, NeedleError> {
        let inline = fragments.encode(&format!(" {text}"))?;
        let line = fragments.encode(&format!("{text}\n"))?;
        Ok(Self { inline, line, place })
    }

    fn tokens(&self, spaced: bool) -> &[u32] {
        if spaced { &self.inline } else { &self.line }
    }

    fn longest(&self) -> usize {
        self.inline.len().max(self.line.len())
    }
}

/// A haystack with needles in it.
pub struct Hidden {
    pub hay: Haystack,
    /// Stands in for `hay` in controls, where that one holds wrong answers itself.
    pub control: Option<Haystack>,
    pub needles: Vec<Needle>,
}

impl Hidden {
    /// The border of the haystack that each needle goes to, in the order of the text; `nominal`: tokens of haystack.
    fn places(&self, nominal: usize, depth: Option<f64>) -> Vec<(usize, &Needle)> {
        let borders = self.hay.borders(nominal);
        let share = |share: f64| self.hay.nearest((share * nominal as f64).round() as usize, nominal);
        let in_cell = |needle: &&Needle| depth.is_some() && matches!(needle.place, Place::Cell(_));
        let together = self.needles.iter().filter(in_cell).count();
        let first = depth.map(share).map_or(0, |at| at.min(borders.saturating_sub(together)));
        let mut next = first;
        let mut all: Vec<(usize, &Needle)> = Vec::with_capacity(self.needles.len());
        for needle in &self.needles {
            let at = match (needle.place, depth) {
                (Place::Cell(_), Some(_)) => {
                    let at = next.min(borders - 1);
                    next += 1;
                    at
                }
                (Place::Cell(own), None) | (Place::Fixed(own) | Place::FixedAnswer(own), _) => share(own),
            };
            all.push((at, needle));
        }
        // Stable: needles at one border keep their order.
        all.sort_by_key(|(at, _)| *at);
        all
    }
}

impl Body for Hidden {
    fn fill(&self, budget: usize, depth: Option<f64>, with_answers: bool) -> Result<Filled, NeedleError> {
        if !with_answers {
            let hay = self.control.as_ref().unwrap_or(&self.hay);
            return Ok(Filled { tokens: hay.slice(0..budget)?.to_vec(), depths: Vec::new() });
        }
        let longest: usize = self.needles.iter().map(Needle::longest).sum();
        let Some(nominal) = budget.checked_sub(longest).filter(|left| *left > 0) else {
            return Err(NeedleError::Budget { needed: longest + 1, found: budget });
        };
        let places = self.places(nominal, depth);
        let hidden: usize =
            places.iter().map(|(at, needle)| needle.tokens(self.hay.border(*at).spaced).len()).sum();
        let mut tokens = Vec::with_capacity(budget);
        let mut depths = Vec::new();
        let mut taken = 0;
        for (at, needle) in places {
            let border = self.hay.border(at);
            tokens.extend(self.hay.slice(taken..border.at)?);
            taken = border.at;
            if !matches!(needle.place, Place::Fixed(_)) {
                depths.push(border.at as f64 / nominal as f64);
            }
            tokens.extend(needle.tokens(border.spaced));
        }
        tokens.extend(self.hay.slice(taken..budget - hidden)?);
        Ok(Filled { tokens, depths })
    }
}
