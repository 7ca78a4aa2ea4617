//! `config.json` and `generation_config.json` of a Hugging Face checkpoint.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use crate::checkpoint::sidecar::{self, SidecarError};

/// Longest text of a value in a message, in characters.
const SHOWN_CHARACTERS: usize = 60;

/// A JSON object from a file, with typed access. `null` counts as absent.
#[derive(Clone, Debug, PartialEq)]
pub struct HfConfig {
    path: PathBuf,
    map: Map<String, Value>,
}

/// What is wrong with a config file.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read
    #[error(transparent)]
    Read(#[from] SidecarError),
    /// There is no such file
    #[error("`{}` does not exist", .path.display())]
    Missing {
        /// File
        path: PathBuf,
    },
    /// The file is not JSON
    #[error("`{}` is not valid JSON: {source}", .path.display())]
    Json {
        /// File
        path: PathBuf,
        /// Position and reason
        source: serde_json::Error,
    },
    /// The file is JSON, but no object
    #[error("`{}` must hold a JSON object, found `{found}`", .path.display())]
    NotAnObject {
        /// File
        path: PathBuf,
        /// Value found
        found: String,
    },
    /// A key has a value of the wrong type or range
    #[error("`{}`: key `{key}` must be {expected}, found `{found}`", .path.display())]
    Value {
        /// File
        path: PathBuf,
        /// Key
        key: String,
        /// Type and range in words
        expected: &'static str,
        /// Value found
        found: String,
    },
    /// A required key is absent or null
    #[error("`{}`: key `{key}` is missing", .path.display())]
    MissingKey {
        /// File
        path: PathBuf,
        /// Key
        key: String,
    },
}

impl ConfigError {
    /// What the user can do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Missing { .. } => Some(
                "a folder needs the `config.json` of the original model; give one with `--config FILE`"
                    .to_owned(),
            ),
            Self::Json { .. } | Self::NotAnObject { .. } => {
                Some("fetch the file again, or give another one with `--config FILE`".to_owned())
            }
            _ => None,
        }
    }
}

impl HfConfig {
    /// Read a file that must exist.
    ///
    /// # Errors
    /// `Missing`, `Read`, `Json` or `NotAnObject`.
    pub fn open(path: &Path) -> Result<Self, ConfigError> {
        Self::open_optional(path)?.ok_or_else(|| ConfigError::Missing { path: path.to_owned() })
    }

    /// Read a file that may be absent.
    ///
    /// # Errors
    /// `Read`, `Json` or `NotAnObject`.
    pub fn open_optional(path: &Path) -> Result<Option<Self>, ConfigError> {
        match sidecar::read(path)? {
            Some(bytes) => Self::from_slice(&bytes, path).map(Some),
            None => Ok(None),
        }
    }

    /// Read JSON from memory; `path` is for messages.
    ///
    /// # Errors
    /// `Json` or `NotAnObject`.
    pub fn from_slice(bytes: &[u8], path: &Path) -> Result<Self, ConfigError> {
        let value: Value = serde_json::from_slice(bytes)
            .map_err(|source| ConfigError::Json { path: path.to_owned(), source })?;
        match value {
            Value::Object(map) => Ok(Self { path: path.to_owned(), map }),
            other => Err(ConfigError::NotAnObject { path: path.to_owned(), found: shown(&other) }),
        }
    }

    /// File for messages.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The whole object.
    pub fn map(&self) -> &Map<String, Value> {
        &self.map
    }

    /// The value of `key`, unless it is absent or null.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.map.get(key).filter(|value| !value.is_null())
    }

    /// Turn an absent value into an error: `config.required(key, config.usize(key)?)?`.
    ///
    /// # Errors
    /// `MissingKey` when `value` is `None`.
    pub fn required<T>(&self, key: &str, value: Option<T>) -> Result<T, ConfigError> {
        value.ok_or_else(|| ConfigError::MissingKey { path: self.path.clone(), key: key.to_owned() })
    }

    /// A count or length.
    ///
    /// # Errors
    /// `Value` for anything but an integer of 0 or more.
    pub fn usize(&self, key: &str) -> Result<Option<usize>, ConfigError> {
        let convert = |value: &Value| value.as_u64().and_then(|n| usize::try_from(n).ok());
        self.typed(key, "an integer of 0 or more", convert)
    }

    /// A finite number; integers are accepted.
    ///
    /// # Errors
    /// `Value` for anything but a number.
    pub fn f64(&self, key: &str) -> Result<Option<f64>, ConfigError> {
        self.typed(key, "a finite number", |value| value.as_f64().filter(|x| x.is_finite()))
    }

    /// A flag.
    ///
    /// # Errors
    /// `Value` for anything but `true` and `false`.
    pub fn bool(&self, key: &str) -> Result<Option<bool>, ConfigError> {
        self.typed(key, "`true` or `false`", Value::as_bool)
    }

    /// A text.
    ///
    /// # Errors
    /// `Value` for anything but a string.
    pub fn str(&self, key: &str) -> Result<Option<&str>, ConfigError> {
        self.typed(key, "a string", Value::as_str)
    }

    /// A list of texts.
    ///
    /// # Errors
    /// `Value` for anything but a list of strings.
    pub fn strings(&self, key: &str) -> Result<Option<Vec<&str>>, ConfigError> {
        self.typed(key, "a list of strings", |value| value.as_array()?.iter().map(Value::as_str).collect())
    }

    /// An object.
    ///
    /// # Errors
    /// `Value` for anything but an object.
    pub fn object(&self, key: &str) -> Result<Option<&Map<String, Value>>, ConfigError> {
        self.typed(key, "an object", Value::as_object)
    }

    /// Token ids, given as one integer or a list of them, such as `eos_token_id`.
    ///
    /// # Errors
    /// `Value` for anything else.
    pub fn token_ids(&self, key: &str) -> Result<Option<Vec<u32>>, ConfigError> {
        let id = |value: &Value| value.as_u64().and_then(|n| u32::try_from(n).ok());
        self.typed(key, "a token id or a list of token ids", |value| match value {
            Value::Array(list) => list.iter().map(id).collect(),
            single => id(single).map(|id| vec![id]),
        })
    }

    fn typed<'a, T>(
        &'a self,
        key: &str,
        expected: &'static str,
        convert: impl Fn(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, ConfigError> {
        let Some(value) = self.get(key) else {
            return Ok(None);
        };
        match convert(value) {
            Some(converted) => Ok(Some(converted)),
            None => Err(ConfigError::Value {
                path: self.path.clone(),
                key: key.to_owned(),
                expected,
                found: shown(value),
            }),
        }
    }
}

