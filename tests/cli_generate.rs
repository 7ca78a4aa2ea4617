//! `ropex generate` on committed checkpoints.

mod common;

use common::command::{failure, json, ropex, run, stderr, stdout, success, without_timing};

const TINY: &str = "--model tiny/llama --prompt context";

#[test]
fn streamed_text_is_the_text_of_the_result_and_reruns_are_identical() {
    let streamed = success(&format!("generate {TINY} --max-new-tokens 12"));
    let first = json(&format!("generate {TINY} --max-new-tokens 12"));
    let again = json(&format!("generate {TINY} --max-new-tokens 12"));
    assert_eq!(streamed.strip_suffix('\n').unwrap(), first["result"]["text"].as_str().unwrap());
    assert_eq!(without_timing(first.clone()), without_timing(again));
    let other = json(&format!("generate {TINY} --max-new-tokens 12 --seed 1"));
    assert_ne!(first["result"]["tokens"], other["result"]["tokens"]);
}

/// D027: what is streamed equals the decoded whole, whatever bytes the tokens split.
#[test]
fn d027_streamed_bytes_equal_the_text_over_many_seeds() {
    for seed in 0..5 {
        let arguments = format!("generate {TINY} --max-new-tokens 40 --ignore-eos --seed {seed}");
        let streamed = success(&arguments);
        let text = json(&arguments)["result"]["text"].as_str().unwrap().to_string();
        assert_eq!(streamed.trim_end_matches('\n'), text.trim_end_matches('\n'));
    }
}

#[test]
fn the_demo_is_used_without_a_model_and_says_so() {
    let output = run("generate --scaling yarn --factor 4 --max-new-tokens 4 --temperature 0");
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(!stdout(&output).trim().is_empty());
    let notes = stderr(&output);
    assert!(notes.contains("using the built-in demo checkpoint"), "{notes}");
    assert!(notes.contains("rope: yarn x4, original context 256"), "{notes}");
}

/// The sample prompt is longer than the trained context, and there is room for as many new tokens as are asked for.
#[test]
fn the_first_readme_command_goes_past_the_trained_length() {
    let result = json("generate --scaling yarn --factor 4")["result"].clone();
    let prompt = result["prompt_tokens"].as_u64().unwrap();
    assert!(prompt > 256, "{prompt}");
    assert_ne!(result["stop"], "limit");
    assert!(result["new_tokens"].as_u64().unwrap() > 100, "{result}");
}

/// D045, D075: a prompt beyond the limit is refused with both numbers; scaling or a flag lifts the limit.
#[test]
fn d045_d075_a_prompt_beyond_the_limit_is_refused_with_both_numbers() {
    let long = "word ".repeat(60);
    let generate = |more: &[&str]| {
        let base = ["generate", "--model", "tiny/llama", "--prompt", &long, "--max-new-tokens", "2"];
        ropex().args(base).args(more).output().unwrap()
    };
    let refused = generate(&[]);
    assert_eq!(refused.status.code(), Some(1));
    assert_eq!(stdout(&refused), "");
    let message = stderr(&refused);
    assert!(message.contains("tokens are needed, the limit is 64"), "{message}");
    assert!(message.contains("--factor auto") && message.contains("--allow-beyond"), "{message}");
    assert!(generate(&["--allow-beyond"]).status.success());
    assert!(generate(&["--scaling", "yarn", "--factor", "auto"]).status.success());
}

/// D072: generation stops at the limit, says so, and never shifts the context.
#[test]
fn d072_generation_stops_at_the_limit_with_the_reason() {
    let arguments = format!("generate {TINY} --max-new-tokens 500 --ignore-eos");
    let result = json(&arguments)["result"].clone();
    assert_eq!(result["stop"], "limit");
    let total = result["prompt_tokens"].as_u64().unwrap() + result["new_tokens"].as_u64().unwrap();
    assert_eq!(total, 64);
    let notes = stderr(&run(&arguments));
    assert!(notes.contains("warning: prompt") && notes.contains("the limit is 64"), "{notes}");
}

