//! `{% generation %}` blocks, which mark the model's own words for training and print their contents unchanged.

/// Turns every generation block into `{% if true %}`, which the engine knows and which trims the same way.
///
/// Comments, raw blocks and strings are left alone; lines keep their numbers.
pub(super) fn as_plain_blocks(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    let mut raw = false;
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
        let word = tag
            .strip_prefix("{%")
            .and_then(|t| t.strip_suffix("%}"))
            .map(word);
        match word {
            Some("raw") => raw = true,
            Some("endraw") => raw = false,
            _ => {}
        }
        match word {
            Some("generation") if !raw => out.push_str(&tag.replacen("generation", "if true", 1)),
            Some("endgeneration") if !raw => {
                out.push_str(&tag.replacen("endgeneration", "endif", 1))
            }
            _ => out.push_str(tag),
        }
        rest = after;
    }
    out.push_str(rest);
    out
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
    use super::as_plain_blocks;

    #[test]
    fn only_real_generation_tags_are_changed() {
        for (given, expected) in [
            (
                "a{% generation %}b{% endgeneration %}c",
                "a{% if true %}b{% endif %}c",
            ),
            (
                "{%- generation -%}b{%-endgeneration+%}",
                "{%- if true -%}b{%-endif+%}",
            ),
            ("{{ '{% generation %}' }}", "{{ '{% generation %}' }}"),
            (
                "{% set x = \"%}{% generation %}\" %}",
                "{% set x = \"%}{% generation %}\" %}",
            ),
            ("{# {% generation %} #}", "{# {% generation %} #}"),
            (
                "{% raw %}{{{% generation %}{% endraw %}{% generation %}",
                "{% raw %}{{{% generation %}{% endraw %}{% if true %}",
            ),
            ("{% if generation %}é{", "{% if generation %}é{"),
            ("{% generation", "{% generation"),
            (
                "{{ 'a\\'b' }}{% generation %}",
                "{{ 'a\\'b' }}{% if true %}",
            ),
        ] {
            assert_eq!(as_plain_blocks(given), expected);
        }
    }
}
