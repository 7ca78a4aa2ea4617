//! Gates of a command: flags, the values they speak of, and what a report says about them.

use std::fs;
use std::path::PathBuf;

use anyhow::Context as _;
use serde_json::{Value, json};

use super::CommandError;
use super::report::{Report, Table, write_file};
use super::values::format_number;
use crate::eval::gate::junit::{Case, CaseOutcome, document};
use crate::eval::gate::{Gate, Metric, MetricName, Outcome, check, validate};
use crate::named::Named;

/// Conditions on the result.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = "Gates")]
pub struct GateArgs {
    /// Conditions on the result, such as 'ppl<=12.5', 'ppl@16k<=1.05*baseline' or 'needle>=90%'; one that does not hold makes
    /// exit code 3. Metrics are listed in docs/json.md; a wrong name lists them too
    #[arg(long, value_name = "EXPR", num_args = 1.., value_parser = Gate::parse)]
    gate: Vec<Gate>,
    /// JSON result of an earlier run of the same command, which `baseline` in a gate refers to
    #[arg(long, value_name = "FILE", requires = "gate")]
    gate_baseline: Option<PathBuf>,
    /// Also write what became of the gates (and, for sweep, of the cells) as JUnit XML
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
}

/// What the gates of a command speak of.
#[derive(Debug, Clone, Copy)]
pub struct Subject {
    /// Of the command's results.
    pub schema: &'static str,
    /// The values that a gate may name, as they stand in a result.
    pub measured: fn(&Value) -> Vec<Metric>,
    /// Whether the command has test cases of its own for the JUnit file.
    pub has_cases: bool,
}

/// Gates that are known to speak of something that the run measures.
#[derive(Debug)]
pub struct Gates {
    gates: Vec<Gate>,
    baseline: Option<Vec<Metric>>,
    junit: Option<PathBuf>,
    subject: Subject,
}

impl GateArgs {
    /// Reads the baseline and checks every gate against what the run will measure.
    ///
    /// `available`: names that the result will hold.
    ///
    /// # Errors
    /// A [`CommandError`] of usage for a gate that names something else; a baseline that cannot be read.
    pub fn prepare(&self, subject: Subject, available: &[MetricName]) -> anyhow::Result<Gates> {
        if self.junit.is_some() && self.gate.is_empty() && !subject.has_cases {
            return Err(CommandError::usage("`--junit` has nothing to report without `--gate`").into());
        }
        let baseline = self.gate_baseline.as_ref().map(|path| read_baseline(path, subject));
        let baseline = baseline.transpose()?;
        if let Err(error) = validate(&self.gate, available, baseline.as_deref()) {
            let usage = CommandError::usage(error.to_string());
            let wants_baseline = matches!(error, crate::eval::gate::GateError::NoBaseline { .. });
            return Err(match wants_baseline {
                true => usage.hint("save an earlier run with `--format json --output FILE` and give it as `--gate-baseline FILE`"),
                false => usage,
            }
            .into());
        }
        Ok(Gates { gates: self.gate.clone(), baseline, junit: self.junit.clone(), subject })
    }
}

fn read_baseline(path: &PathBuf, subject: Subject) -> anyhow::Result<Vec<Metric>> {
    let name = path.display();
    let text = fs::read_to_string(path).with_context(|| format!("cannot read `{name}`"))?;
    let object: Value = serde_json::from_str(&text)
        .with_context(|| format!("the baseline `{name}` is not a JSON result of ropex"))?;
    let found = object["schema"].as_str().unwrap_or("none");
    let schema = subject.schema;
    if found != schema {
        let message = format!("the baseline `{name}` has the schema `{found}`, `{schema}` is needed");
        return Err(CommandError::failed(message).into());
    }
    Ok((subject.measured)(&object["result"]))
}

impl Gates {
    /// Checks the gates against the result of `report` and notes the outcomes in it; `cases`: test cases of the command
    /// itself for the JUnit file, before those of the gates.
    ///
    /// # Errors
    /// A JUnit file that cannot be written.
    pub fn apply(&self, report: &mut Report, cases: Vec<Case>) -> anyhow::Result<()> {
        let outcomes = check(&self.gates, &(self.subject.measured)(&report.result), self.baseline.as_deref());
        if let Some(path) = &self.junit {
            let class = report.schema.split('/').next().unwrap_or(report.schema);
            let cases: Vec<Case> = cases.into_iter().chain(outcomes.iter().map(gate_case)).collect();
            write_file(path, document(class, &cases))?;
        }
        if outcomes.is_empty() {
            return Ok(());
        }
        if let Value::Object(result) = &mut report.result {
            result.insert("gates".to_string(), outcomes.iter().map(gate_json).collect());
        }
        report.failed_gates.extend(outcomes.iter().filter(|outcome| !outcome.holds).map(Outcome::reason));
        report.tables.insert(0, table(&outcomes));
        report.main_table += 1;
        Ok(())
    }
}

fn gate_case(outcome: &Outcome) -> Case {
    let failed = || CaseOutcome::Failed(outcome.reason());
    Case {
        name: outcome.gate.text.clone(),
        elapsed_s: None,
        outcome: if outcome.holds { CaseOutcome::Passed } else { failed() },
    }
}

fn gate_json(outcome: &Outcome) -> Value {
    json!({
        "gate": outcome.gate.text,
        "metric": outcome.gate.metric.to_string(),
        "value": outcome.value,
        "comparison": outcome.gate.comparison.name(),
        "wanted": outcome.wanted,
        "baseline": outcome.baseline,
        "holds": outcome.holds,
    })
}

fn table(outcomes: &[Outcome]) -> Table {
    let mut table = Table::new("gates", &["gate", "outcome", "value", "wanted"]);
    let shown = |value: Option<f64>| value.map_or("-".to_string(), format_number);
    for outcome in outcomes {
        table.row([
            outcome.gate.text.clone(),
            if outcome.holds { "pass" } else { "FAIL" }.to_string(),
            shown(outcome.value),
            format!("{} {}", outcome.gate.comparison.name(), shown(outcome.wanted)),
        ]);
    }
    table
}

/// The values at the top level of `result` that are called `names`: alone, and at the context of the run.
pub fn at_context(result: &Value, names: &[&str]) -> Vec<Metric> {
    let context = result["context"].as_u64().and_then(|context| usize::try_from(context).ok());
    let mut found = Vec::new();
    for name in names.iter().filter(|name| result.get(**name).is_some()) {
        let value = result[*name].as_f64();
        found.push(Metric { name: MetricName::new(*name, None), value });
        found.extend(context.map(|length| Metric { name: MetricName::new(*name, Some(length)), value }));
    }
    found
}

/// The names that [`at_context`] will find after a run at `context`.
pub fn names_at(context: usize, names: &[&str]) -> Vec<MetricName> {
    names.iter().flat_map(|name| [None, Some(context)].map(|length| MetricName::new(*name, length))).collect()
}
