//! Checkpoints that are readable files and no usable models: each is refused with what is wrong, by name.

mod common;

use common::fixture;
use ropex::checkpoint::gguf::{Array, GgufFile, TensorData, Value, encode};
use ropex::checkpoint::rope::{RopeOverrides, in_force};
use ropex::checkpoint::{Checkpoint, ModelRef, OpenOptions, TensorType};
use ropex::model::ModelConfig;
use ropex::model::load::{LoadOptions, load};

struct Tensor {
    name: String,
    dtype: TensorType,
    shape: Vec<usize>,
    bytes: Vec<u8>,
}

/// The parts of a GGUF file, to be changed and put together again.
struct Parts {
    entries: Vec<(String, Value)>,
    tensors: Vec<Tensor>,
}

impl Parts {
    fn of(name: &str) -> Self {
        let file = GgufFile::open(&fixture(&format!("tiny/{name}.gguf"))).unwrap();
        let entries = file.metadata().iter().map(|(key, value)| (key.to_string(), value.clone())).collect();
        let tensor = |info: &ropex::checkpoint::gguf::TensorInfo| {
            let view = file.tensor(&info.name).unwrap();
            Tensor {
                name: info.name.clone(),
                dtype: view.dtype,
                shape: view.shape.clone(),
                bytes: view.bytes.to_vec(),
            }
        };
        Self { entries, tensors: file.tensors().map(tensor).collect() }
    }

    fn set(&mut self, key: &str, value: Value) {
        self.entries.retain(|(name, _)| name != key);
        self.entries.push((key.to_string(), value));
    }

    fn tensor(&mut self, name: &str) -> &mut Tensor {
        self.tensors.iter_mut().find(|tensor| tensor.name == name).unwrap()
    }

    /// Writes the file and loads it: the whole chain of causes of the refusal.
    fn refusal(&self) -> String {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("changed.gguf");
        let tensors: Vec<TensorData> = self
            .tensors
            .iter()
            .map(|t| TensorData { name: &t.name, dtype: t.dtype, shape: t.shape.clone(), bytes: &t.bytes })
            .collect();
        std::fs::write(&path, encode(&self.entries, &tensors).unwrap()).unwrap();
        let opened = Checkpoint::open(&ModelRef::Gguf(path), &OpenOptions::default());
        let loaded = opened.map_err(|error| error.to_string()).and_then(|checkpoint| {
            let config = ModelConfig::read(&checkpoint).map_err(|error| error.to_string())?;
            let rope = in_force(&config.rope, &RopeOverrides::default(), 32).map_err(|e| e.to_string())?;
            load(&checkpoint, config, rope, &LoadOptions::default()).map_err(|error| error.to_string())?;
            Ok(())
        });
        loaded.expect_err("the checkpoint is refused")
    }
}

#[track_caller]
fn assert_refused(name: &str, change: impl FnOnce(&mut Parts), expected: &[&str]) {
    let mut parts = Parts::of(name);
    change(&mut parts);
    let refusal = parts.refusal();
    for part in expected {
        assert!(refusal.contains(part), "{refusal}");
    }
}

/// D009, D014: unknown architectures are named with the supported ones.
#[test]
fn d009_unknown_architectures_are_named() {
    let change = |parts: &mut Parts| parts.set("general.architecture", Value::String("gemma".into()));
    assert_refused("llama", change, &["`gemma`", "llama, qwen2, qwen3"]);
}

#[test]
fn missing_tensors_are_named() {
    for name in ["blk.1.attn_k.weight", "output_norm.weight", "token_embd.weight"] {
        let change = |parts: &mut Parts| parts.tensors.retain(|tensor| tensor.name != name);
        assert_refused("llama", change, &[name, "missing"]);
    }
    let change = |parts: &mut Parts| parts.tensors.retain(|tensor| tensor.name != "blk.0.attn_k.bias");
    assert_refused("qwen2", change, &["blk.0.attn_k.bias", "missing"]);
    let change = |parts: &mut Parts| parts.tensors.retain(|tensor| tensor.name != "blk.2.attn_q_norm.weight");
    assert_refused("qwen3", change, &["blk.2.attn_q_norm.weight", "missing"]);
}

