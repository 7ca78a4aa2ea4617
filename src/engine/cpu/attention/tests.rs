//! Every instruction set against a scalar twin in f64.

mod extremes;

use proptest::prelude::*;

use super::*;
use crate::engine::KvType;
use crate::engine::cpu::cache::CacheShape;
use crate::named::Named;
use crate::rope::{Frequencies, Pairing, Table, rotate};

/// Largest error of an output, f32 products: rounding of sums of a few hundred terms.
const SINGLE_ERROR: f32 = 2e-5;

/// The same for products of bfloat16 pairs. Inputs rounded to 8 significant bits move the score of normal queries and
/// keys by 0.002 (one standard deviation); with two keys of equal weight and values 7 apart, four such deviations move
/// the output by 0.02.
const BF16_ERROR: f32 = 2.5e-2;

/// The same for 16-bit integers, where queries and weights are rounded (keys and values are compared as stored).
///
/// Rounding moves the score of normal queries and keys by 1e-5 of the root of their lanes (one standard deviation), and by half
/// as much again where keys are turned and rounded once more; two keys of equal weight and values 4 apart turn four
/// such deviations into as many. Weights are rounded to a 32,767th of the largest.
fn integer_error(case: &Case) -> f32 {
    let again = if case.turned { 1.5 } else { 1.0 };
    4e-5 * again * (case.shape.head_dim as f32).sqrt() + 5e-5
}

/// Root mean square of the errors, relative to that of the outputs.
const BF16_RELATIVE_ERROR: f64 = 8e-3;

/// Deterministic values, roughly normal with variance 1.
fn random(n: usize, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut uniform = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1u64 << 24) as f32 - 0.5
    };
    (0..n).map(|_| (0..4).map(|_| uniform()).sum::<f32>() * 1.732).collect()
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Case {
    pub shape: CacheShape,
    pub group: usize,
    pub start: usize,
    pub tokens: usize,
    pub window: Option<usize>,
    pub cache_type: KvType,
    pub turned: bool,
    pub seed: u64,
}

impl Case {
    pub fn n_heads(&self) -> usize {
        self.group * self.shape.n_kv_heads
    }

    pub fn end(&self) -> usize {
        self.start + self.tokens
    }

    fn frequencies(&self) -> Frequencies {
        let pairs = self.shape.rotary_dim / 2;
        let inv_freq = (0..pairs).map(|i| 100f64.powf(-(i as f64) / pairs as f64)).collect();
        Frequencies { inv_freq, attention_factor: 1.1 }
    }

    pub fn table(&self) -> Table {
        Table::new(&self.frequencies(), 0..self.end() + 3)
    }

    pub fn queries(&self) -> Vec<f32> {
        random(self.n_heads() * self.tokens * self.shape.head_dim, self.seed + 1)
    }

    /// A cache with stale positions after the last one.
    pub fn cache(&self, pool: &Pool, fill: impl Fn(&mut [f32], &mut [f32])) -> LayerCache {
        let CacheShape { n_kv_heads, head_dim, .. } = self.shape;
        let capacity = self.end() + 5;
        let mut cache = LayerCache::new(self.shape, capacity, self.cache_type);
        let stale = vec![f32::NAN; n_kv_heads * capacity * head_dim];
        let rows = HeadRows::by_head(&stale, capacity, head_dim);
        cache.append(pool, 0, rows, rows).unwrap();
        let mut k = random(n_kv_heads * self.end() * head_dim, self.seed + 2);
        let mut v = random(n_kv_heads * self.end() * head_dim, self.seed + 3);
        fill(&mut k, &mut v);
        let rows = |values| HeadRows::by_head(values, self.end(), head_dim);
        cache.append(pool, 0, rows(&k), rows(&v)).unwrap();
        cache
    }

    fn attend(&self, isa: Isa, pool: &Pool, q: &[f32], cache: &LayerCache) -> Vec<f32> {
        let rotation = self.turned.then(|| TiledRotation::new(&self.table()).unwrap());
        let rows = HeadRows::by_head(q, self.tokens, self.shape.head_dim);
        let problem =
            Problem::new(rows, self.n_heads(), self.start, cache, rotation.as_ref()).with_window(self.window);
        let mut out = vec![f32::NAN; q.len()];
        attend(isa, pool, &problem, &mut AttentionWorkspace::new(pool), &mut out);
        out
    }

