//! `ropex sweep`

mod depths;
mod grid;
mod merge;
mod output;
mod plan_file;
mod positions;

use std::path::PathBuf;
use std::time::Instant;

use anyhow::Context as _;
use serde_json::{Value, json};

use self::grid::{GridArgs, Ground};
use super::gate_args::{GateArgs, Subject};
use super::model_args::{MemoryArgs, ModelArgs, OpenModel, ReadyModel};
use super::progress::Progress;
use super::report::Report;
use super::rope_args::RopeArgs;
use super::values::{format_count, format_duration, format_size, parse_length};
use super::{CommandError, Context};
use crate::checkpoint::rope::RopeOverrides;
use crate::demo;
use crate::eval::sweep::forecast::{Speeds, Work, calibrate};
use crate::eval::sweep::identity::fingerprint;
use crate::eval::sweep::run::{Event, open_cells};
use crate::eval::sweep::{self, Cell, Settings, Shard, Store, Sweep};
use crate::model::DynamicPolicy;
use crate::model::memory::peak_bytes;
use crate::named::Named;

/// Measure methods x factors x contexts: one table, resumable
///
/// Every cell of the grid is measured on one loaded model. Finished cells go to the file of `--out`, one line each; a sweep that
/// was stopped resumes there, a grown grid measures what is new, and parts measured elsewhere are put together with `ropex sweep
/// merge`. A cell that fails does not lose the others.
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
Examples:
  ropex sweep --text book.txt --scaling none,linear,ntk,yarn --factor 4 --context 256,1k --allow-beyond --max-windows 4
  ropex sweep --model model.gguf --text book.txt --scaling ntk,yarn --factor 2,4 --context 8k,16k --out sweep.jsonl
  ropex sweep --model model.gguf --plan plan.toml --shard 0/3 --out part-0.jsonl
  ropex sweep merge part-*.jsonl --out sweep.jsonl --format markdown"
)]
pub struct Args {
    #[command(subcommand)]
    command: Option<SweepCommand>,
    #[command(flatten)]
    sweep: SweepArgs,
}

#[derive(Debug, clap::Subcommand)]
enum SweepCommand {
    Merge(merge::Args),
}

/// What a plan says in their place.
const GRID_FLAGS: [&str; 15] = [
    "scaling",
    "factor",
    "context",
    "measure",
    "text",
    "rule",
    "stride",
    "bos",
    "max_windows",
    "markers",
    "lossy",
    "depths",
    "trials",
    "digits",
    "score",
];

#[derive(Debug, clap::Args)]
struct SweepArgs {
    #[command(flatten)]
    grid: GridArgs,
    /// The grid as TOML, in place of the flags above; see docs/guide.md
    #[arg(long, value_name = "FILE", help_heading = "Sweep", conflicts_with_all = GRID_FLAGS)]
    plan: Option<PathBuf>,
    /// Add a line to FILE for every finished cell, and skip cells that it holds
    #[arg(long, value_name = "FILE", help_heading = "Sweep")]
    out: Option<PathBuf>,
    /// Measure only every N-th cell, beginning with number I (from 0): one part of N, for one machine
    #[arg(long, value_name = "I/N", help_heading = "Sweep", value_parser = Shard::parse)]
    shard: Option<Shard>,
    /// Write no times to FILE, so that reruns write the same bytes
    #[arg(long, requires = "out", help_heading = "Sweep")]
    no_timing: bool,
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    memory: MemoryArgs,
    #[command(flatten)]
    rope: SweepRopeArgs,
    #[command(flatten)]
    gates: GateArgs,
}

/// What all rotary embeddings of a sweep have in common.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Rotary position embedding")]
struct SweepRopeArgs {
    /// Tokens that the unscaled rotation was trained on [default: from the checkpoint]
    #[arg(long, value_name = "TOKENS", value_parser = parse_length)]
    original_context: Option<usize>,
    /// Base of the frequencies [default: from the checkpoint]
    #[arg(long, value_name = "X")]
    rope_theta: Option<f64>,
    /// When frequencies depend on the length, as in `ropex ppl`
    #[arg(long, value_name = "POLICY", default_value = "planned", value_parser = DynamicPolicy::parse)]
    dynamic: DynamicPolicy,
    /// Measure also beyond the limit of a method (original context x factor); such cells are refused otherwise
    #[arg(long)]
    allow_beyond: bool,
}

const SCHEMA: &str = "ropex.sweep/1";

/// What gates of a sweep speak of.
const SUBJECT: Subject = Subject { schema: SCHEMA, measured: output::metrics, has_cases: true };

