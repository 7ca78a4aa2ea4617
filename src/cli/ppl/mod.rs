//! `ropex ppl`

mod dump;
mod figures;
mod measure;
mod output;
mod request;
mod saved;
mod tables;

use std::path::PathBuf;

use serde_json::{Value, json};

use self::measure::{Extras, Measured, measure};
use self::request::{Asked, asked, plan_error, read_documents};
use self::saved::{read_baseline, write_losses};
use super::gate_args::{GateArgs, Subject, at_context, names_at};
use super::model_args::{MemoryArgs, ModelArgs, OpenModel, rope_json};
use super::report::Report;
use super::rope_args::RopeArgs;
use super::values::parse_length;
use super::{CommandError, Context};
use crate::checkpoint::tokenizer::Tokenizer;
use crate::eval::document::Document;
use crate::eval::gate::{Metric, MetricName};
use crate::eval::perplexity::bos::BosChoice;
use crate::eval::perplexity::saved::Header;
use crate::eval::perplexity::{gain, plan};
use crate::eval::statistics::bootstrap::{Bootstrap, Resample};
use crate::eval::windows::{BosPlacement, Rule, Window};
use crate::model::ensure_within_limit;
use crate::named::Named;

/// Measure the perplexity of texts at a given context length
///
/// Perplexity is exp of the mean negative log-likelihood of the scored tokens. Which tokens are scored, and with how much
/// text before them, is the rule: figures of different rules cannot be compared. Intervals are for 95 %, from resampled blocks
/// of the text.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ropex ppl --text book.txt --context 1024 --scaling yarn --factor 4 --by-position
  ropex ppl --text book.txt --curve auto --context 1024 --scaling yarn --factor 4
  ropex ppl --model model.gguf --text a.txt b.txt --rule llama.cpp --context 8k --format json
  ropex ppl --model model.gguf --text book.txt --context 8k --save-nll plain.nll
  ropex ppl --model model.gguf --text book.txt --context 8k --scaling ntk --factor 2 --baseline plain.nll
  ropex ppl --model model.gguf --text held-out.txt --context 16k --gate 'ppl<=12.5' --junit gates.xml")]
pub struct Args {
    /// Text files to score, each on its own
    #[arg(long, short, value_name = "FILE", required = true, num_args = 1..)]
    text: Vec<PathBuf>,
    /// Tokens of a window [default: the original context]
    #[arg(long, value_name = "TOKENS", value_parser = parse_length)]
    context: Option<usize>,
    /// Tokens from one window to the next, for rules strided, hf (default: half the context) and yarn (default: 256)
    #[arg(long, value_name = "TOKENS", value_parser = parse_length)]
    stride: Option<usize>,
    /// strided: overlapping windows, every token counts once; hf: the sliding-window recipe of transformers; llama.cpp:
    /// disjoint windows, second halves scored; yarn: the YaRN authors' script, a mean of window means; lm-eval: rolling
    /// windows of lm-evaluation-harness
    #[arg(long, default_value = "strided", value_parser = Rule::parse)]
    rule: Rule,
    /// Beginning-of-sequence token: auto (as the source of the rule does), always (in every window), first or never
    #[arg(long, value_name = "WHERE", default_value = "auto", value_parser = BosChoice::parse)]
    bos: BosChoice,
    /// Token that lm-eval puts before the text [default: beginning-of-sequence, else end-of-sequence]
    #[arg(long, value_name = "ID")]
    prefix_token: Option<u32>,
    /// Score at most this many windows of each text [default with --curve: 1]
    #[arg(long, value_name = "N", value_parser = parse_length)]
    max_windows: Option<usize>,
    /// Read markers such as <|im_start|> in the text as control tokens, not as text
    #[arg(long)]
    markers: bool,
    /// Replace bytes that are not UTF-8 by U+FFFD instead of refusing the file
    #[arg(long)]
    lossy: bool,
    /// List windows, where the beginning-of-sequence token stands and what is scored, and stop before the weights are read
    #[arg(long)]
    dump_windows: bool,
    #[command(flatten)]
    detail: DetailArgs,
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    memory: MemoryArgs,
    #[command(flatten)]
    rope: RopeArgs,
    #[command(flatten)]
    gates: GateArgs,
}

