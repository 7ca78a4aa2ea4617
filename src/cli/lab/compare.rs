//! `ropex lab compare`

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use serde_json::{Value, json};

use super::sizes::{SizeArgs, model_json, parse_count, text_json, training_json, usage};
use crate::cli::progress::Progress;
use crate::cli::report::{Report, Table};
use crate::cli::values::parse_length;
use crate::cli::{CommandError, Context, interrupt};
use crate::lab::compare::{CompareRequest, Comparison, Outcome, Spread, compare};
use crate::lab::encoding::Encoding;
use crate::lab::settings::Settings;
use crate::named::Named;
use crate::plot::{Axis, AxisScale, Curves, Figure, Mark, NamedFigure, Series};

/// Train every position encoding on the same batches and measure perplexity within and beyond the trained length
///
/// At every length the same bytes are scored, the last quarter of a trained length before each of some places in the
/// held-out text; lengths differ only in how much text stands before them. Rotary models are measured again with linear,
/// ntk, dynamic-ntk and yarn scaling. Mean and standard deviation are over seeds. With `--out` a stopped or killed run
/// goes on where it was.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ropex lab compare --out runs/compare
  ropex lab compare --encodings none,alibi,rope --seeds 1 --steps 300
  ropex lab compare --text book.txt --context 128 --out runs/book --figures figures")]
pub struct Args {
    /// Encodings, separated by commas [default: all]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = Encoding::parse)]
    encodings: Vec<Encoding>,
    /// Runs of each encoding, with seeds from --seed on
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = parse_count)]
    seeds: usize,
    /// Lengths to measure at, separated by commas [default: a half, 1, 2, 4 and 8 times the trained length]
    #[arg(long, value_name = "TOKENS", value_delimiter = ',', value_parser = parse_length)]
    lengths: Vec<usize>,
    /// Factors of the scaled rotary models, separated by commas
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "2,4,8")]
    factors: Vec<f64>,
    /// Places in the held-out text to measure before
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = parse_count)]
    windows: usize,
    /// Folder of the checkpoints, one file for each encoding and seed; goes on with what is there
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    #[command(flatten)]
    sizes: SizeArgs,
}

impl Args {
    fn request(&self, context: &Context) -> anyhow::Result<CompareRequest> {
        let settings = self.sizes.settings(Encoding::Rope, context.seed)?;
        let trained = settings.context;
        let encodings =
            if self.encodings.is_empty() { Encoding::ALL.to_vec() } else { self.encodings.clone() };
        if let Some(twice) = encodings.iter().enumerate().find(|(i, e)| encodings[..*i].contains(e)) {
            return Err(CommandError::usage(format!("encoding `{}` is listed twice", twice.1.name())).into());
        }
        let lengths = match self.lengths.as_slice() {
            [] => vec![trained / 2, trained, 2 * trained, 4 * trained, 8 * trained],
            given => given.to_vec(),
        };
        let request = CompareRequest {
            settings,
            encodings,
            seeds: (0..self.seeds as u64).map(|index| context.seed.wrapping_add(index)).collect(),
            lengths,
            factors: self.factors.clone(),
            windows: self.windows,
            keep: self.out.clone().map(|folder| (folder, self.sizes.save_every)),
            workers: context.threads,
        };
        request.validate().map_err(usage)?;
        Ok(request)
    }
}

