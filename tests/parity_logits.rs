//! Whole models against transformers: logits and greedy text on tiny random checkpoints.
//!
//! Golden values: `fixtures/make_tiny_checkpoints.py` (f32, eager attention, one forward pass without cache).

mod common;

use common::{Setup, argmax, fixture, log_softmax, max_difference, one_shot};
use ropex::engine::candle::WeightFormat;
use ropex::model::load::EngineName;
use ropex::model::{DynamicPolicy, LanguageModel, Want};
use ropex::named::Named;
use serde_json::Value;

/// Largest logit difference to transformers: both compute in f32 and sum in another order.
const LOGIT_TOLERANCE: f32 = 1e-3;
/// Largest logit difference between the two formats of one model, and between chunk sizes.
const SAME_MODEL_TOLERANCE: f32 = 1e-4;
const VOCAB: usize = 300;
const CHUNKS: [usize; 4] = [1, 7, 64, 512];

struct Golden {
    index: Value,
    logits: Vec<u8>,
}

impl Golden {
    fn read() -> Self {
        let text = std::fs::read_to_string(fixture("tiny/golden.json")).unwrap();
        let logits = std::fs::read(fixture("tiny/golden.safetensors")).unwrap();
        Self { index: serde_json::from_str(&text).unwrap(), logits }
    }

    fn cases(&self) -> &Vec<Value> {
        self.index["cases"].as_array().unwrap()
    }

    fn tokens(&self, length: usize) -> Vec<u32> {
        ids(&self.index["input_ids"])[..length].to_vec()
    }

    /// `[positions, vocab]`
    fn logits(&self, case: &str) -> Vec<f32> {
        let file = safetensors::SafeTensors::deserialize(&self.logits).unwrap();
        let tensor = file.tensor(&format!("{case}/logits")).unwrap();
        let words = tensor.data().as_chunks::<4>().0;
        words.iter().map(|word| f32::from_le_bytes(*word)).collect()
    }
}

fn ids(value: &Value) -> Vec<u32> {
    value.as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect()
}

fn rows(logits: &[f32], positions: &Value) -> Vec<f32> {
    let row = |position: u32| &logits[position as usize * VOCAB..][..VOCAB];
    ids(positions).into_iter().flat_map(row).copied().collect()
}

/// The folder and the GGUF of a case, where the case applies to them.
fn sources(case: &Value) -> Vec<String> {
    let folder = (case["sliding_window"] != "none").then(|| case["folder"].as_str().unwrap());
    folder.into_iter().chain(case["gguf"].as_str()).map(str::to_string).collect()
}

/// Weights of 16 bits are compared between the engines in `engines.rs`.
fn engines(case: &str) -> impl Iterator<Item = EngineName> {
    let half = case.contains("bf16") || case.contains("f16");
    [EngineName::Candle].into_iter().chain((!half).then_some(EngineName::Cpu))
}

fn setup(source: &str, case: &Value) -> Setup {
    Setup::new(source).rope(&case["rope_parameters"])
}

#[test]
fn logits_equal_transformers_for_every_architecture_scaling_format_and_chunk() {
    let golden = Golden::read();
    let mut worst = (0.0f32, String::new());
    let mut compared = 0;
    for case in golden.cases() {
        let name = case["name"].as_str().unwrap();
        let length = case["length"].as_u64().unwrap() as usize;
        let tokens = golden.tokens(length);
        let expected = golden.logits(name);
        for source in sources(case) {
            for (engine, chunk) in engines(name).flat_map(|engine| CHUNKS.map(|chunk| (engine, chunk))) {
                let setup = Setup { engine, ..setup(&source, case).chunk(chunk) };
                let found = rows(&one_shot(&*setup.load(length), &tokens), &case["positions"]);
                let difference = max_difference(&found, &expected);
                let what = format!("{name}, {source}, engine {}, chunk {chunk}", engine.name());
                assert!(difference <= LOGIT_TOLERANCE, "{what}: {difference}");
                compared += 1;
                if difference > worst.0 {
                    worst = (difference, what);
                }
            }
        }
    }
    println!("{compared} comparisons; largest logit difference {} ({})", worst.0, worst.1);
    assert!(compared > 100);
}

#[test]
fn the_two_formats_of_a_model_agree() {
    let golden = Golden::read();
    let mut worst = 0.0f32;
    for case in golden.cases() {
        let sources = sources(case);
        let [folder, gguf] = &sources[..] else { continue };
        let length = case["length"].as_u64().unwrap() as usize;
        let tokens = golden.tokens(length);
        let logits = |source: &str| one_shot(&*setup(source, case).load(length), &tokens);
        let difference = max_difference(&logits(folder), &logits(gguf));
        assert!(difference <= SAME_MODEL_TOLERANCE, "{}: {difference}", case["name"]);
        worst = worst.max(difference);
    }
    println!("largest logit difference between formats {worst}");
}

