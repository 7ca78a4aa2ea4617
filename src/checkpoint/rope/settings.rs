//! The rotary embedding in force, and its description for reports.

use serde_json::{Map, Value, json};

use super::{Origin, Origins};
use crate::rope::{Magnitude, Pairing, Ramp, RopeError, RopeSpec, Scaling, effective_base, frequencies};

/// The one rotary embedding that a run uses.
#[derive(Debug, Clone, PartialEq)]
pub struct RopeSettings {
    pub spec: RopeSpec,
    /// Base of layers with a short window, which flags and scalings leave alone; `None` where all layers share `spec`.
    pub local_theta: Option<f64>,
    /// `max_position_embeddings` or `context_length` of the checkpoint, in tokens.
    pub declared_context: usize,
    /// Tokens that the embedding reaches; `None` when it follows the length without a bound.
    pub limit: Option<usize>,
    /// Where each value came from, by its name in [`RopeSettings::parameters`].
    pub origins: Origins,
    /// Sentences that a user should read before trusting the run.
    pub warnings: Vec<String>,
}

impl RopeSettings {
    /// The plain embedding of layers with a short window, where they have their own.
    pub fn local_spec(&self) -> Option<RopeSpec> {
        self.local_theta.map(|theta| RopeSpec { theta, scaling: Scaling::None, ..self.spec.clone() })
    }

    /// Every value in force for a text of `length` tokens: `{name: {"value": .., "origin": ".."}}` in a fixed order.
    ///
    /// `attention_factor` is what cos and sin are really multiplied by, `effective_theta` the base that the
    /// frequencies are really computed from.
    ///
    /// # Errors
    /// [`RopeError`] when the spec was changed into one that cannot be computed.
    pub fn parameters(&self, length: usize) -> Result<Value, RopeError> {
        let spec = &self.spec;
        let found = frequencies(spec, length)?;
        let mut list = Listing { origins: &self.origins, entries: Map::new() };
        list.add("scaling", spec.scaling.name());
        list.add("theta", spec.theta);
        let base = effective_base(spec, length)?;
        if base != spec.theta {
            list.computed("effective_theta", base, "raised by the method");
        }
        if let Some(theta) = self.local_theta {
            list.add("local_theta", theta);
        }
        list.computed("head_dim", spec.head_dim, "architecture");
        list.add("rotary_dim", spec.rotary_dim);
        list.add(
            "pairing",
            match spec.pairing {
                Pairing::Adjacent => "adjacent",
                Pairing::HalfSplit => "half-split",
            },
        );
        list.add("original_context", spec.original_context);
        list.add("declared_context", self.declared_context);
        list.add("limit", self.limit);
        list.method(spec, length);
        list.add("attention_factor", found.attention_factor);
        Ok(Value::Object(list.entries))
    }
}

struct Listing<'a> {
    origins: &'a Origins,
    entries: Map<String, Value>,
}

