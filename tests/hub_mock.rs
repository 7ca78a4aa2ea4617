//! Fetching from the Hub, against a server on this machine.

#[path = "hub_mock/offline.rs"]
mod offline;
#[path = "hub_mock/server.rs"]
mod server;
#[path = "hub_mock/transfer.rs"]
mod transfer;

use ropex::checkpoint::gguf::{TensorData, Value, encode};
use ropex::checkpoint::hub::{HubError, HubOptions, Place, Pulled, pull, pull_within};
use ropex::checkpoint::{Checkpoint, CheckpointError, Content, ModelRef, OpenOptions, TensorType};
use server::{COMMIT, REPO, Server, Site, quick};

fn gguf(entries: &[(&str, Value)], tensor: &str) -> Vec<u8> {
    let entries: Vec<_> = entries.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect();
    let data = TensorData { name: tensor, dtype: TensorType::F32, shape: vec![1], bytes: &[0, 0, 128, 63] };
    encode(&entries, &[data]).unwrap()
}

fn plain_gguf(tensor: &str) -> Vec<u8> {
    gguf(&[("general.architecture", Value::String("llama".into()))], tensor)
}

fn safetensors(tensor: &str) -> Vec<u8> {
    let view = safetensors::tensor::TensorView::new(safetensors::Dtype::F32, vec![1], &[0; 4]);
    safetensors::serialize([(tensor, view.unwrap())], None).unwrap()
}

fn site(files: &[(&str, Vec<u8>)]) -> Site {
    let files = files.iter().map(|(name, bytes)| ((*name).to_owned(), bytes.clone())).collect();
    Site { files, ..Site::default() }
}

