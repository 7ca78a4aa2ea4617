//! Properties that every rotary embedding must have, for random parameters and positions.

use proptest::prelude::*;
use ropex::checkpoint::rope::{Factor, HeadLayout, Method, RopeOverrides, from_hf, in_force};
use ropex::rope::{
    Divisors, Frequencies, Llama3, LongRope, LongRopeSelect, Magnitude, Pairing, Ramp, RopeSpec, Scaling,
    Table, Yarn, base_frequencies, frequencies, ntk_by_parts, rotate, rotate_f64, turning_pairs,
};
use serde_json::json;

/// Lanes of a head in these tests; 4 of them pass through where a rotation is partial.
const HEAD_DIM: usize = 16;
/// Farthest position tested.
const FAR: usize = 1_000_000;
/// An `f64` angle of 2e6 radians is off by up to 2.4e-10; scores add 16 products of values up to 1.
const SCORE_TOLERANCE: f64 = 1e-8;
/// What the design promises at position 1,048,575.
const ANGLE_TOLERANCE: f64 = 1e-6;

fn pairing() -> impl Strategy<Value = Pairing> {
    prop_oneof![Just(Pairing::Adjacent), Just(Pairing::HalfSplit)]
}

fn vector() -> impl Strategy<Value = Vec<f64>> {
    prop::collection::vec(-1.0..1.0, HEAD_DIM)
}

fn yarn(factor: f64, magnitude: Magnitude) -> Yarn {
    Yarn { factor, ramp: Ramp::default(), magnitude }
}

/// Every scaling with `factor`, for `pairs` pairs; lists are all `list`.
fn scalings(factor: f64, pairs: usize, list: f64) -> Vec<Scaling> {
    let lists = |select| {
        Scaling::LongRope(LongRope {
            short_factor: vec![list; pairs],
            long_factor: vec![list; pairs],
            factor,
            attention_factor: None,
            select,
        })
    };
    vec![
        Scaling::None,
        Scaling::Linear { factor },
        Scaling::Ntk { factor },
        Scaling::NtkByParts { factor, ramp: Ramp::default() },
        Scaling::DynamicLinear,
        Scaling::DynamicNtk { factor },
        Scaling::Yarn(yarn(factor, Magnitude::Default)),
        Scaling::Yarn(yarn(factor, Magnitude::Ratio { mscale: 0.7, mscale_all_dim: 1.0 })),
        Scaling::DynamicYarn(yarn(factor, Magnitude::Default)),
        lists(LongRopeSelect::Auto),
        lists(LongRopeSelect::Short),
        lists(LongRopeSelect::Long),
        Scaling::Llama3(Llama3 { factor, low_freq_factor: 1.0, high_freq_factor: 4.0 }),
        Scaling::Proportional { factor, rotated_pairs: pairs },
        Scaling::Divisors(Divisors { divisors: vec![list; pairs], attention_factor: 1.0 }),
    ]
}

fn spec(theta: f64, rotary_dim: usize, scaling: Scaling) -> RopeSpec {
    RopeSpec {
        theta,
        head_dim: HEAD_DIM,
        rotary_dim,
        pairing: Pairing::HalfSplit,
        original_context: 2048,
        scaling,
    }
}

/// Any scaling at a random factor, and the frequencies at a random length.
fn any_frequencies() -> impl Strategy<Value = Frequencies> {
    let width = prop_oneof![Just(HEAD_DIM), Just(HEAD_DIM - 4)];
    (100.0..2e6f64, width, 1.0..64.0f64, 0usize..15, 1usize..200_000).prop_map(
        |(theta, rotary_dim, factor, which, length)| {
            let scaling = scalings(factor, rotary_dim / 2, factor).swap_remove(which);
            frequencies(&spec(theta, rotary_dim, scaling), length).unwrap()
        },
    )
}

