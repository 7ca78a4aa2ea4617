//! Logits far from the start of a text against transformers (`fixtures/make_long_golden.py`).

mod common;

use common::{Setup, fixture, max_difference};
use ropex::model::Want;
use ropex::model::load::EngineName;
use serde_json::{Value, json};

/// Largest logit difference: both sum in f32, here over 2001 positions.
const TOLERANCE: f32 = 1e-3;

/// The ids of the script.
fn token(index: u64) -> u32 {
    (4 + (index * index * 7 + index * 13) % 290) as u32
}

/// D050: the base that is declared is the base that is used; with 10000 the text would turn to mush past a thousand tokens.
#[test]
fn d050_theta_500000_at_position_2000() {
    let golden: Value = serde_json::from_slice(&std::fs::read(fixture("long_golden.json")).unwrap()).unwrap();
    let length = golden["length"].as_u64().unwrap();
    let tokens: Vec<u32> = (0..length).map(token).collect();
    let expected: Vec<f32> = serde_json::from_value(golden["logits"].clone()).unwrap();
    let rope = json!({ "rope_type": "default", "rope_theta": golden["theta"] });
    for (source, engine) in
        [("llama", EngineName::Cpu), ("llama.gguf", EngineName::Cpu), ("llama", EngineName::Candle)]
    {
        let setup = Setup { engine, ..Setup::new(source) }.rope(&rope);
        let model = setup.load(tokens.len());
        let mut session = model.session(tokens.len()).unwrap();
        let found = session.extend(&tokens, Want::LastLogits, &mut |_| ()).unwrap();
        let difference = max_difference(&found, &expected);
        assert!(difference < TOLERANCE, "{source}: {difference}");
    }
}
