//! Connections that break, servers that redirect, and programs that meet in the cache.

use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use ropex::checkpoint::hub::{HubError, HubOptions, Limits, Pulled, pull, pull_within};

use sha2::Digest;

use super::server::{COMMIT, REPO, Server, Site, quick};

const NAME: &str = "m.gguf";
const BLOB: &str = "etag-m-gguf";

/// Bytes without a period that a chunk could hide.
fn noise(size_bytes: usize) -> Vec<u8> {
    let mut state = 1u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    (0..size_bytes).map(|_| next()).collect()
}

fn site(content: &[u8]) -> Site {
    Site { files: [(NAME.to_owned(), content.to_vec())].into(), ..Site::default() }
}

fn fetch_within(options: &HubOptions, limits: &Limits) -> Result<Vec<u8>, HubError> {
    match pull_within(REPO, None, None, options, limits)? {
        Pulled::Gguf(path) => Ok(std::fs::read(path).unwrap()),
        Pulled::Folder(path) => panic!("expected one file, found the folder {}", path.display()),
    }
}

fn fetch(options: &HubOptions) -> Result<Vec<u8>, HubError> {
    fetch_within(options, &quick())
}

fn blobs(cache: &Path) -> PathBuf {
    cache.join("hub/models--org--name/blobs")
}

