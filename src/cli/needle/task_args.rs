//! Flags that say what is hidden and asked for.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context as _;

use super::super::CommandError;
use super::super::values::parse_length;
use super::task_name::{HaystackName, TaskName, parse_task};
use crate::eval::needle::{
    CommonWords, Custom, FrequentWords, Retrieval, Source, Task, Text, Tracking, ValueKind, ValueMaker,
};
use crate::named::Named;

/// Digits of a number where no flag says otherwise, as in RULER.
const DIGITS: u32 = 7;

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Task")]
pub struct TaskArgs {
    /// single, multi-key, multi-value, multi-query, variable-tracking, common-words, frequent-words, or a configuration of RULER:
    /// niah_single_1 to _3, niah_multikey_1 to _3, niah_multivalue, niah_multiquery, vt, cwe, fwe
    #[arg(long, value_name = "TASK", default_value = "single", value_parser = parse_task)]
    pub task: TaskName,
    /// Text files to hide needles in, one after the other
    #[arg(long, short, value_name = "FILE", num_args = 1.., conflicts_with = "haystack")]
    text: Vec<PathBuf>,
    /// Begin the text again where it ends, if a length needs more
    #[arg(long, requires = "text")]
    repeat_text: bool,
    /// Filler without --text: prose (sentences from a grammar), noise (five sentences repeated) or needles (needles about
    /// other keys) [default: prose, or RULER's]
    #[arg(long, value_name = "KIND", value_parser = HaystackName::parse)]
    haystack: Option<HaystackName>,
    /// What is hidden: number, word or uuid [default: number, or RULER's]
    #[arg(long, value_name = "KIND", value_parser = ValueKind::parse)]
    value: Option<ValueKind>,
    /// What it is hidden under: word, number or uuid [default: word, or RULER's]
    #[arg(long, value_name = "KIND", value_parser = ValueKind::parse)]
    key: Option<ValueKind>,
    /// Digits of numbers [default: 7]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=18))]
    digits: Option<u32>,
    /// Keys in the text (multi-key, multi-query) [default: 4]
    #[arg(long, value_name = "N", value_parser = parse_count)]
    keys: Option<usize>,
    /// Values of a key (multi-value) [default: 4]
    #[arg(long, value_name = "N", value_parser = parse_count)]
    values: Option<usize>,
    /// Keys that are asked for (multi-query) [default: 4]
    #[arg(long, value_name = "N", value_parser = parse_count)]
    queries: Option<usize>,
    /// Chains of variables (variable-tracking) [default: 1]
    #[arg(long, value_name = "N", value_parser = parse_count)]
    chains: Option<usize>,
    /// Steps of a chain (variable-tracking) [default: 4]
    #[arg(long, value_name = "N", value_parser = parse_count)]
    hops: Option<usize>,
    /// Words that are asked for (common-words) [default: 10]
    #[arg(long, value_name = "N", value_parser = parse_count)]
    common: Option<usize>,
    /// How often each of them stands in the list (common-words) [default: 30]
    #[arg(long, value_name = "N", value_parser = parse_count)]
    common_repeats: Option<usize>,
    /// How often every other word does (common-words) [default: 3]
    #[arg(long, value_name = "N", value_parser = parse_count)]
    rare_repeats: Option<usize>,
    /// Exponent with which frequencies fall by rank (frequent-words) [default: 2]
    #[arg(long, value_name = "X")]
    alpha: Option<f64>,
    /// A sentence of your own to hide, with --question and --answer
    #[arg(long, value_name = "TEXT", requires_all = ["question", "answer"], conflicts_with = "task")]
    pub needle: Option<String>,
    /// What is asked about it
    #[arg(long, value_name = "TEXT", requires = "needle")]
    question: Option<String>,
    /// The right answer
    #[arg(long, value_name = "TEXT", requires = "needle", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    answer: Option<String>,
    /// Words that the answer begins with [default: those of the needle up to the answer]
    #[arg(long, value_name = "TEXT", requires = "needle")]
    answer_prefix: Option<String>,
    /// Wrong answers, one a line [default: words or numbers that look like the answer]
    #[arg(long, value_name = "FILE", requires = "needle")]
    decoys: Option<PathBuf>,
}

