//! `--plan FILE`: a sweep in TOML, every key checked.

use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer};

use super::grid::{GridArgs, NeedleArgs, PplArgs};
use crate::checkpoint::rope::{Factor, Method, RopeOverrides};
use crate::cli::CommandError;
use crate::cli::values::parse_length;
use crate::eval::needle::ScoreKind;
use crate::eval::perplexity::bos::BosChoice;
use crate::eval::sweep::{Measure, RopeChoice};
use crate::eval::windows::Rule;
use crate::named::Named;

/// The keys of a plan; those of the flags, without their dashes.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
struct Plan {
    scaling: Vec<Read<Method>>,
    factor: Vec<Read<Factor>>,
    context: Vec<Read<Tokens>>,
    measure: Vec<Read<Choice<Measure>>>,
    text: Vec<PathBuf>,
    ppl: PplPlan,
    needle: NeedlePlan,
    rope: Vec<RopePlan>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
struct PplPlan {
    rule: Option<Read<Choice<Rule>>>,
    stride: Option<Read<Tokens>>,
    bos: Option<Read<Choice<BosChoice>>>,
    max_windows: Option<Read<Tokens>>,
    markers: bool,
    lossy: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
struct NeedlePlan {
    depths: Vec<f64>,
    trials: Option<Read<Tokens>>,
    digits: Option<u32>,
    score: Option<Read<Choice<ScoreKind>>>,
}

/// A rotary embedding in the words of a Hugging Face configuration.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RopePlan {
    name: String,
    parameters: serde_json::Value,
}

/// A value in a file that is read as it would be on the command line.
#[derive(Debug)]
struct Read<T>(T);

/// How the text of a value is read.
trait FromText: Sized {
    fn from_text(text: &str) -> Result<Self, String>;
}

#[derive(Debug)]
struct Tokens(usize);

impl FromText for Tokens {
    fn from_text(text: &str) -> Result<Self, String> {
        parse_length(text).map(Tokens)
    }
}

impl FromText for Method {
    fn from_text(text: &str) -> Result<Self, String> {
        text.parse().map_err(|error: crate::checkpoint::rope::RopeConfigError| error.to_string())
    }
}

impl FromText for Factor {
    fn from_text(text: &str) -> Result<Self, String> {
        text.parse().map_err(|error: crate::checkpoint::rope::RopeConfigError| error.to_string())
    }
}

#[derive(Debug)]
struct Choice<T>(T);

impl<T: Named> FromText for Choice<T> {
    fn from_text(text: &str) -> Result<Self, String> {
        T::parse(text).map(Choice)
    }
}

impl<'de, T: FromText> Deserialize<'de> for Read<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader<T>(std::marker::PhantomData<T>);
        impl<T: FromText> Visitor<'_> for Reader<T> {
            type Value = Read<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text or a number")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Read<T>, E> {
                T::from_text(text).map(Read).map_err(E::custom)
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<Read<T>, E> {
                self.visit_str(&number.to_string())
            }

            fn visit_f64<E: Error>(self, number: f64) -> Result<Read<T>, E> {
                self.visit_str(&number.to_string())
            }
        }
        deserializer.deserialize_any(Reader(std::marker::PhantomData))
    }
}

/// The grid of a plan. Texts are named from the folder of the plan.
///
/// # Errors
/// A file that cannot be read; a [`CommandError`] of usage for anything in it that is not understood.
pub fn read(path: &Path) -> anyhow::Result<GridArgs> {
    let name = path.display();
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read `{name}`"))?;
    let folder = path.parent().unwrap_or(Path::new(""));
    parse(&text, folder)
        .map_err(|error| CommandError::usage(format!("cannot use the plan `{name}`: {error}")).into())
}

