//! Every instruction set against sums in f64 over probabilities that are all there.

use proptest::prelude::*;

use super::super::TiledRotation;
use super::super::tests::{Case, cases, plain};
use super::*;
use crate::engine::cpu::cache::{HeadRows, LayerCache};

/// Largest error of a probability and of an entropy in nats: scores of some units summed in f32.
const ERROR: f64 = 2e-5;

fn found(case: &Case, isa: Isa, pool: &Pool, q: &[f32], cache: &LayerCache, longest: usize) -> AttentionRows {
    let rotation = case.turned.then(|| TiledRotation::new(&case.table()).unwrap());
    let rows = HeadRows::by_head(q, case.tokens, case.shape.head_dim);
    let problem =
        Problem::new(rows, case.n_heads(), case.start, cache, rotation.as_ref()).with_window(case.window);
    let probe = AttentionProbe { longest, sink_tokens: 3 };
    statistics(isa, pool, &problem, 0..case.tokens, &probe)
}

/// Probabilities of one query: position and weight of every key that it sees.
fn weights(
    case: &Case,
    q: &[f32],
    cache: &LayerCache,
    (token, head): (usize, usize),
) -> (Range<usize>, Vec<f64>) {
    let head_dim = case.shape.head_dim;
    let query = &q[(head * case.tokens + token) * head_dim..][..head_dim];
    let end = case.start + token + 1;
    let seen = case.window.map_or(0, |window| end.saturating_sub(window))..end;
    let mut key = vec![0.0; head_dim];
    let scores: Vec<f64> = seen
        .clone()
        .map(|position| case.score(query, cache, head / case.group, position, &mut key))
        .collect();
    let most = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let total: f64 = scores.iter().map(|score| (score - most).exp()).sum();
    (seen, scores.iter().map(|score| (score - most).exp() / total).collect())
}

/// Largest difference to the sums in f64; distances count relative to how far the query sees.
fn worst(case: &Case, q: &[f32], cache: &LayerCache, found: &AttentionRows) -> f64 {
    let mut worst = 0.0f64;
    for (token, head) in (0..case.tokens).flat_map(|token| (0..case.n_heads()).map(move |head| (token, head)))
    {
        let (seen, weights) = weights(case, q, cache, (token, head));
        let (row, mass) = found.row(token, head);
        assert_eq!(row.seen, seen.len());
        let distance = |position: usize| (case.start + token - position) as f64;
        let sum = |f: &dyn Fn(usize, f64) -> f64| -> f64 {
            seen.clone().zip(&weights).map(|(position, weight)| f(position, *weight)).sum()
        };
        let sink = |position: usize| if position < 3 { 1.0 } else { 0.0 };
        let far = seen.len() as f64;
        let expected = [
            (row.entropy, sum(&|_, w| if w > 0.0 { -w * w.ln() } else { 0.0 })),
            (row.distance / far, sum(&|p, w| w * distance(p)) / far),
            (row.first, sum(&|p, w| if p == 0 { w } else { 0.0 })),
            (row.sink, sum(&|p, w| sink(p) * w)),
            (row.sink_distance / far, sum(&|p, w| sink(p) * w * distance(p)) / far),
            (mass.iter().sum(), 1.0),
        ];
        let by_distance = mass.iter().enumerate().map(|(bucket, mass)| {
            let here = AttentionProbe::distances(bucket);
            let inside = |p: usize, w: f64| if here.contains(&(case.start + token - p)) { w } else { 0.0 };
            (*mass, sum(&inside))
        });
        for (found, expected) in expected.into_iter().chain(by_distance) {
            let difference = (found - expected).abs();
            worst = if difference <= worst { worst } else { difference };
        }
    }
    worst
}

fn check(case: &Case) {
    let pool = Pool::new(2);
    let cache = case.cache(&pool, |_, _| {});
    let q = case.queries();
    for isa in Isa::ALL_AVAILABLE() {
        let found = found(case, isa, &pool, &q, &cache, case.end());
        let worst = worst(case, &q, &cache, &found);
        assert!(worst <= ERROR, "{isa}: {worst} in {case:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn every_shape_equals_its_definition(case in cases()) {
        check(&case);
    }
}

#[test]
fn tile_edges_equal_their_definition() {
    for (start, tokens) in [(0, 1), (0, 64), (0, 65), (63, 2), (64, 17), (510, 3), (1100, 2)] {
        check(&plain(64, start, tokens));
        check(&Case { window: Some(64), ..plain(64, start, tokens) });
    }
}

#[test]
fn sums_depend_neither_on_threads_nor_on_chunks_nor_on_the_longest_text() {
    let whole = plain(64, 0, 300);
    let one = Pool::new(1);
    let cache = whole.cache(&one, |_, _| {});
    let q = whole.queries();
    for isa in Isa::ALL_AVAILABLE() {
        let expected = found(&whole, isa, &one, &q, &cache, 300);
        for threads in [2, 3, 7] {
            assert_eq!(found(&whole, isa, &Pool::new(threads), &q, &cache, 300), expected, "{isa}");
        }
        for (start, tokens) in [(0, 40), (200, 100), (299, 1), (100, 16)] {
            let rows: Vec<f32> = (0..whole.n_heads())
                .flat_map(|head| &q[(head * 300 + start) * 64..(head * 300 + start + tokens) * 64])
                .copied()
                .collect();
            let chunk = found(&Case { start, tokens, ..whole }, isa, &one, &rows, &cache, 5000);
            for (token, head) in (0..tokens).flat_map(|token| (0..3).map(move |head| (token, head))) {
                let (row, mass) = chunk.row(token, head);
                let (same, same_mass) = expected.row(start + token, head);
                assert_eq!((row, &mass[..same_mass.len()]), (same, same_mass), "{isa}: {tokens} at {start}");
            }
        }
    }
}

/// Scores far beyond the headroom of the base, growing along the text: all sums move with it.
#[test]
fn a_base_that_moves_takes_all_sums_along() {
    let case = plain(64, 0, 300);
    let pool = Pool::new(1);
    let cache = case.cache(&pool, |k, _| {
        for (position, key) in k.chunks_mut(64).enumerate() {
            key.iter_mut().for_each(|x| *x *= position as f32 / 8.0);
        }
    });
    let q = case.queries();
    for isa in Isa::ALL_AVAILABLE() {
        let found = found(&case, isa, &pool, &q, &cache, 300);
        let worst = worst(&case, &q, &cache, &found);
        // Scores of some hundreds carry the rounding of f32 a hundred times further.
        assert!(worst <= 100.0 * ERROR, "{isa}: {worst}");
    }
}

#[test]
fn what_is_not_a_number_shows() {
    let case = plain(64, 0, 100);
    let pool = Pool::new(1);
    let cache = case.cache(&pool, |k, _| k[50 * 64 + 5] = f32::NAN);
    let q = case.queries();
    for isa in Isa::ALL_AVAILABLE() {
        let found = found(&case, isa, &pool, &q, &cache, 100);
        assert!((0..50).all(|token| found.row(token, 0).0.entropy.is_finite()), "{isa}");
        assert!((50..100).all(|token| found.row(token, 0).0.entropy.is_nan()), "{isa}");
    }
}
