//! The steps of `docs/ci.md`, run as they stand there.

mod common;

use std::fs;
use std::process::Command;

use common::fixture;

/// The shell block after the words about steps without a runner.
fn steps() -> String {
    let text = fs::read_to_string(fixture("../docs/ci.md")).unwrap();
    let (_, after) = text.split_once("The same steps without a runner").unwrap();
    let (_, block) = after.split_once("```sh\n").unwrap();
    block.split_once("```").unwrap().0.to_string()
}

#[cfg(unix)]
#[test]
fn the_steps_of_the_workflow_run() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir_all(dir.path().join("fixtures/demo")).unwrap();
    fs::copy(fixture("demo/sample.txt"), dir.path().join("fixtures/demo/sample.txt")).unwrap();
    let program = assert_cmd::cargo::cargo_bin("ropex");
    let path = format!("{}:{}", program.parent().unwrap().display(), std::env::var("PATH").unwrap());
    let run = |script: &str| {
        let output = Command::new("sh")
            .args(["-c", script])
            .current_dir(dir.path())
            .env("PATH", &path)
            .output()
            .unwrap();
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    let (printed, notes) = run(&steps());
    assert!(printed.contains("exit code 0"), "{printed} {notes}");
    let summary = fs::read_to_string(dir.path().join("step-summary.md")).unwrap();
    assert!(summary.starts_with("## ropex ppl\n"), "{summary}");
    assert!(summary.contains("| ppl&lt;=12.5 | pass |"), "{summary}");
    let junit = fs::read_to_string(dir.path().join("gates.xml")).unwrap();
    let document = roxmltree::Document::parse(&junit).unwrap();
    let suite = document.descendants().find(|node| node.has_tag_name("testsuite")).unwrap();
    assert_eq!((suite.attribute("tests"), suite.attribute("failures")), (Some("2"), Some("0")));
    // A change for the worse: the step fails, and the files are there all the same.
    let (printed, notes) = run(&steps().replace("ppl<=12.5", "ppl<=1.5"));
    assert!(printed.contains("exit code 3") && notes.contains("gate failed: ppl = "), "{printed} {notes}");
    let summary = fs::read_to_string(dir.path().join("step-summary.md")).unwrap();
    assert!(summary.contains("| ppl&lt;=1.5 | FAIL |"), "{summary}");
}
