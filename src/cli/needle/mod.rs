//! `ropex needle`

mod figures;
mod report;
mod task_args;
mod task_name;

use std::time::{Instant, SystemTime};

use serde_json::{Value, json};

use self::task_args::{DepthsArg, Lengths, TaskArgs, parse_depths, parse_lengths};
use super::gate_args::{GateArgs, Subject};
use super::model_args::{MemoryArgs, ModelArgs, OpenModel, rope_json};
use super::progress::Progress;
use super::report::Report;
use super::rope_args::RopeArgs;
use super::values::parse_length;
use super::{CommandError, Context};
use crate::checkpoint::rope::RopeSettings;
use crate::checkpoint::tokenizer::Tokenizer;
use crate::eval::needle::{
    Depths, Frame, NeedleError, NeedleRequest, NeedleResult, Plan, ScoreKind, plan, run as ask,
};
use crate::model::{DynamicPolicy, ensure_within_limit};
use crate::named::Named;

/// RULER's threshold: what Llama-2-7B reaches at 4096 tokens, in per cent (Hsieh et al. 2024, section 4).
const RULER_THRESHOLD: f64 = 85.6;

/// Find needles in a haystack: retrieval by depth and length
///
/// Facts are hidden in filler text and asked for. The likelihood score is the share of right answers that are more likely
/// than every decoy; it works for base models too. The generation score is the share of right answers that a greedy
/// continuation holds. The control asks the same about text without the facts: there, likelihood must be near chance.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ropex needle --digits 4 --lengths 128,256
  ropex needle --model model.gguf --lengths 1k,4k,16k --depths 0,0.5,1 --scaling yarn --factor 2
  ropex needle --model model.gguf --text book.txt --task multi-key --lengths 8k
  ropex needle --model model.gguf --template chat --task niah_multiquery --lengths 4k,8k
  ropex needle --needle 'the secret code is FROG' --question 'What is the secret code?' --answer FROG --depths 0.1,0.5,0.9")]
pub struct Args {
    /// Tokens of prompt and answer together [default: half the original context and all of it]
    #[arg(long, value_name = "TOKENS,...", value_parser = parse_lengths)]
    lengths: Option<Lengths>,
    /// Where needles are hidden, from 0 (start) to 1 (end); `spread`: at random depths, as RULER does [default: 0,0.5,1;
    /// spread for RULER's tasks and where answers are spread by nature]
    #[arg(long, value_name = "DEPTH,...|spread", value_parser = parse_depths)]
    depths: Option<DepthsArg>,
    /// Repetitions of every cell, each with other needles and filler
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = parse_length)]
    trials: usize,
    /// likelihood, generation or both
    #[arg(long, value_name = "SCORE", default_value = "both", value_parser = ScoreKind::parse)]
    score: ScoreKind,
    /// Wrong answers that every right one is compared with
    #[arg(long, value_name = "N", default_value_t = 15, value_parser = parse_length)]
    decoy_count: usize,
    /// Room for the answer, part of the length [default: the longest right answer and a few words]
    #[arg(long, short = 'n', value_name = "N", value_parser = parse_length)]
    max_new_tokens: Option<usize>,
    /// none: plain text, for base models; chat: the checkpoint's chat template around it
    #[arg(long, value_enum, default_value = "none")]
    template: TemplateChoice,
    /// Leave out the control
    #[arg(long)]
    no_control: bool,
    /// Compute every prompt from an empty cache
    #[arg(long)]
    no_sharing: bool,
    /// Score in per cent that a length must reach to count as effective
    #[arg(long, value_name = "PERCENT", default_value_t = RULER_THRESHOLD, value_parser = parse_threshold)]
    threshold: f64,
    #[command(flatten)]
    task: TaskArgs,
    #[command(flatten)]
    gates: GateArgs,
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    memory: MemoryArgs,
    #[command(flatten)]
    rope: RopeArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum TemplateChoice {
    None,
    Chat,
}

/// What gates are about.
const SUBJECT: Subject = Subject { schema: "ropex.needle/1", measured: report::metrics, has_cases: false };

fn parse_threshold(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(threshold) if (0.0..=100.0).contains(&threshold) => Ok(threshold),
        _ => Err(format!("`{text}` is not a score between 0 and 100")),
    }
}

