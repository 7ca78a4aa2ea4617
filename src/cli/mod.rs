//! The command line: one file per command, each turning flags into a request, the library's answer into a report.

mod attention;
mod bench;
mod chat_args;
mod completions;
mod error;
mod gate_args;
mod generate;
mod inspect;
mod interrupt;
mod lab;
mod model_args;
mod needle;
mod plot;
mod ppl;
mod progress;
mod pull;
mod report;
mod report_files;
mod rope_args;
mod sweep;
mod texts;
mod tokenize;
mod values;

use std::path::PathBuf;

use clap::{Parser, Subcommand};

pub use self::error::{CommandError, describe, exit_code};
use self::report::Format;
use crate::checkpoint::hub::HubOptions;
use crate::engine::candle::DeviceName;
use crate::engine::cpu::isa::Isa;
use crate::engine::cpu::matrix::Activations;
use crate::model::load::EngineName;
use crate::named::Named;

/// Stretch the context window of Llama- and Qwen-family checkpoints: rewrite their rotary position embedding, then
/// generate, measure perplexity and inspect. Without `--model`, a small demonstration checkpoint inside the program is used.
#[derive(Debug, Parser)]
#[command(name = "ropex", version, max_term_width = 110, after_help = EXAMPLES)]
pub struct Cli {
    #[command(flatten)]
    global: GlobalArgs,
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  ropex generate --scaling yarn --factor 4
  ropex generate --model model.gguf --scaling yarn --factor auto --prompt-file long.txt
  ropex ppl --model org/name --text book.txt --context 16k --scaling ntk --factor 2
  ropex sweep --model model.gguf --text book.txt --scaling none,ntk,yarn --factor 2 --context 8k,16k --out sweep.jsonl
  ropex inspect --model model.gguf --scaling yarn --factor 4 --context 32k";

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Global options")]
struct GlobalArgs {
    /// How the result is written
    #[arg(long, global = true, value_enum, default_value = "table")]
    format: Format,
    /// Write the result to FILE instead of standard output
    #[arg(long, global = true, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Also write the figures of the result to DIR: SVG and PNG, each light and dark
    #[arg(long, global = true, value_name = "DIR")]
    figures: Option<PathBuf>,
    /// Also write the result to FILE as one HTML page: settings, tables, figures with values under the pointer
    #[arg(long, global = true, value_name = "FILE.html")]
    report: Option<PathBuf>,
    /// Print neither progress nor notes on standard error (warnings stay)
    #[arg(long, short, global = true)]
    quiet: bool,
    /// Say more on standard error
    #[arg(long, short, global = true, conflicts_with = "quiet")]
    verbose: bool,
    /// Threads that compute [default: all cores]
    #[arg(long, global = true, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    threads: Option<u16>,
    /// Seed of everything random
    #[arg(long, global = true, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// Where to compute: cpu, cuda, cuda:N or metal
    #[arg(long, global = true, value_name = "DEVICE", default_value = "cpu")]
    device: DeviceName,
    /// What computes: auto (the best one for the device), cpu (own kernels for this CPU) or candle (plain tensor operations)
    #[arg(long, global = true, value_name = "ENGINE", default_value = "auto", value_parser = EngineName::parse)]
    engine: EngineName,
    /// Instruction set of the engine cpu, for tests: scalar, avx2, avx512, avx512-bf16-vnni
    #[arg(long, global = true, value_name = "ISA", hide = true)]
    isa: Option<Isa>,
    /// Bits of activations in the engine cpu: 8 (faster; llama.cpp's choice, but finer for queries, keys and values) or 16.
    /// It applies to Q4_0, Q4_1, Q4_K and Q8_0 weights on CPUs with AVX-512 VNNI; everything else always has 16
    #[arg(long, global = true, value_name = "BITS", default_value = "16", value_parser = Activations::parse)]
    activations: Activations,
    /// Open no network connection: use only files that are already here
    #[arg(long, global = true)]
    offline: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    Generate(generate::Args),
    Ppl(ppl::Args),
    Needle(Box<needle::Args>),
    Plot(plot::Args),
    Sweep(Box<sweep::Args>),
    Attention(attention::Args),
    Inspect(inspect::Args),
    Bench(bench::Args),
    Lab(lab::Args),
    Tokenize(tokenize::Args),
    Pull(pull::Args),
    Completions(completions::Args),
}

/// What the environment says, read once by `main`.
#[derive(Debug, Clone, Default)]
pub struct Environment {
    /// Folder of the shared Hugging Face cache (`HF_HUB_CACHE`, else `HF_HOME`/hub).
    pub hub_cache: Option<PathBuf>,
    /// `HF_ENDPOINT`
    pub hub_endpoint: Option<String>,
    /// `HF_TOKEN`
    pub hub_token: Option<String>,
    /// `HF_HUB_OFFLINE`
    pub offline: bool,
}

/// What every command needs of the global flags and the environment.
struct Context {
    quiet: bool,
    verbose: bool,
    seed: u64,
    threads: usize,
    device: DeviceName,
    engine: EngineName,
    isa: Option<Isa>,
    activations: Activations,
    /// Whether text may go to standard output while it is produced.
    may_stream: bool,
    format: Format,
    /// Where the result goes, unless to standard output.
    output: Option<PathBuf>,
    /// Whether figures are written beside the result.
    writes_figures: bool,
    hub: HubOptions,
}

impl Context {
    /// A line on standard error for people who watch.
    fn note(&self, text: &str) {
        if !self.quiet {
            eprintln!("{text}");
        }
    }

