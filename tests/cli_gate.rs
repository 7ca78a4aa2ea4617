//! `--gate` and `--junit`: conditions on a result.

mod common;

use std::fs;
use std::path::Path;

use common::command::{failure, json, ropex, run, stderr, stdout, success};
use serde_json::Value;

const PPL: &str = "ppl --text demo/sample.txt --context 256 --max-windows 2";

/// Exit code, standard output and standard error of [`PPL`] with these gates.
fn gated(gates: &[&str], flags: &str) -> (i32, String, String) {
    let mut command = ropex();
    command.args(PPL.split_whitespace()).arg("--gate").args(gates).args(flags.split_whitespace());
    let output = command.output().unwrap();
    (output.status.code().unwrap(), stdout(&output), stderr(&output))
}

fn ppl() -> f64 {
    json(PPL)["result"]["ppl"].as_f64().unwrap()
}

#[test]
fn gates_that_hold_change_nothing_but_the_report() {
    let (code, text, messages) = gated(&["ppl<=1000", "ppl@256>0", "tokens_scored==383"], "--format json");
    assert_eq!(code, 0, "{messages}");
    let object: Value = serde_json::from_str(&text).unwrap();
    let gates = object["result"]["gates"].as_array().unwrap();
    assert_eq!(gates.len(), 3);
    assert!(gates.iter().all(|gate| gate["holds"] == true));
    assert_eq!(gates[0]["value"], object["result"]["ppl"]);
    assert!(!messages.contains("gate failed"), "{messages}");
}

#[test]
fn a_gate_that_does_not_hold_prints_the_result_and_ends_with_3() {
    let (code, text, messages) = gated(&["ppl<=1.5", "nll<100"], "--format json");
    assert_eq!(code, 3, "{messages}");
    let object: Value = serde_json::from_str(&text).unwrap();
    let holds: Vec<_> = object["result"]["gates"].as_array().unwrap().iter().map(|g| &g["holds"]).collect();
    assert_eq!(holds, [false, true]);
    let failed: Vec<&str> = messages.lines().filter(|line| line.starts_with("gate failed: ")).collect();
    assert_eq!(failed.len(), 1);
    assert!(failed[0].starts_with("gate failed: ppl = 4.2") && failed[0].ends_with(", wanted <= 1.5"));
    let (code, text, _) = gated(&["ppl<=1.5"], "--format markdown");
    assert_eq!(code, 3);
    assert!(text.starts_with("## ropex ppl\n"), "{text}");
    assert!(text.contains("| ppl&lt;=1.5 | FAIL | 4.2"), "{text}");
}

#[test]
fn gates_compare_with_an_earlier_result() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("base.json");
    success(&format!("{PPL} --format json --output {}", file.display()));
    let baseline = format!("--gate-baseline {}", file.display());
    assert_eq!(gated(&["ppl<=1.05*baseline", "ppl@256==baseline"], &baseline).0, 0);
    let (code, _, messages) = gated(&["ppl<=90%*baseline"], &baseline);
    assert_eq!(code, 3);
    assert!(messages.contains("(0.9 * baseline 4.2"), "{messages}");
    let (code, text, messages) = gated(&["ppl<=baseline"], "");
    assert_eq!((code, text.as_str()), (2, ""));
    assert!(messages.contains("there is none") && messages.contains("--gate-baseline FILE"), "{messages}");
    // A result of another command, and a file that is none.
    for (content, expected) in [
        (r#"{"schema": "ropex.bench/1"}"#, "has the schema `ropex.bench/1`, `ropex.ppl/1` is needed"),
        ("ppl 12", "is not a JSON result of ropex"),
        (r#"{"schema": "ropex.ppl/1", "result": {}}"#, "which has nothing"),
    ] {
        fs::write(&file, content).unwrap();
        let (code, text, messages) = gated(&["ppl<=baseline"], &baseline);
        assert!(code != 0 && text.is_empty() && messages.contains(expected), "{messages}");
    }
}

#[test]
fn gates_on_what_is_not_measured_are_bad_usage_before_the_run() {
    for (gate, expected) in [
        ("needle>=1", "names `needle`, which this run does not measure; it measures `ppl`, `ppl@256`, `nll`"),
        ("ppl@512<=1", "names `ppl@512`"),
        ("ppl", "`ppl` has no comparison"),
        ("ppl<=twelve", "`twelve` is not a bound"),
    ] {
        let (code, text, messages) = gated(&[gate], "");
        assert_eq!((code, text.as_str()), (2, ""), "{messages}");
        assert!(messages.contains(expected), "{messages}");
    }
    let (code, message) = failure(&format!("{PPL} --junit x.xml"));
    assert_eq!(code, 2);
    assert!(message.contains("nothing to report without `--gate`"), "{message}");
    assert_eq!(failure(&format!("{PPL} --gate-baseline x.json")).0, 2);
}

/// Name, and message of the failure, of every test case, read by a parser that shares nothing with the writer.
fn cases(file: &Path) -> Vec<(String, Option<String>)> {
    let text = fs::read_to_string(file).unwrap();
    let document = roxmltree::Document::parse(&text).unwrap();
    let cases = document.descendants().filter(|node| node.has_tag_name("testcase"));
    let read = |case: roxmltree::Node| {
        let failure = case.children().find(|node| node.has_tag_name("failure"));
        let message = failure.map(|node| node.attribute("message").unwrap().to_string());
        (case.attribute("name").unwrap().to_string(), message)
    };
    cases.map(read).collect()
}

#[test]
fn junit_holds_one_case_per_gate() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("gates.xml");
    let flags = format!("--junit {}", file.display());
    assert_eq!(gated(&["ppl<=1000", "ppl<1"], &flags).0, 3);
    let found = cases(&file);
    assert_eq!(found[0], ("ppl<=1000".to_string(), None));
    let (name, message) = &found[1];
    let message = message.as_deref().unwrap();
    assert_eq!(name, "ppl<1");
    assert!(message.starts_with(&format!("ppl = {:.2}", ppl())) && message.ends_with("wanted < 1"));
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "no temporary file stays");
    let missing = dir.path().join("no/such/folder.xml").display().to_string();
    let output = run(&format!("{PPL} --gate ppl<1000 --junit {missing}"));
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("cannot write"), "{}", stderr(&output));
}
