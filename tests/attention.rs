//! Attention statistics: both engines, every architecture row, against each other, their definition and transformers.
//!
//! Golden values: `fixtures/make_attention_golden.py` (f32, eager attention weights, summed in f64).

mod common;

use std::sync::atomic::{AtomicBool, Ordering};

use common::{Setup, fixture, open};
use ropex::engine::KvType;
use ropex::engine::cpu::isa::Isa;
use ropex::eval::attention::{
    Attention, AttentionError, AttentionRequest, Comparison, Statistic, Sums, attention,
};
use ropex::model::cancel::Cancel;
use ropex::model::load::{EngineName, LoadOptions, load};
use ropex::model::{DecoderOptions, DynamicPolicy, ModelConfig, ModelError};
use ropex::named::Named;
use serde_json::{Value, json};

/// Largest difference of a share, an entropy in nats, or a distance relative to the text: both compute scores in f32.
const TOLERANCE: f64 = 1e-5;
/// The same where weights or caches of 16 bits meet values rounded to 16 bits; `engines.rs` bounds what that does to logits.
const HALF_TOLERANCE: f64 = 1e-3;
const MODELS: [&str; 12] = [
    "llama",
    "llama.gguf",
    "llama-tied",
    "mistral",
    "qwen2",
    "qwen2.gguf",
    "qwen3",
    "qwen3-bf16",
    "qwen3-f16",
    "phi3",
    "smollm3",
    "gemma3",
];
const LENGTH: usize = 150;
const REQUEST: AttentionRequest = AttentionRequest { sink_tokens: 4, last_queries: None };

fn tokens() -> Vec<u32> {
    (0..LENGTH as u32).map(|i| (i * 7919 + 13) % 300).collect()
}

fn measure(setup: &Setup, tokens: &[u32], request: &AttentionRequest) -> Attention {
    attention(&*setup.load(tokens.len()), tokens, request, &mut |_, _| ()).unwrap()
}

fn on_cpu(setup: &Setup) -> Setup {
    Setup { engine: EngineName::Cpu, ..setup.clone() }
}

/// Differences of distances and of effective tokens count relative to the length of the text.
fn unit(statistic: Statistic, length: usize) -> f64 {
    match statistic {
        Statistic::EffectiveTokens | Statistic::Distance | Statistic::DistanceBeyondSink => length as f64,
        _ => 1.0,
    }
}

fn difference(a: &Sums, b: &Sums) -> f64 {
    let means = Statistic::ALL.iter().map(|statistic| match (a.mean(*statistic), b.mean(*statistic)) {
        (Some(a), Some(b)) => (a - b).abs() / unit(*statistic, LENGTH),
        (a, b) => panic!("{statistic:?}: {a:?} {b:?}"),
    });
    assert_eq!(a.mass().len(), b.mass().len());
    let masses = a.mass().into_iter().zip(b.mass()).map(|(a, b)| (a - b).abs());
    means.chain(masses).fold(0.0, |worst, x| if x <= worst { worst } else { x })
}

fn worst_difference(a: &Attention, b: &Attention) -> f64 {
    let heads = (0..a.n_layers).flat_map(|layer| (0..a.n_heads).map(move |head| (layer, head)));
    heads.map(|(layer, head)| difference(a.head(layer, head), b.head(layer, head))).fold(0.0, f64::max)
}

#[test]
fn the_engines_agree_on_every_architecture_instruction_set_and_chunk() {
    let tokens = tokens();
    let mut worst = 0.0f64;
    for name in MODELS {
        let setup = Setup::new(name);
        let oracle = measure(&setup, &tokens, &REQUEST);
        for isa in Isa::ALL_AVAILABLE() {
            for chunk in [7, 64, 512] {
                let cpu = Setup { isa: Some(isa), ..on_cpu(&setup).chunk(chunk) };
                let found = worst_difference(&oracle, &measure(&cpu, &tokens, &REQUEST));
                let allowed = if name.contains("16") { HALF_TOLERANCE } else { TOLERANCE };
                assert!(found <= allowed, "{name}, {isa}, chunk {chunk}: {found}");
                worst = worst.max(found);
            }
        }
    }
    println!("largest difference between the engines {worst:.1e}");
}

