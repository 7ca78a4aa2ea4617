//! `ropex ppl` on committed checkpoints.

mod common;

use std::fs;
use std::path::Path;

use common::command::{failure, json, ropex, run, stderr, success, without_timing};
use common::fixture;
use serde_json::Value;

const TEXT: &str = "demo/sample.txt";

/// Largest relative difference of a perplexity computed in other chunks. Both engines sum f32 in another order; `cpu` then
/// rounds activations to 16 bits, where a last bit may tip over.
const CHUNK_TOLERANCES: [(&str, f64); 2] = [("candle", 1e-6), ("cpu", 1e-4)];

fn ppl(object: &Value) -> f64 {
    object["result"]["ppl"].as_f64().unwrap()
}

/// The true thing that the demo shows: plain rotation fails past the trained length, scaling rescues it.
#[test]
fn the_demo_fails_past_its_trained_length_and_yarn_rescues_it() {
    let base = format!("ppl --text {TEXT} --rule llama.cpp --max-windows 4");
    let trained = ppl(&json(&format!("{base} --context 256")));
    let plain = ppl(&json(&format!("{base} --context 1024 --allow-beyond")));
    let yarn = ppl(&json(&format!("{base} --context 1024 --scaling yarn --factor 4")));
    println!("256 plain {trained:.2}, 1024 plain {plain:.2}, 1024 yarn x4 {yarn:.2}");
    assert!(plain > 3.0 * trained, "{plain} {trained}");
    assert!(yarn < 1.15 * trained, "{yarn} {trained}");
}

/// D096: equal inputs, equal bytes.
#[test]
fn d096_reruns_are_byte_identical_but_for_the_timing() {
    let run = || without_timing(json(&format!("ppl --text {TEXT} --context 256 --max-windows 3")));
    assert_eq!(run(), run());
}

/// D092: chunks change nothing but rounding.
#[test]
fn d092_perplexity_does_not_depend_on_the_chunk() {
    for (engine, tolerance) in CHUNK_TOLERANCES {
        let base = format!("ppl --text {TEXT} --context 256 --max-windows 2 --engine {engine}");
        let whole = ppl(&json(&base));
        for chunk in [1, 7, 64] {
            let found = ppl(&json(&format!("{base} --prefill-chunk {chunk}")));
            assert!((found / whole - 1.0).abs() < tolerance, "{engine}, {chunk}: {found} {whole}");
        }
    }
}

/// D076: the cache's number format stands in every result, and its price can be read off.
#[test]
fn d076_the_cache_type_is_named_and_its_price_is_measured() {
    let base = format!("ppl --text {TEXT} --context 256 --max-windows 2");
    let [single, eighth] = ["f32", "q8_0"].map(|kv_type| {
        let object = json(&format!("{base} --kv-type {kv_type}"));
        assert_eq!(object["engine"]["kv_type"], kv_type);
        ppl(&object)
    });
    println!("f32 {single:.5}, q8_0 {eighth:.5}");
    assert!(single != eighth && (eighth / single - 1.0).abs() < 0.01, "{single} {eighth}");
}

/// D094, D093: a row per file and a pooled row over tokens, counts that add up.
#[test]
fn d093_d094_files_are_scored_apart_and_pooled_by_tokens() {
    let dir = tempfile::tempdir().unwrap();
    let text = fs::read_to_string(fixture(TEXT)).unwrap();
    let long: String = text.chars().take(3000).collect();
    let short: String = text.chars().skip(3000).take(900).collect();
    let [a, b] = [("a.txt", long), ("b.txt", short)].map(|(name, text)| {
        let path = dir.path().join(name);
        fs::write(&path, text).unwrap();
        path.display().to_string()
    });
    let result = json(&format!("ppl --text {a} {b} --context 128 --stride 64"))["result"].clone();
    let rows = result["per_file"].as_array().unwrap();
    let of = |row: &Value, key: &str| row[key].as_f64().unwrap();
    for key in ["tokens_scored", "windows", "bytes_scored", "words_scored"] {
        assert_eq!(of(&rows[0], key) + of(&rows[1], key), of(&result, key), "{key}");
    }
    let weighted: f64 = rows.iter().map(|row| of(row, "nll") * of(row, "tokens_scored")).sum();
    assert!((weighted / of(&result, "tokens_scored") - of(&result, "nll")).abs() < 1e-12);
    assert_eq!(of(&result, "bytes_scored"), 3900.0);
}

