//! `ropex pull`

use serde_json::json;

use super::model_args::parse_reference;
use super::report::{Report, Table};
use super::values::format_size;
use super::{CommandError, Context};
use crate::checkpoint::{Checkpoint, ModelRef, OpenOptions};

/// Download what a run needs of a Hub repository into the shared Hugging Face cache
///
/// GGUF repositories: one file, chosen by its quantisation. Others: configuration, tokenizer and safetensors.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ropex pull Qwen/Qwen2.5-0.5B-Instruct
  ropex pull org/name-GGUF:Q4_K_M")]
pub struct Args {
    /// org/name[@revision][:QUANT]
    #[arg(value_name = "REPO", value_parser = parse_reference)]
    repo: ModelRef,
}

pub fn run(args: Args, context: &Context) -> anyhow::Result<Report> {
    if !matches!(args.repo, ModelRef::Hub { .. }) {
        let error = CommandError::usage(format!("`{}` is already on this machine", args.repo));
        return Err(error.hint("pull takes a Hub id: org/name[@revision][:QUANT]").into());
    }
    let options = OpenOptions { hub: context.hub.clone(), ..OpenOptions::default() };
    let checkpoint = Checkpoint::open(&args.repo, &options)?;
    let mut table = Table::new("", &["file", "size"]);
    let mut files = Vec::new();
    for path in checkpoint.paths() {
        let size_bytes = path.metadata().map_or(0, |metadata| metadata.len());
        table.row([path.display().to_string(), format_size(size_bytes)]);
        files.push(json!({ "path": path.display().to_string(), "size_bytes": size_bytes }));
    }
    Ok(Report {
        schema: "ropex.pull/1",
        result: json!({ "reference": args.repo.to_string(), "files": files }),
        tables: vec![table],
        ..Report::default()
    })
}