    /// Warnings on standard error, said before the work that they are about.
    fn warn(&self, warnings: &[String]) {
        for warning in warnings {
            eprintln!("warning: {warning}");
        }
    }

    /// A line on standard error with `--verbose`.
    fn detail(&self, text: impl FnOnce() -> String) {
        if self.verbose {
            eprintln!("{}", text());
        }
    }
}

/// How a command that printed a result ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Done,
    /// A part of the work failed; the result holds the others.
    PartFailed,
    /// A `--gate` did not hold.
    GateFailed,
    /// Ctrl-C; the result holds what was done until then.
    Interrupted,
}

impl Outcome {
    pub fn exit_code(self) -> u8 {
        match self {
            Outcome::Done => 0,
            Outcome::PartFailed => 1,
            Outcome::GateFailed => 3,
            Outcome::Interrupted => interrupt::EXIT_CODE,
        }
    }
}

/// Runs one command and prints its result.
///
/// # Errors
/// A [`CommandError`] somewhere in the chain when the flags contradict each other or the model; anything else is a failure.
pub fn run(cli: Cli, environment: Environment) -> anyhow::Result<Outcome> {
    let threads = cli.threads();
    let Cli { global, command } = cli;
    let context = global.context(threads, environment)?;
    let report = match command {
        Command::Generate(args) => generate::run(args, &context)?,
        Command::Ppl(args) => ppl::run(args, &context)?,
        Command::Needle(args) => needle::run(*args, &context)?,
        Command::Plot(args) => plot::run(args, &context)?,
        Command::Sweep(args) => sweep::run(*args, &context)?,
        Command::Attention(args) => attention::run(args, &context)?,
        Command::Inspect(args) => inspect::run(args, &context)?,
        Command::Bench(args) => bench::run(args, &context)?,
        Command::Lab(args) => lab::run(args, &context)?,
        Command::Tokenize(args) => tokenize::run(args, &context)?,
        Command::Pull(args) => pull::run(args, &context)?,
        Command::Completions(args) => completions::run(args),
    };
    // The result first: a folder that cannot be written must not cost the work.
    report.print(global.format, global.output.as_deref())?;
    if let Some(dir) = &global.figures {
        match report.write_figures(dir)? {
            0 => context.warn(&["this result has no figures: `--figures` wrote none".to_string()]),
            files => context.note(&format!("wrote {files} files to {}", dir.display())),
        }
    }
    if let Some(path) = &global.report {
        report.write_page(path)?;
        context.note(&format!("wrote {}", path.display()));
    }
    for failure in &report.failures {
        eprintln!("error: {failure}");
    }
    for gate in &report.failed_gates {
        eprintln!("gate failed: {gate}");
    }
    Ok(match () {
        () if report.interrupted => Outcome::Interrupted,
        () if !report.failures.is_empty() => Outcome::PartFailed,
        () if !report.failed_gates.is_empty() => Outcome::GateFailed,
        () => Outcome::Done,
    })
}

impl Cli {
    /// Threads inside one tensor operation; `main` tells candle before the first one starts.
    ///
    /// One where whole runs go side by side: threads of candle wait by spinning, and runs that share them wait for each other.
    pub fn tensor_threads(&self) -> usize {
        match &self.command {
            Command::Lab(args) if args.runs_side_by_side() => 1,
            _ => self.threads(),
        }
    }

    /// Threads that compute.
    fn threads(&self) -> usize {
        match self.global.threads {
            Some(threads) => usize::from(threads),
            None => std::thread::available_parallelism().map_or(1, usize::from),
        }
    }
}

impl GlobalArgs {
    fn context(&self, threads: usize, environment: Environment) -> anyhow::Result<Context> {
        rayon::ThreadPoolBuilder::new().num_threads(threads).build_global()?;
        Ok(Context {
            quiet: self.quiet,
            verbose: self.verbose,
            seed: self.seed,
            threads,
            device: self.device,
            engine: self.engine,
            isa: self.isa,
            activations: self.activations,
            may_stream: self.format == Format::Table && self.output.is_none(),
            format: self.format,
            output: self.output.clone(),
            writes_figures: self.figures.is_some() || self.report.is_some(),
            hub: HubOptions {
                endpoint: environment.hub_endpoint,
                cache_dir: environment.hub_cache,
                token: environment.hub_token,
                offline: self.offline || environment.offline,
                quiet: self.quiet,
            },
        })
    }
}