fn names_in(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn d103_a_token_never_follows_a_redirect_to_another_port() {
    let content = noise(1000);
    for linked in [true, false] {
        let cache = tempfile::tempdir().unwrap();
        let cdn = Server::start(site(&content));
        let redirect = Some(format!("http://{}", cdn.address));
        let hub = Server::start(Site { redirect, linked, ..site(&content) });
        let options = HubOptions { token: Some(" secret\n".to_owned()), ..hub.options(cache.path()) };
        assert_eq!(fetch(&options).unwrap(), content);
        let at_hub = hub.asked();
        assert!(at_hub.iter().all(|asked| asked.header("authorization") == Some("Bearer secret")));
        let at_cdn = cdn.asked();
        assert!(!at_cdn.is_empty());
        assert!(at_cdn.iter().all(|asked| !format!("{:?}", asked.headers).contains("secret")));
        // where the Hub tells what it links to, the other host is asked for the content alone
        assert_eq!(at_cdn.iter().any(|asked| asked.method == "HEAD"), !linked);
    }
}

#[test]
fn d103_a_token_stays_on_the_same_host_and_never_comes_back() {
    let content = noise(1000);
    let cache = tempfile::tempdir().unwrap();
    let hub = Server::start(Site { redirect: Some(String::new()), ..site(&content) });
    let options = HubOptions { token: Some("secret".to_owned()), ..hub.options(cache.path()) };
    assert_eq!(fetch(&options).unwrap(), content);
    let asked = hub.asked();
    assert!(asked.iter().any(|asked| asked.path == format!("/cdn/{NAME}")));
    assert!(asked.iter().all(|asked| asked.header("authorization").is_some()));

    // the other host leads back to the Hub, to a path of its own choice
    let cache = tempfile::tempdir().unwrap();
    let other = Server::start(site(&content));
    let there = format!("http://{}/{REPO}/resolve/{COMMIT}/{NAME}?", other.address);
    let hub = Server::start(Site { redirect: Some(there), ..site(&content) });
    other.site().redirect = Some(format!("http://{}", hub.address));
    let options = HubOptions { token: Some("secret".to_owned()), ..hub.options(cache.path()) };
    assert_eq!(fetch(&options).unwrap(), content);
    assert!(other.asked().iter().all(|asked| asked.header("authorization").is_none()));
    let asked = hub.asked();
    let back: Vec<_> = asked.iter().filter(|asked| asked.path.starts_with("/cdn/")).collect();
    assert!(!back.is_empty() && back.iter().all(|asked| asked.header("authorization").is_none()));
}

#[test]
fn d103_hostile_redirects_end_in_an_error() {
    for (target, reason) in [
        ("ftp://host", "must start with"),
        ("http://user:pw@host", "name or a password"),
        ("http://", "no address"),
        ("http://host:99999", "no number"),
    ] {
        let cache = tempfile::tempdir().unwrap();
        let hub = Server::start(Site { redirect: Some(target.to_owned()), ..site(b"x") });
        let error = fetch(&hub.options(cache.path())).unwrap_err();
        assert!(
            matches!(&error, HubError::Transport { reason: found, .. } if found.contains(reason)),
            "{error}"
        );
    }
    let cache = tempfile::tempdir().unwrap();
    let hub = Server::start(site(b"x"));
    let to_itself = format!("http://{}/{REPO}/resolve/{COMMIT}/{NAME}?", hub.address);
    hub.site().redirect = Some(to_itself);
    let error = fetch(&hub.options(cache.path())).unwrap_err();
    assert!(error.to_string().contains("redirects more than 10 times"), "{error}");
}

#[test]
fn d103_an_endpoint_may_have_a_path() {
    let content = noise(1000);
    let cache = tempfile::tempdir().unwrap();
    let hub = Server::start(Site { base: "/mirror/hf".to_owned(), ..site(&content) });
    let mut options = hub.options(cache.path());
    options.endpoint.as_mut().unwrap().push('/');
    assert_eq!(fetch(&options).unwrap(), content);
    assert!(hub.paths().iter().all(|path| path.starts_with("/mirror/hf/")));
}

#[test]
fn d103_a_renamed_repository_is_found_by_its_old_name() {
    let content = noise(1000);
    for base in ["", "/mirror"] {
        let cache = tempfile::tempdir().unwrap();
        let renamed = Some("new-org/new-name".to_owned());
        let hub = Server::start(Site { renamed, base: base.to_owned(), ..site(&content) });
        let options = HubOptions { token: Some("secret".to_owned()), ..hub.options(cache.path()) };
        assert_eq!(fetch(&options).unwrap(), content);
        // the same host: the token goes with every request
        assert!(hub.asked().iter().all(|asked| asked.header("authorization").is_some()));
        assert_eq!(names_in(&blobs(cache.path())), [BLOB]);
    }
}

#[test]
fn d103_the_query_of_a_redirect_is_kept() {
    let content = noise(1000);
    for linked in [true, false] {
        let cache = tempfile::tempdir().unwrap();
        let cdn = Server::start(Site { signed: true, ..site(&content) });
        let redirect = Some(format!("http://{}", cdn.address));
        let hub = Server::start(Site { redirect, linked, signed: true, ..site(&content) });
        assert_eq!(fetch(&hub.options(cache.path())).unwrap(), content);
        let asked = cdn.asked();
        assert!(asked.iter().all(|asked| asked.path.ends_with("?signature=a%2Fb&expires=1")), "{asked:?}");
    }
}

#[test]
fn d103_mirrors_without_head_or_metadata() {
    let content = noise(1000);
    let cache = tempfile::tempdir().unwrap();
    let hub = Server::start(Site { refuses_head: true, ..site(&content) });
    assert_eq!(fetch(&hub.options(cache.path())).unwrap(), content);
    assert_eq!(hub.ranges(), [Some("bytes=0-0".to_owned()), None]);

    let cache = tempfile::tempdir().unwrap();
    hub.site().etags.insert(NAME.to_owned(), "\"../../evil\"".to_owned());
    let error = fetch(&hub.options(cache.path())).unwrap_err();
    assert!(matches!(&error, HubError::UnsafeName { what: "the ETag", .. }), "{error}");
    hub.site().file_commit = Some("../../evil".to_owned());
    let error = fetch(&hub.options(cache.path())).unwrap_err();
    assert!(matches!(&error, HubError::UnsafeName { what: "the commit", .. }), "{error}");
}

#[test]
fn d102_a_file_cut_at_60_percent_is_resumed() {
    let content = noise(100_000);
    let cache = tempfile::tempdir().unwrap();
    let hub = Server::start(Site { cuts: vec![60_000], ..site(&content) });
    assert_eq!(fetch(&hub.options(cache.path())).unwrap(), content);
    let asked = hub.asked();
    let second = asked.last().unwrap();
    let from: usize =
        second.header("range").unwrap()["bytes=".len()..].trim_end_matches('-').parse().unwrap();
    assert!((1..=60_000).contains(&from), "{from}");
    assert_eq!(second.header("if-range"), Some("\"etag-m-gguf\""));
    assert_eq!(names_in(&blobs(cache.path())), [BLOB]);
}

#[test]
fn d102_the_next_run_goes_on_where_the_last_one_stopped() {
    let content = noise(100_000);
    let cache = tempfile::tempdir().unwrap();
    let hub = Server::start(Site { cuts: vec![60_000], ..site(&content) });
    let options = hub.options(cache.path());
    let error = fetch_within(&options, &Limits { retries: 0, ..quick() }).unwrap_err();
    assert!(matches!(&error, HubError::Transport { reason, .. } if reason.contains("cut")), "{error}");
    assert!(error.hint().unwrap().contains("what has arrived is kept"));
    let partial = blobs(cache.path()).join(format!("{BLOB}.incomplete"));
    let size_bytes = std::fs::metadata(&partial).unwrap().len();
    assert!(size_bytes > 0 && size_bytes <= 60_000);
    hub.asked();
    assert_eq!(fetch(&options).unwrap(), content);
    assert_eq!(hub.ranges(), [Some(format!("bytes={size_bytes}-"))]);
    assert!(!partial.exists());
}

#[test]
fn d102_a_file_of_50_megabytes_that_is_cut_five_times_arrives_whole_and_equal() {
    let content = noise(50_000_000);
    let sha256 = format!("{:x}", sha2::Sha256::digest(&content));
    let cache = tempfile::tempdir().unwrap();
    // two attempts may fail in a row; these do not count as such, because each brings more than a mebibyte
    let cuts = vec![9_000_000, 1_500_000, 12_345_678, 3_000_001, 20_000_000];
    let etags = [(NAME.to_owned(), format!("\"{sha256}\""))].into();
    let hub = Server::start(Site { cuts, etags, ..site(&content) });
    assert!(fetch(&hub.options(cache.path())).unwrap() == content);
    assert_eq!(hub.ranges().len(), 6);
    assert!(hub.site().cuts.is_empty());
    assert_eq!(names_in(&blobs(cache.path())), [sha256]);
}

#[test]
fn d102_a_server_that_always_cuts_is_given_up() {
    let cache = tempfile::tempdir().unwrap();
    let hub = Server::start(Site { cuts: vec![10; 50], ..site(&noise(1000)) });
    assert!(matches!(fetch(&hub.options(cache.path())).unwrap_err(), HubError::Transport { .. }));
    assert_eq!(hub.ranges().len(), 3);
}

#[test]
fn d102_a_changed_etag_starts_again() {
    let (old, new) = (noise(100_000), noise(50_000));
    let cache = tempfile::tempdir().unwrap();
    let etags = [(NAME.to_owned(), "\"other-etag\"".to_owned())].into();
    let then = Some(Box::new(Site { etags, ..site(&new) }));
    let hub = Server::start(Site { cuts: vec![60_000], then, ..site(&old) });
    assert_eq!(fetch(&hub.options(cache.path())).unwrap(), new);
    assert_eq!(names_in(&blobs(cache.path())), ["other-etag"]);
}

#[test]
fn d102_a_server_that_ignores_ranges_starts_again() {
    let content = noise(100_000);
    let cache = tempfile::tempdir().unwrap();
    let hub = Server::start(Site { cuts: vec![60_000], ignores_range: true, ..site(&content) });
    assert_eq!(fetch(&hub.options(cache.path())).unwrap(), content);
    assert_eq!(hub.ranges().len(), 2);
}

#[test]
fn d102_a_silent_server_is_not_waited_for_for_ever() {
    let cache = tempfile::tempdir().unwrap();
    let hub = Server::start(Site { stall: Duration::from_secs(20), ..site(&noise(1000)) });
    let begin = Instant::now();
    let limits = Limits { read_timeout: Duration::from_millis(100), ..quick() };
    let error = fetch_within(&hub.options(cache.path()), &limits).unwrap_err();
    let silent = "nothing arrived for 100ms";
    assert!(matches!(&error, HubError::Transport { reason, .. } if reason == silent), "{error}");
    assert!(begin.elapsed() < Duration::from_secs(10));
    // what came before the silence is kept
    assert!(std::fs::read(blobs(cache.path()).join(format!("{BLOB}.incomplete"))).unwrap().len() >= 500);
}

#[test]
fn d102_the_hash_of_a_large_file_is_compared() {
    // from FIPS 180-4: SHA-256 of `abc`
    let sha256 = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    let named = |content: &[u8]| {
        let etags = [(NAME.to_owned(), format!("\"{sha256}\""))].into();
        Site { etags, ..site(content) }
    };
    let cache = tempfile::tempdir().unwrap();
    let hub = Server::start(named(b"abd"));
    let options = hub.options(cache.path());
    let error = fetch(&options).unwrap_err();
    assert!(matches!(&error, HubError::Damaged { expected, .. } if expected == sha256), "{error}");
    assert!(names_in(&blobs(cache.path())).is_empty());

    // a damaged remainder of an earlier run is found out and replaced
    *hub.site() = named(b"abc");
    std::fs::write(blobs(cache.path()).join(format!("{sha256}.incomplete")), "xy").unwrap();
    hub.asked();
    assert_eq!(fetch(&options).unwrap(), b"abc");
    assert_eq!(hub.ranges(), [Some("bytes=2-".to_owned()), None]);
}

/// What `two_processes_fetch_a_file_once` starts twice; alone it does nothing.
#[test]
fn helper_that_fetches_as_told() {
    let Some(told) = std::env::var_os("ROPEX_TEST_HUB") else { return };
    let told = told.into_string().unwrap();
    let (endpoint, cache_dir) = told.split_once(' ').unwrap();
    let options = HubOptions {
        endpoint: Some(endpoint.to_owned()),
        cache_dir: Some(cache_dir.into()),
        ..HubOptions::default()
    };
    pull(REPO, None, None, &options).unwrap();
}

#[test]
fn d102_two_processes_fetch_a_file_once() {
    let content = noise(10_000);
    let cache = tempfile::tempdir().unwrap();
    let hub = Server::start(Site { stall: Duration::from_millis(1500), ..site(&content) });
    let told = format!("http://{} {}", hub.address, cache.path().join("hub").display());
    let start = || -> Child {
        let mut helper = Command::new(std::env::current_exe().unwrap());
        helper.args(["--exact", "transfer::helper_that_fetches_as_told", "--nocapture"]);
        helper.env("ROPEX_TEST_HUB", &told).stderr(std::process::Stdio::piped());
        helper.stdout(std::process::Stdio::null()).spawn().unwrap()
    };
    let helpers = [start(), start()];
    let outputs = helpers.map(|helper| helper.wait_with_output().unwrap());
    assert!(outputs.iter().all(|output| output.status.success()), "{outputs:?}");
    assert_eq!(hub.ranges(), [None]);
    assert_eq!(fetch(&hub.options(cache.path())).unwrap(), content);
    let stderr = outputs.map(|output| String::from_utf8(output.stderr).unwrap()).concat();
    assert!(stderr.contains("waiting for another program that fetches `m.gguf`"), "{stderr}");
    assert!(stderr.contains("fetching m.gguf"), "{stderr}");
}

#[test]
fn d102_threads_fetch_a_file_once() {
    let content = noise(10_000);
    let cache = tempfile::tempdir().unwrap();
    let hub = Server::start(Site { stall: Duration::from_millis(300), ..site(&content) });
    let options = hub.options(cache.path());
    std::thread::scope(|scope| {
        let fetches: Vec<_> = (0..4).map(|_| scope.spawn(|| fetch(&options).unwrap())).collect();
        assert!(fetches.into_iter().all(|fetch| fetch.join().unwrap() == content));
    });
    assert_eq!(hub.ranges(), [None]);
}

#[test]
fn d104_offline_opens_no_socket() {
    let content = noise(1000);
    let cache = tempfile::tempdir().unwrap();
    let hub = Server::start(site(&content));
    let options = hub.options(cache.path());
    fetch(&options).unwrap();
    let before = hub.connections();
    // plain files, as systems without links have them, do as well
    let file = cache.path().join("hub/models--org--name/snapshots").join(COMMIT).join(NAME);
    std::fs::remove_file(&file).unwrap();
    std::fs::write(&file, &content).unwrap();
    let offline = HubOptions { offline: true, ..options };
    assert_eq!(fetch(&offline).unwrap(), content);
    let error = pull(REPO, Some("v9"), None, &offline).unwrap_err();
    assert!(matches!(error, HubError::NotCached { .. }), "{error}");
    assert_eq!(hub.connections(), before);
}

#[test]
fn bad_names_tokens_and_endpoints_are_refused_before_a_socket_is_opened() {
    let cache = tempfile::tempdir().unwrap();
    let hub = Server::start(site(b"x"));
    let options = hub.options(cache.path());
    for (repo, revision) in [("../x", "main"), ("a/b/c", "main"), ("org/name", "../x"), ("org/name", "/x")] {
        let error = pull(repo, Some(revision), None, &options).unwrap_err();
        assert!(matches!(error, HubError::UnsafeName { .. }), "{error}");
    }
    let error = fetch(&HubOptions { token: Some("a\nb".to_owned()), ..options.clone() }).unwrap_err();
    assert!(matches!(error, HubError::Token), "{error}");
    let error = fetch(&HubOptions { endpoint: Some("host".to_owned()), ..options }).unwrap_err();
    assert!(matches!(error, HubError::Endpoint { .. }), "{error}");
    assert_eq!(hub.connections(), 0);
}