/// A tensor that nothing reads means that the model is not what its metadata says.
#[test]
fn unused_tensors_are_refused_by_name() {
    let change = |parts: &mut Parts| {
        parts.tensors.push(Tensor {
            name: "blk.0.attn_sinks.weight".into(),
            dtype: TensorType::F32,
            shape: vec![1],
            bytes: vec![0; 4],
        });
    };
    assert_refused("llama", change, &["blk.0.attn_sinks.weight", "does not use"]);
    let change = |parts: &mut Parts| parts.set("llama.block_count", Value::U32(1));
    assert_refused("llama", change, &["blk.1.", "does not use"]);
}

/// D066: the divisors of Llama 3 are no weights, and are read.
#[test]
fn d066_rope_freqs_is_no_unused_weight() {
    let mut parts = Parts::of("llama");
    let divisors = [1.0f32, 1.0, 1.0, 1.0, 2.0, 4.0, 8.0, 8.0];
    parts.tensors.push(Tensor {
        name: "rope_freqs.weight".into(),
        dtype: TensorType::F32,
        shape: vec![7],
        bytes: divisors[..7].iter().flat_map(|d| d.to_le_bytes()).collect(),
    });
    assert!(parts.refusal().contains("8"), "a list of the wrong length is refused");
    let list = parts.tensor("rope_freqs.weight");
    list.shape = vec![8];
    list.bytes = divisors.iter().flat_map(|d| d.to_le_bytes()).collect();
    parts.set("llama.rope.scaling.type", Value::String("yarn".into()));
    parts.set("llama.rope.scaling.factor", Value::F32(4.0));
    assert!(parts.refusal().contains("contradict"), "two scalings at once are refused");
}

#[test]
fn shapes_that_do_not_fit_are_shown() {
    let change = |parts: &mut Parts| {
        let tensor = parts.tensor("blk.0.ffn_down.weight");
        tensor.shape.reverse();
    };
    assert_refused("llama", change, &["blk.0.ffn_down.weight", "[64, 48]", "[48, 64]"]);
    let change = |parts: &mut Parts| parts.set("llama.attention.head_count_kv", Value::U32(4));
    assert_refused("llama", change, &["6 attention heads", "4 key/value heads"]);
    let change = |parts: &mut Parts| parts.set("llama.attention.head_count", Value::U32(0));
    assert_refused("llama", change, &["0"]);
    let change = |parts: &mut Parts| parts.set("llama.attention.layer_norm_rms_epsilon", Value::F32(-1.0));
    assert_refused("llama", change, &["epsilon", "-1"]);
}

#[test]
fn features_that_are_not_computed_are_refused() {
    let change = |parts: &mut Parts| parts.set("llama.expert_count", Value::U32(8));
    assert_refused("llama", change, &["llama.expert_count", "8", "mixtures of experts"]);
    let change = |parts: &mut Parts| parts.set("llama.attention.value_length", Value::U32(8));
    assert_refused("llama", change, &["llama.attention.value_length", "8"]);
    let change = |parts: &mut Parts| parts.set("llama.rope.scaling.type", Value::String("mystery".into()));
    assert_refused("llama", change, &["mystery", "yarn"]);
}

#[test]
fn missing_and_ill_typed_keys_are_named() {
    for key in ["llama.block_count", "llama.feed_forward_length", "llama.attention.layer_norm_rms_epsilon"] {
        let change = |parts: &mut Parts| parts.entries.retain(|(name, _)| name != key);
        assert_refused("llama", change, &[key]);
    }
    let change = |parts: &mut Parts| parts.set("llama.block_count", Value::String("two".into()));
    assert_refused("llama", change, &["llama.block_count", "two"]);
    let change = |parts: &mut Parts| {
        parts.set("llama.attention.head_count_kv", Value::Array(Array::I32(vec![2, 1])));
    };
    assert_refused("llama", change, &["llama.attention.head_count_kv"]);
}
