//! `ropex generate`

use std::fs;
use std::io::{self, IsTerminal, Read, Write};
use std::path::PathBuf;

use anyhow::Context as _;
use serde_json::json;

use super::chat_args::ChatArgs;
use super::model_args::{MemoryArgs, ModelArgs, rope_json};
use super::progress::Progress;
use super::report::{Report, Table};
use super::rope_args::RopeArgs;
use super::values::parse_length;
use super::{CommandError, Context};
use crate::checkpoint::ModelRef;
use crate::checkpoint::rope::RopeSettings;
use crate::demo;
use crate::model::ensure_within_limit;
use crate::model::generate::{GenerateRequest, Generation, Listener, SamplingOptions, StopReason, generate};

/// Continue a text
///
/// The prompt comes from --prompt, --prompt-file or standard input. Text goes to standard output as it is produced, counts and
/// speed to standard error. The same seed gives the same text.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ropex generate --scaling yarn --factor 4
  ropex generate --model model.gguf --chat --prompt 'What is the capital of France?'
  ropex generate --model model.gguf --chat --template-var enable_thinking=false --prompt 'How many days has a year?'
  ropex generate --model model.gguf --scaling yarn --factor auto --prompt-file report.txt --max-new-tokens 400")]
pub struct Args {
    /// Text to continue
    #[arg(long, short, value_name = "TEXT", conflicts_with = "prompt_file")]
    prompt: Option<String>,
    /// File with the text to continue
    #[arg(long, short = 'f', value_name = "FILE")]
    prompt_file: Option<PathBuf>,
    #[command(flatten)]
    chat: ChatArgs,
    /// Stop after this many new tokens
    #[arg(long, short = 'n', value_name = "N", default_value_t = 256, value_parser = parse_length)]
    max_new_tokens: usize,
    /// Stop before this text; may be given several times
    #[arg(long, value_name = "TEXT", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    stop: Vec<String>,
    /// Go on past end-of-sequence tokens
    #[arg(long)]
    ignore_eos: bool,
    /// 0: always the most likely token; higher: more varied
    #[arg(long, value_name = "T", default_value_t = 0.8)]
    temperature: f64,
    /// Draw from the most likely tokens whose probabilities add up to P
    #[arg(long, value_name = "P")]
    top_p: Option<f64>,
    /// Draw from the K most likely tokens
    #[arg(long, value_name = "K", value_parser = parse_length)]
    top_k: Option<usize>,
    /// Drop tokens less likely than P times the most likely one
    #[arg(long, value_name = "P")]
    min_p: Option<f64>,
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    memory: MemoryArgs,
    #[command(flatten)]
    rope: RopeArgs,
}

pub fn run(args: Args, context: &Context) -> anyhow::Result<Report> {
    let sampling = args.sampling(context.seed)?;
    let text = args.read_prompt(context)?;
    let open = args.model.open(context)?;
    let tokenizer = open.tokenizer()?;
    let prompt = args.chat.encode(&text, &open, &tokenizer, context)?;
    if prompt.is_empty() {
        return Err(CommandError::failed("the prompt is empty: there is nothing to continue").into());
    }
    let wanted = prompt.len() + args.max_new_tokens;
    let rope = open.rope(&args.rope, wanted)?;
    ensure_within_limit(&rope, prompt.len(), args.rope.allow_beyond)?;
    let limit = rope.limit.filter(|_| !args.rope.allow_beyond);
    let length = limit.map_or(wanted, |limit| wanted.min(limit));
    let rope_json = rope_json(&rope, length)?;
    let cut_short = limit_warning(&rope, prompt.len(), wanted, limit);
    let settings = (&args.rope, &args.memory);
    let described = open.describe(&tokenizer);
    let known = [tokenizer.warnings(), &cut_short].concat();
    let ready = open.load(rope, settings, length, &known, context)?;
    let request = GenerateRequest {
        prompt,
        max_new_tokens: args.max_new_tokens,
        limit,
        sampling,
        stop: args.stop.clone(),
        ignore_eos: args.ignore_eos,
    };
    let mut screen = Screen::new(&request, context);
    let made = generate(&*ready.model, &tokenizer, &request, &mut screen)?;
    screen.finish(&made)?;
    context.note(&statistics(&request, &made));
    Ok(Report {
        schema: "ropex.generate/1",
        model: described,
        rope: rope_json,
        engine: ready.describe_engine(settings, context),
        result: json!({
            "text": made.text,
            "tokens": made.tokens,
            "prompt_tokens": request.prompt.len(),
            "new_tokens": made.tokens.len(),
            "computed_tokens": made.computed_tokens,
            "stop": made.stop.name(),
            "seed": context.seed,
        }),
        timing: json!({
            "load_s": ready.load_s,
            "prefill_s": made.prefill_s,
            "decode_s": made.decode_s,
        }),
        text: Some(made.text.clone()),
        streamed: context.may_stream,
        tables: vec![table(&request, &made)],
        warnings: ready.warnings,
        interrupted: made.stop == StopReason::Interrupted,
        ..Report::default()
    })
}

impl Args {
    fn sampling(&self, seed: u64) -> anyhow::Result<SamplingOptions> {
        let share = |flag: &str, value: Option<f64>| match value {
            Some(p) if !(p > 0.0 && p <= 1.0) => {
                Err(CommandError::usage(format!("`{flag}` must be above 0 and at most 1, found {p}")))
            }
            _ => Ok(value),
        };
        if !(self.temperature.is_finite() && self.temperature >= 0.0) {
            let found = self.temperature;
            return Err(
                CommandError::usage(format!("`--temperature` must be at least 0, found {found}")).into()
            );
        }
        Ok(SamplingOptions {
            temperature: self.temperature,
            top_p: share("--top-p", self.top_p)?,
            top_k: self.top_k,
            min_p: share("--min-p", self.min_p)?,
            seed,
        })
    }