/// What is told besides the perplexity.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Detail")]
struct DetailArgs {
    /// Also the mean loss by tokens of context, in N buckets for every doubling [default: 1], and the effective context
    #[arg(long, value_name = "N", num_args = 0..=1, require_equals = true, default_missing_value = "1",
          value_parser = clap::value_parser!(u8).range(1..=16))]
    by_position: Option<u8>,
    /// Also the perplexity of the text cut to each of these lengths, from one pass where frequencies do not depend on the
    /// length: a list such as 1k,2k,4k, or auto
    #[arg(long, value_name = "LENGTHS|auto", value_parser = parse_lengths)]
    curve: Option<Lengths>,
    /// Also what the far context is worth: the loss with only the last TOKENS tokens less that with all
    #[arg(long, value_name = "TOKENS", value_parser = parse_length)]
    gain: Option<usize>,
    /// Write the loss of every scored token to FILE (safetensors; docs/json.md)
    #[arg(long, value_name = "FILE")]
    save_nll: Option<PathBuf>,
    /// Compare token by token with an earlier run: a file of --save-nll, or a JSON result that names one
    #[arg(long, value_name = "FILE")]
    baseline: Option<PathBuf>,
    /// Tokens of a block that intervals are resampled by
    #[arg(long, value_name = "TOKENS", default_value_t = Bootstrap::DEFAULT_BLOCK, value_parser = parse_length)]
    block: usize,
    /// What is resampled: blocks, or documents and blocks in them
    #[arg(long, value_name = "UNIT", default_value = "blocks", value_parser = Resample::parse)]
    resample: Resample,
}

/// Lengths of a curve.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Lengths {
    Auto,
    List(Vec<usize>),
}

fn parse_lengths(text: &str) -> Result<Lengths, String> {
    if text == "auto" {
        return Ok(Lengths::Auto);
    }
    text.split(',').map(parse_length).collect::<Result<_, _>>().map(Lengths::List)
}

const SUBJECT: Subject = Subject { schema: "ropex.ppl/1", measured, has_cases: false };

/// Values of the result that a gate may name.
const METRICS: [&str; 10] = [
    "ppl",
    "nll",
    "stderr",
    "nll_stderr",
    "token_nll",
    "bits_per_byte",
    "byte_ppl",
    "word_ppl",
    "tokens_scored",
    "windows",
];

/// The values of a result: those at the context, those of the curve, and those of what else was asked for.
fn measured(result: &Value) -> Vec<Metric> {
    let mut found = at_context(result, &METRICS);
    let context = result["context"].as_u64();
    let curve = &result["curve"];
    let lengths = curve["positions"].as_array().map(Vec::as_slice).unwrap_or_default();
    for (index, length) in lengths.iter().enumerate().filter(|(_, length)| length.as_u64() != context) {
        let length = length.as_u64().and_then(|length| usize::try_from(length).ok());
        for key in ["ppl", "nll"] {
            let value = curve[key][index].as_f64();
            found.push(Metric { name: MetricName::new(key, length), value });
        }
    }
    let single =
        |name: &str, value: &Value| Metric { name: MetricName::new(name, None), value: value.as_f64() };
    for (name, part, key) in DETAILS {
        if result.get(part).is_some() {
            found.push(single(name, &result[part][key]));
        }
    }
    found
}

/// Metrics of what is asked for by flags: name, part of the result, key in it.
const DETAILS: [(&str, &str, &str); 4] = [
    ("effective_context", "effective_context", "tokens"),
    ("gain", "gain", "gain"),
    ("difference", "baseline", "difference"),
    ("ppl_ratio", "baseline", "ppl_ratio"),
];

/// The names that [`measured`] will find.
fn names(asked: &Asked, detail: &DetailArgs) -> Vec<MetricName> {
    let context = asked.request.context;
    let mut names = names_at(context, &METRICS);
    for &length in asked.lengths.iter().flatten().filter(|length| **length != context) {
        names.extend(["ppl", "nll"].map(|name| MetricName::new(name, Some(length))));
    }
    let given = [detail.by_position.is_some(), detail.gain.is_some(), detail.baseline.is_some()];
    let given = [given[0], given[1], given[2], given[2]];
    let details = DETAILS.iter().zip(given).filter(|(_, given)| *given);
    names.extend(details.map(|((name, ..), _)| MetricName::new(*name, None)));
    names
}

