//! Rope keys of a Hugging Face `config.json`: `rope_scaling` with top-level keys (v4) or `rope_parameters` (v5).

use serde_json::{Map, Value};

use super::dictionary::{Dictionary, Source};
use super::error::RopeConfigError;
use super::hf_scaling::{Context, RopeType, read_scaling};
use super::origin::Origin;
use super::{DEFAULT_THETA, HeadLayout, Origins, RopeDeclaration};
use crate::rope::Scaling;

/// Key of the declared context.
const MAX_POSITIONS: &str = "max_position_embeddings";
/// Key of the context before scaling, inside or beside the dictionary.
pub(super) const ORIGINAL: &str = "original_max_position_embeddings";
/// Key of the base of the frequencies.
pub(super) const THETA: &str = "rope_theta";
/// Key of the share of a head that rotates.
pub(super) const PARTIAL: &str = "partial_rotary_factor";

/// Top-level keys that change the rotation in a way that is not supported here.
const REFUSED: [(&str, &str); 5] = [
    ("rotary_pct", "use `partial_rotary_factor`"),
    ("rotary_emb_base", "use `rope_theta`"),
    ("rope_ratio", "the base would be multiplied by it"),
    ("rope_local_base_freq", "sliding layers would need a second table"),
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
    let outer = Dictionary::new(config, "", Source::Config);
    if let Some((key, reason)) = REFUSED.into_iter().find(|(key, _)| outer.has(key)) {
        let found = config.get(key).map_or_else(String::new, Value::to_string);
        return Err(RopeConfigError::Unsupported { key: key.to_owned(), found, reason });
    }
    let inner =
        Dictionary::inner(config, "rope_parameters")?.merge(Dictionary::inner(config, "rope_scaling")?)?;
    let declared_context = outer.tokens(MAX_POSITIONS)?.ok_or_else(|| RopeConfigError::Missing {
        key: MAX_POSITIONS.to_owned(),
        needed_by: "every checkpoint".to_owned(),
    })?;
    let mut found = Header::new();
    found.origin("declared_context", outer.origin(MAX_POSITIONS));
    let theta = found.theta(&inner, &outer)?;
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
    Ok(declaration.adopt(reading.map(|(reading, _)| reading)))
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

    fn theta(&mut self, inner: &Dictionary, outer: &Dictionary) -> Result<f64, RopeConfigError> {
        if let Some(theta) = self.either("theta", THETA, inner, outer)? {
            return Ok(theta);
        }
        self.origin("theta", Some(Origin::default(DEFAULT_THETA)));
        self.notes.push(format!("the config names no `{THETA}`; {DEFAULT_THETA} is used"));
        Ok(DEFAULT_THETA)
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