fn rotated(x: &[f64], f: &Frequencies, position: usize, pairing: Pairing) -> Vec<f64> {
    let mut x = x.to_vec();
    rotate_f64(&mut x, HEAD_DIM, f, position, pairing).unwrap();
    x
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_score_depends_on_the_distance_only(
        f in any_frequencies(), q in vector(), k in vector(), pairing in pairing(),
        distance in 0usize..10_000, at in 0usize..FAR,
    ) {
        let near = dot(&rotated(&q, &f, distance, pairing), &rotated(&k, &f, 0, pairing));
        let far = dot(&rotated(&q, &f, at + distance, pairing), &rotated(&k, &f, at, pairing));
        prop_assert!((near - far).abs() <= SCORE_TOLERANCE * f.attention_factor.powi(2), "{near} {far}");
    }

    #[test]
    fn rotating_twice_adds_the_positions(
        f in any_frequencies(), x in vector(), pairing in pairing(), p in 0usize..FAR, q in 0usize..FAR,
    ) {
        let f = Frequencies { attention_factor: 1.0, ..f };
        let twice = rotated(&rotated(&x, &f, p, pairing), &f, q, pairing);
        let once = rotated(&x, &f, p + q, pairing);
        for (a, b) in twice.iter().zip(&once) {
            prop_assert!((a - b).abs() <= SCORE_TOLERANCE, "{a} {b}");
        }
    }

    #[test]
    fn lengths_are_kept_up_to_the_attention_factor(
        f in any_frequencies(), x in vector(), pairing in pairing(), p in 0usize..FAR,
    ) {
        let rotary_dim = 2 * f.inv_freq.len();
        let turned = rotated(&x, &f, p, pairing);
        let (before, after) = (&x[..rotary_dim], &turned[..rotary_dim]);
        let expected = dot(before, before) * f.attention_factor.powi(2);
        prop_assert!((dot(after, after) - expected).abs() <= 1e-12 * expected.max(1.0));
        prop_assert_eq!(&x[rotary_dim..], &turned[rotary_dim..]);
    }

    #[test]
    fn the_table_rotates_like_f64(
        f in any_frequencies(), x in vector(), pairing in pairing(), p in 0usize..FAR,
    ) {
        let mut narrow: Vec<f32> = x.iter().map(|v| *v as f32).collect();
        rotate(&mut narrow, HEAD_DIM, &Table::new(&f, p..p + 1), 0, pairing).unwrap();
        for (a, b) in narrow.iter().zip(rotated(&x, &f, p, pairing)) {
            prop_assert!((f64::from(*a) - b).abs() <= 1e-6 * f.attention_factor, "{a} {b}");
        }
    }

    #[test]
    fn a_factor_of_one_changes_no_bit(theta in 100.0..2e6f64, length in 1usize..2048) {
        let plain = base_frequencies(theta, HEAD_DIM);
        for scaling in scalings(1.0, HEAD_DIM / 2, 1.0) {
            let name = scaling.name();
            let found = frequencies(&spec(theta, HEAD_DIM, scaling), length).unwrap();
            prop_assert_eq!(&found.inv_freq, &plain, "{}", name);
            prop_assert_eq!(found.attention_factor, 1.0, "{}", name);
        }
    }

    #[test]
    fn d034_dynamic_methods_leave_short_texts_alone(theta in 100.0..2e6f64, factor in 1.0..64.0f64, length in 0usize..=2048) {
        let plain = base_frequencies(theta, HEAD_DIM);
        for scaling in [
            Scaling::DynamicLinear,
            Scaling::DynamicNtk { factor },
            Scaling::DynamicYarn(yarn(factor, Magnitude::Default)),
        ] {
            let found = frequencies(&spec(theta, HEAD_DIM, scaling), length).unwrap();
            prop_assert_eq!(&found.inv_freq, &plain);
            prop_assert_eq!(found.attention_factor, 1.0);
        }
    }

    #[test]
    fn yarn_lies_between_interpolated_and_plain(
        theta in 1000.0..2e6f64, dim in 2usize..64, original in 64usize..100_000, factor in 1.0..256.0f64,
        fast in 2.0..64.0f64, share in 0.01..0.99f64, truncate: bool,
    ) {
        let ramp = Ramp { beta_fast: fast, beta_slow: fast * share, truncate };
        let Ok(found) = ntk_by_parts(theta, 2 * dim, original, factor, &ramp) else { return Ok(()) };
        for (f, plain) in found.inv_freq.iter().zip(base_frequencies(theta, 2 * dim)) {
            prop_assert!(*f <= plain * (1.0 + 1e-15) && *f >= plain / factor * (1.0 - 1e-15));
        }
    }

    #[test]
    fn scaling_never_speeds_a_pair_up(f in any_frequencies()) {
        prop_assert!(f.inv_freq.iter().all(|v| (0.0..=1.0).contains(v)));
        prop_assert!(f.inv_freq.windows(2).all(|w| w[0] >= w[1]));
    }

    #[test]
    fn hostile_numbers_are_errors_and_never_panic(
        theta in prop::num::f64::ANY, factor in prop::num::f64::ANY, list in prop::num::f64::ANY,
        rotary_dim in any::<usize>(), head_dim in any::<usize>(), original in any::<usize>(), length in any::<usize>(),
    ) {
        for scaling in scalings(factor, 4, list) {
            for (rotary_dim, head_dim) in [(rotary_dim, head_dim), (8, 8)] {
                let wild = RopeSpec { head_dim, original_context: original, ..spec(theta, rotary_dim, scaling.clone()) };
                if let Ok(found) = frequencies(&wild, length) {
                    prop_assert!(found.inv_freq.iter().all(|f| f.is_finite()));
                }
            }
        }
    }
}

