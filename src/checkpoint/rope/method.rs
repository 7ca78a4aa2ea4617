//! Scaling methods that can be asked for by name.

use std::fmt;
use std::str::FromStr;

use super::error::{RopeConfigError, quoted};

/// A value of `--scaling`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Method {
    None,
    Linear,
    Ntk,
    NtkByParts,
    DynamicLinear,
    DynamicNtk,
    Yarn,
    DynamicYarn,
    LongRope,
    Llama3,
}

impl Method {
    /// Every method, in the order of the documentation.
    pub const ALL: [Method; 10] = [
        Method::None,
        Method::Linear,
        Method::Ntk,
        Method::NtkByParts,
        Method::DynamicLinear,
        Method::DynamicNtk,
        Method::Yarn,
        Method::DynamicYarn,
        Method::LongRope,
        Method::Llama3,
    ];

    /// The name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Method::None => "none",
            Method::Linear => "linear",
            Method::Ntk => "ntk",
            Method::NtkByParts => "ntk-by-parts",
            Method::DynamicLinear => "dynamic-linear",
            Method::DynamicNtk => "dynamic-ntk",
            Method::Yarn => "yarn",
            Method::DynamicYarn => "dynamic-yarn",
            Method::LongRope => "longrope",
            Method::Llama3 => "llama3",
        }
    }

    /// Whether the stretch follows the length of the text, so that a factor only bounds it.
    pub const fn is_dynamic(self) -> bool {
        matches!(self, Method::DynamicLinear | Method::DynamicNtk | Method::DynamicYarn)
    }

    /// All names, for messages.
    pub(super) fn accepted() -> String {
        Method::names(&Method::ALL)
    }

    /// The names of `methods`, for messages.
    pub(super) fn names(methods: &[Method]) -> String {
        quoted(methods.iter().map(|m| m.name()))
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Method {
    type Err = RopeConfigError;

    fn from_str(text: &str) -> Result<Self, RopeConfigError> {
        Method::ALL
            .into_iter()
            .find(|m| m.name() == text)
            .ok_or_else(|| RopeConfigError::UnknownMethod { found: text.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for method in Method::ALL {
            assert_eq!(method.to_string().parse::<Method>().unwrap(), method);
        }
    }

    #[test]
    fn an_unknown_name_lists_all_of_them() {
        let text = "yarn2".parse::<Method>().unwrap_err().to_string();
        assert!(text.starts_with("unknown scaling method `yarn2`; accepted: `none`, `linear`"), "{text}");
        assert!(Method::ALL.iter().all(|m| text.contains(m.name())));
    }
}
