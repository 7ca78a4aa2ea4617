//! Repositories on the Hugging Face Hub, or on a mirror of it.
//!
//! Nothing here reads an environment variable: whoever starts the program resolves HF_HOME, HF_ENDPOINT, HF_TOKEN and
//! HF_HUB_OFFLINE into `HubOptions`.

mod cache;
mod error;
mod progress;
mod select;

use std::path::{Path, PathBuf};

use hf_hub::api::sync::{Api, ApiBuilder, ApiError, ApiRepo};
use hf_hub::{Cache, CacheRepo, Repo, RepoType};

pub use error::{HubError, Place};
use progress::Bar;
use select::{Request, Selection};

use crate::checkpoint::safetensors::{INDEX_FILE, Index, stays_inside};
use crate::checkpoint::sidecar;

/// Server that is asked when none is given.
pub const DEFAULT_ENDPOINT: &str = "https://huggingface.co";

/// Revision that is used when none is given.
pub const DEFAULT_REVISION: &str = "main";

/// How to reach the Hub and where to keep files.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HubOptions {
    /// Server, without a slash at the end; `DEFAULT_ENDPOINT` when absent
    pub endpoint: Option<String>,
    /// The `hub` folder of the Hugging Face cache, that is `$HF_HOME/hub`; needed for every Hub reference
    pub cache_dir: Option<PathBuf>,
    /// Access token; when absent, the file `token` beside the `hub` folder is used if it exists
    pub token: Option<String>,
    /// Open no socket and use what is in the cache
    pub offline: bool,
    /// Draw no progress bar
    pub quiet: bool,
}

/// What was fetched, or found in the cache.
#[derive(Clone, Debug, PartialEq)]
pub enum Pulled {
    /// First file of a GGUF checkpoint; further parts lie beside it
    Gguf(PathBuf),
    /// Folder with config, tokenizer and safetensors
    Folder(PathBuf),
}

/// Fetch what a run needs of a repository. Files that the cache has are not fetched again.
///
/// `repo`: `org/name`. `quant`: label or file name of a GGUF file.
///
/// # Errors
/// `HubError`; offline, everything that the cache lacks is `NotCached`, `FileNotCached` or an error of `Place::Cache`.
pub fn pull(
    repo: &str,
    revision: Option<&str>,
    quant: Option<&str>,
    options: &HubOptions,
) -> Result<Pulled, HubError> {
    let Some(folder) = &options.cache_dir else {
        return Err(HubError::NoCacheFolder { repo: repo.to_owned() });
    };
    let revision = revision.unwrap_or(DEFAULT_REVISION);
    let handle = Repo::with_revision(repo.to_owned(), RepoType::Model, revision.to_owned());
    let cache = Cache::new(folder.clone());
    let (source, files): (Box<dyn Source>, _) = if options.offline {
        let Some(snapshot) = cache::snapshot(&cache, &handle) else {
            return Err(HubError::NotCached {
                repo: repo.to_owned(),
                revision: revision.to_owned(),
                cache: folder.clone(),
            });
        };
        let files =
            cache::list(&snapshot).map_err(|source| HubError::Cache { path: snapshot.clone(), source })?;
        (Box::new(Offline { repo, cache: folder, snapshot }), files)
    } else {
        let (online, files) = Online::connect(repo, handle, cache, options)?;
        (Box::new(online), files)
    };
    let request = Request { repo, quant, place: source.place(), files: &files };
    let pulled = fetch(repo, request.select()?, &*source)?;
    source.finish()?;
    Ok(pulled)
}

fn fetch(repo: &str, selection: Selection, source: &dyn Source) -> Result<Pulled, HubError> {
    let (files, indexed) = match selection {
        Selection::Gguf(parts) => {
            let paths = parts.iter().map(|part| source.file(part)).collect::<Result<Vec<_>, _>>()?;
            let missing = || HubError::Missing {
                repo: repo.to_owned(),
                place: source.place(),
                missing: "GGUF".to_owned(),
            };
            return paths.into_iter().next().map(Pulled::Gguf).ok_or_else(missing);
        }
        Selection::Folder { files, indexed } => (files, indexed),
    };
    for file in &files {
        source.file(file)?;
    }
    if indexed {
        let path = source.file(INDEX_FILE)?;
        let unusable = |reason: String| HubError::Index { repo: repo.to_owned(), reason };
        let bytes = sidecar::read(&path).map_err(|error| unusable(error.to_string()))?;
        let index =
            Index::parse(&bytes.unwrap_or_default()).map_err(|problem| unusable(problem.to_string()))?;
        for shard in index.shards() {
            source.file(shard)?;
        }
    }
    Ok(Pulled::Folder(source.folder().to_owned()))
}

