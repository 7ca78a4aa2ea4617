//! `ropex needle` on committed checkpoints.

mod common;

use std::fs;

use common::command::{failure, json, ropex, run, stderr, success, without_timing};
use common::fixture;
use serde_json::Value;

const DEMO: &str = "needle --digits 4 --lengths 128,256 --trials 4";

fn score(object: &Value, length: usize, key: &str) -> f64 {
    let rows = object["result"]["by_length"].as_array().unwrap();
    let row = rows.iter().find(|row| row["length"] == length).unwrap();
    row[key]["score"].as_f64().unwrap()
}

/// The demo was taught to look codes up: it finds them by likelihood, and nothing where there is nothing.
#[test]
fn the_demo_finds_needles_and_the_control_does_not() {
    let object = json("needle --digits 4 --lengths 256 --score likelihood --trials 8 --seed 1");
    let (found, control) = (score(&object, 256, "likelihood"), score(&object, 256, "control_likelihood"));
    println!("likelihood {found}, control {control}");
    assert!(found > 0.6, "{found}");
    assert!(control < 0.4, "{control}");
    assert_eq!(object["result"]["chance"].as_f64(), Some(1.0 / 16.0));
}

#[test]
fn reruns_are_byte_identical_but_for_the_timing() {
    let run = || without_timing(json(DEMO));
    assert_eq!(run(), run());
}

#[test]
fn the_result_explains_itself() {
    let object = json(DEMO);
    assert_eq!(object["schema"], "ropex.needle/1");
    let result = &object["result"];
    for (key, expected) in
        [("task", "single"), ("haystack", "prose"), ("template", "none"), ("score", "both")]
    {
        assert_eq!(result[key], expected, "{key}");
    }
    let room = result["answer_room"].as_u64().unwrap();
    let cells = result["cells"].as_array().unwrap();
    assert_eq!((cells.len(), result["controls"].as_array().unwrap().len()), (6, 2));
    for cell in cells {
        assert_eq!(cell["prompt_tokens"].as_u64().unwrap() + room, cell["length"].as_u64().unwrap());
        let details = cell["details"].as_array().unwrap();
        assert_eq!(details.len(), 4);
        let first = details.iter().filter(|trial| trial["likelihood"][0]["rank"] == 1).count();
        assert_eq!(cell["likelihood"]["score"].as_f64(), Some(first as f64 / 4.0));
        let strict: f64 = details.iter().map(|trial| trial["generation"]["strict"].as_f64().unwrap()).sum();
        assert_eq!(cell["generation"]["score"].as_f64(), Some(strict / 4.0));
        for trial in details {
            let value = trial["likelihood"][0]["answer"].as_str().unwrap();
            assert_eq!(value.len(), 4, "{value}");
        }
    }
    let tokens = |key: &str| result[key].as_u64().unwrap();
    assert!(tokens("tokens_computed") < tokens("tokens_naive"));
    assert!(tokens("tokens_naive") < tokens("tokens_naive_per_candidate"));
}

/// D097: the template is recorded, and its tokens are part of the length.
#[test]
fn d097_the_template_is_recorded() {
    let base = "needle --model tiny/qwen2 --lengths 500 --trials 1 --digits 2 --depths 0.5 --allow-beyond";
    let of = |template: &str| json(&format!("{base} --template {template}"))["result"].clone();
    let (none, chat) = (of("none"), of("chat"));
    assert_eq!((&none["template"], &chat["template"]), (&Value::from("none"), &Value::from("chat")));
    let logit =
        |result: &Value| result["cells"][0]["details"][0]["likelihood"][0]["log_prob"].as_f64().unwrap();
    assert_ne!(logit(&none), logit(&chat));
    for result in [&none, &chat] {
        let cell = &result["cells"][0];
        let sum = cell["prompt_tokens"].as_u64().unwrap() + result["answer_room"].as_u64().unwrap();
        assert_eq!(sum, 500);
    }
    let (code, message) = failure("needle --template chat");
    assert!(code == 1 && message.contains("has no chat template"), "{message}");
}

/// D099: the target far above the filler's size is an error with both numbers.
#[test]
fn d099_a_short_text_is_refused_with_both_numbers() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("short.txt");
    fs::write(&path, "In the beginning was the word. ".repeat(20)).unwrap();
    let base = format!("needle --text {} --lengths 256k --allow-beyond --trials 1", path.display());
    let (code, message) = failure(&base);
    assert_eq!(code, 1);
    assert!(
        message.contains("the text has") && message.contains("the longest prompt needs 262"),
        "{message}"
    );
    assert!(message.contains("--repeat-text"), "{message}");
    let repeated = base.replace("256k", "256") + " --repeat-text --digits 3";
    assert_eq!(json(&repeated)["result"]["haystack"], path.display().to_string());
}

