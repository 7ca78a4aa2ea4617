//! `ropex lab` at sizes that take a moment.

mod common;

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::command::{failure, json, ropex, run, stderr, stdout, success, without_timing};
use serde_json::Value;

const TINY: &str = "--layers 1 --width 16 --heads 2 --context 16 --batch 2 --warmup 2";

#[test]
fn check_prints_every_identity_with_its_bound() {
    let result = json("lab check")["result"].clone();
    let checks = result["checks"].as_array().unwrap();
    assert!(checks.len() > 20, "{}", checks.len());
    assert_eq!(result["holding"].as_u64(), Some(checks.len() as u64));
    assert!(checks.iter().all(|check| check["holds"] == true));
    let text = success("lab check --format csv");
    assert_eq!(text.lines().count(), checks.len() + 1);
    assert_ne!(json("lab check --seed 1")["result"]["checks"], result["checks"]);
}

#[test]
fn train_reports_losses_and_repeats_itself() {
    let arguments = format!("lab train --encoding t5 --steps 30 {TINY}");
    let object = without_timing(json(&arguments));
    assert_eq!(object, without_timing(json(&arguments)));
    let result = &object["result"];
    assert_eq!((&result["encoding"], result["steps_done"].as_u64()), (&Value::from("t5"), Some(30)));
    let losses = result["losses"].as_array().unwrap();
    let at = |index: usize| losses[index].as_f64().unwrap();
    assert!(losses.len() == 30 && at(29) < at(0), "{} {}", at(0), at(29));
    assert_ne!(json(&format!("{arguments} --seed 1"))["result"]["losses"], result["losses"]);
    assert!(success(&arguments).starts_with("t5, seed 0, "));
}

fn compare(flags: &str) -> Value {
    json(&format!(
        "lab compare --encodings none,learned,rope --seeds 2 --steps 20 --windows 10 {TINY} {flags}"
    ))
}

#[test]
fn compare_measures_every_length_and_says_where_learned_positions_end() {
    let dir = tempfile::tempdir().unwrap();
    let object = compare(&format!("--figures {}", dir.path().display()));
    let result = &object["result"];
    assert_eq!((result["finished_runs"].as_u64(), result["tokens_scored"].as_u64()), (Some(6), Some(40)));
    let rows = result["encodings"].as_array().unwrap();
    let lengths: Vec<u64> =
        rows[0]["by_length"].as_array().unwrap().iter().map(|at| at["length"].as_u64().unwrap()).collect();
    assert_eq!(lengths, [8, 16, 32, 64, 128]);
    let learned = &rows[1]["by_length"];
    assert_eq!(learned[1]["ppl"]["per_seed"].as_array().unwrap().len(), 2);
    assert!(learned[2]["ppl"].is_null());
    assert!(learned[2]["reason"].as_str().unwrap().contains("learned positions end at 16"));
    let scaled = result["scaled"].as_array().unwrap();
    assert_eq!(scaled.len(), 12);
    assert!(scaled.iter().all(|row| row["ppl"]["mean"].as_f64().unwrap() > 1.0));
    for name in ["lab-encodings", "lab-scaling-rope"] {
        let of = |file: &str| file.starts_with(name);
        let count = std::fs::read_dir(dir.path())
            .unwrap()
            .filter(|entry| of(&entry.as_ref().unwrap().file_name().to_string_lossy()))
            .count();
        assert_eq!(count, 4, "{name}");
    }
}

#[test]
fn compare_goes_on_with_what_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let out = format!("--out {}", dir.path().display());
    let whole = without_timing(compare(""));
    assert_eq!(without_timing(compare(&out)), whole);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 6);
    std::fs::remove_file(dir.path().join("rope-seed1.safetensors")).unwrap();
    assert_eq!(without_timing(compare(&out)), whole);
    let (code, message) =
        failure(&format!("lab compare --encodings rope --steps 21 --windows 10 {TINY} {out}"));
    assert_eq!(code, 2);
    assert!(message.contains("`steps` 20, asked for 21"), "{message}");
}

