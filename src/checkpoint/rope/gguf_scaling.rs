//! The scaling that the keys and tensors of a GGUF file declare together.

use super::error::{RopeConfigError, quoted};
use super::gguf::{Keys, RopeTensors};
use super::limit::stretched;
use super::origin::Origin;
use super::{Origins, Reading, RopeDeclaration};
use crate::rope::{Divisors, LongRope, LongRopeSelect, Magnitude, Ramp, Scaling, Yarn};

/// Keys under `{architecture}.rope.` that are read.
const KEYS: [&str; 12] = [
    "dimension_count",
    "freq_base",
    "scale_linear",
    "scaling.type",
    "scaling.factor",
    "scaling.original_context_length",
    "scaling.attn_factor",
    "scaling.finetuned",
    "scaling.yarn_ext_factor",
    "scaling.yarn_attn_factor",
    "scaling.yarn_beta_fast",
    "scaling.yarn_beta_slow",
];

/// Values of `rope.scaling.type`.
const TYPES: [&str; 4] = ["none", "linear", "yarn", "longrope"];

/// Base of the frequencies of Llama 3, whose files carry their scaling in `rope_freqs.weight` alone.
const LLAMA3_THETA: f64 = 500_000.0;
/// Context of Llama 3 before its scaling, in tokens.
const LLAMA3_CONTEXT: usize = 8192;

pub(super) struct Reader<'a> {
    keys: Keys<'a>,
    tensors: &'a RopeTensors,
    header: &'a RopeDeclaration,
    origins: Origins,
    notes: Vec<String>,
}

impl<'a> Reader<'a> {
    /// `header`: everything but the scaling.
    pub fn new(keys: Keys<'a>, tensors: &'a RopeTensors, header: &'a RopeDeclaration) -> Reader<'a> {
        Reader { keys, tensors, header, origins: Origins::new(), notes: Vec::new() }
    }

    /// Every key under `rope.` must be one that is read.
    fn check_keys(&self) -> Result<(), RopeConfigError> {
        let prefix = self.keys.full("rope.");
        for (key, value) in self.keys.meta.iter() {
            let Some(name) = key.strip_prefix(&prefix) else { continue };
            let reason = match name {
                "dimension_sections" => "positions with several axes are not rotated here",
                "freq_base_swa" if self.header.local_theta.is_some() => continue,
                "freq_base_swa" | "dimension_count_swa" => {
                    "layers with a short window share the embedding here"
                }
                "scaling.alpha" => "give the method as `--scaling ntk --factor F`",
                "scaling.yarn_log_multiplier" => "the magnitude of this family is not known here",
                known if KEYS.contains(&known) => continue,
                _ => {
                    return Err(RopeConfigError::UnknownKey {
                        key: key.to_owned(),
                        found: value.to_string(),
                        rope_type: "rope".to_owned(),
                        accepted: quoted(KEYS),
                    });
                }
            };
            return Err(self.keys.unsupported(&format!("rope.{name}"), reason));
        }
        Ok(())
    }

    /// The factor from its key or the older one; 0 means none, as in llama.cpp.
    fn factor(&mut self) -> Result<f64, RopeConfigError> {
        let (new, old) = ("rope.scaling.factor", "rope.scale_linear");
        let (given, legacy) = (self.keys.f64(new)?, self.keys.f64(old)?);
        if let (Some(a), Some(b)) = (given, legacy)
            && a != b
        {
            return Err(RopeConfigError::Conflict {
                first: self.keys.said(new),
                second: self.keys.said(old),
            });
        }
        let name = if given.is_some() { new } else { old };
        let factor = match given.or(legacy) {
            None => return Ok(1.0),
            Some(0.0) => {
                self.notes.push(format!("{} means no scaling", self.keys.said(name)));
                1.0
            }
            Some(factor) => factor,
        };
        self.origins.extend(self.keys.origin(name).map(|origin| ("factor", origin)));
        Ok(factor)
    }

    /// The type as written. A missing one means linear when there is a factor, else none.
    fn scaling_type(&mut self, factor: f64) -> Result<&'static str, RopeConfigError> {
        let name = "rope.scaling.type";
        if let Some(text) = self.keys.str(name)? {
            self.origins.extend(self.keys.origin(name).map(|origin| ("scaling", origin)));
            return TYPES.into_iter().find(|t| *t == text).ok_or_else(|| RopeConfigError::UnknownType {
                found: text.to_owned(),
                accepted: quoted(TYPES),
            });
        }
        if factor == 1.0 && self.tensors.factors_long.is_some() && self.tensors.factors_short.is_some() {
            let why = "longrope, because there are two lists of divisors";
            self.origins.insert("scaling", Origin::default(why));
            return Ok("longrope");
        }
        if factor == 1.0 {
            self.origins.insert("scaling", Origin::default("none"));
            return Ok("none");
        }
        self.origins.insert("scaling", Origin::default("linear, because there is a factor"));
        let key = self.keys.full(name);
        self.notes
            .push(format!("the file has a rope factor of {factor} and no `{key}`: linear scaling is used"));
        Ok("linear")
    }

