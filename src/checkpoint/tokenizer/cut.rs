//! Where a long text may be cut without changing its tokens.
//!
//! Every byte-level pre-tokenizer here ends a word at a line break that stands alone between a visible character and a
//! letter: its patterns take that break by itself or with the punctuation before it, both also at the end of a text, and
//! none begins with a break and goes on with a letter. Texts are cut there, so that parts can be read side by side and
//! the tokenizer's notes on a part are small.

/// Bytes of a part: enough to make the cuts cheap, few enough to share a text between threads.
const PART_BYTES: usize = 64 << 10;

/// Parts of `text` of at least [`PART_BYTES`] each but for the last; together they are the text.
pub(super) fn parts(text: &str) -> Vec<&str> {
    parts_of(text, PART_BYTES)
}

fn parts_of(text: &str, least: usize) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some(at) = first_cut(rest.as_bytes(), least) {
        let (part, after) = rest.split_at(at);
        parts.push(part);
        rest = after;
    }
    if !rest.is_empty() || parts.is_empty() {
        parts.push(rest);
    }
    parts
}

/// The first place behind `least` bytes where a lone line break stands between an ASCII sign or letter and an ASCII letter.
fn first_cut(bytes: &[u8], least: usize) -> Option<usize> {
    let windows = bytes.windows(3).enumerate().skip(least.max(2) - 2);
    let mut cuts =
        windows.filter(|(_, w)| w[0].is_ascii_graphic() && w[1] == b'\n' && w[2].is_ascii_alphabetic());
    cuts.next().map(|(at, _)| at + 2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn cuts_stand_behind_lone_line_breaks() {
        assert_eq!(parts_of("ab.\ncd\n\nef \ngh\r\ni\n j\nk", 1), ["ab.\n", "cd\n\nef \ngh\r\ni\n j\n", "k"]);
        assert_eq!(parts_of("", 1), [""]);
        assert_eq!(parts_of("a\n", 1), ["a\n"]);
    }

    proptest! {
        #[test]
        fn parts_join_to_the_text(text in "[a-c.\\n \u{e9}]{0,60}", least in 0usize..9) {
            prop_assert_eq!(parts_of(&text, least).concat(), text);
        }
    }

    /// Every known pre-tokenizer splits parts as it splits the whole.
    #[test]
    fn no_pre_tokenizer_joins_what_is_cut() {
        use super::super::pre::Pre;
        use tokenizers::pre_tokenizers::sequence::Sequence;
        use tokenizers::{OffsetReferential, OffsetType, PreTokenizedString, PreTokenizer};
        let words = |splitter: &Sequence, text: &str| -> Vec<String> {
            let mut split = PreTokenizedString::from(text);
            splitter.pre_tokenize(&mut split).unwrap();
            let found = split.get_splits(OffsetReferential::Normalized, OffsetType::Byte);
            found.into_iter().map(|(word, _, _)| word.to_string()).collect()
        };
        let signs = ["a", "B", "1", ".", "'s", "'", "\n", " ", "\r", "\t", "\u{e9}", "/", "!!", "中", "_"];
        let mut state = 1u64;
        for pre in Pre::all() {
            let splitter = pre.splitter().unwrap();
            for _ in 0..400 {
                let mut text = String::new();
                for _ in 0..40 {
                    state =
                        state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    text += signs[(state >> 33) as usize % signs.len()];
                }
                let apart: Vec<String> =
                    parts_of(&text, 1).into_iter().flat_map(|part| words(&splitter, part)).collect();
                assert_eq!(apart, words(&splitter, &text), "{text:?}");
            }
        }
    }
}