/// Where the files of one commit come from.
trait Source {
    fn place(&self) -> Place;
    /// Folder of the commit in the cache.
    fn folder(&self) -> &Path;
    /// Path of a file in that folder, fetched if need be.
    fn file(&self, name: &str) -> Result<PathBuf, HubError>;
    /// Called once all files are there.
    fn finish(&self) -> Result<(), HubError>;
}

/// The cache alone.
struct Offline<'a> {
    repo: &'a str,
    cache: &'a Path,
    snapshot: PathBuf,
}

impl Source for Offline<'_> {
    fn place(&self) -> Place {
        Place::Cache
    }

    fn folder(&self) -> &Path {
        &self.snapshot
    }

    fn file(&self, name: &str) -> Result<PathBuf, HubError> {
        let path = self.snapshot.join(name);
        if path.is_file() {
            return Ok(path);
        }
        Err(HubError::FileNotCached {
            repo: self.repo.to_owned(),
            file: name.to_owned(),
            cache: self.cache.to_owned(),
        })
    }

    fn finish(&self) -> Result<(), HubError> {
        Ok(())
    }
}

/// The server, and the cache in front of it.
struct Online<'a> {
    repo: &'a str,
    endpoint: String,
    api: ApiRepo,
    cached: CacheRepo,
    commit: String,
    snapshot: PathBuf,
    token_sent: bool,
    quiet: bool,
}

impl<'a> Online<'a> {
    /// Ask the server which commit the revision is and which files it has.
    fn connect(
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
            repo,
            endpoint: endpoint.to_owned(),
            api: client.repo(handle.clone()),
            cached: cache.repo(handle.clone()),
            commit: String::new(),
            snapshot: PathBuf::new(),
            token_sent,
            quiet: options.quiet,
        };
        let info = online.api.info().map_err(|error| match status(&error) {
            Some(404) => HubError::NotFound {
                endpoint: online.endpoint.clone(),
                repo: repo.to_owned(),
                revision: handle.revision().to_owned(),
            },
            _ => online.failed("the list of files", &error),
        })?;
        if !cache::is_commit(&info.sha) {
            return Err(online.unsafe_name("the commit", &info.sha));
        }
        let files: Vec<String> = info.siblings.into_iter().map(|sibling| sibling.rfilename).collect();
        online.snapshot = online.cached.pointer_path(&info.sha);
        online.commit = info.sha;
        Ok((online, files))
    }

    fn failed(&self, file: &str, error: &ApiError) -> HubError {
        let (endpoint, repo, token_sent) = (self.endpoint.clone(), self.repo.to_owned(), self.token_sent);
        match status(error) {
            Some(401) => HubError::Unauthorized { endpoint, repo, token_sent },
            Some(403) => HubError::Forbidden { endpoint, repo, token_sent },
            Some(404) => HubError::FileNotFound { endpoint, repo, file: file.to_owned() },
            _ => HubError::Transport { endpoint, repo, file: file.to_owned(), reason: error.to_string() },
        }
    }

    fn unsafe_name(&self, what: &'static str, found: &str) -> HubError {
        HubError::UnsafeName { repo: self.repo.to_owned(), what, found: found.to_owned() }
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
            self.api.download_with_progress(name, bar).map_err(|error| self.failed(name, &error))?;
        if fetched != path {
            return Err(HubError::Changed {
                repo: self.repo.to_owned(),
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
                repo: self.repo.to_owned(),
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

/// HTTP status of a failed request, if the server answered. The client only tells it in its message.
fn status(error: &ApiError) -> Option<u16> {
    let text = error.to_string();
    let (_, status) = text.split_once("http status: ")?;
    status.get(..3)?.parse().ok()
}
