//! The server, and the cache in front of it.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::cache::RepoCache;
use super::client::Client;
use super::download::{Download, Fetched};
use super::error::{HubError, Place};
use super::facts::Facts;
use super::failure::Failure;
use super::lock::{self, Notice};
use super::names::{escape_part, escape_path, is_commit};
use super::progress::Bar;
use super::retry::Retry;
use super::{DEFAULT_ENDPOINT, HubOptions, Limits, Source, address};
use crate::checkpoint::safetensors::stays_inside;

/// How often a file may change on the server while it is fetched.
const MAX_CHANGES: usize = 3;

/// What is asked for; repository and revision are checked.
pub(super) struct Wanted<'a> {
    pub(super) repo: &'a str,
    pub(super) revision: &'a str,
    pub(super) cache: RepoCache,
    pub(super) token: Option<String>,
}

/// One commit on the server.
pub(super) struct Online<'a> {
    wanted: Wanted<'a>,
    client: Client,
    endpoint: String,
    limits: &'a Limits,
    commit: String,
    snapshot: PathBuf,
    quiet: bool,
}

impl<'a> Online<'a> {
    /// Ask the server which commit the revision is and which files it has.
    pub(super) fn connect(
        wanted: Wanted<'a>,
        options: &HubOptions,
        limits: &'a Limits,
    ) -> Result<(Self, Vec<String>), HubError> {
        let endpoint =
            options.endpoint.as_deref().unwrap_or(DEFAULT_ENDPOINT).trim_end_matches('/').to_owned();
        let home = checked_endpoint(&endpoint)?;
        let token = wanted.token.as_deref().map(str::trim).filter(|token| !token.is_empty());
        let client = Client::new(home, token, limits).map_err(|()| HubError::Token)?;
        let mut online = Self {
            wanted,
            client,
            endpoint,
            limits,
            commit: String::new(),
            snapshot: PathBuf::new(),
            quiet: options.quiet,
        };
        let (commit, files) = online.list()?;
        if !is_commit(&commit) {
            return Err(online.unsafe_name("the commit", &commit));
        }
        online.snapshot = online.wanted.cache.snapshot_of(&commit);
        online.commit = commit;
        Ok((online, files))
    }

    /// Commit, unchecked, and names of the files, unchecked.
    fn list(&self) -> Result<(String, Vec<String>), HubError> {
        let revision = escape_part(self.wanted.revision);
        let url =
            format!("{}/api/models/{}/revision/{revision}", self.endpoint, escape_path(self.wanted.repo));
        let bar = Bar::new(self.quiet);
        let retry = Retry::new(self.limits, &bar, self.wanted.repo);
        let text = retry.until_done(|| self.client.answered(), || self.client.text(&url));
        let text = text.map_err(|failure| match failure {
            Failure::Status { status: 404, at_home: true, .. } => HubError::NotFound {
                endpoint: self.endpoint.clone(),
                repo: self.wanted.repo.to_owned(),
                revision: self.wanted.revision.to_owned(),
            },
            failure => self.failed(None, failure),
        })?;
        read_listing(&text).map_err(|reason| HubError::Listing {
            endpoint: self.endpoint.clone(),
            repo: self.wanted.repo.to_owned(),
            reason,
        })
    }

    /// Fetch a file that the snapshot lacks.
    fn fetch(&self, name: &str, bar: &Bar) -> Result<(), HubError> {
        let commit = escape_part(&self.commit);
        let repo = escape_path(self.wanted.repo);
        let url = format!("{}/{repo}/resolve/{commit}/{}", self.endpoint, escape_path(name));
        let changed = || HubError::Changed {
            repo: self.wanted.repo.to_owned(),
            file: name.to_owned(),
            commit: self.commit.clone(),
        };
        let subject = format!("`{name}`");
        for _ in 0..MAX_CHANGES {
            let retry = Retry::new(self.limits, bar, &subject);
            let facts = retry.until_done(|| self.client.answered(), || Facts::ask(&self.client, &url));
            let facts = facts.map_err(|failure| self.failed(Some(name), failure))?;
            if facts.commit.as_ref().is_some_and(|commit| *commit != self.commit) {
                return Err(changed());
            }
            if self.store(name, &url, &facts, bar).map_err(|failure| self.failed(Some(name), failure))? {
                return Ok(());
            }
        }
        Err(changed())
    }

