//! `ropex ppl` beyond one number: positions, curves, gain, windows, intervals.

mod common;

use std::fs;
use std::path::PathBuf;

use common::command::{failure, json, run, stderr, success, without_timing};
use common::fixture;
use common::texts::two_texts;
use serde_json::{Value, json};

const TEXT: &str = "demo/sample.txt";

/// Largest relative difference of a perplexity read off a curve from that of a run at its length.
const CURVE_TOLERANCE: f64 = 1e-4;

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect()
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value}"))
}

#[test]
fn positions_share_out_the_tokens_and_the_loss() {
    let result =
        json(&format!("ppl --text {TEXT} --context 256 --max-windows 12 --by-position"))["result"].clone();
    let found = &result["by_position"];
    let (tokens, nll) = (numbers(&found["tokens"]), numbers(&found["nll"]));
    assert_eq!(numbers(&found["positions"]), [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0]);
    assert_eq!(numbers(&found["last_positions"])[7], 255.0);
    assert_eq!(tokens.iter().sum::<f64>(), number(&result["tokens_scored"]));
    let mean = tokens.iter().zip(&nll).map(|(n, x)| n * x).sum::<f64>() / tokens.iter().sum::<f64>();
    assert!((mean - number(&result["token_nll"])).abs() < 1e-9);
    assert!(nll[0] > nll[7], "a model without context knows less: {nll:?}");
    assert!(number(&found["nll_low"][7]) < nll[7] && nll[7] < number(&found["nll_high"][7]));
    let fine = json(&format!("ppl --text {TEXT} --context 256 --max-windows 2 --by-position=2"));
    let buckets = |object: &Value| object["result"]["by_position"]["positions"].as_array().unwrap().len();
    assert!(buckets(&fine) > 8, "{fine}");
}

/// What the demo shows: without scaling the context ends where the training did, with YaRN it goes on.
#[test]
fn the_effective_context_of_the_demo_ends_where_it_was_trained_and_yarn_stretches_it() {
    let effective = |flags: &str| {
        let base = format!("ppl --text {TEXT} --context 1024 --by-position {flags}");
        json(&base)
    };
    let plain = effective("--allow-beyond --stride 1023");
    assert_eq!(plain["result"]["effective_context"], json!({"tokens": 256, "ended_by": "worse"}));
    let yarn = effective("--scaling yarn --factor 4 --stride 1023")["result"]["effective_context"].clone();
    assert!(number(&yarn["tokens"]) >= 512.0, "{yarn}");
    // Overlapping windows score few early positions, and the warning says what to do.
    let overlapping = effective("--allow-beyond");
    assert_eq!(overlapping["result"]["effective_context"], Value::Null);
    assert!(overlapping["warnings"][0].as_str().unwrap().contains("`--stride 1023`"), "{overlapping}");
}

/// One pass gives what a run at each length gives; where frequencies follow the length, there are as many passes as tables.
#[test]
fn a_curve_equals_separate_runs_at_every_length() {
    let dir = tempfile::tempdir().unwrap();
    let texts = two_texts(dir.path());
    let lengths = [100, 256, 700, 1024];
    for (flags, passes) in [
        ("--scaling yarn --factor 4", 1),
        ("--scaling yarn --factor 4 --rule hf --bos never", 1),
        ("--scaling linear --factor 4 --rule yarn", 1),
        ("--scaling dynamic-ntk --factor 4", 3),
    ] {
        let base = format!("ppl --text {texts} {flags}");
        let curve = json(&format!("{base} --curve 100,256,700,1k"))["result"].clone();
        assert_eq!(numbers(&curve["curve"]["positions"]), lengths.map(f64::from));
        assert_eq!(curve["curve"]["passes"], passes, "{flags}");
        for (index, length) in lengths.iter().enumerate() {
            let alone = format!("{base} --context {length} --max-windows 1");
            let stride =
                if flags.contains("rule yarn") { format!("--stride {length}") } else { String::new() };
            let alone = json(&format!("{alone} {stride}"))["result"].clone();
            let (found, expected) = (number(&curve["curve"]["ppl"][index]), number(&alone["ppl"]));
            let difference = (found / expected - 1.0).abs();
            assert!(difference < CURVE_TOLERANCE, "{flags}, {length}: {found} {expected}");
            assert_eq!(curve["curve"]["tokens"][index], alone["tokens_scored"], "{flags}, {length}");
        }
        assert_eq!(curve["curve"]["full_windows"], json!([2, 2, 1, 1]), "{flags}");
        assert!((number(&curve["nll"]) - number(&curve["curve"]["nll"][3])).abs() < 1e-12);
    }
}

