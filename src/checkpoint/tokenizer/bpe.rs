//! Byte-level BPE vocabularies (GPT-2 style), rebuilt with the tokenizers library.

use std::collections::{HashMap, HashSet};

use tokenizers::AddedToken;
use tokenizers::decoders::byte_level::ByteLevel;
use tokenizers::models::bpe::{BPE, Merges, Vocab};

use super::error::TokenizerError;
use super::pre::Pre;

/// Splits merge rules and checks that each leads from two tokens to a third.
///
/// `merges`: rules `left right`, most important first; `ids`: the vocabulary.
///
/// # Errors
/// `TokenizerError::Merge` for a rule without two parts, with a part that is no token, or stated twice.
pub(super) fn checked_merges<'t>(
    merges: impl Iterator<Item = &'t str>,
    ids: &HashMap<&str, u32>,
) -> Result<Merges, TokenizerError> {
    let mut seen = HashSet::new();
    let mut joined = String::new();
    let mut checked = Vec::with_capacity(merges.size_hint().0);
    for (index, merge) in merges.enumerate() {
        let refuse = |reason| TokenizerError::Merge { index, merge: merge.to_owned(), reason };
        let (left, right) =
            merge.split_once(' ').ok_or_else(|| refuse("it has no blank between two tokens"))?;
        let (Some(l), Some(r)) = (ids.get(left), ids.get(right)) else {
            return Err(refuse("a part is not in the vocabulary"));
        };
        joined.clear();
        joined.push_str(left);
        joined.push_str(right);
        if !ids.contains_key(joined.as_str()) {
            return Err(refuse("its result is not in the vocabulary"));
        }
        if !seen.insert((*l, *r)) {
            return Err(refuse("it is listed twice"));
        }
        checked.push((left.to_owned(), right.to_owned()));
    }
    Ok(checked)
}

/// Builds the encoder. `added`: tokens taken whole, each in `vocab`.
///
/// # Errors
/// `TokenizerError::Library` when the library refuses a part.
pub(super) fn build(
    vocab: Vocab,
    merges: Merges,
    pre: &Pre,
    added: Vec<AddedToken>,
) -> Result<tokenizers::Tokenizer, TokenizerError> {
    let model = BPE::builder()
        .vocab_and_merges(vocab, merges)
        .ignore_merges(pre.ignore_merges)
        .build()
        .map_err(TokenizerError::Library)?;
    let mut tokenizer = tokenizers::Tokenizer::new(model);
    tokenizer.with_normalizer(pre.normalizer()).map_err(TokenizerError::Library)?;
    tokenizer.with_pre_tokenizer(Some(pre.splitter()?));
    tokenizer.with_decoder(Some(ByteLevel::new(false, false, false)));
    tokenizer.add_tokens(added).map_err(TokenizerError::Library)?;
    Ok(tokenizer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_merges_are_named() {
        let ids = HashMap::from([("a", 0), ("b", 1), ("ab", 2)]);
        let refusal = |merges: &[&str]| checked_merges(merges.iter().copied(), &ids).unwrap_err().to_string();
        assert!(refusal(&["a b", "ab"]).starts_with("merge 1 `ab` is not usable: it has no blank"));
        assert!(refusal(&["a c"]).contains("a part is not in the vocabulary"));
        assert!(refusal(&["b a"]).contains("its result is not in the vocabulary"));
        assert!(refusal(&["a b", "a b"]).contains("listed twice"));
        assert_eq!(checked_merges(["a b"].into_iter(), &ids).unwrap().len(), 1);
    }
}
