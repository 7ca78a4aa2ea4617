//! Tiny committed checkpoints, loaded the way the commands load them.
#![allow(dead_code)] // each test file uses its part

pub mod command;
pub mod texts;

use std::path::{Path, PathBuf};

use ropex::checkpoint::rope::{RopeOverrides, RopeSettings, in_force};
use ropex::checkpoint::{Checkpoint, ModelRef, OpenOptions};
use ropex::engine::KvType;
use ropex::engine::candle::WeightFormat;
use ropex::engine::cpu::isa::Isa;
use ropex::model::load::{EngineName, LoadOptions, load};
use ropex::model::{DecoderOptions, DynamicPolicy, LanguageModel, ModelConfig, Want};
use serde_json::Value;

pub fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures").join(name)
}

pub fn open(name: &str) -> Checkpoint {
    let path = fixture(&format!("tiny/{name}"));
    let reference = if path.is_dir() { ModelRef::Folder(path) } else { ModelRef::Gguf(path) };
    Checkpoint::open(&reference, &OpenOptions::default()).unwrap()
}

/// What a test varies.
#[derive(Clone)]
pub struct Setup {
    /// Folder or file below `fixtures/tiny`.
    pub name: String,
    /// The Hugging Face dictionary that replaces the checkpoint's own.
    pub rope_parameters: Option<Value>,
    pub chunk: usize,
    pub dynamic: DynamicPolicy,
    pub weights: WeightFormat,
    pub engine: EngineName,
    pub isa: Option<Isa>,
    pub threads: usize,
    pub kv_type: KvType,
}

/// The instruction set that `ROPEX_TEST_ISA` names, for tests that choose none; without it the best one.
pub fn chosen_isa() -> Option<Isa> {
    std::env::var("ROPEX_TEST_ISA").ok().map(|name| name.parse().unwrap())
}

impl Setup {
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_string(),
            rope_parameters: None,
            chunk: 512,
            dynamic: DynamicPolicy::Planned,
            weights: WeightFormat::Unpacked,
            engine: EngineName::Candle,
            isa: chosen_isa(),
            threads: 2,
            kv_type: KvType::F32,
        }
    }

    pub fn rope(self, parameters: &Value) -> Self {
        let rope_parameters = (!parameters.is_null()).then(|| parameters.clone());
        Self { rope_parameters, ..self }
    }

    pub fn chunk(self, chunk: usize) -> Self {
        Self { chunk, ..self }
    }

    pub fn dynamic(self, dynamic: DynamicPolicy) -> Self {
        Self { dynamic, ..self }
    }

    /// The rotary embedding in force for a run of `length` tokens.
    pub fn settings(&self, length: usize) -> RopeSettings {
        let config = ModelConfig::read(&open(&self.name)).unwrap();
        let overrides =
            RopeOverrides { rope_parameters: self.rope_parameters.clone(), ..RopeOverrides::default() };
        in_force(&config.rope, &overrides, length).unwrap()
    }

    /// The model for runs of `length` tokens.
    /// Its checkpoint stays open for the rest of the test.
    pub fn load(&self, length: usize) -> Box<dyn LanguageModel> {
        let checkpoint: &'static Checkpoint = Box::leak(Box::new(open(&self.name)));
        let config = ModelConfig::read(checkpoint).unwrap();
        let decoder =
            DecoderOptions { kv_type: self.kv_type, prefill_chunk: self.chunk, dynamic: self.dynamic };
        let options = LoadOptions {
            engine: self.engine,
            isa: self.isa,
            threads: self.threads,
            weights: Some(self.weights),
            decoder,
            ..LoadOptions::default()
        };
        load(checkpoint, config, self.settings(length), &options).unwrap().model
    }
}

/// Logits `[tokens, vocab]` of one pass over `tokens`, planned for exactly that length.
pub fn one_shot(model: &dyn LanguageModel, tokens: &[u32]) -> Vec<f32> {
    let mut session = model.session(tokens.len()).unwrap();
    session.extend(tokens, Want::AllLogits, &mut |_| ()).unwrap()
}

pub fn argmax(logits: &[f32]) -> u32 {
    let best = logits.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1)).unwrap();
    best.0 as u32
}

pub fn max_difference(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

/// Natural log-probabilities of one row.
pub fn log_softmax(logits: &[f32]) -> Vec<f64> {
    let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max) as f64;
    let total: f64 = logits.iter().map(|&x| (f64::from(x) - max).exp()).sum();
    logits.iter().map(|&x| f64::from(x) - max - total.ln()).collect()
}

/// KL divergence in nats of the distribution of logits `q` from that of logits `p`, summed in f64.
pub fn kl_divergence(p: &[f32], q: &[f32]) -> f64 {
    let (p, q) = (log_softmax(p), log_softmax(q));
    p.iter().zip(&q).map(|(p, q)| p.exp() * (p - q)).sum()
}
