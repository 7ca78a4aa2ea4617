//! Rope keys of `config.json` in all their spellings.

use super::*;
use crate::checkpoint::rope::{RopeOverrides, in_force};
use crate::rope::{Magnitude, Pairing, Scaling, frequencies};
use serde_json::json;

fn declared(head_dim: usize, config: Value) -> Result<RopeDeclaration, RopeConfigError> {
    let layout = HeadLayout { head_dim, pairing: Pairing::HalfSplit };
    from_hf(config.as_object().unwrap(), layout)
}

/// A v4 config of 4096 positions with this `rope_scaling`.
fn scaled(scaling: Value) -> RopeDeclaration {
    let config = json!({"max_position_embeddings": 4096, "rope_theta": 1e4, "rope_scaling": scaling});
    declared(64, config).unwrap()
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
    let expected =
        "`rope_scaling.rope_type` = `\"linear\"` and `rope_scaling.type` = `\"yarn\"` contradict each other";
    assert_eq!(text, expected);
    // The two spellings of LongRoPE do not contradict each other.
    assert!(!refusal(json!({"type": "su", "rope_type": "longrope", "factor": 2})).contains("contradict"));
}

#[test]
fn d037_a_factor_that_is_given_wins_over_the_ratio() {
    let config = json!({"max_position_embeddings": 2048, "rope_theta": 1e4, "rope_scaling":
        {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 1024}});
    let found = declared(64, config).unwrap();
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
    assert!(magnitude(json!({"attention_factor": 1, "attn_factor": 1})).unwrap_err().contains("contradict"));
    assert!(magnitude(json!({"attn_factor": 1, "mscale": 1, "mscale_all_dim": 1})).is_err());
    assert!(magnitude(json!({"attention_factor": -1})).unwrap_err().contains("found -1"));
}

#[test]
fn d046_null_is_absent() {
    let config = json!({"max_position_embeddings": 4096, "rope_theta": 1e4, "head_dim": null, "rope_parameters": null,
        "original_max_position_embeddings": null, "partial_rotary_factor": null,
        "rope_scaling": {"type": "yarn", "factor": 4, "attention_factor": null, "beta_fast": null, "truncate": null}});
    assert_eq!(declared(64, config).unwrap().scaling.unwrap().name(), "yarn");
}

#[test]
fn d047_d048_the_rotated_share() {
    let share = |head_dim, p: Value, scaling: Value| {
        let config = json!({"max_position_embeddings": 64, "rope_theta": 1e4, "partial_rotary_factor": p, "rope_scaling": scaling});
        declared(head_dim, config)
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
    let found = declared(16, inner).unwrap();
    assert_eq!((found.theta, found.notes.len()), (5e5, 0));
    assert_eq!(found.origins["theta"].to_string(), "rope_parameters.rope_theta in config.json");
    let both = json!({"max_position_embeddings": 64, "rope_theta": 10000, "rope_parameters": {"rope_theta": 500000}});
    let text = declared(16, both).unwrap_err().to_string();
    assert_eq!(
        text,
        "`rope_parameters.rope_theta` = `500000` and `rope_theta` = `10000` contradict each other"
    );
    let neither = declared(16, json!({"max_position_embeddings": 64})).unwrap();
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
        text.starts_with("unknown key `rope_scaling.faktor` with value `3`; `linear` accepts: `rope_type`"),
        "{text}"
    );
    let text = refusal(json!({"type": "linear", "factor": 2, "beta_fast": 32}));
    assert_eq!(text, "`rope_scaling.beta_fast` = `32` has no meaning for `linear`; it belongs to `yarn`");
    assert_eq!(refusal(json!({"factor": 2})), "`rope_scaling.rope_type` is missing; `factor` needs it");
    for key in ["mrope_section", "short_mscale", "long_mscale", "alpha"] {
        let text = refusal(json!({"type": "yarn", "factor": 2, key: 1}));
        assert!(text.contains(key) && text.contains("not supported"), "{text}");
    }
    assert!(refusal(json!({"type": "mrope", "mrope_section": [1]})).contains("unknown `rope_type` `mrope`"));
    let text = refusal(json!({"full_attention": {"rope_type": "default"}}));
    assert!(text.contains("per layer type"), "{text}");
    let error = declared(64, json!({"max_position_embeddings": 64, "rotary_pct": 0.25})).unwrap_err();
    assert!(matches!(error, RopeConfigError::Unsupported { .. }));
    assert!(declared(64, json!({"max_position_embeddings": 64, "rope_scaling": "yarn"})).is_err());
    assert!(matches!(declared(64, json!({})), Err(RopeConfigError::Missing { .. })));
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
        let found = declared(16, config(name, 8)).unwrap();
        assert_eq!((found.original_context, found.limit), (4096, 8192));
        assert_eq!(found.scaling.unwrap().factor(), Some(2.0));
        assert!(found.notes[0].contains("is overruled by the top-level value 4096"), "{:?}", found.notes);
    }
    let text = declared(16, config("su", 7)).unwrap().scaling.unwrap_err().to_string();
    assert_eq!(text, "`long_factor` must have 8 entries, one per rotated pair, found 7");
}

