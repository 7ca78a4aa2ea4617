//! Random numbers that depend on a seed, a purpose and nothing else.

use std::f64::consts::TAU;

/// A stream of numbers: xoshiro256** of Blackman and Vigna (2018), its state filled by SplitMix64.
#[derive(Debug, Clone)]
pub struct Random {
    state: [u64; 4],
}

/// One step of SplitMix64 (Steele, Lea and Flood 2014).
fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// FNV-1a over 64 bits.
pub fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |h, byte| (h ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

impl Random {
    /// The stream of `seed` for one purpose, such as the name of a tensor; `index` numbers streams of one purpose.
    pub fn new(seed: u64, purpose: &str, index: u64) -> Self {
        let mut state = seed ^ hash(purpose.as_bytes()).rotate_left(17);
        state = split_mix(&mut state) ^ index.wrapping_mul(0xa076_1d64_78bd_642f);
        Self { state: std::array::from_fn(|_| split_mix(&mut state)) }
    }

    pub fn next(&mut self) -> u64 {
        let s = &mut self.state;
        let result = s[1].wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// Uniform in `0..below`; `below` is above 0. The bias of the multiplication is below `below / 2^64`.
    pub fn below(&mut self, below: usize) -> usize {
        ((u128::from(self.next()) * below as u128) >> 64) as usize
    }

    /// Uniform in `0..1`, 53 bits.
    pub fn uniform(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Normal with mean 0 and variance 1 (Box and Muller 1958).
    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.uniform()).ln()).sqrt();
        radius * (TAU * self.uniform()).cos()
    }

    /// One of `choices`, which is not empty.
    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_repeat_and_differ() {
        let first = |seed, purpose, index| Random::new(seed, purpose, index).next();
        assert_eq!(first(1, "a", 0), first(1, "a", 0));
        let streams = [first(1, "a", 0), first(2, "a", 0), first(1, "b", 0), first(1, "a", 1)];
        for (i, a) in streams.iter().enumerate() {
            assert!(streams[..i].iter().all(|b| a != b));
        }
    }

    #[test]
    fn normals_have_mean_zero_and_variance_one() {
        let mut random = Random::new(7, "test", 0);
        let values: Vec<f64> = (0..20_000).map(|_| random.normal()).collect();
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let variance = values.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / values.len() as f64;
        // Four standard errors: 4 / sqrt(20000) and 4 * sqrt(2 / 20000).
        assert!(mean.abs() < 0.029 && (variance - 1.0).abs() < 0.04, "{mean} {variance}");
    }

    #[test]
    fn every_choice_comes_up() {
        let mut random = Random::new(3, "test", 0);
        let mut counts = [0; 5];
        (0..5000).for_each(|_| counts[random.below(5)] += 1);
        assert!(counts.iter().all(|count| (850..1150).contains(count)), "{counts:?}");
    }
}
