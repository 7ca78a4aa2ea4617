//! `ropex plot`

mod kind;
mod table;

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde_json::{Value, json};

use self::kind::{Kind, draw, stretched};
use super::model_args::{ModelArgs, rope_json};
use super::report::{Format, Report};
use super::rope_args::RopeArgs;
use super::values::parse_length;
use super::{CommandError, Context};
use crate::checkpoint::rope::{Origin, RopeDeclaration, RopeSettings, in_force};
use crate::named::Named;
use crate::plot::results::{self, ResultFile};
use crate::plot::{NamedFigure, Theme, render_png, render_svg};
use crate::rope::{Pairing, Scaling};

/// What is drawn for when no checkpoint is given: the head of Llama 2.
const THETA: f64 = 10_000.0;
const HEAD_DIM: usize = 128;
const ORIGINAL_CONTEXT: usize = 4096;

/// Draw figures from the mathematics of rotary embeddings, or from earlier results
///
/// One figure goes to standard output as SVG, or to --output FILE.svg or FILE.png; several go to --figures DIR or --report FILE.
/// With --format json or csv, the numbers.
///
/// Kinds: pair (one pair of a query, encoding added and rotated), sinusoidal (the absolute encoding), angles (by position and pair,
/// with what training never showed), wavelength (tokens per turn, all methods), decay (score by distance), decay-bound (its bound by Su et
/// al.), attention-factor (by scaling factor), critical (pairs that never completed a turn in training), all (each of them).
///
/// Results: files that ppl (with --curve or --by-position), needle or sweep wrote with --format json. Curves of several files share axes.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ropex plot angles --scaling yarn --factor 4 --output angles.svg
  ropex plot critical --rope-theta 500000 --head-dim 128 --original-context 8k --output critical.png
  ropex plot wavelength --model model.gguf --theme dark > wavelength.svg
  ropex plot all --figures figures --report figures.html
  ropex plot plain.json yarn.json --output compared.svg")]
pub struct Args {
    /// Kinds of figure, `all`, or files of results
    #[arg(value_name = "KIND|FILE", required = true, num_args = 1..)]
    what: Vec<String>,
    /// The ground: light or dark
    #[arg(long, value_name = "THEME", default_value = "light", value_parser = Theme::parse)]
    theme: Theme,
    /// Positions or distances shown [default: the stretched context; sinusoidal: 128]
    #[arg(long, value_name = "TOKENS", value_parser = parse_length)]
    length: Option<usize>,
    /// Lanes of a head when no checkpoint is given [default: 128]
    #[arg(long, value_name = "LANES", conflicts_with = "model")]
    head_dim: Option<usize>,
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    rope: RopeArgs,
}

pub fn run(args: Args, context: &Context) -> anyhow::Result<Report> {
    let (kinds, files) = sort_out(&args.what)?;
    let mut report = Report { schema: "ropex.plot/1", ..Report::default() };
    let mut facts = serde_json::Map::new();
    if !kinds.is_empty() {
        let (settings, model) = settings(&args, context)?;
        context.warn(&settings.warnings);
        let length = args.length.unwrap_or_else(|| stretched(&settings.spec));
        report.model = model;
        report.rope = rope_json(&settings, length)?;
        report.warnings = settings.warnings.clone();
        for kind in kinds {
            let (figure, found) = draw(kind, &settings.spec, args.length)?;
            report.figures.push(figure);
            if !found.is_null() {
                facts.insert(kind.name().to_string(), found);
            }
        }
    }
    report.figures.extend(results::figures(&read(&files)?)?);
    facts.insert(
        "figures".to_string(),
        report.figures.iter().map(figure_json).collect::<anyhow::Result<_>>()?,
    );
    report.result = Value::Object(facts);
    // Thousands of cells would bury the drawings of a page, which holds the numbers as JSON.
    if matches!(context.format, Format::Csv | Format::Markdown) {
        report.tables = vec![table::values(&report.figures)];
    }
    finish(report, args.theme, context)
}

/// Kinds, each once, and files.
fn sort_out(what: &[String]) -> Result<(Vec<Kind>, Vec<PathBuf>), CommandError> {
    let (mut kinds, mut files) = (Vec::new(), Vec::new());
    for word in what {
        if word == "all" {
            kinds.extend(Kind::ALL);
        } else if let Ok(kind) = Kind::parse(word) {
            kinds.push(kind);
        } else if Path::new(word).exists() {
            files.push(PathBuf::from(word));
        } else {
            let names: Vec<&str> = Kind::ALL.iter().map(|kind| kind.name()).collect();
            let message = format!("`{word}` is neither a kind of figure nor a file");
            return Err(CommandError::usage(message).hint(format!("kinds: {}, all", names.join(", "))));
        }
    }
    let mut known = Vec::new();
    kinds.retain(|kind| {
        !known.contains(kind) && {
            known.push(*kind);
            true
        }
    });
    Ok((kinds, files))
}