#[test]
fn missing_original_contexts_are_the_declared_one() {
    let scaling = json!({"rope_type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4});
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
    assert_eq!(declared(64, both(2.0)).unwrap().scaling, Ok(Scaling::Linear { factor: 2.0 }));
    assert!(matches!(declared(64, both(3.0)), Err(RopeConfigError::Conflict { .. })));
}

#[test]
fn layers_with_a_short_window_have_their_own_base() {
    let bases = LayerBases { theta: 1e6, local_theta: 1e4 };
    let layout = HeadLayout { head_dim: 16, pairing: Pairing::HalfSplit };
    let read = |config: Value| from_hf_layered(config.as_object().unwrap(), layout, bases);
    let old = json!({"max_position_embeddings": 64, "rope_theta": 5e5, "rope_local_base_freq": 2e4,
        "rope_scaling": {"rope_type": "linear", "factor": 8.0}});
    let new = json!({"max_position_embeddings": 64, "rope_parameters": {
        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 5e5},
        "sliding_attention": {"rope_type": "default", "rope_theta": 2e4}}});
    for config in [old, new.clone()] {
        let found = read(config).unwrap();
        assert_eq!((found.theta, found.local_theta), (5e5, Some(2e4)));
        assert_eq!((found.scaling, found.limit), (Ok(Scaling::Linear { factor: 8.0 }), 64));
    }
    let found = read(new.clone()).unwrap();
    let expected = "rope_parameters.sliding_attention.rope_theta in config.json";
    assert_eq!(found.origins["local_theta"].to_string(), expected);
    let settings = in_force(&found, &RopeOverrides::default(), 10).unwrap();
    assert_eq!(settings.parameters(10).unwrap()["local_theta"], json!({"value": 2e4, "origin": expected}));
    let local = settings.local_spec().unwrap();
    assert_eq!((local.theta, local.scaling), (2e4, Scaling::None));
    let bare = read(json!({"max_position_embeddings": 64})).unwrap();
    assert_eq!((bare.theta, bare.local_theta), (1e6, Some(1e4)));
    assert_eq!(bare.origins["local_theta"], Origin::Default("10000".into()));

    let mut scaled = new.clone();
    scaled["rope_parameters"]["sliding_attention"]["factor"] = json!(2);
    assert!(read(scaled).unwrap_err().to_string().contains("sliding_attention.factor` = `2`"));
    let mut twice = new.clone();
    twice["rope_local_base_freq"] = json!(3e4);
    assert!(matches!(read(twice), Err(RopeConfigError::Conflict { .. })));
    // In a family with one embedding for all layers both spellings are refused.
    let alone = json!({"max_position_embeddings": 64, "rope_local_base_freq": 1e4});
    assert!(declared(16, alone).unwrap_err().to_string().contains("rope_local_base_freq"));
    assert!(declared(16, new).unwrap().scaling.unwrap_err().to_string().contains("per layer type"));
}
