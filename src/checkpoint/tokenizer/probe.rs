//! A first look at tokenizer.json, for what must be known before the tokenizers library reads it.
//!
//! The library trusts the file in a few places: a merge whose result is longer than every token makes it panic.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

use super::error::TokenizerError;
use super::pieces::Rules;

/// A normalizer that is a table in binary form, which the library follows without looking where it leads. Tokenizers of
/// other model families have it.
const COMPILED_NORMALIZER: &str = "Precompiled";

/// The parts of the file that are looked at.
#[derive(Debug, Deserialize)]
pub(super) struct Probe {
    model: ModelProbe,
    #[serde(default)]
    decoder: Option<Value>,
    #[serde(default)]
    normalizer: Option<Value>,
}

#[derive(Debug, Deserialize)]
struct ModelProbe {
    #[serde(rename = "type", default)]
    kind: Option<String>,
    #[serde(default)]
    dropout: Option<f64>,
    #[serde(default)]
    continuing_subword_prefix: Option<String>,
    #[serde(default)]
    end_of_word_suffix: Option<String>,
    #[serde(default)]
    unk_token: Option<String>,
    #[serde(default)]
    vocab: LongestKey,
    #[serde(default)]
    merges: LongestMerge,
}

impl Probe {
    /// Reads and checks the file.
    ///
    /// # Errors
    /// `Json` when it is not such a file, `UnsupportedModel` for anything but BPE, `UnsupportedPart` for settings that
    /// language models do not use, `Merge` for a rule that no vocabulary entry can hold.
    pub fn read(bytes: &[u8]) -> Result<Self, TokenizerError> {
        let probe: Self = serde_json::from_slice(bytes).map_err(TokenizerError::Json)?;
        let model = &probe.model;
        if let Some(kind) = model.kind.as_deref().filter(|k| *k != "BPE") {
            return Err(TokenizerError::UnsupportedModel { found: kind.to_owned(), accepted: "BPE" });
        }
        let part = |part, found: &dyn fmt::Display| TokenizerError::UnsupportedPart {
            part,
            found: found.to_string(),
        };
        if probe.normalizer.as_ref().is_some_and(|found| names(found, COMPILED_NORMALIZER)) {
            return Err(part("normalizer", &COMPILED_NORMALIZER));
        }
        if let Some(dropout) = model.dropout.filter(|d| *d != 0.0) {
            return Err(part("dropout", &dropout));
        }
        if let Some(prefix) = model.continuing_subword_prefix.as_deref().filter(|p| !p.is_empty()) {
            return Err(part("continuing_subword_prefix", &prefix));
        }
        if let Some(suffix) = model.end_of_word_suffix.as_deref().filter(|s| !s.is_empty()) {
            return Err(part("end_of_word_suffix", &suffix));
        }
        if model.merges.size_bytes > model.vocab.size_bytes {
            return Err(TokenizerError::Merge {
                index: model.merges.index,
                merge: model.merges.text.clone(),
                reason: "its result is not in the vocabulary",
            });
        }
        Ok(probe)
    }

    /// Whether a character without an entry becomes an unknown-token id rather than nothing.
    pub fn has_unknown_token(&self) -> bool {
        self.model.unk_token.is_some()
    }

    /// How entries become text.
    ///
    /// # Errors
    /// `UnsupportedPart` for a decoder that BPE language models do not use.
    pub fn rules(&self) -> Result<Rules, TokenizerError> {
        let mut rules = Rules::default();
        if let Some(decoder) = &self.decoder {
            add_rule(decoder, &mut rules)?;
        }
        Ok(rules)
    }
}

fn add_rule(decoder: &Value, rules: &mut Rules) -> Result<(), TokenizerError> {
    let text = |key| decoder.get(key).and_then(Value::as_str);
    let refuse = || {
        let found = decoder.to_string().chars().take(200).collect();
        TokenizerError::UnsupportedPart { part: "decoder", found }
    };
    match text("type").unwrap_or_default() {
        "Sequence" => {
            let steps = decoder.get("decoders").and_then(Value::as_array).ok_or_else(refuse)?;
            // Nested sequences do not occur, so one level is read.
            for step in steps {
                if text_type(step) == Some("Sequence") {
                    return Err(refuse());
                }
                add_rule(step, rules)?;
            }
        }
        "ByteLevel" => rules.byte_level = true,
        "ByteFallback" => rules.byte_fallback = true,
        "Fuse" => {}
        "Replace" => {
            let from = decoder
                .get("pattern")
                .and_then(|p| p.get("String"))
                .and_then(Value::as_str)
                .ok_or_else(refuse)?;
            // Replacements only ever make a blank visible or a mark a blank: none makes the text longer.
            let to =
                text("content").filter(|to| to.len() <= from.len() && !from.is_empty()).ok_or_else(refuse)?;
            rules.replace.push((from.to_owned(), to.to_owned()));
        }
        "Strip" => {
            let count = |key| decoder.get(key).and_then(Value::as_u64);
            let (Some(" "), Some(start), Some(0)) = (text("content"), count("start"), count("stop")) else {
                return Err(refuse());
            };
            rules.strip_left = usize::try_from(start).map_err(|_| refuse())?;
        }
        "Metaspace" => {
            let blank = text("replacement").unwrap_or("\u{2581}");
            rules.replace.push((blank.to_owned(), " ".to_owned()));
            rules.strip_left = usize::from(text("prepend_scheme") != Some("never"));
        }
        _ => return Err(refuse()),
    }
    Ok(())
}