    /// Fetch the content unless the cache has it, and put it into the snapshot. Returns whether it is there.
    fn store(&self, name: &str, url: &str, facts: &Facts, bar: &Bar) -> Result<bool, Failure> {
        let cache = &self.wanted.cache;
        let path = cache.lock(&facts.etag);
        let _lock = lock::hold(&path, |notice| match notice {
            Notice::Held => {
                let path = path.display();
                bar.note(&format!("waiting for another program that fetches `{name}` and holds `{path}`"));
            }
            Notice::Unsupported => {
                bar.note("the file system of the cache knows no locks; fetch from one program only")
            }
        })
        .map_err(Failure::Store)?;
        if self.snapshot.join(name).is_file() {
            return Ok(true);
        }
        let blob = cache.blob(&facts.etag);
        let there = std::fs::metadata(&blob).is_ok_and(|found| found.len() == facts.size_bytes);
        if !there {
            let (client, limits) = (&self.client, self.limits);
            let download = Download { client, limits, bar, name, url, facts, blob: &blob };
            if download.run()? == Fetched::Changed {
                return Ok(false);
            }
        }
        cache.place(&facts.etag, &self.commit, name, !there).map_err(Failure::Store)?;
        Ok(true)
    }

    fn unsafe_name(&self, what: &'static str, found: &str) -> HubError {
        HubError::UnsafeName { repo: self.wanted.repo.to_owned(), what, found: found.to_owned() }
    }

    /// What a failure means; without a file, it concerns the list of files.
    fn failed(&self, file: Option<&str>, failure: Failure) -> HubError {
        let (endpoint, repo) = (self.endpoint.clone(), self.wanted.repo.to_owned());
        let token_sent = self.client.has_token();
        let name = file.unwrap_or_default().to_owned();
        match failure {
            Failure::Status { status: 401, at_home: true, .. } => {
                HubError::Unauthorized { endpoint, repo, token_sent }
            }
            Failure::Status { status: 403, at_home: true, .. } => {
                HubError::Forbidden { endpoint, repo, token_sent }
            }
            Failure::Status { status: 404, at_home: true, .. } => {
                HubError::FileNotFound { endpoint, repo, file: name }
            }
            Failure::Store(error) => HubError::Store { repo, file: name, reason: error.to_string() },
            Failure::Size { expected, found } => HubError::Incomplete { repo, file: name, expected, found },
            Failure::Hash { expected, found } => HubError::Damaged { repo, file: name, expected, found },
            Failure::Lacking(missing) => HubError::NoMetadata { endpoint, repo, file: name, missing },
            Failure::Unsafe { what, found } => HubError::UnsafeName { repo, what, found },
            other => {
                let what = file.map_or("the list of files".to_owned(), |file| format!("`{file}`"));
                HubError::Transport { endpoint, repo, what, reason: other.reason() }
            }
        }
    }
}

impl Source for Online<'_> {
    fn place(&self) -> Place {
        Place::Hub
    }

    fn folder(&self) -> &Path {
        &self.snapshot
    }

    fn file(&self, name: &str) -> Result<PathBuf, HubError> {
        if !stays_inside(name) {
            return Err(self.unsafe_name("the file", name));
        }
        let path = self.snapshot.join(name);
        if !path.is_file() {
            self.fetch(name, &Bar::new(self.quiet))?;
        }
        Ok(path)
    }

    /// Let the revision mean this commit from now on, also when nothing had to be fetched.
    fn finish(&self) -> Result<(), HubError> {
        if self.wanted.revision == self.commit {
            return Ok(());
        }
        let io = |source| HubError::Cache { path: self.snapshot.clone(), source };
        self.wanted.cache.write_ref(self.wanted.revision, &self.commit).map_err(io)
    }
}