    /// The score of a query and the stored key of a position, in f64; `key` is scratch.
    pub fn score(
        &self,
        query: &[f32],
        cache: &LayerCache,
        kv_head: usize,
        position: usize,
        key: &mut [f32],
    ) -> f64 {
        let head_dim = self.shape.head_dim;
        cache.key(kv_head, position, key);
        if self.turned {
            let row = Table::new(&self.frequencies(), position..position + 1);
            rotate(key, head_dim, &row, 0, self.shape.pairing).unwrap();
        }
        let dot: f64 = key.iter().zip(query).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
        dot / (head_dim as f64).sqrt()
    }

    /// The same in f64, one query at a time, from the stored keys and values.
    fn twin(&self, q: &[f32], cache: &LayerCache) -> Vec<f32> {
        let head_dim = self.shape.head_dim;
        let mut out = vec![0.0; q.len()];
        let (mut key, mut value) = (vec![0.0f32; head_dim], vec![0.0f32; head_dim]);
        for head in 0..self.n_heads() {
            for token in 0..self.tokens {
                let query = &q[(head * self.tokens + token) * head_dim..][..head_dim];
                let end = self.start + token + 1;
                let from = self.window.map_or(0, |window| end.saturating_sub(window));
                let scores: Vec<f64> = (from..end)
                    .map(|position| self.score(query, cache, head / self.group, position, &mut key))
                    .collect();
                let most = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let total: f64 = scores.iter().map(|s| (s - most).exp()).sum();
                let mut mixed = vec![0.0f64; head_dim];
                for (score, position) in scores.iter().zip(from..end) {
                    cache.value(head / self.group, position, &mut value);
                    let weight = (score - most).exp() / total;
                    mixed.iter_mut().zip(&value).for_each(|(sum, x)| *sum += weight * f64::from(*x));
                }
                let to = &mut out[(token * self.n_heads() + head) * head_dim..][..head_dim];
                to.iter_mut().zip(&mixed).for_each(|(to, x)| *to = *x as f32);
            }
        }
        out
    }

    fn check(&self) {
        let pool = Pool::new(2);
        let cache = self.cache(&pool, |_, _| {});
        let q = self.queries();
        let expected = self.twin(&q, &cache);
        for isa in Isa::ALL_AVAILABLE() {
            let found = self.attend(isa, &pool, &q, &cache);
            let worst = largest_difference(&found, &expected);
            let allowed = match (isa, self.cache_type) {
                (Isa::Scalar, _) => SINGLE_ERROR,
                (_, KvType::Q16) => integer_error(self),
                (Isa::Avx512Bf16Vnni, _) => BF16_ERROR,
                _ => SINGLE_ERROR,
            };
            let relative = relative_error(&found, &expected);
            assert!(worst <= allowed, "{isa}: {worst} in {self:?}");
            // A few outputs can cancel to little.
            let allowed = if found.len() < 2000 { 4.0 * BF16_RELATIVE_ERROR } else { BF16_RELATIVE_ERROR };
            assert!(relative <= allowed, "{isa}: relative {relative} in {self:?}");
        }
    }
}

/// Not a number counts as infinite.
fn largest_difference(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    let differences = a.iter().zip(b).map(|(a, b)| (a - b).abs());
    differences.fold(0.0, |most, x| {
        if x <= most {
            most
        } else if x.is_nan() {
            f32::INFINITY
        } else {
            x
        }
    })
}

fn relative_error(found: &[f32], expected: &[f32]) -> f64 {
    let square = |x: f32| f64::from(x) * f64::from(x);
    let error: f64 = found.iter().zip(expected).map(|(a, b)| square(a - b)).sum();
    let size: f64 = expected.iter().map(|b| square(*b)).sum();
    (error / size.max(1e-30)).sqrt()
}

fn shape(n_kv_heads: usize, head_dim: usize, rotary_dim: usize, pairing: Pairing) -> CacheShape {
    CacheShape { n_kv_heads, head_dim, rotary_dim, pairing }
}

pub(super) fn plain(head_dim: usize, start: usize, tokens: usize) -> Case {
    let shape = shape(1, head_dim, head_dim / 2 * 2, Pairing::HalfSplit);
    Case { shape, group: 3, start, tokens, window: None, cache_type: KvType::F32, turned: false, seed: 1 }
}

