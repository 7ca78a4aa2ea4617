//! The local cache, in the layout that all Hugging Face tools share.
//!
//! `models--ORG--NAME/refs/REVISION` holds a commit, `snapshots/COMMIT/` the files of it.

use std::path::{Path, PathBuf};

use hf_hub::{Cache, Repo};

/// Folder of the files of a revision, if the cache has it. A commit may be given in place of a branch or tag.
pub(super) fn snapshot(cache: &Cache, repo: &Repo) -> Option<PathBuf> {
    let root = cache.path().join(repo.folder_name());
    let reference = std::fs::read_to_string(root.join("refs").join(repo.revision())).ok();
    let commit = match &reference {
        Some(commit) => commit.trim(),
        None => repo.revision(),
    };
    if !is_commit(commit) {
        return None;
    }
    let folder = root.join("snapshots").join(commit);
    folder.is_dir().then_some(folder)
}

/// Whether a text can be a commit: letters and digits, at most as many as a SHA-256 has.
pub(super) fn is_commit(text: &str) -> bool {
    (1..=64).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_alphanumeric())
}

/// All files below a snapshot folder, as paths with `/`, sorted.
pub(super) fn list(folder: &Path) -> std::io::Result<Vec<String>> {
    let mut files = Vec::new();
    let mut folders = vec![(folder.to_owned(), String::new())];
    while let Some((folder, prefix)) = folders.pop() {
        for entry in std::fs::read_dir(&folder)? {
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
        let root = std::env::temp_dir().join(format!("ropex-cache-{}", std::process::id()));
        let repo_root = root.join("models--org--name");
        let snapshot_root = repo_root.join("snapshots/abc123");
        std::fs::create_dir_all(snapshot_root.join("sub")).unwrap();
        std::fs::create_dir_all(repo_root.join("refs/refs/pr")).unwrap();
        std::fs::write(repo_root.join("refs/main"), "abc123\n").unwrap();
        std::fs::write(repo_root.join("refs/refs/pr/1"), "../../evil").unwrap();
        std::fs::write(snapshot_root.join("sub/b"), "").unwrap();
        std::fs::write(snapshot_root.join("a"), "").unwrap();
        let cache = Cache::new(root.clone());
        let find = |revision: &str| {
            let repo = Repo::with_revision("org/name".into(), hf_hub::RepoType::Model, revision.into());
            snapshot(&cache, &repo)
        };
        assert_eq!(find("main"), Some(snapshot_root.clone()));
        assert_eq!(find("abc123"), Some(snapshot_root.clone()));
        assert_eq!(find("v2"), None);
        assert_eq!(find("refs/pr/1"), None);
        assert_eq!(list(&snapshot_root).unwrap(), ["a", "sub/b"]);
        std::fs::remove_dir_all(&root).unwrap();
    }
}
