//! Files of token losses: what `ropex ppl --save-nll` writes, and what `--baseline` compares.

mod common;

use std::fs;

use common::command::{failure, json, stderr, success};
use common::fixture;
use common::texts::two_texts;
use safetensors::SafeTensors;
use serde_json::{Value, json};

const TEXT: &str = "demo/sample.txt";

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value}"))
}

/// Losses saved by a run and read back by another are those of its result.
#[test]
fn saved_losses_hold_every_scored_token() {
    let dir = tempfile::tempdir().unwrap();
    let texts = two_texts(dir.path());
    let file = dir.path().join("losses.nll");
    let command = format!("ppl --text {texts} --context 128 --stride 64 --save-nll {}", file.display());
    let result = json(&command)["result"].clone();
    assert_eq!(result["saved_nll"], file.display().to_string());
    let bytes = fs::read(&file).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let words = |name: &str| -> Vec<[u8; 4]> { tensors.tensor(name).unwrap().data().as_chunks().0.to_vec() };
    let nll: Vec<f64> = words("nll").into_iter().map(|word| f64::from(f32::from_le_bytes(word))).collect();
    let integers = |name: &str| -> Vec<u32> { words(name).into_iter().map(u32::from_le_bytes).collect() };
    assert_eq!(nll.len() as f64, number(&result["tokens_scored"]));
    assert!((nll.iter().sum::<f64>() / nll.len() as f64 - number(&result["nll"])).abs() < 1e-9);
    let documents = integers("document");
    assert_eq!((documents[0], *documents.last().unwrap()), (0, 1));
    let ids = json("tokenize --bos never --file demo/sample.txt")["result"]["ids"].clone();
    let first = ids.as_array().unwrap()[integers("token")[5] as usize].as_u64().unwrap();
    assert_eq!(u64::from(integers("token_id")[5]), first);
    assert_eq!(integers("position")[..3], [1, 2, 3]);
    json(&command);
    assert_eq!(bytes, fs::read(&file).unwrap());
}

/// A paired difference is the difference of the means, and far surer than either.
#[test]
fn a_baseline_is_compared_token_by_token() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    let base = format!("ppl --text {TEXT} --context 512 --max-windows 12");
    let plain = json(&format!("{base} --allow-beyond --save-nll {}", path("plain.nll")))["result"].clone();
    let yarn = format!("{base} --scaling yarn --factor 2 --by-position --baseline {}", path("plain.nll"));
    let result = json(&yarn)["result"].clone();
    let found = &result["baseline"];
    let expected = number(&result["nll"]) - number(&plain["nll"]);
    assert!((number(&found["difference"]) - expected).abs() < 1e-6, "{found}");
    assert!((number(&found["nll"]) - number(&plain["nll"])).abs() < 1e-6);
    assert_eq!(found["significant"], true);
    assert!(number(&found["difference_ci"][1]) < 0.0 && expected < 0.0, "{found}");
    assert_eq!(found["by_position"]["positions"], result["by_position"]["positions"]);
    assert!(success(&yarn).contains("better than the baseline"));
    // The same run against itself, by way of its JSON result.
    let first = path("first.json");
    success(&format!(
        "{base} --allow-beyond --save-nll {} --format json --output {first}",
        path("plain.nll")
    ));
    let same = json(&format!("{base} --allow-beyond --baseline {first}"))["result"]["baseline"].clone();
    assert_eq!((&same["difference"], &same["difference_ci"]), (&json!(0.0), &json!([0.0, 0.0])));
    assert_eq!(same["significant"], false);
}

