//! The local cache, in the layout that all Hugging Face tools share.
//!
//! `models--ORG--NAME/refs/REVISION` holds a commit, `snapshots/COMMIT/` the files of it, as links to `blobs/ETAG`.
//! Where the file system has no links, snapshots hold the files themselves.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use super::names::is_commit;

/// The part of the cache that one repository has.
#[derive(Clone, Debug)]
pub(super) struct RepoCache {
    root: PathBuf,
    locks: PathBuf,
}

/// How a file of a snapshot comes from its blob.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    SymbolicLink,
    HardLink,
    /// Takes no further space, but other snapshots could need the blob
    Move,
    Copy,
}

impl RepoCache {
    /// `hub`: folder of the whole cache. `repo`: checked `org/name`.
    pub(super) fn new(hub: &Path, repo: &str) -> Self {
        let folder = format!("models--{}", repo.replace('/', "--"));
        Self { root: hub.join(&folder), locks: hub.join(".locks").join(folder) }
    }

    /// Folder of the files of a revision, if the cache has it. A commit may be given in place of a branch or tag.
    pub(super) fn snapshot(&self, revision: &str) -> Option<PathBuf> {
        let reference = fs::read_to_string(self.root.join("refs").join(revision)).ok();
        let commit = match &reference {
            Some(commit) => commit.trim(),
            None => revision,
        };
        if !is_commit(commit) {
            return None;
        }
        let folder = self.snapshot_of(commit);
        folder.is_dir().then_some(folder)
    }

    /// Folder of the files of a commit.
    pub(super) fn snapshot_of(&self, commit: &str) -> PathBuf {
        self.root.join("snapshots").join(commit)
    }

    /// Content with an ETag.
    pub(super) fn blob(&self, etag: &str) -> PathBuf {
        self.root.join("blobs").join(etag)
    }

    /// Held while that content is fetched.
    pub(super) fn lock(&self, etag: &str) -> PathBuf {
        self.locks.join(format!("{etag}.lock"))
    }

    /// Let a revision mean a commit from now on.
    pub(super) fn write_ref(&self, revision: &str, commit: &str) -> io::Result<()> {
        let path = self.root.join("refs").join(revision);
        if fs::read_to_string(&path).is_ok_and(|old| old == commit) {
            return Ok(());
        }
        let sibling = prepared_sibling(&path)?;
        fs::write(&sibling, commit)?;
        fs::rename(&sibling, &path)
    }

    /// Put the file `name` into the snapshot of a commit. `fresh`: nothing else uses the blob yet.
    pub(super) fn place(&self, etag: &str, commit: &str, name: &str, fresh: bool) -> io::Result<()> {
        let last = if fresh { Way::Move } else { Way::Copy };
        self.place_by(&[Way::SymbolicLink, Way::HardLink, last], etag, commit, name)
    }

    /// Take the first way that works.
    fn place_by(&self, ways: &[Way], etag: &str, commit: &str, name: &str) -> io::Result<()> {
        let blob = self.blob(etag);
        let path = self.snapshot_of(commit).join(name);
        let sibling = prepared_sibling(&path)?;
        let mut outcome = Err(io::Error::from(ErrorKind::Unsupported));
        for way in ways {
            outcome = match way {
                Way::SymbolicLink => link(&Path::new(&up(name)).join("blobs").join(etag), &sibling),
                Way::HardLink => fs::hard_link(&blob, &sibling),
                Way::Move => fs::rename(&blob, &sibling),
                Way::Copy => fs::copy(&blob, &sibling).map(|_| ()),
            };
            // some systems make links that lead nowhere
            if outcome.is_ok() && sibling.is_file() {
                outcome = fs::rename(&sibling, &path);
                // renaming one hard link of a file to another one does nothing
                fs::remove_file(&sibling).ok();
                return outcome;
            }
            fs::remove_file(&sibling).ok();
        }
        outcome.and(Err(io::Error::other("links in it lead nowhere")))
    }
}

/// The way from the folder of a snapshot's file up to the folder of the repository.
fn up(name: &str) -> String {
    vec![".."; name.split('/').count() + 1].join("/")
}

