//! A Hub on a port of this machine, with the faults that a test asks for.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use ropex::checkpoint::hub::{HubOptions, Limits};

pub const REPO: &str = "org/name";
pub const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// What the server has and how it behaves.
#[derive(Clone, Default)]
pub struct Site {
    pub files: BTreeMap<String, Vec<u8>>,
    /// Listed in the repository, but not there
    pub phantoms: Vec<String>,
    /// Path of the endpoint
    pub base: String,
    /// Status for every request, in place of an answer
    pub status: Option<u16>,
    /// Bytes that every file lacks of its announced size
    pub lacking: usize,
    /// Commit in the headers of files
    pub file_commit: Option<String>,
    /// Commit in the description of the repository
    pub commit: Option<String>,
    /// ETags of files, with quotes; made from the name when absent
    pub etags: BTreeMap<String, String>,
    /// Where files are redirected to
    pub redirect: Option<String>,
    /// Redirects say what they lead to, as those of the Hub do
    pub linked: bool,
    /// Redirects carry a query, without which the other host refuses
    pub signed: bool,
    /// The repository has this name now: requests for the old one are redirected for good, by path alone
    pub renamed: Option<String>,
    /// Answers of files break off after that many bytes; one is used up by each
    pub cuts: Vec<usize>,
    /// What the server is after the first cut
    pub then: Option<Box<Site>>,
    pub ignores_range: bool,
    pub refuses_head: bool,
    /// Time that nothing is sent for, in the middle of a file
    pub stall: Duration,
}

/// What was asked.
#[derive(Clone, Debug, PartialEq)]
pub struct Asked {
    pub method: String,
    pub path: String,
    pub headers: BTreeMap<String, String>,
}

impl Asked {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }
}

/// A server, stopped when dropped.
pub struct Server {
    pub address: SocketAddr,
    pub site: Arc<Mutex<Site>>,
    asked: Arc<Mutex<Vec<Asked>>>,
    connections: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    pub fn start(site: Site) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut server = Self {
            address: listener.local_addr().unwrap(),
            site: Arc::new(Mutex::new(site)),
            asked: Arc::default(),
            connections: Arc::default(),
            stop: Arc::default(),
            thread: None,
        };
        let (site, asked, stop) = (server.site.clone(), server.asked.clone(), server.stop.clone());
        let connections = server.connections.clone();
        server.thread = Some(std::thread::spawn(move || {
            for stream in listener.incoming() {
                if stop.load(Ordering::SeqCst) {
                    return;
                }
                connections.fetch_add(1, Ordering::SeqCst);
                let (site, asked) = (site.clone(), asked.clone());
                std::thread::spawn(move || answer(stream.unwrap(), &site, &asked).ok());
            }
        }));
        server
    }

    pub fn options(&self, cache: &Path) -> HubOptions {
        HubOptions {
            endpoint: Some(format!("http://{}{}", self.address, self.site().base)),
            cache_dir: Some(cache.join("hub")),
            quiet: true,
            ..HubOptions::default()
        }
    }

    pub fn site(&self) -> std::sync::MutexGuard<'_, Site> {
        self.site.lock().unwrap()
    }

    /// What was asked since the last look.
    pub fn asked(&self) -> Vec<Asked> {
        std::mem::take(&mut self.asked.lock().unwrap())
    }

    /// The paths of it.
    pub fn paths(&self) -> Vec<String> {
        self.asked().into_iter().map(|asked| asked.path).collect()
    }

    /// The ranges of requests for content.
    pub fn ranges(&self) -> Vec<Option<String>> {
        let content = |asked: &Asked| asked.method == "GET" && !asked.path.contains("/api/");
        let asked = self.asked().into_iter().filter(content);
        asked.map(|asked| asked.header("range").map(str::to_owned)).collect()
    }

    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
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

/// Limits under which a test ends soon.
pub fn quick() -> Limits {
    let connect_timeout = Duration::from_secs(5);
    Limits {
        connect_timeout,
        read_timeout: Duration::from_secs(5),
        retries: 2,
        backoff: Duration::from_millis(1),
    }
}