#[test]
fn a_curve_of_its_own_lengths_reaches_the_context_and_gates_read_it() {
    let base = format!("ppl --text {TEXT} --context 1k --scaling yarn --factor 4 --curve auto");
    let result = json(&format!("{base} --gate ppl@512<=1000 ppl@1k<=1000"))["result"].clone();
    assert_eq!(numbers(&result["curve"]["positions"]), [64.0, 128.0, 256.0, 512.0, 1024.0]);
    assert_eq!(result["gates"][0]["value"], result["curve"]["ppl"][3]);
    let csv = success(&format!("{base} --format csv"));
    assert!(csv.starts_with("length,ppl,low,high,nll,tokens,windows\n64,"), "{csv}");
    for (flags, expected) in [
        ("--curve 1,64", "a length of 1 tokens is too short"),
        ("--curve 64 --stride 8", "`--stride` has no meaning"),
        ("--curve 512 --context 256", "the curve asks for 512 tokens, `--context` is 256"),
        ("--curve 64 --rule llama.cpp", "accepted: strided, hf, yarn"),
        ("--curve 64,x", "`x` is not a number of tokens"),
    ] {
        let (code, message) = failure(&format!("ppl --text {TEXT} {flags}"));
        assert_eq!(code, 2, "{flags}: {message}");
        assert!(message.contains(expected), "{flags}: {message}");
    }
}

/// D071: the same text at 64 to 512 tokens, plain and stretched; whether the weights know the stretch is said, not guessed.
#[test]
fn d071_short_and_long_lengths_are_compared_and_fine_tuning_is_unknown() {
    let curve = |flags: &str| {
        json(&format!("ppl --text {TEXT} --curve 64,128,256,512 --max-windows 4 {flags}"))["result"].clone()
    };
    let (plain, yarn) = (curve("--allow-beyond"), curve("--scaling yarn --factor 4"));
    let ratio =
        |length: usize| number(&yarn["curve"]["ppl"][length]) / number(&plain["curve"]["ppl"][length]);
    let (short, long) = (ratio(1), ratio(3));
    assert!((1.02..1.5).contains(&short), "an untrained stretch costs at 128 tokens: {short}");
    assert!(long < short - 0.05, "and pays beyond the trained 256: {short} {long}");
    assert_eq!((&plain["fine_tuned"], &yarn["fine_tuned"]), (&json!("not scaled"), &json!("unknown")));
}

/// The far context is worth something where the model can use it, and costs where it cannot.
#[test]
fn the_gain_from_context_is_that_of_a_longer_window() {
    let gain = |flags: &str| {
        json(&format!("ppl --text {TEXT} --max-windows 10 --gain 32 {flags}"))["result"]["gain"].clone()
    };
    let within = gain("--context 256");
    assert!(number(&within["gain"]) > 0.0, "{within}");
    assert!(number(&within["gain_ci"][0]) <= number(&within["gain"]), "{within}");
    assert_eq!((&within["last_tokens"], &within["least_tokens"]), (&json!(32), &json!(25)));
    let difference = number(&within["last_nll"]) - number(&within["full_nll"]);
    assert!((difference - number(&within["gain"])).abs() < 1e-12);
    let beyond = gain("--context 1024 --allow-beyond --by-position");
    assert!(number(&beyond["gain_ci"][1]) < 0.0, "{beyond}");
    assert_eq!(beyond["by_position"]["positions"][0], 32);
    let (code, message) = failure(&format!("ppl --text {TEXT} --context 64 --gain 64"));
    assert_eq!(code, 2);
    assert!(message.contains("no scored token has more than 64 tokens of context"), "{message}");
}

/// D089: exactly one beginning-of-sequence token a window where every window has one, also when the text writes it.
#[test]
fn d089_windows_hold_the_beginning_of_sequence_token_once() {
    let dir = tempfile::tempdir().unwrap();
    let marked = dir.path().join("marked.txt");
    let text = fs::read_to_string(fixture(TEXT)).unwrap();
    let bos = json("tokenize x")["result"]["tokens"][0].as_str().unwrap().to_string();
    fs::write(&marked, format!("{bos}{}", &text[..4000])).unwrap();
    let counts = |flags: &str| -> (Value, Vec<u64>) {
        let result = json(&format!(
            "ppl --text {} --markers --context 64 --dump-windows {flags}",
            marked.display()
        ))["result"]
            .clone();
        let rows = result["window_list"].as_array().unwrap().clone();
        (result, rows.iter().map(|row| row["bos_ids"].as_u64().unwrap()).collect())
    };
    for (flags, first, later) in [
        ("--bos always", 1, 1),
        ("--bos first", 1, 0),
        ("--rule yarn --stride 32", 1, 1),
        ("--rule llama.cpp", 1, 1),
        ("--rule hf", 1, 0),
        ("--rule lm-eval", 1, 0),
    ] {
        let (result, found) = counts(flags);
        assert_eq!(found[0], first, "{flags}: {result}");
        assert!(found.len() > 3 && found[1..].iter().all(|count| *count == later), "{flags}: {found:?}");
    }
    let table =
        success(&format!("ppl --text {TEXT} --context 128 --dump-windows --max-windows 2 --format csv"));
    assert!(
        table.starts_with("text,window,first,end,bos,bos ids,scored from,scored to,length,weight\n"),
        "{table}"
    );
    assert_eq!(table.lines().nth(2), Some("demo/sample.txt,1,64,191,before,1,127,191,128,64"));
}

