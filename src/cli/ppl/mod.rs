//! `ropex ppl`

mod output;

use std::path::PathBuf;
use std::time::Instant;

use anyhow::Context as _;
use serde_json::json;

use super::gate_args::{GateArgs, Subject, at_context, names_at};
use super::model_args::{MemoryArgs, ModelArgs, rope_json};
use super::progress::Progress;
use super::report::Report;
use super::rope_args::RopeArgs;
use super::texts::read_text;
use super::values::{format_number, parse_length};
use super::{CommandError, Context};
use crate::checkpoint::tokenizer::{Markers, Tokenizer};
use crate::eval::document::Document;
use crate::eval::perplexity::bos::{BosChoice, BosError, place};
use crate::eval::perplexity::{PerplexityError, PerplexityRequest, Score, perplexity, plan};
use crate::eval::windows::{Rule, WindowError};
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

pub fn run(args: Args, context: &Context) -> anyhow::Result<Report> {
    let open = args.model.open(context)?;
    let tokenizer = open.tokenizer()?;
    let length =
        args.context.unwrap_or(args.rope.original_context().unwrap_or(open.config.rope.original_context));
    let (request, notes) = request(&args, length, &tokenizer)?;
    let gates = args.gates.prepare(SUBJECT, &names_at(length, &METRICS))?;
    let rope = open.rope(&args.rope, length)?;
    ensure_within_limit(&rope, length, args.rope.allow_beyond)?;
    let rope_json = rope_json(&rope, length)?;
    let documents = read_documents(&args, &request, &tokenizer)?;
    let windows = plan(&documents, &request).map_err(plan_error)?;
    let settings = (&args.rope, &args.memory);
    let described = open.describe(&tokenizer);
    let known = [tokenizer.warnings(), &notes].concat();
    let ready = open.load(rope, settings, length, &known, context)?;
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
        result: output::result_json(&found, &request),
        timing: json!({
            "load_s": ready.load_s,
            "elapsed_s": elapsed_s,
            "tokens_per_s": total as f64 / elapsed_s,
        }),
        tables: vec![output::table(&found, &request)],
        warnings: ready.warnings,
        interrupted: found.interrupted,
        ..Report::default()
    };
    gates.apply(&mut report, Vec::new())?;
    Ok(report)
}

/// What is asked for, and what the user should know about it.
fn request(
    args: &Args,
    context: usize,
    tokenizer: &Tokenizer,
) -> anyhow::Result<(PerplexityRequest, Vec<String>)> {
    let rule = args.rule;
    if args.stride.is_some() && !rule.has_stride() {
        let accepted: Vec<&str> =
            Rule::ALL.iter().filter(|rule| rule.has_stride()).map(|rule| rule.name()).collect();
        let message =
            format!("rule `{}` has no stride; `--stride` belongs to {}", rule.name(), accepted.join(", "));
        return Err(CommandError::usage(message).into());
    }
    let bos = place(rule, args.bos, args.prefix_token, tokenizer).map_err(bos_error)?;
    let stride = args.stride.unwrap_or(rule.default_stride(context));
    let mut notes = Vec::new();
    if let (true, Some(token)) = (bos.is_eos, bos.token) {
        notes.push(format!(
            "the end-of-sequence token {token} stands before the text, as lm-eval does without a beginning-of-sequence token; \
             that can make the first tokens very unlikely (`--bos never` leaves it out)"
        ));
    }
    if rule == Rule::Yarn && bos.token.is_some() && stride == context {
        notes.push(format!(
            "a stride of {stride} leaves one token between windows unscored, as the authors' script does: windows hold {} tokens \
             of text",
            context - 1
        ));
    }
    if rule == Rule::Hf && stride == 1 {
        notes.push("the recipe gives windows after the first no weight at a stride of 1".to_string());
    }
    let request = PerplexityRequest {
        rule,
        context,
        stride,
        bos: bos.placement,
        bos_token: bos.token,
        max_windows: args.max_windows,
    };
    Ok((request, notes))
}

fn bos_error(error: BosError) -> CommandError {
    CommandError::usage(error.to_string()).hint(error.hint())
}

/// Settings that fit no text are bad usage; a text that is too short is a failure.
fn plan_error(error: PerplexityError) -> anyhow::Error {
    match &error {
        PerplexityError::Windows { source, .. } if !matches!(source, WindowError::TooShort { .. }) => {
            CommandError::usage(source.to_string()).into()
        }
        _ => error.into(),
    }
}

fn read_documents(
    args: &Args,
    request: &PerplexityRequest,
    tokenizer: &Tokenizer,
) -> anyhow::Result<Vec<Document>> {
    let markers = if args.markers { Markers::Special } else { Markers::Text };
    let read = |path: &PathBuf| {
        let text = read_text(path, args.lossy)?;
        let name = path.display().to_string();
        let document = request.document(name.clone(), &text, markers, tokenizer);
        document.with_context(|| format!("cannot tokenize `{name}`"))
    };
    args.text.iter().map(read).collect()
}
