//! The rotary embedding in force, and its description for reports.

use serde_json::{Map, Value, json};

use super::{Origin, Origins};
use crate::rope::{Magnitude, Pairing, Ramp, RopeError, RopeSpec, Scaling, effective_base, frequencies};

/// The one rotary embedding that a run uses.
#[derive(Debug, Clone, PartialEq)]
pub struct RopeSettings {
    pub spec: RopeSpec,
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
