//! The scaling that `--rope-parameters` puts in force.

use serde_json::Value;

use super::RopeDeclaration;
use super::dictionary::{Dictionary, Source};
use super::error::RopeConfigError;
use super::hf::{ORIGINAL, PARTIAL, THETA, checked_share};
use super::hf_scaling::{Context, read_scaling};
use super::limit::stretched;
use super::origin::Origin;
use super::overrides::RopeOverrides;
use super::replace::{checked_original, kept_origins, refuse_proportional, warnings};
use super::settings::RopeSettings;
use crate::rope::Scaling;

/// The flag, for messages.
const FLAG: &str = "--rope-parameters";

/// The settings of `--rope-parameters`: the Hugging Face dictionary, read as from a config.
///
/// A missing original context is the checkpoint's, not `max_position_embeddings`.
///
/// # Errors
/// [`RopeConfigError`] as for a config, and when `--rope-theta` or `--original-context` say something else.
pub(super) fn from_dictionary(
    declared: &RopeDeclaration,
    overrides: &RopeOverrides,
    parameters: &Value,
) -> Result<RopeSettings, RopeConfigError> {
    let object = parameters.as_object().ok_or_else(|| RopeConfigError::WrongType {
        key: FLAG.to_owned(),
        expected: "a JSON object",
        found: parameters.to_string(),
    })?;
    let dictionary = Dictionary::new(object, FLAG, Source::Flag);
    let mut origins = kept_origins(declared);
    let theta = dictionary.number(THETA)?;
    agree(&dictionary, THETA, theta, "--rope-theta", overrides.theta)?;
    let context = context(declared, overrides, &dictionary)?;
    let (reading, rope_type) = read_scaling(&dictionary, &context)?;
    if !matches!(reading.scaling, Scaling::Proportional { .. }) {
        refuse_proportional(declared)?;
    }
    origins.extend(dictionary.origin(THETA).map(|origin| ("theta", origin)));
    origins.extend(dictionary.origin(PARTIAL).map(|origin| ("rotary_dim", origin)));
    origins.extend(reading.origins);
    let original = match overrides.original_context {
        Some(_) => Some(Origin::flag("--original-context")),
        None => dictionary.origin(ORIGINAL),
    };
    origins.extend(original.map(|origin| ("original_context", origin)));
    let limit = match &reading.scaling {
        Scaling::None => reading.original_context,
        Scaling::Llama3(p) => reading.limit.max(stretched(reading.original_context, p.factor)?),
        _ => reading.limit,
    };
    let mut warnings = warnings(declared, &origins, &reading.scaling, FLAG);
    warnings.extend(reading.notes);
    let mut spec = declared.spec(reading.scaling, reading.original_context);
    spec.rotary_dim = context.rotary_dim(rope_type);
    if spec.rotary_dim != declared.rotary_dim {
        warnings.push(format!(
            "`{FLAG}` rotates {} lanes of a head, the checkpoint {}",
            spec.rotary_dim, declared.rotary_dim
        ));
    }
    spec.theta = theta.unwrap_or(declared.theta);
    let declared_context = declared.declared_context;
    let local_theta = declared.local_theta;
    Ok(RopeSettings { spec, local_theta, declared_context, limit: Some(limit), origins, warnings })
}

/// Widths and contexts that the dictionary is read against.
fn context(
    declared: &RopeDeclaration,
    overrides: &RopeOverrides,
    dictionary: &Dictionary,
) -> Result<Context, RopeConfigError> {
    let flag = overrides.original_context.map(checked_original).transpose()?;
    let written = dictionary.tokens(ORIGINAL)?;
    agree(dictionary, ORIGINAL, written.map(|n| n as f64), "--original-context", flag.map(|n| n as f64))?;
    let known = match declared.origins.get("original_context") {
        None | Some(Origin::Derived(_)) => None,
        Some(_) => Some(declared.original_context),
    };
    let mut context = Context {
        declared_context: declared.declared_context,
        dynamic_context: flag.unwrap_or(declared.declared_context),
        original: flag.or(written).or(known),
        head_dim: declared.head_dim,
        rotary_dim: declared.rotary_dim,
        rotated_pairs: declared.pairs(),
    };
    if let Some(share) = dictionary.number(PARTIAL)? {
        context = context.with_share(checked_share(share)?);
    }
    Ok(context)
}

