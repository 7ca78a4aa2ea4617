//! Memory of a long perplexity run. The only test of its file: the peak is that of the process.
#![cfg(target_os = "linux")]

mod common;

use std::fs;
use std::path::Path;

use ropex::checkpoint::rope::{RopeOverrides, in_force};
use ropex::checkpoint::{Checkpoint, ModelRef, OpenOptions};
use ropex::eval::document::Document;
use ropex::eval::perplexity::{PerplexityRequest, perplexity, plan};
use ropex::eval::windows::{BosPlacement, Rule};
use ropex::model::ModelConfig;
use ropex::model::load::{EngineName, LoadOptions, load};
use safetensors::tensor::{Dtype, TensorView, serialize_to_file};
use serde_json::json;

const VOCAB: usize = 128 * 1024;
const TOKENS: usize = 16 * 1024;
const HIDDEN: usize = 32;
/// Logits of every token would take 8 GiB.
const MOST_BYTES: u64 = 1_500_000_000;

/// A model of one layer with a large vocabulary; weights without meaning, the same in every run.
fn write_model(folder: &Path) {
    let config = json!({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": VOCAB, "hidden_size": HIDDEN,
        "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1,
        "head_dim": 16, "max_position_embeddings": TOKENS, "rms_norm_eps": 1e-5, "hidden_act": "silu",
        "tie_word_embeddings": true, "rope_theta": 10000.0, "rope_scaling": null, "torch_dtype": "float32",
    });
    fs::write(folder.join("config.json"), config.to_string()).unwrap();
    let layer = "model.layers.0";
    let shapes = [
        ("model.embed_tokens.weight".to_string(), vec![VOCAB, HIDDEN]),
        (format!("{layer}.self_attn.q_proj.weight"), vec![32, HIDDEN]),
        (format!("{layer}.self_attn.k_proj.weight"), vec![16, HIDDEN]),
        (format!("{layer}.self_attn.v_proj.weight"), vec![16, HIDDEN]),
        (format!("{layer}.self_attn.o_proj.weight"), vec![HIDDEN, 32]),
        (format!("{layer}.mlp.gate_proj.weight"), vec![48, HIDDEN]),
        (format!("{layer}.mlp.up_proj.weight"), vec![48, HIDDEN]),
        (format!("{layer}.mlp.down_proj.weight"), vec![HIDDEN, 48]),
        (format!("{layer}.input_layernorm.weight"), vec![HIDDEN]),
        (format!("{layer}.post_attention_layernorm.weight"), vec![HIDDEN]),
        ("model.norm.weight".to_string(), vec![HIDDEN]),
    ];
    let values = |count: usize| -> Vec<u8> {
        let value = |i: usize| ((i.wrapping_mul(2_654_435_761) % 2001) as f32 - 1000.0) / 4000.0;
        (0..count).flat_map(|i| value(i).to_le_bytes()).collect()
    };
    let data: Vec<Vec<u8>> = shapes.iter().map(|(_, shape)| values(shape.iter().product())).collect();
    let views = shapes.iter().zip(&data);
    let views =
        views.map(|((name, shape), data)| (name, TensorView::new(Dtype::F32, shape.clone(), data).unwrap()));
    serialize_to_file(views, None, &folder.join("model.safetensors")).unwrap();
}

fn peak_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.split_whitespace().next().unwrap().parse::<u64>().unwrap() * 1024
}

/// D081: 16384 tokens of a vocabulary of 131072 are scored without a row of logits for each.
#[test]
fn d081_a_large_vocabulary_is_scored_in_bounded_memory() {
    let dir = tempfile::tempdir().unwrap();
    write_model(dir.path());
    let reference = ModelRef::Folder(dir.path().to_path_buf());
    let checkpoint = Checkpoint::open(&reference, &OpenOptions::default()).unwrap();
    let config = ModelConfig::read(&checkpoint).unwrap();
    let rope = in_force(&config.rope, &RopeOverrides::default(), TOKENS).unwrap();
    let options = LoadOptions { engine: EngineName::Cpu, threads: 2, ..LoadOptions::default() };
    let model = load(&checkpoint, config, rope, &options).unwrap().model;
    let document = Document {
        file: "ids".to_string(),
        tokens: (0..TOKENS).map(|i| (i * 7919 % VOCAB) as u32).collect(),
        token_bytes: vec![1; TOKENS],
        token_words: vec![0; TOKENS],
    };
    let request = PerplexityRequest {
        rule: Rule::Strided,
        context: TOKENS,
        stride: TOKENS,
        bos: BosPlacement::Never,
        bos_token: None,
        max_windows: None,
    };
    let documents = [document];
    let windows = plan(&documents, &request).unwrap();
    let found = perplexity(&*model, &documents, &windows, None, &mut |_, _| ()).unwrap();
    assert_eq!(found.pooled.tokens_scored, TOKENS - 1);
    // Random weights know nothing: close to a uniform distribution.
    assert!((found.pooled.nll() - (VOCAB as f64).ln()).abs() < 1.0, "{}", found.pooled.nll());
    let peak = peak_bytes();
    println!("peak {} MB", peak / 1_000_000);
    assert!(peak < MOST_BYTES, "{peak} bytes");
}
