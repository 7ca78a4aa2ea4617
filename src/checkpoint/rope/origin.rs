//! Where a value came from.

use std::fmt;

/// Where a value in force came from; displayed as a phrase for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// Written in the checkpoint: the key and the file.
    Checkpoint(String),
    /// Given on the command line: the flag.
    Flag(String),
    /// Given nowhere: what the default is.
    Default(String),
    /// Computed from other values: how.
    Derived(String),
}

impl Origin {
    pub(super) fn flag(name: &str) -> Origin {
        Origin::Flag(name.to_owned())
    }

    pub(super) fn default(what: impl fmt::Display) -> Origin {
        Origin::Default(what.to_string())
    }

    pub(super) fn derived(how: impl fmt::Display) -> Origin {
        Origin::Derived(how.to_string())
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Checkpoint(text) | Origin::Flag(text) => f.write_str(text),
            Origin::Default(text) => write!(f, "default {text}"),
            Origin::Derived(text) => write!(f, "derived: {text}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_read_as_phrases() {
        let shown = [
            Origin::Checkpoint("llama.rope.freq_base in the GGUF".into()),
            Origin::flag("--factor"),
            Origin::default(10_000),
            Origin::derived("original_context x factor"),
        ]
        .map(|o| o.to_string());
        assert_eq!(
            shown,
            [
                "llama.rope.freq_base in the GGUF",
                "--factor",
                "default 10000",
                "derived: original_context x factor"
            ]
        );
    }
}
