//! `ropex attention` on committed checkpoints.

mod common;

use std::fs;

use common::command::{failure, json, success, without_timing};
use serde_json::Value;

const TEXT: &str = "demo/sample.txt";

fn number(value: &Value, path: &str) -> f64 {
    let found = value.pointer(path).unwrap_or_else(|| panic!("no {path}"));
    found.as_f64().unwrap_or_else(|| panic!("{path} is {found}"))
}

/// What goes wrong past the trained length: attention of a plain model scatters over distances that it never saw.
#[test]
fn unscaled_attention_of_the_demo_scatters_past_its_trained_length() {
    let flags = "--context 1024 --scaling yarn --factor 4 --against none --allow-beyond";
    let result = json(&format!("attention --text {TEXT} {flags}"))["result"].clone();
    let far = |value: &Value| -> f64 {
        let mass = value.pointer("/mean/mass").unwrap().as_array().unwrap();
        mass[9..].iter().map(|mass| mass.as_f64().unwrap()).sum()
    };
    let (yarn, plain) = (far(&result), far(&result["against"]));
    println!("beyond 256 tokens: yarn x4 {yarn:.3}, plain {plain:.3}");
    assert!(plain > 2.0 * yarn, "{plain} {yarn}");
    let entropy = "/difference/mean/entropy";
    assert!(number(&result["against"], entropy) < -0.1, "{}", number(&result["against"], entropy));
}

#[test]
fn reruns_are_byte_identical_but_for_the_timing() {
    let run = || without_timing(json(&format!("attention --text {TEXT} --context 200")));
    assert_eq!(run(), run());
}

#[test]
fn the_setting_to_compare_with_is_measured_as_it_would_be_alone() {
    let base = format!("attention --text {TEXT} --context 400");
    let both = json(&format!("{base} --scaling yarn --factor 4 --against linear:2"));
    let alone = json(&format!("{base} --scaling linear --factor 2"));
    let against = &both["result"]["against"];
    for part in ["mean", "layers", "by_position"] {
        assert_eq!(against[part], alone["result"][part], "{part}");
    }
    assert_eq!(against["name"], "linear x2");
    assert_eq!(against["rope"]["factor"]["value"], alone["rope"]["factor"]["value"]);
    let dictionary = r#"{"rope_type":"linear","factor":2.0}"#;
    let by_dictionary =
        json(&format!("{base} --scaling yarn --factor 4 --against-rope-parameters {dictionary}"));
    assert_eq!(by_dictionary["result"]["against"]["mean"], against["mean"]);
    let difference = |path: &str| number(against, &format!("/difference{path}"));
    let mean = |value: &Value| number(value, "/layers/2/heads/1/distance");
    let expected = mean(&both["result"]) - mean(against);
    assert!((difference("/layers/2/heads/1/distance") - expected).abs() < 1e-12);
}

#[test]
fn json_holds_every_layer_head_and_position() {
    let object = json(&format!("attention --text {TEXT} --context 200 --last-queries 100 --sink 2"));
    assert_eq!(object["schema"], "ropex.attention/1");
    let result = &object["result"];
    let expected = [("context", 200), ("first_query", 100), ("queries", 100), ("sink_tokens", 2)];
    for (key, value) in expected {
        assert_eq!(result[key], value, "{key}");
    }
    assert_eq!((&result["bos"], &result["against"]), (&Value::Bool(true), &Value::Null));
    let list = |value: &Value| value.as_array().unwrap().clone();
    assert_eq!((list(&result["layers"]).len(), list(&result["layers"][0]["heads"]).len()), (5, 6));
    assert_eq!(list(&result["distance_starts"]).len(), list(&result["mean"]["mass"]).len());
    let ranges: Vec<_> =
        list(&result["by_position"]).iter().map(|row| (row["from"].clone(), row["to"].clone())).collect();
    assert_eq!(ranges, [(100.into(), 128.into()), (128.into(), 200.into())]);
    let mass: f64 =
        list(&result["layers"][1]["heads"][2]["mass"]).iter().map(|mass| mass.as_f64().unwrap()).sum();
    assert!((mass - 1.0).abs() < 1e-5, "{mass}");
}

