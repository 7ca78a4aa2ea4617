//! The program as a user runs it, and its output with everything that differs between machines filtered out.

use std::process::Output;

use assert_cmd::Command;

use super::{chosen_isa, fixture};

/// `ropex` with no Hugging Face variable in its environment, on the chosen instruction set.
pub fn ropex() -> Command {
    let mut command = Command::cargo_bin("ropex").unwrap();
    for name in ["HF_HOME", "HF_HUB_CACHE", "HF_ENDPOINT", "HF_TOKEN", "HF_HUB_OFFLINE"] {
        command.env_remove(name);
    }
    command.env("COLUMNS", "100").args(isa_arguments()).current_dir(fixture(""));
    command
}

fn isa_arguments() -> Option<String> {
    chosen_isa().map(|isa| format!("--isa={}", isa.name()))
}

/// As [`ropex`], for a run that goes on while the test does something else.
pub fn process() -> std::process::Command {
    let mut command = std::process::Command::new(assert_cmd::cargo::cargo_bin("ropex"));
    command.args(isa_arguments());
    command
}

/// Runs `ropex` in the fixtures folder with these arguments, separated by white space.
pub fn run(arguments: &str) -> Output {
    ropex().args(arguments.split_whitespace()).output().unwrap()
}

pub fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// Standard output of a run that succeeds.
pub fn success(arguments: &str) -> String {
    let output = run(arguments);
    assert!(output.status.success(), "{arguments}: {}", stderr(&output));
    stdout(&output)
}

/// Exit code and standard error of a run that fails and prints no result.
pub fn failure(arguments: &str) -> (i32, String) {
    let output = run(arguments);
    assert_eq!(stdout(&output), "", "{arguments}");
    (output.status.code().unwrap(), stderr(&output))
}

/// The JSON object of a run that succeeds.
pub fn json(arguments: &str) -> serde_json::Value {
    serde_json::from_str(&success(&format!("{arguments} --format json"))).unwrap()
}

/// Rounds every number to ten significant digits: the last bits of powers and logarithms belong to the platform.
pub fn rounded(value: serde_json::Value) -> serde_json::Value {
    use serde_json::Value;
    match value {
        Value::Number(number) if number.is_f64() => {
            let text = format!("{:.9e}", number.as_f64().unwrap());
            Value::from(text.parse::<f64>().unwrap())
        }
        Value::Array(list) => list.into_iter().map(rounded).collect(),
        Value::Object(object) => object.into_iter().map(|(key, value)| (key, rounded(value))).collect(),
        other => other,
    }
}

/// Replaces the timing of a JSON object, the only part that differs between reruns.
pub fn without_timing(mut object: serde_json::Value) -> serde_json::Value {
    if let Some(timing) = object.get_mut("timing") {
        *timing = "filtered".into();
    }
    object
}
