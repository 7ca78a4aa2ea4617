//! What `--model` may be: built-in data, a GGUF file, a folder, or a repository on the Hub.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Where a checkpoint is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ModelRef {
    /// The checkpoint that is part of the program
    #[default]
    Builtin,
    /// A `.gguf` file, or any part of a split one
    Gguf(PathBuf),
    /// A folder with `config.json` and safetensors
    Folder(PathBuf),
    /// A repository on the Hub
    Hub {
        /// `org/name`
        repo: String,
        /// Branch, tag or commit; `main` when absent
        revision: Option<String>,
        /// Quantisation label or file name, for repositories with GGUF files
        quant: Option<String>,
    },
}

/// Why a text is no model reference.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReferenceError {
    /// Nothing was given
    #[error("the model reference is empty")]
    Empty,
    /// Neither a path nor a repository
    #[error(
        "`{text}` is no model: there is no file or folder of that name, it does not end in `.gguf`, and it is not of the form `{HUB_FORM}`"
    )]
    Unknown {
        /// Text given
        text: String,
    },
    /// A repository with a bad part
    #[error("`{text}` is no Hub reference: the {part} `{found}` is not valid; the form is `{HUB_FORM}`")]
    HubPart {
        /// Text given
        text: String,
        /// Which part
        part: &'static str,
        /// That part
        found: String,
    },
    /// Single safetensors files have no config
    #[error("`{}` is a single safetensors file, which does not describe the model", .path.display())]
    Safetensors {
        /// File given
        path: PathBuf,
    },
}

/// Form of a reference to the Hub.
const HUB_FORM: &str = "org/name[@revision][:QUANT]";

impl ReferenceError {
    /// What the user can do about it.
    pub fn hint(&self) -> Option<String> {
        let text = match self {
            Self::Empty | Self::Unknown { .. } => {
                "give a `.gguf` file, a folder with `config.json` and safetensors, or a Hub id such as `org/name`"
                    .to_owned()
            }
            Self::HubPart { .. } => "for example `org/name@main:Q4_K_M`".to_owned(),
            Self::Safetensors { path } => {
                let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
                let folder = folder.unwrap_or(Path::new("."));
                format!("give the folder that has it and `config.json`: `{}`", folder.display())
            }
        };
        Some(text)
    }
}

impl FromStr for ModelRef {
    type Err = ReferenceError;

    /// What exists on disk comes first, then names that end in `.gguf`, then the Hub.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.trim().is_empty() {
            return Err(ReferenceError::Empty);
        }
        let path = PathBuf::from(text);
        if path.is_dir() {
            return Ok(Self::Folder(path));
        }
        let ends_in = |ending: &str| path.extension().is_some_and(|found| found.eq_ignore_ascii_case(ending));
        if path.exists() {
            return if ends_in("safetensors") {
                Err(ReferenceError::Safetensors { path })
            } else {
                Ok(Self::Gguf(path))
            };
        }
        match parse_hub(text) {
            Ok(Some(hub)) if !ends_in("gguf") || has_quant(&hub) => Ok(hub),
            Err(error) if !ends_in("gguf") => Err(error),
            _ if ends_in("gguf") => Ok(Self::Gguf(path)),
            _ => Err(ReferenceError::Unknown { text: text.to_owned() }),
        }
    }
}

fn has_quant(reference: &ModelRef) -> bool {
    matches!(reference, ModelRef::Hub { quant: Some(_), .. })
}

/// `None` when the text does not look like a repository at all.
fn parse_hub(text: &str) -> Result<Option<ModelRef>, ReferenceError> {
    let (head, quant) = match text.split_once(':') {
        Some((head, quant)) => (head, Some(quant)),
        None => (text, None),
    };
    let (repo, revision) = match head.split_once('@') {
        Some((repo, revision)) => (repo, Some(revision)),
        None => (head, None),
    };
    let Some((org, name)) = repo.split_once('/') else {
        return Ok(None);
    };
    if !is_name(org) || !is_name(name) {
        return Ok(None);
    }
    let bad = |part, found: &str| {
        Err(ReferenceError::HubPart { text: text.to_owned(), part, found: found.to_owned() })
    };
    match (revision, quant) {
        (Some(revision), _) if !is_path(revision) => bad("revision", revision),
        (_, Some(quant)) if !is_path(quant) => bad("quantisation", quant),
        _ => Ok(Some(ModelRef::Hub {
            repo: repo.to_owned(),
            revision: revision.map(str::to_owned),
            quant: quant.map(str::to_owned),
        })),
    }
}