fn checked_endpoint(endpoint: &str) -> Result<ureq::http::Uri, HubError> {
    // an address with a password is not repeated
    let shown = endpoint.rsplit('@').next().unwrap_or_default();
    let bad = |reason: String| HubError::Endpoint { endpoint: shown.to_owned(), reason };
    let home = address::parse(endpoint).map_err(bad)?;
    match home.query().is_some() || endpoint.contains('#') {
        true => Err(bad("it must not have a query or a fragment".to_owned())),
        false => Ok(home),
    }
}

/// Commit and file names in the description of a repository.
fn read_listing(text: &[u8]) -> Result<(String, Vec<String>), String> {
    let value: Value = serde_json::from_slice(text).map_err(|error| error.to_string())?;
    let Some(commit) = value.get("sha").and_then(Value::as_str) else {
        return Err("key `sha` must be a text".to_owned());
    };
    let Some(siblings) = value.get("siblings").and_then(Value::as_array) else {
        return Err("key `siblings` must be a list".to_owned());
    };
    let name = |sibling: &Value| sibling.get("rfilename")?.as_str().map(str::to_owned);
    let files: Option<Vec<String>> = siblings.iter().map(name).collect();
    let files = files.ok_or("key `rfilename` of each sibling must be a text")?;
    Ok((commit.to_owned(), files))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::ErrorKind;

    fn failed(failure: Failure) -> HubError {
        let hub = tempfile::tempdir().unwrap();
        let limits = Limits::default();
        let cache = RepoCache::new(hub.path(), "org/name");
        let client = Client::new("https://host".parse().unwrap(), Some("secret"), &limits).unwrap();
        let online = Online {
            wanted: Wanted { repo: "org/name", revision: "main", cache, token: None },
            client,
            endpoint: "https://host".to_owned(),
            limits: &limits,
            commit: String::new(),
            snapshot: PathBuf::new(),
            quiet: true,
        };
        let failed = online.failed(Some("file"), failure);
        let text = failed.to_string();
        assert!(text.contains("org/name") && !text.contains("secret"), "{text}");
        failed
    }

    #[test]
    fn each_failure_has_its_error() {
        let status = |status, at_home| {
            failed(Failure::Status { status, origin: "https://cdn".to_owned(), at_home, retry_after: None })
        };
        assert!(matches!(status(401, true), HubError::Unauthorized { token_sent: true, .. }));
        assert!(matches!(status(403, true), HubError::Forbidden { .. }));
        assert!(matches!(status(404, true), HubError::FileNotFound { .. }));
        assert!(
            status(403, false)
                .to_string()
                .ends_with("`https://cdn`, to which it redirects, answered 403 Forbidden")
        );
        assert!(matches!(failed(Failure::Store(ErrorKind::StorageFull.into())), HubError::Store { .. }));
        assert!(matches!(failed(Failure::Cut(String::new())), HubError::Transport { .. }));
        assert!(matches!(failed(Failure::Size { expected: 2, found: 1 }), HubError::Incomplete { .. }));
        let hash = Failure::Hash { expected: "a".to_owned(), found: "b".to_owned() };
        assert!(matches!(failed(hash), HubError::Damaged { .. }));
        assert!(matches!(failed(Failure::Lacking("the size")), HubError::NoMetadata { .. }));
        let unsafe_name = Failure::Unsafe { what: "the ETag", found: "../x".to_owned() };
        assert!(matches!(failed(unsafe_name), HubError::UnsafeName { .. }));
    }

    #[test]
    fn endpoints_and_listings_are_checked() {
        assert!(checked_endpoint("https://host/base").is_ok());
        for bad in ["host", "ftp://host", "https://host?x", "https://host#x", "https://user:secret@host"] {
            let error = checked_endpoint(bad).unwrap_err();
            assert!(matches!(&error, HubError::Endpoint { .. }) && error.hint().is_some());
            assert!(!error.to_string().contains("secret"), "{error}");
        }
        let good = br#"{"sha": "abc", "siblings": [{"rfilename": "x"}]}"#;
        assert_eq!(read_listing(good).unwrap(), ("abc".to_owned(), vec!["x".to_owned()]));
        for bad in ["<html>", "{}", r#"{"sha": 1}"#, r#"{"sha": "a"}"#, r#"{"sha": "a", "siblings": [1]}"#] {
            assert!(read_listing(bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
