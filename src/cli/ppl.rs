//! `ropex ppl`

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::Context as _;
use serde_json::{Value, json};

use super::gate_args::{GateArgs, Subject, at_context, names_at};
use super::model_args::{MemoryArgs, ModelArgs, rope_json};
use super::progress::Progress;
use super::report::{Report, Table};
use super::rope_args::RopeArgs;
use super::values::{format_number, parse_length};
use super::{CommandError, Context};
use crate::checkpoint::tokenizer::{Bos, Markers, Tokenizer};
use crate::eval::document::Document;
use crate::eval::perplexity::{Perplexity, PerplexityError, PerplexityRequest, Score, perplexity, plan};
use crate::eval::windows::{BosPlacement, Rule, WindowError};
use crate::model::ensure_within_limit;
use crate::named::Named;

/// Measure the perplexity of texts at a given context length
///
/// Perplexity is exp of the mean negative log-likelihood of the scored tokens. Which tokens are scored, and with how much
/// text before them, is the rule: figures of different rules cannot be compared.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ropex ppl --text book.txt --context 1024 --scaling yarn --factor 4
  ropex ppl --model model.gguf --text a.txt b.txt --rule llama.cpp --context 8k --format json
  ropex ppl --model model.gguf --text held-out.txt --context 16k --gate 'ppl<=12.5' --junit gates.xml")]
pub struct Args {
    /// Text files to score, each on its own
    #[arg(long, short, value_name = "FILE", required = true, num_args = 1..)]
    text: Vec<PathBuf>,
    /// Tokens of a window [default: the original context]
    #[arg(long, value_name = "TOKENS", value_parser = parse_length)]
    context: Option<usize>,
    /// Tokens from one window to the next, for rule strided [default: half the context]
    #[arg(long, value_name = "TOKENS", value_parser = parse_length)]
    stride: Option<usize>,
    /// strided: every token once, windows overlap; llama.cpp: disjoint windows, second halves scored
    #[arg(long, default_value = "strided", value_parser = Rule::parse)]
    rule: Rule,
    /// Beginning-of-sequence token: as the tokenizer says, in every window, in the first one, or nowhere
    #[arg(long, value_enum, default_value = "auto")]
    bos: BosChoice,
    /// Score at most this many windows of each text
    #[arg(long, value_name = "N", value_parser = parse_length)]
    max_windows: Option<usize>,
    /// Read markers such as <|im_start|> in the text as control tokens, not as text
    #[arg(long)]
    markers: bool,
    /// Replace bytes that are not UTF-8 by U+FFFD instead of refusing the file
    #[arg(long)]
    lossy: bool,
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    memory: MemoryArgs,
    #[command(flatten)]
    rope: RopeArgs,
    #[command(flatten)]
    gates: GateArgs,
}

const SUBJECT: Subject =
    Subject { schema: "ropex.ppl/1", measured: |result| at_context(result, &METRICS), has_cases: false };

/// Values of the result that a gate may name.
const METRICS: [&str; 9] = [
    "ppl",
    "nll",
    "stderr",
    "nll_stderr",
    "bits_per_byte",
    "byte_ppl",
    "word_ppl",
    "tokens_scored",
    "windows",
];

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum BosChoice {
    Auto,
    Always,
    First,
    Never,
}

impl BosChoice {
    fn placement(self, tokenizer: &Tokenizer) -> anyhow::Result<BosPlacement> {
        let placement = match self {
            BosChoice::Auto if tokenizer.adds_bos() => BosPlacement::Every,
            BosChoice::Auto | BosChoice::Never => BosPlacement::Never,
            BosChoice::Always => BosPlacement::Every,
            BosChoice::First => BosPlacement::First,
        };
        if placement != BosPlacement::Never && tokenizer.bos().is_none() {
            let error = CommandError::usage("the tokenizer has no beginning-of-sequence token");
            return Err(error.hint("leave `--bos` out, or write `--bos never`").into());
        }
        Ok(placement)
    }
}

pub fn run(args: Args, context: &Context) -> anyhow::Result<Report> {
    let open = args.model.open(context)?;
    let tokenizer = open.tokenizer()?;
    let length =
        args.context.unwrap_or(args.rope.original_context().unwrap_or(open.config.rope.original_context));
    if args.rule != Rule::Strided && args.stride.is_some() {
        return Err(CommandError::usage("`--stride` belongs to `--rule strided`").into());
    }
    let request = PerplexityRequest {
        rule: args.rule,
        context: length,
        stride: args.stride.unwrap_or(length.div_ceil(2)),
        bos: args.bos.placement(&tokenizer)?,
        bos_token: tokenizer.bos(),
        max_windows: args.max_windows,
    };
    let gates = args.gates.prepare(SUBJECT, &names_at(length, &METRICS))?;
    let rope = open.rope(&args.rope, length)?;
    ensure_within_limit(&rope, length, args.rope.allow_beyond)?;
    let rope_json = rope_json(&rope, length)?;
    let documents = read_documents(&args, &request, &tokenizer)?;
    let windows = plan(&documents, &request).map_err(plan_error)?;
    let settings = (&args.rope, &args.memory);
    let described = open.describe(&tokenizer);
    let ready = open.load(rope, settings, length, tokenizer.warnings(), context)?;
    let total = windows.iter().flatten().map(|window| window.len()).sum();
    let mut bar = Progress::tokens("ppl", total, context.quiet);
    let started = Instant::now();
    let mut report = |done: usize, score: &Score| {
        let so_far = (score.tokens_scored > 0).then(|| format!("ppl {}", format_number(score.ppl())));
        bar.update(done, so_far.unwrap_or_default());
    };
    let found = perplexity(&*ready.model, &documents, &windows, request.bos_token, &mut report)?;
    bar.finish();
    let elapsed_s = started.elapsed().as_secs_f64();
    let mut report = Report {
        schema: SUBJECT.schema,
        model: described,
        rope: rope_json,
        engine: ready.describe_engine(settings, context),
        result: result_json(&found, &request),
        timing: json!({
            "load_s": ready.load_s,
            "elapsed_s": elapsed_s,
            "tokens_per_s": total as f64 / elapsed_s,
        }),
        tables: vec![table(&found, &request)],
        warnings: ready.warnings,
        ..Report::default()
    };
    gates.apply(&mut report, Vec::new())?;
    Ok(report)
}

