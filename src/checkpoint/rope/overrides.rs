//! What flags say about rope, and the one embedding that results.

use std::fmt;
use std::str::FromStr;

use super::RopeDeclaration;
use super::by_dictionary::from_dictionary;
use super::by_flag::from_method;
use super::error::RopeConfigError;
use super::limit::stretched;
use super::method::Method;
use super::origin::Origin;
use super::replace::checked_original;
use super::settings::RopeSettings;
use crate::rope::{LongRopeSelect, Scaling};

/// A value of `--factor`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Factor {
    Value(f64),
    /// The smallest factor that covers the run.
    Auto,
}

impl FromStr for Factor {
    type Err = RopeConfigError;

    fn from_str(text: &str) -> Result<Self, RopeConfigError> {
        if text == "auto" {
            return Ok(Factor::Auto);
        }
        match text.parse::<f64>() {
            Ok(value) if value.is_finite() && value >= 1.0 => Ok(Factor::Value(value)),
            _ => Err(RopeConfigError::UnknownFactor { found: text.to_owned() }),
        }
    }
}

impl fmt::Display for Factor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Factor::Value(value) => write!(f, "{value}"),
            Factor::Auto => f.write_str("auto"),
        }
    }
}

/// The rope flags of a command; `None` where a flag is not given.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RopeOverrides {
    pub scaling: Option<Method>,
    pub factor: Option<Factor>,
    /// Tokens, replaces what the checkpoint says.
    pub original_context: Option<usize>,
    pub theta: Option<f64>,
    pub beta_fast: Option<f64>,
    pub beta_slow: Option<f64>,
    /// Final factor on cos and sin.
    pub attention_factor: Option<f64>,
    pub mscale: Option<f64>,
    pub mscale_all_dim: Option<f64>,
    pub truncate: Option<bool>,
    pub low_freq_factor: Option<f64>,
    pub high_freq_factor: Option<f64>,
    /// One divisor per rotated pair, for long texts.
    pub long_factors: Option<Vec<f64>>,
    /// One divisor per rotated pair, for short texts.
    pub short_factors: Option<Vec<f64>>,
    pub longrope_select: Option<LongRopeSelect>,
    /// A Hugging Face rope dictionary.
    pub rope_parameters: Option<serde_json::Value>,
}

/// Methods with the YaRN ramp.
const RAMPED: &[Method] = &[Method::NtkByParts, Method::Yarn, Method::DynamicYarn];
/// Methods with the YaRN magnitude.
const YARNS: &[Method] = &[Method::Yarn, Method::DynamicYarn];
/// Methods whose magnitude can be given.
const MAGNIFIED: &[Method] = &[Method::Yarn, Method::DynamicYarn, Method::LongRope];

impl RopeOverrides {
    /// The parameter flags that are given, with the methods that read them.
    fn given(&self) -> impl Iterator<Item = (&'static str, &'static [Method])> {
        let (longrope, llama3): (&[Method], &[Method]) = (&[Method::LongRope], &[Method::Llama3]);
        [
            (self.factor.is_some(), "--factor", &Method::ALL[1..]),
            (self.beta_fast.is_some(), "--beta-fast", RAMPED),
            (self.beta_slow.is_some(), "--beta-slow", RAMPED),
            (self.truncate.is_some(), "--no-truncate", RAMPED),
            (self.attention_factor.is_some(), "--attention-factor", MAGNIFIED),
            (self.mscale.is_some(), "--mscale", YARNS),
            (self.mscale_all_dim.is_some(), "--mscale-all-dim", YARNS),
            (self.low_freq_factor.is_some(), "--low-freq-factor", llama3),
            (self.high_freq_factor.is_some(), "--high-freq-factor", llama3),
            (self.long_factors.is_some(), "--long-factors", longrope),
            (self.short_factors.is_some(), "--short-factors", longrope),
            (self.longrope_select.is_some(), "--longrope-select", longrope),
        ]
        .into_iter()
        .filter_map(|(given, flag, methods)| given.then_some((flag, methods)))
    }

