//! Methods whose frequencies change with the length: the three policies against one-shot forward passes.

mod common;

use common::{Setup, kl_divergence, one_shot};
use ropex::model::{DynamicPolicy, Want};
use ropex::named::Named;
use serde_json::{Value, json};

const VOCAB: usize = 300;
const LENGTH: usize = 96;
const PROMPT: usize = 40;
/// Two f32 computations of the same distribution in another order.
const SAME_NATS: f64 = 1e-6;

fn methods() -> Vec<(&'static str, Value)> {
    let factors = |slope: f64| (0..8).map(|pair| 1.0 + slope * pair as f64).collect::<Vec<_>>();
    vec![
        ("dynamic-ntk", json!({"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0})),
        (
            "longrope",
            json!({
                "rope_type": "longrope", "factor": 4.0, "rope_theta": 10000.0,
                "original_max_position_embeddings": 64,
                "short_factor": factors(0.02), "long_factor": factors(0.5),
            }),
        ),
    ]
}

fn tokens() -> Vec<u32> {
    (0..LENGTH as u32).map(|i| (i * 7919 + 13) % VOCAB as u32).collect()
}

fn setup(rope: &Value, policy: DynamicPolicy) -> Setup {
    Setup::new("llama").rope(rope).dynamic(policy)
}

/// Logits after every token from `PROMPT - 1` on, fed one by one behind the prompt.
fn step_by_step(rope: &Value, policy: DynamicPolicy) -> Vec<Vec<f32>> {
    let tokens = tokens();
    let model = setup(rope, policy).load(LENGTH);
    let mut session = model.session(LENGTH).unwrap();
    let mut extend = |tokens: &[u32]| session.extend(tokens, Want::LastLogits, &mut |_| ()).unwrap();
    let mut steps = vec![extend(&tokens[..PROMPT])];
    steps.extend(tokens[PROMPT..].chunks(1).map(extend));
    steps
}

/// Logits after the last of the first `length` tokens, frequencies of `frequency_length`, one pass without any cache.
fn fresh(rope: &Value, length: usize, frequency_length: usize) -> Vec<f32> {
    let tokens = tokens();
    let model = setup(rope, DynamicPolicy::Planned).load(frequency_length);
    let mut session = model.session(frequency_length).unwrap();
    session.extend(&tokens[..length], Want::LastLogits, &mut |_| ()).unwrap()
}

/// Largest divergence over all steps from forward passes with the frequencies of (the length reached, the planned length).
fn divergences(rope: &Value, policy: DynamicPolicy) -> (f64, f64) {
    let steps = step_by_step(rope, policy);
    let mut largest = (0.0f64, 0.0f64);
    for (step, logits) in steps.iter().enumerate() {
        let length = PROMPT + step;
        let reached = kl_divergence(&fresh(rope, length, length), logits);
        let planned = kl_divergence(&fresh(rope, length, LENGTH), logits);
        largest = (largest.0.max(reached), largest.1.max(planned));
    }
    largest
}

#[test]
fn policies_against_one_shot_forwards() {
    println!(
        "| method | policy | from the forward at the length reached | from the forward at the planned length |"
    );
    println!("|---|---|---|---|");
    for (name, rope) in methods() {
        for &policy in DynamicPolicy::ALL {
            let (reached, planned) = divergences(&rope, policy);
            println!("| {name} | {} | {reached:.1e} | {planned:.1e} |", policy.name());
            match policy {
                DynamicPolicy::Recompute => assert!(reached <= SAME_NATS, "{name}: {reached}"),
                DynamicPolicy::Planned => assert!(planned <= SAME_NATS, "{name}: {planned}"),
                // Consistent keys, but earlier layers saw earlier frequencies: close to the first, equal to neither.
                DynamicPolicy::Current => assert!(reached > SAME_NATS && reached < planned, "{name}"),
            }
        }
    }
}

/// D052: what a session computes does not depend on what another one computed before.
#[test]
fn d052_no_state_is_carried_from_one_text_to_the_next() {
    let (_, rope) = &methods()[0];
    for &policy in DynamicPolicy::ALL {
        let model = setup(rope, policy).load(LENGTH);
        let short = |_| {
            let mut session = model.session(LENGTH).unwrap();
            session.extend(&tokens()[..30], Want::AllLogits, &mut |_| ()).unwrap()
        };
        let before = short(());
        one_shot(&*model, &tokens());
        assert_eq!(before, short(()), "{}", policy.name());
    }
}

/// D054: generation that crosses the original length equals a fresh pass with the long factors at every step.
#[test]
fn d054_longrope_survives_the_switch() {
    let (_, rope) = &methods()[1];
    let steps = step_by_step(rope, DynamicPolicy::Recompute);
    for length in [64, 65, 80] {
        let expected = fresh(rope, length, length);
        let divergence = kl_divergence(&expected, &steps[length - PROMPT]);
        assert!(divergence <= SAME_NATS, "{length}: {divergence}");
    }
    let with_short_table = fresh(&short_everywhere(rope), 80, 80);
    assert!(kl_divergence(&fresh(rope, 80, 80), &with_short_table) > 1e-3, "the two tables differ");
}

fn short_everywhere(rope: &Value) -> Value {
    let mut short = rope.clone();
    short["long_factor"] = short["short_factor"].clone();
    short
}

/// D056: below the original length longrope is its short table, and dynamic-ntk is plain rotation, bit for bit (D034).
#[test]
fn d034_d056_short_texts_use_the_short_table() {
    let plain = json!({"rope_type": "default", "rope_theta": 10000.0});
    let tokens = &tokens()[..60];
    let logits = |rope: &Value| one_shot(&*Setup::new("llama").rope(rope).load(60), tokens);
    assert_eq!(logits(&methods()[0].1), logits(&plain));
    assert_eq!(logits(&methods()[1].1), logits(&short_everywhere(&methods()[1].1)));
}