/// D087: values per token, byte and word of a text whose counts are known.
#[test]
fn d087_bytes_and_words_are_counted() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("text.txt");
    fs::write(&path, "the king said to the man of the city that he was come\n").unwrap();
    let result = json(&format!("ppl --text {} --context 64 --bos always", path.display()))["result"].clone();
    assert_eq!((result["bytes_scored"].as_u64(), result["words_scored"].as_u64()), (Some(54), Some(13)));
    let nll = result["nll"].as_f64().unwrap() * result["tokens_scored"].as_f64().unwrap();
    let close = |key: &str, expected: f64| {
        let found = result[key].as_f64().unwrap();
        assert!((found / expected - 1.0).abs() < 1e-9, "{key}: {found} {expected}");
    };
    close("bits_per_byte", nll / 54.0 / std::f64::consts::LN_2);
    close("byte_ppl", (nll / 54.0).exp());
    close("word_ppl", (nll / 13.0).exp());
}

/// D083, D088: the beginning-of-sequence token is a recorded choice, and a tokenizer without one cannot be given one.
#[test]
fn d083_d088_bos_is_recorded_and_never_invented() {
    let bos = |flags: &str| {
        json(&format!("ppl --text {TEXT} --context 128 --max-windows 1 {flags}"))["result"].clone()
    };
    assert_eq!(bos("")["bos"], "always");
    assert_eq!(bos("--bos first")["bos"], "first");
    let never = bos("--bos never");
    assert_eq!((&never["bos"], never["tokens_scored"].as_u64()), (&Value::from("never"), Some(127)));
    assert_eq!(bos("--bos always")["tokens_scored"], 127);
    let model = "--model tiny/qwen2 --context 32 --max-windows 1";
    assert_eq!(json(&format!("ppl --text {TEXT} {model}"))["result"]["bos"], "never");
    let (code, message) = failure(&format!("ppl --text {TEXT} {model} --bos always"));
    assert_eq!(code, 2);
    assert!(message.contains("no beginning-of-sequence token"), "{message}");
}

/// D079, D090, D095: one text gives another number under every rule, so each result names its rule, context and counts.
#[test]
fn d079_d090_d095_every_result_names_its_rule_and_its_counts() {
    let mut seen = Vec::new();
    for rule in ["strided", "hf", "llama.cpp", "yarn", "lm-eval"] {
        for context in [128, 64] {
            let stride = if rule == "yarn" { "--stride 32" } else { "" };
            let base = format!("ppl --text demo/prompt.txt --rule {rule} --context {context} {stride}");
            let result = json(&base)["result"].clone();
            assert_eq!((&result["rule"], &result["context"]), (&Value::from(rule), &Value::from(context)));
            let nll = result["nll"].as_f64().unwrap();
            assert!(seen.iter().all(|other: &f64| (other - nll).abs() > 1e-6), "{rule} {context}: {nll}");
            seen.push(nll);
            let table = success(&base);
            let title = table.lines().next().unwrap();
            assert!(title.contains(&format!("rule {rule}, context {context}")), "{title}");
            assert!(title.contains(&format!("bos {}", result["bos"].as_str().unwrap())), "{title}");
        }
    }
}

/// D088: lm-eval's prefix is BOS, else the one EOS with a warning, else nothing is guessed.
#[test]
fn d088_the_prefix_token_of_lm_eval_is_never_a_silent_guess() {
    let run =
        |flags: &str| json(&format!("ppl --text {TEXT} --rule lm-eval --max-windows 1 --context 32 {flags}"));
    let with_bos = run("");
    assert_eq!(
        (&with_bos["result"]["bos"], &with_bos["warnings"]),
        (&Value::from("first"), &serde_json::json!([]))
    );
    assert_eq!(with_bos["result"]["tokens_scored"], 32);
    let with_eos = run("--model tiny/qwen2");
    assert_eq!(with_eos["result"]["bos_token"], 3);
    assert!(with_eos["warnings"][0].as_str().unwrap().contains("end-of-sequence token 3"), "{with_eos}");
    let chosen = run("--model tiny/qwen2 --prefix-token 2");
    assert_eq!(chosen["result"]["bos_token"], 2);
    let bare = run("--model tiny/qwen2 --bos never");
    assert_eq!((&bare["result"]["bos"], &bare["result"]["bos_token"]), (&Value::from("never"), &Value::Null));
}

/// D084: markers in a text are text unless a flag says otherwise.
#[test]
fn d084_markers_in_a_corpus_are_text_by_default() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("chat.txt");
    fs::write(&path, "<|im_start|>a<|im_end|> ".repeat(40)).unwrap();
    let base = format!("ppl --model tiny/qwen2 --context 32 --max-windows 1 --text {}", path.display());
    let as_text = ppl(&json(&base));
    let as_markers = ppl(&json(&format!("{base} --markers")));
    assert!((as_text / as_markers - 1.0).abs() > 0.01, "{as_text} {as_markers}");
}