/// A value for a message, cut when long.
fn shown(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(SHOWN_CHARACTERS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> Result<HfConfig, ConfigError> {
        HfConfig::from_slice(text.as_bytes(), Path::new("dir/config.json"))
    }

    #[test]
    fn values_are_typed_and_null_is_absent() {
        let text = r#"{"n": 7, "x": 0.5, "flag": true, "name": "llama", "inner": {"a": 1}, "none": null,
            "one": 2, "many": [2, 3], "names": ["A", "B"]}"#;
        let config = config(text).unwrap();
        assert_eq!(config.usize("n").unwrap(), Some(7));
        assert_eq!(config.f64("n").unwrap(), Some(7.0));
        assert_eq!(config.f64("x").unwrap(), Some(0.5));
        assert_eq!(config.bool("flag").unwrap(), Some(true));
        assert_eq!(config.str("name").unwrap(), Some("llama"));
        assert_eq!(config.strings("names").unwrap(), Some(vec!["A", "B"]));
        assert_eq!(config.object("inner").unwrap().unwrap().len(), 1);
        assert_eq!(config.token_ids("one").unwrap(), Some(vec![2]));
        assert_eq!(config.token_ids("many").unwrap(), Some(vec![2, 3]));
        assert_eq!(config.usize("none").unwrap(), None);
        assert_eq!(config.str("absent").unwrap(), None);
        assert!(config.get("none").is_none() && config.map().contains_key("none"));
        assert_eq!(config.required("n", config.usize("n").unwrap()).unwrap(), 7);
    }

    #[test]
    fn wrong_values_name_file_key_and_value() {
        let config = config(r#"{"k": -1, "big": 4294967296, "s": "x", "l": [1, "a"]}"#).unwrap();
        let text = config.usize("k").unwrap_err().to_string();
        assert_eq!(text, "`dir/config.json`: key `k` must be an integer of 0 or more, found `-1`");
        assert!(config.usize("s").is_err() && config.f64("s").is_err() && config.bool("s").is_err());
        assert!(config.str("k").is_err() && config.object("s").is_err());
        assert!(config.strings("l").is_err() && config.strings("s").is_err());
        assert!(config.token_ids("l").is_err() && config.token_ids("big").is_err());
        let text = config.required::<usize>("gone", None).unwrap_err().to_string();
        assert_eq!(text, "`dir/config.json`: key `gone` is missing");
    }

    #[test]
    fn files_must_hold_an_object() {
        let error = config("[1, 2]").unwrap_err();
        assert_eq!(error.to_string(), "`dir/config.json` must hold a JSON object, found `[1,2]`");
        assert!(error.hint().is_some());
        assert!(matches!(config("{"), Err(ConfigError::Json { .. })));
        assert!(matches!(config(r#"{"x": NaN}"#), Err(ConfigError::Json { .. })));
        let deep = "[".repeat(100_000);
        assert!(matches!(config(&deep), Err(ConfigError::Json { .. })));
        let long = format!("\"{}\"", "ü".repeat(200));
        assert!(config(&long).unwrap_err().to_string().contains('…'));
    }

    #[test]
    fn an_absent_file_is_an_error_only_where_it_is_needed() {
        let path = Path::new("/no/such/config.json");
        assert!(HfConfig::open_optional(path).unwrap().is_none());
        assert!(matches!(HfConfig::open(path), Err(ConfigError::Missing { .. })));
        assert!(matches!(HfConfig::open(&std::env::temp_dir()), Err(ConfigError::Read(_))));
    }
}
