//! Every encoding over several seeds, measured within and beyond the trained length.

mod result;
#[cfg(test)]
mod tests;

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

pub use self::result::{Comparison, EncodingResult, Outcome, ScaledResult, Spread};
use self::result::{Measured, gather};
use super::encoding::Encoding;
use super::error::LabError;
use super::evaluate::Probe;
use super::model::Model;
use super::settings::Settings;
use super::text::Text;
use super::train::{Keep, State, train};
use crate::named::Named;
use crate::rope::{Magnitude, Ramp, Scaling, Yarn};

/// What to train and what to measure.
#[derive(Debug, Clone)]
pub struct CompareRequest {
    /// Sizes of all runs; `encoding` and `seed` are replaced.
    pub settings: Settings,
    pub encodings: Vec<Encoding>,
    pub seeds: Vec<u64>,
    /// Lengths to measure at, in tokens.
    pub lengths: Vec<usize>,
    /// Factors of the scaled rotary models, each measured at factor times the trained length.
    pub factors: Vec<f64>,
    /// Windows to measure with.
    pub windows: usize,
    /// Folder of the checkpoints, and steps from one to the next.
    pub keep: Option<(PathBuf, usize)>,
    /// Runs side by side; candle's own pools are best sized to one thread then.
    pub workers: usize,
}

/// The scaling methods that are tried on rotary models.
pub const METHODS: [&str; 4] = ["linear", "ntk", "dynamic-ntk", "yarn"];

/// The scaling of a name in [`METHODS`]; `None` for another. Dynamic NTK follows the length and takes no factor.
fn scaling(method: &str, factor: f64) -> Option<Scaling> {
    match method {
        "linear" => Some(Scaling::Linear { factor }),
        "ntk" => Some(Scaling::Ntk { factor }),
        "dynamic-ntk" => Some(Scaling::DynamicNtk { factor: 1.0 }),
        "yarn" => Some(Scaling::Yarn(Yarn { factor, ramp: Ramp::default(), magnitude: Magnitude::Default })),
        _ => None,
    }
}

/// A step of one run among all.
#[derive(Debug, Clone, Copy)]
pub struct Progress {
    /// Index of the run, below the number of encodings times the number of seeds.
    pub run: usize,
    pub encoding: Encoding,
    pub seed: u64,
    pub step: usize,
    pub loss: f64,
}

impl CompareRequest {
    /// Checks what no single run checks.
    ///
    /// # Errors
    /// [`LabError::Setting`] for an empty list, a length of 0, or a factor that is no number of at least 1.
    pub fn validate(&self) -> Result<(), LabError> {
        let ensure = |name, holds, accepted: &str, found: String| match holds {
            true => Ok(()),
            false => Err(LabError::Setting { name, accepted: accepted.to_string(), found }),
        };
        self.settings.validate()?;
        let counts = [
            ("encodings", self.encodings.len()),
            ("seeds", self.seeds.len()),
            ("lengths", self.lengths.len()),
            ("windows", self.windows),
            ("workers", self.workers),
        ];
        for (name, count) in counts {
            ensure(name, count > 0, "at least 1", count.to_string())?;
        }
        let scored = self.scored();
        for length in &self.lengths {
            ensure(
                "lengths",
                *length >= scored,
                "at least a quarter of the trained length",
                length.to_string(),
            )?;
        }
        for factor in &self.factors {
            let holds = factor.is_finite() && (1.0..=1024.0).contains(factor);
            ensure("factors", holds, "between 1 and 1024", factor.to_string())?;
        }
        Ok(())
    }

    /// Tokens scored at the end of every window: a quarter of the trained length.
    fn scored(&self) -> usize {
        self.settings.context / 4
    }

    fn stretched(&self, factor: f64) -> usize {
        (factor * self.settings.context as f64).round() as usize
    }

    /// The runs in order: all encodings of a seed before the next seed.
    fn runs(&self) -> Vec<Settings> {
        let run = |seed: &u64| {
            let seed = *seed;
            self.encodings.iter().map(move |&encoding| Settings { encoding, seed, ..self.settings.clone() })
        };
        self.seeds.iter().flat_map(run).collect()
    }