/// Values that a key of a hostile config may have.
fn json_value() -> impl Strategy<Value = serde_json::Value> {
    prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(|v| json!(v)),
        any::<i64>().prop_map(|v| json!(v)),
        any::<u64>().prop_map(|v| json!(v)),
        any::<f64>().prop_map(|v| json!(v)),
        (1u32..10_000).prop_map(|v| json!(v)),
        prop::collection::vec(any::<f64>(), 0..9).prop_map(|v| json!(v)),
        Just(json!({"rope_type": "default"})),
        "[a-z0-9]{0,8}".prop_map(|v| json!(v)),
    ]
}

/// A rope dictionary with a real type and some of the real keys.
fn dictionary() -> impl Strategy<Value = serde_json::Value> {
    let types = ["default", "linear", "dynamic", "yarn", "longrope", "su", "llama3", "proportional", "x"];
    let keys = [
        "factor",
        "rope_theta",
        "partial_rotary_factor",
        "original_max_position_embeddings",
        "attention_factor",
        "attn_factor",
        "beta_fast",
        "beta_slow",
        "mscale",
        "mscale_all_dim",
        "truncate",
        "short_factor",
        "long_factor",
        "low_freq_factor",
        "high_freq_factor",
        "finetuned",
        "type",
    ];
    let entry = (prop::sample::select(keys.to_vec()), json_value());
    (prop::sample::select(types.to_vec()), prop::collection::vec(entry, 0..6)).prop_map(
        |(rope_type, entries)| {
            let mut dictionary = json!({"rope_type": rope_type});
            for (key, value) in entries {
                dictionary[key] = value;
            }
            dictionary
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn hostile_configs_are_errors_and_never_panic(
        inner in dictionary(), given in dictionary(), context in json_value(), theta in json_value(),
        head_dim in prop_oneof![Just(16usize), any::<usize>()], length in any::<usize>(),
        original in prop::option::of(any::<usize>()), method in 0usize..10,
    ) {
        let layout = HeadLayout { head_dim, pairing: Pairing::HalfSplit };
        for context in [context, json!(4096)] {
            let config = json!({"max_position_embeddings": context, "rope_theta": theta, "rope_scaling": inner});
            let Ok(declared) = from_hf(config.as_object().unwrap(), layout) else { continue };
            let base = RopeOverrides { original_context: original, ..RopeOverrides::default() };
            let scaling = Some(Method::ALL[method]);
            for flags in [
                RopeOverrides { scaling, factor: Some(Factor::Auto), ..base.clone() },
                RopeOverrides { scaling, ..base.clone() },
                RopeOverrides { rope_parameters: Some(given.clone()), ..base.clone() },
                base,
            ] {
                if let Ok(settings) = in_force(&declared, &flags, length) {
                    prop_assert!(settings.parameters(length).is_ok());
                    let found = frequencies(&settings.spec, length).unwrap();
                    prop_assert!(found.inv_freq.iter().all(|f| f.is_finite()) && found.attention_factor.is_finite());
                }
            }
        }
    }
}

#[test]
fn d059_angles_at_a_million_tokens_equal_f64() {
    let last = 1_048_575;
    let mut worst = 0.0f64;
    for theta in [1e4, 5e5, 1e6] {
        for dim in [64, 128] {
            let f = Frequencies { inv_freq: base_frequencies(theta, dim), attention_factor: 1.0 };
            let table = Table::new(&f, last..last + 1);
            for ((c, s), inv_freq) in table.cos().iter().zip(table.sin()).zip(&f.inv_freq) {
                let (sin, cos) = (last as f64 * inv_freq).sin_cos();
                let (c, s) = (f64::from(*c), f64::from(*s));
                worst = worst.max((s * cos - c * sin).atan2(c * cos + s * sin).abs());
            }
        }
    }
    println!("largest angle error at position {last}: {worst:.2e} rad");
    assert!(worst <= ANGLE_TOLERANCE, "{worst:e}");
}

#[test]
fn pairs_that_turn_are_counted_for_real_models() {
    // SmolLM2 (theta 1e5, 8192), Llama 2 (1e4, 4096), Llama 3 (5e5, 8192): slow correction dimension rounded up.
    for (theta, dim, context, expected) in [(1e5, 64, 8192, 20), (1e4, 128, 4096, 46), (5e5, 128, 8192, 35)] {
        assert_eq!(turning_pairs(&base_frequencies(theta, dim), context), expected, "{theta}");
    }
}
