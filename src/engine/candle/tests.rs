//! The engine's operations against their definitions in plain loops.

use candle_core::{Device, Tensor};

use super::attention::{attention_in_blocks, rotate};
use super::weights::Linear;
use super::{CandleEngine, Heads, Rotation, WeightFormat, Workspace};
use crate::checkpoint::{TensorType, TensorView};
use crate::engine::{Activation, Engine, EngineError, KeyState, KvType, LayerShape, ModelShape};
use crate::rope::{self, Frequencies, Pairing, Table};

/// Sums of a few dozen f32 products in another order.
const TOLERANCE: f32 = 1e-5;

fn shape(head_dim: usize, rotary_dim: usize, pairing: Pairing) -> ModelShape {
    ModelShape {
        hidden_size: 8,
        intermediate_size: 8,
        vocab_size: 8,
        layers: vec![LayerShape::FULL],
        n_heads: 6,
        n_kv_heads: 2,
        head_dim,
        rotary_dim,
        pairing,
        rms_norm_eps: 1e-5,
        norm_offset: 0.0,
        embedding_scale: 1.0,
        attention_scale: 1.0 / (head_dim as f32).sqrt(),
        activation: Activation::Silu,
    }
}

/// Numbers between -1 and 1 that look random and never change.
fn noise(seed: u64, count: usize) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..count).map(|_| next()).collect()
}

fn close(found: &[f32], expected: &[f32]) {
    assert_eq!(found.len(), expected.len());
    let worst = found.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(worst <= TOLERANCE, "{worst}");
}

#[test]
fn rotation_equals_the_scalar_one_for_both_pairings_and_partial_heads() {
    for pairing in [Pairing::Adjacent, Pairing::HalfSplit] {
        for (head_dim, rotary_dim) in [(8, 8), (8, 6), (16, 2)] {
            let inv_freq = (0..rotary_dim / 2).map(|i| 0.7f64.powi(i as i32)).collect();
            let frequencies = Frequencies { inv_freq, attention_factor: 1.25 };
            let table = Table::new(&frequencies, 1000..1005);
            let (heads, tokens) = (3, 5);
            let values = noise(7, heads * tokens * head_dim);
            let x = Tensor::from_slice(&values, (heads, tokens, head_dim), &Device::Cpu).unwrap();
            let rows = (table.positions().len(), table.pairs());
            let rotation = Rotation {
                cos: Tensor::from_slice(table.cos(), rows, &Device::Cpu).unwrap(),
                sin: Tensor::from_slice(table.sin(), rows, &Device::Cpu).unwrap(),
            };
            let found = rotate(&x, &rotation, &shape(head_dim, rotary_dim, pairing)).unwrap();
            let mut expected = values;
            for (index, head) in expected.chunks_mut(head_dim).enumerate() {
                rope::rotate(head, head_dim, &table, index % tokens, pairing).unwrap();
            }
            close(&found.flatten_all().unwrap().to_vec1::<f32>().unwrap(), &expected);
        }
    }
}

/// Queries and keys turn; values reach the cache as they are. Unrotated keys reach it as they are, too.
#[test]
fn values_are_never_rotated() {
    let shape = shape(8, 8, Pairing::HalfSplit);
    let bytes = vec![0; 8 * 8 * 4];
    let view = TensorView { name: "embedding", dtype: TensorType::F32, shape: vec![8, 8], bytes: &bytes };
    let device = Device::Cpu;
    let engine = CandleEngine {
        embedding: Linear::load_plain(&view, (8, 8), WeightFormat::Unpacked, &device).unwrap(),
        norm: Tensor::ones(8, candle_core::DType::F32, &device).unwrap(),
        layers: Vec::new(),
        head: None,
        format: WeightFormat::Unpacked,
        shape,
        device,
    };
    let frequencies = Frequencies { inv_freq: vec![1.0, 0.5, 0.25, 0.1], attention_factor: 1.0 };
    let rotation = engine.rotation(&Table::new(&frequencies, 3..7)).unwrap();
    let tensor =
        |seed, heads| Tensor::from_vec(noise(seed, heads * 4 * 8), (heads, 4, 8), &Device::Cpu).unwrap();
    let flat = |x: &Tensor| x.flatten_all().unwrap().to_vec1::<f32>().unwrap();
    for keys in [KeyState::Rotated, KeyState::Unrotated] {
        let (q, k, v) = (tensor(1, 6), tensor(2, 2), tensor(3, 2));
        let mut heads = Heads { q: q.clone(), k: k.clone(), v: v.clone() };
        let mut cache = engine.new_cache(7, KvType::F32).unwrap();
        engine.rotate_append(0, &mut heads, Some(&rotation), &mut cache, 3, keys).unwrap();
        let (cached_k, cached_v) = &cache.layers[0];
        assert_eq!(flat(&cached_v.narrow(1, 3, 4).unwrap()), flat(&v));
        assert_eq!(flat(&cached_k.narrow(1, 3, 4).unwrap()) == flat(&k), keys == KeyState::Unrotated);
        assert_ne!(flat(&heads.q), flat(&q));
        let full = engine.rotate_append(0, &mut heads, Some(&rotation), &mut cache, 4, keys);
        assert!(matches!(full, Err(EngineError::CacheFull { capacity: 7, wanted: 8 })));
    }
}

