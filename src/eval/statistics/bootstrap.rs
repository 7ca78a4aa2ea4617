//! Confidence intervals of weighted means by resampling blocks.
//!
//! Losses of neighbouring tokens are not independent, so single tokens must not be drawn: that would make intervals too
//! narrow. Instead the text is divided into blocks of consecutive tokens. A replicate draws as many blocks as there are,
//! with replacement, and computes every mean anew; the interval lies between the quantiles of the replicates. All means
//! of a replicate come from the same draw, so differences of two means keep what they have in common.
//!
//! Sources: Künsch 1989, Annals of Statistics 17, 1217 (blocks); Efron and Tibshirani 1993, chapter 13 (percentiles).

use super::random::SplitMix64;
use crate::named::Named;

/// Probability that an interval is meant to cover.
pub const LEVEL: f64 = 0.95;
/// Replicates that an interval is read from.
pub const ROUNDS: usize = 1000;
/// With fewer blocks than this their spread tells nothing, and no interval is given.
pub const MIN_BLOCKS: usize = 5;

/// What is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Resample {
    /// Blocks of all documents alike: how sure the figure is for texts like these.
    #[default]
    Blocks,
    /// Documents, and blocks within each: how sure it is for other documents of the kind.
    Documents,
}

impl Named for Resample {
    const WHAT: &'static str = "unit";
    const ALL: &'static [Self] = &[Self::Blocks, Self::Documents];

    fn name(self) -> &'static str {
        match self {
            Resample::Blocks => "blocks",
            Resample::Documents => "documents",
        }
    }
}

/// How intervals are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bootstrap {
    pub seed: u64,
    /// Tokens of a block, at least 1.
    pub block: usize,
    pub resample: Resample,
}

impl Bootstrap {
    pub const DEFAULT_BLOCK: usize = 128;
}

impl Default for Bootstrap {
    fn default() -> Self {
        Self { seed: 0, block: Self::DEFAULT_BLOCK, resample: Resample::default() }
    }
}

/// Two bounds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interval {
    pub low: f64,
    pub high: f64,
}

impl Interval {
    /// The interval of a growing function of the value.
    pub fn map(self, f: impl Fn(f64) -> f64) -> Self {
        Self { low: f(self.low), high: f(self.high) }
    }
}

/// Sums of weights and of weighted values in one block, for several means.
#[derive(Debug, Clone, PartialEq)]
struct Block {
    document: usize,
    /// (sum of weights, sum of weighted values), one per mean.
    sums: Vec<(f64, f64)>,
}

/// Blocks of consecutive tokens and what each adds to several means.
#[derive(Debug, Clone, PartialEq)]
pub struct Blocks {
    means: usize,
    blocks: Vec<Block>,
    last: Option<(usize, usize)>,
}

impl Blocks {
    /// No block yet; `means`: how many means are followed.
    pub fn new(means: usize) -> Self {
        Self { means, blocks: Vec::new(), last: None }
    }

    /// The block that a token belongs to; it never crosses a document. `token`: index in the document; `block`: tokens
    /// of a block. Tokens come in the order of the text.
    pub fn enter(&mut self, document: usize, token: usize, block: usize) {
        let key = (document, token / block.max(1));
        if self.last != Some(key) {
            self.last = Some(key);
            self.blocks.push(Block { document, sums: vec![(0.0, 0.0); self.means] });
        }
    }

    /// Adds a value to one mean, in the block entered last.
    pub fn add(&mut self, mean: usize, weight: f64, value: f64) {
        if let Some(block) = self.blocks.last_mut() {
            block.sums[mean].0 += weight;
            block.sums[mean].1 += weight * value;
        }
    }

    /// Blocks with any weight in a mean.
    pub fn count(&self, mean: usize) -> usize {
        self.blocks.iter().filter(|block| block.sums[mean].0 > 0.0).count()
    }

    /// The weighted mean itself; not a number without weight.
    pub fn mean(&self, mean: usize) -> f64 {
        let (weights, weighted) = self.blocks.iter().fold((0.0, 0.0), |(weights, weighted), block| {
            (weights + block.sums[mean].0, weighted + block.sums[mean].1)
        });
        weighted / weights
    }

