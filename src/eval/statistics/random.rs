//! A small generator whose numbers are the same on every machine and in every version.

/// SplitMix64.
/// Source: Steele, Lea and Flood 2014, "Fast splittable pseudorandom number generators", OOPSLA, figure 17.
#[derive(Debug, Clone)]
pub struct SplitMix64 {
    state: u64,
}

impl SplitMix64 {
    pub fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// An index below `count`, which is at least 1. Uneven by less than `count` in 2^64.
    pub fn below(&mut self, count: usize) -> usize {
        ((u128::from(self.next_u64()) * count as u128) >> 64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers that other implementations of the generator print for this seed.
    #[test]
    fn the_sequence_is_the_published_one() {
        let mut random = SplitMix64::new(1234567);
        let found = [(); 3].map(|()| random.next_u64());
        assert_eq!(found, [6457827717110365317, 3203168211198807973, 9817491932198370423]);
    }

    #[test]
    fn indices_are_spread_evenly() {
        let mut random = SplitMix64::new(7);
        let mut counts = [0usize; 5];
        for _ in 0..50_000 {
            counts[random.below(5)] += 1;
        }
        // Five standard deviations of a binomial count.
        assert!(counts.iter().all(|count| count.abs_diff(10_000) < 450), "{counts:?}");
    }
}