fn answer(stream: TcpStream, site: &Mutex<Site>, log: &Mutex<Vec<Asked>>) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    let request = lines.next().unwrap_or(Ok(String::new()))?;
    let mut words = request.split(' ').map(str::to_owned);
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let mut headers = BTreeMap::new();
    for line in lines {
        let line = line?;
        let Some((name, value)) = line.split_once(": ") else { break };
        headers.insert(name.to_ascii_lowercase(), value.to_owned());
    }
    let asked = Asked { method, path, headers };
    log.lock().unwrap().push(asked.clone());
    let now = site.lock().unwrap().clone();
    let (head, body) = respond(&asked, &now);
    let mut stream = stream;
    write!(stream, "HTTP/1.1 {head}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len())?;
    if asked.method == "HEAD" {
        return Ok(());
    }
    let is_file = head.contains("\r\netag") && !head.starts_with("30");
    let mut end = body.len();
    if is_file && !now.cuts.is_empty() {
        let mut site = site.lock().unwrap();
        end = end.min(site.cuts.remove(0));
        if let Some(then) = site.then.take() {
            *site = *then;
        }
    }
    stream.write_all(&body[..end / 2])?;
    if is_file {
        std::thread::sleep(now.stall);
    }
    stream.write_all(&body[end / 2..end])
}

/// Status line with further headers, and body.
fn respond(asked: &Asked, site: &Site) -> (String, Vec<u8>) {
    let commit = site.commit.as_deref().unwrap_or(COMMIT);
    let path = asked.path.split('?').next().unwrap_or_default();
    let path = path.strip_prefix(&site.base).unwrap_or("outside");
    let empty = |head: &str| (head.to_owned(), Vec::new());
    let moved = site.renamed.as_deref().filter(|_| path.contains(REPO));
    if let Some(name) = moved {
        let there = path.replace(REPO, name);
        return empty(&format!("308 Permanent Redirect\r\nlocation: {}{there}", site.base));
    }
    let path = site.renamed.as_deref().map_or(path.to_owned(), |name| path.replace(name, REPO));
    if site.signed && path.starts_with("/cdn/") && !asked.path.contains("?signature=a%2Fb&expires=1") {
        return empty("403 Forbidden");
    }
    if let Some(status) = site.status {
        return empty(&format!("{status} Refused"));
    }
    if path == format!("/api/models/{REPO}/revision/main") {
        let names = site.files.keys().chain(&site.phantoms);
        let siblings: Vec<_> = names.map(|name| serde_json::json!({ "rfilename": name })).collect();
        let info = serde_json::json!({ "sha": commit, "siblings": siblings });
        return ("200 OK".to_owned(), info.to_string().into_bytes());
    }
    if site.refuses_head && asked.method == "HEAD" {
        return empty("405 Method Not Allowed");
    }
    let prefix = format!("/{REPO}/resolve/{commit}/");
    let at_hub = path.strip_prefix(&prefix);
    let name = at_hub.or_else(|| path.strip_prefix("/cdn/"));
    let Some((name, content)) = name.and_then(|name| site.files.get_key_value(name)) else {
        return empty("404 Not Found");
    };
    let etag = site.etags.get(name).cloned();
    let etag = etag.unwrap_or_else(|| format!("\"etag-{}\"", name.replace(['/', '.'], "-")));
    let file_commit = site.file_commit.as_deref().unwrap_or(commit);
    match (&site.redirect, at_hub) {
        (Some(target), Some(_)) => {
            let size = content.len();
            let linked =
                format!("\r\nx-linked-etag: {etag}\r\nx-linked-size: {size}\r\nx-repo-commit: {file_commit}");
            let linked = if site.linked { linked.as_str() } else { "" };
            let query = if site.signed { "?signature=a%2Fb&expires=1" } else { "" };
            empty(&format!("302 Found\r\nlocation: {target}/cdn/{name}{query}{linked}"))
        }
        _ => send_file(asked, site, content, &format!("x-repo-commit: {file_commit}\r\netag: {etag}"), &etag),
    }
}

fn send_file(asked: &Asked, site: &Site, content: &[u8], headers: &str, etag: &str) -> (String, Vec<u8>) {
    let announced = content.len() + site.lacking;
    let same = asked.header("if-range").is_none_or(|known| known == etag);
    let range = asked.header("range").filter(|_| same && !site.ignores_range);
    let Some((from, to)) = range.and_then(|range| range.strip_prefix("bytes=")?.split_once('-')) else {
        let linked = if site.lacking > 0 { format!("\r\nx-linked-size: {announced}") } else { String::new() };
        return (format!("200 OK\r\n{headers}{linked}"), content.to_vec());
    };
    let from: usize = from.parse().unwrap();
    if from >= content.len() {
        return ("416 Range Not Satisfiable".to_owned(), Vec::new());
    }
    let to = to.parse::<usize>().map_or(content.len(), |last| last + 1);
    let head =
        format!("206 Partial Content\r\n{headers}\r\ncontent-range: bytes {from}-{}/{announced}", to - 1);
    (head, content[from..to].to_vec())
}
