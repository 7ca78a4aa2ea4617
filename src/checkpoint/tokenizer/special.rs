//! Which ids begin and end a text.

use std::collections::BTreeSet;

use serde_json::Value;

use super::error::TokenizerError;

/// Texts of control tokens that end an answer or a turn, whatever the configuration lists.
const END_MARKERS: &[&str] = &[
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<end_of_turn>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<|end_of_turn|>",
    "<EOT>",
    "[EOT]",
    "<\u{ff5c}end\u{2581}of\u{2581}sentence\u{ff5c}>",
];

/// Ids that end generation, gathered from every source.
#[derive(Debug)]
pub(super) struct EndIds {
    ids: BTreeSet<u32>,
    vocab_size: usize,
}

impl EndIds {
    pub fn new(vocab_size: usize) -> Self {
        Self { ids: BTreeSet::new(), vocab_size }
    }

    pub fn insert(&mut self, id: u32) {
        self.ids.insert(id);
    }

    /// Adds the markers that are control tokens. `id_of`: the id of a control token by its text.
    pub fn add_markers(&mut self, id_of: impl Fn(&str) -> Option<u32>) {
        // In the harmony format `<|end|>` closes a message, not the answer.
        let harmony = id_of("<|return|>").is_some() && id_of("<|call|>").is_some();
        for marker in END_MARKERS.iter().filter(|m| !(harmony && **m == "<|end|>")) {
            self.ids.extend(id_of(marker));
        }
    }

    /// Adds `eos_token_id` of a configuration object: a number, a list, or `null`. Returns the first one.
    ///
    /// # Errors
    /// `TokenizerError::SpecialId` for anything else, or an id outside the vocabulary.
    pub fn add_config(&mut self, config: &Value, file: &str) -> Result<Option<u32>, TokenizerError> {
        let value = config.get("eos_token_id").unwrap_or(&Value::Null);
        let list = match value {
            Value::Null => return Ok(None),
            Value::Array(list) => list.as_slice(),
            single => std::slice::from_ref(single),
        };
        let mut first = None;
        for id in list {
            let origin = || format!("`eos_token_id` in {file}");
            let id = checked_id(id.as_u64(), id, origin, self.vocab_size)?;
            first = first.or(Some(id));
            self.ids.insert(id);
        }
        Ok(first)
    }

    pub fn into_set(self) -> BTreeSet<u32> {
        self.ids
    }
}

/// A special id, inside the vocabulary.
pub(super) fn checked_id(
    id: Option<u64>,
    shown: impl ToString,
    origin: impl Fn() -> String,
    vocab_size: usize,
) -> Result<u32, TokenizerError> {
    id.and_then(|id| u32::try_from(id).ok())
        .filter(|id| (*id as usize) < vocab_size)
        .ok_or_else(|| TokenizerError::SpecialId { origin: origin(), id: shown.to_string(), vocab_size })
}

/// The text of a token in tokenizer_config.json: a string, or an object with `content`.
pub(super) fn token_text(value: &Value) -> Option<&str> {
    value.as_str().or_else(|| value.get("content")?.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_number_a_list_and_null_are_read_and_the_rest_refused() {
        let mut ends = EndIds::new(10);
        ends.add_config(&json!({"eos_token_id": 3}), "config.json").unwrap();
        ends.add_config(&json!({"eos_token_id": [5, 7]}), "generation_config.json").unwrap();
        ends.add_config(&json!({"eos_token_id": null}), "config.json").unwrap();
        ends.add_config(&json!({}), "config.json").unwrap();
        for bad in [json!(10), json!(-1), json!("2"), json!([1, 1.5]), json!({})] {
            let error = ends.add_config(&json!({ "eos_token_id": bad }), "config.json").unwrap_err();
            assert!(error.to_string().starts_with("`eos_token_id` in config.json is"), "{error}");
        }
        ends.insert(1);
        assert!(ends.into_set().is_superset(&BTreeSet::from([1, 3, 5, 7])));
    }

    #[test]
    fn the_end_of_a_harmony_message_is_not_the_end_of_the_answer() {
        let id_of = |names: &'static [&'static str]| {
            move |t: &str| names.iter().position(|n| *n == t).map(|i| i as u32)
        };
        let mut ends = EndIds::new(10);
        ends.add_markers(id_of(&["<|end|>", "<|return|>", "<|call|>"]));
        assert_eq!(ends.into_set(), BTreeSet::from([1, 2]));
        let mut ends = EndIds::new(10);
        ends.add_markers(id_of(&["<|end|>"]));
        assert_eq!(ends.into_set(), BTreeSet::from([0]));
    }
}