    /// The scaling that keys and tensors declare together.
    ///
    /// # Errors
    /// [`RopeConfigError`] for an unknown key or type, a value of another type, or things that would stack.
    pub fn read(mut self) -> Result<Reading, RopeConfigError> {
        self.check_keys()?;
        let written = self.factor()?;
        let kind = self.scaling_type(written)?;
        let factor = if kind == "none" { 1.0 } else { written };
        if factor != written {
            self.origins.remove("factor");
            self.notes.push(format!("a rope factor of {written} is not used by scaling type `none`"));
        }
        let attention = self.keys.f64("rope.scaling.attn_factor")?;
        if kind != "yarn" {
            self.note_unused_yarn_keys(kind);
        }
        let (scaling, reach) = match self.divisors(kind, factor, attention)? {
            Some(scaling) => (scaling, 1.0),
            None => match kind {
                "yarn" => (Scaling::Yarn(self.yarn(factor, attention)?), factor),
                "longrope" => self.longrope(written, attention)?,
                _ => (self.uniform(factor, attention), factor),
            },
        };
        let from = if matches!(kind, "yarn" | "longrope") {
            self.header.original_context
        } else {
            self.header.declared_context
        };
        let limit = stretched(from, reach)?;
        let how = if reach == 1.0 { "the whole context" } else { "context x factor" };
        self.origins.insert("limit", Origin::derived(how));
        self.warn_about_llama3(&scaling);
        Ok(Reading {
            scaling,
            original_context: self.header.original_context,
            limit,
            fine_tuned: self.keys.meta.bool(&self.keys.full("rope.scaling.finetuned"))?,
            origins: self.origins,
            notes: self.notes,
        })
    }

    /// The scaling in `rope_freqs.weight`, if there is one. It would stack on any other in llama.cpp; here the two
    /// contradict each other.
    fn divisors(
        &mut self,
        kind: &str,
        factor: f64,
        attention: Option<f64>,
    ) -> Result<Option<Scaling>, RopeConfigError> {
        let lists = [
            ("rope_factors_long", &self.tensors.factors_long),
            ("rope_factors_short", &self.tensors.factors_short),
        ];
        if let Some((name, _)) = lists.into_iter().find(|(_, list)| list.is_some() && kind != "longrope") {
            return Err(RopeConfigError::Conflict {
                first: format!("the tensor `{name}.weight`"),
                second: format!("scaling type `{kind}`"),
            });
        }
        let Some(list) = self.tensors.rope_freqs.as_ref().filter(|list| list.iter().any(|d| *d != 1.0))
        else {
            return Ok(None);
        };
        if kind != "none" || factor != 1.0 {
            return Err(RopeConfigError::Conflict {
                first: "the tensor `rope_freqs.weight`".to_owned(),
                second: format!("scaling type `{kind}` with factor `{factor}`"),
            });
        }
        let origin = Origin::Checkpoint("rope_freqs.weight in the GGUF".to_owned());
        self.origins.insert("scaling", origin.clone());
        self.origins.insert("rope_freqs", origin);
        self.attention_origin(attention, Origin::default(1));
        Ok(Some(Scaling::Divisors(Divisors {
            divisors: list.iter().map(|d| f64::from(*d)).collect(),
            attention_factor: attention.unwrap_or(1.0),
        })))
    }

    fn note_unused_yarn_keys(&mut self, kind: &str) {
        for key in KEYS.iter().filter(|key| key.starts_with("scaling.yarn_")) {
            let key = format!("rope.{key}");
            if self.keys.meta.get(&self.keys.full(&key)).is_some() {
                self.notes.push(format!("{} is not used by scaling type `{kind}`", self.keys.said(&key)));
            }
        }
    }

    fn attention_origin(&mut self, attention: Option<f64>, default: Origin) {
        let origin = attention.and_then(|_| self.keys.origin("rope.scaling.attn_factor"));
        self.origins.insert("attention_factor", origin.unwrap_or(default));
    }

    /// No scaling or linear scaling; with a factor on cos and sin it takes the form of divisors.
    fn uniform(&mut self, factor: f64, attention: Option<f64>) -> Scaling {
        match attention {
            Some(attention_factor) if attention_factor != 1.0 => {
                self.attention_origin(attention, Origin::default(1));
                self.origins.insert("rope_freqs", Origin::derived("the factor for every pair"));
                Scaling::Divisors(Divisors { divisors: vec![factor; self.header.pairs()], attention_factor })
            }
            _ if factor == 1.0 => Scaling::None,
            _ => Scaling::Linear { factor },
        }
    }

    /// A number of the YaRN ramp. The file's value is used, so that it runs like the checkpoint it was made from.
    fn beta(&mut self, name: &'static str, key: &str, default: f64) -> Result<f64, RopeConfigError> {
        let found = self.keys.f64(key)?;
        self.origins.insert(name, self.keys.origin(key).unwrap_or_else(|| Origin::default(default)));
        if found.is_some_and(|beta| beta != default) {
            self.notes.push(format!("{} is used; llama.cpp would use {default} here", self.keys.said(key)));
        }
        Ok(found.unwrap_or(default))
    }

