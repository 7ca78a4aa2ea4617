//! `ropex tokenize`

use std::fs;
use std::io::{self, Read};
use std::path::PathBuf;

use anyhow::Context as _;
use serde_json::{Value, json};

use super::Context;
use super::model_args::ModelArgs;
use super::report::{Report, Table};
use crate::checkpoint::tokenizer::{Bos, Markers};

/// Show the token ids of a text
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ropex tokenize 'In the beginning'
  ropex tokenize --model model.gguf --file text.txt --format json")]
pub struct Args {
    /// The text [default: standard input]
    #[arg(value_name = "TEXT", conflicts_with = "file")]
    text: Option<String>,
    /// File with the text
    #[arg(long, short, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Beginning-of-sequence token: as the tokenizer says, always, or never
    #[arg(long, value_enum, default_value = "auto")]
    bos: BosChoice,
    /// Read markers such as <|im_start|> as control tokens, not as text
    #[arg(long)]
    markers: bool,
    #[command(flatten)]
    model: ModelArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum BosChoice {
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

pub fn run(args: Args, context: &Context) -> anyhow::Result<Report> {
    let text = match (&args.text, &args.file) {
        (Some(text), _) => text.clone(),
        (None, Some(path)) => {
            fs::read_to_string(path).with_context(|| format!("cannot read `{}`", path.display()))?
        }
        (None, None) => {
            let mut text = String::new();
            io::stdin().read_to_string(&mut text).context("cannot read standard input")?;
            text
        }
    };
    let open = args.model.open(context)?;
    let tokenizer = open.tokenizer()?;
    let markers = if args.markers { Markers::Special } else { Markers::Text };
    let ids = tokenizer.encode(&text, args.bos.into(), markers)?;
    let mut table = Table::new("", &["index", "id", "text"]);
    let mut tokens = Vec::new();
    for (index, &id) in ids.iter().enumerate() {
        let piece = tokenizer.piece(id).unwrap_or_default();
        table.row([index.to_string(), id.to_string(), show(piece)]);
        tokens.push(show(piece));
    }
    context.warn(tokenizer.warnings());
    Ok(Report {
        schema: "ropex.tokenize/1",
        model: open.describe(&tokenizer),
        result: json!({
            "ids": ids,
            "tokens": tokens,
            "count": ids.len(),
            "bos": tokenizer.bos(),
            "eos": tokenizer.eos().iter().copied().map(Value::from).collect::<Vec<_>>(),
        }),
        tables: vec![table],
        warnings: tokenizer.warnings().to_vec(),
        ..Report::default()
    })
}

/// Bytes as text, with what cannot be seen written as an escape.
fn show(piece: &[u8]) -> String {
    match std::str::from_utf8(piece) {
        Ok(text) => text.escape_debug().to_string(),
        Err(_) => piece.iter().map(|byte| format!("\\x{byte:02x}")).collect(),
    }
}