/// Whether a part of this type stands in `value` at any depth.
fn names(value: &Value, part: &str) -> bool {
    match value {
        Value::Object(map) => text_type(value) == Some(part) || map.values().any(|inner| names(inner, part)),
        Value::Array(list) => list.iter().any(|inner| names(inner, part)),
        _ => false,
    }
}

fn text_type(value: &Value) -> Option<&str> {
    value.get("type")?.as_str()
}

/// Length of the longest key of a vocabulary object; a list (another model's) counts as empty.
#[derive(Debug, Default)]
struct LongestKey {
    size_bytes: usize,
}

impl<'de> Deserialize<'de> for LongestKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Keys;
        impl<'de> Visitor<'de> for Keys {
            type Value = LongestKey;
            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("a vocabulary")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<LongestKey, A::Error> {
                let mut size_bytes = 0;
                while let Some((key, _)) = map.next_entry::<String, IgnoredAny>()? {
                    size_bytes = size_bytes.max(key.len());
                }
                Ok(LongestKey { size_bytes })
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<LongestKey, A::Error> {
                while seq.next_element::<IgnoredAny>()?.is_some() {}
                Ok(LongestKey::default())
            }
        }
        deserializer.deserialize_any(Keys)
    }
}

/// The merge rule with the longest result.
#[derive(Debug, Default)]
struct LongestMerge {
    index: usize,
    text: String,
    size_bytes: usize,
}

/// A rule in either spelling.
#[derive(Deserialize)]
#[serde(untagged)]
enum Merge {
    Text(String),
    Pair(String, String),
}

impl<'de> Deserialize<'de> for LongestMerge {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Rules;
        impl<'de> Visitor<'de> for Rules {
            type Value = LongestMerge;
            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("a list of merges")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<LongestMerge, A::Error> {
                let mut longest = LongestMerge::default();
                let mut index = 0;
                while let Some(merge) = seq.next_element::<Merge>()? {
                    let size_bytes = match &merge {
                        Merge::Text(text) => text.len().saturating_sub(1),
                        Merge::Pair(left, right) => left.len().saturating_add(right.len()),
                    };
                    if size_bytes > longest.size_bytes {
                        let text = match merge {
                            Merge::Text(text) => text,
                            Merge::Pair(left, right) => format!("{left} {right}"),
                        };
                        longest = LongestMerge { index, text, size_bytes };
                    }
                    index += 1;
                }
                Ok(longest)
            }
        }
        deserializer.deserialize_seq(Rules)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(file: &Value) -> Result<Probe, TokenizerError> {
        Probe::read(file.to_string().as_bytes())
    }

    #[test]
    fn a_merge_longer_than_every_token_is_refused() {
        for merge in [json!("ab ab"), json!(["ab", "ab"])] {
            let file = json!({"model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b", merge]}});
            let message = read(&file).unwrap_err().to_string();
            assert!(message.starts_with("merge 1 `ab ab`"), "{message}");
        }
    }

    #[test]
    fn other_models_and_settings_are_refused_by_name() {
        let message = |file: &Value| read(file).unwrap_err().to_string();
        assert!(message(&json!({"model": {"type": "Unigram", "vocab": [["a", 0.0]]}})).contains("`Unigram`"));
        for (key, value) in [
            ("dropout", json!(0.1)),
            ("continuing_subword_prefix", json!("##")),
            ("end_of_word_suffix", json!("</w>")),
        ] {
            let mut file = json!({"model": {"type": "BPE", "vocab": {}, "merges": []}});
            file["model"][key] = value;
            assert!(message(&file).contains(key));
        }
        assert!(matches!(Probe::read(b"{"), Err(TokenizerError::Json(_))));
        let compiled = json!({"type": "Precompiled", "precompiled_charsmap": "AAAA"});
        let nested = json!({"type": "Sequence", "normalizers": [{"type": "NFC"}, compiled]});
        for normalizer in [compiled, nested] {
            let file = json!({"model": {"type": "BPE", "vocab": {}, "merges": []}, "normalizer": normalizer});
            assert!(message(&file).contains("normalizer `Precompiled`"));
        }
    }

    #[test]
    fn the_decoders_in_use_are_read_and_others_refused() {
        let rules = |decoder: Value| {
            read(&json!({"model": {"vocab": {}, "merges": []}, "decoder": decoder})).unwrap().rules()
        };
        let llama = json!({"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "\u{2581}"}, "content": " "}, {"type": "ByteFallback"},
            {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]});
        let read = rules(llama).unwrap();
        assert!(read.byte_fallback && !read.byte_level && read.strip_left == 1);
        assert!(rules(json!({"type": "ByteLevel"})).unwrap().byte_level);
        assert_eq!(rules(json!({"type": "Metaspace", "prepend_scheme": "never"})).unwrap().strip_left, 0);
        assert_eq!(rules(json!(null)).unwrap(), Rules::default());
        for bad in [
            json!({"type": "WordPiece"}),
            json!({"type": "Strip", "content": "x", "start": 1, "stop": 0}),
            json!({"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}),
            json!({"type": "Replace", "pattern": {"String": ""}, "content": ""}),
            json!(7),
        ] {
            assert!(rules(bad).unwrap_err().to_string().contains("decoder"));
        }
    }
}
