//! What a run found, cell by cell.

/// A right answer among wrong ones.
#[derive(Debug, Clone, PartialEq)]
pub struct Ranked {
    pub answer: String,
    /// Natural logarithm of its probability after the prompt.
    pub log_prob: f64,
    /// 1: more likely than every decoy.
    pub rank: usize,
    pub decoys: usize,
    /// The most likely decoy.
    pub best_decoy: String,
    pub best_decoy_log_prob: f64,
}

impl Ranked {
    /// How much more likely the right answer is than the best decoy, in nats.
    pub fn margin(&self) -> f64 {
        self.log_prob - self.best_decoy_log_prob
    }

    /// Share of the decoys that are less likely.
    pub fn beaten(&self) -> f64 {
        1.0 - (self.rank - 1) as f64 / self.decoys as f64
    }
}

/// A greedy continuation.
#[derive(Debug, Clone, PartialEq)]
pub struct Generated {
    pub text: String,
    /// Share of the answers that stand in it as wholes.
    pub strict: f64,
    /// The same by RULER's rule: anywhere, also inside a longer number.
    pub substring: f64,
}

/// One repetition of a cell.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Trial {
    pub number: usize,
    /// Where the answers stood, as shares of the text.
    pub depths: Vec<f64>,
    pub ranked: Vec<Ranked>,
    pub generated: Option<Generated>,
}

/// All repetitions of a depth and length that are done.
#[derive(Debug, Clone, PartialEq)]
pub struct Cell {
    pub length: usize,
    /// `None`: depths spread at random, or a control.
    pub depth: Option<f64>,
    /// Tokens of the longest prompt.
    pub prompt_tokens: usize,
    pub trials: Vec<Trial>,
}

/// A mean share with its 95 % interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Share {
    pub mean: f64,
    pub interval: Interval,
    /// Trials that it is the mean of.
    pub trials: usize,
}

/// Ends of an interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interval {
    pub low: f64,
    pub high: f64,
}

/// 97.5 % point of the normal distribution.
const Z: f64 = 1.959_963_984_540_054;

impl Share {
    /// The mean of one share a trial, with Wilson's interval; trials with several answers count once.
    /// Source: Wilson 1927, "Probable inference, the law of succession, and statistical inference".
    /// Returns `None` without values.
    pub fn of(values: &[f64]) -> Option<Self> {
        if values.is_empty() {
            return None;
        }
        let n = values.len() as f64;
        let mean = values.iter().sum::<f64>() / n;
        let z2 = Z * Z;
        let centre = (mean + z2 / (2.0 * n)) / (1.0 + z2 / n);
        let half = Z / (1.0 + z2 / n) * (mean * (1.0 - mean) / n + z2 / (4.0 * n * n)).sqrt();
        let interval = Interval { low: (centre - half).max(0.0), high: (centre + half).min(1.0) };
        Some(Self { mean, interval, trials: values.len() })
    }
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let values: Vec<f64> = values.collect();
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// Share of a trial's answers that rank first.
fn first(trial: &Trial) -> Option<f64> {
    mean(trial.ranked.iter().map(|ranked| f64::from(u8::from(ranked.rank == 1))))
}

/// Share of answers that rank first, over trials.
pub fn likelihood<'t>(trials: impl Iterator<Item = &'t Trial>) -> Option<Share> {
    Share::of(&trials.filter_map(first).collect::<Vec<f64>>())
}

/// Share of answers that stand in the continuation as wholes, over trials.
pub fn generation<'t>(trials: impl Iterator<Item = &'t Trial>) -> Option<Share> {
    let strict = |trial: &Trial| trial.generated.as_ref().map(|generated| generated.strict);
    Share::of(&trials.filter_map(strict).collect::<Vec<f64>>())
}

/// The same by RULER's rule.
pub fn substring<'t>(trials: impl Iterator<Item = &'t Trial>) -> Option<f64> {
    mean(trials.filter_map(|trial| trial.generated.as_ref()).map(|generated| generated.substring))
}

impl Cell {
    pub fn likelihood(&self) -> Option<Share> {
        likelihood(self.trials.iter())
    }

    pub fn generation(&self) -> Option<Share> {
        generation(self.trials.iter())
    }

    pub fn substring(&self) -> Option<f64> {
        substring(self.trials.iter())
    }

    fn ranked(&self) -> impl Iterator<Item = &Ranked> {
        self.trials.iter().flat_map(|trial| &trial.ranked)
    }

    pub fn mean_rank(&self) -> Option<f64> {
        mean(self.ranked().map(|ranked| ranked.rank as f64))
    }

    /// Mean margin in nats.
    pub fn margin(&self) -> Option<f64> {
        mean(self.ranked().map(Ranked::margin))
    }

