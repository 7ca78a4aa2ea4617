//! The engine `cpu` against the oracle `candle`: whole models, on every instruction set of this machine.

mod common;

use common::{Setup, kl_divergence, max_difference, one_shot};
use ropex::engine::KvType;
use ropex::engine::cpu::isa::Isa;
use ropex::model::DynamicPolicy;
use ropex::model::load::EngineName;
use serde_json::json;

/// Models with f32 weights: both engines compute in f32 and sum in another order.
const EXACT: [&str; 11] = [
    "llama",
    "llama.gguf",
    "llama-tied",
    "mistral",
    "qwen2",
    "qwen2.gguf",
    "qwen3",
    "phi3",
    "smollm3.gguf",
    "gemma3",
    "gemma3.gguf",
];
const SAME_LOGITS: f32 = 1e-4;
/// Weights of 16 bits meet activations rounded to 16 bits: nats, on models whose attention is far sharper than a trained one's.
const HALF_WEIGHTS_NATS: f64 = 1e-4;
/// A bfloat16 cache rounds keys and values to 8 bits of mantissa, on the same models.
const BF16_CACHE_NATS: f64 = 5e-3;
/// A cache of 16-bit integers, attended to in them, rounds as finely as activations are rounded.
const Q16_CACHE_NATS: f64 = 5e-6;
/// An 8-bit cache with a scale for 32 lanes rounds coarser still.
const Q8_CACHE_NATS: f64 = 5e-2;
const VOCAB: usize = 300;
const LENGTH: usize = 150;

fn tokens() -> Vec<u32> {
    (0..LENGTH as u32).map(|i| (i * 7919 + 13) % VOCAB as u32).collect()
}

fn on_cpu(setup: &Setup, isa: Isa) -> Setup {
    Setup { engine: EngineName::Cpu, isa: Some(isa), ..setup.clone() }
}

fn logits(setup: &Setup) -> Vec<f32> {
    one_shot(&*setup.load(LENGTH), &tokens())
}

fn worst_kl(p: &[f32], q: &[f32]) -> f64 {
    let rows = p.chunks(VOCAB).zip(q.chunks(VOCAB));
    rows.map(|(p, q)| kl_divergence(p, q)).fold(0.0, f64::max)
}

#[test]
fn f32_models_agree_on_every_instruction_set_and_chunk() {
    let mut worst = 0.0f32;
    for name in EXACT {
        let setup = Setup::new(name);
        let oracle = logits(&setup);
        for isa in Isa::ALL_AVAILABLE() {
            for chunk in [1, 7, 64, 512] {
                let difference = max_difference(&oracle, &logits(&on_cpu(&setup, isa).chunk(chunk)));
                assert!(difference <= SAME_LOGITS, "{name}, {isa}, chunk {chunk}: {difference}");
                worst = worst.max(difference);
            }
        }
    }
    println!("largest logit difference {worst}");
}

#[test]
fn half_precision_models_agree() {
    let mut worst = 0.0f64;
    for name in ["qwen3-bf16", "qwen3-f16"] {
        let setup = Setup::new(name);
        let oracle = logits(&setup);
        for isa in Isa::ALL_AVAILABLE() {
            let kl = worst_kl(&oracle, &logits(&on_cpu(&setup, isa)));
            assert!(kl <= HALF_WEIGHTS_NATS, "{name}, {isa}: {kl}");
            worst = worst.max(kl);
        }
    }
    println!("largest divergence {worst:.1e}");
}

#[test]
fn narrow_caches_stay_close() {
    for kv_type in [KvType::F16, KvType::BF16, KvType::Q8_0] {
        let mut worst = 0.0f64;
        for name in ["llama", "qwen3"] {
            let oracle = logits(&Setup::new(name));
            let setup = Setup { kv_type, ..Setup::new(name) };
            for isa in Isa::ALL_AVAILABLE() {
                worst = worst.max(worst_kl(&oracle, &logits(&on_cpu(&setup, isa))));
            }
        }
        println!("{kv_type:?}: largest divergence from an f32 cache {worst:.1e}");
        let allowed = if kv_type == KvType::Q8_0 { Q8_CACHE_NATS } else { BF16_CACHE_NATS };
        assert!(worst <= allowed, "{kv_type:?}: {worst}");
    }
}

/// The cache that models with rounded weights get: on every architecture, in chunks of every kind, also when keys are
/// turned as they are read.
#[test]
fn caches_of_16_bit_integers_agree() {
    let turned = json!({"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0});
    let mut worst = 0.0f64;
    for name in EXACT {
        let plain = Setup::new(name);
        let turned = plain.clone().rope(&turned).dynamic(DynamicPolicy::Current);
        for setup in [plain, turned] {
            let oracle = logits(&setup.clone().chunk(7));
            let setup = Setup { kv_type: KvType::Q16, ..setup };
            for (isa, chunk) in
                Isa::ALL_AVAILABLE().into_iter().flat_map(|isa| [(isa, 1), (isa, 7), (isa, 64)])
            {
                let kl = worst_kl(&oracle, &logits(&on_cpu(&setup, isa).chunk(chunk)));
                assert!(kl <= Q16_CACHE_NATS, "{name}, {isa}, chunk {chunk}: {kl}");
                worst = worst.max(kl);
            }
        }
    }
    println!("largest divergence from an f32 cache {worst:.1e}");
}

/// Keys that are cached before rotation and turned when they are read.
#[test]
fn unrotated_keys_agree() {
    let rope = json!({"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0});
    for name in ["llama", "llama.gguf", "qwen2", "smollm3", "gemma3"] {
        let setup = Setup::new(name).rope(&rope).dynamic(DynamicPolicy::Current).chunk(7);
        let oracle = logits(&setup);
        for isa in Isa::ALL_AVAILABLE() {
            let difference = max_difference(&oracle, &logits(&on_cpu(&setup, isa)));
            assert!(difference <= SAME_LOGITS, "{name}, {isa}: {difference}");
        }
    }
}

#[test]
fn results_do_not_depend_on_the_number_of_threads() {
    for name in ["llama", "qwen3-bf16"] {
        for isa in Isa::ALL_AVAILABLE() {
            let with = |threads| logits(&Setup { threads, ..on_cpu(&Setup::new(name), isa) });
            let one = with(1);
            assert!(one == with(2) && one == with(3), "{name}, {isa}");
        }
    }
}