/// softmax(q k / sqrt(d)) v over the visible keys, one query at a time.
/// q: `[6, tokens, d]`; k, v: `[2, start + tokens, d]`.
fn reference(
    q: &[f32],
    k: &[f32],
    v: &[f32],
    sizes: (usize, usize, usize),
    window: Option<usize>,
) -> Vec<f32> {
    let (tokens, start, d) = sizes;
    let keys = start + tokens;
    let mut out = vec![0.0; tokens * 6 * d];
    for token in 0..tokens {
        for head in 0..6 {
            let query = &q[(head * tokens + token) * d..][..d];
            let position = start + token;
            let oldest = window.map_or(0, |window| (position + 1).saturating_sub(window));
            let row = |list: &[f32], key: usize| list[((head / 3) * keys + key) * d..][..d].to_vec();
            let score = |key: usize| {
                let product: f32 = query.iter().zip(row(k, key)).map(|(a, b)| a * b).sum();
                (product / (d as f32).sqrt()).exp()
            };
            let weights: Vec<f32> = (oldest..=position).map(score).collect();
            let total: f32 = weights.iter().sum();
            for (weight, key) in weights.iter().zip(oldest..) {
                for (lane, value) in row(v, key).iter().enumerate() {
                    out[(token * 6 + head) * d + lane] += weight / total * value;
                }
            }
        }
    }
    out
}

#[test]
fn attention_equals_its_definition_for_every_block_start_and_window() {
    let d = 4;
    for (tokens, start) in [(1, 0), (1, 9), (7, 0), (7, 5)] {
        let keys = start + tokens;
        let (q, k, v) = (noise(1, 6 * tokens * d), noise(2, 2 * keys * d), noise(3, 2 * keys * d));
        let tensor =
            |values: &[f32], heads, rows| Tensor::from_slice(values, (heads, rows, d), &Device::Cpu).unwrap();
        for window in [None, Some(1), Some(3), Some(100)] {
            let expected = reference(&q, &k, &v, (tokens, start, d), window);
            for rows in [1, 2, 3, tokens] {
                let [q, k, v] = [tensor(&q, 6, tokens), tensor(&k, 2, keys), tensor(&v, 2, keys)];
                let scaled = (&q / f64::from(d as u32).sqrt()).unwrap();
                let found = attention_in_blocks(&scaled, &k, &v, start, window, rows.min(tokens)).unwrap();
                close(&found.flatten_all().unwrap().to_vec1::<f32>().unwrap(), &expected);
            }
        }
    }
}

/// D077: temporary memory grows with the keys, not with their square.
#[test]
fn d077_workspace_does_not_grow_with_the_square_of_the_context() {
    let bytes = |context| {
        let workspace =
            Workspace { format: WeightFormat::Unpacked, kv_type: KvType::F32, chunk: 512, context };
        workspace.bytes(&shape(64, 64, Pairing::HalfSplit))
    };
    assert_eq!(bytes(8192), bytes(65536));
    assert!(bytes(1 << 20) < 16 * bytes(8192));
}