/// Keys that are cached before rotation, and caches that round.
#[test]
fn unrotated_and_narrow_caches_are_looked_at_as_they_are() {
    let tokens = tokens();
    let dynamic = json!({"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0});
    let current = Setup::new("llama").rope(&dynamic).dynamic(DynamicPolicy::Current).chunk(7);
    let planned = Setup::new("llama").rope(&dynamic);
    let half = Setup { kv_type: KvType::F16, ..Setup::new("qwen3") };
    for (setup, allowed) in [(current.clone(), TOLERANCE), (half, HALF_TOLERANCE)] {
        let found = worst_difference(
            &measure(&setup, &tokens, &REQUEST),
            &measure(&on_cpu(&setup), &tokens, &REQUEST),
        );
        assert!(found <= allowed, "{}: {found}", setup.name);
    }
    // One call: the policy `current` sees the planned length from the start.
    let same = worst_difference(&measure(&current, &tokens, &REQUEST), &measure(&planned, &tokens, &REQUEST));
    assert!(same <= TOLERANCE, "{same}");
}

#[test]
fn every_share_is_accounted_for_and_bounded() {
    let tokens = tokens();
    for (name, engine) in
        [("llama", EngineName::Candle), ("mistral", EngineName::Cpu), ("qwen3", EngineName::Cpu)]
    {
        let found = measure(&Setup { engine, ..Setup::new(name) }, &tokens, &REQUEST);
        assert_eq!((found.tokens, found.queries()), (LENGTH, LENGTH));
        for (layer, head) in (0..found.n_layers).flat_map(|l| (0..found.n_heads).map(move |h| (l, h))) {
            let sums = found.head(layer, head);
            let mean = |statistic| sums.mean(statistic).unwrap();
            assert!((sums.mass().iter().sum::<f64>() - 1.0).abs() < 1e-5, "{name}");
            assert!(mean(Statistic::First) <= mean(Statistic::Sink) + 1e-9);
            assert!((0.0..=1.0).contains(&mean(Statistic::NormalisedEntropy)));
            assert!(mean(Statistic::Entropy) <= (LENGTH as f64).ln());
            assert!(mean(Statistic::Entropy) <= mean(Statistic::EffectiveTokens).ln() + 1e-9, "Jensen");
        }
        let positions: u64 = found.by_position.filled().map(|(_, sums)| sums.queries).sum();
        assert_eq!(positions, (LENGTH * found.n_layers * found.n_heads) as u64);
    }
}

/// A window of 16: nothing lies further away, and the first token is out of sight of most queries.
#[test]
fn a_window_hides_what_is_further() {
    let found = measure(&on_cpu(&Setup::new("mistral")), &tokens(), &REQUEST);
    let mass = found.all().mass();
    assert!(mass[4] > 0.0 && mass[5..].iter().all(|mass| *mass == 0.0), "{mass:?}");
    for (bucket, sums) in found.by_position.filled().filter(|(bucket, _)| *bucket >= 6) {
        assert_eq!(sums.mean(Statistic::Sink), Some(0.0), "{bucket}");
    }
}

#[test]
fn results_do_not_depend_on_threads_and_the_last_queries_are_a_part_of_all() {
    let tokens = tokens();
    let setup = on_cpu(&Setup::new("llama"));
    let one = measure(&Setup { threads: 1, ..setup.clone() }, &tokens, &REQUEST);
    let three = measure(&Setup { threads: 3, ..setup.clone() }, &tokens, &REQUEST);
    assert!(one == three);
    for engine in [EngineName::Cpu, EngineName::Candle] {
        let setup = Setup { engine, ..setup.clone() }.chunk(64);
        let last = |last_queries| measure(&setup, &tokens, &AttentionRequest { last_queries, ..REQUEST });
        let (all, last) = (last(None), last(Some(LENGTH - 128)));
        assert_eq!((last.first_query, last.queries()), (128, LENGTH - 128));
        // Positions from 128 on have a bucket of their own.
        let of = |found: &Attention| found.by_position.filled().last().map(|(b, sums)| (b, sums.clone()));
        assert!(of(&all) == of(&last), "{}", engine.name());
        assert_eq!(last.by_position.filled().count(), 1);
    }
}

#[test]
fn requests_that_no_text_fulfils_are_refused() {
    let model = Setup::new("llama").load(8);
    let ask = |tokens: &[u32], last_queries| {
        attention(&*model, tokens, &AttentionRequest { last_queries, ..REQUEST }, &mut |_, _| ())
    };
    assert!(matches!(ask(&[], None), Err(AttentionError::NoText)));
    for wanted in [0, 9] {
        let error = ask(&[1; 8], Some(wanted)).unwrap_err();
        assert!(matches!(error, AttentionError::Queries { tokens: 8, .. }), "{error}");
    }
    assert_eq!(ask(&[1; 8], Some(8)).unwrap().queries(), 8);
}

/// A run that is cancelled keeps whole chunks; one that saw nothing has no result.
#[test]
fn what_was_seen_before_a_cancelled_run_ended_counts() {
    static STOP: AtomicBool = AtomicBool::new(false);
    let checkpoint = open("llama");
    let setup = Setup::new("llama");
    let options = LoadOptions {
        decoder: DecoderOptions { prefill_chunk: 64, ..DecoderOptions::default() },
        cancel: Some(Cancel::new(&STOP)),
        ..LoadOptions::default()
    };
    let config = ModelConfig::read(&checkpoint).unwrap();
    let model = load(&checkpoint, config, setup.settings(LENGTH), &options).unwrap().model;
    let tokens = tokens();
    let found = attention(&*model, &tokens, &REQUEST, &mut |done, _| {
        // Three even chunks.
        assert_eq!(done, LENGTH / 3);
        STOP.store(true, Ordering::Relaxed);
    });
    let found = found.unwrap();
    assert!(found.interrupted);
    assert_eq!(
        (found.tokens, found.queries(), found.head(0, 0).queries),
        (LENGTH / 3, LENGTH / 3, LENGTH as u64 / 3)
    );
    let none = attention(&*model, &tokens, &REQUEST, &mut |_, _| ()).unwrap_err();
    assert!(matches!(none, AttentionError::Model(ModelError::Interrupted { index: 0 })), "{none}");
}

#[test]
fn differences_are_those_of_the_means() {
    let tokens = tokens();
    let setup = on_cpu(&Setup::new("llama"));
    let plain = measure(&setup, &tokens, &REQUEST);
    let linear = json!({"rope_type": "linear", "factor": 4.0, "rope_theta": 5000.0});
    let stretched = measure(&setup.clone().rope(&linear), &tokens, &REQUEST);
    let comparison = Comparison::new(&stretched, &plain).unwrap();
    let largest = comparison.largest(Statistic::Distance).unwrap();
    let mean = |found: &Attention| found.head(largest.layer, largest.head).mean(Statistic::Distance).unwrap();
    assert!((largest.difference - (mean(&stretched) - mean(&plain))).abs() < 1e-12);
    assert!(comparison.mean(Statistic::Distance).unwrap().abs() <= largest.difference.abs());
    assert!(comparison.mean_moved() > 0.01 && comparison.moved(0, 0) < 1.0);
    assert_eq!(Comparison::new(&plain, &plain).unwrap().mean_moved(), 0.0);
    let fewer = measure(&setup, &tokens[..100], &REQUEST);
    assert!(Comparison::new(&plain, &fewer).is_none());
}

#[test]
fn statistics_equal_those_of_transformers_attention_weights() {
    let text = std::fs::read_to_string(fixture("attention_golden.json")).unwrap();
    let golden: Value = serde_json::from_str(&text).unwrap();
    let list = |value: &Value| value.as_array().unwrap().clone();
    let tokens: Vec<u32> = list(&golden["input_ids"]).iter().map(|id| id.as_u64().unwrap() as u32).collect();
    let mut worst = (0.0f64, String::new());
    for case in list(&golden["cases"]) {
        let folder = case["folder"].as_str().unwrap();
        for engine in [EngineName::Candle, EngineName::Cpu] {
            let setup = Setup { engine, ..Setup::new(folder).rope(&case["rope_parameters"]) };
            let found = measure(&setup, &tokens, &REQUEST);
            for (layer, heads) in list(&case["layers"]).iter().enumerate() {
                for (head, expected) in list(heads).iter().enumerate() {
                    let sums = found.head(layer, head);
                    let means = Statistic::ALL.iter().map(|statistic| {
                        let expected = expected[statistic.name()].as_f64().unwrap();
                        let found = sums.mean(*statistic).unwrap();
                        (found - expected).abs() / unit(*statistic, tokens.len())
                    });
                    let mass = list(&expected["mass"]);
                    assert_eq!(mass.len(), sums.mass().len());
                    let masses =
                        sums.mass().into_iter().zip(mass).map(|(a, b)| (a - b.as_f64().unwrap()).abs());
                    for difference in means.chain(masses) {
                        let what = format!("{folder} {}, layer {layer}, head {head}", engine.name());
                        assert!(difference <= TOLERANCE, "{what}: {difference}");
                        if difference > worst.0 {
                            worst = (difference, what);
                        }
                    }
                }
            }
        }
    }
    println!("largest difference to transformers {:.1e} ({})", worst.0, worst.1);
}