pub fn run(args: Args, context: &Context) -> anyhow::Result<Report> {
    let request = args.request(context)?;
    let (text, name) = args.sizes.text(context.seed)?;
    let cancel = interrupt::cancel()?;
    let settings = &request.settings;
    let runs = request.encodings.len() * request.seeds.len();
    let per_step = settings.batch * settings.context;
    let started = Instant::now();
    let bar = Progress::tokens("lab", runs * settings.steps * per_step, context.quiet);
    // Steps so far of each run: those of a run that goes on count from the start.
    let state = Mutex::new((bar, vec![0usize; runs]));
    let watch = |seen: crate::lab::compare::Progress| {
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        let (bar, steps) = &mut *state;
        steps[seen.run] = seen.step;
        let message = format!("{} seed {}: loss {:.3}", seen.encoding.name(), seen.seed, seen.loss);
        bar.update(steps.iter().sum::<usize>() * per_step, message);
        if cancel.is_set() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let found = compare(&request, &text, &watch).map_err(usage)?;
    state.into_inner().unwrap_or_else(PoisonError::into_inner).0.finish();
    let tables = vec![lengths_table(&request, &found), scaling_table(settings, &found)];
    Ok(Report {
        schema: "ropex.lab-compare/1",
        model: model_json(settings),
        result: json!({
            "seeds": request.seeds,
            "text": text_json(&text, &name),
            "training": training_json(settings),
            "windows": request.windows,
            "tokens_scored": found.tokens_scored,
            "finished_runs": found.finished,
            "runs": runs,
            "encodings": encodings_json(&request, &found),
            "scaled": scaled_json(&found),
        }),
        timing: json!({ "elapsed_s": started.elapsed().as_secs_f64() }),
        tables: tables.into_iter().filter(|table| !table.rows.is_empty()).collect(),
        figures: figures(&request, &found),
        interrupted: found.finished < runs,
        ..Report::default()
    })
}

/// `3.21 ±0.05`
fn cell(spread: &Spread) -> String {
    let digits = |value: f64| if value < 1000.0 { format!("{value:.3}") } else { format!("{value:.0}") };
    match spread.deviation() {
        Some(deviation) => format!("{} ±{}", digits(spread.mean()), digits(deviation)),
        None => digits(spread.mean()),
    }
}

fn lengths_table(request: &CompareRequest, found: &Comparison) -> Table {
    let trained = request.settings.context;
    let seeds = request.seeds.len();
    let title =
        format!("perplexity per byte by length, trained on {trained}, mean ±deviation of {seeds} seeds");
    let mut columns = vec!["encoding".to_string(), "weights".to_string(), "training loss".to_string()];
    columns.extend(request.lengths.iter().map(|length| format!("at {length}")));
    let mut table = Table::new(title, &columns);
    for row in &found.encodings {
        let outcome = |outcome: &Outcome| match outcome {
            Outcome::Measured(spread) => cell(spread),
            Outcome::Refused(_) => "cannot".to_string(),
        };
        let front = [row.encoding.name().to_string(), row.weights.to_string(), cell(&row.loss)];
        table.row(front.into_iter().chain(row.perplexity.iter().map(outcome)));
    }
    table
}

fn scaling_table(settings: &Settings, found: &Comparison) -> Table {
    let within = format!("scaled at {}", settings.context);
    let columns = ["encoding", "scaling", "factor", "length", "plain", "scaled", &within];
    let mut table = Table::new("rotary models beyond the trained length", &columns);
    for row in &found.scaled {
        table.row([
            row.encoding.name().to_string(),
            row.method.to_string(),
            row.factor.to_string(),
            row.length.to_string(),
            cell(&row.plain),
            cell(&row.scaled),
            cell(&row.within),
        ]);
    }
    table
}

fn spread_json(spread: &Spread) -> Value {
    json!({ "mean": spread.mean(), "deviation": spread.deviation(), "per_seed": spread.0 })
}

fn encodings_json(request: &CompareRequest, found: &Comparison) -> Value {
    let row = |row: &crate::lab::compare::EncodingResult| {
        let at = |(length, outcome): (&usize, &Outcome)| match outcome {
            Outcome::Measured(spread) => {
                json!({ "length": length, "ppl": spread_json(spread), "reason": null })
            }
            Outcome::Refused(reason) => json!({ "length": length, "ppl": null, "reason": reason }),
        };
        json!({
            "encoding": row.encoding.name(),
            "weights": row.weights,
            "loss": spread_json(&row.loss),
            "by_length": request.lengths.iter().zip(&row.perplexity).map(at).collect::<Vec<_>>(),
        })
    };
    found.encodings.iter().map(row).collect()
}

fn scaled_json(found: &Comparison) -> Value {
    let row = |row: &crate::lab::compare::ScaledResult| {
        json!({
            "encoding": row.encoding.name(),
            "scaling": row.method,
            "factor": row.factor,
            "length": row.length,
            "plain_ppl": spread_json(&row.plain),
            "ppl": spread_json(&row.scaled),
            "ppl_at_trained_length": spread_json(&row.within),
        })
    };
    found.scaled.iter().map(row).collect()
}

/// One curve with a band of one deviation.
fn series<'a>(name: String, points: impl Iterator<Item = (usize, &'a Spread)>) -> Series {
    let mut series = Series { name, points: Vec::new(), band: Vec::new() };
    for (length, spread) in points {
        let (x, mean, deviation) = (length as f64, spread.mean(), spread.deviation().unwrap_or(0.0));
        series.points.push((x, mean));
        // Perplexity is at least 1, and the axis has no place for less.
        series.band.push((x, (mean - deviation).max(1.0), mean + deviation));
    }
    series
}

fn figures(request: &CompareRequest, found: &Comparison) -> Vec<NamedFigure> {
    let trained = request.settings.context;
    let curves = |name: &str, title: &str, series: Vec<Series>| {
        let figure = Curves {
            title: title.to_string(),
            x: Axis { label: "length, bytes".into(), scale: AxisScale::Log2 },
            y: Axis { label: "perplexity per byte".into(), scale: AxisScale::Log10 },
            series,
            marks: vec![Mark { at: trained as f64, label: "trained length".into() }],
        };
        NamedFigure { name: name.to_string(), figure: Figure::Curves(figure) }
    };
    let of_encoding = |row: &crate::lab::compare::EncodingResult| {
        let measured =
            request.lengths.iter().zip(&row.perplexity).filter_map(|(length, outcome)| match outcome {
                Outcome::Measured(spread) => Some((*length, spread)),
                Outcome::Refused(_) => None,
            });
        series(row.encoding.name().to_string(), measured)
    };
    let mut figures = Vec::new();
    if !found.encodings.is_empty() {
        let all = found.encodings.iter().map(of_encoding).collect();
        figures.push(curves("lab-encodings", "Perplexity by length and position encoding", all));
    }
    for encoding in request.encodings.iter().filter(|encoding| encoding.rotates()) {
        let rows: Vec<_> = found.scaled.iter().filter(|row| row.encoding == *encoding).collect();
        let Some(first) = rows.first() else { continue };
        let of_method = |method: &'static str| rows.iter().filter(move |row| row.method == method);
        let plain = of_method(first.method).map(|row| (row.length, &row.plain));
        let mut all = vec![series("plain".into(), plain)];
        for method in crate::lab::compare::METHODS {
            all.push(series(method.to_string(), of_method(method).map(|row| (row.length, &row.scaled))));
        }
        let name = format!("lab-scaling-{}", encoding.name());
        figures.push(curves(&name, &format!("Scaled beyond the trained length, {}", encoding.name()), all));
    }
    figures
}
