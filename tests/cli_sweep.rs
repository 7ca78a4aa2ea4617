//! `ropex sweep`: grids that resume, shard and merge.

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use common::command::{failure, json, process, run, stderr, stdout, success, without_timing};
use common::fixture;
use serde_json::Value;

/// Six cells that take long enough to be killed in between.
const GRID: &str = "sweep --text demo/sample.txt --scaling none,linear,yarn --factor 4 --context 256,1k --allow-beyond \
    --max-windows 4 --no-timing --quiet";
const CELLS: usize = 6;

fn lines(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap_or_default();
    let whole = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
    whole.map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Starts a run that goes on while the test does something else.
fn start(arguments: &str) -> Child {
    let mut command = process();
    command.args(arguments.split_whitespace()).current_dir(fixture(""));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Waits until `path` holds `count` finished cells.
fn wait_for(path: &Path, count: usize, child: &mut Child) {
    while lines(path).len() < count {
        assert!(child.try_wait().unwrap().is_none(), "ended with {} cells", lines(path).len());
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn uninterrupted(dir: &Path) -> PathBuf {
    let path = dir.join("whole.jsonl");
    success(&format!("{GRID} --out {}", path.display()));
    assert_eq!(lines(&path).len(), CELLS);
    path
}

#[test]
fn killed_three_times_and_resumed_equals_uninterrupted() {
    let dir = tempfile::tempdir().unwrap();
    let whole = uninterrupted(dir.path());
    let path = dir.path().join("killed.jsonl");
    let arguments = format!("{GRID} --out {}", path.display());
    for count in [1, 2, 4] {
        let mut child = start(&arguments);
        wait_for(&path, count, &mut child);
        child.kill().unwrap();
        assert!(!child.wait().unwrap().success());
        let left = lines(&path).len();
        assert!((count..CELLS).contains(&left), "killed after {left} cells");
    }
    let resumed = json(&arguments);
    assert!(resumed["timing"]["resumed"].as_u64().unwrap() >= 4);
    assert_eq!(fs::read(&path).unwrap(), fs::read(&whole).unwrap());
    let again = json(&format!("{GRID} --out {}", whole.display()));
    assert_eq!(again["timing"]["resumed"], CELLS);
    assert_eq!(without_timing(resumed), without_timing(again));
}

#[test]
fn shards_merged_equal_one_run() {
    let dir = tempfile::tempdir().unwrap();
    let whole = uninterrupted(dir.path());
    let part = |index: usize| dir.path().join(format!("part-{index}.jsonl"));
    let children: Vec<Child> = (0..3)
        .map(|index| start(&format!("{GRID} --shard {index}/3 --out {}", part(index).display())))
        .collect();
    for child in children {
        assert!(child.wait_with_output().unwrap().status.success());
    }
    let parts: Vec<String> = [2, 0, 1].map(|index| part(index).display().to_string()).to_vec();
    let merged = dir.path().join("merged.jsonl");
    let result = json(&format!("sweep merge {} --out {}", parts.join(" "), merged.display()));
    assert_eq!(fs::read(&merged).unwrap(), fs::read(&whole).unwrap());
    assert_eq!(result["result"]["done_cells"], CELLS);
    let direct = json(&format!("{GRID} --out {}", whole.display()));
    assert_eq!(result["result"], direct["result"]);
    // A part more changes nothing; a changed result is a conflict.
    success(&format!("sweep merge {0} {0} --out {0}", merged.display()));
    assert_eq!(fs::read(&merged).unwrap(), fs::read(&whole).unwrap());
    let changed = fs::read_to_string(&whole).unwrap().replacen("\"ppl\":4.", "\"ppl\":5.", 1);
    let other = dir.path().join("other.jsonl");
    fs::write(&other, changed).unwrap();
    let (code, message) = failure(&format!("sweep merge {} {}", whole.display(), other.display()));
    assert_eq!(code, 1);
    assert!(message.contains("two results for none/ppl@256") && message.contains("other.jsonl"), "{message}");
}

#[test]
fn a_shard_that_holds_nothing_is_bad_usage() {
    let (code, message) =
        failure("sweep --measure memory --scaling linear --factor 2,3 --context 64,128,256 --shard 7/8");
    assert_eq!(code, 2);
    assert!(message.contains("shard 7 of 8 is empty: there are 6 cell(s)"), "{message}");
}

#[cfg(unix)]
#[test]
fn ctrl_c_prints_what_is_done_and_the_rest_follows() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("out.jsonl");
    let arguments = format!("{GRID} --out {}", path.display());
    let mut child = start(&format!("{arguments} --format json"));
    wait_for(&path, 2, &mut child);
    let sent = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", stderr(&output));
    let object: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(object["interrupted"], true);
    let done = object["result"]["cells"].as_array().unwrap().len();
    assert!((2..CELLS).contains(&done), "{done}");
    assert_eq!(lines(&path).len(), done);
    assert_eq!(json(&arguments)["result"]["done_cells"], CELLS);
}

/// D099, D086: a text that does not fill the context is not measured under its name, and does not stop the others.
#[test]
fn d099_d086_a_cell_that_fails_does_not_lose_the_others() {
    let dir = tempfile::tempdir().unwrap();
    let text = fs::read_to_string(fixture("demo/sample.txt")).unwrap();
    let short = dir.path().join("short.txt");
    fs::write(&short, text.chars().take(1200).collect::<String>()).unwrap();
    let out = dir.path().join("out.jsonl");
    let arguments = format!(
        "sweep --text {} --scaling yarn --factor 4 --context 128,1k --out {} --format json --quiet",
        short.display(),
        out.display()
    );
    let output = run(&arguments);
    assert_eq!(output.status.code(), Some(1));
    let object: Value = serde_json::from_str(&stdout(&output)).unwrap();
    let status: Vec<&Value> =
        object["result"]["cells"].as_array().unwrap().iter().map(|cell| &cell["status"]).collect();
    assert_eq!(status, ["done", "failed"]);
    let message = stderr(&output);
    assert!(message.contains("error: yarn-x4/ppl@1k: `short.txt` has "), "{message}");
    assert!(message.contains("of the 1024 tokens of the context"), "{message}");
    assert_eq!(lines(&out).len(), 2);
    // It is tried again, and the file keeps one line for it.
    let again: Value = serde_json::from_str(&stdout(&run(&arguments))).unwrap();
    assert_eq!(again["timing"]["resumed"], 1);
    assert_eq!(lines(&out).len(), 2);
}

/// Also `none`, which reads no factor, stands once.
#[test]
fn cells_beyond_the_limit_are_refused_and_said() {
    let arguments =
        "sweep --text demo/sample.txt --scaling none,yarn --factor 2,4 --context 512 --max-windows 1";
    let output = run(&format!("{arguments} --format json"));
    assert_eq!(output.status.code(), Some(0));
    assert!(
        stderr(&output)
            .contains("warning: none/ppl@512 is not measured: 512 tokens are needed, the limit is 256")
    );
    let object: Value = serde_json::from_str(&stdout(&output)).unwrap();
    let cells = object["result"]["cells"].as_array().unwrap();
    let names: Vec<(&str, &str)> = cells
        .iter()
        .map(|cell| (cell["label"].as_str().unwrap(), cell["status"].as_str().unwrap()))
        .collect();
    assert_eq!(names, [("none", "refused"), ("yarn-x2", "done"), ("yarn-x4", "done")]);
    assert!(cells[0]["error"].as_str().unwrap().contains("--allow-beyond"));
    let all = json(&format!("{arguments} --allow-beyond"));
    assert_eq!((&all["result"]["done_cells"], &all["result"]["refused_cells"]), (&3.into(), &0.into()));
}

#[test]
fn files_that_are_no_sweep_are_refused_and_stay() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("notes.md");
    let arguments = format!("{GRID} --out {}", path.display());
    fs::write(&path, "# Notes\n").unwrap();
    let (code, message) = failure(&arguments);
    assert_eq!(code, 1);
    assert!(message.contains("notes.md` holds no finished cells of a sweep"), "{message}");
    assert_eq!(fs::read_to_string(&path).unwrap(), "# Notes\n");
    let whole = uninterrupted(dir.path());
    let text = fs::read_to_string(&whole).unwrap();
    let first = text.lines().next().unwrap();
    fs::write(&path, format!("{}\n", first.replace("\"kv_type\":\"q16\"", "\"kv_type\":\"f16\""))).unwrap();
    let (_, message) = failure(&arguments);
    assert!(message.contains("line 1 of") && message.contains("does not belong to its inputs"), "{message}");
    // A line that a kill cut off is measured again.
    fs::write(&path, &text[..text.len() - 40]).unwrap();
    let resumed = json(&arguments);
    assert_eq!(resumed["timing"]["resumed"], CELLS - 1);
    assert_eq!(fs::read_to_string(&path).unwrap(), text);
}

#[test]
fn a_plan_measures_what_the_flags_do() {
    let dir = tempfile::tempdir().unwrap();
    fs::copy(fixture("demo/sample.txt"), dir.path().join("sample.txt")).unwrap();
    let plan = dir.path().join("plan.toml");
    let write = |text: &str| fs::write(&plan, text).unwrap();
    write(
        "scaling = [\"none\", \"yarn\"]\nfactor = [4]\ncontext = [256]\ntext = [\"sample.txt\"]\n[ppl]\nmax-windows = 2\n\
         [[rope]]\nname = \"sharp\"\nparameters = { rope_type = \"yarn\", factor = 4, beta_fast = 16 }\n",
    );
    let by_plan = json(&format!("sweep --plan {} --quiet", plan.display()));
    let flags =
        "sweep --text demo/sample.txt --scaling none,yarn --factor 4 --context 256 --max-windows 2 --quiet";
    let by_flags = json(flags);
    let cells = |object: &Value| object["result"]["cells"].as_array().unwrap().clone();
    let (planned, flagged) = (cells(&by_plan), cells(&by_flags));
    assert_eq!(planned.len(), 3);
    for cell in &flagged {
        assert!(planned.contains(cell), "{cell}");
    }
    let sharp = planned.iter().find(|cell| cell["label"] == "sharp").unwrap();
    assert_eq!(sharp["inputs"]["rope"]["beta_fast"], 16.0);
    for (text, expected) in [
        ("contexts = [256]", "unknown field `contexts`"),
        ("scaling = [\"yarn2\"]", "unknown scaling method `yarn2`"),
        ("scaling = [\"yarn\"]\ntext = [\"sample.txt\"]", "cannot use `yarn` at a context of 256"),
        ("factor = [2]\ntext = [\"sample.txt\"]", "`--factor` needs `--scaling`"),
        ("", "`--measure ppl` needs a text"),
    ] {
        write(text);
        let (code, message) = failure(&format!("sweep --plan {}", plan.display()));
        assert_eq!(code, 2, "{message}");
        assert!(message.contains(expected), "{text}: {message}");
    }
    let (code, message) = failure(&format!("sweep --plan {} --context 256", plan.display()));
    assert_eq!(code, 2);
    assert!(message.contains("cannot be used with"), "{message}");
    write("text = [\"missing.txt\"]");
    assert_eq!(failure(&format!("sweep --plan {}", plan.display())).0, 1);
}

/// D071: what a factor costs on short texts shows, and that nobody knows whether the checkpoint was tuned for it.
#[test]
fn d071_short_texts_under_a_factor_are_compared_with_none() {
    let arguments =
        "sweep --text demo/sample.txt --scaling none,yarn --factor 1,4 --context 64,128,256 --max-windows 6";
    let object = json(&format!("{arguments} --quiet"));
    assert_eq!(object["model"]["fine_tuned"], "unknown");
    let cells = object["result"]["cells"].as_array().unwrap();
    let ppl = |label: &str, context: u64| {
        let found = cells.iter().find(|cell| cell["label"] == label && cell["context"] == context).unwrap();
        found["result"]["ppl"].as_f64().unwrap()
    };
    for context in [64, 128, 256] {
        assert_eq!(ppl("yarn-x1", context), ppl("none", context));
        assert!(ppl("yarn-x4", context) > ppl("none", context));
    }
    let warnings = object["warnings"].to_string();
    assert!(warnings.contains("yarn-x4: `yarn` scaling with factor 4 is on although"), "{warnings}");
}

/// D060: one scaling is in force in each cell, and what it replaces is said.
#[test]
fn d060_every_cell_has_one_scaling_in_force() {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("config.json");
    let mut declared: Value =
        serde_json::from_slice(&fs::read(fixture("tiny/llama/config.json")).unwrap()).unwrap();
    declared["rope_parameters"]["rope_type"] = "linear".into();
    declared["rope_parameters"]["factor"] = 2.0.into();
    fs::write(&config, declared.to_string()).unwrap();
    let object = json(&format!(
        "sweep --scaling none,ntk,yarn --factor 4 --context 32 --measure memory --model tiny/llama --config {}",
        config.display()
    ));
    let warnings = object["warnings"].to_string();
    assert!(warnings.contains("ntk-x4: the checkpoint's `linear` scaling"), "{warnings}");
    for cell in object["result"]["cells"].as_array().unwrap() {
        assert_eq!(cell["inputs"]["rope"]["scaling"], cell["scaling"]);
        assert_eq!(cell["inputs"]["rope"]["factor"], cell["factor"]);
    }
}

/// D094, D086: every file is a text of its own, and a pooled row counts tokens.
#[test]
fn d094_files_are_scored_apart_and_pooled() {
    let dir = tempfile::tempdir().unwrap();
    let text = fs::read_to_string(fixture("demo/sample.txt")).unwrap();
    let files: Vec<String> = [("a.txt", 0, 3000), ("b.txt", 3000, 1500)]
        .map(|(name, from, count)| {
            let path = dir.path().join(name);
            fs::write(&path, text.chars().skip(from).take(count).collect::<String>()).unwrap();
            path.display().to_string()
        })
        .to_vec();
    let object = json(&format!("sweep --text {} --context 128 --quiet", files.join(" ")));
    let result = &object["result"]["cells"][0]["result"];
    let rows = result["per_file"].as_array().unwrap();
    assert_eq!((&rows[0]["file"], &rows[1]["file"]), (&"a.txt".into(), &"b.txt".into()));
    let of = |row: &Value, key: &str| row[key].as_f64().unwrap();
    assert_eq!(of(&rows[0], "tokens_scored") + of(&rows[1], "tokens_scored"), of(result, "tokens_scored"));
    let sum: f64 = rows.iter().map(|row| of(row, "nll") * of(row, "tokens_scored")).sum();
    assert!((sum / of(result, "tokens_scored") - of(result, "nll")).abs() < 1e-12);
}

/// D096: the same bytes in every rerun; D095: a line names rule, context, windows and text.
#[test]
fn d095_d096_reruns_write_the_same_self_describing_lines() {
    let dir = tempfile::tempdir().unwrap();
    let whole = uninterrupted(dir.path());
    let first = fs::read(&whole).unwrap();
    fs::remove_file(&whole).unwrap();
    assert_eq!(first, fs::read(uninterrupted(dir.path())).unwrap());
    let line = &lines(&whole)[0];
    assert_eq!(line["schema"], "ropex.sweep-cell/1");
    let inputs = &line["inputs"];
    assert_eq!((&inputs["context"], &inputs["ppl"]["rule"]), (&256.into(), &"strided".into()));
    assert_eq!((&inputs["ppl"]["stride"], &inputs["ppl"]["max_windows"]), (&128.into(), &4.into()));
    assert_eq!(inputs["ppl"]["texts"][0]["name"], "sample.txt");
    assert_eq!(line["result"]["windows"], 4);
    assert_eq!(line.get("timing"), None);
}

#[test]
fn gates_and_junit_speak_of_cells() {
    let dir = tempfile::tempdir().unwrap();
    let (out, xml) = (dir.path().join("out.jsonl"), dir.path().join("cells.xml"));
    let flags = format!("--out {} --junit {}", out.display(), xml.display());
    let gated = |gates: &str| run(&format!("{GRID} {flags} --gate {gates}"));
    let good = gated("yarn-x4/ppl@1k<linear-x4/ppl");
    assert_eq!(good.status.code(), Some(2), "a bound is a number: {}", stderr(&good));
    assert_eq!(gated("yarn-x4/ppl@1k<=50 failed_cells==0").status.code(), Some(0));
    let failed = gated("none/ppl@1k<=1");
    assert_eq!(failed.status.code(), Some(3));
    assert!(stderr(&failed).contains("gate failed: none/ppl@1k = "), "{}", stderr(&failed));
    let text = fs::read_to_string(&xml).unwrap();
    let document = roxmltree::Document::parse(&text).unwrap();
    let names: Vec<&str> = document
        .descendants()
        .filter(|n| n.has_tag_name("testcase"))
        .filter_map(|n| n.attribute("name"))
        .collect();
    assert_eq!(names.len(), CELLS + 1);
    assert_eq!((names[0], names[CELLS]), ("none/ppl@256", "none/ppl@1k<=1"));
    let unknown = gated("ppl@1k<=1");
    assert_eq!(unknown.status.code(), Some(2));
    assert!(stderr(&unknown).contains("`yarn-x4/ppl@1k`"), "{}", stderr(&unknown));
    // The same on files, without a model.
    let merge = |gate: &str| run(&format!("sweep merge {} --gate {gate}", out.display())).status.code();
    assert_eq!((merge("yarn-x4/ppl@1k<=50"), merge("yarn-x4/ppl@1k<=1")), (Some(0), Some(3)));
}

#[test]
fn needles_are_found_by_depth() {
    let arguments = "sweep --measure needle --scaling none,yarn --factor 4 --context 256,512 --allow-beyond --digits 4 \
        --trials 2 --depths 0,1 --quiet";
    let object = json(arguments);
    let cells = object["result"]["cells"].as_array().unwrap();
    assert_eq!(cells.len(), 4);
    for cell in cells {
        let result = &cell["result"];
        let depths = result["by_depth"].as_array().unwrap();
        assert_eq!(depths.len(), 2);
        let mean = depths.iter().map(|depth| depth["likelihood"].as_f64().unwrap()).sum::<f64>() / 2.0;
        assert!((result["needle"].as_f64().unwrap() - mean).abs() < 1e-12);
        assert!(result["computed_tokens"].as_u64().unwrap() < result["naive_tokens"].as_u64().unwrap());
    }
}

#[test]
fn speed_and_memory_are_measured() {
    let object = json("sweep --measure speed,memory --context 128,256 --quiet");
    let cells = object["result"]["cells"].as_array().unwrap();
    assert_eq!(cells.len(), 4);
    let memory = &cells[0]["result"];
    let parts = ["weights_bytes", "kv_bytes", "workspace_bytes"].map(|key| memory[key].as_u64().unwrap());
    assert_eq!(memory["total_bytes"].as_u64().unwrap(), parts.iter().sum::<u64>());
    assert_eq!(cells[1]["result"]["prefill_tokens"], 96);
    let timing = &object["timing"]["cells"]["as-declared/speed@256"];
    assert!(timing["prefill_tokens_per_s"].as_f64().unwrap() > 0.0);
    assert!(timing["decode_tokens_per_s"].as_f64().unwrap() > 0.0);
    assert!(object["timing"]["forecast_error"].is_number());
}
