//! What toy models are trained on and measured with.

use super::error::LabError;
use super::random::{Random, hash};

/// Share of a text, from its end, that is measured and not trained on: one in this many bytes.
const HELD_OUT: usize = 10;

/// Bytes of the generated text by default.
pub const GENERATED_BYTES: usize = 1_000_000;

/// Bytes to train on and bytes to measure with.
#[derive(Debug, Clone, PartialEq)]
pub struct Text {
    bytes: Vec<u8>,
    training: usize,
}

impl Text {
    /// Splits `bytes`: the first nine tenths are for training.
    pub fn new(bytes: Vec<u8>) -> Self {
        let training = bytes.len() - bytes.len() / HELD_OUT;
        Text { bytes, training }
    }

    /// The generated text of a seed; see [`generate`].
    pub fn generated(seed: u64, bytes: usize) -> Self {
        Text::new(generate(seed, bytes).into_bytes())
    }

    pub fn training(&self) -> &[u8] {
        &self.bytes[..self.training]
    }

    pub fn held_out(&self) -> &[u8] {
        &self.bytes[self.training..]
    }

    /// FNV-1a over all bytes, 64 bits: two runs with equal hashes saw the same text.
    pub fn hash(&self) -> u64 {
        hash(&self.bytes)
    }

    /// Inputs and targets of step `step`: `batch` windows of `context` tokens and the tokens after each, row-major.
    ///
    /// Depends on nothing but the arguments and the text, so that a run can go on at any step, and that every encoding
    /// sees the same windows.
    ///
    /// # Errors
    /// [`LabError::ShortText`] when there is no window.
    pub fn batch(
        &self,
        (seed, step): (u64, usize),
        batch: usize,
        context: usize,
    ) -> Result<(Vec<u32>, Vec<u32>), LabError> {
        let text = self.training();
        let starts = text.len().saturating_sub(context);
        if starts == 0 {
            let (needed, found) = (context + 1, text.len());
            return Err(LabError::ShortText { purpose: "training", needed, found });
        }
        let mut random = Random::new(seed, "batch", step as u64);
        let mut inputs = Vec::with_capacity(batch * context);
        let mut targets = Vec::with_capacity(batch * context);
        for _ in 0..batch {
            let start = random.below(starts);
            inputs.extend(text[start..start + context].iter().map(|b| u32::from(*b)));
            targets.extend(text[start + 1..start + context + 1].iter().map(|b| u32::from(*b)));
        }
        Ok((inputs, targets))
    }
}

const NAMES: [&str; 16] = [
    "mira", "otto", "lena", "ravi", "nora", "hugo", "iris", "amos", "tara", "paul", "vera", "ivan", "rosa",
    "karl", "yuki", "dara",
];
const THINGS: [&str; 12] =
    ["boat", "lamp", "goat", "drum", "coat", "pear", "sled", "bell", "rope", "cart", "kite", "jug"];
const COLOURS: [&str; 8] = ["red", "blue", "green", "white", "black", "grey", "brown", "pink"];
const PLACES: [&str; 8] = ["river", "mill", "harbour", "wood", "bridge", "tower", "market", "lake"];
const NUMBERS: [&str; 6] = ["one", "two", "three", "four", "five", "six"];

/// What is true of one person within a paragraph.
struct Fact {
    name: &'static str,
    thing: &'static str,
    colour: &'static str,
    place: &'static str,
    count: usize,
}

impl Fact {
    fn things(&self) -> String {
        format!("{}{}", self.thing, if self.count == 1 { "" } else { "s" })
    }

    /// One sentence about the person, true to the facts; verbs agree in number.
    fn sentence(&self, random: &mut Random) -> String {
        let Fact { name, colour, place, count, .. } = self;
        let (things, number) = (self.things(), NUMBERS[count - 1]);
        let (is, them) = if *count == 1 { ("is", "it") } else { ("are", "them") };
        match random.below(7) {
            0 => format!("{name} has {number} {colour} {things}"),
            1 => format!("the {things} of {name} {is} {colour}"),
            2 => format!("{name} lives by the {place}"),
            3 => format!("at the {place} {name} keeps {number} {things}"),
            4 => format!("whose {things} {is} {colour}? they belong to {name}"),
            5 => format!("the {colour} {things} {is} by the {place}, {name} sees {them}"),
            _ => format!("{name} says: {number} {things}, {number} {things}"),
        }
    }
}

