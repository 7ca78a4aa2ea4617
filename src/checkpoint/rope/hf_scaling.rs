//! The scaling in a Hugging Face rope dictionary, from a config or from `--rope-parameters`.

use serde_json::Value;

use super::dictionary::Dictionary;
use super::error::{RopeConfigError, quoted};
use super::hf::{ORIGINAL, PARTIAL, THETA};
use super::limit::stretched;
use super::origin::Origin;
use super::{Origins, Reading};
use crate::rope::{Llama3, LongRope, LongRopeSelect, Magnitude, Ramp, Scaling, Yarn};

/// A value of `rope_type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RopeType {
    Default,
    Linear,
    Dynamic,
    Yarn,
    LongRope,
    Llama3,
    Proportional,
}

use RopeType as T;

impl RopeType {
    const ALL: [RopeType; 7] =
        [T::Default, T::Linear, T::Dynamic, T::Yarn, T::LongRope, T::Llama3, T::Proportional];

    const fn name(self) -> &'static str {
        match self {
            T::Default => "default",
            T::Linear => "linear",
            T::Dynamic => "dynamic",
            T::Yarn => "yarn",
            T::LongRope => "longrope",
            T::Llama3 => "llama3",
            T::Proportional => "proportional",
        }
    }

    fn parse(text: &str) -> Result<RopeType, RopeConfigError> {
        // Phi-3 checkpoints of the first weeks call it `su`.
        let name = if text == "su" { "longrope" } else { text };
        RopeType::ALL.into_iter().find(|t| t.name() == name).ok_or_else(|| RopeConfigError::UnknownType {
            found: text.to_owned(),
            accepted: quoted(RopeType::ALL.iter().map(|t| t.name()).chain(["su"])),
        })
    }
}

/// Keys with a meaning, and the types that read them.
const KEYS: [(&str, &[RopeType]); 17] = [
    ("rope_type", &RopeType::ALL),
    ("type", &RopeType::ALL),
    (THETA, &RopeType::ALL),
    (PARTIAL, &RopeType::ALL),
    ("factor", &[T::Linear, T::Dynamic, T::Yarn, T::LongRope, T::Llama3, T::Proportional]),
    (ORIGINAL, &[T::Linear, T::Yarn, T::LongRope, T::Llama3]),
    ("attention_factor", &[T::Yarn, T::LongRope]),
    ("attn_factor", &[T::Yarn]),
    ("beta_fast", &[T::Yarn]),
    ("beta_slow", &[T::Yarn]),
    ("mscale", &[T::Yarn]),
    ("mscale_all_dim", &[T::Yarn]),
    ("truncate", &[T::Yarn]),
    ("short_factor", &[T::LongRope]),
    ("long_factor", &[T::LongRope]),
    ("low_freq_factor", &[T::Llama3]),
    ("high_freq_factor", &[T::Llama3]),
];

/// Keys that are known and cannot be honoured.
const REFUSED: [(&str, &str); 7] = [
    ("mrope_section", "positions with several axes are not rotated here"),
    ("mrope_interleaved", "positions with several axes are not rotated here"),
    ("short_mscale", "one magnitude serves both lists"),
    ("long_mscale", "one magnitude serves both lists"),
    ("alpha", "give the method as `--scaling ntk --factor F`"),
    ("extrapolation_factor", "the ramp is applied in full"),
    ("llama_4_scaling_beta", "queries would be scaled by position"),
];

/// What a dictionary is read against.
pub(super) struct Context {
    /// Tokens, `max_position_embeddings`.
    pub declared_context: usize,
    /// Tokens from which `dynamic` counts.
    pub dynamic_context: usize,
    /// Tokens before scaling, where something names them.
    pub original: Option<usize>,
    pub head_dim: usize,
    /// Rotated lanes.
    pub rotary_dim: usize,
    /// Pairs that turn when the rest of the head rests.
    pub rotated_pairs: usize,
}