/// Killed without warning in the middle, started again: the file of an unbroken run, byte for byte.
#[cfg(unix)]
#[test]
fn a_killed_run_goes_on_and_ends_with_the_same_file() {
    let dir = tempfile::tempdir().unwrap();
    let start = |folder: &Path| {
        let arguments =
            format!("lab train --steps 3000 --save-every 40 --quiet {TINY} --out {}", folder.display());
        let program = ropex().get_program().to_os_string();
        let mut command = Command::new(program);
        command.args(arguments.split_whitespace()).stdout(Stdio::null()).stderr(Stdio::null());
        command
    };
    let [whole, killed] = ["whole", "killed"].map(|name| dir.path().join(name));
    assert!(start(&whole).status().unwrap().success());
    let file = killed.join("checkpoint.safetensors");
    let mut child = start(&killed).spawn().unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    while !file.exists() {
        assert!(Instant::now() < deadline, "no checkpoint within a minute");
        std::thread::sleep(Duration::from_millis(1));
    }
    child.kill().unwrap();
    assert!(!child.wait().unwrap().success(), "it ended before it was killed");
    let part = std::fs::read(&file).unwrap();
    assert!(start(&killed).status().unwrap().success());
    let read = |folder: &Path| std::fs::read(folder.join("checkpoint.safetensors")).unwrap();
    assert_ne!(part, read(&whole));
    assert!(read(&killed) == read(&whole), "the weights differ");
}

/// Ctrl-C keeps the run, prints what there is and exits with 130.
#[cfg(unix)]
#[test]
fn an_interrupted_run_keeps_what_it_has() {
    let dir = tempfile::tempdir().unwrap();
    let arguments = format!(
        "lab train --steps 1000000 --save-every 10 --format json {TINY} --out {}",
        dir.path().display()
    );
    let mut command = Command::new(ropex().get_program());
    command.args(arguments.split_whitespace()).stdout(Stdio::piped()).stderr(Stdio::null());
    let child = command.spawn().unwrap();
    let file = dir.path().join("checkpoint.safetensors");
    let deadline = Instant::now() + Duration::from_secs(60);
    while !file.exists() {
        assert!(Instant::now() < deadline, "no checkpoint within a minute");
        std::thread::sleep(Duration::from_millis(1));
    }
    let signalled = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(signalled.success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    let object: Value = serde_json::from_slice(&output.stdout).unwrap();
    let steps = object["result"]["steps_done"].as_u64().unwrap();
    assert!(object["interrupted"] == true && (10..1_000_000).contains(&steps), "{steps}");
}

#[test]
fn sizes_that_fit_nothing_are_bad_usage() {
    for (flags, expected) in [
        ("train --width 30 --heads 4", "`width` must be a multiple of 8"),
        ("train --context 2", "`context` must be at least 4"),
        ("train --steps 0", "`steps` must be at least 1"),
        ("train --warmup 9999", "`warmup` must be below"),
        ("train --learning-rate nan", "`learning_rate` must be a finite number above 0"),
        ("train --rope-theta 1", "`rope_theta`"),
        ("train --encoding relative", "unknown encoding `relative`; accepted: none, sinusoidal"),
        ("train --save-every 5", "--out"),
        ("train --device cuda", "CPU only"),
        ("train --engine cpu", "no gradients"),
        ("compare --encodings rope,rope", "`rope` is listed twice"),
        ("compare --factors 0.5", "`factors` must be between 1 and 1024"),
        ("compare --lengths 4", "`lengths` must be at least"),
        ("compare --seeds 0", "at least 1"),
    ] {
        let (code, message) = failure(&format!("lab {flags}"));
        assert_eq!(code, 2, "{flags}: {message}");
        assert!(message.contains(expected), "{flags}: {message}");
    }
}

#[test]
fn texts_that_do_not_suffice_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("short.txt");
    std::fs::write(&path, "to be or not to be ".repeat(20)).unwrap();
    let (code, message) = failure(&format!("lab compare {TINY} --text {}", path.display()));
    assert_eq!(code, 1);
    assert!(message.contains("needs at least 129 bytes of text, found 38"), "{message}");
    let output = run(&format!("lab train --steps 3 {TINY} --text {}", path.display()));
    assert!(output.status.success() && !stdout(&output).is_empty(), "{}", stderr(&output));
    let (code, message) = failure("lab train --text /no/such/file");
    assert!(code == 1 && message.contains("/no/such/file"), "{message}");
}