    fn yarn(&mut self, factor: f64, attention: Option<f64>) -> Result<Yarn, RopeConfigError> {
        // -1 is llama.cpp's word for "as the type says".
        if self.keys.f64("rope.scaling.yarn_ext_factor")?.is_some_and(|mix| mix != 1.0 && mix != -1.0) {
            return Err(self.keys.unsupported("rope.scaling.yarn_ext_factor", "the ramp is applied in full"));
        }
        let ramp = Ramp {
            beta_fast: self.beta("beta_fast", "rope.scaling.yarn_beta_fast", Ramp::default().beta_fast)?,
            beta_slow: self.beta("beta_slow", "rope.scaling.yarn_beta_slow", Ramp::default().beta_slow)?,
            truncate: true,
        };
        self.origins.insert("truncate", Origin::default(true));
        if !self.origins.contains_key("factor") {
            let key = self.keys.full("rope.scaling.factor");
            self.origins.insert("factor", Origin::default("1, because the file has no factor"));
            self.notes
                .push(format!("scaling type `yarn` without `{key}` stretches nothing, as in llama.cpp"));
        }
        if self.keys.f64("rope.scaling.yarn_attn_factor")?.is_some() {
            self.notes.push(format!(
                "{} is not used, as in llama.cpp; give `--scaling yarn` with `--attention-factor` if the model needs it",
                self.keys.said("rope.scaling.yarn_attn_factor")
            ));
        }
        self.attention_origin(attention, Origin::default("0.1 ln(factor) + 1"));
        let magnitude = match attention {
            Some(multiplier) if multiplier != 1.0 => Magnitude::Multiplied(multiplier),
            _ => Magnitude::Default,
        };
        let ratio = self.header.declared_context as f64 / self.header.original_context as f64;
        if ratio != 1.0 && (ratio - factor).abs() > 1e-6 * factor.abs() {
            self.notes.push(format!(
                "a rope factor of {factor} is used although the context of {} over the original {} is {ratio}",
                self.header.declared_context, self.header.original_context
            ));
        }
        Ok(Yarn { factor, ramp, magnitude })
    }

    /// LongRoPE from its two tensors, and the stretch of the context. The factor is always the ratio of the contexts.
    fn longrope(&mut self, written: f64, attention: Option<f64>) -> Result<(Scaling, f64), RopeConfigError> {
        let list = |name: &str, list: &Option<Vec<f32>>| {
            let list = list.as_ref().ok_or_else(|| RopeConfigError::Missing {
                key: format!("{name}.weight"),
                needed_by: "scaling type `longrope`".to_owned(),
            })?;
            Ok::<Vec<f64>, RopeConfigError>(list.iter().map(|d| f64::from(*d)).collect())
        };
        let long_factor = list("rope_factors_long", &self.tensors.factors_long)?;
        let short_factor = list("rope_factors_short", &self.tensors.factors_short)?;
        for (name, tensor) in [("long_factor", "rope_factors_long"), ("short_factor", "rope_factors_short")] {
            self.origins.insert(name, Origin::Checkpoint(format!("{tensor}.weight in the GGUF")));
        }
        let factor = self.header.declared_context as f64 / self.header.original_context as f64;
        if written != 1.0 && (written - factor).abs() > 1e-6 * factor {
            self.notes.push(format!(
                "a rope factor of {written} is not used: for `longrope` the ratio of the contexts, {factor}, counts"
            ));
        }
        self.origins.insert("factor", Origin::derived("context_length / original_context"));
        self.origins.insert("longrope_select", Origin::default("auto"));
        self.attention_origin(attention, Origin::default(1));
        if attention.is_none() && factor > 1.0 {
            let key = self.keys.full("rope.scaling.attn_factor");
            self.notes
                .push(format!("the file has no `{key}`; cos and sin are not enlarged, as in llama.cpp"));
        }
        let scaling = LongRope {
            short_factor,
            long_factor,
            factor,
            attention_factor: Some(attention.unwrap_or(1.0)),
            select: LongRopeSelect::Auto,
        };
        Ok((Scaling::LongRope(scaling), factor))
    }

    /// A Llama 3.1 or later without its divisors runs unscaled, and nothing in the file says so.
    fn warn_about_llama3(&mut self, scaling: &Scaling) {
        let looks_like_it = self.keys.architecture == "llama"
            && self.header.theta == LLAMA3_THETA
            && self.header.declared_context > LLAMA3_CONTEXT;
        if looks_like_it && *scaling == Scaling::None {
            self.notes.push(format!(
                "the file looks like Llama 3.1 or later and has no `rope_freqs.weight`, so it runs unscaled; if it is \
                 one, give `--scaling llama3 --factor 8 --original-context {LLAMA3_CONTEXT}` (factor 32 for Llama 3.2)"
            ));
        }
    }
}