pub fn run(args: Args, context: &Context) -> anyhow::Result<Report> {
    match args.command {
        Some(SweepCommand::Merge(merge)) => merge::run(&merge, context),
        None => run_sweep(args.sweep, context),
    }
}

fn run_sweep(args: SweepArgs, context: &Context) -> anyhow::Result<Report> {
    let open = args.model.open(context)?;
    let tokenizer = open.tokenizer()?;
    let grid = match &args.plan {
        Some(path) => plan_file::read(path)?,
        None => args.grid.clone(),
    };
    let rope = RopeArgs::policies(args.rope.dynamic, args.rope.allow_beyond);
    let base = RopeOverrides {
        original_context: args.rope.original_context,
        theta: args.rope.rope_theta,
        ..RopeOverrides::default()
    };
    let settings = (&rope, &args.memory);
    let ground = Ground { open: &open, tokenizer: &tokenizer, settings, base: &base, context };
    let cells = grid.cells(&ground)?;
    let gates = args.gates.prepare(SUBJECT, &output::metric_names(cells.iter().map(|cell| &cell.id)))?;
    let cells = part(cells, args.shard)?;
    let mut store = args.out.as_deref().map(Store::open).transpose()?;
    let warnings = [tokenizer.warnings(), &warnings(&cells)].concat();
    let ready = load(&open, &cells, settings, &warnings, context)?;
    let common = common_inputs(&open, &ready, &args, context)?;
    let done = run_cells(&cells, &ready, &common, &args, &mut store, context)?;
    if let Some(store) = store {
        store.finish()?;
    }
    let mut report = output::report(&done.sweep.records);
    report.model = open.describe(&tokenizer);
    report.engine = ready.describe_engine(settings, context);
    report.timing = done.timing(ready.load_s);
    output::add_cell_timing(&mut report, &done.sweep.records);
    report.warnings = ready.warnings;
    report.interrupted = done.sweep.interrupted;
    output::describe_model(&mut report, &open);
    gates.apply(&mut report, output::junit_cases(&done.sweep.records))?;
    Ok(report)
}

