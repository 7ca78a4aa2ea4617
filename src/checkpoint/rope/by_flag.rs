//! The scaling that `--scaling` with its parameter flags puts in force.

use super::RopeDeclaration;
use super::error::RopeConfigError;
use super::limit::stretched;
use super::method::Method;
use super::origin::Origin;
use super::overrides::{Factor, RopeOverrides};
use super::replace::{checked_original, kept_origins, refuse_proportional, warnings};
use super::settings::RopeSettings;
use crate::rope::{Llama3, LongRope, Magnitude, Ramp, RopeError, Scaling, Yarn, stretch};

/// Bands of Llama 3.1, used where the flags do not name others.
const LLAMA3_BANDS: (f64, f64) = (1.0, 4.0);

/// The settings of `--scaling method`.
///
/// # Errors
/// [`RopeConfigError`] for a missing flag or a value out of range.
pub(super) fn from_method(
    declared: &RopeDeclaration,
    overrides: &RopeOverrides,
    method: Method,
    length: usize,
) -> Result<RopeSettings, RopeConfigError> {
    let mut choice = Choice::new(declared, overrides, method, length)?;
    let scaling = choice.scaling()?;
    let flag = format!("--scaling {method}");
    choice.finish(scaling, &flag)
}

/// A method being filled in from flags.
struct Choice<'a> {
    declared: &'a RopeDeclaration,
    overrides: &'a RopeOverrides,
    method: Method,
    length: usize,
    factor: Option<f64>,
    settings: RopeSettings,
}

