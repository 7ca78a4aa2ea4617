//! Texts of a server or a user that become part of a path or of an address.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// What is escaped in one part of an address: all but the characters that never have a meaning there.
const IN_PART: AsciiSet = NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// The same for a path, whose slashes stay.
const IN_PATH: AsciiSet = IN_PART.remove(b'/');

/// Lengths of a usable ETag in bytes. Eight exclude the device names of Windows.
const ETAG_LENGTHS: std::ops::RangeInclusive<usize> = 8..=128;

/// Whether a text can be a commit: letters and digits, at most as many as a SHA-256 has.
pub(super) fn is_commit(text: &str) -> bool {
    (1..=64).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_alphanumeric())
}

/// Whether a text is `org/name`, or the one name that the oldest repositories have.
pub(super) fn is_repo(text: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    let is_name = |part: &str| !part.is_empty() && !part.starts_with('.') && part.bytes().all(allowed);
    text.split('/').count() <= 2 && text.split('/').all(is_name)
}

/// The text of an ETag header, without the mark of a weak one and without quotes, if it can name a file.
pub(super) fn etag(header: &str) -> Option<String> {
    let text = header.strip_prefix("W/").unwrap_or(header).trim_matches('"');
    let allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_');
    (ETAG_LENGTHS.contains(&text.len()) && text.bytes().all(allowed)).then(|| text.to_owned())
}

/// Whether an ETag is the SHA-256 of the content, as it is for all large files.
pub(super) fn is_sha256(etag: &str) -> bool {
    etag.len() == 64 && etag.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

/// One part of an address.
pub(super) fn escape_part(text: &str) -> String {
    utf8_percent_encode(text, &IN_PART).to_string()
}

/// Several parts with slashes between them.
pub(super) fn escape_path(text: &str) -> String {
    utf8_percent_encode(text, &IN_PATH).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_harmless_texts_become_file_names() {
        assert!(
            is_commit("0123abcdef") && !is_commit("") && !is_commit("../x") && !is_commit(&"a".repeat(65))
        );
        assert!(is_repo("org/name") && is_repo("gpt2") && is_repo("a.b/c_d-1"));
        for bad in ["", "/", "a/", "a/b/c", "..", "a/..", "a/.b", "a\\b", "a b", "é"] {
            assert!(!is_repo(bad), "{bad}");
        }
        assert_eq!(etag("\"0123456789\"").as_deref(), Some("0123456789"));
        assert_eq!(etag("W/\"0123456789-a_b\"").as_deref(), Some("0123456789-a_b"));
        for bad in
            ["", "\"\"", "\"nul\"", "../../../evil", "0123456789.incomplete", "a/b/c/d/e", "a\\b\\c\\d\\e"]
        {
            assert_eq!(etag(bad), None, "{bad}");
        }
        assert_eq!(etag(&"a".repeat(129)), None);
        assert!(is_sha256(&"0a".repeat(32)) && !is_sha256(&"0A".repeat(32)) && !is_sha256(&"0a".repeat(20)));
    }

    #[test]
    fn addresses_are_escaped() {
        assert_eq!(escape_part("refs/pr/1"), "refs%2Fpr%2F1");
        assert_eq!(escape_path("a b/c?d#e%é.gguf"), "a%20b/c%3Fd%23e%25%C3%A9.gguf");
    }
}
