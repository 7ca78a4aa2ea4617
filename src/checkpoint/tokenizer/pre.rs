//! Pre-tokenizers that `tokenizer.ggml.pre` names: how a text is cut before merging.
//!
//! The patterns are those of the original tokenizer.json files, as llama.cpp's `llama-vocab.cpp` records them.

use tokenizers::normalizers::unicode::NFC;
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::tokenizer::SplitDelimiterBehavior;

use super::error::TokenizerError;

const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
const DIGIT: &str = r"\p{N}";
const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN35: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const TEKKEN: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const GPT4O: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const PUNCTUATION: &str = r"[\p{P}\$\+<=>\^~\|]+";
const FALCON_PUNCTUATION: &str = r"[\p{P}\$\+<=>\^~\|`]+";
const THREE_DIGITS: &str = r"[0-9][0-9][0-9]";

/// One way of cutting, with the settings that go with it.
#[derive(Debug)]
pub(super) struct Pre {
    /// Values of `tokenizer.ggml.pre`.
    names: &'static [&'static str],
    /// Applied in turn; what matches and what lies between are both kept as pieces.
    patterns: &'static [&'static str],
    /// The original tokenizer composes characters (NFC) first.
    pub nfc: bool,
    /// A piece that is a token as a whole is taken without merging.
    pub ignore_merges: bool,
    /// BOS is added unless `tokenizer.ggml.add_bos_token` says otherwise.
    pub add_bos: bool,
}

const fn pre(names: &'static [&'static str], patterns: &'static [&'static str]) -> Pre {
    Pre { names, patterns, nfc: false, ignore_merges: false, add_bos: false }
}

static TABLE: &[Pre] = &[
    pre(&["default"], &[PUNCTUATION, GPT2, r"\p{N}+", THREE_DIGITS]),
    pre(
        &[
            "gpt-2",
            "phi-2",
            "mpt",
            "olmo",
            "jais",
            "mellum",
            "exaone4",
            "trillion",
            "granite-docling",
            "gigachat",
        ],
        &[GPT2],
    ),
    Pre {
        ignore_merges: true,
        add_bos: true,
        ..pre(
            &["llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "lfm2", "midm-2.0", "pixtral"],
            &[LLAMA3],
        )
    },
    pre(&["dbrx", "smaug-bpe", "chatglm-bpe"], &[LLAMA3]),
    Pre { ignore_merges: true, ..pre(&["glm4", "glm5"], &[LLAMA3]) },
    Pre { nfc: true, ..pre(&["qwen2", "stablelm2"], &[QWEN2]) },
    pre(&["deepseek-r1-qwen", "megrez", "hunyuan", "solar-open", "grok-2"], &[QWEN2]),
    Pre { nfc: true, ..pre(&["qwen35"], &[QWEN35]) },
    pre(
        &["smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b", "mellum2"],
        &[DIGIT, GPT2],
    ),
    Pre { ignore_merges: true, add_bos: true, ..pre(&["tekken"], &[TEKKEN]) },
    pre(&["gpt-4o", "llama4", "kanana2", "minimax-m2"], &[GPT4O]),
    pre(&["falcon"], &[FALCON_PUNCTUATION, GPT2, THREE_DIGITS]),
];

impl Pre {
    /// Looks a value of `tokenizer.ggml.pre` up.
    ///
    /// # Errors
    /// `TokenizerError::UnknownPre` with the list of known names.
    pub fn named(name: &str) -> Result<&'static Self, TokenizerError> {
        TABLE
            .iter()
            .find(|p| p.names.contains(&name))
            .ok_or_else(|| TokenizerError::UnknownPre(name.to_owned()))
    }

    /// Every way of cutting.
    #[cfg(test)]
    pub fn all() -> impl Iterator<Item = &'static Self> {
        TABLE.iter()
    }

    /// Every known name, for messages.
    pub fn names() -> String {
        TABLE.iter().flat_map(|p| p.names).copied().collect::<Vec<_>>().join(", ")
    }

    /// The normalizer that goes with it.
    pub fn normalizer(&self) -> Option<NFC> {
        self.nfc.then_some(NFC)
    }

    /// The cutter, followed by the step that writes bytes in GPT-2's alphabet.
    ///
    /// # Errors
    /// `TokenizerError::Library` when a pattern does not compile.
    pub fn splitter(&self) -> Result<Sequence, TokenizerError> {
        let mut steps = Vec::with_capacity(self.patterns.len() + 1);
        for pattern in self.patterns {
            let pattern = SplitPattern::Regex((*pattern).to_owned());
            let split = Split::new(pattern, SplitDelimiterBehavior::Isolated, false)
                .map_err(TokenizerError::Library)?;
            steps.push(PreTokenizerWrapper::Split(split));
        }
        steps.push(PreTokenizerWrapper::ByteLevel(ByteLevel::new(false, false, false)));
        Ok(Sequence::new(steps))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pattern_compiles_and_every_name_is_unique() {
        let mut names: Vec<_> = TABLE.iter().flat_map(|p| p.names).collect();
        for p in TABLE {
            p.splitter().unwrap();
        }
        let all = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), all);
    }

    #[test]
    fn an_unknown_name_is_an_error_with_the_list() {
        let message = Pre::named("nonesuch").unwrap_err().to_string();
        assert!(message.contains("`nonesuch`") && message.contains("llama-bpe"), "{message}");
    }
}
