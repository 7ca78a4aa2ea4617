//! Which model and which text: by content, so that the same cell has the same key on every machine.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::record::hex;

/// Bytes that are read at once.
const BLOCK_BYTES: usize = 1 << 20;

/// A file that could not be read to identify it.
#[derive(Debug, thiserror::Error)]
#[error("cannot read `{}` to identify the model", .path.display())]
pub struct IdentityError {
    path: PathBuf,
    source: io::Error,
}

/// SHA-256 in hexadecimal over everything in `files`, in their order, each preceded by its size as eight bytes, then over
/// `parts` in the same way. Names, places and times of files do not count.
///
/// # Errors
/// A file that cannot be read.
pub fn fingerprint(files: &[&Path], parts: &[&[u8]]) -> Result<String, IdentityError> {
    let mut hash = Sha256::new();
    let mut block = vec![0; BLOCK_BYTES];
    for path in files {
        hash_file(path, &mut hash, &mut block)
            .map_err(|source| IdentityError { path: path.to_path_buf(), source })?;
    }
    for part in parts {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    Ok(hex(&hash.finalize()))
}

fn hash_file(path: &Path, hash: &mut Sha256, block: &mut [u8]) -> io::Result<()> {
    let mut file = File::open(path)?;
    hash.update(file.metadata()?.len().to_le_bytes());
    loop {
        match file.read(block)? {
            0 => return Ok(()),
            read => hash.update(&block[..read]),
        }
    }
}

/// SHA-256 in hexadecimal over token ids.
pub fn of_tokens(tokens: &[u32]) -> String {
    let mut hash = Sha256::new();
    for token in tokens {
        hash.update(token.to_le_bytes());
    }
    hex(&hash.finalize())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn content_counts_and_names_do_not() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, bytes: &[u8]| {
            let path = dir.path().join(name);
            fs::write(&path, bytes).unwrap();
            path
        };
        let long = vec![7u8; BLOCK_BYTES + 3];
        let (a, b) = (write("a", &long), write("b", &long));
        let mut longer = long.clone();
        longer[BLOCK_BYTES + 2] = 8;
        let c = write("c", &longer);
        let of = |paths: &[&Path]| fingerprint(paths, &[]).unwrap();
        assert_eq!(of(&[&a]), of(&[&b]));
        assert_ne!(of(&[&a]), of(&[&c]));
        assert_ne!(of(&[&a, &c]), of(&[&c, &a]));
        // A part counts like a file, and a border between two counts too.
        assert_eq!(of(&[&a]), fingerprint(&[], &[&long]).unwrap());
        let halves = fingerprint(&[], &[&long[..3], &long[3..]]).unwrap();
        assert_ne!(of(&[&a]), halves);
        let missing = fingerprint(&[&dir.path().join("d")], &[]).unwrap_err();
        assert!(missing.to_string().contains("to identify the model"), "{missing}");
        assert_ne!(of_tokens(&[1, 2]), of_tokens(&[2, 1]));
    }
}
