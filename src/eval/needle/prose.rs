//! Filler without end: plain English sentences made by a small grammar. They hold no digits and no codes.

use super::random::Random;
use super::words::{ACTS, ADJECTIVES, ANIMALS, MOVES, PEOPLE, PLACES, STATES, THINGS, WHEN, WHERE};

/// Sentences of a paragraph: from this many to two fewer than twice as many.
const SHORTEST_PARAGRAPH: usize = 4;

/// Sentences of one seed, each with the white space that joins it to the text before and after.
#[derive(Debug, Clone)]
pub struct Prose {
    random: Random,
    /// Sentences until the next paragraph begins.
    left: usize,
    begins: bool,
}

impl Prose {
    pub fn new(random: Random) -> Self {
        Self { random, left: 0, begins: true }
    }
}

impl Iterator for Prose {
    type Item = String;

    fn next(&mut self) -> Option<String> {
        if self.begins {
            self.left = SHORTEST_PARAGRAPH + self.random.below(SHORTEST_PARAGRAPH - 1);
        }
        let before = if self.begins { "" } else { " " };
        self.left -= 1;
        self.begins = self.left == 0;
        let after = if self.begins { "\n\n" } else { "" };
        Some(format!("{before}{}{after}", sentence(&mut self.random)))
    }
}

/// One sentence, with a capital letter and a full stop.
fn sentence(random: &mut Random) -> String {
    let subject = subject(random);
    let (act, thing, place) = (random.pick(ACTS), thing(random), place(random));
    let (go, when, near) = (random.pick(MOVES), random.pick(WHEN), random.pick(WHERE));
    let text = match random.below(10) {
        0 => format!("the {subject} {act} {thing} {near} {place}"),
        1 => format!("{when}, the {subject} {act} {thing}"),
        2 => format!("the {subject} {go} {near} {place} {when}"),
        3 => format!("{place} was {}, and the {subject} {go} there {when}", random.pick(STATES)),
        4 => format!("the {subject} who {act} {thing} {go} {when}"),
        5 => format!("{near} {place} there was {}", with_article(&described_thing(random))),
        6 => format!("while the {subject} {go}, the {} {act} {thing}", creature(random)),
        7 => format!("nobody knew why the {subject} {act} {thing} {when}"),
        8 => format!("the {} of the {subject} was {}", random.pick(THINGS), random.pick(STATES)),
        _ => format!("the {subject} {go} and the {} {go} too, {near} {place}", creature(random)),
    };
    let mut letters = text.chars();
    let first = letters.next().map(|letter| letter.to_uppercase().to_string()).unwrap_or_default();
    format!("{first}{}.", letters.as_str())
}

/// Without an article: `patient miller`.
fn subject(random: &mut Random) -> String {
    let who = creature(random);
    match random.below(3) {
        0 => who.to_string(),
        _ => format!("{} {who}", random.pick(ADJECTIVES)),
    }
}

fn creature(random: &mut Random) -> &'static str {
    let kind = if random.below(3) == 0 { ANIMALS } else { PEOPLE };
    random.pick(kind)
}

fn described_thing(random: &mut Random) -> String {
    format!("{} {}", random.pick(ADJECTIVES), random.pick(THINGS))
}

fn thing(random: &mut Random) -> String {
    match random.below(4) {
        0 => format!("the {}", random.pick(THINGS)),
        1 => with_article(&described_thing(random)),
        _ => format!("the {}", described_thing(random)),
    }
}

fn place(random: &mut Random) -> String {
    match random.below(2) {
        0 => format!("the {}", random.pick(PLACES)),
        _ => format!("the {} {}", random.pick(ADJECTIVES), random.pick(PLACES)),
    }
}

fn with_article(noun: &str) -> String {
    let article = if noun.starts_with(['a', 'e', 'i', 'o', 'u']) { "an" } else { "a" };
    format!("{article} {noun}")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn sentences_vary_repeat_by_seed_and_hold_no_digits() {
        let take = |seed| -> Vec<String> { Prose::new(Random::new(seed, "prose", 0)).take(2000).collect() };
        let all = take(3);
        assert_eq!(all, take(3));
        assert_ne!(all, take(4));
        assert!(all.iter().all(|s| s.is_ascii() && !s.contains(|c: char| c.is_ascii_digit())));
        assert!(all.iter().all(|s| s.trim_end().ends_with('.')));
        let distinct: BTreeSet<&String> = all.iter().collect();
        assert!(distinct.len() > 1980, "{}", distinct.len());
    }

    #[test]
    fn paragraphs_end_with_a_blank_line_and_begin_without_a_space() {
        let text: String = Prose::new(Random::new(0, "prose", 0)).take(200).collect();
        let paragraphs: Vec<&str> = text.split("\n\n").collect();
        assert!(paragraphs.len() > 30);
        let first = |p: &&str| p.chars().next().is_none_or(|c| c.is_uppercase());
        assert!(paragraphs.iter().all(first), "{text}");
        assert!(!text.contains("  "));
    }
}
