//! `ropex attention`

mod figures;
mod output;

use std::path::PathBuf;
use std::time::Instant;

use anyhow::Context as _;
use serde_json::json;

use self::output::Output;
use super::model_args::{MemoryArgs, ModelArgs, OpenModel, rope_json, rope_name};
use super::progress::Progress;
use super::report::Report;
use super::rope_args::{RopeArgs, read_parameters};
use super::texts::{BosChoice, read_text};
use super::values::parse_length;
use super::{CommandError, Context};
use crate::checkpoint::rope::{Factor, Method, RopeOverrides, RopeSettings};
use crate::checkpoint::tokenizer::{Markers, Tokenizer};
use crate::eval::attention::{Attention, AttentionError, AttentionRequest, Statistic, attention};
use crate::eval::perplexity::bos::BosError;
use crate::model::with_rope::WithRope;
use crate::model::{LanguageModel, ensure_within_limit};

/// Measure where attention heads look in a text
///
/// For every layer and head, over the queries of one pass through a text: the share of attention on the first token and the first
/// few (the sink), its entropy, its mean distance and its mass by distance. Exact, in memory that does not grow with the square
/// of the text. With `--against`, the same text again under another scaling, and the differences.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ropex attention --text book.txt
  ropex attention --text book.txt --context 1024 --scaling yarn --factor 4 --against none --allow-beyond
  ropex attention --model model.gguf --text book.txt --context 16k --scaling yarn --factor 2 --against linear:2 --heads
  ropex attention --text book.txt --last-queries 256 --format json")]
pub struct Args {
    /// Text to look at, from its start
    #[arg(long, short, value_name = "FILE")]
    text: PathBuf,
    /// Tokens of the text [default: the original context, or the whole text if it is shorter]
    #[arg(long, value_name = "TOKENS", value_parser = parse_length)]
    context: Option<usize>,
    /// Compare with another scaling of the same checkpoint, such as none, linear:2 or yarn:auto; `--original-context` and
    /// `--rope-theta` hold for both
    #[arg(long, value_name = "METHOD[:FACTOR]", value_parser = parse_against)]
    against: Option<Against>,
    /// Compare with the dictionary of a Hugging Face configuration: JSON, or @FILE
    #[arg(long, value_name = "JSON|@FILE", conflicts_with = "against")]
    against_rope_parameters: Option<String>,
    /// Tokens at the start of the text that count as the sink
    #[arg(long, value_name = "TOKENS", default_value = "4", value_parser = parse_length)]
    sink: usize,
    /// Count the last so many queries only [default: all of them]
    #[arg(long, value_name = "TOKENS", value_parser = parse_length)]
    last_queries: Option<usize>,
    /// A row for each head instead of each layer
    #[arg(long)]
    heads: bool,
    /// Beginning-of-sequence token: as the tokenizer says, always, or never
    #[arg(long, value_enum, default_value = "auto")]
    bos: BosChoice,
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
}

/// A value of `--against`.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Against {
    method: Method,
    factor: Option<Factor>,
}

fn parse_against(text: &str) -> Result<Against, String> {
    let (method, factor) = match text.split_once(':') {
        Some((method, factor)) => (method, Some(factor.parse().map_err(|e| format!("{e}"))?)),
        None => (text, None),
    };
    Ok(Against { method: method.parse().map_err(|e| format!("{e}"))?, factor })
}

impl Args {
    /// The overrides of the second setting, if one is asked for.
    fn against(&self) -> anyhow::Result<Option<RopeOverrides>> {
        let shared = self.rope.overrides()?;
        let shared = RopeOverrides {
            original_context: shared.original_context,
            theta: shared.theta,
            ..RopeOverrides::default()
        };
        if let Some(Against { method, factor }) = self.against {
            return Ok(Some(RopeOverrides { scaling: Some(method), factor, ..shared }));
        }
        let parameters = self.against_rope_parameters.as_deref().map(read_parameters).transpose()?;
        Ok(parameters.map(|parameters| RopeOverrides { rope_parameters: Some(parameters), ..shared }))
    }

