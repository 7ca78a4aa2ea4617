//! Help, exit codes and the generated reference of the command line.

mod common;

use common::command::{failure, run, stderr, success};

const COMMANDS: [&str; 16] = [
    "generate",
    "ppl",
    "needle",
    "sweep",
    "sweep merge",
    "attention",
    "plot",
    "inspect",
    "bench",
    "lab",
    "lab train",
    "lab compare",
    "lab check",
    "tokenize",
    "pull",
    "completions",
];

/// The text of `docs/cli.md`: the help of every command.
fn reference() -> String {
    let mut text = String::from(
        "# The command line\n\nThe help of every command, as the program prints it. `ROPEX_UPDATE_DOCS=1 cargo test --release --test cli_usage`\n\
         writes this file anew.\n",
    );
    let helps = std::iter::once("--help".to_string()).chain(COMMANDS.map(|name| format!("{name} --help")));
    for arguments in helps {
        let help: Vec<String> = success(&arguments).lines().map(|line| line.trim_end().to_string()).collect();
        text += &format!("\n## `ropex {arguments}`\n\n```text\n{}\n```\n", help.join("\n"));
    }
    text
}

#[test]
fn docs_cli_is_what_the_program_prints() {
    let path = common::fixture("../docs/cli.md");
    if std::env::var_os("ROPEX_UPDATE_DOCS").is_some() {
        std::fs::write(&path, reference()).unwrap();
    }
    assert_eq!(std::fs::read_to_string(&path).unwrap(), reference(), "docs/cli.md is out of date");
}

#[test]
fn bad_usage_exits_with_2_and_says_what_to_write() {
    for (arguments, expected) in [
        ("generate --factor 4", "`--factor` needs `--scaling`"),
        ("generate --scaling yarn", "needs `--factor`"),
        ("generate --scaling yarn --factor 0.5", "`0.5` is not a factor"),
        ("generate --scaling foo", "unknown scaling method `foo`"),
        ("generate --scaling linear --factor 2 --beta-fast 3", "`--beta-fast` has no meaning"),
        ("generate --rope-parameters {", "is not JSON"),
        ("generate --model /no/such/file", "is no model"),
        ("generate --device tpu", "unknown device `tpu`"),
        ("generate --threads 0", "--threads"),
        ("ppl", "--text"),
        ("pull tiny/llama.gguf", "already on this machine"),
        ("nonsense", "unrecognized subcommand"),
    ] {
        let (code, message) = failure(arguments);
        assert_eq!(code, 2, "{arguments}: {message}");
        assert!(message.contains(expected), "{arguments}: {message}");
    }
}

#[test]
fn failures_exit_with_1_and_name_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: &[u8]| {
        let path = dir.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path.display().to_string()
    };
    let whole = std::fs::read(common::fixture("tiny/llama.gguf")).unwrap();
    let magic = write("magic.gguf", b"PK\x03\x04 not a checkpoint at all");
    let cut = write("cut.gguf", &whole[..whole.len() - 10]);
    let empty = write("empty.gguf", b"");
    for (file, expected) in [(magic, "GGUF"), (cut, "bytes"), (empty, "empty.gguf")] {
        let (code, message) = failure(&format!("inspect --model {file}"));
        assert_eq!(code, 1, "{message}");
        assert!(message.contains(expected) && message.contains(&file), "{message}");
    }
    let (code, message) = failure("inspect --model /no/such/file.gguf");
    assert!((1..=2).contains(&code) && message.contains("/no/such/file.gguf"), "{message}");
}

#[cfg(not(any(feature = "cuda", feature = "metal")))]
#[test]
fn a_device_that_is_not_built_in_says_how_to_build_it() {
    let (code, message) = failure("generate --device cuda --prompt hi");
    assert_eq!(code, 1);
    assert!(message.contains("--features cuda"), "{message}");
}

#[test]
fn offline_and_not_in_the_cache_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let output = common::command::ropex()
        .env("HF_HOME", dir.path())
        .args(["pull", "org/name", "--offline"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("org/name"), "{}", stderr(&output));
}

#[test]
fn bench_reports_a_rate_for_every_length_and_depth() {
    let object = common::command::json("bench --prefill 8,64 --decode 4 --depth 0,32");
    let rows = |key: &str, field: &str| -> Vec<u64> {
        object["result"][key].as_array().unwrap().iter().map(|row| row[field].as_u64().unwrap()).collect()
    };
    assert_eq!((rows("prefill", "tokens"), rows("decode", "context")), (vec![8, 64], vec![0, 32]));
    assert!(object["result"]["decode"][0]["tokens_per_s"].as_f64().unwrap() > 0.0);
}

/// The work counted is the model's: every weight of a product twice a token, every visible key twice a lane of a query; in the
/// last layer, behind the keys and values, for tokens with logits only.
#[test]
fn bench_says_where_the_time_goes() {
    let config = common::command::json("inspect")["result"]["config"].clone();
    let size = |name: &str| config[name].as_f64().unwrap();
    let (hidden, layers, head_dim) = (size("hidden_size"), size("n_layers"), size("head_dim"));
    let queries = size("n_heads") * head_dim;
    let kv = size("n_kv_heads") * head_dim;
    let projections = hidden * (queries + 2.0 * kv);
    let rest_of_layer = hidden * (queries + 3.0 * size("intermediate_size"));
    let head = hidden * size("vocab_size");
    let keys = |tokens: std::ops::Range<u32>| tokens.map(|before| f64::from(before) + 1.0).sum::<f64>();

    let result = common::command::json("bench --prefill 64 --decode 4 --depth 32")["result"].clone();
    assert!(result["machine"]["bytes_per_s"].as_f64().unwrap() > 1e8);
    // The first token behind the cache is not timed.
    for (row, tokens, logits) in
        [(&result["prefill"][0], 0..64, 63..64), (&result["decode"][0], 33..37, 33..37)]
    {
        let count = |tokens: &std::ops::Range<u32>| f64::from(tokens.end - tokens.start);
        let (n, n_logits) = (count(&tokens), count(&logits));
        let rest = (layers - 1.0) * n + n_logits;
        let expected = [
            ("matrices", 2.0 * (layers * n * projections + rest * rest_of_layer)),
            ("attention", 4.0 * queries * ((layers - 1.0) * keys(tokens) + keys(logits))),
            ("head", 2.0 * n_logits * head),
        ];
        let stages = row["stages"].as_array().unwrap();
        for ((name, operations), stage) in expected.into_iter().zip(stages) {
            let number = |key: &str| stage[key].as_f64().unwrap();
            let counted = number("operations_per_s") * number("seconds");
            assert_eq!(stage["stage"], name);
            assert!((counted / operations - 1.0).abs() < 1e-9, "{name}: {counted} {operations}");
        }
        let (rest, elapsed) = (&stages[3], n / row["tokens_per_s"].as_f64().unwrap());
        assert_eq!(rest["stage"], "other");
        let seconds = rest["seconds"].as_f64().unwrap();
        assert!(seconds > 0.0 && seconds < elapsed, "{seconds} of {elapsed}");
    }
    let candle = common::command::json("bench --engine candle --prefill 8 --decode 1")["result"].clone();
    assert!(candle["machine"].is_null() && candle["prefill"][0]["stages"].is_null(), "{candle}");
}

#[test]
fn completions_are_a_script() {
    assert!(success("completions bash").contains("_ropex"));
    assert!(run("completions nonsense").status.code() == Some(2));
}