/// D080: overlapping windows end in a final figure, for people and for programs.
#[test]
fn d080_a_strided_run_ends_in_its_result() {
    let base = format!("ppl --text {TEXT} --context 128 --stride 32 --max-windows 4");
    let nll = number(&json(&base)["result"]["nll"]);
    let table = success(&base);
    let shown: f64 = table.split_whitespace().nth(1).unwrap().parse().unwrap();
    assert!((shown / nll.exp() - 1.0).abs() < 1e-5, "{table}");
    assert_eq!(table.lines().last().unwrap().split_whitespace().next(), Some(TEXT));
}

/// D095: the first line of a table is a figure with all that it depends on.
#[test]
fn d095_one_line_describes_the_figure() {
    let base = format!("ppl --text {TEXT} --context 512 --max-windows 2 --scaling yarn --factor 2");
    let object = json(&base);
    let line = success(&base).lines().next().unwrap().to_string();
    let field = |name: &str| {
        let rest = line.split(&format!("{name} ")).nth(1).unwrap_or_else(|| panic!("{name}: {line}"));
        rest.split([',', ';']).next().unwrap().to_string()
    };
    let result = &object["result"];
    assert_eq!(field("rule"), result["rule"].as_str().unwrap());
    assert_eq!(field("context"), result["context"].to_string());
    assert_eq!(field("stride"), result["stride"].to_string());
    assert_eq!(field("bos"), result["bos"].as_str().unwrap());
    assert_eq!(field("scaling"), "yarn x2");
    assert_eq!(field("model"), object["model"]["name"].as_str().unwrap());
    assert_eq!(field("tokenizer"), object["model"]["tokenizer"]["vocab_hash"].as_str().unwrap());
    assert!(field("ppl").ends_with(&format!("in {} tokens", result["tokens_scored"])), "{line}");
}

/// D086: a file is a text of its own: scored together or apart, its figures are the same.
#[test]
fn d086_one_file_is_one_text() {
    let dir = tempfile::tempdir().unwrap();
    let texts = two_texts(dir.path());
    let flags = "--context 128 --stride 64";
    let together = json(&format!("ppl --text {texts} {flags}"))["result"]["per_file"].clone();
    for (index, file) in texts.split(' ').enumerate() {
        let alone = json(&format!("ppl --text {file} {flags}"))["result"]["per_file"][0].clone();
        assert_eq!(together[index], alone);
    }
}

#[test]
fn intervals_follow_the_seed_and_the_block() {
    let base = format!("ppl --text {TEXT} --context 256 --max-windows 12");
    let interval = |flags: &str| json(&format!("{base} {flags}"))["result"]["nll_ci"].clone();
    let first = interval("");
    assert_eq!(first, interval("--seed 0 --block 128"));
    assert_ne!(first, interval("--seed 1"));
    assert_ne!(first, interval("--block 64"));
    let bounds = numbers(&first);
    let nll = number(&json(&base)["result"]["nll"]);
    assert!(bounds[0] < nll && nll < bounds[1]);
    assert_eq!(interval("--block 1k"), Value::Null);
    let said = stderr(&run(&format!("{base} --block 1k")));
    assert!(said.contains("too few blocks for intervals (2)"), "{said}");
    let documents = json(&format!("{base} --resample documents"));
    assert_eq!(documents["result"]["nll_ci"], Value::Null, "one document tells nothing about others");
}

#[test]
fn figures_are_drawn_where_there_is_something_to_draw() {
    let dir = tempfile::tempdir().unwrap();
    let folder: PathBuf = dir.path().join("figures");
    success(&format!(
        "ppl --text {TEXT} --context 512 --scaling yarn --factor 2 --curve auto --by-position --gain 32 --figures {}",
        folder.display()
    ));
    let mut names: Vec<String> = fs::read_dir(&folder)
        .unwrap()
        .map(|f| f.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    for stem in ["by-position", "curve", "gain"] {
        assert!(names.iter().any(|name| name.starts_with(stem) && name.ends_with("svg")), "{names:?}");
    }
    let svg = names.iter().find(|name| name.starts_with("curve") && name.ends_with("svg")).unwrap();
    assert!(fs::read_to_string(folder.join(svg)).unwrap().contains("Perplexity by length"));
}

#[test]
fn reruns_with_every_detail_are_byte_identical() {
    let command = format!(
        "ppl --text {TEXT} --context 512 --scaling yarn --factor 2 --curve auto --by-position --gain 64 --max-windows 2"
    );
    assert_eq!(without_timing(json(&command)), without_timing(json(&command)));
    let quiet = run(&format!("{command} --quiet"));
    assert!(!stderr(&quiet).contains("tokens/s"), "{}", stderr(&quiet));
}