    fn read_prompt(&self, context: &Context) -> anyhow::Result<String> {
        if let Some(text) = &self.prompt {
            return Ok(text.clone());
        }
        let (name, bytes) = match &self.prompt_file {
            Some(path) => {
                let name = path.display().to_string();
                let bytes = fs::read(path).with_context(|| format!("cannot read `{name}`"))?;
                (name, bytes)
            }
            None if !io::stdin().is_terminal() => {
                context.note("reading the prompt from standard input");
                let mut bytes = Vec::new();
                io::stdin().read_to_end(&mut bytes).context("cannot read standard input")?;
                ("standard input".to_string(), bytes)
            }
            None => ("standard input".to_string(), Vec::new()),
        };
        if bytes.is_empty() && self.prompt_file.is_none() {
            return self.sample_prompt(context);
        }
        let text = String::from_utf8(bytes);
        Ok(text.map_err(|error| {
            let at = error.utf8_error().valid_up_to();
            CommandError::failed(format!("`{name}` is not UTF-8: bad byte at offset {at}"))
        })?)
    }

    /// The demo checkpoint brings a prompt of its own; every other model needs one.
    fn sample_prompt(&self, context: &Context) -> anyhow::Result<String> {
        if self.model.model.as_ref().is_some_and(|model| *model != ModelRef::Builtin) {
            let error = CommandError::usage("there is no prompt");
            let hint = "give --prompt TEXT or --prompt-file FILE, or pipe text to standard input";
            return Err(error.hint(hint).into());
        }
        context.note("no prompt given: continuing a sample that is longer than the demo's trained context");
        Ok(demo::PROMPT.to_string())
    }
}

/// Said before the run when the limit leaves less room than was asked for.
fn limit_warning(rope: &RopeSettings, prompt: usize, wanted: usize, limit: Option<usize>) -> Vec<String> {
    let cut = limit.filter(|limit| wanted > *limit);
    let warning = cut.map(|limit| {
        format!(
            "prompt ({prompt} tokens) and new tokens ({}) come to {wanted}, the limit is {limit} (original context {}): \
             generation stops there; `--scaling yarn --factor auto` makes room",
            wanted - prompt,
            rope.spec.original_context
        )
    });
    warning.into_iter().collect()
}

/// The terminal during a generation.
struct Screen {
    bar: Option<Progress>,
    stream: bool,
    /// A closed pipe or full disk is reported at the end.
    failed: Option<io::Error>,
}

impl Screen {
    fn new(request: &GenerateRequest, context: &Context) -> Self {
        Self {
            bar: Some(Progress::tokens("prefill", request.prompt.len(), context.quiet)),
            stream: context.may_stream,
            failed: None,
        }
    }

    fn write(&mut self, text: &str) {
        if !self.stream || self.failed.is_some() {
            return;
        }
        let mut stdout = io::stdout().lock();
        let written = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
        self.failed = written.err();
    }

    fn finish(mut self, made: &Generation) -> anyhow::Result<()> {
        if let Some(bar) = self.bar.take() {
            bar.finish();
        }
        if !made.text.ends_with('\n') {
            self.write("\n");
        }
        match self.failed {
            Some(error) => Err(error).context("cannot write to standard output"),
            None => Ok(()),
        }
    }
}

impl Listener for Screen {
    fn prefilled(&mut self, tokens: usize) {
        if let Some(bar) = &mut self.bar {
            bar.update(tokens, String::new());
        }
    }

    fn text(&mut self, text: &str) {
        if let Some(bar) = self.bar.take() {
            bar.finish();
        }
        self.write(text);
    }
}

fn statistics(request: &GenerateRequest, made: &Generation) -> String {
    let prompt = request.prompt.len();
    let new = made.tokens.len();
    let reason = match &made.stop {
        StopReason::EndOfSequence(id) => format!("end-of-sequence token {id}"),
        StopReason::StopText(text) => format!("stop text {text:?}"),
        StopReason::Interrupted => "interrupted".to_string(),
        StopReason::MaxNewTokens => "--max-new-tokens reached".to_string(),
        StopReason::Limit(limit) => format!("limit of {limit} tokens reached"),
    };
    // The first new token comes out of the prefill.
    let steps = new.saturating_sub(1);
    let rate = |tokens: usize, seconds: f64| tokens as f64 / seconds.max(1e-9);
    let decode = match steps {
        0 => String::new(),
        _ => format!(" ({:.1} tokens/s)", rate(steps, made.decode_s)),
    };
    format!(
        "prompt {prompt} tokens in {:.2} s ({:.1} tokens/s); {new} new tokens in {:.2} s{decode}; stopped: {reason}",
        made.prefill_s,
        rate(prompt, made.prefill_s),
        made.decode_s,
    )
}

fn table(request: &GenerateRequest, made: &Generation) -> Table {
    let mut table = Table::new("", &["prompt_tokens", "new_tokens", "stop", "text"]);
    table.row([
        request.prompt.len().to_string(),
        made.tokens.len().to_string(),
        made.stop.name().to_string(),
        made.text.clone(),
    ]);
    table
}
