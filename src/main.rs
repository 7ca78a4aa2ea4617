//! Parse, run, print the error, exit.

use std::env;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser as _;
use ropex::cli::{Cli, Environment, describe, exit_code, run};

fn main() -> ExitCode {
    let cli = Cli::parse();
    // SAFETY: no other thread runs yet. Candle sizes its pools by this variable and has no other setting.
    unsafe { env::set_var("RAYON_NUM_THREADS", cli.tensor_threads().to_string()) };
    match run(cli, environment()) {
        Ok(outcome) => ExitCode::from(outcome.exit_code()),
        Err(error) if is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{}", describe(&error));
            ExitCode::from(exit_code(&error))
        }
    }
}

/// The variables that the Hugging Face tools share.
fn environment() -> Environment {
    let text = |name: &str| env::var(name).ok().filter(|value| !value.is_empty());
    let path = |name: &str| text(name).map(PathBuf::from);
    let user_cache = path("XDG_CACHE_HOME").or(env::home_dir().map(|home| home.join(".cache")));
    let home = path("HF_HOME").or(user_cache.map(|cache| cache.join("huggingface")));
    let flag = |value: String| !matches!(value.to_ascii_lowercase().as_str(), "0" | "false" | "no" | "off");
    Environment {
        hub_cache: path("HF_HUB_CACHE").or(home.map(|home| home.join("hub"))),
        hub_endpoint: text("HF_ENDPOINT"),
        hub_token: text("HF_TOKEN"),
        offline: text("HF_HUB_OFFLINE").is_some_and(flag),
    }
}

/// Whoever read our standard output has enough, as `head` does.
fn is_closed_pipe(error: &anyhow::Error) -> bool {
    let io = error.chain().find_map(|cause| cause.downcast_ref::<std::io::Error>());
    io.is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
}
