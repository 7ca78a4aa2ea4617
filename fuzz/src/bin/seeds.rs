//! Writes the first inputs of every target below `fuzz/corpus`, made from `fixtures` and `fuzz/templates`.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

use ropex::checkpoint::TensorType;
use ropex::checkpoint::gguf::{GgufFile, TensorData, Value as Entry, encode};
use serde_json::{Value, json};

/// Hidden size and width of the feed-forward layer of the small models: one block of every legacy type.
const HIDDEN: usize = 32;
const HEAD_DIM: usize = 16;
const VOCAB: usize = 8;
/// Element types that the matrices of the small GGUF models take.
const TYPES: [TensorType; 8] = [
    TensorType::F32,
    TensorType::F16,
    TensorType::BF16,
    TensorType::Q4_0,
    TensorType::Q4_1,
    TensorType::Q5_0,
    TensorType::Q5_1,
    TensorType::Q8_0,
];

type Done = Result<(), Box<dyn Error>>;

fn main() -> Done {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (fixtures, corpus) = (root.join("../fixtures"), root.join("corpus"));
    for target in ["gguf", "safetensors", "config", "tokenizer", "template"] {
        fs::create_dir_all(corpus.join(target))?;
    }
    for path in files(&fixtures.join("tiny"))?.iter().filter(|path| extension(path) == "gguf") {
        gguf(path, &corpus.join("gguf"))?;
    }
    for folder in files(&fixtures.join("tiny"))?.iter().filter(|path| path.join("config.json").exists()) {
        let config: Value = serde_json::from_slice(&fs::read(folder.join("config.json"))?)?;
        fs::write(corpus.join("config").join(name(folder)), config.to_string())?;
        fs::copy(folder.join("tokenizer.json"), corpus.join("tokenizer").join(name(folder)))?;
        safetensors(config, &name(folder), &corpus.join("safetensors"))?;
    }
    dictionaries(&fixtures, &corpus.join("config"))?;
    for path in files(&fixtures)?.iter().filter(|path| name(path).starts_with("tokenizer_")) {
        if ["gguf", "json"].contains(&extension(path)) && !name(path).contains("golden") {
            fs::copy(path, corpus.join("tokenizer").join(name(path)))?;
        }
    }
    for path in files(&root.join("templates"))? {
        fs::copy(&path, corpus.join("template").join(name(&path)))?;
    }
    Ok(())
}

fn files(folder: &Path) -> Result<Vec<PathBuf>, Box<dyn Error>> {
    let mut found = fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>, std::io::Error>>()?;
    found.sort();
    Ok(found)
}

fn name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn extension(path: &Path) -> &str {
    path.extension().and_then(|ending| ending.to_str()).unwrap_or_default()
}

/// The shape of a tensor in a model of one layer, two heads and one key/value head.
fn shape(tensor: &str) -> Vec<usize> {
    let is = |part: &str| tensor.contains(part);
    let width = if is("attn_k.") || is("attn_v.") || is("k_proj") || is("v_proj") { HEAD_DIM } else { HIDDEN };
    if is("q_norm") || is("k_norm") {
        vec![HEAD_DIM]
    } else if is("norm") {
        vec![HIDDEN]
    } else if is("rope_") {
        vec![HEAD_DIM / 2]
    } else if tensor.ends_with(".bias") {
        vec![width]
    } else if is("token_embd") || is("embed_tokens") || is("lm_head") || tensor == "output.weight" {
        vec![VOCAB, HIDDEN]
    } else {
        vec![width, HIDDEN]
    }
}