    /// Checks that every given flag is read by something.
    fn check(&self, declared: &RopeDeclaration) -> Result<(), RopeConfigError> {
        if self.rope_parameters.is_some() {
            let first =
                self.scaling.map(|_| "--scaling").or_else(|| self.given().next().map(|(flag, _)| flag));
            return first.map_or(Ok(()), |first| {
                let reason = "the dictionary holds method and parameters";
                Err(RopeConfigError::FlagConflict { first, second: "--rope-parameters", reason })
            });
        }
        let selects = matches!(declared.scaling, Ok(Scaling::LongRope(_)));
        for (flag, methods) in self.given() {
            match self.scaling {
                Some(method) if !methods.contains(&method) => {
                    let used_by = Method::names(methods);
                    return Err(RopeConfigError::UnusedFlag { flag, method, used_by });
                }
                None if !(selects && flag == "--longrope-select") => {
                    let used_by = Method::names(methods);
                    return Err(RopeConfigError::FlagNeedsScaling { flag, used_by });
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// The rope embedding that a run of `length` tokens (prompt and new tokens together) uses.
///
/// `--scaling` and `--rope-parameters` replace the checkpoint's scaling as a whole; base and original context stay as
/// the checkpoint says unless their own flags are given. Without either, the checkpoint's declaration is in force.
///
/// # Errors
/// [`RopeConfigError`] when the checkpoint's scaling cannot be used and is not replaced, when a flag is missing, has
/// no meaning for the method or contradicts another one, and when the values cannot be computed with.
pub fn in_force(
    declared: &RopeDeclaration,
    overrides: &RopeOverrides,
    length: usize,
) -> Result<RopeSettings, RopeConfigError> {
    overrides.check(declared)?;
    let mut settings = match (&overrides.rope_parameters, overrides.scaling) {
        (Some(parameters), _) => from_dictionary(declared, overrides, parameters)?,
        (None, Some(method)) => from_method(declared, overrides, method, length)?,
        (None, None) => as_declared(declared, overrides)?,
    };
    if let Some(theta) = overrides.theta {
        settings.spec.theta = theta;
        settings.origins.insert("theta", Origin::flag("--rope-theta"));
    }
    settings.spec.validate()?;
    settings.warnings.extend(unneeded(declared, &settings, length));
    Ok(settings)
}

/// The checkpoint's own scaling, with another original context where that flag is given.
fn as_declared(
    declared: &RopeDeclaration,
    overrides: &RopeOverrides,
) -> Result<RopeSettings, RopeConfigError> {
    let mut settings = RopeSettings {
        spec: declared.spec(declared.scaling.clone()?, declared.original_context),
        declared_context: declared.declared_context,
        limit: Some(declared.limit),
        origins: declared.origins.clone(),
        warnings: declared.notes.iter().chain(&declared.scaling_notes).cloned().collect(),
    };
    if let (Some(select), Scaling::LongRope(parameters)) =
        (overrides.longrope_select, &mut settings.spec.scaling)
    {
        parameters.select = select;
        settings.origins.insert("longrope_select", Origin::flag("--longrope-select"));
    }
    if let Some(original) = overrides.original_context {
        move_original(declared, &mut settings, checked_original(original)?)?;
    }
    Ok(settings)
}

/// Puts another original context under the declared scaling.
fn move_original(
    declared: &RopeDeclaration,
    settings: &mut RopeSettings,
    original: usize,
) -> Result<(), RopeConfigError> {
    settings.spec.original_context = original;
    settings.origins.insert("original_context", Origin::flag("--original-context"));
    let ratio = declared.declared_context as f64 / original as f64;
    let follows = matches!(settings.origins.get("factor"), Some(Origin::Derived(_)));
    match &mut settings.spec.scaling {
        Scaling::Yarn(p) if follows => p.factor = ratio,
        Scaling::LongRope(p) if follows => p.factor = ratio,
        // These say for which context they were made; the original one does not move their reach.
        Scaling::Llama3(_) | Scaling::Proportional { .. } => return Ok(()),
        Scaling::Divisors(_) => {
            let text = "`--original-context` changes nothing: the checkpoint gives its divisors pair by pair";
            settings.warnings.push(text.to_owned());
            return Ok(());
        }
        _ => {}
    }
    let factor = settings.spec.scaling.factor().unwrap_or(1.0);
    settings.limit = Some(stretched(original, factor)?);
    settings.origins.insert("limit", Origin::derived("original_context x factor"));
    Ok(())
}

/// A warning when a fixed stretch is on that this run does not need.
///
/// Scalings that a checkpoint was trained with are needed at any length; YaRN is the one that checkpoints declare
/// without having been trained with it.
fn unneeded(declared: &RopeDeclaration, settings: &RopeSettings, length: usize) -> Option<String> {
    let spec = &settings.spec;
    let factor = spec.scaling.factor().filter(|factor| *factor > 1.0)?;
    let given = matches!(settings.origins.get("scaling"), Some(Origin::Flag(_)));
    let untrained = matches!(spec.scaling, Scaling::Yarn(_)) && declared.fine_tuned != Some(true);
    if length > spec.original_context || spec.depends_on_length() || !(given || untrained) {
        return None;
    }
    Some(format!(
        "`{0}` scaling with factor {factor} is on although {length} tokens fit the original context of {1}; short \
         texts are better unscaled: `--scaling {0} --factor auto` scales only when needed",
        spec.scaling.name(),
        spec.original_context
    ))
}
