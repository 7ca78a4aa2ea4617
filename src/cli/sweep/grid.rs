//! What a sweep varies, and the cells that follow.

use std::path::PathBuf;

use anyhow::Context as _;
use serde_json::{Map, Value};

use crate::checkpoint::rope::{Factor, Method, RopeOverrides, RopeSettings, in_force};
use crate::checkpoint::tokenizer::{Markers, Tokenizer};
use crate::cli::model_args::{MemoryArgs, OpenModel};
use crate::cli::rope_args::RopeArgs;
use crate::cli::texts::read_text;
use crate::cli::values::parse_length;
use crate::cli::{CommandError, Context};
use crate::eval::document::Document;
use crate::eval::needle::ScoreKind;
use crate::eval::perplexity::PerplexityRequest;
use crate::eval::perplexity::bos::{BosChoice, place};
use crate::eval::statistics::bootstrap::Bootstrap;
use crate::eval::sweep::{
    Cell, CellId, Detail, Measure, Measurement, MemoryCell, NeedleCell, NeedleSettings, PplCell, RopeChoice,
    SpeedCell, Status, Texts,
};
use crate::eval::windows::Rule;
use crate::model::{DynamicPolicy, ensure_within_limit};
use crate::named::Named;

/// What is varied, by flags or by a plan.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = "Sweep")]
pub struct GridArgs {
    /// Scaling methods, separated by commas [default: what the checkpoint declares]
    #[arg(long, value_name = "METHODS", value_delimiter = ',')]
    pub scaling: Vec<Method>,
    /// Factors for every method but none, separated by commas; `auto` is the smallest that fits the context
    #[arg(long, value_name = "F|auto,...", value_delimiter = ',')]
    pub factor: Vec<Factor>,
    /// Context lengths, separated by commas [default: the original context]
    #[arg(long, value_name = "TOKENS,...", value_delimiter = ',', value_parser = parse_length)]
    pub context: Vec<usize>,
    /// What is measured in every cell, separated by commas: ppl, needle, memory, speed [default: ppl]
    #[arg(long, value_name = "MEASURES", value_delimiter = ',', value_parser = Measure::parse)]
    pub measure: Vec<Measure>,
    /// Text files for ppl, each on its own
    #[arg(long, short, value_name = "FILE", num_args = 1..)]
    pub text: Vec<PathBuf>,
    #[command(flatten)]
    pub ppl: PplArgs,
    #[command(flatten)]
    pub needle: NeedleArgs,
    /// Further rotary embeddings, from a plan.
    #[arg(skip)]
    pub ropes: Vec<RopeChoice>,
}

/// How texts are scored; see `ropex ppl`.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct PplArgs {
    /// Rule of ppl, as in `ropex ppl` [default: strided]
    #[arg(long, value_parser = Rule::parse)]
    pub rule: Option<Rule>,
    /// Tokens from one window to the next, as in `ropex ppl` [default: half the context]
    #[arg(long, value_name = "TOKENS", value_parser = parse_length)]
    pub stride: Option<usize>,
    /// Beginning-of-sequence token, as in `ropex ppl` [default: auto]
    #[arg(long, value_name = "WHERE", value_parser = BosChoice::parse)]
    pub bos: Option<BosChoice>,
    /// Score at most this many windows of each text
    #[arg(long, value_name = "N", value_parser = parse_length)]
    pub max_windows: Option<usize>,
    /// Read markers such as <|im_start|> in the text as control tokens, not as text
    #[arg(long)]
    pub markers: bool,
    /// Replace bytes that are not UTF-8 by U+FFFD instead of refusing the file
    #[arg(long)]
    pub lossy: bool,
}

/// Needles of the measure `needle`: one number in generated prose, see `ropex needle`.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct NeedleArgs {
    /// Depths of needles from 0 (start) to 1 (end), separated by commas [default: 0,0.5,1]
    #[arg(long, value_name = "DEPTH,...", value_delimiter = ',')]
    pub depths: Vec<f64>,
    /// Repetitions of every needle with other keys and filler [default: 5]
    #[arg(long, value_name = "N", value_parser = parse_length)]
    pub trials: Option<usize>,
    /// Digits of the number, 1 to 18 [default: 7]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=18))]
    pub digits: Option<u32>,
    /// likelihood, generation or both [default: likelihood]
    #[arg(long, value_name = "SCORE", value_parser = ScoreKind::parse)]
    pub score: Option<ScoreKind>,
}

