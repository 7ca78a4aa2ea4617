//! `ropex completions`

use clap::CommandFactory;
use clap_complete::Shell;
use serde_json::json;

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
    let script = String::from_utf8_lossy(&script).into_owned();
    Report {
        schema: "ropex.completions/1",
        result: json!({ "shell": args.shell.to_string(), "script": script }),
        text: Some(script),
        ..Report::default()
    }
}
