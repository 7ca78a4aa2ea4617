//! Numbers at the ends of their ranges, and what is no number.

use super::*;

#[test]
fn large_scores_move_the_base() {
    for (start, tokens, cache_type) in
        [(0, 300, KvType::F32), (299, 1, KvType::F32), (0, 300, KvType::Q16), (299, 1, KvType::Q16)]
    {
        let case = Case { cache_type, ..plain(64, start, tokens) };
        let pool = Pool::new(1);
        // Scores grow along the cache far beyond the headroom, up and down.
        let cache = case.cache(&pool, |k, _| {
            for (position, key) in k.chunks_mut(64).enumerate() {
                key.iter_mut().for_each(|x| *x *= position as f32);
            }
        });
        let q = case.queries();
        let expected = case.twin(&q, &cache);
        let exact =
            |isa: &Isa| *isa == Isa::Scalar || cache_type == KvType::F32 && *isa != Isa::Avx512Bf16Vnni;
        for isa in Isa::ALL_AVAILABLE().into_iter().filter(exact) {
            let worst = largest_difference(&case.attend(isa, &pool, &q, &cache), &expected);
            assert!(worst <= 1e-3, "{isa}: {worst}");
        }
        // Rounded scores of this size name another winner now and then: only finite is promised.
        for isa in Isa::ALL_AVAILABLE() {
            assert!(case.attend(isa, &pool, &q, &cache).iter().all(|x| x.is_finite()), "{isa}");
        }
    }
}

#[test]
fn what_is_not_finite_reaches_the_rows_that_see_it() {
    for bad in [f32::NAN, f32::INFINITY] {
        for (in_keys, cache_type) in [KvType::F32, KvType::Q16, KvType::Q8_0]
            .into_iter()
            .flat_map(|kind| [(true, kind), (false, kind)])
        {
            let case = Case { cache_type, ..plain(64, 0, 200) };
            let pool = Pool::new(1);
            let cache = case.cache(&pool, |k, v| (if in_keys { k } else { v })[100 * 64 + 5] = bad);
            let q = case.queries();
            for isa in Isa::ALL_AVAILABLE() {
                let out = case.attend(isa, &pool, &q, &cache);
                let finite = |token: usize| out[token * 192..(token + 1) * 192].iter().all(|x| x.is_finite());
                assert!((0..98).all(finite), "{isa} {bad} {in_keys}");
                // A key that scores minus infinity is not seen: look for rows of heads where it is plus infinity.
                assert!((101..200).any(|token| !finite(token)), "{isa} {bad} {in_keys} {cache_type:?}");
                if bad.is_nan() {
                    assert!((101..200).all(|token| !finite(token)), "{isa} {bad} {in_keys} {cache_type:?}");
                }
            }
        }
    }
}

/// Where products in integers could go wrong: keys of one lane, of equal lanes, of nothing; queries along the keys, so that
/// sums are as large as they get; one value far above the others; keys that turn and grow.
#[test]
fn extreme_rows_fit_their_integers() {
    let fills: [fn(usize, &mut [f32]); 5] = [
        |_, row| row.iter_mut().enumerate().for_each(|(lane, x)| *x = if lane == 3 { 1e4 } else { 0.0 }),
        |_, row| row.fill(7.0),
        |_, row| row.fill(0.0),
        |position, row| row.iter_mut().for_each(|x| *x *= 1e-30 * position as f32),
        |position, row| row.iter_mut().for_each(|x| *x *= if position % 64 == 5 { 1e3 } else { 1e-3 }),
    ];
    for (index, fill) in fills.iter().enumerate() {
        for turned in [false, true] {
            for (head_dim, start, tokens) in [(64, 0, 150), (256, 300, 40), (64, 400, 1)] {
                let case = Case { cache_type: KvType::Q16, turned, ..plain(head_dim, start, tokens) };
                let pool = Pool::new(2);
                let cache = case.cache(&pool, |k, v| {
                    k.chunks_mut(head_dim).enumerate().for_each(|(position, row)| fill(position, row));
                    v.chunks_mut(head_dim).enumerate().for_each(|(position, row)| fill(position, row));
                });
                let mut q = case.queries();
                // Along the keys, of a length that leaves scores near 10.
                let (mut key, scale) = (vec![0.0; head_dim], 10.0 * (head_dim as f32).sqrt());
                for (row, query) in q.chunks_mut(head_dim).enumerate().filter(|(row, _)| row % 2 == 0) {
                    cache.key(0, row % case.end(), &mut key);
                    let square: f32 = key.iter().map(|x| x * x).sum();
                    if square > 0.0 {
                        query.iter_mut().zip(&key).for_each(|(q, k)| *q = k * scale / square);
                    }
                }
                // A query of nothing scores 0 everywhere, and sees no more keys for it.
                q.chunks_mut(head_dim).skip(1).step_by(10).for_each(|query| query.fill(0.0));
                let expected = case.twin(&q, &cache);
                for isa in Isa::ALL_AVAILABLE() {
                    let found = case.attend(isa, &pool, &q, &cache);
                    let relative = relative_error(&found, &expected);
                    assert!(relative < 1e-3, "{isa}, fill {index}: relative {relative} in {case:?}");
                }
            }
        }
    }
}
