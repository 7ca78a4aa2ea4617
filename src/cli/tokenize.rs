//! `ropex tokenize`

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde_json::{Value, json};

use super::Context;
use super::model_args::ModelArgs;
use super::report::{Report, Table};
use super::texts::BosChoice;
use crate::checkpoint::tokenizer::{Markers, Tokenizer};

/// Show the token ids of a text
///
/// Only the vocabulary is read: the model need not be one that ropex runs.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ropex tokenize 'In the beginning'
  ropex tokenize --model model.gguf --file text.txt --format json
  ropex tokenize --tokenizer tokenizer.json --markers '<|im_start|>user'")]
pub struct Args {
    /// The text [default: standard input]
    #[arg(value_name = "TEXT", conflicts_with = "file")]
    text: Option<String>,
    /// File with the text
    #[arg(long, short, value_name = "FILE")]
    file: Option<PathBuf>,
    /// JSON file with a list of texts, each of which is read by itself
    #[arg(long, value_name = "FILE", conflicts_with_all = ["text", "file"])]
    texts: Option<PathBuf>,
    /// Beginning-of-sequence token: as the tokenizer says, always, or never
    #[arg(long, value_enum, default_value = "auto")]
    bos: BosChoice,
    /// Read markers such as <|im_start|> as control tokens, not as text
    #[arg(long)]
    markers: bool,
    #[command(flatten)]
    model: ModelArgs,
}

pub fn run(args: Args, context: &Context) -> anyhow::Result<Report> {
    let (tokenizer, model) = args.model.tokenizer_alone(context)?;
    let (result, table) = match &args.texts {
        Some(path) => args.many(&texts_of(path)?, &tokenizer)?,
        None => args.one(&args.read()?, &tokenizer)?,
    };
    context.warn(tokenizer.warnings());
    Ok(Report {
        schema: "ropex.tokenize/1",
        model,
        result,
        tables: vec![table],
        warnings: tokenizer.warnings().to_vec(),
        ..Report::default()
    })
}

impl Args {
    fn read(&self) -> anyhow::Result<String> {
        match (&self.text, &self.file) {
            (Some(text), _) => Ok(text.clone()),
            (None, Some(path)) => {
                fs::read_to_string(path).with_context(|| format!("cannot read `{}`", path.display()))
            }
            (None, None) => {
                let mut text = String::new();
                io::stdin().read_to_string(&mut text).context("cannot read standard input")?;
                Ok(text)
            }
        }
    }

    fn encode(&self, text: &str, tokenizer: &Tokenizer) -> anyhow::Result<Vec<u32>> {
        let markers = if self.markers { Markers::Special } else { Markers::Text };
        Ok(tokenizer.encode(text, self.bos.into(), markers)?)
    }

    fn one(&self, text: &str, tokenizer: &Tokenizer) -> anyhow::Result<(Value, Table)> {
        let ids = self.encode(text, tokenizer)?;
        let mut table = Table::new("", &["index", "id", "text"]);
        let mut tokens = Vec::new();
        for (index, &id) in ids.iter().enumerate() {
            let piece = show(tokenizer.piece(id).unwrap_or_default());
            table.row([index.to_string(), id.to_string(), piece.clone()]);
            tokens.push(piece);
        }
        let (count, ends) = (ids.len(), ends(tokenizer));
        let result =
            json!({ "ids": ids, "tokens": tokens, "count": count, "bos": tokenizer.bos(), "eos": ends });
        Ok((result, table))
    }

    fn many(&self, texts: &[String], tokenizer: &Tokenizer) -> anyhow::Result<(Value, Table)> {
        let mut table = Table::new("", &["text", "tokens"]);
        let mut lists = Vec::with_capacity(texts.len());
        for (index, text) in texts.iter().enumerate() {
            let ids = self.encode(text, tokenizer).with_context(|| format!("cannot write text {index}"))?;
            table.row([index.to_string(), ids.len().to_string()]);
            lists.push(ids);
        }
        let count: usize = lists.iter().map(Vec::len).sum();
        let result =
            json!({ "texts": lists, "count": count, "bos": tokenizer.bos(), "eos": ends(tokenizer) });
        Ok((result, table))
    }
}

fn ends(tokenizer: &Tokenizer) -> Vec<u32> {
    tokenizer.eos().iter().copied().collect()
}

fn texts_of(path: &Path) -> anyhow::Result<Vec<String>> {
    let name = path.display();
    let bytes = fs::read(path).with_context(|| format!("cannot read `{name}`"))?;
    serde_json::from_slice(&bytes).with_context(|| format!("`{name}` must hold a JSON list of strings"))
}

/// Bytes as text, with what cannot be seen written as an escape.
fn show(piece: &[u8]) -> String {
    match std::str::from_utf8(piece) {
        Ok(text) => text.escape_debug().to_string(),
        Err(_) => piece.iter().map(|byte| format!("\\x{byte:02x}")).collect(),
    }
}
