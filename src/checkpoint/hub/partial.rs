//! A file that has arrived in part: `blobs/ETAG.incomplete`, which the Python client writes too.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

/// Bytes that are read or written at a time.
pub(super) const CHUNK_BYTES: usize = 256 << 10;

/// The bytes so far, on disk, and their hash if it is wanted.
pub(super) struct Partial {
    file: File,
    path: PathBuf,
    size_bytes: u64,
    hash: Option<Sha256>,
}

impl Partial {
    /// Go on with what an earlier run has left, or begin. More than `limit_bytes` cannot be right and is dropped.
    pub(super) fn open(path: &Path, hashed: bool, limit_bytes: u64) -> io::Result<Self> {
        let file = OpenOptions::new().create(true).truncate(false).read(true).write(true).open(path)?;
        let hash = hashed.then(Sha256::new);
        let mut partial = Self { file, path: path.to_owned(), size_bytes: 0, hash };
        if partial.file.metadata()?.len() > limit_bytes {
            partial.restart()?;
        }
        partial.size_bytes = partial.read_back()?;
        Ok(partial)
    }

    /// Hash what is there and stop behind it. Returns its size in bytes.
    fn read_back(&mut self) -> io::Result<u64> {
        let Some(hash) = &mut self.hash else {
            return self.file.seek(SeekFrom::End(0));
        };
        self.file.seek(SeekFrom::Start(0))?;
        let mut buffer = vec![0; CHUNK_BYTES];
        let mut size_bytes = 0;
        loop {
            match self.file.read(&mut buffer)? {
                0 => return Ok(size_bytes),
                read => {
                    hash.update(&buffer[..read]);
                    size_bytes += read as u64;
                }
            }
        }
    }

    pub(super) fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    pub(super) fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)?;
        self.size_bytes += bytes.len() as u64;
        if let Some(hash) = &mut self.hash {
            hash.update(bytes);
        }
        Ok(())
    }

    /// Drop all bytes.
    pub(super) fn restart(&mut self) -> io::Result<()> {
        self.file.set_len(0)?;
        self.file.seek(SeekFrom::Start(0))?;
        self.size_bytes = 0;
        if let Some(hash) = &mut self.hash {
            hash.reset();
        }
        Ok(())
    }

    /// SHA-256 of the bytes so far, if it was wanted, as in an ETag.
    pub(super) fn sha256(&self) -> Option<String> {
        let digest = self.hash.clone()?.finalize();
        Some(digest.iter().map(|byte| format!("{byte:02x}")).collect())
    }

    /// Give the file its final name.
    pub(super) fn finish(self, blob: &Path) -> io::Result<()> {
        self.file.sync_all()?;
        drop(self.file);
        std::fs::rename(&self.path, blob)
    }

    /// Remove the file.
    pub(super) fn discard(self) -> io::Result<()> {
        drop(self.file);
        std::fs::remove_file(&self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From FIPS 180-4: SHA-256 of `abc`.
    const ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    #[test]
    fn d102_bytes_of_an_earlier_run_are_kept_and_hashed() {
        let folder = tempfile::tempdir().unwrap();
        let (path, blob) = (folder.path().join("x.incomplete"), folder.path().join("x"));
        Partial::open(&path, true, 3).unwrap().append(b"ab").unwrap();
        let mut partial = Partial::open(&path, true, 3).unwrap();
        assert_eq!(partial.size_bytes(), 2);
        partial.append(b"c").unwrap();
        assert_eq!(partial.sha256().as_deref(), Some(ABC));
        partial.restart().unwrap();
        partial.append(b"abc").unwrap();
        assert_eq!((partial.sha256().as_deref(), partial.size_bytes()), (Some(ABC), 3));
        partial.finish(&blob).unwrap();
        assert_eq!((std::fs::read(&blob).unwrap(), path.exists()), (b"abc".to_vec(), false));
    }

    #[test]
    fn what_is_too_long_is_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.incomplete");
        std::fs::write(&path, "too long").unwrap();
        let partial = Partial::open(&path, false, 3).unwrap();
        assert_eq!((partial.size_bytes(), partial.sha256()), (0, None));
        partial.discard().unwrap();
        assert!(!path.exists());
    }
}
