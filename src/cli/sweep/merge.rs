//! `ropex sweep merge`

use std::path::PathBuf;

use super::{SUBJECT, output};
use crate::cli::Context;
use crate::cli::gate_args::GateArgs;
use crate::cli::report::Report;
use crate::eval::sweep::Record;
use crate::eval::sweep::store::{latest, load, replace, text};

/// Put the parts of a sweep together
///
/// Reads files that `ropex sweep --out` wrote, on this machine or others, and makes one of them: each cell once, in order. Two
/// different results of one cell are an error, since they were made from the same inputs. No model is read.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ropex sweep merge part-0.jsonl part-1.jsonl --out sweep.jsonl
  ropex sweep merge sweep.jsonl --format markdown")]
pub struct Args {
    /// Files with finished cells
    #[arg(value_name = "FILE", required = true)]
    parts: Vec<PathBuf>,
    /// Write all cells to FILE
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Write no times to FILE
    #[arg(long, requires = "out")]
    no_timing: bool,
    #[command(flatten)]
    gates: GateArgs,
}

pub fn run(args: &Args, context: &Context) -> anyhow::Result<Report> {
    let read = |path: &PathBuf| Ok((path.clone(), load(path)?));
    let parts: Vec<(PathBuf, Vec<Record>)> = args.parts.iter().map(read).collect::<anyhow::Result<_>>()?;
    let records = latest(&parts)?;
    let gates =
        args.gates.prepare(SUBJECT, &output::metric_names(records.iter().map(|record| &record.cell)))?;
    if let Some(out) = &args.out {
        let records: Vec<Record> = match args.no_timing {
            true => records.iter().map(Record::without_timing).collect(),
            false => records.clone(),
        };
        replace(out, &text(&records)).map_err(|error| {
            anyhow::Error::new(error).context(format!("cannot write `{}`", out.display()))
        })?;
    }
    let mut report = output::report(&records);
    let twins = records.windows(2).filter(|pair| pair[0].cell == pair[1].cell).count();
    if twins > 0 {
        report.warnings.push(format!(
            "{twins} cell(s) stand twice, from different inputs (model, text, engine or settings); no gate can name them"
        ));
    }
    context.warn(&report.warnings);
    report.timing = serde_json::json!({});
    output::add_cell_timing(&mut report, &records);
    gates.apply(&mut report, output::junit_cases(&records))?;
    Ok(report)
}