/// A file with the metadata of `path` (but its vocabulary) and its tensors, shrunk; one for every element type.
fn gguf(path: &Path, to: &Path) -> Done {
    let file = GgufFile::open(path)?;
    let small = [
        ("embedding_length", HIDDEN),
        ("feed_forward_length", HIDDEN),
        ("block_count", 1),
        ("head_count", 2),
        ("head_count_kv", 1),
        ("key_length", HEAD_DIM),
        ("value_length", HEAD_DIM),
        ("dimension_count", HEAD_DIM),
    ];
    let kept = file.metadata().iter().filter(|(key, _)| !key.starts_with("tokenizer."));
    let entries = kept.map(|(key, value)| {
        let last = key.rsplit('.').next().unwrap_or_default();
        let shrunk = small.iter().find(|(suffix, _)| *suffix == last).map(|(_, n)| Entry::U32(*n as u32));
        (key.to_owned(), shrunk.unwrap_or_else(|| value.clone()))
    });
    let entries: Vec<(String, Entry)> = entries.collect();
    let names = file.tensors().map(|tensor| tensor.name.as_str());
    let names: Vec<&str> = names.filter(|name| !name.starts_with("blk.") || name.starts_with("blk.0.")).collect();
    for dtype in TYPES {
        let typed = |name: &str, shape: &[usize]| match shape.len() {
            1 => TensorType::F32,
            _ if name.contains("token_embd") && dtype == TensorType::Q5_1 => TensorType::F32,
            _ => dtype,
        };
        let made: Vec<(&str, TensorType, Vec<usize>, Vec<u8>)> = names
            .iter()
            .map(|name| {
                let shape = shape(name);
                let dtype = typed(name, &shape);
                let bytes = vec![0x3c; dtype.size_bytes(&shape).unwrap_or_default()];
                (*name, dtype, shape, bytes)
            })
            .collect();
        let tensors = made.iter().map(|(name, dtype, shape, bytes)| TensorData {
            name,
            dtype: *dtype,
            shape: shape.clone(),
            bytes,
        });
        let bytes = encode(&entries, &tensors.collect::<Vec<_>>())?;
        fs::write(to.join(format!("{}.{dtype}", name(path))), bytes)?;
    }
    Ok(())
}

/// The parts of the target's input: index, config, header and data of a shrunk model, with and without an index.
fn safetensors(mut config: Value, name: &str, to: &Path) -> Done {
    let small = [
        ("hidden_size", HIDDEN),
        ("intermediate_size", HIDDEN),
        ("num_hidden_layers", 1),
        ("num_attention_heads", 2),
        ("num_key_value_heads", 1),
        ("head_dim", HEAD_DIM),
        ("vocab_size", VOCAB),
    ];
    for (key, size) in small {
        config[key] = size.into();
    }
    let mut names = vec!["model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"];
    let mut layer = vec!["input_layernorm.weight", "post_attention_layernorm.weight"];
    layer.extend(["self_attn.q_proj.weight", "self_attn.k_proj.weight", "self_attn.v_proj.weight"]);
    layer.extend(["self_attn.o_proj.weight", "mlp.gate_proj.weight", "mlp.up_proj.weight", "mlp.down_proj.weight"]);
    if name.starts_with("qwen2") {
        layer.extend(["self_attn.q_proj.bias", "self_attn.k_proj.bias", "self_attn.v_proj.bias"]);
    }
    if name.starts_with("qwen3") {
        layer.extend(["self_attn.q_norm.weight", "self_attn.k_norm.weight"]);
    }
    let layer: Vec<String> = layer.iter().map(|part| format!("model.layers.0.{part}")).collect();
    names.extend(layer.iter().map(String::as_str));
    let (dtype, width) = match name {
        "qwen3-bf16" => ("BF16", 2),
        "qwen3-f16" => ("F16", 2),
        _ => ("F32", 4),
    };
    let (mut header, mut map, mut at) = (json!({}), json!({}), 0);
    for tensor in names {
        let shape = shape(tensor);
        let end = at + shape.iter().product::<usize>() * width;
        header[tensor] = json!({ "dtype": dtype, "shape": shape, "data_offsets": [at, end] });
        map[tensor] = "model-00001-of-00001.safetensors".into();
        at = end;
    }
    let index = json!({ "metadata": { "total_size": at }, "weight_map": map }).to_string();
    let data = vec![0x3c; at];
    for (label, index) in [("single", String::new()), ("indexed", index)] {
        let parts = [index.as_bytes(), config.to_string().as_bytes(), header.to_string().as_bytes(), &data].join(&0);
        fs::write(to.join(format!("{name}.{label}")), parts)?;
    }
    Ok(())
}

/// Every dictionary of the golden file inside a config, and in place of a config's own.
fn dictionaries(fixtures: &Path, to: &Path) -> Done {
    let golden: Value = serde_json::from_slice(&fs::read(fixtures.join("rope_golden.json"))?)?;
    let llama: Value = serde_json::from_slice(&fs::read(fixtures.join("tiny/llama/config.json"))?)?;
    for (number, case) in golden["cases"].as_array().ok_or("no cases")?.iter().enumerate() {
        let (mut config, mut bare) = (llama.clone(), llama.clone());
        bare["rope_parameters"] = Value::Null;
        for (key, value) in case["config"].as_object().ok_or("no config")? {
            config[key] = value.clone();
        }
        fs::write(to.join(format!("golden-{number}")), config.to_string())?;
        let replaced = [bare.to_string(), case["config"]["rope_parameters"].to_string()].join("\0");
        fs::write(to.join(format!("replaced-{number}")), replaced)?;
    }
    Ok(())
}