pub(super) fn cases() -> impl Strategy<Value = Case> {
    let pairing = prop_oneof![Just(Pairing::Adjacent), Just(Pairing::HalfSplit)];
    let lengths = (0usize..140, prop_oneof![1usize..20, 20usize..150]);
    let window = prop_oneof![Just(None), (1usize..150).prop_map(Some)];
    let cache_type = prop::sample::select(KvType::ALL.to_vec());
    let heads = (1usize..3, 1usize..8, 1usize..140, any::<bool>(), 0usize..6);
    (pairing, lengths, window, cache_type, heads, any::<u64>()).prop_map(
        |(
            pairing,
            (start, tokens),
            window,
            cache_type,
            (n_kv_heads, group, head_dim, turned, rest),
            seed,
        )| {
            let rotary_dim = head_dim.saturating_sub(rest) / 2 * 2;
            let shape = shape(n_kv_heads, head_dim, rotary_dim, pairing);
            Case { shape, group, start, tokens, window, cache_type, turned, seed: seed >> 1 }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn every_shape_equals_its_twin(case in cases()) {
        case.check();
    }
}

#[test]
fn tile_edges_equal_their_twin() {
    for (start, tokens) in [
        (0, 1),
        (0, 63),
        (0, 64),
        (0, 65),
        (63, 1),
        (63, 2),
        (64, 17),
        (1, 127),
        (510, 2),
        (1100, 3),
        (600, 40),
    ] {
        for head_dim in [64, 128] {
            plain(head_dim, start, tokens).check();
        }
    }
}

#[test]
fn results_depend_neither_on_threads_nor_on_chunks() {
    for cache_type in [KvType::BF16, KvType::Q16] {
        results_of_parts_are_those_of_the_whole(cache_type);
    }
}

fn results_of_parts_are_those_of_the_whole(cache_type: KvType) {
    let whole = Case { cache_type, ..plain(64, 0, 700) };
    let one = Pool::new(1);
    let cache = whole.cache(&one, |_, _| {});
    let q = whole.queries();
    for isa in Isa::ALL_AVAILABLE() {
        let expected = whole.attend(isa, &one, &q, &cache);
        for threads in [2, 3, 7] {
            assert_eq!(
                whole.attend(isa, &Pool::new(threads), &q, &cache),
                expected,
                "{isa}, {threads} threads"
            );
        }
        let width = whole.n_heads() * whole.shape.head_dim;
        for (start, tokens) in [(0, 40), (500, 200), (640, 3), (699, 1), (100, 16)] {
            let chunk = Case { start, tokens, ..whole };
            let rows: Vec<f32> = (0..whole.n_heads())
                .flat_map(|head| &q[(head * 700 + start) * 64..(head * 700 + start + tokens) * 64])
                .copied()
                .collect();
            let found = chunk.attend(isa, &one, &rows, &cache);
            let worst = largest_difference(&found, &expected[start * width..(start + tokens) * width]);
            assert!(worst <= 1e-6, "{isa}: {worst} for {tokens} tokens at {start}");
        }
    }
}

#[test]
fn rows_by_token_are_the_same_rows() {
    let case = plain(64, 10, 20);
    let pool = Pool::new(1);
    let cache = case.cache(&pool, |_, _| {});
    let q = case.queries();
    let mut by_token = vec![0.0; 20 * 200];
    for (index, row) in q.chunks(64).enumerate() {
        by_token[index % 20 * 200 + index / 20 * 64..][..64].copy_from_slice(row);
    }
    let problem = Problem::new(HeadRows::by_token(&by_token, 20, 200, 64), 3, 10, &cache, None);
    let mut out = vec![0.0; q.len()];
    attend(Isa::detect(), &pool, &problem, &mut AttentionWorkspace::new(&pool), &mut out);
    assert_eq!(out, case.attend(Isa::detect(), &pool, &q, &cache));
}

#[test]
fn normal_inputs_stay_within_the_stated_error() {
    for (start, tokens, cache_type) in [
        (0, 256, KvType::F32),
        (4000, 32, KvType::F32),
        (4095, 1, KvType::F32),
        (0, 256, KvType::Q16),
        (4000, 32, KvType::Q16),
        (4095, 1, KvType::Q16),
    ] {
        let case = Case { cache_type, ..plain(64, start, tokens) };
        let pool = Pool::new(2);
        let cache = case.cache(&pool, |_, _| {});
        let q = case.queries();
        let expected = case.twin(&q, &cache);
        for isa in Isa::ALL_AVAILABLE() {
            let found = case.attend(isa, &pool, &q, &cache);
            let (relative, worst) =
                (relative_error(&found, &expected), largest_difference(&found, &expected));
            let name = cache_type.name();
            println!(
                "{isa}, {name}, {tokens} tokens at {start}: relative {relative:.2e}, largest {worst:.2e}"
            );
            let allowed = match (isa, cache_type) {
                (Isa::Scalar, _) => 2e-6,
                (_, KvType::Q16) => 2e-4,
                (Isa::Avx512Bf16Vnni, _) => 5e-3,
                _ => 2e-6,
            };
            assert!(relative < allowed, "{isa}: {relative}");
        }
    }
}