#[test]
fn chunk_sizes_agree_at_every_position() {
    let golden = Golden::read();
    let tokens = golden.tokens(150);
    let mut worst = 0.0f32;
    for source in
        ["llama", "mistral", "qwen2.gguf", "qwen3", "qwen3-bf16", "qwen3-f16", "phi3", "smollm3", "gemma3"]
    {
        let whole = one_shot(&*Setup::new(source).load(150), &tokens);
        for chunk in CHUNKS {
            let chunked = one_shot(&*Setup::new(source).chunk(chunk).load(150), &tokens);
            let difference = max_difference(&whole, &chunked);
            assert!(difference <= SAME_MODEL_TOLERANCE, "{source}, chunk {chunk}: {difference}");
            worst = worst.max(difference);
        }
    }
    println!("largest logit difference between chunk sizes {worst}");
}

/// D025: tokens given in one call see exactly what they see when given one by one.
#[test]
fn d025_a_two_token_continuation_equals_two_single_steps() {
    let golden = Golden::read();
    let tokens = golden.tokens(42);
    let model = Setup::new("llama").load(42);
    let logits = |steps: &[usize]| {
        let mut session = model.session(42).unwrap();
        let mut at = 0;
        let mut last = Vec::new();
        for step in steps {
            last = session.extend(&tokens[at..at + step], Want::LastLogits, &mut |_| ()).unwrap();
            at += step;
        }
        last
    };
    let difference = max_difference(&logits(&[40, 2]), &logits(&[40, 1, 1]));
    assert!(difference <= SAME_MODEL_TOLERANCE, "{difference}");
}

/// D002: greedy text of every case, token by token under the policy that equals a fresh forward pass at each step.
#[test]
fn d002_greedy_tokens_equal_transformers() {
    let golden = Golden::read();
    let mut tokens_compared = 0;
    for case in golden.cases() {
        for source in sources(case) {
            for run in case["greedy"].as_array().unwrap() {
                let prompt = golden.tokens(run["prompt_tokens"].as_u64().unwrap() as usize);
                let expected = ids(&run["continuation"]);
                let length = prompt.len() + expected.len();
                for engine in engines(case["name"].as_str().unwrap()) {
                    let setup = Setup { engine, ..setup(&source, case) };
                    let model = setup.dynamic(DynamicPolicy::Recompute).load(length);
                    let found = greedy(&*model, &prompt, expected.len());
                    assert_eq!(found, expected, "{}, {source}, {}", case["name"], engine.name());
                    tokens_compared += found.len();
                }
            }
        }
    }
    println!("{tokens_compared} greedy tokens equal");
}

fn greedy(model: &dyn LanguageModel, prompt: &[u32], count: usize) -> Vec<u32> {
    let mut session = model.session(prompt.len() + count).unwrap();
    let mut logits = session.extend(prompt, Want::LastLogits, &mut |_| ()).unwrap();
    let mut found = vec![argmax(&logits)];
    while found.len() < count {
        logits = session.extend(&found[found.len() - 1..], Want::LastLogits, &mut |_| ()).unwrap();
        found.push(argmax(&logits));
    }
    found
}

/// Weights held as stored give the same logits as weights held as f32: the values are the same.
#[test]
fn packed_float_weights_equal_unpacked_ones() {
    let golden = Golden::read();
    let tokens = golden.tokens(100);
    for source in ["qwen3-bf16", "qwen3-f16", "llama.gguf"] {
        let setup = Setup::new(source);
        let packed = Setup { weights: WeightFormat::Packed, ..setup.clone() };
        let difference =
            max_difference(&one_shot(&*setup.load(100), &tokens), &one_shot(&*packed.load(100), &tokens));
        assert_eq!(difference, 0.0, "{source}");
    }
}

/// The log-probabilities that perplexity uses are those of the logits.
#[test]
fn log_probabilities_equal_the_softmax_of_logits() {
    let golden = Golden::read();
    let tokens = golden.tokens(100);
    let model = Setup::new("qwen2").chunk(7).load(100);
    let logits = one_shot(&*model, &tokens);
    let (first_row, targets) = (3, &tokens[4..]);
    let mut session = model.session(100).unwrap();
    let want = Want::LogProbs { first_row, targets };
    let found = session.extend(&tokens, want, &mut |_| ()).unwrap();
    assert_eq!(found.len(), targets.len());
    for (index, (found, target)) in found.iter().zip(targets).enumerate() {
        let row = &logits[(first_row + index) * VOCAB..][..VOCAB];
        let expected = log_softmax(row)[*target as usize];
        assert!((f64::from(*found) - expected).abs() < 1e-5, "row {index}: {found} {expected}");
    }
}
