//! Repositories on the Hugging Face Hub, or on a mirror of it.
//!
//! Nothing here reads an environment variable: whoever starts the program resolves HF_HOME, HF_ENDPOINT, HF_TOKEN and
//! HF_HUB_OFFLINE into `HubOptions`. Only the proxy variables are read, by the HTTP client.

mod address;
mod cache;
mod client;
mod download;
mod error;
mod facts;
mod failure;
mod lock;
mod names;
mod online;
mod partial;
mod progress;
mod retry;
mod select;

use std::path::{Path, PathBuf};
use std::time::Duration;

use cache::RepoCache;
pub use error::{HubError, Place};
use online::Online;
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
    /// Server, which may have a path; `DEFAULT_ENDPOINT` when absent
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

/// How long to wait for a server and how often to ask again. The default suits every run.
#[derive(Clone, Debug, PartialEq)]
pub struct Limits {
    /// For finding a host, and for connecting to it
    pub connect_timeout: Duration,
    /// For the headers of an answer, and for each further piece of it
    pub read_timeout: Duration,
    /// Attempts after the first one that bring little; an attempt that brings more begins the count anew
    pub retries: u32,
    /// Pause before the second attempt, twice as long before each further one
    pub backoff: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(10),
            read_timeout: Duration::from_secs(30),
            retries: 5,
            backoff: Duration::from_secs(1),
        }
    }
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
    pull_within(repo, revision, quant, options, &Limits::default())
}

/// `pull` with other limits.
///
/// # Errors
/// As for `pull`.
pub fn pull_within(
    repo: &str,
    revision: Option<&str>,
    quant: Option<&str>,
    options: &HubOptions,
    limits: &Limits,
) -> Result<Pulled, HubError> {
    let Some(folder) = &options.cache_dir else {
        return Err(HubError::NoCacheFolder { repo: repo.to_owned() });
    };
    let unsafe_name =
        |what, found: &str| HubError::UnsafeName { repo: repo.to_owned(), what, found: found.to_owned() };
    let revision = revision.unwrap_or(DEFAULT_REVISION);
    if !names::is_repo(repo) {
        return Err(unsafe_name("the repository", repo));
    }
    if !stays_inside(revision) {
        return Err(unsafe_name("the revision", revision));
    }
    let cache = RepoCache::new(folder, repo);
    let (source, files): (Box<dyn Source>, _) = if options.offline {
        let Some(snapshot) = cache.snapshot(revision) else {
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
        let token = options.token.clone().or_else(|| cache::token(folder));
        let (online, files) =
            Online::connect(online::Wanted { repo, revision, cache, token }, options, limits)?;
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
