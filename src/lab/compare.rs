//! Every encoding over several seeds, measured within and beyond the trained length.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

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
    /// Runs side by side.
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

/// One value per seed.
#[derive(Debug, Clone, PartialEq)]
pub struct Spread(pub Vec<f64>);

impl Spread {
    pub fn mean(&self) -> f64 {
        self.0.iter().sum::<f64>() / self.0.len() as f64
    }

    /// Standard deviation of the sample; `None` below two seeds.
    pub fn deviation(&self) -> Option<f64> {
        let (mean, count) = (self.mean(), self.0.len());
        let squares: f64 = self.0.iter().map(|v| (v - mean) * (v - mean)).sum();
        (count > 1).then(|| (squares / (count - 1) as f64).sqrt())
    }
}

/// Perplexity at one length, or why there is none.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    Measured(Spread),
    Refused(String),
}

/// One encoding.
#[derive(Debug, Clone, PartialEq)]
pub struct EncodingResult {
    pub encoding: Encoding,
    /// Values in all weights.
    pub weights: usize,
    /// Mean loss of the last twentieth of the steps, nats per token.
    pub loss: Spread,
    /// One for each length of the request.
    pub perplexity: Vec<Outcome>,
}

/// One scaling of a rotary encoding.
#[derive(Debug, Clone, PartialEq)]
pub struct ScaledResult {
    pub encoding: Encoding,
    pub method: &'static str,
    pub factor: f64,
    /// Factor times the trained length.
    pub length: usize,
    /// Perplexity at `length`, plain.
    pub plain: Spread,
    /// Perplexity at `length`, scaled.
    pub scaled: Spread,
    /// Perplexity at the trained length, scaled: the price within it.
    pub within: Spread,
}

/// All that was found; encodings of which no seed was finished are left out.
#[derive(Debug, Clone, PartialEq)]
pub struct Comparison {
    pub encodings: Vec<EncodingResult>,
    pub scaled: Vec<ScaledResult>,
    /// Runs finished, of all encodings and seeds.
    pub finished: usize,
    /// Tokens scored at each length for each seed.
    pub tokens_scored: usize,
}

/// A step of one run among all.
#[derive(Debug, Clone, Copy)]
pub struct Progress {
    pub encoding: Encoding,
    pub seed: u64,
    pub step: usize,
    pub loss: f64,
}