/// A free name beside `path` that is not taken for a file of the repository, in a folder that exists.
fn prepared_sibling(path: &Path) -> io::Result<PathBuf> {
    let folder = path.parent().unwrap_or(path);
    fs::create_dir_all(folder)?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let sibling =
        folder.join(format!(".{name}.{}-{:?}.tmp", std::process::id(), std::thread::current().id()));
    match fs::remove_file(&sibling) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(sibling),
    }
}

#[cfg(unix)]
fn link(target: &Path, path: &Path) -> io::Result<()> {
    std::os::unix::fs::symlink(target, path)
}

#[cfg(windows)]
fn link(target: &Path, path: &Path) -> io::Result<()> {
    std::os::windows::fs::symlink_file(target, path)
}

#[cfg(not(any(unix, windows)))]
fn link(_: &Path, _: &Path) -> io::Result<()> {
    Err(ErrorKind::Unsupported.into())
}

/// The access token that the Hugging Face tools keep beside the `hub` folder.
pub(super) fn token(hub: &Path) -> Option<String> {
    fs::read_to_string(hub.parent()?.join("token")).ok()
}

/// All files below a snapshot folder, as paths with `/`, sorted.
pub(super) fn list(folder: &Path) -> io::Result<Vec<String>> {
    let mut files = Vec::new();
    let mut folders = vec![(folder.to_owned(), String::new())];
    while let Some((folder, prefix)) = folders.pop() {
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            let Ok(name) = entry.file_name().into_string() else {
                continue;
            };
            let name = format!("{prefix}{name}");
            // a link to a removed blob is no file; a link to a folder is not followed
            if entry.file_type()?.is_dir() {
                folders.push((entry.path(), format!("{name}/")));
            } else if entry.path().is_file() {
                files.push(name);
            }
        }
    }
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snapshots_are_found_by_reference_and_by_commit() {
        let hub = tempfile::tempdir().unwrap();
        let cache = RepoCache::new(hub.path(), "org/name");
        let snapshot_root = cache.snapshot_of("abc123");
        fs::create_dir_all(snapshot_root.join("sub")).unwrap();
        cache.write_ref("main", "abc123\n").unwrap();
        cache.write_ref("refs/pr/1", "../../evil").unwrap();
        fs::write(snapshot_root.join("sub/b"), "").unwrap();
        fs::write(snapshot_root.join("a"), "").unwrap();
        assert_eq!(cache.snapshot("main"), Some(snapshot_root.clone()));
        assert_eq!(cache.snapshot("abc123"), Some(snapshot_root.clone()));
        assert_eq!(cache.snapshot("v2"), None);
        assert_eq!(cache.snapshot("refs/pr/1"), None);
        assert_eq!(list(&snapshot_root).unwrap(), ["a", "sub/b"]);
        cache.write_ref("main", "def456").unwrap();
        let root = hub.path().join("models--org--name");
        assert_eq!(fs::read_to_string(root.join("refs/main")).unwrap(), "def456");
        assert_eq!(list(&root.join("refs")).unwrap(), ["main", "refs/pr/1"]);
    }

    #[test]
    fn d104_a_file_is_placed_with_and_without_links() {
        let hub = tempfile::tempdir().unwrap();
        let cache = RepoCache::new(hub.path(), "org/name");
        let blob = cache.blob("0123456789");
        fs::create_dir_all(blob.parent().unwrap()).unwrap();
        for (number, way) in [Way::SymbolicLink, Way::HardLink, Way::Copy, Way::Move].into_iter().enumerate()
        {
            fs::write(&blob, "content").unwrap();
            let name = ["a", "sub/a", "sub/sub/a", "b"][number];
            for _ in 0..2 {
                if blob.exists() {
                    cache.place_by(&[way], "0123456789", "abc123", name).unwrap();
                }
            }
            let path = cache.snapshot_of("abc123").join(name);
            assert_eq!(fs::read_to_string(&path).unwrap(), "content", "{way:?}");
            assert_eq!(path.is_symlink(), way == Way::SymbolicLink);
            assert_eq!(blob.exists(), way != Way::Move);
        }
        assert_eq!(
            list(&cache.snapshot_of("abc123")).unwrap().len(),
            3,
            "links to the moved blob are no files"
        );
        let error =
            cache.place_by(&[Way::SymbolicLink, Way::HardLink], "0123456789", "abc123", "c").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert!(cache.place("0123456789", "abc123", "c", false).is_err());
    }
}