impl Context {
    /// With `share` of the head rotating, rounded down to whole lanes or pairs.
    pub fn with_share(self, share: f64) -> Context {
        let lanes = self.head_dim as f64 * share;
        Context { rotary_dim: lanes as usize, rotated_pairs: (lanes / 2.0) as usize, ..self }
    }

    /// Rotated lanes: all of the head where the method leaves pairs at rest itself.
    pub fn rotary_dim(&self, rope_type: RopeType) -> usize {
        match rope_type {
            T::Proportional => self.head_dim,
            _ => self.rotary_dim,
        }
    }
}

/// Reads the scaling of `dictionary`; an empty one is plain rotation.
///
/// # Errors
/// [`RopeConfigError`] for an unknown type or key, a value of another type, a missing key or a contradiction.
pub(super) fn read_scaling(
    dictionary: &Dictionary,
    context: &Context,
) -> Result<(Reading, RopeType), RopeConfigError> {
    let rope_type = rope_type(dictionary)?;
    let mut reader = Reader {
        dictionary,
        context,
        rope_type,
        origins: Origins::new(),
        notes: Vec::new(),
        fine_tuned: None,
    };
    reader.check_keys()?;
    let origin = dictionary.origin("rope_type").or_else(|| dictionary.origin("type"));
    reader.origins.insert("scaling", origin.unwrap_or_else(|| Origin::default("none")));
    Ok((reader.read()?, rope_type))
}

/// The type, from `rope_type` or its older spelling `type`.
fn rope_type(dictionary: &Dictionary) -> Result<RopeType, RopeConfigError> {
    let new = dictionary.text("rope_type")?.map(RopeType::parse).transpose()?;
    let old = dictionary.text("type")?.map(RopeType::parse).transpose()?;
    match (new, old) {
        (Some(a), Some(b)) if a != b => Err(RopeConfigError::Conflict {
            first: dictionary.said("rope_type"),
            second: dictionary.said("type"),
        }),
        (Some(found), _) | (None, Some(found)) => Ok(found),
        (None, None) => match dictionary.iter().find(|(key, _)| ![THETA, PARTIAL, ORIGINAL].contains(key)) {
            None => Ok(T::Default),
            Some((_, Value::Object(_))) => Ok(T::Default),
            Some((key, _)) => Err(RopeConfigError::Missing {
                key: dictionary.path("rope_type"),
                needed_by: format!("`{key}`"),
            }),
        },
    }
}

struct Reader<'a> {
    dictionary: &'a Dictionary,
    context: &'a Context,
    rope_type: RopeType,
    origins: Origins,
    notes: Vec<String>,
    fine_tuned: Option<bool>,
}

