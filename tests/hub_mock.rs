//! Fetching from the Hub, against a server on this machine.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use ropex::checkpoint::gguf::{TensorData, Value, encode};
use ropex::checkpoint::hub::{HubError, HubOptions, Place, Pulled, pull};
use ropex::checkpoint::{Checkpoint, CheckpointError, Content, ModelRef, OpenOptions, TensorType};

const REPO: &str = "org/name";
const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// What the server has and how it behaves.
#[derive(Clone, Default)]
struct Site {
    files: BTreeMap<String, Vec<u8>>,
    /// Listed in the repository, but not there
    phantoms: Vec<String>,
    /// Status for every request, in place of an answer
    status: Option<u16>,
    /// Bytes that every file lacks of its announced size
    lacking: usize,
    /// Commit in the headers of files
    file_commit: Option<String>,
    /// Commit in the description of the repository
    commit: Option<String>,
}

/// Path and authorization of every request.
type Log = Arc<Mutex<Vec<(String, Option<String>)>>>;

/// A server on a port of this machine, stopped when dropped.
struct Server {
    address: SocketAddr,
    site: Arc<Mutex<Site>>,
    requests: Log,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    fn start(site: Site) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut server = Self {
            address: listener.local_addr().unwrap(),
            site: Arc::new(Mutex::new(site)),
            requests: Arc::default(),
            stop: Arc::default(),
            thread: None,
        };
        let (site, requests, stop) = (server.site.clone(), server.requests.clone(), server.stop.clone());
        server.thread = Some(std::thread::spawn(move || {
            for stream in listener.incoming() {
                if stop.load(Ordering::SeqCst) {
                    return;
                }
                let site = site.lock().unwrap().clone();
                answer(stream.unwrap(), &site, &requests).ok();
            }
        }));
        server
    }

    fn options(&self, cache: &Path) -> HubOptions {
        HubOptions {
            endpoint: Some(format!("http://{}", self.address)),
            cache_dir: Some(cache.join("hub")),
            quiet: true,
            ..HubOptions::default()
        }
    }

    fn paths(&self) -> Vec<String> {
        self.requests.lock().unwrap().drain(..).map(|(path, _)| path).collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        TcpStream::connect(self.address).ok();
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
        }
    }
}

fn answer(stream: TcpStream, site: &Site, requests: &Log) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    let request = lines.next().unwrap_or(Ok(String::new()))?;
    let path = request.split(' ').nth(1).unwrap_or_default().to_owned();
    let (mut range, mut authorization) = (None, None);
    for line in lines {
        let line = line?;
        let Some((name, value)) = line.split_once(": ") else { break };
        match name.to_ascii_lowercase().as_str() {
            "range" => range = Some(value.to_owned()),
            "authorization" => authorization = Some(value.to_owned()),
            _ => {}
        }
    }
    requests.lock().unwrap().push((path.clone(), authorization));
    let (head, body) = respond(&path, range.as_deref(), site);
    let mut stream = stream;
    write!(stream, "HTTP/1.1 {head}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len())?;
    stream.write_all(&body)
}

/// Status line with further headers, and body.
fn respond(path: &str, range: Option<&str>, site: &Site) -> (String, Vec<u8>) {
    let commit = site.commit.as_deref().unwrap_or(COMMIT);
    if let Some(status) = site.status {
        return (format!("{status} Refused"), Vec::new());
    }
    if path == format!("/api/models/{REPO}/revision/main") {
        let names = site.files.keys().chain(&site.phantoms);
        let siblings: Vec<_> = names.map(|name| serde_json::json!({ "rfilename": name })).collect();
        let info = serde_json::json!({ "sha": commit, "siblings": siblings });
        return ("200 OK".to_owned(), info.to_string().into_bytes());
    }
    let name = path.strip_prefix(&format!("/{REPO}/resolve/main/"));
    let Some((name, content)) = name.and_then(|name| site.files.get_key_value(name)) else {
        return ("404 Not Found".to_owned(), Vec::new());
    };
    let (from, to) =
        range.and_then(|range| range.strip_prefix("bytes=")?.split_once('-')).unwrap_or(("0", ""));
    let from: usize = from.parse().unwrap();
    let to = to.parse::<usize>().map_or(content.len(), |last| last + 1);
    let announced = content.len() + site.lacking;
    let head = format!(
        "206 Partial Content\r\nx-repo-commit: {}\r\netag: \"etag-{}\"\r\ncontent-range: bytes {from}-{}/{announced}",
        site.file_commit.as_deref().unwrap_or(commit),
        name.replace('/', "-"),
        to - 1,
    );
    (head, content[from..to].to_vec())
}

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
    assert!(repo.join("blobs/etag-m-2.safetensors").is_file());
    let requests = server.requests.lock().unwrap().clone();
    assert!(
        requests
            .iter()
            .all(|(path, authorization)| { authorization.is_none() && !path.contains("pytorch_model") })
    );
    server.paths();
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
    assert!(server.paths().is_empty());

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
    server.site.lock().unwrap().files.remove(names[1]);
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

    server.site.lock().unwrap().status = Some(401);
    let error = hub_error(REPO, options.clone());
    assert!(matches!(error, HubError::Unauthorized { token_sent: false, .. }), "{error}");
    assert!(error.hint().unwrap().contains("set HF_TOKEN"));

    server.site.lock().unwrap().status = Some(403);
    let error = hub_error(REPO, HubOptions { token: Some("secret".into()), ..options.clone() });
    assert!(matches!(error, HubError::Forbidden { token_sent: true, .. }), "{error}");
    assert!(!error.to_string().contains("secret"));
    let sent = server.requests.lock().unwrap().last().cloned().unwrap();
    assert_eq!(sent.1.as_deref(), Some("Bearer secret"));

    server.site.lock().unwrap().status = Some(503);
    let error = hub_error(REPO, options.clone());
    assert!(matches!(&error, HubError::Transport { reason, .. } if reason.contains("503")), "{error}");

    let mut changed = quant_site();
    changed.phantoms.push("gone-Q2_K.gguf".to_owned());
    *server.site.lock().unwrap() = changed;
    let error = hub_error("org/name:Q2_K", options);
    assert!(matches!(error, HubError::FileNotFound { file, .. } if file == "gone-Q2_K.gguf"));
}

#[test]
fn d106_an_incomplete_download_is_removed_and_can_be_repeated() {
    let cache = tempfile::tempdir().unwrap();
    let server = Server::start(Site { lacking: 10, ..quant_site() });
    let options = server.options(cache.path());
    let error = hub_error("org/name:Q8_0", options.clone());
    let HubError::Incomplete { expected, found, .. } = error else { panic!("{error}") };
    assert_eq!(expected, found + 10);
    server.site.lock().unwrap().lacking = 0;
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

    *server.site.lock().unwrap() = site(&[("../evil.gguf", plain_gguf("x"))]);
    let error = hub_error(REPO, options.clone());
    assert!(matches!(&error, HubError::UnsafeName { found, .. } if found == "../evil.gguf"), "{error}");

    *server.site.lock().unwrap() = Site { commit: Some("../../evil".into()), ..quant_site() };
    let error = hub_error("org/name:Q8_0", options.clone());
    assert!(matches!(&error, HubError::UnsafeName { found, .. } if found == "../../evil"), "{error}");

    *server.site.lock().unwrap() = Site { file_commit: Some("f00d".into()), ..quant_site() };
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
    *server.site.lock().unwrap() = sharded_site();
    let pulled = pull(REPO, None, None, &server.options(cache.path())).unwrap();
    assert!(matches!(pulled, Pulled::Folder(path) if path.ends_with(COMMIT)));
}
