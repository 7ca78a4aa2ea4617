//! Typed access to a JSON object of rope parameters; null counts as absent.

use serde_json::{Map, Value};

use super::error::RopeConfigError;
use super::limit::believed;
use super::origin::Origin;

/// Whose words a dictionary holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    Config,
    Flag,
}

#[derive(Debug)]
struct Entry {
    key: String,
    value: Value,
    /// The enclosing object, empty for the top level of a config.
    place: &'static str,
}

impl Entry {
    /// The path of this entry, for messages.
    fn path(&self) -> String {
        if self.place.is_empty() { self.key.clone() } else { format!("{}.{}", self.place, self.key) }
    }

    fn wrong_type(&self, expected: &'static str) -> RopeConfigError {
        RopeConfigError::WrongType { key: self.path(), expected, found: self.value.to_string() }
    }

    /// Key and value in words.
    fn said(&self) -> String {
        format!("`{}` = `{}`", self.path(), self.value)
    }
}

/// Entries of one or two JSON objects that speak about the same thing.
#[derive(Debug)]
pub(super) struct Dictionary {
    entries: Vec<Entry>,
    source: Source,
}

impl Dictionary {
    /// The entries of `object` that are not null; `place` names the object in messages.
    pub fn new(object: &Map<String, Value>, place: &'static str, source: Source) -> Dictionary {
        let entries = object
            .iter()
            .filter(|(_, value)| !value.is_null())
            .map(|(key, value)| Entry { key: key.clone(), value: value.clone(), place })
            .collect();
        Dictionary { entries, source }
    }

    /// The object under `key` of a config; empty when absent or null.
    ///
    /// # Errors
    /// [`RopeConfigError::WrongType`] when it is something else.
    pub fn inner(config: &Map<String, Value>, key: &'static str) -> Result<Dictionary, RopeConfigError> {
        match config.get(key) {
            None | Some(Value::Null) => Ok(Dictionary { entries: Vec::new(), source: Source::Config }),
            Some(Value::Object(object)) => Ok(Dictionary::new(object, key, Source::Config)),
            Some(other) => Err(RopeConfigError::WrongType {
                key: key.to_owned(),
                expected: "an object or null",
                found: other.to_string(),
            }),
        }
    }

    /// Both together; the same key may stand in both with the same value.
    ///
    /// # Errors
    /// [`RopeConfigError::Conflict`] when a key has two values.
    pub fn merge(mut self, other: Dictionary) -> Result<Dictionary, RopeConfigError> {
        for entry in other.entries {
            match self.entries.iter().find(|e| e.key == entry.key) {
                None => self.entries.push(entry),
                Some(present) if same(&present.value, &entry.value) => {}
                Some(present) => {
                    return Err(RopeConfigError::Conflict { first: present.said(), second: entry.said() });
                }
            }
        }
        Ok(self)
    }

    fn get(&self, key: &str) -> Option<&Entry> {
        self.entries.iter().find(|e| e.key == key)
    }

    /// Whether `key` has a value.
    pub fn has(&self, key: &str) -> bool {
        self.get(key).is_some()
    }

