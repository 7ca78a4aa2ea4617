//! Rope keys of a Hugging Face `config.json`: `rope_scaling` with top-level keys (v4) or `rope_parameters` (v5).

use serde_json::{Map, Value};

use super::dictionary::{Dictionary, Source};
use super::error::RopeConfigError;
use super::hf_scaling::{Context, RopeType, read_scaling};
use super::origin::Origin;
use super::{DEFAULT_THETA, HeadLayout, LayerBases, Origins, RopeDeclaration};
use crate::rope::Scaling;

/// Key of the declared context.
const MAX_POSITIONS: &str = "max_position_embeddings";
/// Key of the context before scaling, inside or beside the dictionary.
pub(super) const ORIGINAL: &str = "original_max_position_embeddings";
/// Key of the base of the frequencies.
pub(super) const THETA: &str = "rope_theta";
/// Key of the share of a head that rotates.
pub(super) const PARTIAL: &str = "partial_rotary_factor";

/// Key of the base of layers with a short window.
const LOCAL_THETA: &str = "rope_local_base_freq";
/// The dictionary of families with two kinds of layers, and its parts.
const LAYERED: [&str; 3] =
    ["rope_parameters", "rope_parameters.full_attention", "rope_parameters.sliding_attention"];

/// Top-level keys that change the rotation in a way that is not supported here.
const REFUSED: [(&str, &str); 5] = [
    ("rotary_pct", "use `partial_rotary_factor`"),
    ("rotary_emb_base", "use `rope_theta`"),
    ("rope_ratio", "the base would be multiplied by it"),
    (LOCAL_THETA, "layers with a short window share the embedding of the others in this family"),
    ("llama_4_scaling_beta", "queries would be scaled by position"),
];

/// Reads the rope keys of a config.
///
/// Both styles are accepted, also together when they agree. A value inside the dictionary and the same key at the top
/// level must not differ, except for `original_max_position_embeddings`, where the top level wins with a note as in
/// transformers. A scaling that cannot be used does not fail here: it is the error in
/// [`RopeDeclaration::scaling`], because flags may replace it.
///
/// # Errors
/// [`RopeConfigError`] for a missing or malformed context, theta or rotated share, and for contradictions.
pub fn from_hf(config: &Map<String, Value>, layout: HeadLayout) -> Result<RopeDeclaration, RopeConfigError> {
    read(config, layout, None)
}

/// [`from_hf`] for a family whose layers with a short window have a base of their own: `rope_local_base_freq` beside
/// the keys of the other layers (v4), or `rope_parameters` with `full_attention` and `sliding_attention` (v5).
///
/// # Errors
/// As [`from_hf`], and for layers with a short window that do not rotate plainly.
pub fn from_hf_layered(
    config: &Map<String, Value>,
    layout: HeadLayout,
    bases: LayerBases,
) -> Result<RopeDeclaration, RopeConfigError> {
    read(config, layout, Some(bases))
}

fn read(
    config: &Map<String, Value>,
    layout: HeadLayout,
    bases: Option<LayerBases>,
) -> Result<RopeDeclaration, RopeConfigError> {
    let outer = Dictionary::new(config, "", Source::Config);
    let refused = |key: &str| outer.has(key) && !(key == LOCAL_THETA && bases.is_some());
    if let Some((key, reason)) = REFUSED.into_iter().find(|(key, _)| refused(key)) {
        let found = config.get(key).map_or_else(String::new, Value::to_string);
        return Err(RopeConfigError::Unsupported { key: key.to_owned(), found, reason });
    }
    let layered = bases.and_then(|_| config.get(LAYERED[0])?.as_object());
    let part = |name: &str| layered.and_then(|both| both.get(name)?.as_object());
    let inner = match part("full_attention") {
        Some(object) => Dictionary::new(object, LAYERED[1], Source::Config),
        None => Dictionary::inner(config, LAYERED[0])?,
    };
    let inner = inner.merge(Dictionary::inner(config, "rope_scaling")?)?;
    let declared_context = outer.tokens(MAX_POSITIONS)?.ok_or_else(|| RopeConfigError::Missing {
        key: MAX_POSITIONS.to_owned(),
        needed_by: "every checkpoint".to_owned(),
    })?;
    let mut found = Header::new();
    found.origin("declared_context", outer.origin(MAX_POSITIONS));
    let theta = found.theta(&inner, &outer, bases.map_or(DEFAULT_THETA, |bases| bases.theta))?;
    let local = part("sliding_attention").map(|object| Dictionary::new(object, LAYERED[2], Source::Config));
    let local_theta = bases.map(|bases| found.local_theta(local, &outer, bases.local_theta)).transpose()?;
    let partial = found.partial(&inner, &outer)?;
    let original = found.original(&inner, &outer)?;
    let context = Context {
        declared_context,
        dynamic_context: declared_context,
        original,
        head_dim: layout.head_dim,
        rotary_dim: layout.head_dim,
        rotated_pairs: layout.head_dim / 2,
    };
    let context = context.with_share(partial);
    let reading = read_scaling(&inner, &context);
    let rope_type = reading.as_ref().map_or(RopeType::Default, |(_, rope_type)| *rope_type);
    let declaration = RopeDeclaration {
        theta,
        local_theta,
        rotary_dim: context.rotary_dim(rope_type),
        head_dim: layout.head_dim,
        pairing: layout.pairing,
        declared_context,
        original_context: original.unwrap_or(declared_context),
        scaling: Ok(Scaling::None),
        limit: declared_context,
        fine_tuned: None,
        origins: found.origins,
        notes: found.notes,
        scaling_notes: Vec::new(),
    };
    let declaration = declaration.adopt(reading.map(|(reading, _)| reading));
    Ok(if bases.is_some() { declaration.reaching_what_is_declared() } else { declaration })
}

