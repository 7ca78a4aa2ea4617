//! Files of token losses: `--save-nll` and `--baseline`.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde_json::Value;

use crate::cli::CommandError;
use crate::cli::report::write_file;
use crate::eval::document::Document;
use crate::eval::perplexity::losses::Losses;
use crate::eval::perplexity::saved::{Header, Saved};
use crate::eval::windows::Window;

/// Largest file of losses that is read: 24 bytes a token.
const MAX_BYTES: u64 = 8 << 30;

/// Reads the losses of an earlier run and makes sure that they belong to the tokens of this one.
///
/// `path`: a file of `--save-nll`, or a JSON result that names one.
pub fn read_baseline(
    path: &Path,
    now: &Header,
    documents: &[Document],
    plan: &[Vec<Window>],
) -> anyhow::Result<Saved> {
    let (path, bytes) = losses_file(path)?;
    let refused = || {
        CommandError::failed(format!("cannot compare with the baseline `{}`", path.display())).hint(
            "a baseline is made by the same `ropex ppl` command with `--save-nll FILE`; only model and rotary embedding may differ",
        )
    };
    let saved = Saved::decode(&bytes).with_context(refused)?;
    saved.ensure_same_tokens(now, documents, plan).with_context(refused)?;
    Ok(saved)
}

/// The file of losses and what is in it; a JSON result is followed to the file that it names.
fn losses_file(path: &Path) -> anyhow::Result<(PathBuf, Vec<u8>)> {
    let bytes = read(path)?;
    let Ok(json) = serde_json::from_slice::<Value>(&bytes) else {
        return Ok((path.to_path_buf(), bytes));
    };
    let Some(named) = json["result"]["saved_nll"].as_str() else {
        let message = format!("the result `{}` names no saved losses (`result.saved_nll`)", path.display());
        return Err(CommandError::failed(message)
            .hint("run the baseline again with `--save-nll FILE`")
            .into());
    };
    // As written by that run, else beside the result.
    let named = PathBuf::from(named);
    let found = if named.exists() { named } else { path.with_file_name("").join(named) };
    let bytes = read(&found)?;
    Ok((found, bytes))
}

fn read(path: &Path) -> anyhow::Result<Vec<u8>> {
    let name = path.display();
    let size = fs::metadata(path).with_context(|| format!("cannot read `{name}`"))?.len();
    if size > MAX_BYTES {
        let message = format!("`{name}` has {size} bytes, more than {MAX_BYTES} for token losses");
        return Err(CommandError::failed(message).into());
    }
    fs::read(path).with_context(|| format!("cannot read `{name}`"))
}

/// Writes the losses of a run.
pub fn write_losses(
    path: &Path,
    header: Header,
    documents: &[Document],
    losses: &Losses,
) -> anyhow::Result<()> {
    let failed = || format!("cannot write `{}`", path.display());
    let bytes =
        Saved::new(header, documents, losses).and_then(|saved| saved.encode()).with_context(failed)?;
    write_file(path, bytes)
}
