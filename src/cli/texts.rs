//! Text files as commands read them.

use std::fs;
use std::path::Path;

use anyhow::Context as _;

use super::CommandError;
use crate::checkpoint::tokenizer::Bos;

/// Whether a text begins with the beginning-of-sequence token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum BosChoice {
    Auto,
    Always,
    Never,
}

impl From<BosChoice> for Bos {
    fn from(choice: BosChoice) -> Bos {
        match choice {
            BosChoice::Auto => Bos::Auto,
            BosChoice::Always => Bos::Always,
            BosChoice::Never => Bos::Never,
        }
    }
}

/// The text of a file. `lossy`: bytes that are not UTF-8 become U+FFFD instead of an error.
///
/// # Errors
/// A file that cannot be read, is empty or is not UTF-8.
pub fn read_text(path: &Path, lossy: bool) -> anyhow::Result<String> {
    let name = path.display();
    let bytes = fs::read(path).with_context(|| format!("cannot read `{name}`"))?;
    if bytes.is_empty() {
        return Err(CommandError::failed(format!("`{name}` is empty")).into());
    }
    match String::from_utf8(bytes) {
        Ok(text) => Ok(text),
        Err(error) if lossy => Ok(String::from_utf8_lossy(error.as_bytes()).into_owned()),
        Err(error) => {
            let at = error.utf8_error().valid_up_to();
            let message = format!("`{name}` is not UTF-8: bad byte at offset {at}");
            Err(CommandError::failed(message).hint("convert it, or read it with `--lossy`").into())
        }
    }
}