/// What one finished run yields.
struct Measured {
    weights: usize,
    loss: f64,
    by_length: Vec<Result<f64, String>>,
    /// Plain, scaled and within, for each factor and method in order.
    scaled: Vec<[f64; 3]>,
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
            match one_run(request, run, text, &probe, &stop, watch) {
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
    run: &Settings,
    text: &Text,
    probe: &Probe,
    stop: &AtomicBool,
    watch: &(dyn Fn(Progress) -> ControlFlow<()> + Sync),
) -> Result<Option<Measured>, LabError> {
    let mut each = |state: &State| {
        let (step, loss) = (state.step(), state.recent_loss().unwrap_or(f64::NAN));
        if watch(Progress { encoding: run.encoding, seed: run.seed, step, loss }).is_break() {
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

/// Puts the seeds of each encoding together.
fn gather(request: &CompareRequest, found: &[Option<Measured>], probe: &Probe) -> Comparison {
    let mut comparison = Comparison {
        encodings: Vec::new(),
        scaled: Vec::new(),
        finished: found.iter().flatten().count(),
        tokens_scored: probe.tokens_scored(),
    };
    let count = request.encodings.len();
    for (index, &encoding) in request.encodings.iter().enumerate() {
        let runs: Vec<&Measured> = found.iter().skip(index).step_by(count).flatten().collect();
        let Some(first) = runs.first() else { continue };
        let outcome = |length: usize| match &first.by_length[length] {
            Err(reason) => Outcome::Refused(reason.clone()),
            Ok(_) => {
                let values = runs.iter().filter_map(|run| run.by_length[length].as_ref().ok().copied());
                Outcome::Measured(Spread(values.collect()))
            }
        };
        comparison.encodings.push(EncodingResult {
            encoding,
            weights: first.weights,
            loss: Spread(runs.iter().map(|run| run.loss).collect()),
            perplexity: (0..request.lengths.len()).map(outcome).collect(),
        });
        let kinds = request.factors.iter().flat_map(|factor| METHODS.map(|method| (*factor, method)));
        for (kind, (factor, method)) in kinds.enumerate().take(first.scaled.len()) {
            let spread = |which: usize| Spread(runs.iter().map(|run| run.scaled[kind][which]).collect());
            comparison.scaled.push(ScaledResult {
                encoding,
                method,
                factor,
                length: request.stretched(factor),
                plain: spread(0),
                scaled: spread(1),
                within: spread(2),
            });
        }
    }
    comparison
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(keep: Option<(PathBuf, usize)>) -> CompareRequest {
        CompareRequest {
            settings: Settings {
                layers: 1,
                width: 16,
                heads: 2,
                feed_forward: 16,
                context: 16,
                batch: 2,
                steps: 8,
                warmup: 1,
                ..Settings::default()
            },
            encodings: vec![Encoding::Learned, Encoding::Rope],
            seeds: vec![4, 5],
            lengths: vec![8, 16, 32],
            factors: vec![2.0],
            windows: 4,
            keep,
            workers: 2,
        }
    }

    fn through(_: Progress) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    #[test]
    fn all_encodings_and_seeds_are_measured_and_learned_positions_say_where_they_end() {
        let text = Text::generated(0, 5000);
        let found = compare(&request(None), &text, &through).unwrap();
        assert_eq!((found.finished, found.tokens_scored), (4, 16));
        let learned = &found.encodings[0];
        assert!(matches!(&learned.perplexity[1], Outcome::Measured(spread) if spread.0.len() == 2));
        match &learned.perplexity[2] {
            Outcome::Refused(reason) => assert!(reason.contains("end at 16"), "{reason}"),
            other => panic!("{other:?}"),
        }
        let methods: Vec<&str> = found.scaled.iter().map(|scaled| scaled.method).collect();
        assert_eq!(methods, METHODS);
        assert!(found.scaled.iter().all(|scaled| scaled.length == 32 && scaled.plain != scaled.scaled));
        // Dynamic NTK changes nothing within the trained length.
        let Outcome::Measured(plain) = &found.encodings[1].perplexity[1] else { panic!("rope refused") };
        assert_eq!(&found.scaled[2].within, plain);
    }

    #[test]
    fn a_stopped_comparison_goes_on_and_ends_alike() {
        let text = Text::generated(0, 5000);
        let dir = tempfile::tempdir().unwrap();
        let kept = request(Some((dir.path().to_path_buf(), 3)));
        let steps = AtomicUsize::new(0);
        let stop = |_: Progress| match steps.fetch_add(1, Ordering::Relaxed) < 20 {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        };
        let part = compare(&kept, &text, &stop).unwrap();
        assert!(part.finished < 4, "{}", part.finished);
        let again = AtomicUsize::new(0);
        let count = |_: Progress| {
            again.fetch_add(1, Ordering::Relaxed);
            ControlFlow::Continue(())
        };
        let whole = compare(&request(None), &text, &through).unwrap();
        assert_eq!(compare(&kept, &text, &count).unwrap(), whole);
        assert_eq!(again.into_inner() + steps.into_inner(), 32);
    }

    #[test]
    fn requests_are_checked() {
        let wrong = [
            CompareRequest { seeds: vec![], ..request(None) },
            CompareRequest { lengths: vec![3], ..request(None) },
            CompareRequest { factors: vec![0.5], ..request(None) },
            CompareRequest { windows: 0, ..request(None) },
        ];
        for request in wrong {
            let error = compare(&request, &Text::generated(0, 5000), &through).unwrap_err();
            assert!(matches!(error, LabError::Setting { .. }), "{error}");
        }
        let error = compare(&request(None), &Text::generated(0, 300), &through).unwrap_err();
        assert!(matches!(error, LabError::ShortText { needed: 33, found: 30, .. }), "{error}");
    }

    #[test]
    fn spread_is_the_deviation_of_the_sample() {
        let spread = Spread(vec![1.0, 3.0]);
        assert_eq!((spread.mean(), spread.deviation()), (2.0, Some(2f64.sqrt())));
        assert_eq!(Spread(vec![1.0]).deviation(), None);
    }
}