fn parse(text: &str, folder: &Path) -> Result<GridArgs, String> {
    let plan: Plan = toml::from_str(text).map_err(|error| error.to_string().trim_end().to_string())?;
    let all = |values: Vec<Read<Tokens>>| values.into_iter().map(|value| value.0.0).collect();
    let ropes = plan.rope.into_iter().map(rope_choice).collect::<Result<_, String>>()?;
    let (ppl, needle) = (plan.ppl, plan.needle);
    if let Some(digits) = needle.digits.filter(|digits| !(1..=18).contains(digits)) {
        return Err(format!("`digits` must be between 1 and 18, found {digits}"));
    }
    Ok(GridArgs {
        scaling: plan.scaling.into_iter().map(|value| value.0).collect(),
        factor: plan.factor.into_iter().map(|value| value.0).collect(),
        context: all(plan.context),
        measure: plan.measure.into_iter().map(|value| value.0.0).collect(),
        text: plan.text.into_iter().map(|path| folder.join(path)).collect(),
        ppl: PplArgs {
            rule: ppl.rule.map(|value| value.0.0),
            stride: ppl.stride.map(|value| value.0.0),
            bos: ppl.bos.map(|value| value.0.0),
            max_windows: ppl.max_windows.map(|value| value.0.0),
            markers: ppl.markers,
            lossy: ppl.lossy,
        },
        needle: NeedleArgs {
            depths: needle.depths,
            trials: needle.trials.map(|value| value.0.0),
            digits: needle.digits,
            score: needle.score.map(|value| value.0.0),
        },
        ropes,
    })
}

fn rope_choice(plan: RopePlan) -> Result<RopeChoice, String> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    if plan.name.is_empty() || !plan.name.chars().all(allowed) {
        return Err(format!("the name `{}` may hold letters, digits, `-`, `_` and `.` only", plan.name));
    }
    let overrides = RopeOverrides { rope_parameters: Some(plan.parameters), ..RopeOverrides::default() };
    Ok(RopeChoice { label: plan.name, overrides })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_says_what_the_flags_say() {
        let text = r#"
            scaling = ["none", "yarn"]
            factor = [2, 2.5, "auto"]
            context = ["8k", 1000]
            measure = ["ppl", "memory"]
            text = ["book.txt", "/abs.txt"]
            [ppl]
            rule = "llama.cpp"
            max-windows = 2
            bos = "never"
            [[rope]]
            name = "sharp"
            parameters = { rope_type = "yarn", factor = 4, beta_fast = 16.0 }
        "#;
        let grid = parse(text, Path::new("plans")).unwrap();
        assert_eq!(grid.scaling, [Method::None, Method::Yarn]);
        assert_eq!(grid.factor, [Factor::Value(2.0), Factor::Value(2.5), Factor::Auto]);
        assert_eq!(grid.context, [8192, 1000]);
        assert_eq!(grid.measure, [Measure::Ppl, Measure::Memory]);
        assert_eq!(grid.text, [PathBuf::from("plans/book.txt"), PathBuf::from("/abs.txt")]);
        assert_eq!((grid.ppl.rule, grid.ppl.max_windows), (Some(Rule::LlamaCpp), Some(2)));
        assert_eq!(grid.ppl.bos, Some(BosChoice::Never));
        let parameters = grid.ropes[0].overrides.rope_parameters.as_ref().unwrap();
        assert_eq!((grid.ropes[0].label.as_str(), &parameters["factor"]), ("sharp", &4.into()));
    }

    #[test]
    fn what_is_not_understood_is_named() {
        for (text, expected) in [
            ("scalings = [\"yarn\"]", "unknown field `scalings`"),
            ("scaling = [\"yarn2\"]", "unknown scaling method `yarn2`; accepted: `none`"),
            ("scaling = \"yarn\"", "expected a sequence"),
            ("factor = [0.5]", "`0.5`"),
            ("context = [\"8m\"]", "`8m` is not a number of tokens"),
            ("context = [0]", "must be at least 1"),
            ("context = [-5]", "`-5` is not a number of tokens"),
            ("context = [true]", "expected a text or a number"),
            ("measure = [\"loss\"]", "unknown measure `loss`; accepted: ppl, needle, memory, speed"),
            ("[ppl]\nwindow = 3", "unknown field `window`"),
            ("[ppl]\nrule = \"words\"", "unknown rule `words`"),
            ("[needle]\ndigits = 19", "between 1 and 18, found 19"),
            ("[[rope]]\nname = \"a/b\"\nparameters = {}", "the name `a/b` may hold"),
            ("[[rope]]\nname = \"a\"", "missing field `parameters`"),
            ("context = [", "TOML parse error"),
        ] {
            let error = parse(text, Path::new("")).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
