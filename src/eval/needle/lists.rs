//! Lists of words in which some are more frequent: the aggregation tasks of RULER.

use super::NeedleError;
use super::exam::{Body, Filled};
use super::random::Random;

/// A numbered list in which common words stand often and rare ones seldom, in random order.
/// Source: RULER's common words extraction (Hsieh et al. 2024, section 3 and appendix B).
pub struct CommonList {
    pub random: Random,
    /// Tokens of each common word.
    pub common: Vec<Vec<u32>>,
    /// How often each stands in the list.
    pub common_repeats: usize,
    /// Tokens of rare words, as many as the longest list needs. The decoys come first.
    pub rare: Vec<Vec<u32>>,
    pub rare_repeats: usize,
    /// Words of the control list: none of the answers and decoys.
    pub others: Vec<Vec<u32>>,
    /// Tokens of the numbers ` 1.`, ` 2.`, ... of the entries.
    pub numbers: Vec<Vec<u32>>,
}

impl CommonList {
    /// Entries that fit `budget` tokens when every word has as many tokens as the first common one.
    fn entries(&self, budget: usize) -> usize {
        let word = self.common[0].len();
        let mut used = 0;
        let fits = self.numbers.iter().take_while(|number| {
            used += number.len() + word;
            used <= budget
        });
        fits.count()
    }
}

impl Body for CommonList {
    fn fill(&self, budget: usize, _depth: Option<f64>, with_answers: bool) -> Result<Filled, NeedleError> {
        let entries = self.entries(budget);
        let answers = self.common.len() * self.common_repeats;
        // At least one rare word for every common one, so that there is something to tell them from.
        let least = answers + self.common.len() * self.rare_repeats;
        if entries < least {
            let each = self.numbers[..least].iter().map(|number| number.len() + self.common[0].len());
            return Err(NeedleError::Budget { needed: each.sum(), found: budget });
        }
        let (words, first) = if with_answers { (&self.rare, answers) } else { (&self.others, 0) };
        let rare = (first..entries).map(|entry| (entry - first) / self.rare_repeats);
        let mut order: Vec<&[u32]> = rare.filter_map(|word| words.get(word)).map(Vec::as_slice).collect();
        if with_answers {
            let repeat = |word| std::iter::repeat_n(word, self.common_repeats);
            order.extend(self.common.iter().map(Vec::as_slice).flat_map(repeat));
        }
        self.random.clone().shuffle(&mut order);
        // What is left of the budget goes to the beginning of one more entry.
        let unused = (entries - first).div_ceil(self.rare_repeats);
        order.extend(words.get(unused).map(Vec::as_slice));
        let mut tokens = Vec::with_capacity(budget + 16);
        for (number, word) in self.numbers.iter().zip(order) {
            tokens.extend(number);
            tokens.extend(word);
        }
        if tokens.len() < budget {
            return Err(NeedleError::Budget { needed: budget, found: tokens.len() });
        }
        tokens.truncate(budget);
        Ok(Filled { tokens, depths: Vec::new() })
    }
}

/// Coded words whose frequencies fall with a power of their rank; the most frequent one is dots.
/// Source: RULER's frequent words extraction: the word of rank k stands n k^-alpha / zeta(alpha) times.
pub struct CodedText {
    pub random: Random,
    pub alpha: f64,
    /// Tokens of the dots.
    pub dots: Vec<u32>,
    /// Tokens of the words by rank from 2 on, all with the same number of tokens.
    pub words: Vec<Vec<u32>>,
    /// Words of the control text.
    pub others: Vec<Vec<u32>>,
}

/// Most ranks that the sum of zeta is taken over; the rest of the sum is its integral.
const ZETA_TERMS: u32 = 1000;

/// Riemann's zeta for `alpha` > 1: the first terms, the integral of the rest and half the next term; exact to 1e-6.
fn zeta(alpha: f64) -> f64 {
    let terms: f64 = (1..ZETA_TERMS).map(|k| f64::from(k).powf(-alpha)).sum();
    let n = f64::from(ZETA_TERMS);
    terms + n.powf(1.0 - alpha) / (alpha - 1.0) + n.powf(-alpha) / 2.0
}

impl CodedText {
    /// How often each rank stands in a text of `n` words, the dots first.
    fn counts(&self, n: usize) -> Vec<usize> {
        let zeta = zeta(self.alpha);
        let count = |rank: usize| (n as f64 * (rank as f64).powf(-self.alpha) / zeta).floor() as usize;
        (1..=self.words.len() + 1).map(count).take_while(|count| *count > 0).collect()
    }

    fn tokens(&self, counts: &[usize]) -> usize {
        let word = self.words[0].len();
        counts.iter().enumerate().map(|(i, n)| n * if i == 0 { self.dots.len() } else { word }).sum()
    }
}