impl Reader<'_> {
    /// Every key must mean something to the type.
    fn check_keys(&mut self) -> Result<(), RopeConfigError> {
        let dictionary = self.dictionary;
        for (key, value) in dictionary.iter() {
            let (path, found) = (dictionary.path(key), value.to_string());
            let refused =
                |reason| RopeConfigError::Unsupported { key: path.clone(), found: found.clone(), reason };
            if value.is_object() {
                return Err(refused("a dictionary per layer type is not read"));
            }
            if key == "finetuned" {
                self.fine_tuned = dictionary.flag(key)?;
                continue;
            }
            if key == "extrapolation_factor" && value.as_f64() == Some(1.0) {
                continue;
            }
            if let Some((_, reason)) = REFUSED.iter().find(|(name, _)| *name == key) {
                return Err(refused(reason));
            }
            match KEYS.iter().find(|(name, _)| *name == key) {
                Some((_, types)) if types.contains(&self.rope_type) => {}
                Some((ORIGINAL, _)) => self.notes.push(format!(
                    "{} is not used by `{}`",
                    dictionary.said(key),
                    self.rope_type.name()
                )),
                Some((_, types)) => return Err(self.unused(path, found, types)),
                None => return Err(self.unknown(path, found)),
            }
        }
        Ok(())
    }

    fn unused(&self, key: String, found: String, types: &[RopeType]) -> RopeConfigError {
        RopeConfigError::UnusedKey {
            key,
            found,
            rope_type: self.rope_type.name().to_owned(),
            used_by: quoted(types.iter().map(|t| t.name())),
        }
    }

    fn unknown(&self, key: String, found: String) -> RopeConfigError {
        let accepted =
            KEYS.iter().filter(|(_, types)| types.contains(&self.rope_type)).map(|(name, _)| *name);
        RopeConfigError::UnknownKey {
            key,
            found,
            rope_type: self.rope_type.name().to_owned(),
            accepted: quoted(accepted),
        }
    }

    fn read(mut self) -> Result<Reading, RopeConfigError> {
        let declared = self.context.declared_context;
        // Formulas of `dynamic` count from the declared context, whatever else is written.
        let original = match self.rope_type {
            T::Dynamic => self.context.dynamic_context,
            _ => self.context.original.unwrap_or(declared),
        };
        if self.rope_type == T::Dynamic {
            self.origins.insert("original_context", Origin::derived("max_position_embeddings"));
        }
        let scaling = match self.rope_type {
            T::Default => Scaling::None,
            T::Linear => Scaling::Linear { factor: self.factor()? },
            T::Dynamic => Scaling::DynamicNtk { factor: self.factor()? },
            T::Yarn => Scaling::Yarn(self.yarn(original)?),
            T::LongRope => Scaling::LongRope(self.longrope(original)?),
            T::Llama3 => Scaling::Llama3(self.llama3()?),
            T::Proportional => self.proportional()?,
        };
        let (limit, why) = match self.rope_type {
            T::Default | T::Llama3 | T::Proportional => (declared, "max_position_embeddings"),
            _ => (stretched(original, scaling.factor().unwrap_or(1.0))?, "original_context x factor"),
        };
        self.origins.insert("limit", Origin::derived(why));
        let Reader { origins, notes, fine_tuned, .. } = self;
        Ok(Reading { scaling, original_context: original, limit, fine_tuned, origins, notes })
    }

    /// A number with a default, and where it came from.
    fn number_or(&mut self, key: &'static str, default: f64) -> Result<f64, RopeConfigError> {
        let found = self.dictionary.number(key)?;
        self.origins.insert(key, self.dictionary.origin(key).unwrap_or_else(|| Origin::default(default)));
        Ok(found.unwrap_or(default))
    }

    fn missing(&self, key: &str) -> RopeConfigError {
        RopeConfigError::Missing {
            key: self.dictionary.path(key),
            needed_by: format!("`{}`", self.rope_type.name()),
        }
    }

    /// A number that must be there.
    fn number(&mut self, key: &'static str) -> Result<f64, RopeConfigError> {
        let found = self.dictionary.number(key)?.ok_or_else(|| self.missing(key))?;
        self.origins.extend(self.dictionary.origin(key).map(|origin| (key, origin)));
        Ok(found)
    }

    fn factor(&mut self) -> Result<f64, RopeConfigError> {
        self.number("factor")
    }

    /// The factor, or the ratio of the two contexts when only they are given. A factor that is given wins.
    fn factor_or_ratio(&mut self, original: usize) -> Result<f64, RopeConfigError> {
        let ratio = self.context.declared_context as f64 / original as f64;
        if !self.dictionary.has("factor") {
            if self.context.original.is_none() {
                return Err(self.missing("factor"));
            }
            let how = "max_position_embeddings / original_max_position_embeddings";
            self.origins.insert("factor", Origin::derived(how));
            return Ok(ratio);
        }
        let factor = self.factor()?;
        if ratio != 1.0 && (ratio - factor).abs() > 1e-9 * factor.abs() {
            self.notes.push(format!(
                "{} is used although max_position_embeddings {} over original_max_position_embeddings {original} \
                 is {ratio}",
                self.dictionary.said("factor"),
                self.context.declared_context
            ));
        }
        Ok(factor)
    }

    fn yarn(&mut self, original: usize) -> Result<Yarn, RopeConfigError> {
        let factor = self.factor_or_ratio(original)?;
        let ramp = Ramp {
            beta_fast: self.number_or("beta_fast", Ramp::default().beta_fast)?,
            beta_slow: self.number_or("beta_slow", Ramp::default().beta_slow)?,
            truncate: self.dictionary.flag("truncate")?.unwrap_or(true),
        };
        let truncate = self.dictionary.origin("truncate").unwrap_or_else(|| Origin::default(true));
        self.origins.insert("truncate", truncate);
        Ok(Yarn { factor, ramp, magnitude: self.magnitude()? })
    }

    /// Which rule gives the magnitude: `attention_factor` is final, `attn_factor` multiplies the default, and the two
    /// mscale values count only together and above 0.
    fn magnitude(&mut self) -> Result<Magnitude, RopeConfigError> {
        let d = self.dictionary;
        let given = |key| Ok::<_, RopeConfigError>(d.number(key)?.filter(|v| *v != 0.0));
        let explicit = d.number("attention_factor")?;
        let multiplier = d.number("attn_factor")?;
        let pair = (given("mscale")?, given("mscale_all_dim")?);
        if multiplier.is_some() && (explicit.is_some() || pair.0.is_some() && pair.1.is_some()) {
            let other = if explicit.is_some() { "attention_factor" } else { "mscale" };
            return Err(RopeConfigError::Conflict { first: d.said("attn_factor"), second: d.said(other) });
        }
        let (magnitude, key) = match (explicit, multiplier, pair) {
            (Some(value), ..) => (Magnitude::Final(value), Some("attention_factor")),
            (None, Some(value), _) => (Magnitude::Multiplied(value), Some("attn_factor")),
            (None, None, (Some(mscale), Some(mscale_all_dim))) => {
                (Magnitude::Ratio { mscale, mscale_all_dim }, Some("mscale"))
            }
            _ => (Magnitude::Default, None),
        };
        let pair_used = matches!(magnitude, Magnitude::Ratio { .. });
        for key in ["mscale", "mscale_all_dim"] {
            if pair_used {
                self.origins.extend(d.origin(key).map(|origin| (key, origin)));
            } else if d.has(key) {
                let text = "is not used: both mscale values above 0 and no attention factor are needed";
                self.notes.push(format!("{} {text}", d.said(key)));
            }
        }
        let origin =
            key.and_then(|key| d.origin(key)).unwrap_or_else(|| Origin::default("0.1 ln(factor) + 1"));
        self.origins.insert("attention_factor", origin);
        Ok(magnitude)
    }

    fn longrope(&mut self, original: usize) -> Result<LongRope, RopeConfigError> {
        let factor = self.factor_or_ratio(original)?;
        let attention_factor = self.dictionary.number("attention_factor")?;
        let formula = || Origin::default("sqrt(1 + ln(factor) / ln(original_context))");
        let origin = self.dictionary.origin("attention_factor").unwrap_or_else(formula);
        self.origins.insert("attention_factor", origin);
        self.origins.insert("longrope_select", Origin::default("auto"));
        let list = |key: &'static str| {
            let found = self.dictionary.numbers(key)?.ok_or_else(|| self.missing(key))?;
            Ok::<_, RopeConfigError>((found, self.dictionary.origin(key)))
        };
        let (short_factor, short_origin) = list("short_factor")?;
        let (long_factor, long_origin) = list("long_factor")?;
        self.origins.extend(short_origin.map(|o| ("short_factor", o)));
        self.origins.extend(long_origin.map(|o| ("long_factor", o)));
        Ok(LongRope { short_factor, long_factor, factor, attention_factor, select: LongRopeSelect::Auto })
    }

    fn llama3(&mut self) -> Result<Llama3, RopeConfigError> {
        Ok(Llama3 {
            factor: self.factor()?,
            low_freq_factor: self.number("low_freq_factor")?,
            high_freq_factor: self.number("high_freq_factor")?,
        })
    }

    fn proportional(&mut self) -> Result<Scaling, RopeConfigError> {
        let rotated_pairs = self.context.rotated_pairs;
        Ok(Scaling::Proportional { factor: self.number_or("factor", 1.0)?, rotated_pairs })
    }
}