impl<'a> Choice<'a> {
    fn new(
        declared: &'a RopeDeclaration,
        overrides: &'a RopeOverrides,
        method: Method,
        length: usize,
    ) -> Result<Choice<'a>, RopeConfigError> {
        let mut settings = RopeSettings {
            spec: declared.spec(Scaling::None, declared.original_context),
            local_theta: declared.local_theta,
            declared_context: declared.declared_context,
            limit: Some(declared.original_context),
            origins: kept_origins(declared),
            warnings: Vec::new(),
        };
        if let Some(original) = overrides.original_context {
            settings.spec.original_context = checked_original(original)?;
            settings.origins.insert("original_context", Origin::flag("--original-context"));
        }
        settings.origins.insert("scaling", Origin::flag("--scaling"));
        let factor = match overrides.factor {
            None => None,
            Some(Factor::Value(value)) if value.is_finite() && value >= 1.0 => Some(value),
            Some(Factor::Value(value)) => return Err(RopeError::Factor(value).into()),
            // They follow the length by themselves.
            Some(Factor::Auto) if method.is_dynamic() => None,
            Some(Factor::Auto) if matches!(method, Method::LongRope | Method::Llama3) => {
                let reason = "its frequencies belong to one factor, on short texts too; give the number";
                let second = if method == Method::Llama3 { "--scaling llama3" } else { "--scaling longrope" };
                return Err(RopeConfigError::FlagConflict { first: "--factor auto", second, reason });
            }
            Some(Factor::Auto) => Some(stretch(length, settings.spec.original_context)),
        };
        if factor.is_some() {
            let auto = overrides.factor == Some(Factor::Auto);
            let text = if auto { "--factor auto" } else { "--factor" };
            settings.origins.insert("factor", Origin::flag(text));
        }
        Ok(Choice { declared, overrides, method, length, factor, settings })
    }

    /// Notes where `value` came from and fills in its default.
    fn value(&mut self, name: &'static str, flag: &str, given: Option<f64>, default: f64) -> f64 {
        let origin = if given.is_some() { Origin::flag(flag) } else { Origin::default(default) };
        self.settings.origins.insert(name, origin);
        given.unwrap_or(default)
    }

    /// The factor of a method that cannot do without.
    fn needed_factor(&self) -> Result<f64, RopeConfigError> {
        let needed = "`--factor`, as a number of at least 1 or `auto`";
        self.factor.ok_or(RopeConfigError::MissingFlag { method: self.method, needed })
    }

    fn scaling(&mut self) -> Result<Scaling, RopeConfigError> {
        Ok(match self.method {
            Method::None => Scaling::None,
            Method::Linear => Scaling::Linear { factor: self.needed_factor()? },
            Method::Ntk => Scaling::Ntk { factor: self.needed_factor()? },
            Method::NtkByParts => Scaling::NtkByParts { factor: self.needed_factor()?, ramp: self.ramp() },
            Method::DynamicLinear => Scaling::DynamicLinear,
            Method::DynamicNtk => Scaling::DynamicNtk { factor: self.factor_or_one() },
            Method::Yarn => Scaling::Yarn(self.yarn(self.needed_factor()?)?),
            Method::DynamicYarn => {
                let bound = self.factor.unwrap_or(1.0);
                Scaling::DynamicYarn(self.yarn(bound)?)
            }
            Method::LongRope => Scaling::LongRope(self.longrope()?),
            Method::Llama3 => Scaling::Llama3(self.llama3()?),
        })
    }

    fn factor_or_one(&mut self) -> f64 {
        self.settings.origins.entry("factor").or_insert_with(|| Origin::default(1));
        self.factor.unwrap_or(1.0)
    }

    fn ramp(&mut self) -> Ramp {
        let (o, d) = (self.overrides, Ramp::default());
        let origin = if o.truncate.is_some() { Origin::flag("--no-truncate") } else { Origin::default(true) };
        self.settings.origins.insert("truncate", origin);
        Ramp {
            beta_fast: self.value("beta_fast", "--beta-fast", o.beta_fast, d.beta_fast),
            beta_slow: self.value("beta_slow", "--beta-slow", o.beta_slow, d.beta_slow),
            truncate: o.truncate.unwrap_or(d.truncate),
        }
    }

    fn yarn(&mut self, factor: f64) -> Result<Yarn, RopeConfigError> {
        let o = self.overrides;
        let origins = &mut self.settings.origins;
        let conflict = |first, second, reason| RopeConfigError::FlagConflict { first, second, reason };
        let magnitude = match (o.attention_factor, o.mscale, o.mscale_all_dim) {
            (Some(value), None, None) => {
                origins.insert("attention_factor", Origin::flag("--attention-factor"));
                Magnitude::Final(value)
            }
            (Some(_), Some(_), _) => {
                return Err(conflict("--attention-factor", "--mscale", "it is the final value"));
            }
            (Some(_), None, Some(_)) => {
                return Err(conflict("--attention-factor", "--mscale-all-dim", "it is the final value"));
            }
            (None, Some(mscale), Some(mscale_all_dim)) => {
                origins.insert("mscale", Origin::flag("--mscale"));
                origins.insert("mscale_all_dim", Origin::flag("--mscale-all-dim"));
                origins.insert("attention_factor", Origin::derived("the two mscale values"));
                Magnitude::Ratio { mscale, mscale_all_dim }
            }
            (None, None, None) => {
                origins.insert("attention_factor", Origin::default("0.1 ln(factor) + 1"));
                Magnitude::Default
            }
            _ => {
                let needed = "both `--mscale` and `--mscale-all-dim`, or neither";
                return Err(RopeConfigError::MissingFlag { method: self.method, needed });
            }
        };
        Ok(Yarn { factor, ramp: self.ramp(), magnitude })
    }

    fn longrope(&mut self) -> Result<LongRope, RopeConfigError> {
        let o = self.overrides;
        let needed = "`--long-factors`, a file with one divisor per rotated pair";
        let long_factor =
            o.long_factors.clone().ok_or(RopeConfigError::MissingFlag { method: self.method, needed })?;
        let factor = self.needed_factor()?;
        let or = |given: bool, flag, default: &str| {
            if given { Origin::flag(flag) } else { Origin::default(default) }
        };
        let formula = "sqrt(1 + ln(factor) / ln(original_context))";
        self.settings.origins.extend([
            ("long_factor", Origin::flag("--long-factors")),
            ("short_factor", or(o.short_factors.is_some(), "--short-factors", "1 for every pair")),
            ("longrope_select", or(o.longrope_select.is_some(), "--longrope-select", "auto")),
            ("attention_factor", or(o.attention_factor.is_some(), "--attention-factor", formula)),
        ]);
        let ones = || vec![1.0; self.declared.pairs()];
        Ok(LongRope {
            short_factor: o.short_factors.clone().unwrap_or_else(ones),
            long_factor,
            factor,
            attention_factor: o.attention_factor,
            select: o.longrope_select.unwrap_or_default(),
        })
    }

    fn llama3(&mut self) -> Result<Llama3, RopeConfigError> {
        let o = self.overrides;
        if matches!(self.settings.origins.get("original_context"), None | Some(Origin::Derived(_))) {
            let needed = "`--original-context`, because the checkpoint does not say what it was trained with \
                          before its scaling (8192 tokens for Llama 3)";
            return Err(RopeConfigError::MissingFlag { method: self.method, needed });
        }
        let (low, high) = LLAMA3_BANDS;
        Ok(Llama3 {
            factor: self.needed_factor()?,
            low_freq_factor: self.value("low_freq_factor", "--low-freq-factor", o.low_freq_factor, low),
            high_freq_factor: self.value("high_freq_factor", "--high-freq-factor", o.high_freq_factor, high),
        })
    }

    /// Puts the scaling in force and says how far it reaches.
    fn finish(mut self, scaling: Scaling, flag: &str) -> Result<RopeSettings, RopeConfigError> {
        refuse_proportional(self.declared)?;
        let original = self.settings.spec.original_context;
        let auto = self.overrides.factor == Some(Factor::Auto);
        let (limit, how) = match self.factor {
            _ if self.method == Method::None => (Some(original), "original_context"),
            None => (None, ""),
            Some(_) if auto => (Some(self.length.max(original)), "tokens of this run"),
            Some(factor) => (Some(stretched(original, factor)?), "original_context x factor"),
        };
        self.settings.limit = limit;
        self.settings.origins.insert(
            "limit",
            match limit {
                Some(_) => Origin::derived(how),
                None => Origin::derived("follows the length"),
            },
        );
        // Longer than the rule promises, because the checkpoint was trained that far with it.
        if self.method == Method::Llama3
            && !auto
            && limit.is_some_and(|limit| limit < self.declared.declared_context)
        {
            self.settings.limit = Some(self.declared.declared_context);
            self.settings.origins.insert("limit", Origin::derived("declared_context"));
        }
        self.settings.warnings = warnings(self.declared, &self.settings.origins, &scaling, flag);
        if auto && self.factor == Some(1.0) {
            let text = format!("`--factor auto`: {} tokens fit the original context", self.length);
            self.settings.origins.insert("scaling", Origin::derived(text));
        } else {
            self.settings.spec.scaling = scaling;
        }
        Ok(self.settings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::rope::{HeadLayout, from_hf, in_force};
    use crate::rope::{LongRopeSelect, Pairing};
    use serde_json::{Value, json};

    /// A config with 4096 positions and head_dim 16, and these keys.
    fn declared(more: Value) -> RopeDeclaration {
        let mut config = json!({"max_position_embeddings": 4096, "rope_theta": 1e4});
        config.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let layout = HeadLayout { head_dim: 16, pairing: Pairing::HalfSplit };
        from_hf(config.as_object().unwrap(), layout).unwrap()
    }

    fn flags(method: Method) -> RopeOverrides {
        let factor = Some(Factor::Value(8.0));
        RopeOverrides { scaling: Some(method), factor, ..RopeOverrides::default() }
    }

    fn run(flags: RopeOverrides) -> Result<RopeSettings, String> {
        in_force(&declared(json!({})), &flags, 9000).map_err(|e| e.to_string())
    }

    #[test]
    fn d041_yarn_flags_reach_the_spec() {
        let given = RopeOverrides {
            beta_fast: Some(16.0),
            truncate: Some(false),
            attention_factor: Some(1.0),
            ..flags(Method::Yarn)
        };
        let settings = run(given).unwrap();
        let ramp = Ramp { beta_fast: 16.0, beta_slow: 1.0, truncate: false };
        let yarn = Yarn { factor: 8.0, ramp, magnitude: Magnitude::Final(1.0) };
        assert_eq!(settings.spec.scaling, Scaling::Yarn(yarn));
        let origins = ["beta_fast", "beta_slow", "truncate", "attention_factor", "limit"]
            .map(|name| settings.origins[name].to_string());
        let expected = [
            "--beta-fast",
            "default 1",
            "--no-truncate",
            "--attention-factor",
            "derived: original_context x factor",
        ];
        assert_eq!(origins, expected);
    }

    #[test]
    fn d040_mscale_counts_in_pairs_only() {
        let pair =
            RopeOverrides { mscale: Some(0.7), mscale_all_dim: Some(1.0), ..flags(Method::DynamicYarn) };
        let Scaling::DynamicYarn(yarn) = run(pair.clone()).unwrap().spec.scaling else { panic!() };
        assert_eq!(yarn.magnitude, Magnitude::Ratio { mscale: 0.7, mscale_all_dim: 1.0 });
        let text = run(RopeOverrides { mscale: None, ..pair.clone() }).unwrap_err();
        assert_eq!(text, "`--scaling dynamic-yarn` needs both `--mscale` and `--mscale-all-dim`, or neither");
        let text = run(RopeOverrides { attention_factor: Some(1.0), ..pair.clone() }).unwrap_err();
        assert!(text.starts_with("`--attention-factor` cannot be combined with `--mscale`"), "{text}");
        let text = run(RopeOverrides { attention_factor: Some(1.0), mscale: None, ..pair }).unwrap_err();
        assert!(text.contains("`--mscale-all-dim`"), "{text}");
    }

    #[test]
    fn longrope_needs_its_long_list() {
        let text = run(flags(Method::LongRope)).unwrap_err();
        assert!(text.contains("needs `--long-factors`"), "{text}");
        let given = RopeOverrides { long_factors: Some(vec![2.0; 8]), ..flags(Method::LongRope) };
        let settings = run(given.clone()).unwrap();
        let Scaling::LongRope(longrope) = &settings.spec.scaling else { panic!() };
        assert_eq!((&longrope.short_factor, longrope.factor), (&vec![1.0; 8], 8.0));
        assert_eq!(longrope.select, LongRopeSelect::Auto);
        assert_eq!(settings.limit, Some(32_768));
        assert_eq!(settings.origins["short_factor"].to_string(), "default 1 for every pair");
        let short = RopeOverrides { long_factors: Some(vec![2.0; 7]), ..given.clone() };
        assert!(run(short).unwrap_err().contains("must have 8 entries, one per rotated pair, found 7"));
        let text = run(RopeOverrides { factor: None, ..given }).unwrap_err();
        assert!(text.contains("needs `--factor`"), "{text}");
    }

    #[test]
    fn d036_llama3_needs_to_know_the_context_before_scaling() {
        let text = run(flags(Method::Llama3)).unwrap_err();
        assert!(text.contains("needs `--original-context`"), "{text}");
        let given = RopeOverrides { original_context: Some(256), ..flags(Method::Llama3) };
        let settings = run(given).unwrap();
        let llama3 = Llama3 { factor: 8.0, low_freq_factor: 1.0, high_freq_factor: 4.0 };
        assert_eq!(settings.spec.scaling, Scaling::Llama3(llama3));
        // 256 x 8 tokens are fewer than the checkpoint declares with the same rule.
        assert_eq!(settings.limit, Some(4096));
        assert_eq!(settings.origins["high_freq_factor"].to_string(), "default 4");
        let known = declared(json!({"original_max_position_embeddings": 1024}));
        let settings = in_force(&known, &flags(Method::Llama3), 5000).unwrap();
        assert_eq!(settings.limit, Some(8192));
        // It restores what the model was trained with, so short texts need it too.
        assert!(in_force(&known, &flags(Method::Llama3), 100).unwrap().warnings.is_empty());
    }

    #[test]
    fn auto_is_refused_where_frequencies_belong_to_one_factor() {
        for method in [Method::LongRope, Method::Llama3] {
            let given = RopeOverrides {
                factor: Some(Factor::Auto),
                original_context: Some(256),
                long_factors: (method == Method::LongRope).then(|| vec![2.0; 8]),
                ..flags(method)
            };
            assert!(run(given).unwrap_err().contains("belong to one factor"), "{method}");
        }
        // Dynamic methods follow the length with or without it.
        let given = RopeOverrides { factor: Some(Factor::Auto), ..flags(Method::DynamicNtk) };
        let settings = run(given).unwrap();
        assert_eq!(settings.spec.scaling, Scaling::DynamicNtk { factor: 1.0 });
        assert_eq!(settings.limit, None);
    }

    #[test]
    fn factors_out_of_range_are_shown() {
        for bad in [0.5, f64::NAN] {
            let given = RopeOverrides { factor: Some(Factor::Value(bad)), ..flags(Method::Linear) };
            assert!(run(given).unwrap_err().ends_with(&format!("found {bad}")));
        }
        let given = RopeOverrides { factor: Some(Factor::Value(1e30)), ..flags(Method::Linear) };
        assert!(run(given).unwrap_err().contains("more than the"));
    }

    #[test]
    fn a_proportional_rotation_cannot_be_replaced() {
        let found = declared(
            json!({"rope_parameters": {"rope_type": "proportional", "partial_rotary_factor": 0.25}}),
        );
        let text = in_force(&found, &flags(Method::Yarn), 9000).unwrap_err().to_string();
        assert!(text.contains("rotates 2 of 8 pairs"), "{text}");
        assert!(in_force(&found, &RopeOverrides::default(), 10).is_ok());
    }
}
