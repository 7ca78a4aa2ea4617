//! `ropex lab check`

use serde_json::{Value, json};

use crate::cli::Context;
use crate::cli::report::{Report, Table};
use crate::lab::check::{Bound, check};

/// Check the identities behind the position encodings numerically, and show what goes wrong without them
///
/// Each line is one identity with its largest deviation (`at most`) or one mistake with its size (`at least`). Random
/// vectors come from `--seed`. Exit code 1 when a line does not hold.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ropex lab check
  ropex lab check --seed 7 --format json")]
pub struct Args {}

pub fn run(_: Args, context: &Context) -> anyhow::Result<Report> {
    let findings = check(context.seed)?;
    let mut table = Table::new("", &["check", "value", "bound", "holds", "what the value is"]);
    let mut rows = Vec::new();
    let mut failures = Vec::new();
    for finding in &findings {
        let (kind, bound) = match finding.bound {
            Bound::AtMost(bound) => ("at most", bound),
            Bound::AtLeast(bound) => ("at least", bound),
        };
        let held = if finding.holds() { "yes" } else { "NO" };
        table.row([
            finding.name.to_string(),
            short(finding.value),
            format!("{kind} {}", short(bound)),
            held.to_string(),
            finding.what.clone(),
        ]);
        rows.push(json!({
            "name": finding.name,
            "what": finding.what,
            "value": finding.value,
            "bound": bound,
            "kind": kind,
            "holds": finding.holds(),
        }));
        if !finding.holds() {
            let (name, value) = (finding.name, short(finding.value));
            failures.push(format!("`{name}` does not hold: {value}, should be {kind} {}", short(bound)));
        }
    }
    Ok(Report {
        schema: "ropex.lab-check/1",
        result: json!({
            "seed": context.seed,
            "holding": findings.len() - failures.len(),
            "checks": Value::Array(rows),
        }),
        tables: vec![table],
        failures,
        ..Report::default()
    })
}

/// Three digits: `3.1e-13`, `0.75`.
fn short(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_string(),
        small if small < 1e-2 => format!("{value:.1e}"),
        _ => format!("{value:.2}"),
    }
}