#[test]
fn texts_that_cannot_be_scored_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: &[u8]| {
        let path = dir.path().join(name);
        fs::write(&path, bytes).unwrap();
        path.display().to_string()
    };
    let empty = write("empty.txt", b"");
    let broken = write("broken.txt", b"In the beginning \xff\xfe was");
    let short = write("short.txt", b"In the beginning");
    let missing = dir.path().join("missing.txt").display().to_string();
    for (file, flags, expected) in [
        (&empty, "", "is empty"),
        (&broken, "", "is not UTF-8: bad byte at offset 17"),
        (&short, "--rule llama.cpp --context 128", "needs at least 256 tokens"),
        (&missing, "", "cannot read"),
    ] {
        let arguments = format!("ppl --text {file} {flags}");
        let (code, message) = failure(&arguments);
        assert_eq!(code, 1, "{message}");
        assert!(message.contains(expected) && message.contains(file.as_str()), "{message}");
    }
    success(&format!("ppl --text {broken} --lossy"));
}

#[test]
fn settings_that_fit_no_text_are_bad_usage() {
    for (flags, expected) in [
        ("--stride 300 --context 256", "between 1 and 255"),
        ("--context 1", "too short to score"),
        ("--stride 4 --rule llama.cpp", "belongs to strided, hf, yarn"),
        ("--stride 4 --rule lm-eval", "rule `lm-eval` has no stride"),
        ("--rule yarn --context 128", "the stride of 256 must be between 1 and 128"),
        ("--rule yarn --bos first", "accepted: never, always"),
        ("--rule hf --bos always", "accepted: never, first"),
        ("--prefix-token 5", "`lm-eval`"),
        ("--rule lm-eval --prefix-token 99999", "99999 is outside the vocabulary"),
        ("--rule words", "accepted: strided, hf, llama.cpp, yarn, lm-eval"),
    ] {
        let (code, message) = failure(&format!("ppl --text {TEXT} {flags}"));
        assert_eq!(code, 2, "{flags}: {message}");
        assert!(message.contains(expected), "{flags}: {message}");
    }
}

#[test]
fn a_context_beyond_the_limit_is_refused_with_both_numbers() {
    let (code, message) = failure(&format!("ppl --text {TEXT} --context 512"));
    assert_eq!(code, 1);
    assert!(message.contains("512 tokens are needed, the limit is 256"), "{message}");
}

/// A copy of a tiny checkpoint whose embedding of one token is not a number.
fn with_bad_embedding(folder: &Path, token: usize, value: f32) {
    for name in ["config.json", "tokenizer.json", "tokenizer_config.json"] {
        fs::copy(fixture("tiny/llama").join(name), folder.join(name)).unwrap();
    }
    let mut bytes = fs::read(fixture("tiny/llama/model.safetensors")).unwrap();
    let (header, metadata) = safetensors::SafeTensors::read_metadata(&bytes).unwrap();
    let info = metadata.info("model.embed_tokens.weight").unwrap();
    let at = 8 + header + info.data_offsets.0 + token * info.shape[1] * 4;
    bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
    fs::write(folder.join("model.safetensors"), bytes).unwrap();
}

/// D082: a loss that is no number stops the run and names the token.
#[test]
fn d082_non_finite_values_stop_the_run_at_their_token() {
    let dir = tempfile::tempdir().unwrap();
    let text = dir.path().join("text.txt");
    fs::write(&text, "abcdefgh".repeat(30)).unwrap();
    let ids = json("tokenize --model tiny/llama --bos never abcdefgh")["result"]["ids"].clone();
    let token = ids[4].as_u64().unwrap() as usize;
    let first = ids.as_array().unwrap().iter().position(|id| id.as_u64() == Some(token as u64)).unwrap();
    for value in [f32::NAN, f32::INFINITY] {
        with_bad_embedding(dir.path(), token, value);
        let arguments = format!(
            "ppl --model {} --text {} --context 32 --bos never",
            dir.path().display(),
            text.display()
        );
        let (code, message) = failure(&arguments);
        assert_eq!(code, 1);
        assert!(message.contains(&format!("logit at token {first} is not a finite number")), "{message}");
    }
}

#[test]
fn formats_hold_the_same_rows() {
    let base = format!("ppl --text {TEXT} --context 128 --max-windows 1");
    let csv = success(&format!("{base} --format csv"));
    assert!(csv.starts_with("text,ppl,low,high,stderr,nll,bits/byte,word ppl,tokens,windows\n"), "{csv}");
    assert!(success(&format!("{base} --format markdown")).contains("| text | ppl |"));
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("out.json");
    let output = ropex()
        .args(base.split_whitespace())
        .args(["--format", "json", "--output"])
        .arg(&file)
        .output()
        .unwrap();
    assert!(output.status.success() && output.stdout.is_empty());
    let object: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    assert_eq!(object["schema"], "ropex.ppl/1");
    let quiet = run(&format!("{base} --quiet"));
    assert_eq!(stderr(&quiet), "");
}