fn parse_count(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("must be at least 1".to_string()),
        Ok(count) => Ok(count),
        Err(_) => Err(format!("`{text}` is not a whole number")),
    }
}

impl TaskArgs {
    /// `custom` for a needle of the user's own.
    pub fn name(&self) -> &'static str {
        if self.needle.is_some() { "custom" } else { self.task.name() }
    }

    /// What is hidden and asked for.
    ///
    /// # Errors
    /// Flags that belong to another task; decoys that cannot be read.
    pub fn task(&self) -> anyhow::Result<Task> {
        self.check()?;
        if let (Some(needle), Some(question), Some(answer)) = (&self.needle, &self.question, &self.answer) {
            return Ok(Task::Custom(Custom {
                needle: needle.clone(),
                question: question.clone(),
                answer: answer.clone(),
                opening: self.answer_prefix.clone(),
                decoys: self.read_decoys()?,
            }));
        }
        let (key, value) = self.task.kinds();
        let digits = self.digits.unwrap_or(DIGITS);
        let retrieval = |keys: usize, values: usize, queries: usize| {
            Task::Retrieval(Retrieval {
                keys,
                values,
                queries,
                key_maker: ValueMaker { kind: self.key.unwrap_or(key), digits },
                value_maker: ValueMaker { kind: self.value.unwrap_or(value), digits },
            })
        };
        let queries = self.queries.unwrap_or(4);
        Ok(match self.task.family() {
            TaskName::MultiKey => retrieval(self.keys.unwrap_or(4), 1, 1),
            TaskName::MultiValue => retrieval(1, self.values.unwrap_or(4), 1),
            TaskName::MultiQuery => retrieval(self.keys.unwrap_or(queries), 1, queries),
            TaskName::VariableTracking => {
                Task::Tracking(Tracking { chains: self.chains.unwrap_or(1), hops: self.hops.unwrap_or(4) })
            }
            TaskName::CommonWords => Task::CommonWords(CommonWords {
                words: self.common.unwrap_or(10),
                repeats: self.common_repeats.unwrap_or(30),
                rare_repeats: self.rare_repeats.unwrap_or(3),
            }),
            TaskName::FrequentWords => {
                Task::FrequentWords(FrequentWords { alpha: self.alpha.unwrap_or(2.0) })
            }
            _ => retrieval(1, 1, 1),
        })
    }

    /// Refuses flags that the task would ignore, and values that contradict each other.
    fn check(&self) -> anyhow::Result<()> {
        use TaskName::{
            CommonWords, FrequentWords, MultiKey, MultiQuery, MultiValue, Single, VariableTracking,
        };
        let retrieval: &[TaskName] = &[Single, MultiKey, MultiValue, MultiQuery];
        let text: &[TaskName] = &[Single, MultiKey, MultiValue, MultiQuery, VariableTracking];
        let flags: [(&str, bool, &[TaskName]); 13] = [
            ("--text", !self.text.is_empty(), text),
            ("--haystack", self.haystack.is_some(), text),
            ("--value", self.value.is_some(), retrieval),
            ("--key", self.key.is_some(), retrieval),
            ("--digits", self.digits.is_some(), retrieval),
            ("--keys", self.keys.is_some(), &[MultiKey, MultiQuery]),
            ("--values", self.values.is_some(), &[MultiValue]),
            ("--queries", self.queries.is_some(), &[MultiQuery]),
            ("--chains", self.chains.is_some(), &[VariableTracking]),
            ("--hops", self.hops.is_some(), &[VariableTracking]),
            ("--common", self.common.is_some(), &[CommonWords]),
            ("--common-repeats", self.common_repeats.is_some(), &[CommonWords]),
            ("--rare-repeats", self.rare_repeats.is_some(), &[CommonWords]),
        ];
        let alpha = [("--alpha", self.alpha.is_some(), &[FrequentWords][..])];
        for (flag, given, tasks) in flags.into_iter().chain(alpha) {
            let custom = self.needle.is_some();
            let fits = if custom { tasks == text } else { tasks.contains(&self.task.family()) };
            if given && !fits {
                let names: Vec<&str> = tasks.iter().map(|task| task.name()).collect();
                let message = format!("`{flag}` belongs to {}, not to {}", names.join(", "), self.name());
                return Err(CommandError::usage(message).into());
            }
        }
        let (keys, queries) = (self.keys.unwrap_or(usize::MAX), self.queries.unwrap_or(4));
        if self.task.family() == MultiQuery && keys < queries {
            let message = format!("`--keys` must be at least the {queries} that are asked for, found {keys}");
            return Err(CommandError::usage(message).into());
        }
        if self.rare_repeats.unwrap_or(3) >= self.common_repeats.unwrap_or(30) {
            let message = "`--rare-repeats` must be smaller than `--common-repeats`";
            return Err(CommandError::usage(message).into());
        }
        match self.alpha {
            Some(alpha) if !(alpha > 1.0 && alpha <= 10.0) => {
                let message = format!("`--alpha` must be above 1 and at most 10, found {alpha}");
                Err(CommandError::usage(message).into())
            }
            _ => Ok(()),
        }
    }

    /// What needles are hidden in.
    ///
    /// # Errors
    /// Text files that cannot be read.
    pub fn source(&self) -> anyhow::Result<Source> {
        if self.text.is_empty() {
            let default = if self.needle.is_some() { HaystackName::Prose } else { self.task.haystack() };
            return Ok(match self.haystack.unwrap_or(default) {
                HaystackName::Prose => Source::Prose,
                HaystackName::Noise => Source::Noise,
                HaystackName::Needles => Source::Needles,
            });
        }
        let mut text = String::new();
        for path in &self.text {
            text += &fs::read_to_string(path).with_context(|| format!("cannot read `{}`", path.display()))?;
        }
        let names: Vec<String> = self.text.iter().map(|path| path.display().to_string()).collect();
        Ok(Source::Text(Arc::new(Text::new(names.join(", "), text, self.repeat_text))))
    }

    fn read_decoys(&self) -> anyhow::Result<Vec<String>> {
        let Some(path) = &self.decoys else { return Ok(Vec::new()) };
        let text = fs::read_to_string(path).with_context(|| format!("cannot read `{}`", path.display()))?;
        let lines: Vec<String> =
            text.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_string).collect();
        let wrong = lines.iter().filter(|line| Some(line.as_str()) != self.answer.as_deref()).count();
        if wrong == 0 {
            let message = format!("`{}` holds no wrong answer", path.display());
            return Err(CommandError::failed(message).into());
        }
        Ok(lines)
    }
}

