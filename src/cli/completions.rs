//! `ropex completions`

use clap::CommandFactory;
use clap_complete::Shell;

use super::Cli;
use super::report::Report;

/// Print a completion script for a shell
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The shell to complete in
    shell: Shell,
}

pub fn run(args: Args) -> Report {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "ropex", &mut script);
    Report {
        schema: "ropex.completions/1",
        text: Some(String::from_utf8_lossy(&script).into_owned()),
        ..Report::default()
    }
}