    /// Draws [`ROUNDS`] times.
    pub fn replicate(&self, bootstrap: &Bootstrap) -> Replicates {
        let mut random = SplitMix64::new(bootstrap.seed);
        let documents = self.documents();
        let units = |mean: usize| match bootstrap.resample {
            Resample::Blocks => self.count(mean),
            Resample::Documents => {
                let holds = |blocks: &&std::ops::Range<usize>| {
                    self.blocks[(*blocks).clone()].iter().any(|block| block.sums[mean].0 > 0.0)
                };
                documents.iter().filter(holds).count()
            }
        };
        let usable = (0..self.means).map(|mean| units(mean) >= MIN_BLOCKS).collect();
        let mut values = vec![Vec::with_capacity(ROUNDS); self.means];
        let mut sums = vec![(0.0, 0.0); self.means];
        for _ in 0..ROUNDS {
            sums.fill((0.0, 0.0));
            match bootstrap.resample {
                Resample::Blocks => self.draw(&(0..self.blocks.len()), &mut random, &mut sums),
                Resample::Documents => {
                    for _ in 0..documents.len() {
                        let drawn = documents[random.below(documents.len())].clone();
                        self.draw(&drawn, &mut random, &mut sums);
                    }
                }
            }
            for (values, (weights, weighted)) in values.iter_mut().zip(&sums) {
                values.push(weighted / weights);
            }
        }
        Replicates { values, usable }
    }

    /// The blocks of each document.
    fn documents(&self) -> Vec<std::ops::Range<usize>> {
        let mut documents: Vec<std::ops::Range<usize>> = Vec::new();
        for (index, block) in self.blocks.iter().enumerate() {
            match documents.last_mut() {
                Some(last) if self.blocks[last.start].document == block.document => last.end = index + 1,
                _ => documents.push(index..index + 1),
            }
        }
        documents
    }

    /// Adds as many blocks of `from` as there are, drawn with replacement.
    fn draw(&self, from: &std::ops::Range<usize>, random: &mut SplitMix64, sums: &mut [(f64, f64)]) {
        for _ in from.clone() {
            let block = &self.blocks[from.start + random.below(from.len())];
            for (sum, (weight, weighted)) in sums.iter_mut().zip(&block.sums) {
                sum.0 += weight;
                sum.1 += weighted;
            }
        }
    }
}

/// Every mean in every replicate.
#[derive(Debug, Clone, PartialEq)]
pub struct Replicates {
    /// `[mean][round]`; not a number where a draw gave a mean no weight.
    values: Vec<Vec<f64>>,
    /// Whether a mean has blocks enough.
    usable: Vec<bool>,
}

impl Replicates {
    /// The [`LEVEL`] interval of a mean; `None` with fewer than [`MIN_BLOCKS`] blocks (or documents, where they are drawn).
    pub fn interval(&self, mean: usize) -> Option<Interval> {
        self.usable[mean].then(|| percentiles(self.values[mean].clone()))?
    }

    /// The interval of mean `a` less mean `b`.
    pub fn difference(&self, a: usize, b: usize) -> Option<Interval> {
        let pairs = self.values[a].iter().zip(&self.values[b]);
        (self.usable[a] && self.usable[b]).then(|| percentiles(pairs.map(|(a, b)| a - b).collect()))?
    }
}

/// The middle [`LEVEL`] of the values that are numbers.
fn percentiles(mut values: Vec<f64>) -> Option<Interval> {
    values.retain(|value| value.is_finite());
    values.sort_by(f64::total_cmp);
    let tail = (1.0 - LEVEL) / 2.0;
    Some(Interval { low: quantile(&values, tail)?, high: quantile(&values, 1.0 - tail)? })
}