/// A text of short paragraphs, each about two or three people of whom a few facts are told again and again.
///
/// Spelling and agreement reach over a few bytes, a fact comes back after tens to hundreds of them: a model must know
/// what stood just before, and gains by finding what stood long before. At least `bytes` long, cut to that.
pub fn generate(seed: u64, bytes: usize) -> String {
    let mut random = Random::new(seed, "text", 0);
    let mut text = String::with_capacity(bytes + 1024);
    while text.len() < bytes {
        let people = 2 + random.below(2);
        let facts = facts(&mut random, people);
        for _ in 0..6 + random.below(5) {
            text += &facts[random.below(people)].sentence(&mut random);
            text += ". ";
        }
        text.pop();
        text.push('\n');
    }
    text.truncate(bytes); // ASCII only, so every cut is between characters
    text
}

/// Facts about `people` people with different names.
fn facts(random: &mut Random, people: usize) -> Vec<Fact> {
    let mut facts: Vec<Fact> = Vec::new();
    while facts.len() < people {
        let name = random.pick(&NAMES);
        if facts.iter().all(|fact| fact.name != name) {
            facts.push(Fact {
                name,
                thing: random.pick(&THINGS),
                colour: random.pick(&COLOURS),
                place: random.pick(&PLACES),
                count: 1 + random.below(NUMBERS.len()),
            });
        }
    }
    facts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_generated_text_repeats_and_keeps_to_its_facts() {
        let text = generate(0, 20_000);
        assert_eq!(text.len(), 20_000);
        assert_eq!(text, generate(0, 20_000));
        assert!(generate(0, 30_000).starts_with(&text));
        assert_ne!(text, generate(1, 20_000));
        assert!(text.is_ascii());
        let mut told = 0;
        for paragraph in text.lines() {
            for name in NAMES {
                let mut homes: Vec<&str> = paragraph
                    .split(&format!("{name} lives by the "))
                    .skip(1)
                    .filter_map(|rest| rest.split_once('.').map(|(place, _)| place))
                    .collect();
                homes.dedup();
                assert!(homes.len() < 2, "{name}: {homes:?}");
                told += homes.len();
            }
        }
        assert!(told > 50, "{told}");
    }

    #[test]
    fn verbs_and_nouns_agree_in_number() {
        let text = generate(0, 50_000);
        for thing in THINGS {
            for wrong in
                [format!("{thing} of mira are"), format!("{thing}s of mira is"), format!("one {thing}s")]
            {
                assert!(!text.contains(&wrong), "{wrong}");
            }
            assert!(text.contains(&format!("{thing}s")) && text.contains(&format!("{thing} is")));
        }
    }

    #[test]
    fn a_tenth_is_held_out() {
        let text = Text::new((0..101u8).collect());
        assert_eq!((text.training().len(), text.held_out()), (91, &(91..101).collect::<Vec<u8>>()[..]));
    }

    #[test]
    fn targets_follow_inputs_and_steps_differ() {
        let text = Text::generated(5, 2000);
        let (inputs, targets) = text.batch((3, 7), 2, 16).unwrap();
        assert_eq!((inputs.len(), inputs[1..16] == targets[..15]), (32, true));
        assert_eq!(text.batch((3, 7), 2, 16).unwrap(), (inputs.clone(), targets));
        assert_ne!(text.batch((3, 8), 2, 16).unwrap().0, inputs);
        assert_ne!(text.batch((4, 7), 2, 16).unwrap().0, inputs);
    }

    #[test]
    fn a_text_without_a_window_is_refused() {
        let error = Text::new(vec![b'a'; 10]).batch((0, 0), 1, 9).unwrap_err();
        assert_eq!(error.to_string(), "training needs at least 10 bytes of text, found 9");
    }
}
