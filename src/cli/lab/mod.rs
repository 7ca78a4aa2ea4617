//! `ropex lab`

mod check;
mod compare;
mod sizes;
mod train;

use super::report::Report;
use super::{CommandError, Context};
use crate::engine::candle::DeviceName;
use crate::model::load::EngineName;

/// Train toy models that differ in their position encoding only, and check the identities behind the encodings
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ropex lab check
  ropex lab train --encoding alibi --out runs/alibi
  ropex lab compare --out runs/compare")]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Train(train::Args),
    Compare(compare::Args),
    Check(check::Args),
}

impl Args {
    /// Whether several runs compute at the same time, each on one thread.
    pub fn runs_side_by_side(&self) -> bool {
        matches!(self.command, Command::Compare(_))
    }
}

pub fn run(args: Args, context: &Context) -> anyhow::Result<Report> {
    if context.device != DeviceName::Cpu {
        let error = CommandError::usage("`lab` computes on the CPU only");
        return Err(error.hint("leave `--device` out").into());
    }
    if context.engine == EngineName::Cpu {
        let error = CommandError::usage("`lab` trains with candle; the engine `cpu` has no gradients");
        return Err(error.hint("leave `--engine` out").into());
    }
    match args.command {
        Command::Train(args) => train::run(args, context),
        Command::Compare(args) => compare::run(args, context),
        Command::Check(args) => check::run(args, context),
    }
}
