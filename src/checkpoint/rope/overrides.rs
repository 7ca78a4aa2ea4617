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
        local_theta: declared.local_theta,
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
/// Scalings that a checkpoint was trained with are needed at any length. YaRN is the one that checkpoints declare
/// without having been trained with it; the Llama 3 rule is given by flag to restore what a file has lost.
fn unneeded(declared: &RopeDeclaration, settings: &RopeSettings, length: usize) -> Option<String> {
    let spec = &settings.spec;
    let factor = spec.scaling.factor().filter(|factor| *factor > 1.0)?;
    let by_flag = matches!(settings.origins.get("scaling"), Some(Origin::Flag(_)));
    let given = by_flag && !matches!(spec.scaling, Scaling::Llama3(_));
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::rope::{HeadLayout, from_hf};
    use crate::rope::{Pairing, frequencies};
    use serde_json::{Value, json};

    /// A config with 4096 positions, head_dim 16 and this `rope_scaling`.
    fn declared(scaling: Value) -> RopeDeclaration {
        let config = json!({"max_position_embeddings": 4096, "rope_theta": 1e4, "rope_scaling": scaling});
        let layout = HeadLayout { head_dim: 16, pairing: Pairing::HalfSplit };
        from_hf(config.as_object().unwrap(), layout).unwrap()
    }

    fn yarn() -> Value {
        json!({"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 2048})
    }

    fn scaling(method: Method, factor: f64) -> RopeOverrides {
        let factor = (factor > 0.0).then_some(Factor::Value(factor));
        RopeOverrides { scaling: Some(method), factor, ..RopeOverrides::default() }
    }

    fn refusal(declared: &RopeDeclaration, flags: RopeOverrides) -> String {
        in_force(declared, &flags, 100).unwrap_err().to_string()
    }

    #[test]
    fn d060_flags_replace_what_is_declared() {
        let settings = in_force(&declared(yarn()), &scaling(Method::Linear, 2.0), 4000).unwrap();
        assert_eq!(settings.spec.scaling, Scaling::Linear { factor: 2.0 });
        assert_eq!((settings.spec.original_context, settings.limit), (2048, Some(4096)));
        let notice = "the checkpoint's `yarn` scaling with factor 4 is replaced by `--scaling linear`";
        assert_eq!(settings.warnings, [notice]);
        assert!(!settings.origins.contains_key("beta_fast"));
        assert_eq!(settings.origins["scaling"], Origin::flag("--scaling"));
        assert_eq!(settings.origins["theta"].to_string(), "rope_theta in config.json");
    }

    #[test]
    fn plain_rotation_reaches_the_original_context() {
        let settings = in_force(&declared(yarn()), &scaling(Method::None, 0.0), 100).unwrap();
        assert_eq!((settings.spec.scaling, settings.limit), (Scaling::None, Some(2048)));
        let settings = in_force(&declared(Value::Null), &scaling(Method::None, 0.0), 100).unwrap();
        assert_eq!((settings.limit, settings.warnings.len()), (Some(4096), 0));
    }

    #[test]
    fn d051_an_unusable_scaling_stops_unless_it_is_replaced() {
        let unknown = declared(json!({"rope_type": "foo"}));
        assert!(refusal(&unknown, RopeOverrides::default()).contains("unknown `rope_type` `foo`"));
        let settings = in_force(&unknown, &scaling(Method::Yarn, 4.0), 9000).unwrap();
        assert!(settings.warnings[0].contains("it cannot be used: unknown `rope_type` `foo`"));
    }

    #[test]
    fn d073_a_stretch_that_is_not_needed_is_pointed_out() {
        let flags = scaling(Method::Yarn, 4.0);
        let plain = declared(Value::Null);
        let warnings = in_force(&plain, &flags, 4096).unwrap().warnings;
        assert!(warnings[0].contains("`--scaling yarn --factor auto`"), "{warnings:?}");
        assert!(in_force(&plain, &flags, 4097).unwrap().warnings.is_empty());
        // Declared YaRN may be untrained; what a checkpoint was trained with is needed at any length.
        let warnings =
            |scaling| in_force(&declared(scaling), &RopeOverrides::default(), 100).unwrap().warnings;
        assert_eq!(warnings(yarn()).iter().filter(|w| w.contains("--factor auto")).count(), 1);
        assert!(warnings(json!({"type": "linear", "factor": 4.0})).is_empty());
        let mut trained = yarn();
        trained["finetuned"] = json!(true);
        assert!(!warnings(trained).iter().any(|w| w.contains("--factor auto")));
    }

    #[test]
    fn d062_d073_auto_is_the_smallest_factor_that_covers_the_run() {
        let plain = declared(Value::Null);
        for method in Method::ALL[1..8].iter().filter(|method| !method.is_dynamic()) {
            let flags = RopeOverrides { factor: Some(Factor::Auto), ..scaling(*method, 0.0) };
            let short = in_force(&plain, &flags, 4096).unwrap();
            assert_eq!((short.spec.scaling, short.limit), (Scaling::None, Some(4096)), "{method}");
            assert!(short.warnings.is_empty());
            let long = in_force(&plain, &flags, 16_384).unwrap();
            assert_eq!((long.spec.scaling.name(), long.limit), (method.name(), Some(16_384)));
            assert!(long.spec.scaling.factor().is_none_or(|factor| factor == 4.0));
        }
    }

    #[test]
    fn dynamic_methods_need_no_factor() {
        let plain = declared(Value::Null);
        for method in [Method::DynamicLinear, Method::DynamicNtk, Method::DynamicYarn] {
            assert_eq!(in_force(&plain, &scaling(method, 0.0), 9000).unwrap().limit, None);
            let bounded = in_force(&plain, &scaling(method, 2.0), 8000).unwrap();
            assert_eq!((bounded.limit, bounded.warnings.len()), (Some(8192), 0));
        }
        let ntk = in_force(&plain, &scaling(Method::DynamicNtk, 0.0), 9000).unwrap();
        assert_eq!(ntk.spec.scaling, Scaling::DynamicNtk { factor: 1.0 });
    }

    #[test]
    fn d045_d069_any_checkpoint_can_be_stretched() {
        let flags = RopeOverrides { original_context: Some(32), ..scaling(Method::Yarn, 4.0) };
        let settings = in_force(&declared(Value::Null), &flags, 100).unwrap();
        assert_eq!((settings.spec.original_context, settings.limit), (32, Some(128)));
        assert_eq!(settings.origins["original_context"], Origin::flag("--original-context"));
    }

    #[test]
    fn theta_and_original_context_stand_alone() {
        let flags =
            RopeOverrides { theta: Some(5e5), original_context: Some(1024), ..RopeOverrides::default() };
        let settings = in_force(&declared(yarn()), &flags, 4000).unwrap();
        assert_eq!(
            (settings.spec.theta, settings.spec.original_context, settings.limit),
            (5e5, 1024, Some(4096))
        );
        assert_eq!(settings.origins["theta"], Origin::flag("--rope-theta"));
        let ratio = declared(json!({"type": "yarn", "original_max_position_embeddings": 2048}));
        let settings = in_force(&ratio, &flags, 4000).unwrap();
        assert_eq!((settings.spec.scaling.factor(), settings.limit), (Some(4.0), Some(4096)));
        let theta = RopeOverrides { theta: Some(1.0), ..RopeOverrides::default() };
        assert!(refusal(&declared(yarn()), theta).contains("above 1, found 1"));
        let zero = RopeOverrides { original_context: Some(0), ..RopeOverrides::default() };
        assert!(refusal(&declared(yarn()), zero).contains("at least 1 tokens"));
    }

    #[test]
    fn every_flag_must_be_read_by_something() {
        let plain = declared(Value::Null);
        let factor = RopeOverrides { factor: Some(Factor::Auto), ..RopeOverrides::default() };
        assert!(
            refusal(&plain, factor).starts_with("`--factor` needs `--scaling` with one of: `linear`, `ntk`")
        );
        let flags = RopeOverrides { beta_fast: Some(32.0), ..scaling(Method::Linear, 2.0) };
        let expected = "`--beta-fast` has no meaning for `--scaling linear`; it belongs to `ntk-by-parts`, `yarn`, `dynamic-yarn`";
        assert_eq!(refusal(&plain, flags), expected);
        assert!(
            refusal(&plain, scaling(Method::None, 2.0))
                .contains("`--factor` has no meaning for `--scaling none`")
        );
        let text = refusal(&plain, scaling(Method::Yarn, 0.0));
        assert_eq!(text, "`--scaling yarn` needs `--factor`, as a number of at least 1 or `auto`");
        let select =
            RopeOverrides { longrope_select: Some(LongRopeSelect::Long), ..RopeOverrides::default() };
        assert!(refusal(&plain, select).contains("`--longrope-select` needs `--scaling`"));
    }

    #[test]
    fn d055_the_list_of_a_longrope_checkpoint_can_be_chosen() {
        let lists = json!({"type": "longrope", "factor": 2.0, "original_max_position_embeddings": 2048,
            "short_factor": vec![1.0; 8], "long_factor": vec![2.0; 8]});
        let select =
            RopeOverrides { longrope_select: Some(LongRopeSelect::Long), ..RopeOverrides::default() };
        let settings = in_force(&declared(lists), &select, 10).unwrap();
        assert_eq!(frequencies(&settings.spec, 10).unwrap().inv_freq[0], 0.5);
        assert!(!settings.spec.depends_on_length());
    }

    #[test]
    fn factors_are_read_from_text() {
        assert_eq!("auto".parse(), Ok(Factor::Auto));
        assert_eq!("2.5".parse(), Ok(Factor::Value(2.5)));
        for bad in ["0.5", "nan", "inf", "x", "-1", ""] {
            let text = bad.parse::<Factor>().unwrap_err().to_string();
            assert!(text.contains(&format!("`{bad}` is not a factor")), "{text}");
        }
    }
}
