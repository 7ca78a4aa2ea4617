use super::*;
use crate::named::Named;
use crate::rope::Pairing;

fn rows(shape: &CacheShape, tokens: usize, from: f32) -> Vec<f32> {
    (0..shape.n_kv_heads * tokens * shape.head_dim).map(|i| from + (i % 97) as f32 / 16.0).collect()
}

#[test]
fn what_is_appended_comes_back_in_the_order_of_the_model() {
    let pool = Pool::new(2);
    for &cache_type in KvType::ALL {
        for (head_dim, rotary_dim, pairing) in [
            (64, 64, Pairing::HalfSplit),
            (80, 32, Pairing::Adjacent),
            (7, 6, Pairing::HalfSplit),
            (33, 10, Pairing::HalfSplit),
        ] {
            let shape = CacheShape { n_kv_heads: 2, head_dim, rotary_dim, pairing };
            let mut cache = LayerCache::new(shape, 150, cache_type);
            let (mut start, mut out) = (0, vec![0.0; head_dim]);
            for tokens in [1, 62, 2, 85] {
                let (k, v) = (rows(&shape, tokens, -1.5), rows(&shape, tokens, -3.0));
                let (k, v) =
                    (HeadRows::by_head(&k, tokens, head_dim), HeadRows::by_head(&v, tokens, head_dim));
                cache.append(&pool, start, k, v).unwrap();
                for (head, token) in (0..2).flat_map(|head| (0..tokens).map(move |token| (head, token))) {
                    // Half a step: a 127th of the largest value of a block, or a 46,300th of the norm of a key (at most
                    // 6 times the root of 80); others hold these numbers.
                    let allowed = match cache_type {
                        KvType::Q8_0 => 6.0 / 254.0 * 1.01,
                        KvType::Q16 => 6.0 * 9.0 / 92_600.0,
                        _ => 0.0,
                    };
                    let close = |a: &[f32], b: &[f32]| a.iter().zip(b).all(|(a, b)| (a - b).abs() <= allowed);
                    cache.key(head, start + token, &mut out);
                    assert!(close(&out, k.row(head, token, head_dim)), "{cache_type:?} {shape:?}");
                    cache.value(head, start + token, &mut out);
                    assert!(close(&out, v.row(head, token, head_dim)), "{cache_type:?} {shape:?}");
                }
                start += tokens;
            }
        }
    }
}

#[test]
fn a_full_cache_refuses_and_stays_as_it_is() {
    let pool = Pool::new(1);
    let shape = CacheShape { n_kv_heads: 1, head_dim: 4, rotary_dim: 4, pairing: Pairing::Adjacent };
    let mut cache = LayerCache::new(shape, 3, KvType::F32);
    let values = [1.0; 16];
    let rows = |tokens| HeadRows::by_head(&values, tokens, 4);
    cache.append(&pool, 0, rows(3), rows(3)).unwrap();
    for (start, tokens) in [(3, 1), (0, 4), (usize::MAX, 1)] {
        let error = cache.append(&pool, start, rows(tokens), rows(tokens)).unwrap_err();
        assert!(matches!(error, EngineError::CacheFull { capacity: 3, .. }), "{error}");
    }
    cache.append(&pool, 3, rows(0), rows(0)).unwrap();
}

#[test]
fn sizes_are_those_of_whole_tiles() {
    let shape = CacheShape { n_kv_heads: 3, head_dim: 64, rotary_dim: 64, pairing: Pairing::HalfSplit };
    assert_eq!(LayerCache::size_bytes(&shape, 8192, KvType::F32), 3 * 8192 * 64 * 2 * 4);
    assert_eq!(LayerCache::size_bytes(&shape, 8191, KvType::BF16), 3 * 8192 * 64 * 2 * 2);
    assert_eq!(LayerCache::size_bytes(&shape, 8192, KvType::Q16), 3 * 8192 * 2 * (64 * 2 + 4));
    assert_eq!(LayerCache::size_bytes(&shape, 8192, KvType::Q8_0), 3 * 8192 * 64 * 2 * 36 / 32);
}

#[test]
fn not_finite_stays_not_finite() {
    let pool = Pool::new(1);
    let shape = CacheShape { n_kv_heads: 1, head_dim: 4, rotary_dim: 4, pairing: Pairing::Adjacent };
    for &cache_type in KvType::ALL {
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut cache = LayerCache::new(shape, 1, cache_type);
            let values = [1.0, bad, 2.0, 3.0];
            let rows = HeadRows::by_head(&values, 1, 4);
            cache.append(&pool, 0, rows, rows).unwrap();
            let mut out = [0.0; 4];
            cache.key(0, 0, &mut out);
            assert!(!out[1].is_finite(), "{cache_type:?}");
            cache.value(0, 0, &mut out);
            assert!(!out[1].is_finite(), "{cache_type:?}");
        }
    }
}
