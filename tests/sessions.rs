//! Sessions that share weights and prefixes, and the request to stop.

mod common;

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use common::{Setup, log_softmax, one_shot, open};
use ropex::model::cancel::Cancel;
use ropex::model::load::{EngineName, LoadOptions, load};
use ropex::model::with_rope::WithRope;
use ropex::model::{DynamicPolicy, LanguageModel, ModelConfig, ModelError, Want};
use serde_json::{Value, json};

const LENGTH: usize = 96;

fn tokens(seed: u32) -> Vec<u32> {
    (0..LENGTH as u32).map(|i| (i * 7919 + 13 + seed * 101) % 300).collect()
}

fn engines(name: &str) -> [Setup; 2] {
    [EngineName::Candle, EngineName::Cpu].map(|engine| Setup { engine, ..Setup::new(name) })
}

fn yarn() -> Value {
    json!({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32, "rope_theta": 10000.0})
}

fn dynamic_ntk() -> Value {
    json!({"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0})
}

/// A text that replaces the end of another gives what it gives from the start, bit for bit.
fn truncated_equals_fresh(setup: &Setup, keep: usize) {
    let model = setup.load(LENGTH);
    let (first, second) = (tokens(0), tokens(1));
    let mut session = model.session(LENGTH).unwrap();
    session.extend(&first[..keep], Want::Nothing, &mut |_| ()).unwrap();
    session.extend(&first[keep..], Want::Nothing, &mut |_| ()).unwrap();
    session.truncate(keep);
    assert_eq!(session.len(), keep);
    let shared = session.extend(&second[keep..], Want::LastLogits, &mut |_| ()).unwrap();
    let mut fresh = model.session(LENGTH).unwrap();
    fresh.extend(&first[..keep], Want::Nothing, &mut |_| ()).unwrap();
    let alone = fresh.extend(&second[keep..], Want::LastLogits, &mut |_| ()).unwrap();
    assert_eq!(shared, alone, "{} {:?} keep {keep}", setup.name, setup.engine);
}

#[test]
fn a_shared_prefix_gives_the_same_bits_as_a_fresh_one() {
    for name in ["llama", "mistral", "qwen3"] {
        for setup in engines(name) {
            for keep in [1, 16, 31, 80] {
                truncated_equals_fresh(&setup, keep);
                let dynamic = [DynamicPolicy::Planned, DynamicPolicy::Current, DynamicPolicy::Recompute];
                for policy in dynamic {
                    truncated_equals_fresh(&setup.clone().rope(&dynamic_ntk()).dynamic(policy), keep);
                }
            }
        }
    }
}

/// The last layer is computed for the rows that are wanted only: their values, and all that follows, stay what they are.
#[test]
fn rows_that_nobody_wants_change_nothing() {
    const TOLERANCE: f64 = 2e-5;
    let text = tokens(3);
    let (part, rest) = text.split_at(80);
    for name in ["llama", "mistral", "qwen3", "gemma3"] {
        for setup in engines(name) {
            let model = setup.clone().chunk(32).load(LENGTH);
            let extended = |want: Want<'_>| {
                let mut session = model.session(LENGTH).unwrap();
                let found = session.extend(part, want, &mut |_| ()).unwrap();
                (found, session.extend(rest, Want::AllLogits, &mut |_| ()).unwrap())
            };
            let (all, following) = extended(Want::AllLogits);
            let rows: Vec<&[f32]> = all.chunks(all.len() / part.len()).collect();
            let (last, after_last) = extended(Want::LastLogits);
            for (one, other) in last.iter().zip(rows[79]) {
                assert!(f64::from(one - other).abs() < TOLERANCE, "{name} {:?}", setup.engine);
            }
            // From the middle of the second chunk to the middle of the last one.
            let targets = &text[45..70];
            let (found, after_targets) = extended(Want::LogProbs { first_row: 44, targets });
            for (row, (found, target)) in (44..).zip(found.iter().zip(targets)) {
                let difference = f64::from(*found) - log_softmax(rows[row])[*target as usize];
                assert!(difference.abs() < TOLERANCE, "{name} {:?} {row}: {difference}", setup.engine);
            }
            let (_, after_nothing) = extended(Want::Nothing);
            for other in [after_last, after_targets, after_nothing] {
                assert_eq!(other, following, "{name} {:?}", setup.engine);
            }
        }
    }
}

#[test]
fn another_rope_on_loaded_weights_equals_a_model_loaded_with_it() {
    for rope in [yarn(), dynamic_ntk()] {
        for setup in engines("llama") {
            let replaced = setup.clone().rope(&rope);
            let plain = setup.load(LENGTH);
            let shared = WithRope::new(&*plain, replaced.settings(LENGTH));
            let loaded = replaced.load(LENGTH);
            let text = tokens(2);
            assert_eq!(one_shot(&shared, &text), one_shot(&*loaded, &text));
            assert_ne!(one_shot(&shared, &text), one_shot(&*plain, &text));
            assert_eq!(shared.rope(), loaded.rope());
        }
    }
}

#[test]
fn a_rope_that_turns_other_lanes_is_refused() {
    let model = Setup::new("llama").load(LENGTH);
    let mut other = Setup::new("llama").settings(LENGTH);
    other.spec.rotary_dim -= 2;
    let refused = model.session_with(&other, LENGTH).err().unwrap();
    assert!(matches!(refused, ModelError::Inconsistent(_)), "{refused}");
}

#[test]
fn a_cancelled_run_stops_between_chunks_with_the_index() {
    static FLAG: AtomicBool = AtomicBool::new(false);
    let checkpoint = open("llama");
    let config = ModelConfig::read(&checkpoint).unwrap();
    let mut options = LoadOptions { cancel: Some(Cancel::new(&FLAG)), ..LoadOptions::default() };
    options.decoder.prefill_chunk = 8;
    let rope = Setup::new("llama").settings(LENGTH);
    let model = load(&checkpoint, config, rope, &options).unwrap().model;
    let mut session = model.session(LENGTH).unwrap();
    let stopped = session.extend(&tokens(0), Want::Nothing, &mut |done| FLAG.store(done >= 16, Relaxed));
    assert!(matches!(stopped, Err(ModelError::Interrupted { index: 16 })), "{stopped:?}");
    assert_eq!(session.len(), 16);
}
