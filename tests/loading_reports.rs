//! Public reports about loading and running checkpoints, by their numbers in the log of field reports.

mod common;

use std::path::Path;

use common::{Setup, fixture, kl_divergence, max_difference, one_shot};
use ropex::checkpoint::rope::{RopeOverrides, in_force};
use ropex::checkpoint::{Checkpoint, ModelRef, OpenOptions};
use ropex::model::config::ModelConfig;
use ropex::model::load::{EngineName, LoadOptions, load};
use ropex::model::{ModelError, Session, Want, ensure_within_limit};
use serde_json::{Value, json};

/// One model in two formats, or in chunks of two sizes.
const SAME_MODEL: f32 = 1e-4;
/// Weights of 16 bits meet activations rounded to 16 bits, as in `engines.rs`.
const HALF_WEIGHTS_NATS: f64 = 1e-4;

fn tokens(count: u32) -> Vec<u32> {
    (0..count).map(|i| (i * 7919 + 13) % 300).collect()
}

fn logits(name: &str, tokens: &[u32]) -> Vec<f32> {
    one_shot(&*Setup::new(name).load(tokens.len()), tokens)
}

#[track_caller]
fn assert_twins(name: &str) {
    let tokens = tokens(40);
    let difference = max_difference(&logits(name, &tokens), &logits(&format!("{name}.gguf"), &tokens));
    assert!(difference <= SAME_MODEL, "{name}: {difference}");
}

/// A copy of a tiny folder with `change` applied to its config.
fn changed(name: &str, change: impl FnOnce(&mut Value)) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let from = fixture(&format!("tiny/{name}"));
    for entry in std::fs::read_dir(&from).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), folder.path().join(entry.file_name())).unwrap();
    }
    let path = folder.path().join("config.json");
    let mut config: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    change(&mut config);
    std::fs::write(&path, config.to_string()).unwrap();
    folder
}

/// Logits of a folder, and what the user is told.
fn run(folder: &Path, tokens: &[u32]) -> Result<(Vec<f32>, Vec<String>), ModelError> {
    let reference = ModelRef::Folder(folder.to_path_buf());
    let checkpoint = Checkpoint::open(&reference, &OpenOptions::default()).unwrap();
    let config = ModelConfig::read(&checkpoint)?;
    let rope = in_force(&config.rope, &RopeOverrides::default(), tokens.len())?;
    let loaded = load(&checkpoint, config, rope, &LoadOptions::default())?;
    Ok((one_shot(&*loaded.model, tokens), loaded.warnings))
}

/// D001, D006: Qwen2 pairs the halves of a head, and its GGUF rows are in the order of the original.
#[test]
fn d001_d006_qwen2_pairs_halves_and_is_not_reordered() {
    for name in ["qwen2", "qwen3", "phi3", "gemma3"] {
        assert_twins(name);
    }
}

/// D003, D004, D005: rows of k are reordered by the number of key heads. Six heads on two: their ratio is not two.
#[test]
fn d003_d004_d005_rows_of_k_are_reordered_by_key_heads() {
    for name in ["llama", "smollm3"] {
        assert_twins(name);
    }
}

/// D007, D008: the width of a head is what the checkpoint says, and derived only when it says nothing.
#[test]
fn d007_d008_the_width_of_a_head_is_read() {
    for (name, head_dim) in
        [("llama", 16), ("llama.gguf", 16), ("qwen3", 16), ("qwen3.gguf", 16), ("qwen2", 16)]
    {
        let config = ModelConfig::read(&common::open(name)).unwrap();
        assert_eq!(config.head_dim, head_dim, "{name}");
        if name.starts_with("llama") || name.starts_with("qwen3") {
            assert_ne!(config.head_dim * config.n_heads, config.hidden_size, "{name}");
        }
        assert!(logits(name, &tokens(20)).iter().all(|x| x.is_finite()), "{name}");
    }
    let null = changed("qwen2", |config| config["head_dim"] = Value::Null);
    assert!(run(null.path(), &tokens(20)).is_ok());
}

/// D011: no length is built in.
#[test]
fn d011_a_prompt_of_5000_tokens_is_accepted() {
    let folder = changed("llama-tied", |config| config["max_position_embeddings"] = json!(8192));
    let (logits, _) = run(folder.path(), &tokens(5000)).unwrap();
    assert_eq!(logits.len(), 5000 * 300);
}

/// D012: a prompt beyond the limit is refused with both numbers, and never trimmed.
#[test]
fn d012_a_prompt_beyond_the_limit_is_not_trimmed() {
    let settings = Setup::new("llama").settings(79);
    let error = ensure_within_limit(&settings, 64 + 15, false).unwrap_err().to_string();
    assert!(error.contains("79 tokens") && error.contains("limit is 64"), "{error}");
    assert!(ensure_within_limit(&settings, 64, false).is_ok());
}

/// D013: what is admitted is what the tables reach; decoding goes up to the plan and not past it.
#[test]
fn d013_decoding_stops_where_the_plan_ends() {
    let tokens = tokens(71);
    for engine in [EngineName::Candle, EngineName::Cpu] {
        let model = Setup { engine, ..Setup::new("llama") }.load(70);
        let whole = one_shot(&*model, &tokens[..70]);
        let mut session: Box<dyn Session> = model.session(70).unwrap();
        session.extend(&tokens[..60], Want::Nothing, &mut |_| ()).unwrap();
        for (at, token) in tokens.iter().enumerate().take(70).skip(60) {
            let row = session.extend(&[*token], Want::LastLogits, &mut |_| ()).unwrap();
            assert!(max_difference(&row, &whole[at * 300..][..300]) <= SAME_MODEL, "token {at}");
        }
        let beyond = session.extend(&tokens[70..], Want::LastLogits, &mut |_| ());
        assert!(matches!(beyond, Err(ModelError::BeyondPlan { planned: 70, wanted: 71 })), "{beyond:?}");
    }
}

