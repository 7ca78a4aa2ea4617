//! Where the time of a pass went, against what the machine can do.

use serde_json::{Value, json};

use crate::cli::report::Table;
use crate::cli::values::format_number;
use crate::engine::stages::{Peaks, Stage, StageWork};
use crate::eval::speed::Rate;
use crate::named::Named;

/// The table of stages and the peaks that its shares refer to.
pub struct Stages {
    peaks: Peaks,
    table: Table,
}

impl Stages {
    pub fn new(peaks: Peaks) -> Self {
        let columns = [
            "work",
            "tokens",
            "in the cache",
            "stage",
            "time %",
            "Gop/s",
            "% of peak",
            "GB/s",
            "% of memory",
        ];
        Self { peaks, table: Table::new("Where the time goes", &columns) }
    }

    /// One row a stage, and one for the rest; the same as JSON.
    pub fn add(&mut self, work: &str, rate: &Rate) -> Value {
        let Some(times) = rate.stages else { return Value::Null };
        let rest = StageWork { seconds: rate.elapsed_s - times.seconds(), ..StageWork::default() };
        let stages = Stage::ALL.iter().map(|stage| (stage.name(), times.of(*stage)));
        let rows: Vec<Value> = stages
            .chain([("other", rest)])
            .map(|(name, stage)| self.add_stage((work, rate), name, &stage))
            .collect();
        rows.into()
    }

    fn add_stage(&mut self, (work, rate): (&str, &Rate), name: &str, stage: &StageWork) -> Value {
        let share = stage.seconds / rate.elapsed_s;
        let per_second = |amount: f64| (amount > 0.0).then(|| amount / stage.seconds);
        let (operations, bytes) = (per_second(stage.operations), per_second(stage.bytes));
        let of_peak = operations.zip(self.peaks.operations_per_s).map(|(reached, peak)| reached / peak);
        let of_memory = bytes.map(|reached| reached / self.peaks.bytes_per_s);
        let cell =
            |value: Option<f64>, unit: f64| value.map_or(String::new(), |value| format_number(value / unit));
        self.table.row([
            work.to_string(),
            rate.tokens.to_string(),
            rate.context.to_string(),
            name.to_string(),
            format_number(100.0 * share),
            cell(operations, 1e9),
            cell(of_peak, 0.01),
            cell(bytes, 1e9),
            cell(of_memory, 0.01),
        ]);
        json!({
            "stage": name,
            "seconds": stage.seconds,
            "operations_per_s": operations,
            "of_peak": of_peak,
            "bytes_per_s": bytes,
            "of_bandwidth": of_memory,
        })
    }

    /// The peaks as JSON.
    pub fn machine(&self) -> Value {
        json!({ "operations_per_s": self.peaks.operations_per_s, "bytes_per_s": self.peaks.bytes_per_s })
    }

    /// The table, its title naming the peaks.
    pub fn into_table(self) -> Table {
        let gigabytes = format_number(self.peaks.bytes_per_s / 1e9);
        let products = match self.peaks.operations_per_s {
            Some(operations) => format!("{} Gop/s in 16-bit products, ", format_number(operations / 1e9)),
            None => String::new(),
        };
        let title = format!("Where the time goes (this machine: {products}{gigabytes} GB/s from memory)");
        Table { title, ..self.table }
    }
}