#[test]
fn tables_have_a_row_for_each_layer_or_head() {
    let base = format!("attention --text {TEXT} --context 100 --format csv");
    let lines = |flags: &str| success(&format!("{base} {flags}")).lines().count();
    assert_eq!((lines(""), lines("--heads")), (1 + 5 + 1, 1 + 30 + 1));
    let text = success(&format!("attention --text {TEXT} --context 100 --scaling none --against yarn:2"));
    for title in ["none; sink", "yarn x2; sink", "differences, none minus yarn x2", "none against yarn x2"] {
        assert!(text.contains(title), "{title}: {text}");
    }
}

#[test]
fn a_text_shorter_than_the_original_context_is_looked_at_as_a_whole() {
    let result = json("attention --text demo/prompt.txt --model tiny/llama --allow-beyond")["result"].clone();
    assert_eq!(result["context"], 64);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("short.txt");
    fs::write(&path, "In the beginning").unwrap();
    let tokens = json(&format!("tokenize --file {}", path.display()));
    let count = tokens["result"]["count"].clone();
    assert_eq!(json(&format!("attention --text {}", path.display()))["result"]["context"], count);
}

#[test]
fn figures_show_heads_distances_and_positions() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().display();
    let flags = "--context 300 --scaling yarn --factor 2 --against none --allow-beyond";
    success(&format!("attention --text {TEXT} {flags} --figures {folder}"));
    for name in
        ["sink", "distance", "entropy", "sink-difference", "by-layer", "by-distance", "entropy-by-position"]
    {
        let svg = fs::read_to_string(dir.path().join(format!("attention-{name}-light.svg"))).unwrap();
        assert!(svg.contains("</svg>"), "{name}");
    }
    let curves = fs::read_to_string(dir.path().join("attention-by-distance-light.svg")).unwrap();
    assert!(["yarn x2", "none", "original context"].iter().all(|label| curves.contains(label)));
}

#[test]
fn what_cannot_be_measured_is_refused() {
    for (flags, code, expected) in [
        ("--context 999999", 1, "tokens, 999999 are wanted"),
        ("--context 512", 1, "the limit is 256"),
        ("--context 512 --scaling yarn --factor 2 --against none", 1, "the limit is 256"),
        ("--context 100 --last-queries 101", 2, "a text of 100 tokens has no 101 queries"),
        ("--context 100 --against nope", 2, "unknown scaling method `nope`"),
        ("--context 100 --against yarn:0.5", 2, "0.5"),
        ("--context 100 --against longrope", 2, "cannot use the scaling of `--against`"),
        ("--context 100 --against-rope-parameters {", 2, "is not JSON"),
        ("--context 100 --against none --against-rope-parameters {}", 2, "cannot be used with"),
        ("--context 60 --model tiny/qwen2 --bos always", 2, "no beginning-of-sequence token"),
    ] {
        let (found, message) = failure(&format!("attention --text {TEXT} {flags}"));
        assert_eq!(found, code, "{flags}: {message}");
        assert!(message.contains(expected), "{flags}: {message}");
    }
}

/// D077: scores of 8192 tokens would take 1.6 GB in each layer; the whole process gets 600 MB of address space.
#[cfg(target_os = "linux")]
#[test]
fn d077_memory_does_not_grow_with_the_square_of_the_text() {
    let program = assert_cmd::cargo::cargo_bin("ropex");
    let arguments = format!("attention --text {TEXT} --context 8k --allow-beyond --quiet --threads 2");
    let script = format!("ulimit -v 600000; exec {} {arguments}", program.display());
    let output = std::process::Command::new("sh")
        .args(["-c", &script])
        .current_dir(common::fixture(""))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