/// D019: without a stored head the embedding is the head, whether or not a flag says so.
#[test]
fn d019_a_head_that_is_not_stored_is_tied() {
    let tokens = tokens(30);
    let (expected, _) = run(&fixture("tiny/llama-tied"), &tokens).unwrap();
    let silent = changed("llama-tied", |config| {
        config.as_object_mut().unwrap().remove("tie_word_embeddings");
    });
    let (found, warnings) = run(silent.path(), &tokens).unwrap();
    assert!(found == expected && warnings.is_empty(), "{warnings:?}");
}

/// D020: a flag that denies it is overruled, and said.
#[test]
fn d020_a_tie_that_the_config_denies_is_said() {
    let tokens = tokens(30);
    let (expected, _) = run(&fixture("tiny/llama-tied"), &tokens).unwrap();
    let denied = changed("llama-tied", |config| config["tie_word_embeddings"] = json!(false));
    let (found, warnings) = run(denied.path(), &tokens).unwrap();
    assert!(found == expected);
    assert!(warnings.len() == 1 && warnings[0].contains("the embedding is used as the head"), "{warnings:?}");
}

/// D021: the window of Mistral is in force: it changes nothing within its 16 tokens, and everything after them.
#[test]
fn d021_the_window_of_mistral_is_in_force() {
    let tokens = tokens(40);
    let whole = changed("mistral", |config| config["sliding_window"] = Value::Null);
    let (windowed, whole) =
        (run(&fixture("tiny/mistral"), &tokens).unwrap().0, run(whole.path(), &tokens).unwrap().0);
    assert!(max_difference(&windowed[..16 * 300], &whole[..16 * 300]) <= SAME_MODEL);
    assert!(max_difference(&windowed[16 * 300..], &whole[16 * 300..]) > 0.1);
}

/// D022: a window that is not used is none. Which layers have one: `model/config/layers.rs`.
#[test]
fn d022_a_window_that_is_not_used_is_none() {
    let tokens = tokens(40);
    let with = |used: bool| {
        changed("qwen2", |config| {
            config["sliding_window"] = json!(8);
            config["use_sliding_window"] = json!(used);
            config["max_window_layers"] = json!(1);
        })
    };
    let expected = run(&fixture("tiny/qwen2"), &tokens).unwrap().0;
    assert!(run(with(false).path(), &tokens).unwrap().0 == expected);
    assert!(max_difference(&run(with(true).path(), &tokens).unwrap().0, &expected) > 0.1);
}

/// D023, D024: chunks see the history before them, in every stored type.
#[test]
fn d023_d024_chunks_see_what_is_before_them() {
    let tokens = tokens(40);
    for name in ["llama", "qwen3-bf16", "qwen3-f16", "gemma3"] {
        for engine in [EngineName::Candle, EngineName::Cpu] {
            let with =
                |chunk| one_shot(&*Setup { engine, ..Setup::new(name) }.chunk(chunk).load(40), &tokens);
            let whole = with(64);
            for chunk in [1, 7] {
                let found = with(chunk);
                if engine == EngineName::Cpu && name.starts_with("qwen3-") {
                    // Sums in another order move activations across the steps that they are rounded to.
                    let rows = whole.chunks(300).zip(found.chunks(300));
                    let worst = rows.map(|(a, b)| kl_divergence(a, b)).fold(0.0, f64::max);
                    assert!(worst <= HALF_WEIGHTS_NATS, "{name}, chunk {chunk}: {worst}");
                } else {
                    let difference = max_difference(&whole, &found);
                    assert!(difference <= SAME_MODEL, "{name}, chunk {chunk}: {difference}");
                }
            }
        }
    }
}

/// Mixtures of experts are refused by name, with what is supported.
#[test]
fn mixtures_of_experts_are_refused_by_name() {
    let folder = changed("qwen3", |config| config["model_type"] = json!("qwen3_moe"));
    let error = run(folder.path(), &tokens(1)).unwrap_err().to_string();
    assert!(error.contains("`qwen3_moe`") && error.contains("phi3, smollm3, gemma3_text"), "{error}");
    assert!(error.contains("mixtures of experts are not"), "{error}");
    let folder = changed("llama", |config| config["num_local_experts"] = json!(8));
    let error = run(folder.path(), &tokens(1)).unwrap_err().to_string();
    assert!(error.contains("`num_local_experts` = `8`"), "{error}");
}

/// What would change the arithmetic is refused where it is not computed.
#[test]
fn features_of_gemma_that_are_not_computed_are_refused() {
    for (key, value) in [
        ("final_logit_softcapping", json!(30.0)),
        ("hidden_activation", json!("silu")),
        ("use_bidirectional_attention", json!(true)),
        ("query_pre_attn_scalar", json!(0)),
    ] {
        let folder = changed("gemma3", |config| config[key] = value);
        let error = run(folder.path(), &tokens(1)).unwrap_err().to_string();
        assert!(error.contains(key) || error.contains("scale of scores"), "{error}");
    }
    let scalar = changed("gemma3", |config| config["query_pre_attn_scalar"] = json!(64));
    let tokens = tokens(40);
    let difference = max_difference(
        &run(scalar.path(), &tokens).unwrap().0,
        &run(&fixture("tiny/gemma3"), &tokens).unwrap().0,
    );
    assert!(difference > 0.1, "the scale of scores is read");
}
