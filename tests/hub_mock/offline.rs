//! A whole run of the program from the cache, where there is no network to speak of.

use std::process::Command;

use ropex::checkpoint::hub::{Pulled, pull_within};

use super::server::{REPO, Server, Site, quick};

const NAME: &str = "m-F32.gguf";

/// Whether this system lets a program have a network of its own: Linux with user namespaces.
fn namespaces_are_allowed() -> bool {
    Command::new("unshare").args(["-rn", "true"]).output().is_ok_and(|output| output.status.success())
}

/// A cache that one fetch has filled with a checkpoint that runs; the server is gone afterwards.
fn filled_cache() -> tempfile::TempDir {
    let fixture = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/tiny/llama.gguf");
    let cache = tempfile::tempdir().unwrap();
    let content = std::fs::read(fixture).unwrap();
    let hub = Server::start(Site { files: [(NAME.to_owned(), content)].into(), ..Site::default() });
    let pulled = pull_within(REPO, None, None, &hub.options(cache.path()), &quick()).unwrap();
    assert!(matches!(pulled, Pulled::Gguf(_)));
    cache
}

/// `ropex generate` in a network namespace with no interface that is up; `offline`: the flag or variable.
fn generate(cache: &std::path::Path, flags: &[&str], variables: &[(&str, &str)]) -> (bool, String) {
    let mut command = Command::new("unshare");
    command.args([
        "-rn",
        assert_cmd::cargo::cargo_bin!("ropex").to_str().unwrap(),
        "generate",
        "--model",
        REPO,
    ]);
    command.args(["--prompt", "the king", "--max-new-tokens", "3", "--format", "json"]).args(flags);
    for name in ["HF_HUB_CACHE", "HF_ENDPOINT", "HF_TOKEN", "HF_HUB_OFFLINE"] {
        command.env_remove(name);
    }
    let output = command.env("HF_HOME", cache).envs(variables.iter().copied()).output().unwrap();
    let text = if output.status.success() { output.stdout } else { output.stderr };
    (output.status.success(), String::from_utf8(text).unwrap())
}

#[test]
fn d104_offline_runs_without_any_network_interface() {
    if !namespaces_are_allowed() {
        eprintln!("skipped: `unshare -rn` is not permitted here");
        return;
    }
    let cache = filled_cache();
    for (flags, variables) in [(&["--offline"][..], &[][..]), (&[], &[("HF_HUB_OFFLINE", "1")])] {
        let (done, text) = generate(cache.path(), flags, variables);
        assert!(done, "{text}");
        let object: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(object["result"]["new_tokens"], 3);
    }
    // the same without the flag asks the Hub, which cannot be reached: so the namespace is what it should be
    let (done, text) = generate(cache.path(), &[], &[("HF_ENDPOINT", "http://127.0.0.1:9")]);
    assert!(!done && text.contains("--offline"), "{text}");
}
