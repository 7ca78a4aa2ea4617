//! Flags that replace the rotary embedding of a checkpoint.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde_json::Value;

use super::CommandError;
use super::values::parse_length;
use crate::checkpoint::rope::{Factor, Method, RopeOverrides};
use crate::model::DynamicPolicy;
use crate::named::Named;
use crate::rope::LongRopeSelect;

#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = "Rotary position embedding")]
pub struct RopeArgs {
    /// Scaling that replaces what the checkpoint declares: none, linear, ntk, ntk-by-parts, dynamic-linear, dynamic-ntk, yarn,
    /// dynamic-yarn, longrope or llama3
    #[arg(long, value_name = "METHOD")]
    scaling: Option<Method>,
    /// How many times the original context: a number of at least 1, or `auto` for the smallest that fits this run
    #[arg(long, value_name = "F|auto")]
    factor: Option<Factor>,
    /// Tokens that the unscaled rotation was trained on [default: from the checkpoint]
    #[arg(long, value_name = "TOKENS", value_parser = parse_length)]
    original_context: Option<usize>,
    /// Base of the frequencies [default: from the checkpoint]
    #[arg(long, value_name = "X")]
    rope_theta: Option<f64>,
    /// Turns within the original context above which a pair keeps its frequency (yarn, ntk-by-parts) [default: 32]
    #[arg(long, value_name = "TURNS")]
    beta_fast: Option<f64>,
    /// Turns within the original context below which a pair is fully interpolated (yarn, ntk-by-parts) [default: 1]
    #[arg(long, value_name = "TURNS")]
    beta_slow: Option<f64>,
    /// Final multiplier of cos and sin (yarn, longrope) [default: the method's formula]
    #[arg(long, value_name = "X")]
    attention_factor: Option<f64>,
    /// Numerator of YaRN's magnitude ratio; with --mscale-all-dim
    #[arg(long, value_name = "X")]
    mscale: Option<f64>,
    /// Denominator of YaRN's magnitude ratio; with --mscale
    #[arg(long, value_name = "X")]
    mscale_all_dim: Option<f64>,
    /// Do not round the ends of YaRN's ramp to whole pairs
    #[arg(long)]
    no_truncate: bool,
    /// Context over wavelength below which a pair is divided by the whole factor (llama3) [default: 1]
    #[arg(long, value_name = "X")]
    low_freq_factor: Option<f64>,
    /// Context over wavelength above which a pair keeps its frequency (llama3) [default: 4]
    #[arg(long, value_name = "X")]
    high_freq_factor: Option<f64>,
    /// Divisors of the frequencies beyond the original context, one per pair: a JSON list, or numbers separated by commas or
    /// white space (longrope)
    #[arg(long, value_name = "FILE")]
    long_factors: Option<PathBuf>,
    /// The same within the original context (longrope) [default: ones]
    #[arg(long, value_name = "FILE")]
    short_factors: Option<PathBuf>,
    /// Which factors longrope uses: auto follows the length
    #[arg(long, value_name = "auto|short|long", value_parser = parse_select)]
    longrope_select: Option<LongRopeSelect>,
    /// All of it as the dictionary of a Hugging Face configuration: JSON, or @FILE
    #[arg(long, value_name = "JSON|@FILE")]
    rope_parameters: Option<String>,
    /// When frequencies depend on the length: `planned` fixes them once at prompt + new tokens, `current` follows the length and
    /// rotates cached keys anew, `recompute` also runs the prefix again
    #[arg(long, value_name = "POLICY", default_value = "planned", value_parser = DynamicPolicy::parse)]
    pub dynamic: DynamicPolicy,
    /// Go beyond the limit (original context x factor)
    #[arg(long)]
    pub allow_beyond: bool,
}

impl RopeArgs {
    /// No override, for commands that choose the rotary embedding in another way.
    pub fn policies(dynamic: DynamicPolicy, allow_beyond: bool) -> Self {
        Self { dynamic, allow_beyond, ..Self::default() }
    }

    /// `--original-context`, if it is given.
    pub fn original_context(&self) -> Option<usize> {
        self.original_context
    }

    /// The overrides these flags stand for; files are read here.
    ///
    /// # Errors
    /// Unreadable files, a [`CommandError`] for contents that are no numbers or no JSON object.
    pub fn overrides(&self) -> anyhow::Result<RopeOverrides> {
        let factors = |path: &Option<PathBuf>| path.as_deref().map(read_factors).transpose();
        Ok(RopeOverrides {
            scaling: self.scaling,
            factor: self.factor,
            original_context: self.original_context,
            theta: self.rope_theta,
            beta_fast: self.beta_fast,
            beta_slow: self.beta_slow,
            attention_factor: self.attention_factor,
            mscale: self.mscale,
            mscale_all_dim: self.mscale_all_dim,
            truncate: self.no_truncate.then_some(false),
            low_freq_factor: self.low_freq_factor,
            high_freq_factor: self.high_freq_factor,
            long_factors: factors(&self.long_factors)?,
            short_factors: factors(&self.short_factors)?,
            longrope_select: self.longrope_select,
            rope_parameters: self.rope_parameters.as_deref().map(read_parameters).transpose()?,
        })
    }
}

fn parse_select(text: &str) -> Result<LongRopeSelect, String> {
    match text {
        "auto" => Ok(LongRopeSelect::Auto),
        "short" => Ok(LongRopeSelect::Short),
        "long" => Ok(LongRopeSelect::Long),
        _ => Err(format!("unknown choice `{text}`; accepted: auto, short, long")),
    }
}

fn read_text(path: &Path) -> anyhow::Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read `{}`", path.display()))
}

fn read_factors(path: &Path) -> anyhow::Result<Vec<f64>> {
    let text = read_text(path)?;
    let words = text.split(|c: char| c.is_whitespace() || matches!(c, ',' | '[' | ']'));
    let number = |word: &str| {
        word.parse::<f64>().map_err(|_| {
            CommandError::usage(format!("`{word}` in `{}` is not a number", path.display())).hint(
                "a factor file holds one number per rotated pair, as a JSON list or separated by white space",
            )
        })
    };
    Ok(words.filter(|word| !word.is_empty()).map(number).collect::<Result<_, _>>()?)
}

/// A `JSON|@FILE` argument.
pub fn read_parameters(argument: &str) -> anyhow::Result<Value> {
    let text = match argument.strip_prefix('@') {
        Some(path) => read_text(Path::new(path))?,
        None => argument.to_string(),
    };
    let parsed = serde_json::from_str(&text);
    Ok(parsed.map_err(|error| {
        CommandError::usage(format!("`--rope-parameters` is not JSON: {error}")).hint(
            "write for example --rope-parameters '{\"rope_type\": \"linear\", \"factor\": 2}', or @FILE",
        )
    })?)
}