pub fn run(args: Args, context: &Context) -> anyhow::Result<Report> {
    let open = args.model.open(context)?;
    let tokenizer = open.tokenizer()?;
    let trained = args.rope.original_context().unwrap_or(open.config.rope.original_context);
    let asked = asked(&args, trained, &tokenizer)?;
    let gates = args.gates.prepare(SUBJECT, &names(&asked, &args.detail))?;
    let length = asked.request.context;
    let rope = open.rope(&args.rope, length)?;
    ensure_within_limit(&rope, length, args.rope.allow_beyond)?;
    let rope_json = rope_json(&rope, length)?;
    let trained = rope.spec.original_context;
    let documents = read_documents(&args, &asked.request, &tokenizer)?;
    let windows = plan(&documents, &asked.request).map_err(plan_error)?;
    let described = open.describe(&tokenizer);
    if args.dump_windows {
        return Ok(dumped(described, &documents, &windows, &asked));
    }
    let header = header(&open, &tokenizer, &rope_json, &asked, &documents);
    let extras = extras(&args.detail, trained, &header, &documents, &windows, &asked, context)?;
    let settings = (&args.rope, &args.memory);
    let known = [tokenizer.warnings(), &asked.notes].concat();
    let ready = open.load(rope, settings, length, &known, context)?;
    let found = measure(&*ready.model, &documents, &windows, &asked, &extras, context)?;
    if let Some(path) = &args.detail.save_nll {
        let header = Header { interrupted: found.perplexity.interrupted, ..header };
        write_losses(path, header, &documents, &found.perplexity.losses)?;
    }
    let engine = ready.describe_engine(settings, context);
    let mut warnings = ready.warnings;
    let late = late_warnings(&found, &windows, &asked);
    context.warn(&late);
    if found.pooled.interval.is_none() {
        context.note(&format!(
            "too few blocks for intervals ({}): score more text, or make blocks shorter with `--block`",
            found.pooled.blocks
        ));
    }
    warnings.extend(late);
    let mut result = output::result_json(&found, &asked, &extras, &rope_json);
    let saved = args.detail.save_nll.as_ref().map(|path| path.display().to_string());
    result.extend(saved.map(|path| ("saved_nll".to_string(), path.into())));
    let parts = tables::Described { model: &described, rope: &rope_json, engine: &engine };
    let (tables, main_table) = tables::tables(&found, &asked, &extras, &parts);
    let mut report = Report {
        schema: SUBJECT.schema,
        result: Value::Object(result),
        timing: json!({
            "load_s": ready.load_s,
            "elapsed_s": found.elapsed_s,
            "tokens_per_s": found.computed_tokens as f64 / found.elapsed_s,
        }),
        tables,
        main_table,
        figures: figures::figures(&found, &extras),
        warnings,
        interrupted: found.interrupted,
        model: described,
        rope: rope_json,
        engine,
        ..Report::default()
    };
    gates.apply(&mut report, Vec::new())?;
    Ok(report)
}

fn dumped(model: Value, documents: &[Document], windows: &[Vec<Window>], asked: &Asked) -> Report {
    let (result, table) = dump::dump(documents, windows, asked);
    Report { schema: "ropex.ppl-windows/1", model, result, tables: vec![table], ..Report::default() }
}

fn header(
    open: &OpenModel,
    tokenizer: &Tokenizer,
    rope: &Value,
    asked: &Asked,
    documents: &[Document],
) -> Header {
    Header::new(open.checkpoint.name(), tokenizer.vocab_hash(), rope, &asked.request, documents)
}

/// What is asked for besides the perplexity; the baseline is checked before any weight is read.
fn extras(
    detail: &DetailArgs,
    trained: usize,
    header: &Header,
    documents: &[Document],
    windows: &[Vec<Window>],
    asked: &Asked,
    context: &Context,
) -> anyhow::Result<Extras> {
    let baseline = detail.baseline.as_ref().map(|path| read_baseline(path, header, documents, windows));
    let mut short = None;
    if let Some(last) = detail.gain {
        let plan = gain::plan(documents, windows, last, asked.request.bos_token);
        if plan.iter().all(Vec::is_empty) {
            let message = format!(
                "`--gain {last}`: no scored token has more than {last} tokens of context in its window"
            );
            return Err(CommandError::usage(message)
                .hint("give fewer tokens, or a longer `--context`")
                .into());
        }
        short = Some((last, plan));
    }
    Ok(Extras {
        by_position: detail.by_position.map(usize::from),
        gain: short,
        baseline: baseline.transpose()?,
        bootstrap: Bootstrap { seed: context.seed, block: detail.block, resample: detail.resample },
        trained,
    })
}

/// What the user should know about the figures.
fn late_warnings(found: &Measured, windows: &[Vec<Window>], asked: &Asked) -> Vec<String> {
    let mut warnings = Vec::new();
    if found.interrupted {
        let planned: usize = windows.iter().map(Vec::len).sum();
        warnings.push(format!(
            "interrupted: the figures are of the {} tokens in {} of {planned} windows that were scored until then",
            found.perplexity.pooled.tokens_scored, found.perplexity.pooled.windows
        ));
    }
    let request = &asked.request;
    let side_by_side = request.context - usize::from(request.bos != BosPlacement::Never);
    let unknown =
        found.by_position.as_ref().is_some_and(|by| by.reference.is_some() && by.effective.is_none());
    if unknown && request.rule == Rule::Strided && request.stride < side_by_side {
        warnings.push(format!(
            "too few tokens at the trained length for an effective context: overlapping windows score few early positions; \
             `--stride {side_by_side}` puts them side by side"
        ));
    }
    warnings
}