fn sharded_site() -> Site {
    let index = br#"{"weight_map": {"a": "m-1.safetensors", "b": "m-2.safetensors"}}"#;
    site(&[
        ("config.json", br#"{"model_type": "llama"}"#.to_vec()),
        ("generation_config.json", br#"{"eos_token_id": [1, 2]}"#.to_vec()),
        ("tokenizer.json", b"{}".to_vec()),
        ("model.safetensors.index.json", index.to_vec()),
        ("m-1.safetensors", safetensors("a")),
        ("m-2.safetensors", safetensors("b")),
        ("pytorch_model.bin", b"not needed".to_vec()),
    ])
}

fn quant_site() -> Site {
    site(&[
        ("README.md", b"text".to_vec()),
        ("m-Q4_K_M.gguf", plain_gguf("q4")),
        ("m-Q8_0.gguf", plain_gguf("q8")),
    ])
}

fn open(text: &str, hub: HubOptions) -> Result<Checkpoint, CheckpointError> {
    let reference: ModelRef = text.parse()?;
    Checkpoint::open(&reference, &OpenOptions { hub, ..OpenOptions::default() })
}

fn hub_error(text: &str, hub: HubOptions) -> HubError {
    match open(text, hub) {
        Err(CheckpointError::Hub(error)) => error,
        other => panic!("expected a Hub error, found {other:?}"),
    }
}

#[test]
fn d105_a_safetensors_repository_is_fetched_whole_and_only_once() {
    let cache = tempfile::tempdir().unwrap();
    let server = Server::start(sharded_site());
    let options = server.options(cache.path());
    let checkpoint = open(REPO, options.clone()).unwrap();
    assert_eq!((checkpoint.name(), checkpoint.tensor_names()), (REPO, vec!["a", "b"]));
    assert!(matches!(checkpoint.content(), Content::Safetensors(_)));
    assert_eq!(checkpoint.tensor("b").unwrap().to_f32(), Some(vec![0.0]));
    assert_eq!(checkpoint.config().unwrap().str("model_type").unwrap(), Some("llama"));
    let generation = checkpoint.generation_config().unwrap().unwrap();
    assert_eq!(generation.token_ids("eos_token_id").unwrap(), Some(vec![1, 2]));
    assert_eq!(checkpoint.sibling("tokenizer.json").unwrap(), Some(b"{}".to_vec()));
    assert_eq!(checkpoint.sibling_text("chat_template.jinja").unwrap(), None);

    let repo = cache.path().join("hub/models--org--name");
    assert_eq!(std::fs::read_to_string(repo.join("refs/main")).unwrap(), COMMIT);
    assert!(repo.join("snapshots").join(COMMIT).join("m-2.safetensors").is_file());
    assert!(repo.join("blobs/etag-m-2-safetensors").is_file());
    let asked = server.asked();
    assert!(asked.iter().all(|asked| asked.header("authorization").is_none()));
    assert!(asked.iter().all(|asked| !asked.path.contains("pytorch_model")));
    open(REPO, options).unwrap();
    assert_eq!(server.paths(), ["/api/models/org/name/revision/main"]);
}

#[test]
fn d104_offline_works_from_the_cache_once_the_server_is_gone() {
    let cache = tempfile::tempdir().unwrap();
    let server = Server::start(sharded_site());
    let online = server.options(cache.path());
    let offline = HubOptions { offline: true, ..online.clone() };

    let error = hub_error(REPO, offline.clone());
    assert!(matches!(&error, HubError::NotCached { revision, .. } if revision == "main"));
    assert!(error.to_string().contains("offline") && error.hint().is_some());
    assert_eq!(server.connections(), 0);

    open(REPO, online.clone()).unwrap();
    drop(server);
    assert!(matches!(hub_error(REPO, online), HubError::Transport { .. }));
    assert_eq!(open(REPO, offline.clone()).unwrap().tensor_names(), ["a", "b"]);
    let by_commit = format!("{REPO}@{COMMIT}");
    assert_eq!(open(&by_commit, offline.clone()).unwrap().name(), by_commit);

    let snapshot = cache.path().join("hub/models--org--name/snapshots").join(COMMIT);
    std::fs::remove_file(snapshot.join("m-2.safetensors")).unwrap();
    let error = hub_error(REPO, offline.clone());
    assert!(matches!(&error, HubError::FileNotCached { file, .. } if file == "m-2.safetensors"));
    let error = hub_error(&format!("{REPO}:Q4_0"), offline.clone());
    assert!(matches!(error, HubError::NoQuant { place: Place::Cache, .. }));
    std::fs::remove_file(snapshot.join("config.json")).unwrap();
    let error = hub_error(REPO, offline);
    assert!(error.to_string().contains("lacks `config.json` in the local cache (offline"), "{error}");
}

#[test]
fn a_quantisation_is_picked_and_an_open_choice_is_listed() {
    let cache = tempfile::tempdir().unwrap();
    let server = Server::start(quant_site());
    let options = server.options(cache.path());
    let checkpoint = open("org/name:q8_0", options.clone()).unwrap();
    assert_eq!(checkpoint.tensor_names(), ["q8"]);
    assert!(server.paths().iter().all(|path| !path.contains("Q4_K_M")));
    assert_eq!(open("org/name:m-Q4_K_M.gguf", options.clone()).unwrap().tensor_names(), ["q4"]);

    let error = hub_error(REPO, options.clone());
    let text = error.to_string();
    assert!(text.contains("`m-Q4_K_M.gguf`, `m-Q8_0.gguf`"), "{text}");
    assert_eq!(error.hint().unwrap(), "choose one, for example `org/name:Q4_K_M`");
    let text = hub_error("org/name:Q2_K", options).to_string();
    assert!(text.contains("no GGUF file `Q2_K`") && text.contains("`m-Q8_0.gguf`"), "{text}");
}

#[test]
fn d107_all_parts_of_a_split_gguf_are_fetched() {
    let part = |number: u16, tensor| {
        let number = Value::U16(number);
        gguf(&[("split.no", number), ("split.count", Value::U16(2))], tensor)
    };
    let names = ["m-00001-of-00002.gguf", "m-00002-of-00002.gguf"];
    let server = Server::start(site(&[(names[0], part(0, "a")), (names[1], part(1, "b"))]));
    let cache = tempfile::tempdir().unwrap();
    let options = server.options(cache.path());
    assert_eq!(open(REPO, options.clone()).unwrap().tensor_names(), ["a", "b"]);
    server.site().files.remove(names[1]);
    let error = hub_error(REPO, options);
    assert!(matches!(error, HubError::PartMissing { missing, .. } if missing == names[1]));
}

#[test]
fn refusals_are_told_apart() {
    let cache = tempfile::tempdir().unwrap();
    let server = Server::start(Site { status: Some(404), ..quant_site() });
    let options = server.options(cache.path());
    let error = hub_error("org/name@v9", options.clone());
    assert!(matches!(&error, HubError::NotFound { revision, .. } if revision == "v9"), "{error}");
    assert!(error.hint().unwrap().contains("spelling"));

    server.site().status = Some(401);
    let error = hub_error(REPO, options.clone());
    assert!(matches!(error, HubError::Unauthorized { token_sent: false, .. }), "{error}");
    assert!(error.hint().unwrap().contains("set HF_TOKEN"));

    server.site().status = Some(403);
    let error = hub_error(REPO, HubOptions { token: Some("secret".into()), ..options.clone() });
    assert!(matches!(error, HubError::Forbidden { token_sent: true, .. }), "{error}");
    assert!(!error.to_string().contains("secret"));
    assert_eq!(server.asked().last().unwrap().header("authorization"), Some("Bearer secret"));

    server.site().status = Some(503);
    server.asked();
    let error = pull_within(REPO, None, None, &options, &quick()).unwrap_err();
    assert!(matches!(&error, HubError::Transport { reason, .. } if reason.contains("503")), "{error}");
    assert_eq!(server.asked().len(), 3, "once, and again as often as the limits say");

    let mut changed = quant_site();
    changed.phantoms.push("gone-Q2_K.gguf".to_owned());
    *server.site() = changed;
    let error = hub_error("org/name:Q2_K", options);
    assert!(matches!(error, HubError::FileNotFound { file, .. } if file == "gone-Q2_K.gguf"));
}

#[test]
fn d106_an_incomplete_download_is_told_and_can_be_repeated() {
    let cache = tempfile::tempdir().unwrap();
    let server = Server::start(Site { lacking: 10, ..quant_site() });
    let options = server.options(cache.path());
    let error = pull_within(REPO, None, Some("Q8_0"), &options, &quick()).unwrap_err();
    assert!(
        matches!(&error, HubError::Incomplete { expected, found, .. } if *expected == found + 10),
        "{error}"
    );
    server.site().lacking = 0;
    assert_eq!(open("org/name:Q8_0", options).unwrap().tensor_names(), ["q8"]);
}

#[test]
fn hostile_repositories_are_refused() {
    let cache = tempfile::tempdir().unwrap();
    let mut hostile = sharded_site();
    let index = br#"{"weight_map": {"a": "../../../../evil"}}"#;
    hostile.files.insert("model.safetensors.index.json".to_owned(), index.to_vec());
    let server = Server::start(hostile);
    let options = server.options(cache.path());
    let error = hub_error(REPO, options.clone());
    assert!(matches!(&error, HubError::Index { reason, .. } if reason.contains("outside")), "{error}");

    *server.site() = site(&[("../evil.gguf", plain_gguf("x"))]);
    let error = hub_error(REPO, options.clone());
    assert!(matches!(&error, HubError::UnsafeName { found, .. } if found == "../evil.gguf"), "{error}");

    *server.site() = Site { commit: Some("../../evil".into()), ..quant_site() };
    let error = hub_error("org/name:Q8_0", options.clone());
    assert!(matches!(&error, HubError::UnsafeName { found, .. } if found == "../../evil"), "{error}");

    *server.site() = Site { file_commit: Some("f00d".into()), ..quant_site() };
    let error = hub_error("org/name:Q8_0", options);
    assert!(matches!(error, HubError::Changed { .. }), "{error}");
}

#[test]
fn a_cache_folder_is_needed_and_pull_tells_what_it_found() {
    let error = pull(REPO, None, None, &HubOptions::default()).unwrap_err();
    assert!(matches!(&error, HubError::NoCacheFolder { .. }) && error.hint().is_some());
    let cache = tempfile::tempdir().unwrap();
    let server = Server::start(quant_site());
    let blocked = cache.path().join("file");
    std::fs::write(&blocked, "").unwrap();
    let error = pull(REPO, None, Some("Q8_0"), &server.options(&blocked)).unwrap_err();
    assert!(matches!(&error, HubError::Store { file, .. } if file == "m-Q8_0.gguf"), "{error}");
    let pulled = pull(REPO, Some("main"), Some("Q8_0"), &server.options(cache.path())).unwrap();
    assert!(matches!(pulled, Pulled::Gguf(path) if path.ends_with("m-Q8_0.gguf")));
    *server.site() = sharded_site();
    let pulled = pull(REPO, None, None, &server.options(cache.path())).unwrap();
    assert!(matches!(pulled, Pulled::Folder(path) if path.ends_with(COMMIT)));
}
