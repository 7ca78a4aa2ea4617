//! `ropex bench`

mod stages;

use serde_json::{Value, json};

use self::stages::Stages;
use super::Context;
use super::model_args::{MemoryArgs, ModelArgs, rope_json};
use super::progress::Progress;
use super::report::{Report, Table};
use super::rope_args::RopeArgs;
use super::values::{format_number, parse_length};
use crate::eval::speed::{Rate, decode, prefill};
use crate::model::ensure_within_limit;

/// Measure how fast a model reads a prompt and writes tokens
///
/// Prefill: one pass from an empty cache, the best of three up to 4096 tokens. Decode: tokens one by one. A second table says
/// where the time went: products with weights, attention, head and the rest, each against what the machine can do, which is
/// measured first. Timings depend on what else the machine does; compare them within one run only.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ropex bench
  ropex bench --model model.gguf --prefill 512,8192 --decode 64 --depth 0,8192")]
pub struct Args {
    /// Prompt lengths, separated by commas
    #[arg(long, value_name = "TOKENS", value_delimiter = ',', default_value = "512", value_parser = parse_length)]
    prefill: Vec<usize>,
    /// Tokens to decode
    #[arg(long, value_name = "TOKENS", default_value = "64", value_parser = parse_length)]
    decode: usize,
    /// Tokens in the cache before decoding, separated by commas
    #[arg(long, value_name = "TOKENS", value_delimiter = ',', default_value = "0", value_parser = parse_depth)]
    depth: Vec<usize>,
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    memory: MemoryArgs,
    #[command(flatten)]
    rope: RopeArgs,
}

/// Prompts up to this length are timed more than once.
const REPEATED_UP_TO: usize = 4096;
const ROUNDS: usize = 3;

/// A number of tokens that may be none.
fn parse_depth(text: &str) -> Result<usize, String> {
    if text == "0" { Ok(0) } else { parse_length(text) }
}

pub fn run(args: Args, context: &Context) -> anyhow::Result<Report> {
    let open = args.model.open(context)?;
    let tokenizer = open.tokenizer()?;
    let deepest = args.depth.iter().max().copied().unwrap_or(0) + args.decode + 1;
    let length = args.prefill.iter().copied().fold(deepest, usize::max);
    let rope = open.rope(&args.rope, length)?;
    ensure_within_limit(&rope, length, args.rope.allow_beyond)?;
    let rope_json = rope_json(&rope, length)?;
    let settings = (&args.rope, &args.memory);
    let ready = open.load(rope, settings, length, tokenizer.warnings(), context)?;
    let mut stages = ready.model.peaks().map(Stages::new);
    let mut table = Table::new("", &["work", "tokens", "in the cache", "tokens/s"]);
    let mut row = |work: &str, rate: &Rate| {
        let stages = stages.as_mut().map(|stages| stages.add(work, rate));
        table.row([
            work.to_string(),
            rate.tokens.to_string(),
            rate.context.to_string(),
            format_number(rate.tokens_per_s()),
        ]);
        json!({
            "tokens": rate.tokens,
            "context": rate.context,
            "tokens_per_s": rate.tokens_per_s(),
            "stages": stages,
        })
    };
    let mut read = Vec::new();
    for &tokens in &args.prefill {
        let rounds = if tokens <= REPEATED_UP_TO { ROUNDS } else { 1 };
        let mut bar = Progress::tokens("prefill", tokens, context.quiet);
        let rate = prefill(&*ready.model, tokens, rounds, &mut |done| bar.update(done, String::new()))?;
        bar.finish();
        read.push(row("prefill", &rate));
    }
    let mut written = Vec::new();
    for &depth in &args.depth {
        let mut bar = Progress::tokens("filling the cache", depth + 1, context.quiet);
        let rate = decode(&*ready.model, args.decode, depth, &mut |done| bar.update(done, String::new()))?;
        bar.finish();
        written.push(row("decode", &rate));
    }
    let machine = stages.as_ref().map(Stages::machine);
    let tables = [Some(table), stages.map(Stages::into_table)].into_iter().flatten();
    Ok(Report {
        schema: "ropex.bench/1",
        model: open.describe(&tokenizer),
        rope: rope_json,
        engine: ready.describe_engine(settings, context),
        result: json!({ "machine": machine, "prefill": Value::Array(read), "decode": Value::Array(written) }),
        timing: json!({ "load_s": ready.load_s }),
        tables: tables.collect(),
        warnings: ready.warnings,
        ..Report::default()
    })
}