/// Whether the text is one name: letters, digits, `-`, `_`, `.`, the first a letter, a digit or `_`.
fn is_name(text: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    text.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_') && text.chars().all(allowed)
}

/// Whether the text is names between slashes, such as `refs/pr/5`.
fn is_path(text: &str) -> bool {
    text.split('/').all(is_name)
}

impl fmt::Display for ModelRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Builtin => f.write_str("built-in"),
            Self::Gguf(path) | Self::Folder(path) => write!(f, "{}", path.display()),
            Self::Hub { repo, revision, quant } => {
                f.write_str(repo)?;
                if let Some(revision) = revision {
                    write!(f, "@{revision}")?;
                }
                if let Some(quant) = quant {
                    write!(f, ":{quant}")?;
                }
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hub(repo: &str, revision: Option<&str>, quant: Option<&str>) -> ModelRef {
        ModelRef::Hub {
            repo: repo.to_owned(),
            revision: revision.map(str::to_owned),
            quant: quant.map(str::to_owned),
        }
    }

    #[test]
    fn hub_references_are_read_and_written_back() {
        let cases = [
            ("org/name", hub("org/name", None, None)),
            ("org/n.a-m_e@refs/pr/5", hub("org/n.a-m_e", Some("refs/pr/5"), None)),
            ("org/name:Q4_K_M", hub("org/name", None, Some("Q4_K_M"))),
            ("org/name@v1:a/b-Q8_0.gguf", hub("org/name", Some("v1"), Some("a/b-Q8_0.gguf"))),
        ];
        for (text, expected) in cases {
            let read: ModelRef = text.parse().unwrap();
            assert_eq!(read, expected);
            assert_eq!(read.to_string(), text);
        }
    }

    #[test]
    fn paths_come_before_the_hub() {
        let folder = std::env::temp_dir();
        let text = folder.display().to_string();
        assert_eq!(text.parse(), Ok(ModelRef::Folder(folder)));
        assert_eq!("no/such.gguf".parse(), Ok(ModelRef::Gguf("no/such.gguf".into())));
        assert_eq!("no/such.GGUF".parse(), Ok(ModelRef::Gguf("no/such.GGUF".into())));
        assert_eq!(ModelRef::default().to_string(), "built-in");
    }

    #[test]
    fn an_existing_file_is_a_gguf_unless_it_is_safetensors() {
        let folder = std::env::temp_dir().join(format!("ropex-reference-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (blob, tensors) = (folder.join("blob"), folder.join("model.safetensors"));
        std::fs::write(&blob, b"").unwrap();
        std::fs::write(&tensors, b"").unwrap();
        assert_eq!(blob.display().to_string().parse(), Ok(ModelRef::Gguf(blob)));
        let error = tensors.display().to_string().parse::<ModelRef>().unwrap_err();
        assert!(error.hint().unwrap().contains(&folder.display().to_string()));
        assert_eq!(error, ReferenceError::Safetensors { path: tensors });
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn everything_else_is_an_error_that_says_what_was_tried() {
        assert_eq!("".parse::<ModelRef>(), Err(ReferenceError::Empty));
        for text in ["model", "./org/name", "a/b/c", "../x", "/no/such", "https://host/x", "a/"] {
            let error = text.parse::<ModelRef>().unwrap_err();
            assert_eq!(error, ReferenceError::Unknown { text: text.to_owned() });
            let message = error.to_string();
            assert!(message.contains(text) && message.contains(HUB_FORM), "{message}");
        }
        for (text, part) in [("o/n@", "revision"), ("o/n@../x", "revision"), ("o/n:", "quantisation")] {
            let error = text.parse::<ModelRef>().unwrap_err();
            assert!(matches!(error, ReferenceError::HubPart { part: found, .. } if found == part));
            assert!(error.hint().is_some());
        }
    }
}
