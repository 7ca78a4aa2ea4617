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
    Ok(RopeSettings { spec, declared_context, limit: Some(limit), origins, warnings })
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