/// Other tokens, windows or tokenizers are refused with what differs, before any weight is read.
#[test]
fn a_baseline_of_other_tokens_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    let nll = path("first.nll");
    let base = format!("ppl --text {TEXT} --max-windows 4");
    json(&format!("{base} --context 128 --save-nll {nll}"));
    let other = path("other.txt");
    fs::write(&other, "The word of the king was written in the book of the land.\n".repeat(200)).unwrap();
    let plain_json = path("plain.json");
    success(&format!("{base} --context 128 --format json --output {plain_json}"));
    let broken = path("broken.nll");
    fs::write(&broken, &fs::read(&nll).unwrap()[..500]).unwrap();
    for (arguments, expected) in [
        (format!("{base} --context 64 --baseline {nll}"), "`context` was `128`, now it is `64`"),
        (format!("{base} --context 128 --stride 32 --baseline {nll}"), "`stride` was `64`, now it is `32`"),
        (format!("{base} --context 128 --rule hf --baseline {nll}"), "`rule` was `strided`, now it is `hf`"),
        (
            format!("{base} --context 128 --bos never --baseline {nll}"),
            "`bos` was `always`, now it is `never`",
        ),
        (
            format!("ppl --text {TEXT} --max-windows 5 --context 128 --baseline {nll}"),
            "scored tokens, this run has",
        ),
        (
            format!("ppl --text {other} --max-windows 4 --context 128 --baseline {nll}"),
            "had other tokens than",
        ),
        (
            format!("{base} --context 128 --model tiny/llama.gguf --allow-beyond --baseline {nll}"),
            "`tokenizer` was",
        ),
        (format!("{base} --context 128 --baseline {plain_json}"), "names no saved losses"),
        (format!("{base} --context 128 --baseline {broken}"), "no safetensors file"),
        (format!("{base} --context 128 --baseline /no/such/file"), "cannot read `/no/such/file`"),
    ] {
        let (code, message) = failure(&arguments);
        assert_eq!(code, 1, "{arguments}: {message}");
        assert!(message.contains(expected), "{arguments}: {message}");
    }
}

/// D091, D085: rule yarn is the plain mean of window means over all windows of all texts.
#[test]
fn d085_d091_rule_yarn_is_the_mean_of_window_means() {
    let dir = tempfile::tempdir().unwrap();
    let texts = two_texts(dir.path());
    let file = dir.path().join("losses.nll");
    let result = json(&format!(
        "ppl --text {texts} --rule yarn --context 512 --scaling yarn --factor 2 --save-nll {}",
        file.display()
    ))["result"]
        .clone();
    assert_eq!((&result["stride"], &result["bos"]), (&json!(256), &json!("always")));
    let bytes = fs::read(&file).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let words = |name: &str| -> Vec<[u8; 4]> { tensors.tensor(name).unwrap().data().as_chunks().0.to_vec() };
    let mut windows: Vec<((u32, u32), f64, f64)> = Vec::new();
    for ((nll, document), window) in words("nll").into_iter().zip(words("document")).zip(words("window")) {
        let key = (u32::from_le_bytes(document), u32::from_le_bytes(window));
        if windows.last().is_none_or(|last| last.0 != key) {
            windows.push((key, 0.0, 0.0));
        }
        let last = windows.last_mut().unwrap();
        last.1 += f64::from(f32::from_le_bytes(nll));
        last.2 += 1.0;
    }
    let mean = windows.iter().map(|(_, sum, count)| sum / count).sum::<f64>() / windows.len() as f64;
    assert_eq!(windows.len() as f64, number(&result["windows"]));
    assert!((mean - number(&result["nll"])).abs() < 1e-9, "{mean} {result}");
    assert!((number(&result["token_nll"]) - number(&result["nll"])).abs() > 1e-6);
}

/// Ctrl-C ends a run with the figures of what was scored until then, and says so.
#[cfg(unix)]
#[test]
fn an_interrupted_run_reports_what_it_has() {
    use std::process::Stdio;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("partial.nll");
    // 12 000 windows: far more than the time until the signal.
    let endless =
        format!("ppl --text {TEXT} --context 256 --stride 1 --by-position --format json --save-nll");
    let mut command = common::command::process();
    command.args(endless.split(' ')).arg(&file).current_dir(fixture(""));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    std::thread::sleep(std::time::Duration::from_millis(2500));
    let signal = std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    assert!(signal.unwrap().success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["interrupted"], true);
    assert!(number(&report["result"]["tokens_scored"]) > 0.0);
    assert!(!report["result"]["by_position"]["nll"].as_array().unwrap().is_empty());
    assert!(stderr(&output).contains("interrupted: the figures are of the"), "{}", stderr(&output));
    // Its losses are kept, and are no baseline for the whole run.
    let (code, message) =
        failure(&format!("ppl --text {TEXT} --context 256 --stride 1 --baseline {}", file.display()));
    assert_eq!(code, 1);
    assert!(message.contains("(it was interrupted)"), "{message}");
}