impl Listing<'_> {
    fn add(&mut self, name: &'static str, value: impl Into<Value>) {
        let origin = self.origins.get(name).map_or_else(|| "derived: method".to_owned(), Origin::to_string);
        self.entries.insert(name.to_owned(), json!({"value": value.into(), "origin": origin}));
    }

    fn computed(&mut self, name: &'static str, value: impl Into<Value>, how: &str) {
        let origin = Origin::derived(how).to_string();
        self.entries.insert(name.to_owned(), json!({"value": value.into(), "origin": origin}));
    }

    fn ramp(&mut self, ramp: &Ramp) {
        self.add("beta_fast", ramp.beta_fast);
        self.add("beta_slow", ramp.beta_slow);
        self.add("truncate", ramp.truncate);
    }

    /// The parameters that only some methods have.
    fn method(&mut self, spec: &RopeSpec, length: usize) {
        if let Some(factor) = spec.scaling.factor() {
            self.add("factor", factor);
        }
        match &spec.scaling {
            Scaling::NtkByParts { ramp, .. } => self.ramp(ramp),
            Scaling::Yarn(p) | Scaling::DynamicYarn(p) => {
                self.ramp(&p.ramp);
                if let Magnitude::Ratio { mscale, mscale_all_dim } = p.magnitude {
                    self.add("mscale", mscale);
                    self.add("mscale_all_dim", mscale_all_dim);
                }
            }
            Scaling::LongRope(p) => {
                self.add("short_factor", p.short_factor.clone());
                self.add("long_factor", p.long_factor.clone());
                let long = p.uses_long(spec.original_context, length);
                let list = if long { "long_factor" } else { "short_factor" };
                self.add("longrope_select", list);
            }
            Scaling::Llama3(p) => {
                self.add("low_freq_factor", p.low_freq_factor);
                self.add("high_freq_factor", p.high_freq_factor);
            }
            Scaling::Proportional { rotated_pairs, .. } => self.add("rotated_pairs", *rotated_pairs),
            Scaling::Divisors(p) => self.add("rope_freqs", p.divisors.clone()),
            Scaling::None
            | Scaling::Linear { .. }
            | Scaling::Ntk { .. }
            | Scaling::DynamicLinear
            | Scaling::DynamicNtk { .. } => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::rope::{
        Factor, HeadLayout, Method, RopeDeclaration, RopeOverrides, from_hf, in_force,
    };

    fn declared(scaling: Value) -> RopeDeclaration {
        let config = json!({"max_position_embeddings": 4096, "rope_theta": 1e6, "rope_scaling": scaling});
        let layout = HeadLayout { head_dim: 8, pairing: Pairing::HalfSplit };
        from_hf(config.as_object().unwrap(), layout).unwrap()
    }

    fn by_flag(method: Method, factor: Option<f64>) -> RopeSettings {
        let factor = factor.map(Factor::Value);
        let flags = RopeOverrides { scaling: Some(method), factor, ..RopeOverrides::default() };
        in_force(&declared(Value::Null), &flags, 9000).unwrap()
    }

    #[test]
    fn d041_every_value_in_force_is_listed_with_its_origin() {
        let listed = by_flag(Method::Yarn, Some(64.0)).parameters(9000).unwrap();
        let names: Vec<&String> = listed.as_object().unwrap().keys().collect();
        let expected = [
            "scaling",
            "theta",
            "head_dim",
            "rotary_dim",
            "pairing",
            "original_context",
            "declared_context",
            "limit",
            "factor",
            "beta_fast",
            "beta_slow",
            "truncate",
            "attention_factor",
        ];
        assert_eq!(names, expected);
        assert_eq!(listed["scaling"], json!({"value": "yarn", "origin": "--scaling"}));
        assert_eq!(listed["limit"]["value"], 262_144);
        assert_eq!(listed["attention_factor"]["origin"], "default 0.1 ln(factor) + 1");
        let magnitude = listed["attention_factor"]["value"].as_f64().unwrap();
        assert!((magnitude - 1.4159).abs() < 1e-4);
    }

    #[test]
    fn d061_a_raised_base_is_listed_beside_the_declared_one() {
        let listed = by_flag(Method::Ntk, Some(4.0)).parameters(9000).unwrap();
        assert_eq!(listed["theta"]["value"], 1e6);
        assert!(listed["effective_theta"]["value"].as_f64().unwrap() > 4e6);
        let dynamic = by_flag(Method::DynamicNtk, None);
        assert!(dynamic.parameters(4096).unwrap().get("effective_theta").is_none());
        let listed = dynamic.parameters(8192).unwrap();
        assert!(listed["effective_theta"]["value"].as_f64().unwrap() > 2e6);
        assert_eq!(listed["limit"], json!({"value": null, "origin": "derived: follows the length"}));
    }

    #[test]
    fn the_list_in_use_depends_on_the_length() {
        let lists = json!({"type": "longrope", "factor": 2.0, "original_max_position_embeddings": 2048,
            "short_factor": [1, 1, 1, 1], "long_factor": [2, 2, 2, 2]});
        let settings = in_force(&declared(lists), &RopeOverrides::default(), 10).unwrap();
        let used = |length| settings.parameters(length).unwrap()["longrope_select"]["value"].clone();
        assert_eq!((used(2048), used(2049)), (json!("short_factor"), json!("long_factor")));
        assert_eq!(settings.parameters(1).unwrap()["long_factor"]["value"], json!([2.0, 2.0, 2.0, 2.0]));
    }

    #[test]
    fn every_method_lists_its_values() {
        for method in Method::ALL.into_iter().filter(|m| !matches!(m, Method::LongRope | Method::Llama3)) {
            let factor = (method != Method::None).then_some(4.0);
            let listed = by_flag(method, factor).parameters(9000).unwrap();
            assert_eq!(listed["scaling"]["value"], method.name());
        }
        let llama3 = json!({"type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4});
        let settings = in_force(&declared(llama3), &RopeOverrides::default(), 10).unwrap();
        assert_eq!(settings.parameters(10).unwrap()["high_freq_factor"]["value"], 4.0);
        let broken = RopeSettings { spec: RopeSpec { theta: 0.0, ..settings.spec.clone() }, ..settings };
        assert!(broken.parameters(10).is_err());
    }
}