/// Values beside the scaling, with where they stand.
struct Header {
    origins: Origins,
    notes: Vec<String>,
}

impl Header {
    fn new() -> Header {
        let mut origins = Origins::new();
        origins.insert("pairing", Origin::derived("architecture"));
        Header { origins, notes: Vec::new() }
    }

    fn origin(&mut self, name: &'static str, origin: Option<Origin>) {
        self.origins.extend(origin.map(|origin| (name, origin)));
    }

    /// The value of `key` from either place.
    fn either(
        &mut self,
        name: &'static str,
        key: &str,
        inner: &Dictionary,
        outer: &Dictionary,
    ) -> Result<Option<f64>, RopeConfigError> {
        let (inside, outside) = (inner.number(key)?, outer.number(key)?);
        if let (Some(a), Some(b)) = (inside, outside)
            && a != b
        {
            return Err(RopeConfigError::Conflict { first: inner.said(key), second: outer.said(key) });
        }
        self.origin(name, inner.origin(key).or_else(|| outer.origin(key)));
        Ok(inside.or(outside))
    }

    fn theta(
        &mut self,
        inner: &Dictionary,
        outer: &Dictionary,
        default: f64,
    ) -> Result<f64, RopeConfigError> {
        if let Some(theta) = self.either("theta", THETA, inner, outer)? {
            return Ok(theta);
        }
        self.origin("theta", Some(Origin::default(default)));
        self.notes.push(format!("the config names no `{THETA}`; {default} is used"));
        Ok(default)
    }

    /// The base of layers with a short window: `inner` is their dictionary, where they have one.
    fn local_theta(
        &mut self,
        inner: Option<Dictionary>,
        outer: &Dictionary,
        default: f64,
    ) -> Result<f64, RopeConfigError> {
        let inside = inner.as_ref().map(plain_theta).transpose()?.flatten();
        let outside = outer.number(LOCAL_THETA)?;
        if let (Some(inner), Some(a), Some(b)) = (&inner, inside, outside)
            && a != b
        {
            let (first, second) = (inner.said(THETA), outer.said(LOCAL_THETA));
            return Err(RopeConfigError::Conflict { first, second });
        }
        let origin = inner.and_then(|inner| inner.origin(THETA)).or_else(|| outer.origin(LOCAL_THETA));
        self.origin("local_theta", Some(origin.unwrap_or_else(|| Origin::default(default))));
        Ok(inside.or(outside).unwrap_or(default))
    }

    /// The share of the head that rotates, in (0, 1].
    fn partial(&mut self, inner: &Dictionary, outer: &Dictionary) -> Result<f64, RopeConfigError> {
        let Some(share) = self.either("rotary_dim", PARTIAL, inner, outer)? else {
            self.origin("rotary_dim", Some(Origin::default("head_dim")));
            return Ok(1.0);
        };
        checked_share(share)
    }

    fn original(&mut self, inner: &Dictionary, outer: &Dictionary) -> Result<Option<usize>, RopeConfigError> {
        let (inside, outside) = (inner.tokens(ORIGINAL)?, outer.tokens(ORIGINAL)?);
        if let (Some(_), Some(b)) = (inside.filter(|a| Some(*a) != outside), outside) {
            self.notes.push(format!("{} is overruled by the top-level value {b}", inner.said(ORIGINAL)));
        }
        let origin = outer.origin(ORIGINAL).or_else(|| inner.origin(ORIGINAL));
        self.origin("original_context", origin.or_else(|| Some(Origin::derived(MAX_POSITIONS))));
        Ok(outside.or(inside))
    }
}

/// The base in the dictionary of layers that rotate plainly.
fn plain_theta(dictionary: &Dictionary) -> Result<Option<f64>, RopeConfigError> {
    for (key, value) in dictionary.iter() {
        let plain = match key {
            THETA => true,
            "rope_type" | "type" => value == "default",
            PARTIAL => value.as_f64() == Some(1.0),
            _ => false,
        };
        if !plain {
            let (key, found) = (dictionary.path(key), value.to_string());
            let reason = "layers with a short window rotate all of a head without scaling here";
            return Err(RopeConfigError::Unsupported { key, found, reason });
        }
    }
    dictionary.number(THETA)
}

/// `share` when it is a share of a head: above 0, at most 1.
pub(super) fn checked_share(share: f64) -> Result<f64, RopeConfigError> {
    if share > 0.0 && share <= 1.0 {
        return Ok(share);
    }
    Err(RopeConfigError::WrongType {
        key: PARTIAL.to_owned(),
        expected: "above 0 and at most 1",
        found: share.to_string(),
    })
}

#[cfg(test)]
mod tests;
