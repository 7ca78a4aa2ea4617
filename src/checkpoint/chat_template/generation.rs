//! What is looked at in a template before the engine sees it.
//!
//! `{% generation %}` blocks mark the model's own words for training and print their contents unchanged; the engine does
//! not know them. Its stack grows with the length of an expression and with the number of `elif` branches, so both are
//! limited.

use super::ChatTemplateError;

/// Most names, numbers, texts and signs in one tag; published templates stay below 200.
const MAX_TAG_TOKENS: usize = 4096;
/// Most `elif` branches in a template.
const MAX_BRANCHES: usize = 1024;

/// Turns every generation block into `{% if true %}`, which the engine knows and which trims the same way.
///
/// Comments, raw blocks and strings are left alone; lines keep their numbers.
///
/// # Errors
/// `TooComplex` for a tag or a chain of branches that no honest template has.
pub(super) fn as_plain_blocks(source: &str) -> Result<String, ChatTemplateError> {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    let mut raw = false;
    let mut branches = 0;
    while let Some(at) = rest.find('{') {
        let (text, from_brace) = rest.split_at(at);
        out.push_str(text);
        let end = match from_brace.as_bytes().get(1) {
            Some(b'%') => tag_end(from_brace, "%}"),
            Some(b'{') if !raw => tag_end(from_brace, "}}"),
            Some(b'#') if !raw => from_brace.find("#}").map(|i| i + 2),
            _ => Some(1),
        };
        // An unfinished tag is the engine's to report.
        let (tag, after) = from_brace.split_at(end.unwrap_or(from_brace.len()));
        if tag.len() > MAX_TAG_TOKENS && !tag.starts_with("{#") && token_count(tag) > MAX_TAG_TOKENS {
            return Err(ChatTemplateError::TooComplex("a tag", MAX_TAG_TOKENS, "parts"));
        }
        let word = tag.strip_prefix("{%").and_then(|t| t.strip_suffix("%}")).map(word);
        match word {
            Some("raw") => raw = true,
            Some("endraw") => raw = false,
            Some(word) if word.starts_with("elif") => branches += 1,
            _ => {}
        }
        match word {
            Some("generation") if !raw => out.push_str(&tag.replacen("generation", "if true", 1)),
            Some("endgeneration") if !raw => out.push_str(&tag.replacen("endgeneration", "endif", 1)),
            _ => out.push_str(tag),
        }
        if branches > MAX_BRANCHES {
            return Err(ChatTemplateError::TooComplex("it", MAX_BRANCHES, "`elif` branches"));
        }
        rest = after;
    }
    out.push_str(rest);
    Ok(out)
}

/// Number of words, texts and other signs in a tag.
fn token_count(tag: &str) -> usize {
    let (mut count, mut quote, mut in_word, mut escaped) = (0, None, false, false);
    for c in tag.chars() {
        if let Some(open) = quote {
            if !escaped && c == open {
                quote = None;
            }
            escaped = !escaped && c == '\\';
            continue;
        }
        let is_word = c.is_alphanumeric() || c == '_';
        if c == '"' || c == '\'' {
            quote = Some(c);
        }
        if !(c.is_whitespace() || is_word && in_word) {
            count += 1;
        }
        in_word = is_word;
    }
    count
}

/// What a tag says, without white-space control.
fn word(inside: &str) -> &str {
    inside.trim_matches(|c: char| c.is_ascii_whitespace() || c == '-' || c == '+')
}

/// Byte just after the closing delimiter of the tag that `text` begins with, not counting one inside a string.
fn tag_end(text: &str, close: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let mut quote = None;
    let mut at = 2;
    while let Some(&byte) = bytes.get(at) {
        match quote {
            Some(_) if byte == b'\\' => at += 1,
            Some(open) if byte == open => quote = None,
            Some(_) => {}
            None if byte == b'"' || byte == b'\'' => quote = Some(byte),
            None if bytes[at..].starts_with(close.as_bytes()) => return Some(at + close.len()),
            None => {}
        }
        at += 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_real_generation_tags_are_changed() {
        for (given, expected) in [
            ("a{% generation %}b{% endgeneration %}c", "a{% if true %}b{% endif %}c"),
            ("{%- generation -%}b{%-endgeneration+%}", "{%- if true -%}b{%-endif+%}"),
            ("{{ '{% generation %}' }}", "{{ '{% generation %}' }}"),
            ("{% set x = \"%}{% generation %}\" %}", "{% set x = \"%}{% generation %}\" %}"),
            ("{# {% generation %} #}", "{# {% generation %} #}"),
            (
                "{% raw %}{{{% generation %}{% endraw %}{% generation %}",
                "{% raw %}{{{% generation %}{% endraw %}{% if true %}",
            ),
            ("{% if generation %}é{", "{% if generation %}é{"),
            ("{% generation", "{% generation"),
            ("{{ 'a\\'b' }}{% generation %}", "{{ 'a\\'b' }}{% if true %}"),
        ] {
            assert_eq!(as_plain_blocks(given).unwrap(), expected);
        }
    }

    #[test]
    fn tags_and_branches_have_a_limit() {
        for long in ["1+", "- ", "x ", "'a'~", "()"] {
            assert!(as_plain_blocks(&format!("{{{{ {} }}}}", long.repeat(5000))).is_err(), "{long}");
        }
        assert!(as_plain_blocks(&"{% elif x %}".repeat(2000)).is_err());
        let text = format!("{{{{ '{}\\'' }}}}{{# {} #}}", "1+".repeat(5000), "1+".repeat(5000));
        assert_eq!(as_plain_blocks(&text).unwrap(), text);
        assert_eq!(token_count("{{ a_b.c['d\\'e'] }}"), 10);
    }
}