/// Checks that a key of the dictionary and a flag do not say different things.
fn agree(
    dictionary: &Dictionary,
    key: &str,
    written: Option<f64>,
    flag: &'static str,
    given: Option<f64>,
) -> Result<(), RopeConfigError> {
    match (written, given) {
        (Some(a), Some(b)) if a != b => Err(RopeConfigError::Conflict {
            first: dictionary.said(key),
            second: format!("`{flag}` = `{b}`"),
        }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::rope::{Factor, HeadLayout, Method, from_hf, in_force};
    use crate::rope::Pairing;
    use serde_json::json;

    fn run(more: Value, flags: RopeOverrides) -> Result<RopeSettings, String> {
        let mut config = json!({"max_position_embeddings": 4096, "rope_theta": 1e4});
        config.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let layout = HeadLayout { head_dim: 16, pairing: Pairing::HalfSplit };
        let declared = from_hf(config.as_object().unwrap(), layout).unwrap();
        in_force(&declared, &flags, 9000).map_err(|e| e.to_string())
    }

    fn dictionary(parameters: Value) -> RopeOverrides {
        RopeOverrides { rope_parameters: Some(parameters), ..RopeOverrides::default() }
    }

    #[test]
    fn a_dictionary_replaces_base_and_scaling() {
        let given = json!({"rope_type": "yarn", "factor": 4, "rope_theta": 5e5, "beta_fast": 16});
        let old = json!({"rope_scaling": {"type": "linear", "factor": 2}});
        let settings = run(old, dictionary(given)).unwrap();
        assert_eq!((settings.spec.theta, settings.spec.scaling.name()), (5e5, "yarn"));
        assert_eq!((settings.spec.original_context, settings.limit), (4096, Some(16_384)));
        assert_eq!(settings.origins["beta_fast"].to_string(), "--rope-parameters (beta_fast)");
        assert!(settings.warnings[0].contains("`linear` scaling with factor 2 is replaced"));
    }

    #[test]
    fn the_original_context_is_the_dictionarys_then_the_flags_then_the_checkpoints() {
        let yarn = json!({"rope_type": "yarn", "factor": 4});
        let known = json!({"original_max_position_embeddings": 1024});
        assert_eq!(run(known.clone(), dictionary(yarn.clone())).unwrap().limit, Some(4096));
        let flag = RopeOverrides { original_context: Some(512), ..dictionary(yarn) };
        assert_eq!(run(known.clone(), flag.clone()).unwrap().limit, Some(2048));
        let both = json!({"rope_type": "yarn", "factor": 4, "original_max_position_embeddings": 256});
        assert_eq!(run(known, dictionary(both.clone())).unwrap().limit, Some(1024));
        let text = run(json!({}), RopeOverrides { rope_parameters: Some(both), ..flag }).unwrap_err();
        assert!(text.contains("`--original-context` = `512` contradict"), "{text}");
    }

    #[test]
    fn limits_by_type() {
        let limit = |parameters| run(json!({}), dictionary(parameters)).unwrap().limit;
        assert_eq!(limit(json!({})), Some(4096));
        assert_eq!(limit(json!({"rope_type": "dynamic", "factor": 2})), Some(8192));
        let llama3 = json!({"rope_type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4,
            "original_max_position_embeddings": 1024});
        assert_eq!(limit(llama3), Some(8192));
        let flag = RopeOverrides {
            original_context: Some(1000),
            ..dictionary(json!({"rope_type": "dynamic", "factor": 2}))
        };
        let settings = run(json!({}), flag).unwrap();
        assert_eq!((settings.spec.original_context, settings.limit), (1000, Some(2000)));
    }

    #[test]
    fn another_rotated_share_is_pointed_out() {
        let given = json!({"rope_type": "default", "partial_rotary_factor": 0.5});
        let settings = run(json!({}), dictionary(given)).unwrap();
        assert_eq!(settings.spec.rotary_dim, 8);
        assert_eq!(settings.warnings, ["`--rope-parameters` rotates 8 lanes of a head, the checkpoint 16"]);
    }

    #[test]
    fn a_dictionary_stands_alone_and_is_checked() {
        let yarn = || dictionary(json!({"rope_type": "yarn", "factor": 4, "rope_theta": 5e5}));
        let text = run(json!({}), RopeOverrides { scaling: Some(Method::Yarn), ..yarn() }).unwrap_err();
        assert!(text.starts_with("`--scaling` cannot be combined with `--rope-parameters`"), "{text}");
        let text = run(json!({}), RopeOverrides { factor: Some(Factor::Auto), ..yarn() }).unwrap_err();
        assert!(text.starts_with("`--factor` cannot be combined"), "{text}");
        let text = run(json!({}), RopeOverrides { theta: Some(1e6), ..yarn() }).unwrap_err();
        assert!(text.contains("`--rope-theta` = `1000000` contradict"), "{text}");
        assert!(run(json!({}), RopeOverrides { theta: Some(5e5), ..yarn() }).is_ok());
        let text = run(json!({}), dictionary(json!([1]))).unwrap_err();
        assert_eq!(text, "`--rope-parameters` must be a JSON object, found `[1]`");
        let text =
            run(json!({}), dictionary(json!({"rope_type": "linear", "factor": 2, "x": 1}))).unwrap_err();
        assert!(text.starts_with("unknown key `--rope-parameters.x`"), "{text}");
    }
}
