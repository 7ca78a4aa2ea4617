//! Small files beside the weights: configs, tokenizer, chat template.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Largest file that is read into memory, in bytes. The largest published `tokenizer.json` are near 40 MB.
pub const MAX_SIDECAR_BYTES: u64 = 256 << 20;

/// Why a small file cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum SidecarError {
    /// The system refused
    #[error("`{}` cannot be read: {source}", .path.display())]
    Io {
        /// File
        path: PathBuf,
        /// Reason
        source: io::Error,
    },
    /// Larger than any such file should be
    #[error("`{}` has `{found}` bytes; at most {MAX_SIDECAR_BYTES} are read", .path.display())]
    TooLarge {
        /// File
        path: PathBuf,
        /// Size in bytes
        found: u64,
    },
    /// A text file that is not UTF-8
    #[error("`{}` is not valid UTF-8", .path.display())]
    NotUtf8 {
        /// File
        path: PathBuf,
    },
}

/// The content of a file, or `None` when there is no such file.
///
/// # Errors
/// `Io` or `TooLarge`.
pub fn read(path: &Path) -> Result<Option<Vec<u8>>, SidecarError> {
    let fail = |source| SidecarError::Io { path: path.to_owned(), source };
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(fail(error)),
    };
    let found = file.metadata().map_err(fail)?.len();
    if found > MAX_SIDECAR_BYTES {
        return Err(SidecarError::TooLarge { path: path.to_owned(), found });
    }
    let mut bytes = Vec::new();
    file.take(MAX_SIDECAR_BYTES).read_to_end(&mut bytes).map_err(fail)?;
    Ok(Some(bytes))
}

/// The content of a text file, or `None` when there is no such file.
///
/// # Errors
/// `Io`, `TooLarge` or `NotUtf8`.
pub fn read_text(path: &Path) -> Result<Option<String>, SidecarError> {
    let Some(bytes) = read(path)? else {
        return Ok(None);
    };
    let text = String::from_utf8(bytes);
    text.map(Some).map_err(|_| SidecarError::NotUtf8 { path: path.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absent_is_none_and_bad_files_are_errors() {
        let folder = std::env::temp_dir();
        let path = folder.join(format!("ropex-sidecar-{}", std::process::id()));
        assert!(read(&path).unwrap().is_none() && read_text(&path).unwrap().is_none());
        std::fs::write(&path, [0xff]).unwrap();
        assert_eq!(read(&path).unwrap(), Some(vec![0xff]));
        assert!(matches!(read_text(&path), Err(SidecarError::NotUtf8 { .. })));
        assert!(matches!(read(&folder), Err(SidecarError::Io { .. })));
        File::create(&path).unwrap().set_len(MAX_SIDECAR_BYTES + 1).unwrap();
        assert!(matches!(read(&path), Err(SidecarError::TooLarge { .. })));
        std::fs::remove_file(&path).unwrap();
    }
}