    fn path(&self, folder: &Path, run: &Settings) -> PathBuf {
        folder.join(format!("{}-seed{}.safetensors", run.encoding.name(), run.seed))
    }
}

/// Trains and measures; `watch` sees every step, from several threads, and stops all runs when it breaks.
///
/// A stopped comparison keeps its checkpoints if the request names a folder, returns what is finished, and goes on from
/// there when it is asked again.
///
/// # Errors
/// As [`CompareRequest::validate`], [`Probe::new`] and [`train`]; the first error stops all runs.
pub fn compare(
    request: &CompareRequest,
    text: &Text,
    watch: &(dyn Fn(Progress) -> ControlFlow<()> + Sync),
) -> Result<Comparison, LabError> {
    request.validate()?;
    let furthest = request.factors.iter().map(|factor| request.stretched(*factor));
    let longest = request.lengths.iter().copied().chain(furthest).max().unwrap_or(0);
    let probe = Probe::new(
        text.held_out(),
        request.windows,
        request.scored(),
        longest.max(request.settings.context),
    )?;
    let runs = request.runs();
    let (next, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
    let found: Mutex<Vec<Option<Measured>>> = Mutex::new((0..runs.len()).map(|_| None).collect());
    let failed: Mutex<Option<LabError>> = Mutex::new(None);
    let work = || {
        while !stop.load(Ordering::Relaxed) {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(run) = runs.get(index) else { break };
            match one_run(request, (index, run), text, &probe, &stop, watch) {
                Ok(measured) => locked(&found)[index] = measured,
                Err(error) => {
                    stop.store(true, Ordering::Relaxed);
                    locked(&failed).get_or_insert(error);
                }
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..request.workers.min(runs.len()) {
            scope.spawn(work);
        }
    });
    match failed.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner()) {
        Some(error) => Err(error),
        None => {
            let found = found.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
            Ok(gather(request, &found, &probe))
        }
    }
}

/// The data of a mutex whose holders only assign.
fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Trains one run and measures it; `None` when it was stopped.
fn one_run(
    request: &CompareRequest,
    (index, run): (usize, &Settings),
    text: &Text,
    probe: &Probe,
    stop: &AtomicBool,
    watch: &(dyn Fn(Progress) -> ControlFlow<()> + Sync),
) -> Result<Option<Measured>, LabError> {
    let mut each = |state: &State| {
        let (step, loss) = (state.step(), state.recent_loss().unwrap_or(f64::NAN));
        if watch(Progress { run: index, encoding: run.encoding, seed: run.seed, step, loss }).is_break() {
            stop.store(true, Ordering::Relaxed);
        }
        if stop.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let path = request.keep.as_ref().map(|(folder, every)| (request.path(folder, run), *every));
    let keep = path.as_ref().map(|(path, every)| Keep { path, every: *every });
    let state = train(run, text, keep, &mut each)?;
    if !state.is_finished() {
        return Ok(None);
    }
    measure(request, &state, text.held_out(), probe).map(Some)
}

fn measure(
    request: &CompareRequest,
    state: &State,
    text: &[u8],
    probe: &Probe,
) -> Result<Measured, LabError> {
    let model: Model = state.model()?;
    let perplexity = |length, scaling: &Scaling| Ok(probe.nll(&model, text, length, scaling)?.exp());
    let mut by_length = Vec::new();
    for &length in &request.lengths {
        by_length.push(match perplexity(length, &Scaling::None) {
            Ok(value) => Ok(value),
            Err(error @ LabError::BeyondLearned { .. }) => Err(error.to_string()),
            Err(error) => return Err(error),
        });
    }
    let mut scaled = Vec::new();
    if state.settings.encoding.rotates() {
        for &factor in &request.factors {
            let length = request.stretched(factor);
            let plain = perplexity(length, &Scaling::None)?;
            for scaling in METHODS.iter().filter_map(|method| scaling(method, factor)) {
                let within = perplexity(request.settings.context, &scaling)?;
                scaled.push([plain, perplexity(length, &scaling)?, within]);
            }
        }
    }
    let loss = state.recent_loss().unwrap_or(f64::NAN);
    Ok(Measured { weights: state.weight_count(), loss, by_length, scaled })
}