/// D074, D075: a length beyond the limit is refused with both numbers, and nothing is cut.
#[test]
fn d074_d075_a_length_beyond_the_limit_is_refused() {
    let (code, message) = failure("needle --lengths 128,512");
    assert_eq!(code, 1);
    assert!(message.contains("512 tokens are needed, the limit is 256"), "{message}");
    let cell =
        json("needle --lengths 512 --allow-beyond --trials 1 --depths 0.5")["result"]["cells"][0].clone();
    assert_eq!(cell["length"], 512);
}

#[test]
fn flags_that_do_not_fit_are_bad_usage() {
    for (flags, expected) in [
        ("--task qa_1", "needs the data set SQuAD"),
        ("--task words", "unknown task `words`; accepted: single"),
        ("--task vt --keys 3", "`--keys` belongs to multi-key, multi-query, not to vt"),
        ("--hops 3", "`--hops` belongs to variable-tracking, not to single"),
        ("--task vt --depths 0.5", "has no depth"),
        ("--task multi-query --keys 2 --queries 3", "`--keys` must be at least the 3"),
        ("--task cwe --rare-repeats 30", "`--rare-repeats` must be smaller"),
        ("--task fwe --alpha 1", "`--alpha` must be above 1"),
        ("--depths 0,2", "`2` is not a depth"),
        ("--depths 0.5,0.5", "listed twice"),
        ("--lengths 0", "must be at least 1"),
        ("--needle text", "--question"),
        ("--max-new-tokens 2", "there is room for 2"),
        ("--threshold 101", "is not a score between 0 and 100"),
        ("--gate words>=1", "words"),
    ] {
        let (code, message) = failure(&format!("needle {flags}"));
        assert_eq!(code, 2, "{flags}: {message}");
        assert!(message.contains(expected), "{flags}: {message}");
    }
    let (code, message) = failure("needle --task cwe");
    assert!(
        code == 1 && message.contains("a length of 128 tokens is too short: this task needs at least"),
        "{message}"
    );
}

/// The secret code is FROG: a needle in the user's own words.
#[test]
fn a_needle_of_ones_own() {
    let custom = |more: &[&str]| {
        let mut command = ropex();
        command.args([
            "needle",
            "--lengths",
            "200",
            "--depths",
            "0.1,0.5,0.9",
            "--trials",
            "1",
            "--format",
            "json",
        ]);
        command.args(["--needle", "the secret code is FROG", "--question", "What is the secret code?"]);
        let output = command.args(["--answer", "FROG"]).args(more).output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        (serde_json::from_slice::<Value>(&output.stdout).unwrap()["result"].clone(), stderr(&output))
    };
    let (result, _) = custom(&[]);
    assert_eq!(result["task"], "custom");
    let depths: Vec<f64> = result["depths"].as_array().unwrap().iter().map(|d| d.as_f64().unwrap()).collect();
    assert_eq!(depths, [0.1, 0.5, 0.9]);
    let ranked = &result["cells"][1]["details"][0]["likelihood"][0];
    assert_eq!(ranked["answer"], "FROG");
    let decoy = ranked["best_decoy"].as_str().unwrap();
    assert!(decoy.chars().all(char::is_uppercase), "{decoy}");
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("decoys.txt");
    fs::write(&path, "TOAD\nHIPPOPOTAMUS\nFROG\n").unwrap();
    let (result, warned) = custom(&["--decoys", path.to_str().unwrap()]);
    assert_eq!(result["cells"][0]["details"][0]["likelihood"][0]["decoys"], 2);
    assert!(warned.contains("more or fewer tokens than the answer"), "{warned}");
}

#[test]
fn gates_hold_or_do_not() {
    let output = run(
        "needle --digits 4 --lengths 128 --trials 2 --score likelihood --gate needle>=0 needle@128<=0.01",
    );
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    assert!(stderr(&output).contains("gate failed: needle@128 ="), "{}", stderr(&output));
}

#[test]
fn formats_and_figures() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("figures");
    let base = "needle --digits 4 --lengths 128 --trials 1";
    let csv = success(&format!("{base} --format csv --figures {}", folder.display()));
    assert!(csv.starts_with("length,depth,likelihood %,likelihood 95 %,rank,margin,"), "{csv}");
    assert_eq!(csv.lines().count(), 4, "{csv}");
    for name in ["needle-likelihood", "needle-margin", "needle-generation", "needle-by-length"] {
        let drawn = fs::read_dir(&folder)
            .unwrap()
            .filter(|entry| entry.as_ref().unwrap().file_name().to_string_lossy().starts_with(name));
        assert!(drawn.count() >= 2, "{name}");
    }
    let text = success(base);
    assert!(text.contains("effective length by likelihood (at 85.6 %)"), "{text}");
    assert!(fixture("demo/demo.gguf").exists());
}
