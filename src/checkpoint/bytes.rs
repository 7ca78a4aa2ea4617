//! The bytes of a checkpoint file: a memory map, data built into the program, or memory.

use std::fs::File;
use std::io;
use std::ops::Deref;
use std::path::Path;

/// Read-only bytes that live as long as the checkpoint does.
#[derive(Debug)]
pub enum Bytes {
    /// A file on disk
    Map(memmap2::Mmap),
    /// Data built into the program
    Static(&'static [u8]),
    /// Data made in memory
    Owned(Vec<u8>),
}

impl Bytes {
    /// Map a file into memory.
    ///
    /// # Errors
    /// The file cannot be opened, is not a regular file, or cannot be mapped.
    pub fn map(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let status = file.metadata()?;
        if !status.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
        }
        if status.len() == 0 {
            return Ok(Self::Owned(Vec::new())); // some systems refuse an empty map
        }
        // SAFETY: the map is read-only and private to this value. Whoever runs the program guarantees that the
        // checkpoint is not rewritten in place while it is open, as for every program that maps its weights;
        // downloads and exports here write a sibling file and rename it, which leaves an open map intact.
        let map = unsafe { memmap2::Mmap::map(&file)? };
        Ok(Self::Map(map))
    }
}

impl Bytes {
    /// Gives the memory of a map back to the system; what is read later comes from the file again.
    pub fn release_pages(&self) {
        #[cfg(target_os = "linux")]
        if let Self::Map(map) = self {
            // SAFETY: the map is read-only and of a file, so that dropped pages come back with the same contents.
            let advised = unsafe { map.unchecked_advise(memmap2::UncheckedAdvice::DontNeed) };
            // Only a wish: without it the pages stay.
            let _ = advised;
        }
    }
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Map(map) => map,
            Self::Static(bytes) => bytes,
            Self::Owned(bytes) => bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_not_mapped_and_an_empty_file_is_empty() {
        assert!(Bytes::map(&std::env::temp_dir()).is_err());
        let path = std::env::temp_dir().join(format!("ropex-empty-{}", std::process::id()));
        std::fs::write(&path, b"").unwrap();
        assert_eq!(Bytes::map(&path).unwrap().len(), 0);
        std::fs::remove_file(&path).unwrap();
    }
}