    /// Keys and values in the order of the file.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.entries.iter().map(|e| (e.key.as_str(), &e.value))
    }

    /// The path of `key` for messages, whether or not it is there.
    pub fn path(&self, key: &str) -> String {
        let place = self.entries.first().map_or("", |e| e.place);
        self.get(key).map_or_else(
            || if place.is_empty() { key.to_owned() } else { format!("{place}.{key}") },
            Entry::path,
        )
    }

    /// `key` and its value in words, for messages about contradictions.
    pub fn said(&self, key: &str) -> String {
        self.get(key).map_or_else(|| format!("`{key}`"), Entry::said)
    }

    /// Where the value of `key` stands; `None` when it is absent.
    pub fn origin(&self, key: &str) -> Option<Origin> {
        let entry = self.get(key)?;
        Some(match self.source {
            Source::Config => Origin::Checkpoint(format!("{} in config.json", entry.path())),
            Source::Flag => Origin::Flag(format!("{} ({})", entry.place, entry.key)),
        })
    }

    /// A number; integers count.
    pub fn number(&self, key: &str) -> Result<Option<f64>, RopeConfigError> {
        self.get(key)
            .map(|e| e.value.as_f64().filter(|v| v.is_finite()).ok_or_else(|| e.wrong_type("a number")))
            .transpose()
    }

    /// A number of tokens: an integer above 0, also written as a float.
    pub fn tokens(&self, key: &str) -> Result<Option<usize>, RopeConfigError> {
        let Some(entry) = self.get(key) else { return Ok(None) };
        let wrong = || entry.wrong_type("a whole number above 0");
        let count = match (entry.value.as_u64(), entry.value.as_f64()) {
            (Some(count), _) => usize::try_from(count).map_err(|_| wrong())?,
            (None, Some(float)) if float.fract() == 0.0 && float > 0.0 && float < 9e15 => float as usize,
            _ => return Err(wrong()),
        };
        if count == 0 {
            return Err(wrong());
        }
        believed(&entry.path(), count).map(Some)
    }

    /// True or false.
    pub fn flag(&self, key: &str) -> Result<Option<bool>, RopeConfigError> {
        self.get(key).map(|e| e.value.as_bool().ok_or_else(|| e.wrong_type("true or false"))).transpose()
    }

    /// A text.
    pub fn text(&self, key: &str) -> Result<Option<&str>, RopeConfigError> {
        self.get(key).map(|e| e.value.as_str().ok_or_else(|| e.wrong_type("a string"))).transpose()
    }

    /// A list of numbers.
    pub fn numbers(&self, key: &str) -> Result<Option<Vec<f64>>, RopeConfigError> {
        let Some(entry) = self.get(key) else { return Ok(None) };
        let numbers = entry.value.as_array().and_then(|list| list.iter().map(Value::as_f64).collect());
        numbers.map(Some).ok_or_else(|| entry.wrong_type("a list of numbers"))
    }
}

/// Equality that does not tell `4` from `4.0`.
fn same(a: &Value, b: &Value) -> bool {
    match (a.as_f64(), b.as_f64()) {
        (Some(a), Some(b)) => a == b,
        _ => a == b,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn dictionary(value: Value) -> Dictionary {
        Dictionary::new(value.as_object().unwrap(), "rope_scaling", Source::Config)
    }

    #[test]
    fn d030_d046_numbers_of_any_kind_and_null() {
        let d = dictionary(json!({"a": 4, "b": 4.0, "c": "4", "d": null, "e": true}));
        assert_eq!(d.number("a"), Ok(Some(4.0)));
        assert_eq!(d.number("b"), Ok(Some(4.0)));
        assert_eq!(d.number("d"), Ok(None));
        assert_eq!(
            d.number("c").unwrap_err().to_string(),
            "`rope_scaling.c` must be a number, found `\"4\"`"
        );
        assert!(d.number("e").is_err() && !d.has("d"));
    }

    #[test]
    fn tokens_are_whole_and_positive() {
        let d = dictionary(json!({"a": 4096, "b": 4096.0, "c": 1.5, "d": 0, "e": -1, "f": u64::MAX}));
        assert_eq!((d.tokens("a"), d.tokens("b")), (Ok(Some(4096)), Ok(Some(4096))));
        for key in ["c", "d", "e", "f"] {
            assert!(d.tokens(key).is_err(), "{key}");
        }
    }

    #[test]
    fn the_other_types_are_checked_too() {
        let d = dictionary(json!({"a": 1, "b": [1, 2.5], "c": [1, "x"], "d": "t", "e": false}));
        assert_eq!(d.numbers("b"), Ok(Some(vec![1.0, 2.5])));
        assert!(d.numbers("c").is_err() && d.numbers("a").is_err());
        assert_eq!((d.text("d"), d.flag("e")), (Ok(Some("t")), Ok(Some(false))));
        assert!(d.text("a").is_err() && d.flag("a").is_err());
        assert!(Dictionary::inner(json!({"r": 1}).as_object().unwrap(), "r").is_err());
    }

    #[test]
    fn two_objects_may_agree_and_not_contradict() {
        let merged = dictionary(json!({"a": 4})).merge(dictionary(json!({"a": 4.0, "b": 1}))).unwrap();
        assert_eq!(merged.iter().count(), 2);
        let error = merged.merge(dictionary(json!({"b": 2}))).unwrap_err();
        assert_eq!(
            error.to_string(),
            "`rope_scaling.b` = `1` and `rope_scaling.b` = `2` contradict each other"
        );
    }
}