pub fn run(args: Args, context: &Context) -> anyhow::Result<Report> {
    let open = args.model.open(context)?;
    let tokenizer = open.tokenizer()?;
    let original = args.rope.original_context().unwrap_or(open.config.rope.original_context);
    let lengths = match &args.lengths {
        Some(Lengths(lengths)) => lengths.clone(),
        None => vec![original.div_ceil(2), original],
    };
    let longest = lengths.iter().copied().max().unwrap_or_default();
    let rope = open.rope(&args.rope, longest)?;
    ensure_within_limit(&rope, longest, args.rope.allow_beyond)?;
    let rope_json = rope_json(&rope, longest)?;
    let request = args.request(lengths, &rope, &open, &tokenizer, context)?;
    let gates = args.gates.prepare(SUBJECT, &report::metric_names(&request))?;
    let plan = plan(&tokenizer, &request).map_err(plan_error)?;
    let settings = (&args.rope, &args.memory);
    let described = open.describe(&tokenizer);
    let known = [tokenizer.warnings(), &plan.warnings].concat();
    let ready = open.load(rope, settings, longest, &known, context)?;
    let started = Instant::now();
    let found = measure(&*ready.model, &plan, context)?;
    let elapsed_s = started.elapsed().as_secs_f64();
    let threshold = args.threshold / 100.0;
    let view = report::View { task: args.task.name(), request: &request, found: &found, threshold };
    let mut warnings = ready.warnings.clone();
    let own = view.warnings();
    context.warn(&own);
    warnings.extend(own);
    let mut report = Report {
        schema: SUBJECT.schema,
        model: described,
        rope: rope_json,
        engine: ready.describe_engine(settings, context),
        result: view.json(),
        timing: timing(ready.load_s, elapsed_s, &found),
        tables: view.tables(),
        figures: view.figures(),
        warnings,
        interrupted: found.interrupted,
        ..Report::default()
    };
    gates.apply(&mut report, Vec::new())?;
    Ok(report)
}

fn timing(load_s: f64, elapsed_s: f64, found: &NeedleResult) -> Value {
    let tokens_per_s = found.tokens.computed as f64 / elapsed_s;
    json!({ "load_s": load_s, "elapsed_s": elapsed_s, "tokens_per_s": tokens_per_s })
}

fn measure(
    model: &dyn crate::model::LanguageModel,
    plan: &Plan<'_>,
    context: &Context,
) -> anyhow::Result<NeedleResult> {
    let mut bar: Option<Progress> = None;
    let found = ask(model, plan, &mut |at| {
        let bar = bar.get_or_insert_with(|| Progress::tokens("needle", at.total, context.quiet));
        let part = |name: &str, share: Option<f64>| share.map(|s| format!("{name} {:.0} %", 100.0 * s));
        let parts = [part("likelihood", at.likelihood), part("generation", at.generation)];
        bar.update(at.done, parts.into_iter().flatten().collect::<Vec<String>>().join(", "));
    });
    if let Some(bar) = bar {
        bar.finish();
    }
    Ok(found?)
}

impl Args {
    fn request(
        &self,
        lengths: Vec<usize>,
        rope: &RopeSettings,
        open: &OpenModel,
        tokenizer: &Tokenizer,
        context: &Context,
    ) -> anyhow::Result<NeedleRequest> {
        let task = self.task.task()?;
        let ruler = self.task.needle.is_none() && self.task.task.is_ruler();
        let depths = match &self.depths {
            Some(DepthsArg::At(depths)) => Depths::At(depths.clone()),
            Some(DepthsArg::Spread) => Depths::Spread,
            None if ruler || !task.has_depth() => Depths::Spread,
            None => Depths::At(vec![0.0, 0.5, 1.0]),
        };
        // Under these policies an earlier, longer prompt would leave its frequencies in the shared beginning.
        let follows = rope.spec.depends_on_length() && self.rope.dynamic != DynamicPolicy::Planned;
        Ok(NeedleRequest {
            task,
            source: self.task.source()?,
            lengths,
            depths,
            trials: self.trials,
            seed: context.seed,
            score: self.score,
            decoys: self.decoy_count,
            max_new_tokens: self.max_new_tokens,
            frame: self.frame(open, tokenizer)?,
            control: !self.no_control,
            share: !self.no_sharing && !follows,
        })
    }

    fn frame(&self, open: &OpenModel, tokenizer: &Tokenizer) -> anyhow::Result<Frame> {
        if self.template == TemplateChoice::None {
            return Ok(Frame::plain(tokenizer));
        }
        let Some(template) = open.checkpoint.chat_template()? else {
            let error = CommandError::failed(format!("`{}` has no chat template", open.checkpoint.name()));
            return Err(error.hint("measure it as plain text with `--template none`").into());
        };
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let now = since.map_or(0, |elapsed| elapsed.as_secs() as i64);
        Ok(Frame::chat(tokenizer, &template, now)?)
    }
}

/// Settings that contradict each other are bad usage; texts and lengths that are too short are failures.
fn plan_error(error: NeedleError) -> anyhow::Error {
    let hint = match &error {
        NeedleError::Depthless => {
            return CommandError::usage(error.to_string()).hint("leave `--depths` out").into();
        }
        NeedleError::Room { .. } => {
            return CommandError::usage(error.to_string())
                .hint("raise `--max-new-tokens` or leave it out")
                .into();
        }
        NeedleError::TextTooShort { .. } => "give more text, or let it begin again with `--repeat-text`",
        NeedleError::Length { .. } => {
            "ask for longer lengths, or for less with the flags under Task in `--help`"
        }
        NeedleError::NoDecoys { .. } => {
            "give wrong answers with `--decoys FILE`, or use `--score generation`"
        }
        NeedleError::Exhausted { .. } => "use fewer, or values with more digits",
        _ => return error.into(),
    };
    let context = CommandError::failed("cannot make the prompts").hint(hint);
    anyhow::Error::new(error).context(context)
}