/// The cells of a shard.
fn part(cells: Vec<Cell<'_>>, shard: Option<Shard>) -> anyhow::Result<Vec<Cell<'_>>> {
    let Some(shard) = shard else {
        return Ok(cells);
    };
    let count = cells.len();
    let part: Vec<Cell<'_>> = cells
        .into_iter()
        .enumerate()
        .filter(|(number, _)| shard.holds(*number))
        .map(|(_, cell)| cell)
        .collect();
    if part.is_empty() {
        let message = format!("shard {} of {} is empty: there are {count} cell(s)", shard.index, shard.of);
        return Err(CommandError::usage(message).into());
    }
    Ok(part)
}

/// What users should know about the cells, each sentence once.
fn warnings(cells: &[Cell<'_>]) -> Vec<String> {
    let mut warnings: Vec<String> = Vec::new();
    for cell in cells {
        let about = cell.rope.warnings.iter().map(|warning| format!("{}: {warning}", cell.id.label));
        let blocked = cell.blocked.iter().map(|(_, reason)| format!("{} is not measured: {reason}", cell.id));
        for warning in about.chain(blocked) {
            if !warnings.contains(&warning) {
                warnings.push(warning);
            }
        }
    }
    warnings
}

/// Loads the model once, for the longest cell.
fn load<'a>(
    open: &'a OpenModel,
    cells: &[Cell<'_>],
    settings: (&RopeArgs, &MemoryArgs),
    warnings: &[String],
    context: &Context,
) -> anyhow::Result<ReadyModel<'a>> {
    let measured = cells.iter().filter(|cell| cell.blocked.is_none());
    let longest = measured.max_by_key(|cell| cell.id.context).or(cells.first());
    let cell = longest.ok_or_else(|| CommandError::usage("the grid has no cell"))?;
    open.load_shared(cell.rope.clone(), settings, cell.id.context, warnings, context)
}

/// What every cell's result depends on.
fn common_inputs(
    open: &OpenModel,
    ready: &ReadyModel<'_>,
    args: &SweepArgs,
    context: &Context,
) -> anyhow::Result<Value> {
    let extra = [&args.model.tokenizer, &args.model.config];
    let mut files = open.checkpoint.paths();
    files.extend(extra.into_iter().flatten().map(PathBuf::as_path));
    let mut parts = Vec::new();
    for name in ["config.json", "tokenizer.json", "tokenizer_config.json"] {
        parts.extend(open.checkpoint.sibling(name)?);
    }
    if open.checkpoint.paths().is_empty() {
        parts.push(demo::GGUF.to_vec());
    }
    let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
    let engine = ready.model.engine();
    let mut common = json!({
        "model_sha256": fingerprint(&files, &parts)?,
        "engine": engine,
        "device": context.device.to_string(),
        "kv_type": ready.kv_type.name(),
        "prefill_chunk": args.memory.prefill_chunk,
        "dynamic": args.rope.dynamic.name(),
        "seed": context.seed,
    });
    // The engine `cpu` gives the same bits whatever the number of threads (tests/engines.rs); others promise nothing.
    if !engine.starts_with("cpu") {
        common["threads"] = context.threads.into();
    }
    Ok(common)
}

/// A sweep and what was foretold of it.
struct Done {
    sweep: Sweep,
    calibration_s: f64,
    forecast_bytes: u64,
}

fn run_cells(
    cells: &[Cell<'_>],
    ready: &ReadyModel<'_>,
    common: &Value,
    args: &SweepArgs,
    store: &mut Option<Store>,
    context: &Context,
) -> anyhow::Result<Done> {
    let known = store.as_ref().map_or(&[][..], Store::records);
    if let Some(torn_bytes) = store.as_ref().map(|store| store.torn_bytes).filter(|bytes| *bytes > 0) {
        context.note(&format!("cut off {torn_bytes} bytes of a cell that an earlier run could not finish"));
    }
    let open = open_cells(cells, common, known);
    let work: Vec<Work> = open.iter().map(|&number| cells[number].measurement.work()).collect();
    let tokens: usize = work.iter().map(Work::tokens).sum();
    let longest = open.iter().map(|&number| cells[number].id.context).max().unwrap_or(0);
    let started = Instant::now();
    let speeds = match tokens {
        0 => Speeds::default(),
        _ => calibrate(&*ready.model, longest, tokens).context("cannot time the model")?,
    };
    let calibration_s = started.elapsed().as_secs_f64();
    let forecast_s: f64 = work.iter().map(|work| speeds.forecast_s(work)).sum();
    let forecast_bytes = open.iter().map(|&number| cells[number].planned_bytes).max().unwrap_or(0);
    context.note(&format!(
        "forecast: {} cell(s) to measure, {} without; {} tokens, {}, {} of memory",
        open.len(),
        cells.len() - open.len(),
        format_count(tokens),
        format_duration(forecast_s),
        format_size(forecast_bytes),
    ));
    let mut bar = Progress::seconds("sweep", forecast_s, context.quiet);
    let settings = Settings { model: &*ready.model, common, speeds, timing: !args.no_timing };
    let count = cells.len();
    let sweep = sweep::run(cells, &settings, store.as_mut(), &mut |event| match event {
        Event::Progress { cell, number, done_s, so_far } => {
            let message = format!("{}/{count} {cell} {so_far}", number + 1);
            bar.update((done_s * 1000.0) as usize, message);
        }
        Event::Finished(record) => bar.say(&output::line(record)),
    })?;
    bar.finish();
    let done = Done { sweep, calibration_s, forecast_bytes };
    context.note(&done.sentence());
    Ok(done)
}

impl Done {
    /// How far off the forecast was: 0.1 when it took 10 % longer.
    fn forecast_error(&self) -> Option<f64> {
        (self.sweep.forecast_s > 0.0).then(|| self.sweep.elapsed_s / self.sweep.forecast_s - 1.0)
    }

    fn sentence(&self) -> String {
        let sweep = &self.sweep;
        let mut text = format!("measured in {}", format_duration(sweep.elapsed_s));
        if let Some(error) = self.forecast_error() {
            text += &format!(", forecast {} ({:+.0} %)", format_duration(sweep.forecast_s), 100.0 * error);
        }
        if let Some(peak) = peak_bytes() {
            let forecast = format_size(self.forecast_bytes);
            text += &format!("; peak memory {}, forecast {forecast}", format_size(peak));
        }
        if sweep.resumed > 0 {
            text += &format!("; {} cell(s) were there already", sweep.resumed);
        }
        text
    }

    fn timing(&self, load_s: f64) -> Value {
        json!({
            "load_s": load_s,
            "calibration_s": self.calibration_s,
            "elapsed_s": self.sweep.elapsed_s,
            "forecast_s": self.sweep.forecast_s,
            "forecast_error": self.forecast_error(),
            "forecast_bytes": self.forecast_bytes,
            "peak_bytes": peak_bytes(),
            "resumed": self.sweep.resumed,
        })
    }
}
