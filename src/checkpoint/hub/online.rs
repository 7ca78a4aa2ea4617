//! The server, asked through the `hf-hub` client.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use hf_hub::api::sync::{Api, ApiBuilder, ApiError, ApiRepo};
use hf_hub::{Cache, CacheRepo, Repo};

use super::error::{HubError, Place};
use super::progress::Bar;
use super::{DEFAULT_ENDPOINT, HubOptions, Source, cache};
use crate::checkpoint::safetensors::stays_inside;

/// The server, and the cache in front of it.
pub(super) struct Online<'a> {
    server: Server<'a>,
    api: ApiRepo,
    cached: CacheRepo,
    commit: String,
    snapshot: PathBuf,
    quiet: bool,
}

impl<'a> Online<'a> {
    /// Ask the server which commit the revision is and which files it has.
    pub(super) fn connect(
        repo: &'a str,
        handle: Repo,
        cache: Cache,
        options: &HubOptions,
    ) -> Result<(Self, Vec<String>), HubError> {
        let endpoint = options.endpoint.as_deref().unwrap_or(DEFAULT_ENDPOINT).trim_end_matches('/');
        let token = options.token.clone().or_else(|| cache.token());
        let token_sent = token.is_some();
        let client: Api = ApiBuilder::from_cache(cache.clone())
            .with_endpoint(endpoint.to_owned())
            .with_token(token)
            .build()
            .map_err(|error| HubError::Client { reason: error.to_string() })?;
        let mut online = Self {
            server: Server { repo, endpoint: endpoint.to_owned(), token_sent },
            api: client.repo(handle.clone()),
            cached: cache.repo(handle.clone()),
            commit: String::new(),
            snapshot: PathBuf::new(),
            quiet: options.quiet,
        };
        let info = online.api.info().map_err(|error| match status(&error) {
            Some(404) => HubError::NotFound {
                endpoint: endpoint.to_owned(),
                repo: repo.to_owned(),
                revision: handle.revision().to_owned(),
            },
            _ => online.server.failed("the list of files", &error),
        })?;
        if !cache::is_commit(&info.sha) {
            return Err(online.unsafe_name("the commit", &info.sha));
        }
        let files: Vec<String> = info.siblings.into_iter().map(|sibling| sibling.rfilename).collect();
        online.snapshot = online.cached.pointer_path(&info.sha);
        online.commit = info.sha;
        Ok((online, files))
    }

    fn unsafe_name(&self, what: &'static str, found: &str) -> HubError {
        HubError::UnsafeName { repo: self.server.repo.to_owned(), what, found: found.to_owned() }
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
        if path.is_file() {
            return Ok(path);
        }
        let (bar, size_bytes) = Bar::new(self.quiet);
        let fetched =
            self.api.download_with_progress(name, bar).map_err(|error| self.server.failed(name, &error))?;
        if fetched != path {
            return Err(HubError::Changed {
                repo: self.server.repo.to_owned(),
                file: name.to_owned(),
                commit: self.commit.clone(),
            });
        }
        let io = |source| HubError::Cache { path: path.clone(), source };
        let found = std::fs::metadata(&path).map_err(io)?.len();
        if found != size_bytes.get() {
            let blob = std::fs::canonicalize(&path).map_err(io)?;
            std::fs::remove_file(&path).and_then(|()| std::fs::remove_file(blob)).map_err(io)?;
            return Err(HubError::Incomplete {
                repo: self.server.repo.to_owned(),
                file: name.to_owned(),
                expected: size_bytes.get(),
                found,
            });
        }
        Ok(path)
    }

    /// Let the revision mean this commit from now on, also when nothing had to be fetched.
    fn finish(&self) -> Result<(), HubError> {
        let io = |source| HubError::Cache { path: self.snapshot.clone(), source };
        self.cached.create_ref(&self.commit).map_err(io)
    }
}

/// Who is asked for what, for messages.
struct Server<'a> {
    repo: &'a str,
    endpoint: String,
    token_sent: bool,
}

impl Server<'_> {
    /// What a failed request for `file` means.
    fn failed(&self, file: &str, error: &ApiError) -> HubError {
        let (endpoint, repo, token_sent) = (self.endpoint.clone(), self.repo.to_owned(), self.token_sent);
        match (status(error), error) {
            (Some(401), _) => HubError::Unauthorized { endpoint, repo, token_sent },
            (Some(403), _) => HubError::Forbidden { endpoint, repo, token_sent },
            (Some(404), _) => HubError::FileNotFound { endpoint, repo, file: file.to_owned() },
            (_, ApiError::LockAcquisition(path)) => {
                HubError::Locked { repo, file: file.to_owned(), lock: path.clone() }
            }
            (_, ApiError::IoError(error)) if is_local(error.kind()) => {
                HubError::Store { repo, file: file.to_owned(), reason: error.to_string() }
            }
            _ => HubError::Transport { endpoint, repo, file: file.to_owned(), reason: error.to_string() },
        }
    }
}

/// Whether an I/O error comes from the disk and not from the connection.
fn is_local(kind: ErrorKind) -> bool {
    use ErrorKind as K;
    matches!(
        kind,
        K::NotFound
            | K::PermissionDenied
            | K::AlreadyExists
            | K::NotADirectory
            | K::IsADirectory
            | K::ReadOnlyFilesystem
            | K::StorageFull
            | K::QuotaExceeded
            | K::FileTooLarge
    )
}

/// HTTP status of a failed request, if the server answered. The client only tells it in its message.
fn status(error: &ApiError) -> Option<u16> {
    let text = error.to_string();
    let (_, status) = text.split_once("http status: ")?;
    status.get(..3)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(error: ApiError) -> HubError {
        let server = Server { repo: "org/name", endpoint: "https://host".to_owned(), token_sent: false };
        let failed = server.failed("file", &error);
        assert!(failed.to_string().contains("org/name") && failed.hint().is_some(), "{failed}");
        failed
    }

    #[test]
    fn failures_of_the_disk_and_of_the_connection_are_told_apart() {
        let io = |kind: ErrorKind| failed(ApiError::IoError(kind.into()));
        assert!(matches!(io(ErrorKind::StorageFull), HubError::Store { .. }));
        assert!(matches!(io(ErrorKind::NotADirectory), HubError::Store { .. }));
        assert!(matches!(io(ErrorKind::ConnectionReset), HubError::Transport { .. }));
        assert!(matches!(io(ErrorKind::UnexpectedEof), HubError::Transport { .. }));
        assert!(matches!(failed(ApiError::InvalidResume), HubError::Transport { .. }));
        let locked = failed(ApiError::LockAcquisition("/c/x.lock".into()));
        assert!(matches!(&locked, HubError::Locked { lock, .. } if lock == Path::new("/c/x.lock")));
    }
}