/// The embedding that is drawn, and the checkpoint that it is of, if one is given.
fn settings(args: &Args, context: &Context) -> anyhow::Result<(RopeSettings, Value)> {
    let overrides = args.rope.overrides()?;
    if args.model.model.is_some() {
        let open = args.model.open(context)?;
        let original = args.rope.original_context().unwrap_or(open.config.rope.original_context);
        let settings = open.rope(&args.rope, args.length.unwrap_or(original))?;
        let model = json!({ "name": open.checkpoint.name(), "architecture": open.config.architecture });
        return Ok((without_length_advice(settings), model));
    }
    let declared = without_checkpoint(args.head_dim);
    let length = args.length.or(args.rope.original_context()).unwrap_or(ORIGINAL_CONTEXT);
    let settings = in_force(&declared, &overrides, length);
    let settings = settings.map_err(|error| CommandError::usage(error.to_string()))?;
    Ok((without_length_advice(settings), Value::Null))
}

/// A figure runs no text: that a scaling is not needed for its length says nothing.
fn without_length_advice(settings: RopeSettings) -> RopeSettings {
    RopeSettings { warnings: Vec::new(), ..settings }
}

fn without_checkpoint(head_dim: Option<usize>) -> RopeDeclaration {
    let default = |what: &str| Origin::Default(what.to_string());
    let width = match head_dim {
        Some(_) => Origin::Flag("--head-dim".to_string()),
        None => default("128"),
    };
    let origins = [
        ("theta", default("10000")),
        ("rotary_dim", width),
        ("pairing", default("half-split")),
        ("original_context", default("4096")),
        ("declared_context", default("4096")),
        ("scaling", default("none")),
    ];
    let head_dim = head_dim.unwrap_or(HEAD_DIM);
    RopeDeclaration {
        theta: THETA,
        local_theta: None,
        rotary_dim: head_dim,
        head_dim,
        pairing: Pairing::HalfSplit,
        declared_context: ORIGINAL_CONTEXT,
        original_context: ORIGINAL_CONTEXT,
        scaling: Ok(Scaling::None),
        limit: ORIGINAL_CONTEXT,
        fine_tuned: None,
        origins: origins.into_iter().collect(),
        notes: Vec::new(),
        scaling_notes: Vec::new(),
    }
}

fn read(files: &[PathBuf]) -> anyhow::Result<Vec<ResultFile>> {
    let read = |path: &PathBuf| {
        let name = path.display().to_string();
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read `{name}`"))?;
        let stem = path.file_stem().map_or(name.clone(), |stem| stem.to_string_lossy().into_owned());
        ResultFile::parse(&stem, &text).with_context(|| format!("cannot draw `{name}`"))
    };
    files.iter().map(read).collect()
}

fn figure_json(figure: &NamedFigure) -> anyhow::Result<Value> {
    let mut object = serde_json::Map::new();
    object.insert("name".to_string(), figure.name.clone().into());
    if let Value::Object(fields) = serde_json::to_value(&figure.figure)? {
        object.extend(fields);
    }
    Ok(Value::Object(object))
}

/// Puts the drawing where the result goes: one figure in place of text, several in files of their own.
fn finish(mut report: Report, theme: Theme, context: &Context) -> anyhow::Result<Report> {
    if context.format != Format::Table {
        return Ok(report);
    }
    let elsewhere = context.writes_figures && context.output.is_none();
    match &report.figures[..] {
        [] => return Err(CommandError::failed("these results hold nothing to draw").into()),
        _ if elsewhere => {
            let lines =
                report.figures.iter().map(|figure| format!("{}: {}\n", figure.name, figure.figure.title()));
            report.text = Some(lines.collect());
        }
        [NamedFigure { figure, .. }] => {
            let extension =
                context.output.as_deref().and_then(Path::extension).map(|e| e.to_ascii_lowercase());
            match extension.as_deref().and_then(|extension| extension.to_str()) {
                Some("png") => report.bytes = Some(render_png(figure, theme)?),
                _ => report.text = Some(render_svg(figure, theme)?),
            }
        }
        figures => {
            let message = format!("{} figures cannot share one file", figures.len());
            let hint = "give a folder with `--figures DIR`, or a page with `--report FILE.html`";
            return Err(CommandError::usage(message).hint(hint).into());
        }
    }
    Ok(report)
}
