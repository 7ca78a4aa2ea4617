//! Rope keys and tensors of a GGUF file.
//!
//! Source of the meaning of every key: llama.cpp, `src/llama-arch.cpp` for names, `src/llama-model.cpp` and
//! `src/llama-context.cpp` for defaults and for what a llama or qwen model does with them.

use super::error::RopeConfigError;
use super::gguf_scaling::Reader;
use super::limit::believed;
use super::origin::Origin;
use super::{DEFAULT_THETA, HeadLayout, LayerBases, Origins, RopeDeclaration};
use crate::checkpoint::gguf::Metadata;
use crate::rope::Scaling;

/// Key of the base of layers with a short window.
const LOCAL_THETA: &str = "rope.freq_base_swa";

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
    read(meta, tensors, layout, None)
}

/// [`from_gguf`] for a family whose layers with a short window have a base of their own, `rope.freq_base_swa`.
///
/// # Errors
/// As [`from_gguf`].
pub fn from_gguf_layered(
    meta: &Metadata,
    tensors: &RopeTensors,
    layout: HeadLayout,
    bases: LayerBases,
) -> Result<RopeDeclaration, RopeConfigError> {
    read(meta, tensors, layout, Some(bases))
}

fn read(
    meta: &Metadata,
    tensors: &RopeTensors,
    layout: HeadLayout,
    bases: Option<LayerBases>,
) -> Result<RopeDeclaration, RopeConfigError> {
    let keys = Keys { meta, architecture: meta.architecture()? };
    let (mut origins, mut notes) = (Origins::new(), Vec::new());
    let context_key = keys.full("context_length");
    let declared_context = meta.required(&context_key, meta.usize(&context_key)?)?;
    let declared_context = believed(&context_key, declared_context)?;
    let rotary_dim = keys.usize("rope.dimension_count")?;
    let theta = keys.f64("rope.freq_base")?;
    let original = keys.usize("rope.scaling.original_context_length")?;
    let default_theta = bases.map_or(DEFAULT_THETA, |bases| bases.theta);
    if theta.is_none() {
        notes.push(format!("the file has no `{}`; {default_theta} is used", keys.full("rope.freq_base")));
    }
    let local_theta = match bases {
        None => None,
        Some(bases) => Some(keys.f64(LOCAL_THETA)?.unwrap_or(bases.local_theta)),
    };
    let or = |name, default| keys.origin(name).unwrap_or(default);
    origins.insert("pairing", Origin::derived("architecture"));
    origins.insert("declared_context", or("context_length", Origin::derived("")));
    origins.insert("rotary_dim", or("rope.dimension_count", Origin::default("head_dim")));
    origins.insert("theta", or("rope.freq_base", Origin::default(default_theta)));
    if let Some(bases) = bases {
        origins.insert("local_theta", or(LOCAL_THETA, Origin::default(bases.local_theta)));
    }
    let context_origin = or("rope.scaling.original_context_length", Origin::derived(&context_key));
    origins.insert("original_context", context_origin);
    let declaration = RopeDeclaration {
        theta: theta.unwrap_or(default_theta),
        local_theta,
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
    let declaration = declaration.adopt(reading);
    Ok(if bases.is_some() { declaration.reaching_what_is_declared() } else { declaration })
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::gguf::Value;
    use crate::rope::{Divisors, Magnitude, Pairing, Yarn};

    /// A file of architecture `llama` with 4096 declared tokens and these keys under `llama.rope.`.
    fn declared(keys: &[(&str, Value)], tensors: &RopeTensors) -> RopeDeclaration {
        let fixed = [
            ("general.architecture".to_owned(), Value::String("llama".into())),
            ("llama.context_length".to_owned(), Value::U32(4096)),
        ];
        let keys = keys.iter().map(|(name, value)| (format!("llama.rope.{name}"), value.clone()));
        let meta = Metadata::from_entries("m.gguf", fixed.into_iter().chain(keys)).unwrap();
        let layout = HeadLayout { head_dim: 8, pairing: Pairing::Adjacent };
        from_gguf(&meta, tensors, layout).unwrap()
    }

    fn text(name: &str) -> Value {
        Value::String(name.to_owned())
    }

    fn freqs(list: &[f32]) -> RopeTensors {
        RopeTensors { rope_freqs: Some(list.to_vec()), ..RopeTensors::default() }
    }

    fn refusal(keys: &[(&str, Value)], tensors: &RopeTensors) -> String {
        declared(keys, tensors).scaling.unwrap_err().to_string()
    }

    const NO_TENSORS: RopeTensors = RopeTensors { rope_freqs: None, factors_long: None, factors_short: None };

    #[test]
    fn d049_a_file_without_theta_says_so() {
        let found = declared(&[], &NO_TENSORS);
        assert_eq!((found.theta, found.rotary_dim, found.limit), (10_000.0, 8, 4096));
        assert_eq!(found.notes, ["the file has no `llama.rope.freq_base`; 10000 is used"]);
        let found =
            declared(&[("freq_base", Value::F32(5e5)), ("dimension_count", Value::U16(4))], &NO_TENSORS);
        assert_eq!((found.theta, found.rotary_dim, found.notes.len()), (5e5, 4, 0));
        assert_eq!(found.origins["theta"].to_string(), "llama.rope.freq_base in the GGUF");
    }

    #[test]
    fn d068_the_old_factor_key_is_linear() {
        let found = declared(&[("scale_linear", Value::F32(4.0))], &NO_TENSORS);
        assert_eq!(found.scaling, Ok(Scaling::Linear { factor: 4.0 }));
        assert_eq!(found.limit, 16_384);
        assert!(found.scaling_notes[0].contains("linear scaling is used"));
        let both = [("scale_linear", Value::F32(4.0)), ("scaling.factor", Value::F32(2.0))];
        assert!(refusal(&both, &NO_TENSORS).contains("contradict"));
        let found = declared(&[("scaling.factor", Value::F32(0.0))], &NO_TENSORS);
        assert_eq!(found.scaling, Ok(Scaling::None));
        assert!(found.scaling_notes[0].contains("means no scaling"));
        let found =
            declared(&[("scaling.type", text("none")), ("scaling.factor", Value::F32(2.0))], &NO_TENSORS);
        assert_eq!((found.scaling, found.limit), (Ok(Scaling::None), 4096));
        assert_eq!(
            refusal(&[("scaling.factor", Value::F32(0.5))], &NO_TENSORS),
            "`factor` must be a finite number of at least 1, found 0.5"
        );
    }

    #[test]
    fn d065_rope_freqs_are_the_scaling() {
        let found = declared(&[], &freqs(&[1.0, 1.0, 4.0, 8.0]));
        let divisors = Divisors { divisors: vec![1.0, 1.0, 4.0, 8.0], attention_factor: 1.0 };
        assert_eq!(found.scaling, Ok(Scaling::Divisors(divisors)));
        assert_eq!(found.limit, 4096);
        assert_eq!(declared(&[], &freqs(&[1.0; 4])).scaling, Ok(Scaling::None));
        assert!(refusal(&[], &freqs(&[2.0; 3])).contains("must have 4 entries"));
        assert!(refusal(&[("scaling.factor", Value::F32(2.0))], &freqs(&[2.0; 4])).contains("contradict"));
        // A magnitude beside them is honoured, as llama.cpp does.
        let exported = [("scaling.type", text("none")), ("scaling.attn_factor", Value::F32(1.5))];
        let found = declared(&exported, &freqs(&[1.0, 1.0, 4.0, 8.0]));
        assert!(matches!(found.scaling, Ok(Scaling::Divisors(d)) if d.attention_factor == 1.5));
    }

    #[test]
    fn a_magnitude_without_a_list_becomes_one() {
        let keys = [("scaling.factor", Value::F32(2.0)), ("scaling.attn_factor", Value::F32(1.25))];
        let found = declared(&keys, &NO_TENSORS);
        let divisors = Divisors { divisors: vec![2.0; 4], attention_factor: 1.25 };
        assert_eq!(found.scaling, Ok(Scaling::Divisors(divisors)));
        assert_eq!(found.limit, 8192);
    }

    #[test]
    fn yarn_keys() {
        let keys = [
            ("scaling.type", text("yarn")),
            ("scaling.factor", Value::F32(4.0)),
            ("scaling.original_context_length", Value::U32(2048)),
            ("scaling.finetuned", Value::Bool(true)),
            ("scaling.yarn_beta_fast", Value::F32(16.0)),
            ("scaling.yarn_attn_factor", Value::F32(1.0)),
            ("scaling.yarn_ext_factor", Value::F32(1.0)),
        ];
        let found = declared(&keys, &NO_TENSORS);
        assert_eq!((found.original_context, found.limit, found.fine_tuned), (2048, 8192, Some(true)));
        let Ok(Scaling::Yarn(Yarn { factor, ramp, magnitude })) = found.scaling else { panic!() };
        assert_eq!((factor, ramp.beta_fast, ramp.beta_slow, magnitude), (4.0, 16.0, 1.0, Magnitude::Default));
        let notes = found.scaling_notes.join("\n");
        for part in
            ["llama.cpp would use 32", "yarn_attn_factor` = `1` is not used", "although the context of 4096"]
        {
            assert!(notes.contains(part), "{notes}");
        }
        let mut mixed = keys.to_vec();
        mixed[6].1 = Value::F32(0.5);
        mixed.push(("scaling.attn_factor", Value::F32(2.0)));
        assert!(refusal(&mixed, &NO_TENSORS).contains("yarn_ext_factor` = `0.5` is not supported"));
        mixed[6].1 = Value::F32(-1.0);
        let Ok(Scaling::Yarn(yarn)) = declared(&mixed, &NO_TENSORS).scaling else { panic!() };
        assert_eq!(yarn.magnitude, Magnitude::Multiplied(2.0));
    }

    #[test]
    fn d057_longrope_takes_its_lists_from_tensors() {
        let keys = [
            ("scaling.type", text("longrope")),
            ("scaling.original_context_length", Value::U32(1024)),
            ("scaling.attn_factor", Value::F32(1.25)),
        ];
        let lists = RopeTensors {
            factors_long: Some(vec![2.0; 4]),
            factors_short: Some(vec![1.0; 4]),
            rope_freqs: None,
        };
        let found = declared(&keys, &lists);
        assert_eq!(found.limit, 4096);
        let Ok(Scaling::LongRope(longrope)) = found.scaling else { panic!() };
        assert_eq!((longrope.factor, longrope.attention_factor), (4.0, Some(1.25)));
        let found = declared(&keys[..2], &lists);
        assert!(found.scaling_notes[0].contains("cos and sin are not enlarged"));
        assert!(refusal(&keys, &NO_TENSORS).contains("`rope_factors_long.weight` is missing"));
        let wrong = RopeTensors { factors_short: Some(vec![1.0; 3]), ..lists };
        assert!(refusal(&keys, &wrong).contains("`short_factor` must have 4 entries"));
    }

    #[test]
    fn d051_nothing_unknown_passes() {
        assert_eq!(
            refusal(&[("scaling.type", text("dynamic"))], &NO_TENSORS),
            "unknown `rope_type` `dynamic`; accepted: `none`, `linear`, `yarn`, `longrope`"
        );
        for key in ["dimension_sections", "freq_base_swa", "scaling.alpha", "scaling.yarn_log_multiplier"] {
            let text = refusal(&[(key, Value::F32(1.0))], &NO_TENSORS);
            assert!(text.contains(key) && text.contains("not supported"), "{text}");
        }
        let text = refusal(&[("scaling.new_key", Value::U8(3))], &NO_TENSORS);
        assert!(text.starts_with("unknown key `llama.rope.scaling.new_key` with value `3`"), "{text}");
    }

    #[test]
    fn wrong_types_are_errors_of_the_file() {
        let meta = Metadata::from_entries(
            "m.gguf",
            [
                ("general.architecture".to_owned(), text("llama")),
                ("llama.context_length".to_owned(), text("long")),
            ],
        );
        let layout = HeadLayout { head_dim: 8, pairing: Pairing::Adjacent };
        let error = from_gguf(&meta.unwrap(), &NO_TENSORS, layout).unwrap_err();
        assert!(matches!(error, RopeConfigError::Metadata(_)), "{error}");
        assert!(refusal(&[("scaling.factor", text("4"))], &NO_TENSORS).contains("must be a number"));
    }

    #[test]
    fn d036_a_llama_3_without_divisors_is_pointed_out() {
        let meta = |context: u32| {
            let entries = [
                ("general.architecture", text("llama")),
                ("llama.context_length", Value::U32(context)),
                ("llama.rope.freq_base", Value::F32(500_000.0)),
            ];
            Metadata::from_entries("m.gguf", entries.map(|(k, v)| (k.to_owned(), v))).unwrap()
        };
        let layout = HeadLayout { head_dim: 8, pairing: Pairing::Adjacent };
        let notes = |context, tensors: &RopeTensors| {
            from_gguf(&meta(context), tensors, layout).unwrap().scaling_notes
        };
        assert!(notes(131_072, &NO_TENSORS)[0].contains("--scaling llama3 --factor 8"));
        assert!(notes(8192, &NO_TENSORS).is_empty());
        assert!(notes(131_072, &freqs(&[1.0, 1.0, 4.0, 8.0])).is_empty());
    }

    #[test]
    fn layers_with_a_short_window_have_their_own_base() {
        let meta = |more: &[(&str, Value)]| {
            let fixed = [("general.architecture", text("gemma3")), ("gemma3.context_length", Value::U32(64))];
            let entries = fixed.iter().chain(more).map(|(k, v)| ((*k).to_owned(), v.clone()));
            Metadata::from_entries("m.gguf", entries).unwrap()
        };
        let layout = HeadLayout { head_dim: 8, pairing: Pairing::HalfSplit };
        let bases = LayerBases { theta: 1e6, local_theta: 1e4 };
        let read = |meta: &Metadata| from_gguf_layered(meta, &NO_TENSORS, layout, bases).unwrap();
        let found = read(&meta(&[]));
        assert_eq!((found.theta, found.local_theta), (1e6, Some(1e4)));
        assert_eq!(found.origins["local_theta"], Origin::Default("10000".into()));
        let found = read(&meta(&[("gemma3.rope.freq_base_swa", Value::F32(2e4))]));
        assert_eq!((found.local_theta, found.scaling), (Some(2e4), Ok(Scaling::None)));
        assert_eq!(found.origins["local_theta"].to_string(), "gemma3.rope.freq_base_swa in the GGUF");
    }

    /// Converters of Phi-3 write the two lists and no type.
    #[test]
    fn d057_two_lists_without_a_type_are_longrope() {
        let lists = RopeTensors {
            factors_long: Some(vec![2.0; 4]),
            factors_short: Some(vec![1.0; 4]),
            rope_freqs: None,
        };
        let keys = [("scaling.original_context_length", Value::U32(1024))];
        let found = declared(&keys, &lists);
        assert!(matches!(found.scaling, Ok(Scaling::LongRope(longrope)) if longrope.factor == 4.0));
        let expected = "default longrope, because there are two lists of divisors";
        assert_eq!(found.origins["scaling"].to_string(), expected);
        assert!(refusal(&[("scaling.type", text("linear"))], &lists).contains("contradict"));
    }
}