    fn tokens(&self, tokenizer: &Tokenizer, original_context: usize) -> anyhow::Result<Vec<u32>> {
        let text = read_text(&self.text, self.lossy)?;
        let name = self.text.display();
        if self.bos == BosChoice::Always && tokenizer.bos().is_none() {
            return Err(CommandError::usage(BosError::NoBos.to_string()).hint(BosError::NoBos.hint()).into());
        }
        let markers = if self.markers { Markers::Special } else { Markers::Text };
        let mut ids = tokenizer
            .encode(&text, self.bos.into(), markers)
            .with_context(|| format!("cannot tokenize `{name}`"))?;
        let length = self.context.unwrap_or(original_context.min(ids.len()));
        if ids.len() < length {
            let message = format!("`{name}` has {} tokens, {length} are wanted", ids.len());
            return Err(CommandError::failed(message)
                .hint("give a longer text or a shorter `--context`")
                .into());
        }
        ids.truncate(length);
        Ok(ids)
    }
}

pub fn run(args: Args, context: &Context) -> anyhow::Result<Report> {
    let open = args.model.open(context)?;
    let tokenizer = open.tokenizer()?;
    let original = args.rope.original_context().unwrap_or(open.config.rope.original_context);
    let tokens = args.tokens(&tokenizer, original)?;
    let request = AttentionRequest { sink_tokens: args.sink, last_queries: args.last_queries };
    let length = tokens.len();
    let rope = open.rope(&args.rope, length)?;
    ensure_within_limit(&rope, length, args.rope.allow_beyond)?;
    let against = args.against()?.map(|overrides| against_rope(&open, &overrides, &args.rope, length));
    let against = against.transpose()?;
    let (rope_of_result, name) = (rope_json(&rope, length)?, rope_name(&rope));
    let settings = (&args.rope, &args.memory);
    let ready = open.load(rope, settings, length, tokenizer.warnings(), context)?;
    let mut warnings = ready.warnings.clone();
    let started = Instant::now();
    let mut found = measure(&*ready.model, &tokens, &request, &name, context)?;
    let mut other = None;
    if let (Some(rope), false) = (against, found.interrupted) {
        let json = rope_json(&rope, length)?;
        let name = rope_name(&rope);
        let notes: Vec<String> = rope.warnings.iter().map(|note| format!("against {name}: {note}")).collect();
        context.warn(&notes);
        warnings.extend(notes);
        let model = WithRope::new(&*ready.model, rope);
        match measure(&model, &tokens, &request, &name, context) {
            Ok(second) if !second.interrupted => other = Some((second, name, json)),
            Ok(_) => found.interrupted = true,
            Err(error) if super::error::is_interrupt(&error) => found.interrupted = true,
            Err(error) => return Err(error),
        }
    }
    let elapsed_s = started.elapsed().as_secs_f64();
    let output = Output { text: &args.text, found: &found, name, original, other: other.as_ref() };
    Ok(Report {
        schema: "ropex.attention/1",
        model: open.describe(&tokenizer),
        rope: rope_of_result,
        engine: ready.describe_engine(settings, context),
        result: output.json(length, tokens.first().copied() == tokenizer.bos() && tokenizer.bos().is_some()),
        timing: json!({ "load_s": ready.load_s, "elapsed_s": elapsed_s }),
        tables: output.tables(args.heads),
        figures: output.figures(),
        warnings,
        interrupted: found.interrupted,
        ..Report::default()
    })
}

fn against_rope(
    open: &OpenModel,
    overrides: &RopeOverrides,
    args: &RopeArgs,
    length: usize,
) -> anyhow::Result<RopeSettings> {
    let wrong = |error: anyhow::Error| {
        let message = format!("cannot use the scaling of `--against`: {error:#}");
        CommandError::usage(message).hint("write for example `--against none` or `--against yarn:2`")
    };
    let rope = open.rope_with(overrides, length).map_err(wrong)?;
    ensure_within_limit(&rope, length, args.allow_beyond).context("cannot use the scaling of `--against`")?;
    Ok(rope)
}

fn measure(
    model: &dyn LanguageModel,
    tokens: &[u32],
    request: &AttentionRequest,
    name: &str,
    context: &Context,
) -> anyhow::Result<Attention> {
    let mut bar = Progress::tokens(&format!("attention, {name}"), tokens.len(), context.quiet);
    let mut report = |done: usize, found: &Attention| {
        let all = found.all();
        let value = |statistic| all.mean(statistic).map(|mean| format!("{mean:.2}"));
        let so_far = value(Statistic::Sink).zip(value(Statistic::Entropy));
        let so_far = so_far.map(|(sink, entropy)| format!("sink {sink}, entropy {entropy}"));
        bar.update(done, so_far.unwrap_or_default());
    };
    let found = attention(model, tokens, request, &mut report);
    bar.finish();
    found.map_err(|error| match error {
        AttentionError::Queries { .. } => CommandError::usage(error.to_string()).into(),
        error => error.into(),
    })
}