#[test]
fn stop_texts_end_the_generation_and_stay_out_of_the_result() {
    let arguments = format!("generate {TINY} --max-new-tokens 40 --temperature 0 --ignore-eos");
    let free = json(&arguments)["result"]["text"].as_str().unwrap().to_string();
    let stop: String = free.chars().skip(6).take(3).collect();
    let arguments = arguments.split(' ').map(str::to_string);
    let more = ["--stop".to_string(), stop.clone(), "--format".to_string(), "json".to_string()];
    let output = ropex().args(arguments.chain(more)).output().unwrap();
    let result = serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap()["result"].clone();
    assert_eq!(result["stop"], "stop-text");
    let text = result["text"].as_str().unwrap();
    assert!(free.starts_with(text) && !text.contains(&stop), "{text:?} {stop:?}");
}

#[test]
fn the_prompt_may_come_from_a_file_or_from_standard_input() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("prompt.txt");
    std::fs::write(&path, "context").unwrap();
    let flag = json(&format!("generate {TINY} --max-new-tokens 5"))["result"].clone();
    let file = format!("generate --model tiny/llama --prompt-file {} --max-new-tokens 5", path.display());
    assert_eq!(json(&file)["result"], flag);
    let piped = ropex()
        .args(["generate", "--model", "tiny/llama", "--max-new-tokens", "5", "--format", "json"])
        .write_stdin("context")
        .output()
        .unwrap();
    let piped: serde_json::Value = serde_json::from_slice(&piped.stdout).unwrap();
    assert_eq!(piped["result"], flag);
}

#[test]
fn chat_goes_through_the_template_of_a_folder_and_of_a_gguf() {
    for model in ["tiny/qwen2", "tiny/qwen2.gguf"] {
        let plain = json(&format!("generate --model {model} --prompt long --max-new-tokens 3"));
        let chat = json(&format!("generate --model {model} --chat --prompt long --max-new-tokens 3"));
        let count = |object: &serde_json::Value| object["result"]["prompt_tokens"].as_u64().unwrap();
        assert!(count(&chat) > count(&plain) + 6, "{model}");
    }
    let (code, message) = failure("generate --model tiny/llama --chat --prompt hi");
    assert_eq!(code, 1);
    assert!(message.contains("has no chat template"), "{message}");
}

#[test]
fn without_a_prompt_another_model_than_the_demo_is_refused() {
    let (code, message) = failure("generate --model tiny/llama");
    assert_eq!(code, 2);
    assert!(message.contains("there is no prompt") && message.contains("--prompt-file"), "{message}");
    let output = ropex().args(["generate", "--model", "tiny/qwen2", "--prompt", ""]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("the prompt is empty"));
}

#[test]
fn sampling_flags_are_checked() {
    for (flag, value) in [("--top-p", "0"), ("--top-p", "1.5"), ("--min-p", "2"), ("--temperature", "nan")] {
        let (code, message) = failure(&format!("generate {TINY} {flag} {value}"));
        assert_eq!(code, 2, "{message}");
        assert!(message.contains(flag), "{message}");
    }
    for flags in ["--top-k 1", "--top-p 0.5 --top-k 20", "--min-p 0.2", "--temperature 0"] {
        success(&format!("generate {TINY} --max-new-tokens 3 {flags}"));
    }
    // One candidate is the most likely token.
    let one = json(&format!("generate {TINY} --max-new-tokens 8 --top-k 1"));
    let greedy = json(&format!("generate {TINY} --max-new-tokens 8 --temperature 0"));
    assert_eq!(one["result"]["tokens"], greedy["result"]["tokens"]);
}

/// The first Ctrl-C ends a run with what it has so far, under an exit code of its own.
#[cfg(unix)]
#[test]
fn an_interrupted_generation_keeps_its_text() {
    use std::process::Stdio;
    let endless = "generate --prompt Once --max-new-tokens 100000 --allow-beyond --ignore-eos --format json";
    let mut command = common::command::process();
    command.args(endless.split(' ')).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let child = command.spawn().unwrap();
    // Long enough for the handler to be there, far too short for the tokens asked for.
    std::thread::sleep(std::time::Duration::from_millis(1500));
    let signal = std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    assert!(signal.unwrap().success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{output:?}");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["interrupted"], true);
    assert_eq!(report["result"]["stop"], "interrupted");
    assert!(!report["result"]["text"].as_str().unwrap().is_empty());
}