/// Words that are asked for: ranks 2 to 4, the dots being the first.
pub const FREQUENT: usize = 3;

/// Whether the wanted words are told apart from each other and from the next one by their counts.
fn falls(counts: &[usize]) -> bool {
    counts.len() > FREQUENT + 1 && (1..=FREQUENT).all(|rank| counts[rank] > counts[rank + 1])
}

/// How much longer texts are tried to tell what would have been enough.
const MOST_WORDS_TRIED: usize = 1 << 16;

impl Body for CodedText {
    fn fill(&self, budget: usize, _depth: Option<f64>, with_answers: bool) -> Result<Filled, NeedleError> {
        // The longest text that fits: the number of tokens grows with the number of words.
        let (mut low, mut high) = (0, 2 * budget + 2);
        while low + 1 < high {
            let middle = (low + high) / 2;
            if self.tokens(&self.counts(middle)) <= budget { low = middle } else { high = middle }
        }
        let counts = self.counts(low);
        if !falls(&counts) {
            let needed = (low..low + MOST_WORDS_TRIED).map(|n| self.counts(n)).find(|counts| falls(counts));
            let needed = needed.map_or(budget + 1, |counts| self.tokens(&counts));
            return Err(NeedleError::Budget { needed, found: budget });
        }
        let words = if with_answers { &self.words } else { &self.others };
        let word = |rank: usize| if rank == 0 { &self.dots } else { &words[rank - 1] };
        let ranks = counts.iter().enumerate();
        let mut order: Vec<&Vec<u32>> =
            ranks.flat_map(|(rank, count)| std::iter::repeat_n(word(rank), *count)).collect();
        self.random.clone().shuffle(&mut order);
        let mut tokens: Vec<u32> = order.into_iter().flatten().copied().collect();
        while tokens.len() < budget {
            tokens.extend(&self.dots);
        }
        tokens.truncate(budget);
        Ok(Filled { tokens, depths: Vec::new() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(rank: usize) -> Vec<u32> {
        vec![100, 200 + rank as u32]
    }

    fn count(tokens: &[u32], word: &[u32]) -> usize {
        tokens.windows(word.len()).filter(|window| *window == word).count()
    }

    #[test]
    fn zeta_is_known() {
        assert!((zeta(2.0) - std::f64::consts::PI.powi(2) / 6.0).abs() < 1e-6);
        assert!((zeta(3.0) - 1.202_056_903).abs() < 1e-6);
    }

    #[test]
    fn common_words_stand_as_often_as_asked() {
        let list = CommonList {
            random: Random::new(0, "test", 0),
            common: (0..4).map(word).collect(),
            common_repeats: 9,
            rare: (10..200).map(word).collect(),
            rare_repeats: 3,
            others: (300..600).map(word).collect(),
            numbers: (0..1000).map(|_| vec![1]).collect(),
        };
        for budget in [200, 201, 202, 500] {
            let tokens = list.fill(budget, None, true).unwrap().tokens;
            assert_eq!(tokens.len(), budget);
            assert!((0..4).all(|w| count(&tokens, &word(w)) == 9));
            assert!((10..200).all(|w| count(&tokens, &word(w)) <= 3));
            let control = list.fill(budget, None, false).unwrap().tokens;
            assert_eq!(control.len(), budget);
            assert!((0..200).all(|w| count(&control, &word(w)) == 0));
        }
        let error = list.fill(100, None, true).err().unwrap();
        assert!(matches!(error, NeedleError::Budget { needed: 144, found: 100 }), "{error}");
    }

    #[test]
    fn frequencies_fall_with_the_square_of_the_rank() {
        let text = CodedText {
            random: Random::new(0, "test", 0),
            alpha: 2.0,
            dots: vec![7],
            words: (0..500).map(word).collect(),
            others: (600..1100).map(word).collect(),
        };
        for budget in [400, 401, 4000] {
            let tokens = text.fill(budget, None, true).unwrap().tokens;
            assert_eq!(tokens.len(), budget);
            let counts: Vec<usize> = (0..5).map(|rank| count(&tokens, &word(rank))).collect();
            assert!(counts[0] > counts[1] && counts[1] > counts[2] && counts[2] > counts[3], "{counts:?}");
            // Ranks 2 and 4 of the law: 4 to 1.
            let ratio = counts[0] as f64 / counts[2] as f64;
            assert!((3.0..6.0).contains(&ratio), "{counts:?}");
            let control = text.fill(budget, None, false).unwrap().tokens;
            assert!((0..500).all(|rank| count(&control, &word(rank)) == 0));
        }
        let error = text.fill(20, None, true).err().unwrap();
        assert!(matches!(error, NeedleError::Budget { needed, found: 20 } if needed > 20), "{error}");
    }
}