/// Settings that fit no text are bad usage; a text that is too short is a failure.
fn plan_error(error: PerplexityError) -> anyhow::Error {
    match &error {
        PerplexityError::Windows {
            source: source @ (WindowError::Stride { .. } | WindowError::Context(_)),
            ..
        } => CommandError::usage(source.to_string()).into(),
        _ => error.into(),
    }
}

fn read_documents(
    args: &Args,
    request: &PerplexityRequest,
    tokenizer: &Tokenizer,
) -> anyhow::Result<Vec<Document>> {
    let markers = if args.markers { Markers::Special } else { Markers::Text };
    // llama.cpp's tool puts one BOS before the whole text and then overwrites the first token of each window.
    let bos = match (request.rule, request.bos) {
        (Rule::LlamaCpp, BosPlacement::Every | BosPlacement::First) => Bos::Always,
        _ => Bos::Never,
    };
    let read = |path: &PathBuf| {
        let text = read_text(path, args.lossy)?;
        let name = path.display().to_string();
        let mut ids =
            tokenizer.encode(&text, bos, markers).with_context(|| format!("cannot tokenize `{name}`"))?;
        // Windows bring their own: a text that writes it must not have it twice.
        let brought = request.rule == Rule::Strided && request.bos != BosPlacement::Never;
        if brought && ids.first() == request.bos_token.as_ref() {
            ids.remove(0);
        }
        Ok(Document::new(name, ids, tokenizer))
    };
    args.text.iter().map(read).collect()
}

fn read_text(path: &Path, lossy: bool) -> anyhow::Result<String> {
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

fn score_json(score: &Score) -> serde_json::Map<String, Value> {
    let finite = |value: f64| value.is_finite().then_some(value);
    let value = json!({
        "nll": score.nll(),
        "ppl": score.ppl(),
        "stderr": score.stderr(),
        "nll_stderr": score.nll_stderr(),
        "tokens_scored": score.tokens_scored,
        "windows": score.windows,
        "bytes_scored": score.bytes_scored,
        "words_scored": score.words_scored,
        "bits_per_byte": finite(score.bits_per_byte()),
        "byte_ppl": finite(score.byte_ppl()),
        "word_ppl": finite(score.word_ppl()),
    });
    match value {
        Value::Object(object) => object,
        _ => serde_json::Map::new(),
    }
}

fn result_json(found: &Perplexity, request: &PerplexityRequest) -> Value {
    let mut result = score_json(&found.pooled);
    let settings = json!({
        "rule": request.rule.name(),
        "context": request.context,
        "stride": match request.rule {
            Rule::Strided => request.stride,
            Rule::LlamaCpp => request.context,
        },
        "bos": match request.bos {
            BosPlacement::Never => "never",
            BosPlacement::First => "first",
            BosPlacement::Every => "always",
        },
    });
    if let Value::Object(settings) = settings {
        result.extend(settings);
    }
    let rows = found.per_file.iter().map(|(file, score)| {
        let mut row = serde_json::Map::new();
        row.insert("file".into(), file.as_str().into());
        row.extend(score_json(score));
        Value::Object(row)
    });
    result.insert("per_file".into(), rows.collect());
    Value::Object(result)
}

fn table(found: &Perplexity, request: &PerplexityRequest) -> Table {
    let title = format!(
        "perplexity, rule {}, context {}{}",
        request.rule.name(),
        request.context,
        match request.rule {
            Rule::Strided => format!(", stride {}", request.stride),
            Rule::LlamaCpp => String::new(),
        }
    );
    let columns = ["text", "ppl", "stderr", "nll", "bits/byte", "word ppl", "tokens", "windows"];
    let mut table = Table::new(title, &columns);
    let mut row = |name: &str, score: &Score| {
        table.row([
            name.to_string(),
            format_number(score.ppl()),
            score.stderr().map_or("-".to_string(), format_number),
            format_number(score.nll()),
            format_number(score.bits_per_byte()),
            format_number(score.word_ppl()),
            score.tokens_scored.to_string(),
            score.windows.to_string(),
        ]);
    };
    for (file, score) in &found.per_file {
        row(file, score);
    }
    if found.per_file.len() > 1 {
        row("all", &found.pooled);
    }
    table
}