/// `0,0.5,1` or `spread`
#[derive(Debug, Clone, PartialEq)]
pub enum DepthsArg {
    At(Vec<f64>),
    Spread,
}

pub fn parse_depths(text: &str) -> Result<DepthsArg, String> {
    if text == "spread" {
        return Ok(DepthsArg::Spread);
    }
    let depth = |part: &str| match part.trim().parse::<f64>() {
        Ok(depth) if (0.0..=1.0).contains(&depth) => Ok(depth),
        _ => Err(format!("`{part}` is not a depth; write numbers from 0 (start) to 1 (end), or `spread`")),
    };
    let depths: Vec<f64> = text.split(',').map(depth).collect::<Result<_, _>>()?;
    unique(&depths).map(|()| DepthsArg::At(depths))
}

/// Lengths: `1k,4k`
#[derive(Debug, Clone, PartialEq)]
pub struct Lengths(pub Vec<usize>);

pub fn parse_lengths(text: &str) -> Result<Lengths, String> {
    let lengths: Vec<usize> =
        text.split(',').map(|part| parse_length(part.trim())).collect::<Result<_, _>>()?;
    unique(&lengths).map(|()| Lengths(lengths))
}

fn unique<T: PartialEq + std::fmt::Display>(list: &[T]) -> Result<(), String> {
    match (0..list.len()).find(|&i| list[..i].contains(&list[i])) {
        Some(i) => Err(format!("`{}` is listed twice", list[i])),
        None => Ok(()),
    }
}
