//! A small seeded generator, so that a seed gives the same needles in every version and on every machine.

/// SplitMix64: 64 bits of state, every state reached once.
/// Source: Steele, Lea and Flood 2014, "Fast splittable pseudorandom number generators", figure 17.
#[derive(Debug, Clone)]
pub struct Random {
    state: u64,
}

impl Random {
    /// A stream of its own for every seed, purpose and trial.
    pub fn new(seed: u64, purpose: &str, trial: usize) -> Self {
        let mut random = Self { state: seed };
        for byte in purpose.bytes() {
            random.state = random.next() ^ u64::from(byte);
        }
        random.state = random.next() ^ trial as u64;
        random.next();
        random
    }

    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A whole number in `0..n`; the bias is below n / 2^64.
    ///
    /// # Panics
    /// When `n` is 0.
    pub fn below(&mut self, n: usize) -> usize {
        assert!(n > 0, "a number below 0 was asked for");
        ((u128::from(self.next()) * n as u128) >> 64) as usize
    }

    /// A number in `0..1`.
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// One of `choices`.
    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    /// Puts `list` in random order (Fisher and Yates).
    pub fn shuffle<T>(&mut self, list: &mut [T]) {
        for last in (1..list.len()).rev() {
            list.swap(last, self.below(last + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_repeat_and_differ() {
        let draw = |seed, purpose, trial| {
            let mut random = Random::new(seed, purpose, trial);
            [random.next(), random.next()]
        };
        assert_eq!(draw(1, "keys", 2), draw(1, "keys", 2));
        let all = [draw(0, "keys", 0), draw(1, "keys", 0), draw(0, "values", 0), draw(0, "keys", 1)];
        assert!((0..4).all(|a| (0..a).all(|b| all[a] != all[b])));
    }

    #[test]
    fn numbers_cover_their_range_evenly() {
        let mut random = Random::new(7, "test", 0);
        let mut counts = [0; 10];
        (0..10_000).for_each(|_| counts[random.below(10)] += 1);
        // Five standard deviations of a binomial count of mean 1000.
        assert!(counts.iter().all(|&count| (850..1150).contains(&count)), "{counts:?}");
        let mean: f64 = (0..10_000).map(|_| random.unit()).sum::<f64>() / 1e4;
        assert!((mean - 0.5).abs() < 0.015, "{mean}");
        let mut list: Vec<usize> = (0..50).collect();
        random.shuffle(&mut list);
        assert_ne!(list, (0..50).collect::<Vec<_>>());
        list.sort_unstable();
        assert_eq!(list, (0..50).collect::<Vec<_>>());
    }
}
