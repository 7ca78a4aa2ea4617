//! `ropex inspect` and `ropex tokenize` on committed checkpoints.

mod common;

use common::command::{failure, json, rounded, run, stderr, success};
use serde_json::{Value, json};

fn origin<'a>(object: &'a Value, name: &str) -> &'a str {
    object["rope"][name]["origin"].as_str().unwrap_or_else(|| panic!("{name}: {object}"))
}

#[test]
fn inspect_prints_the_model_the_rope_and_the_memory() {
    let text = success("inspect --model tiny/llama.gguf --scaling yarn --factor 4 --context 256");
    insta::assert_snapshot!(text);
}

#[test]
fn inspect_json_of_a_folder() {
    let object = json("inspect --model tiny/qwen2 --scaling ntk --factor 2 --context 100");
    insta::assert_snapshot!(serde_json::to_string_pretty(&rounded(object)).unwrap());
}

/// D033, D041: what is in force is shown with where it came from, and the attention factor with its value.
#[test]
fn d033_d041_every_value_has_an_origin() {
    let object = json("inspect --model tiny/llama --scaling yarn --factor 64 --context 4k");
    assert_eq!(origin(&object, "factor"), "--factor");
    assert_eq!(origin(&object, "scaling"), "--scaling");
    assert_eq!(origin(&object, "attention_factor"), "default 0.1 ln(factor) + 1");
    assert!((object["rope"]["attention_factor"]["value"].as_f64().unwrap() - 1.4159).abs() < 1e-4);
    assert_eq!(object["rope"]["limit"]["value"], 4096);
    let hash = |flags: &str| {
        json(&format!("inspect --model tiny/llama {flags}"))["result"]["frequencies"]["hash"].clone()
    };
    assert_eq!(hash(""), hash("--scaling none"));
    assert_ne!(hash(""), hash("--rope-theta 6000"));
}

/// D073: scaling that short text does not need is pointed out, and auto leaves it off.
#[test]
fn d073_unneeded_scaling_is_warned_about() {
    let notes = stderr(&run("inspect --model tiny/llama --scaling yarn --factor 4 --context 64"));
    assert!(notes.contains("warning:") && notes.contains("--factor auto"), "{notes}");
    let object = json("inspect --model tiny/llama --scaling yarn --factor auto --context 64");
    assert_eq!(object["rope"]["scaling"]["value"], "none");
    let object = json("inspect --model tiny/llama --scaling yarn --factor auto --context 128");
    assert_eq!(object["rope"]["factor"]["value"], json!(2.0));
}

/// D078: keys and values take 2 x layers x heads x head_dim x bytes x context.
#[test]
fn d078_the_cache_is_planned_exactly() {
    let memory = |flags: &str| {
        json(&format!("inspect --model tiny/llama --context 64 {flags}"))["result"]["memory"].clone()
    };
    assert_eq!(memory("")["kv_bytes"], 2 * 2 * 2 * 16 * 4 * 64);
    assert_eq!(memory("--kv-type bf16")["kv_bytes"], 2 * 2 * 2 * 16 * 2 * 64);
    let (code, message) = failure("ppl --model tiny/llama --text demo/sample.txt --max-memory 1k");
    assert_eq!(code, 1);
    assert!(message.contains("MiB of memory") && message.contains("--kv-type"), "{message}");
}

/// D067: a config beside a GGUF file that lost its scaling is compared with the file.
#[test]
fn d067_a_config_beside_a_gguf_is_compared() {
    let notes = |config: &str| stderr(&run(&format!("inspect --model tiny/llama.gguf --config {config}")));
    assert!(!notes("tiny/llama/config.json").contains("declares"));
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("config.json");
    let text = std::fs::read_to_string(common::fixture("tiny/llama/config.json")).unwrap();
    let mut config: Value = serde_json::from_str(&text).unwrap();
    config["rope_parameters"] = json!({"rope_type": "linear", "factor": 2.0, "rope_theta": 5000.0});
    std::fs::write(&path, config.to_string()).unwrap();
    let found = notes(&path.display().to_string());
    assert!(found.contains("`linear` x2") && found.contains("the file's is used"), "{found}");
}

/// D051: a declared scaling that is not known stops the run; flags may replace it.
#[test]
fn d051_an_unknown_scaling_stops_the_run_unless_replaced() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["model.safetensors", "tokenizer.json", "tokenizer_config.json"] {
        std::fs::copy(common::fixture("tiny/llama").join(name), dir.path().join(name)).unwrap();
    }
    let text = std::fs::read_to_string(common::fixture("tiny/llama/config.json")).unwrap();
    let mut config: Value = serde_json::from_str(&text).unwrap();
    config["rope_parameters"] = json!({"rope_type": "foo", "factor": 2.0, "rope_theta": 5000.0});
    std::fs::write(dir.path().join("config.json"), config.to_string()).unwrap();
    let model = dir.path().display();
    let (code, message) = failure(&format!("inspect --model {model}"));
    assert_eq!(code, 1);
    assert!(message.contains("unknown `rope_type` `foo`") && message.contains("hint:"), "{message}");
    let notes = stderr(&run(&format!("inspect --model {model} --scaling linear --factor 2")));
    assert!(notes.contains("replaced"), "{notes}");
}

/// D020: a flag that forbids tying and a head that is not there.
#[test]
fn d020_a_missing_head_is_tied_with_a_warning() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["model.safetensors", "tokenizer.json", "tokenizer_config.json"] {
        std::fs::copy(common::fixture("tiny/llama-tied").join(name), dir.path().join(name)).unwrap();
    }
    let text = std::fs::read_to_string(common::fixture("tiny/llama-tied/config.json")).unwrap();
    let mut config: Value = serde_json::from_str(&text).unwrap();
    config["tie_word_embeddings"] = false.into();
    std::fs::write(dir.path().join("config.json"), config.to_string()).unwrap();
    let arguments =
        |model: &str| format!("generate --model {model} --prompt context --temperature 0 --max-new-tokens 6");
    let changed = run(&arguments(&dir.path().display().to_string()));
    assert!(stderr(&changed).contains("`tie_word_embeddings` is false"), "{}", stderr(&changed));
    assert_eq!(String::from_utf8(changed.stdout).unwrap(), success(&arguments("tiny/llama-tied")));
}

#[test]
fn tokenize_shows_ids_and_pieces() {
    insta::assert_snapshot!(success("tokenize --model tiny/llama the_king\u{e9}"));
}
