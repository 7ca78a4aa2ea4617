//! `ropex lab train`

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::Instant;

use serde_json::json;

use super::sizes::{SizeArgs, model_json, text_json, training_json, usage};
use crate::cli::progress::Progress;
use crate::cli::report::{Report, Table};
use crate::cli::values::format_number;
use crate::cli::{Context, interrupt};
use crate::lab::encoding::Encoding;
use crate::lab::train::{Keep, State, train};
use crate::named::Named;
use crate::plot::{Axis, AxisScale, Curves, Figure, NamedFigure, Series};

/// Train one toy language model on bytes
///
/// With `--out`, the run is kept in DIR/checkpoint.safetensors and goes on from there when it is started again with the
/// same flags: a run that was stopped, or killed, ends with the same weights as one that was not.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ropex lab train --encoding rope --out runs/rope
  ropex lab train --encoding none --steps 300
  ropex lab train --encoding alibi --text book.txt --layers 4 --width 128 --steps 3000 --out runs/book")]
pub struct Args {
    /// Position encoding: none, sinusoidal, learned, alibi, t5, rope (half-split lanes) or rope-adjacent
    #[arg(long, value_name = "ENCODING", default_value = "rope", value_parser = Encoding::parse)]
    encoding: Encoding,
    /// Folder of the checkpoint; goes on with what is there
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    #[command(flatten)]
    sizes: SizeArgs,
}

/// Lines of the table of losses.
const LINES: usize = 10;

pub fn run(args: Args, context: &Context) -> anyhow::Result<Report> {
    let settings = args.sizes.settings(args.encoding, context.seed)?;
    let (text, name) = args.sizes.text(context.seed)?;
    let cancel = interrupt::cancel()?;
    let path = args.out.as_ref().map(|folder| folder.join("checkpoint.safetensors"));
    let keep = path.as_ref().map(|path| Keep { path, every: args.sizes.save_every });
    let per_step = settings.batch * settings.context;
    let mut bar = Progress::tokens("train", settings.steps * per_step, context.quiet);
    let started = Instant::now();
    let mut first_step = None;
    let mut watch = |state: &State| {
        first_step.get_or_insert(state.step() - 1);
        let loss = state.recent_loss().map_or(String::new(), |loss| format!("loss {loss:.3}"));
        bar.update(state.step() * per_step, loss);
        if cancel.is_set() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let state = train(&settings, &text, keep, &mut watch).map_err(usage)?;
    bar.finish();
    let elapsed_s = started.elapsed().as_secs_f64();
    let steps_here = state.step() - first_step.unwrap_or(state.step());
    let result = json!({
        "encoding": settings.encoding.name(),
        "seed": settings.seed,
        "text": text_json(&text, &name),
        "training": training_json(&settings),
        "weights": state.weight_count(),
        "steps_done": state.step(),
        "loss": state.recent_loss(),
        "losses": state.losses,
        "checkpoint": path.as_ref().map(|path| path.display().to_string()),
    });
    Ok(Report {
        schema: "ropex.lab-train/1",
        model: model_json(&settings),
        result,
        timing: json!({
            "elapsed_s": elapsed_s,
            "steps_per_s": steps_here as f64 / elapsed_s,
        }),
        tables: vec![table(&state)],
        figures: vec![figure(&state)],
        interrupted: !state.is_finished(),
        ..Report::default()
    })
}

/// The mean loss of each tenth of the run.
fn parts(state: &State) -> impl Iterator<Item = (usize, f64)> {
    let size = state.losses.len().div_ceil(LINES).max(1);
    state.losses.chunks(size).enumerate().map(move |(index, part)| {
        let mean = part.iter().map(|loss| f64::from(*loss)).sum::<f64>() / part.len() as f64;
        (index * size + part.len(), mean)
    })
}

fn table(state: &State) -> Table {
    let settings = &state.settings;
    let title = format!(
        "{}, seed {}, {} weights, {} of {} steps",
        settings.encoding.name(),
        settings.seed,
        state.weight_count(),
        state.step(),
        settings.steps
    );
    let mut table = Table::new(title, &["to step", "mean loss", "perplexity"]);
    for (step, loss) in parts(state) {
        table.row([step.to_string(), format_number(loss), format_number(loss.exp())]);
    }
    table
}

fn figure(state: &State) -> NamedFigure {
    let points = parts(state).map(|(step, loss)| (step as f64, loss)).collect();
    let figure = Curves {
        title: format!("Training loss, {}", state.settings.encoding.name()),
        x: Axis { label: "step".into(), scale: AxisScale::Linear },
        y: Axis { label: "loss, nats per byte".into(), scale: AxisScale::Linear },
        series: vec![Series { name: state.settings.encoding.name().into(), points, band: Vec::new() }],
        marks: Vec::new(),
    };
    NamedFigure { name: "lab-train-loss".into(), figure: Figure::Curves(figure) }
}