/// Quantile `q` in 0..=1 of sorted values, linear between neighbours.
/// Source: Hyndman and Fan 1996, definition 7 (numpy's default).
fn quantile(sorted: &[f64], q: f64) -> Option<f64> {
    let at = q * sorted.len().checked_sub(1)? as f64;
    let low = sorted[at.floor() as usize];
    let high = sorted[at.ceil() as usize];
    Some(low + (high - low) * at.fract())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A standard normal number: the sum of twelve uniform ones less six.
    fn normal(random: &mut SplitMix64) -> f64 {
        let unit = |random: &mut SplitMix64| (random.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
        (0..12).map(|_| unit(random)).sum::<f64>() - 6.0
    }

    fn blocks(values: &[f64], block: usize) -> Blocks {
        let mut blocks = Blocks::new(1);
        for (token, value) in values.iter().enumerate() {
            blocks.enter(0, token, block);
            blocks.add(0, 1.0, *value);
        }
        blocks
    }

    fn interval(values: &[f64], block: usize, seed: u64) -> Option<Interval> {
        blocks(values, block).replicate(&Bootstrap { seed, block, ..Bootstrap::default() }).interval(0)
    }

    #[test]
    fn quantiles_equal_those_of_numpy() {
        // numpy.quantile([1, 2, 4, 8], [0, 0.25, 0.5, 0.9, 1])
        let sorted = [1.0, 2.0, 4.0, 8.0];
        for (q, expected) in [(0.0, 1.0), (0.25, 1.75), (0.5, 3.0), (0.9, 6.8), (1.0, 8.0)] {
            assert!((quantile(&sorted, q).unwrap() - expected).abs() < 1e-12, "{q}");
        }
        assert_eq!(quantile(&[], 0.5), None);
    }

    /// For independent numbers the interval is the one of the normal distribution: mean +- 1.96 standard errors.
    #[test]
    fn independent_numbers_give_the_interval_of_the_textbook() {
        let mut random = SplitMix64::new(1);
        let values: Vec<f64> = (0..10_000).map(|_| 3.0 + 2.0 * normal(&mut random)).collect();
        let mean = values.iter().sum::<f64>() / 10_000.0;
        let found = interval(&values, 10, 0).unwrap();
        let half = 1.96 * 2.0 / 100.0;
        for bound in [mean - found.low, found.high - mean] {
            assert!((bound / half - 1.0).abs() < 0.15, "{found:?} around {mean}, {half}");
        }
    }

    /// The interval of an autocorrelated sequence (AR(1), 0.8) covers the true mean as often as it says; single tokens
    /// would cover it in about half of the cases.
    #[test]
    fn blocks_cover_the_mean_of_a_correlated_sequence() {
        let mut random = SplitMix64::new(2);
        let mut covered = [0, 0];
        for seed in 0..200 {
            let mut value = 0.0;
            let mut next = || {
                value = 0.8 * value + normal(&mut random);
                value
            };
            let values: Vec<f64> = (0..3200).map(|_| next()).collect();
            for (count, block) in covered.iter_mut().zip([64, 1]) {
                let found = interval(&values, block, seed).unwrap();
                *count += usize::from(found.low <= 0.0 && 0.0 <= found.high);
            }
        }
        assert!((175..=198).contains(&covered[0]), "{covered:?} of 200");
        assert!(covered[1] < 130, "{covered:?} of 200");
    }

    #[test]
    fn a_seed_gives_the_same_interval_again_and_another_one_another() {
        let values: Vec<f64> = (0..640).map(|i| f64::from((i * 37) % 101)).collect();
        assert_eq!(interval(&values, 64, 5), interval(&values, 64, 5));
        assert_ne!(interval(&values, 64, 5), interval(&values, 64, 6));
    }

    #[test]
    fn too_few_blocks_give_no_interval() {
        assert_eq!(interval(&[1.0; 4 * 64], 64, 0), None);
        assert_eq!(interval(&[1.0; 5 * 64], 64, 0), Some(Interval { low: 1.0, high: 1.0 }));
    }

    #[test]
    fn weights_make_means_and_differences_keep_what_is_common() {
        let mut blocks = Blocks::new(2);
        for token in 0..1000 {
            blocks.enter(0, token, 50);
            let level = f64::from((token * 7919 % 997) as u32);
            blocks.add(0, 2.0, level);
            blocks.add(1, 1.0, level + 1.0);
        }
        assert!((blocks.mean(1) - blocks.mean(0) - 1.0).abs() < 1e-9);
        let replicates = blocks.replicate(&Bootstrap::default());
        let difference = replicates.difference(1, 0).unwrap();
        assert!((difference.low - 1.0).abs() < 1e-9 && (difference.high - 1.0).abs() < 1e-9);
        let alone = replicates.interval(0).unwrap();
        assert!(alone.high - alone.low > 1.0);
    }

    /// Where documents differ more than their blocks do, drawing documents says so.
    #[test]
    fn documents_as_units_widen_the_interval() {
        let mut blocks = Blocks::new(1);
        for document in 0..8 {
            for token in 0..640 {
                blocks.enter(document, token, 64);
                blocks.add(0, 1.0, document as f64);
            }
        }
        let width = |resample| {
            let found =
                blocks.replicate(&Bootstrap { resample, ..Bootstrap::default() }).interval(0).unwrap();
            found.high - found.low
        };
        assert!(width(Resample::Documents) > 2.0 * width(Resample::Blocks));
    }
}
