//! Every rope type of transformers, from config dictionary to frequencies.
//!
//! `fixtures/rope_golden.json` is made by `fixtures/make_rope_golden.py`.

use ropex::checkpoint::rope::{HeadLayout, RopeOverrides, from_hf, in_force};
use ropex::rope::{Pairing, frequencies};
use serde_json::Value;

/// transformers computes in float32, which is off by up to 4.9e-7 for these bases.
const TOLERANCE_F32: f64 = 1e-6;
/// The same functions widened to float64; stored with 15 digits.
const TOLERANCE_F64: f64 = 1e-13;

fn golden() -> Value {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/rope_golden.json");
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(|v| v.as_f64().unwrap()).collect()
}

/// Largest relative difference; a pair at rest must be at rest in both.
fn deviation(found: &[f64], expected: &[f64]) -> f64 {
    assert_eq!(found.len(), expected.len());
    let relative = |(a, b): (&f64, &f64)| if a == b { 0.0 } else { (a / b - 1.0).abs() };
    found.iter().zip(expected).map(relative).fold(0.0, f64::max)
}

#[test]
fn frequencies_equal_transformers_for_every_type_and_parameter() {
    let golden = golden();
    let cases = golden["cases"].as_array().unwrap();
    assert!(cases.len() >= 70, "{} cases", cases.len());
    let (mut worst_f32, mut worst_f64) = (0.0f64, 0.0f64);
    for case in cases {
        let name = case["name"].as_str().unwrap();
        let config = case["config"].as_object().unwrap();
        let head_dim = config["head_dim"].as_u64().unwrap() as usize;
        let length = case["length"].as_u64().unwrap() as usize;
        let declared = from_hf(config, HeadLayout { head_dim, pairing: Pairing::HalfSplit }).unwrap();
        let settings = in_force(&declared, &RopeOverrides::default(), length).expect(name);
        let found = frequencies(&settings.spec, length).unwrap();
        let narrow = deviation(&found.inv_freq, &numbers(&case["inv_freq_f32"]));
        let wide = deviation(&found.inv_freq, &numbers(&case["inv_freq"]));
        let attention = case["attention_factor"].as_f64().unwrap();
        assert!(narrow <= TOLERANCE_F32, "{name}: {narrow:e} from float32");
        assert!(wide <= TOLERANCE_F64, "{name}: {wide:e} from float64");
        assert!((found.attention_factor / attention - 1.0).abs() <= TOLERANCE_F64, "{name}: {attention}");
        (worst_f32, worst_f64) = (worst_f32.max(narrow), worst_f64.max(wide));
    }
    println!(
        "{} cases, largest deviation {worst_f32:.2e} from float32, {worst_f64:.2e} from float64",
        cases.len()
    );
}

#[test]
fn the_same_dictionary_as_a_flag_gives_the_same_frequencies() {
    let golden = golden();
    let mut compared = 0;
    for case in golden["cases"].as_array().unwrap() {
        let config = case["config"].as_object().unwrap();
        let Some(parameters) = config.get("rope_parameters") else { continue };
        let head_dim = config["head_dim"].as_u64().unwrap() as usize;
        let length = case["length"].as_u64().unwrap() as usize;
        let plain = serde_json::json!({
            "max_position_embeddings": config["max_position_embeddings"], "rope_theta": 77.0
        });
        let layout = HeadLayout { head_dim, pairing: Pairing::HalfSplit };
        let declared = from_hf(plain.as_object().unwrap(), layout).unwrap();
        let flags = RopeOverrides { rope_parameters: Some(parameters.clone()), ..RopeOverrides::default() };
        let settings = in_force(&declared, &flags, length).unwrap();
        let found = frequencies(&settings.spec, length).unwrap();
        let wide = deviation(&found.inv_freq, &numbers(&case["inv_freq"]));
        assert!(wide <= TOLERANCE_F64, "{}: {wide:e}", case["name"]);
        compared += 1;
    }
    assert!(compared > 40, "{compared}");
}