    /// Mean share of the decoys that are less likely than the answer; 0.5 by chance.
    pub fn beaten(&self) -> Option<f64> {
        mean(self.ranked().map(Ranked::beaten))
    }

    /// Mean depth that the answers really stand at.
    pub fn reached_depth(&self) -> Option<f64> {
        mean(self.trials.iter().flat_map(|trial| trial.depths.iter().copied()))
    }
}

/// How much work sharing saved.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TokenCount {
    /// Tokens that went through the model.
    pub computed: usize,
    /// What they would be with a prefill of its own for every prompt.
    pub naive: usize,
    /// And with one for every candidate too, as evaluations do that score one text at a time.
    pub naive_per_candidate: usize,
    pub prompts: usize,
}

/// The grid.
#[derive(Debug, Clone, PartialEq)]
pub struct NeedleResult {
    /// By length, then depth.
    pub cells: Vec<Cell>,
    /// The same questions on text without the answers, by length; empty when not asked for.
    pub controls: Vec<Cell>,
    pub answer_room: usize,
    /// What the likelihood score is when the model knows nothing.
    pub chance: Option<f64>,
    pub tokens: TokenCount,
    /// Ctrl-C ended the run; trials that were not finished are left out.
    pub interrupted: bool,
}

impl NeedleResult {
    /// Trials of all depths of a length.
    pub fn of_length(&self, length: usize) -> impl Iterator<Item = &Trial> {
        self.cells.iter().filter(move |cell| cell.length == length).flat_map(|cell| &cell.trials)
    }

    /// The largest length whose score, over all depths, reaches `threshold`.
    /// Source: RULER (Hsieh et al. 2024, section 4), whose threshold is 0.856.
    pub fn effective_length(
        &self,
        threshold: f64,
        score: impl Fn(&Self, usize) -> Option<f64>,
    ) -> Option<usize> {
        let lengths = self.cells.iter().map(|cell| cell.length);
        lengths.filter(|&length| score(self, length).is_some_and(|score| score >= threshold)).max()
    }

    pub fn likelihood_at(&self, length: usize) -> Option<Share> {
        likelihood(self.of_length(length))
    }

    pub fn generation_at(&self, length: usize) -> Option<Share> {
        generation(self.of_length(length))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values of R's `binom::binom.confint(k, n, methods = "wilson")`, checked by hand from the formula.
    #[test]
    fn wilson_intervals_are_right_at_the_ends_too() {
        let share = |hits: usize, n: usize| {
            let values: Vec<f64> = (0..n).map(|i| f64::from(u8::from(i < hits))).collect();
            Share::of(&values).unwrap().interval
        };
        for (hits, n, low, high) in [
            (5, 10, 0.236_59, 0.763_41),
            (0, 10, 0.0, 0.277_53),
            (10, 10, 0.722_47, 1.0),
            (1, 1, 0.206_55, 1.0),
        ] {
            let found = share(hits, n);
            assert!((found.low - low).abs() < 1e-5 && (found.high - high).abs() < 1e-5, "{found:?}");
        }
        assert_eq!(Share::of(&[]), None);
    }

    fn ranked(rank: usize) -> Ranked {
        Ranked {
            answer: "a".into(),
            log_prob: -1.0,
            rank,
            decoys: 4,
            best_decoy: "b".into(),
            best_decoy_log_prob: -3.0,
        }
    }

    #[test]
    fn a_cell_sums_its_trials_up() {
        let trial = |ranks: &[usize]| Trial {
            ranked: ranks.iter().map(|rank| ranked(*rank)).collect(),
            ..Trial::default()
        };
        let trials = vec![trial(&[1, 5]), trial(&[1, 1])];
        let cell = Cell { length: 8, depth: None, prompt_tokens: 8, trials };
        assert_eq!(cell.likelihood().unwrap().mean, 0.75);
        assert_eq!((cell.mean_rank(), cell.margin(), cell.beaten()), (Some(2.0), Some(2.0), Some(0.75)));
        assert_eq!((cell.generation(), cell.substring(), cell.reached_depth()), (None, None, None));
    }

    #[test]
    fn the_effective_length_is_the_largest_that_passes() {
        let cell = |length, rank| Cell {
            length,
            depth: Some(0.5),
            prompt_tokens: length,
            trials: vec![Trial { ranked: vec![ranked(rank)], ..Trial::default() }],
        };
        let result = NeedleResult {
            cells: vec![cell(1, 1), cell(2, 1), cell(4, 2)],
            controls: Vec::new(),
            answer_room: 1,
            chance: None,
            tokens: TokenCount::default(),
            interrupted: false,
        };
        let score = |result: &NeedleResult, length| result.likelihood_at(length).map(|share| share.mean);
        assert_eq!(result.effective_length(0.856, score), Some(2));
        assert_eq!(result.effective_length(1.1, score), None);
    }
}