impl NeedleArgs {
    fn settings(&self, ground: &Ground<'_>, rope: &RopeSettings) -> NeedleSettings {
        // Under these policies an earlier, longer prompt would leave its frequencies in the shared beginning.
        let follows = rope.spec.depends_on_length() && ground.settings.0.dynamic != DynamicPolicy::Planned;
        NeedleSettings {
            depths: if self.depths.is_empty() { vec![0.0, 0.5, 1.0] } else { self.depths.clone() },
            trials: self.trials.unwrap_or(5),
            digits: self.digits.unwrap_or(7),
            score: self.score.unwrap_or(ScoreKind::Likelihood),
            seed: ground.context.seed,
            share: !follows,
        }
    }
}

/// What all cells share.
pub struct Ground<'a> {
    pub open: &'a OpenModel,
    pub tokenizer: &'a Tokenizer,
    pub settings: (&'a RopeArgs, &'a MemoryArgs),
    pub base: &'a RopeOverrides,
    pub context: &'a Context,
}

impl GridArgs {
    /// Every cell, in order. A cell that cannot be measured is in it, with the reason.
    ///
    /// # Errors
    /// A [`CommandError`] of usage for settings that fit no cell; texts that cannot be read.
    pub fn cells<'a>(&self, ground: &Ground<'a>) -> anyhow::Result<Vec<Cell<'a>>> {
        let measures = if self.measure.is_empty() { &[Measure::Ppl][..] } else { &self.measure };
        let texts = match measures.contains(&Measure::Ppl) {
            true => self.texts(ground)?,
            false if self.text.is_empty() => Texts::default(),
            false => return Err(CommandError::usage("`--text` belongs to `--measure ppl`").into()),
        };
        let original = ground.base.original_context.unwrap_or(ground.open.config.rope.original_context);
        let contexts = if self.context.is_empty() { &[original][..] } else { &self.context };
        let choices = self.choices(ground.base)?;
        let mut cells: Vec<Cell<'a>> = Vec::new();
        for &context in contexts {
            for choice in &choices {
                let rope = rope_of(choice, ground, context)?;
                for &measure in measures {
                    cells.push(self.cell(ground, (choice, &rope), measure, context, &texts)?);
                }
            }
        }
        cells.sort_by(|a, b| a.id.order(&b.id));
        match cells.windows(2).find(|pair| pair[0].id == pair[1].id) {
            Some(pair) => Err(CommandError::usage(format!("`{}` is asked for twice", pair[0].id)).into()),
            None => Ok(cells),
        }
    }

    fn choices(&self, base: &RopeOverrides) -> anyhow::Result<Vec<RopeChoice>> {
        if self.scaling.is_empty() && !self.factor.is_empty() {
            return Err(CommandError::usage("`--factor` needs `--scaling`").into());
        }
        let mut choices = RopeChoice::grid(&self.scaling, &self.factor, base);
        for choice in &self.ropes {
            let overrides =
                RopeOverrides { rope_parameters: choice.overrides.rope_parameters.clone(), ..base.clone() };
            choices.push(RopeChoice { label: choice.label.clone(), overrides });
        }
        if choices.is_empty() {
            choices.push(RopeChoice::declared(base));
        }
        Ok(choices)
    }

    fn cell<'a>(
        &self,
        ground: &Ground<'a>,
        (choice, rope): (&RopeChoice, &RopeSettings),
        measure: Measure,
        context: usize,
        texts: &Texts,
    ) -> anyhow::Result<Cell<'a>> {
        let id = CellId {
            measure: measure.name().to_string(),
            label: choice.label.clone(),
            scaling: rope.spec.scaling.name().to_string(),
            factor: rope.spec.scaling.factor(),
            context,
        };
        let memory = ground.open.memory(rope, ground.settings, context, ground.context);
        let made = match measure {
            Measure::Ppl => {
                let request = self.ppl_request(ground.tokenizer, context)?;
                let bootstrap = Bootstrap { seed: ground.context.seed, ..Bootstrap::default() };
                let detail = Detail { trained: rope.spec.original_context, bootstrap };
                PplCell::new(request, detail, texts).map(|cell| Box::new(cell) as Box<dyn Measurement + 'a>)
            }
            Measure::Memory => Ok(Box::new(MemoryCell { plan: memory }) as Box<dyn Measurement + 'a>),
            Measure::Needle => {
                let settings = self.needle.settings(ground, rope);
                NeedleCell::new(&settings, context, ground.tokenizer)
                    .map(|cell| Box::new(cell) as Box<dyn Measurement + 'a>)
            }
            Measure::Speed => SpeedCell::new(context).map(|cell| Box::new(cell) as Box<dyn Measurement + 'a>),
        };
        let (measurement, mut blocked) = match made {
            Ok(measurement) => (measurement, None),
            Err(reason) => {
                let nothing: Box<dyn Measurement + 'a> = Box::new(Unmeasured(reason.clone()));
                (nothing, Some((Status::Failed, reason)))
            }
        };
        if let Err(error) = ensure_within_limit(rope, context, ground.settings.0.allow_beyond) {
            blocked = Some((Status::Refused, format!("{error}; `--allow-beyond` measures it all the same")));
        }
        let rope_values = values(rope, context)?;
        let planned_bytes = memory.total_bytes();
        Ok(Cell { id, rope: rope.clone(), rope_values, planned_bytes, blocked, measurement })
    }

    fn ppl_request(&self, tokenizer: &Tokenizer, context: usize) -> anyhow::Result<PerplexityRequest> {
        let rule = self.ppl.rule.unwrap_or(Rule::Strided);
        if self.ppl.stride.is_some() && !rule.has_stride() {
            let message = format!("rule `{}` has no stride", rule.name());
            return Err(CommandError::usage(message).into());
        }
        let bos = place(rule, self.ppl.bos.unwrap_or_default(), None, tokenizer);
        let bos = bos.map_err(|error| CommandError::usage(error.to_string()).hint(error.hint()))?;
        Ok(PerplexityRequest {
            rule,
            context,
            stride: self.ppl.stride.unwrap_or(rule.default_stride(context)),
            bos: bos.placement,
            bos_token: bos.token,
            max_windows: self.ppl.max_windows,
        })
    }

    fn texts(&self, ground: &Ground<'_>) -> anyhow::Result<Texts> {
        if self.text.is_empty() {
            return Err(CommandError::usage("`--measure ppl` needs a text")
                .hint("give it with `--text FILE`, or measure something else, such as `--measure speed`")
                .into());
        }
        // How a text is read depends on the rule, not on the context.
        let request = self.ppl_request(ground.tokenizer, 2)?;
        let markers = if self.ppl.markers { Markers::Special } else { Markers::Text };
        let read = |path: &PathBuf| {
            let text = read_text(path, self.ppl.lossy)?;
            let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
            let document = request.document(name.clone(), &text, markers, ground.tokenizer);
            document.with_context(|| format!("cannot tokenize `{}`", path.display()))
        };
        let documents: anyhow::Result<Vec<Document>> = self.text.iter().map(read).collect();
        Ok(Texts::new(documents?))
    }
}

fn rope_of(choice: &RopeChoice, ground: &Ground<'_>, context: usize) -> anyhow::Result<RopeSettings> {
    in_force(&ground.open.config.rope, &choice.overrides, context).map_err(|error| {
        CommandError::usage(format!("cannot use `{}` at a context of {context}: {error}", choice.label))
            .into()
    })
}

/// The rotary embedding in force, value by value, without where they come from: the same values are the same cell.
fn values(rope: &RopeSettings, context: usize) -> anyhow::Result<Value> {
    let described = rope.parameters(context)?;
    let entries = described.as_object().into_iter().flatten();
    let values = entries.map(|(name, entry)| (name.clone(), entry["value"].clone()));
    Ok(Value::Object(values.collect::<Map<String, Value>>()))
}

/// Stands in a cell that cannot be measured; the reason keeps its key apart.
struct Unmeasured(String);

impl Measurement for Unmeasured {
    fn inputs(&self) -> Value {
        Value::from(self.0.as_str())
    }

    fn work(&self) -> crate::eval::sweep::forecast::Work {
        crate::eval::sweep::forecast::Work::default()
    }

    fn measure(
        &self,
        _model: &dyn crate::model::LanguageModel,
        _progress: &mut dyn FnMut(crate::eval::sweep::run::CellProgress),
    ) -> Result<crate::eval::sweep::run::Found, crate::eval::sweep::run::CellError> {
        Err(crate::eval::sweep::run::CellError::Failed(self.0.clone()))
    }
}
