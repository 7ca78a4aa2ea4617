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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::rope::{RopeOverrides, in_force};
    use crate::rope::{Magnitude, Pairing, Scaling, frequencies};
    use serde_json::json;

    fn read(head_dim: usize, config: Value) -> Result<RopeDeclaration, RopeConfigError> {
        let layout = HeadLayout { head_dim, pairing: Pairing::HalfSplit };
        from_hf(config.as_object().unwrap(), layout)
    }

    /// A v4 config of 4096 positions with this `rope_scaling`.
    fn scaled(scaling: Value) -> RopeDeclaration {
        let config = json!({"max_position_embeddings": 4096, "rope_theta": 1e4, "rope_scaling": scaling});
        read(64, config).unwrap()
    }

    fn refusal(scaling: Value) -> String {
        scaled(scaling).scaling.unwrap_err().to_string()
    }

    #[test]
    fn d030_a_factor_is_any_number_of_at_least_one() {
        for factor in [json!(4), json!(4.0)] {
            let found = scaled(json!({"type": "linear", "factor": factor}));
            assert_eq!(found.scaling, Ok(Scaling::Linear { factor: 4.0 }));
        }
        let text = refusal(json!({"type": "linear", "factor": "4"}));
        assert_eq!(text, "`rope_scaling.factor` must be a number, found `\"4\"`");
        let text = refusal(json!({"type": "linear", "factor": 0.5}));
        assert_eq!(text, "`factor` must be a finite number of at least 1, found 0.5");
        let text = refusal(json!({"type": "linear", "factor": null}));
        assert_eq!(text, "`rope_scaling.factor` is missing; `linear` needs it");
        let betas = json!({"type": "yarn", "factor": 4, "beta_fast": 32, "beta_slow": 1});
        assert!(scaled(betas).scaling.is_ok());
    }

    #[test]
    fn d031_d032_both_spellings_of_the_type() {
        for keys in [
            json!({"type": "dynamic"}),
            json!({"rope_type": "dynamic"}),
            json!({"type": "dynamic", "rope_type": "dynamic"}),
        ] {
            let mut scaling = keys;
            scaling["factor"] = json!(2.0);
            assert_eq!(scaled(scaling).scaling, Ok(Scaling::DynamicNtk { factor: 2.0 }));
        }
        let text = refusal(json!({"type": "yarn", "rope_type": "linear", "factor": 2}));
        let expected = "`rope_scaling.rope_type` = `\"linear\"` and `rope_scaling.type` = `\"yarn\"` contradict each other";
        assert_eq!(text, expected);
        // The two spellings of LongRoPE do not contradict each other.
        assert!(!refusal(json!({"type": "su", "rope_type": "longrope", "factor": 2})).contains("contradict"));
    }

    #[test]
    fn d037_a_factor_that_is_given_wins_over_the_ratio() {
        let config = json!({"max_position_embeddings": 2048, "rope_theta": 1e4, "rope_scaling":
            {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 1024}});
        let found = read(64, config).unwrap();
        assert_eq!(found.scaling.as_ref().unwrap().factor(), Some(4.0));
        assert_eq!(found.limit, 4096);
        assert!(
            found.scaling_notes[0].contains("`rope_scaling.factor` = `4.0` is used although"),
            "{:?}",
            found.scaling_notes
        );
        let found = scaled(json!({"type": "yarn", "original_max_position_embeddings": 1024}));
        assert_eq!(found.scaling.as_ref().unwrap().factor(), Some(4.0));
        assert!(matches!(found.origins["factor"], Origin::Derived(_)) && found.scaling_notes.is_empty());
        assert_eq!(refusal(json!({"type": "yarn"})), "`rope_scaling.factor` is missing; `yarn` needs it");
    }

    #[test]
    fn d038_d040_where_the_magnitude_comes_from() {
        let magnitude = |more: Value| {
            let mut scaling = json!({"type": "yarn", "factor": 64});
            scaling.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            let found = scaled(scaling);
            match found.scaling {
                Ok(Scaling::Yarn(yarn)) => Ok((yarn.magnitude, found.scaling_notes.len())),
                other => Err(other.unwrap_err().to_string()),
            }
        };
        assert_eq!(magnitude(json!({})), Ok((Magnitude::Default, 0)));
        assert_eq!(magnitude(json!({"attention_factor": 1.0})), Ok((Magnitude::Final(1.0), 0)));
        assert_eq!(magnitude(json!({"attn_factor": 1.5})), Ok((Magnitude::Multiplied(1.5), 0)));
        let pair = Magnitude::Ratio { mscale: 0.707, mscale_all_dim: 0.707 };
        assert_eq!(magnitude(json!({"mscale": 0.707, "mscale_all_dim": 0.707})), Ok((pair, 0)));
        assert_eq!(magnitude(json!({"mscale": 0.707})), Ok((Magnitude::Default, 1)));
        assert_eq!(magnitude(json!({"mscale": 1.0, "mscale_all_dim": 0.0})), Ok((Magnitude::Default, 2)));
        assert!(
            magnitude(json!({"attention_factor": 1, "attn_factor": 1})).unwrap_err().contains("contradict")
        );
        assert!(magnitude(json!({"attn_factor": 1, "mscale": 1, "mscale_all_dim": 1})).is_err());
        assert!(magnitude(json!({"attention_factor": -1})).unwrap_err().contains("found -1"));
    }

    #[test]
    fn d046_null_is_absent() {
        let config = json!({"max_position_embeddings": 4096, "rope_theta": 1e4, "head_dim": null, "rope_parameters": null,
            "original_max_position_embeddings": null, "partial_rotary_factor": null,
            "rope_scaling": {"type": "yarn", "factor": 4, "attention_factor": null, "beta_fast": null, "truncate": null}});
        assert_eq!(read(64, config).unwrap().scaling.unwrap().name(), "yarn");
    }

    #[test]
    fn d047_d048_the_rotated_share() {
        let share = |head_dim, p: Value, scaling: Value| {
            let config = json!({"max_position_embeddings": 64, "rope_theta": 1e4, "partial_rotary_factor": p, "rope_scaling": scaling});
            read(head_dim, config)
        };
        let half = share(16, json!(0.5), json!({"type": "yarn", "factor": 4})).unwrap();
        assert_eq!((half.rotary_dim, half.head_dim), (8, 16));
        let settings = in_force(&half, &RopeOverrides::default(), 100).unwrap();
        assert_eq!(frequencies(&settings.spec, 100).unwrap().inv_freq.len(), 4);
        let odd = share(10, json!(0.3), Value::Null).unwrap();
        assert_eq!(
            odd.scaling.unwrap_err().to_string(),
            "`rotary_dim` must be even because lanes rotate in pairs, found 3"
        );
        for bad in [json!(0), json!(1.5), json!("half")] {
            assert!(share(16, bad, Value::Null).is_err());
        }
    }

    #[test]
    fn d049_theta_from_either_place() {
        let inner = json!({"max_position_embeddings": 64, "rope_parameters": {"rope_type": "default", "rope_theta": 500000}});
        let found = read(16, inner).unwrap();
        assert_eq!((found.theta, found.notes.len()), (5e5, 0));
        assert_eq!(found.origins["theta"].to_string(), "rope_parameters.rope_theta in config.json");
        let both = json!({"max_position_embeddings": 64, "rope_theta": 10000, "rope_parameters": {"rope_theta": 500000}});
        let text = read(16, both).unwrap_err().to_string();
        assert_eq!(
            text,
            "`rope_parameters.rope_theta` = `500000` and `rope_theta` = `10000` contradict each other"
        );
        let neither = read(16, json!({"max_position_embeddings": 64})).unwrap();
        assert_eq!(neither.theta, 10_000.0);
        assert_eq!(neither.origins["theta"], Origin::Default("10000".into()));
        assert_eq!(neither.notes, ["the config names no `rope_theta`; 10000 is used"]);
    }

    #[test]
    fn d029_d051_nothing_unknown_passes() {
        let text = refusal(json!({"rope_type": "foo", "factor": 2}));
        let expected = "unknown `rope_type` `foo`; accepted: `default`, `linear`, `dynamic`, `yarn`, `longrope`, `llama3`, \
                        `proportional`, `su`";
        assert_eq!(text, expected);
        let text = refusal(json!({"type": "linear", "factor": 2, "faktor": 3}));
        assert!(
            text.starts_with(
                "unknown key `rope_scaling.faktor` with value `3`; `linear` accepts: `rope_type`"
            ),
            "{text}"
        );
        let text = refusal(json!({"type": "linear", "factor": 2, "beta_fast": 32}));
        assert_eq!(text, "`rope_scaling.beta_fast` = `32` has no meaning for `linear`; it belongs to `yarn`");
        assert_eq!(refusal(json!({"factor": 2})), "`rope_scaling.rope_type` is missing; `factor` needs it");
        for key in ["mrope_section", "short_mscale", "long_mscale", "alpha"] {
            let text = refusal(json!({"type": "yarn", "factor": 2, key: 1}));
            assert!(text.contains(key) && text.contains("not supported"), "{text}");
        }
        assert!(
            refusal(json!({"type": "mrope", "mrope_section": [1]})).contains("unknown `rope_type` `mrope`")
        );
        let text = refusal(json!({"full_attention": {"rope_type": "default"}}));
        assert!(text.contains("per layer type"), "{text}");
        let error = read(64, json!({"max_position_embeddings": 64, "rotary_pct": 0.25})).unwrap_err();
        assert!(matches!(error, RopeConfigError::Unsupported { .. }));
        assert!(read(64, json!({"max_position_embeddings": 64, "rope_scaling": "yarn"})).is_err());
        assert!(matches!(read(64, json!({})), Err(RopeConfigError::Missing { .. })));
    }

    #[test]
    fn keys_that_change_nothing_are_accepted() {
        let found = scaled(
            json!({"type": "yarn", "factor": 16, "original_max_position_embeddings": 256, "finetuned": true}),
        );
        assert_eq!(found.fine_tuned, Some(true));
        assert!(found.scaling_notes.is_empty());
        let found = scaled(json!({"type": "dynamic", "factor": 2, "original_max_position_embeddings": 256}));
        assert_eq!((found.original_context, found.limit), (4096, 8192));
        assert!(found.scaling_notes[0].contains("is not used by `dynamic`"));
    }

    #[test]
    fn d057_longrope_by_either_name_and_original_context_at_the_top() {
        let config = |name: &str, pairs: usize| {
            json!({"max_position_embeddings": 8192, "rope_theta": 1e4, "original_max_position_embeddings": 4096,
                "rope_scaling": {"type": name, "short_factor": vec![1; 8], "long_factor": vec![2.0; pairs],
                    "original_max_position_embeddings": 2048}})
        };
        for name in ["su", "longrope"] {
            let found = read(16, config(name, 8)).unwrap();
            assert_eq!((found.original_context, found.limit), (4096, 8192));
            assert_eq!(found.scaling.unwrap().factor(), Some(2.0));
            assert!(found.notes[0].contains("is overruled by the top-level value 4096"), "{:?}", found.notes);
        }
        let text = read(16, config("su", 7)).unwrap().scaling.unwrap_err().to_string();
        assert_eq!(text, "`long_factor` must have 8 entries, one per rotated pair, found 7");
    }

    #[test]
    fn missing_original_contexts_are_the_declared_one() {
        let scaling =
            json!({"rope_type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4});
        let found = scaled(scaling);
        assert_eq!(found.original_context, 4096);
        assert_eq!(found.origins["original_context"], Origin::Derived("max_position_embeddings".into()));
        assert!(refusal(json!({"rope_type": "llama3", "factor": 8})).contains("low_freq_factor` is missing"));
    }

    #[test]
    fn both_styles_may_stand_together_when_they_agree() {
        let both = |factor: f64| {
            json!({"max_position_embeddings": 4096, "rope_scaling": {"type": "linear", "factor": 2},
                "rope_parameters": {"rope_type": "linear", "factor": factor, "rope_theta": 1e4}})
        };
        assert_eq!(read(64, both(2.0)).unwrap().scaling, Ok(Scaling::Linear { factor: 2.0 }));
        assert!(matches!(read(64, both(3.0)), Err(RopeConfigError::Conflict { .. })));
    }
}
