//! Measuring cell after cell: what is done already is skipped, what fails is noted, and the rest goes on.

use std::collections::HashMap;
use std::time::Instant;

use serde_json::{Map, Value, json};

use super::cell::CellId;
use super::forecast::{Speeds, Work};
use super::record::{Record, Status, key};
use super::store::{Store, StoreError};
use crate::checkpoint::rope::RopeSettings;
use crate::model::LanguageModel;
use crate::model::with_rope::WithRope;

/// What a cell found.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    /// The same in every rerun.
    pub result: Value,
    /// What differs.
    pub timing: Map<String, Value>,
}

/// Why a cell has no result.
#[derive(Debug)]
pub enum CellError {
    /// Ctrl-C: the whole sweep stops, and the cell is measured when it resumes.
    Interrupted,
    Failed(String),
}

/// How far a cell is.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct CellProgress {
    /// Tokens through the model, of [`Work::tokens`].
    pub done_tokens: usize,
    /// What is known so far, such as `ppl 12.3`.
    pub so_far: String,
}

/// What a cell measures, whatever the model's rotary embedding.
pub trait Measurement {
    /// Everything that the result depends on, apart from model, engine and rotary embedding.
    fn inputs(&self) -> Value;

    fn work(&self) -> Work;

    /// # Errors
    /// [`CellError`]
    fn measure(
        &self,
        model: &dyn LanguageModel,
        progress: &mut dyn FnMut(CellProgress),
    ) -> Result<Found, CellError>;
}

/// One cell.
pub struct Cell<'a> {
    pub id: CellId,
    pub rope: RopeSettings,
    /// The rotary embedding for reports: `{name: value}`, part of the inputs.
    pub rope_values: Value,
    /// Memory that a run of its context takes.
    pub planned_bytes: u64,
    /// What is known before it is measured: that it is refused, or cannot be measured, and why.
    pub blocked: Option<(Status, String)>,
    pub measurement: Box<dyn Measurement + 'a>,
}

impl Cell<'_> {
    /// Everything that the result depends on. `common`: model and engine.
    pub fn inputs(&self, common: &Value) -> Value {
        let mut inputs = common.as_object().cloned().unwrap_or_default();
        inputs.insert("rope".to_string(), self.rope_values.clone());
        inputs.insert("context".to_string(), self.id.context.into());
        inputs.insert(self.id.measure.clone(), self.measurement.inputs());
        Value::Object(inputs)
    }
}

/// What happens during a sweep.
#[derive(Debug)]
pub enum Event<'e> {
    /// A cell is under way; `done_s`: forecast seconds of work that lie behind.
    Progress {
        cell: &'e CellId,
        number: usize,
        done_s: f64,
        so_far: &'e str,
    },
    Finished(&'e Record),
}

/// How cells are run.
pub struct Settings<'a> {
    pub model: &'a dyn LanguageModel,
    /// Model and engine, part of every cell's inputs.
    pub common: &'a Value,
    pub speeds: Speeds,
    /// Whether lines hold what differs between reruns.
    pub timing: bool,
}

/// What a sweep left.
#[derive(Debug, Default)]
pub struct Sweep {
    /// One a cell that has an outcome, in the order of the cells.
    pub records: Vec<Record>,
    /// Cells whose result was there already.
    pub resumed: usize,
    pub interrupted: bool,
    /// Measuring, and its forecast: of the cells that were measured and done.
    pub elapsed_s: f64,
    pub forecast_s: f64,
}

/// The cells of `cells` that have no result in `known`, by their numbers.
pub fn open_cells(cells: &[Cell<'_>], common: &Value, known: &[Record]) -> Vec<usize> {
    let done: HashMap<&str, &Record> = done_by_key(known);
    let is_open = |cell: &Cell<'_>| cell.blocked.is_none() && !done.contains_key(&*key(&cell.inputs(common)));
    cells.iter().enumerate().filter(|(_, cell)| is_open(cell)).map(|(number, _)| number).collect()
}

fn done_by_key(known: &[Record]) -> HashMap<&str, &Record> {
    known.iter().filter(|record| record.is_done()).map(|record| (record.key.as_str(), record)).collect()
}

/// Measures every cell that has no result yet, in order, and adds each to `store`.
///
/// # Errors
/// A store that cannot be written: a sweep whose results are lost is not worth its time.
pub fn run(
    cells: &[Cell<'_>],
    settings: &Settings<'_>,
    mut store: Option<&mut Store>,
    on_event: &mut dyn FnMut(Event<'_>),
) -> Result<Sweep, StoreError> {
    let known: Vec<Record> = store.as_ref().map_or_else(Vec::new, |store| store.records().to_vec());
    let done = done_by_key(&known);
    let mut sweep = Sweep::default();
    let mut done_s = 0.0;
    for (number, cell) in cells.iter().enumerate() {
        let inputs = cell.inputs(settings.common);
        if let Some(record) = done.get(&*key(&inputs)) {
            // Its label may be another one by now.
            sweep.records.push(record.named(cell.id.clone()));
            sweep.resumed += 1;
            continue;
        }
        if let Some(blocked) = &cell.blocked {
            let record = Record::new(cell.id.clone(), inputs, Err(blocked.clone()));
            keep(record, &mut store, &mut sweep, on_event)?;
            continue;
        }
        let forecast_s = settings.speeds.forecast_s(&cell.measurement.work());
        let started = Instant::now();
        let found = measure(cell, settings.model, &mut |progress, share| {
            let done_s = done_s + forecast_s * share;
            on_event(Event::Progress { cell: &cell.id, number, done_s, so_far: &progress.so_far });
        });
        let elapsed_s = started.elapsed().as_secs_f64();
        let mut timing = json!({ "elapsed_s": elapsed_s, "forecast_s": forecast_s });
        let outcome = match found {
            Err(CellError::Interrupted) => {
                sweep.interrupted = true;
                break;
            }
            Err(CellError::Failed(reason)) => Err((Status::Failed, reason)),
            Ok(found) => {
                sweep.elapsed_s += elapsed_s;
                sweep.forecast_s += forecast_s;
                if let Value::Object(timing) = &mut timing {
                    timing.extend(found.timing);
                }
                Ok(found.result)
            }
        };
        done_s += forecast_s;
        let mut record = Record::new(cell.id.clone(), inputs, outcome);
        record.timing = settings.timing.then_some(timing);
        keep(record, &mut store, &mut sweep, on_event)?;
    }
    Ok(sweep)
}

fn keep(
    record: Record,
    store: &mut Option<&mut Store>,
    sweep: &mut Sweep,
    on_event: &mut dyn FnMut(Event<'_>),
) -> Result<(), StoreError> {
    if let Some(store) = store {
        store.append(&record)?;
    }
    on_event(Event::Finished(&record));
    sweep.records.push(record);
    Ok(())
}

fn measure(
    cell: &Cell<'_>,
    model: &dyn LanguageModel,
    progress: &mut dyn FnMut(&CellProgress, f64),
) -> Result<Found, CellError> {
    let model = WithRope::new(model, cell.rope.clone());
    let total = cell.measurement.work().tokens().max(1) as f64;
    progress(&CellProgress::default(), 0.0);
    cell.measurement.measure(&model, &mut |now| {
        let share = (now.done_tokens as f64 / total).min(1.0);
        progress(&now, share);
    })
}
