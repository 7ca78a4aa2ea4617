//! Rope keys and tensors of a GGUF file.
//!
//! Source of the meaning of every key: llama.cpp, `src/llama-arch.cpp` for names, `src/llama-model.cpp` and
//! `src/llama-context.cpp` for defaults and for what a llama or qwen model does with them.

use super::error::RopeConfigError;
use super::gguf_scaling::Reader;
use super::limit::believed;
use super::origin::Origin;
use super::{DEFAULT_THETA, HeadLayout, Origins, RopeDeclaration};
use crate::checkpoint::gguf::Metadata;
use crate::rope::Scaling;

/// Tensors that change the rotation; `None` where the file has none.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RopeTensors {
    /// `rope_freqs.weight`: divisors, one per rotated pair.
    pub rope_freqs: Option<Vec<f32>>,
    /// `rope_factors_long.weight`: LongRoPE divisors for long texts.
    pub factors_long: Option<Vec<f32>>,
    /// `rope_factors_short.weight`: LongRoPE divisors for short texts.
    pub factors_short: Option<Vec<f32>>,
}

/// Reads the rope keys and tensors of a GGUF file.
///
/// A scaling that cannot be used does not fail here: it is the error in [`RopeDeclaration::scaling`], because flags
/// may replace it.
///
/// # Errors
/// [`RopeConfigError::Metadata`] for a missing or malformed architecture, context, width or base.
pub fn from_gguf(
    meta: &Metadata,
    tensors: &RopeTensors,
    layout: HeadLayout,
) -> Result<RopeDeclaration, RopeConfigError> {
    let keys = Keys { meta, architecture: meta.architecture()? };
    let (mut origins, mut notes) = (Origins::new(), Vec::new());
    let context_key = keys.full("context_length");
    let declared_context = meta.required(&context_key, meta.usize(&context_key)?)?;
    let declared_context = believed(&context_key, declared_context)?;
    let rotary_dim = keys.usize("rope.dimension_count")?;
    let theta = keys.f64("rope.freq_base")?;
    let original = keys.usize("rope.scaling.original_context_length")?;
    if theta.is_none() {
        notes.push(format!("the file has no `{}`; {DEFAULT_THETA} is used", keys.full("rope.freq_base")));
    }
    let or = |name, default| keys.origin(name).unwrap_or(default);
    origins.insert("pairing", Origin::derived("architecture"));
    origins.insert("declared_context", or("context_length", Origin::derived("")));
    origins.insert("rotary_dim", or("rope.dimension_count", Origin::default("head_dim")));
    origins.insert("theta", or("rope.freq_base", Origin::default(DEFAULT_THETA)));
    let context_origin = or("rope.scaling.original_context_length", Origin::derived(&context_key));
    origins.insert("original_context", context_origin);
    let declaration = RopeDeclaration {
        theta: theta.unwrap_or(DEFAULT_THETA),
        rotary_dim: rotary_dim.unwrap_or(layout.head_dim),
        head_dim: layout.head_dim,
        pairing: layout.pairing,
        declared_context,
        original_context: original.unwrap_or(declared_context),
        scaling: Ok(Scaling::None),
        limit: declared_context,
        fine_tuned: None,
        origins,
        notes,
        scaling_notes: Vec::new(),
    };
    let reading = Reader::new(keys, tensors, &declaration).read();
    Ok(declaration.adopt(reading))
}

/// Metadata keys of one architecture.
#[derive(Clone, Copy)]
pub(super) struct Keys<'a> {
    pub meta: &'a Metadata,
    pub architecture: &'a str,
}

impl<'a> Keys<'a> {
    pub fn full(&self, name: &str) -> String {
        format!("{}.{name}", self.architecture)
    }

    pub fn usize(&self, name: &str) -> Result<Option<usize>, RopeConfigError> {
        let key = self.full(name);
        self.meta.usize(&key)?.map(|count| believed(&key, count)).transpose()
    }

    pub fn f64(&self, name: &str) -> Result<Option<f64>, RopeConfigError> {
        Ok(self.meta.f64(&self.full(name))?)
    }

    pub fn str(&self, name: &str) -> Result<Option<&'a str>, RopeConfigError> {
        Ok(self.meta.str(&self.full(name))?)
    }

    pub fn found(&self, name: &str) -> Option<String> {
        self.meta.get(&self.full(name)).map(ToString::to_string)
    }

    pub fn origin(&self, name: &str) -> Option<Origin> {
        let key = self.full(name);
        self.meta.get(&key)?;
        Some(Origin::Checkpoint(format!("{key} in the GGUF")))
    }

    /// Key and value in words.
    pub fn said(&self, name: &str) -> String {
        format!("`{}` = `{}`", self.full(name), self.found(name).unwrap_or_default())
    }

    pub fn unsupported(&self, name: &str, reason: &'static str) -> RopeConfigError {
        let found = self.found(name).unwrap_or_default();
        RopeConfigError::Unsupported { key: self.full(name), found, reason }
    }
}
