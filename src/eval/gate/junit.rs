//! JUnit XML, which every continuous-integration service shows.
//!
//! Layout: `testsuites > testsuite > testcase`, as the services read it (there is no one standard; attributes here are the
//! ones that Jenkins, GitLab and GitHub actions agree on).

use std::fmt::Write;

/// What became of a test case.
#[derive(Debug, Clone, PartialEq)]
pub enum CaseOutcome {
    Passed,
    /// A condition that does not hold.
    Failed(String),
    /// Something that could not be measured.
    Errored(String),
    /// Something that was not tried, with the reason.
    Skipped(String),
}

/// One test case.
#[derive(Debug, Clone, PartialEq)]
pub struct Case {
    pub name: String,
    pub elapsed_s: Option<f64>,
    pub outcome: CaseOutcome,
}

/// The document for one suite. `class`: what services group cases by, such as `ropex.ppl`.
pub fn document(class: &str, cases: &[Case]) -> String {
    let count = |wanted: fn(&CaseOutcome) -> bool| cases.iter().filter(|case| wanted(&case.outcome)).count();
    let counts = format!(
        "tests=\"{}\" failures=\"{}\" errors=\"{}\" skipped=\"{}\"",
        cases.len(),
        count(|outcome| matches!(outcome, CaseOutcome::Failed(_))),
        count(|outcome| matches!(outcome, CaseOutcome::Errored(_))),
        count(|outcome| matches!(outcome, CaseOutcome::Skipped(_))),
    );
    let class = escaped(class);
    let mut text = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    // Writing to a string cannot fail.
    writeln!(text, "<testsuites name=\"ropex\" {counts}>").ok();
    writeln!(text, "  <testsuite name=\"{class}\" {counts}>").ok();
    for case in cases {
        let time = case.elapsed_s.map_or(String::new(), |elapsed_s| format!(" time=\"{elapsed_s:.3}\""));
        let head = format!("<testcase classname=\"{class}\" name=\"{}\"{time}", escaped(&case.name));
        let (tag, message) = match &case.outcome {
            CaseOutcome::Passed => {
                writeln!(text, "    {head}/>").ok();
                continue;
            }
            CaseOutcome::Failed(message) => ("failure", message),
            CaseOutcome::Errored(message) => ("error", message),
            CaseOutcome::Skipped(message) => ("skipped", message),
        };
        let message = escaped(message);
        writeln!(text, "    {head}>\n      <{tag} message=\"{message}\"/>\n    </testcase>").ok();
    }
    text + "  </testsuite>\n</testsuites>\n"
}

/// Text for an attribute in double quotes. XML 1.0 has no place for most control characters, not even escaped: they
/// become U+FFFD.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out += "&amp;",
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '"' => out += "&quot;",
            '\n' => out += "&#10;",
            '\r' => out += "&#13;",
            '\t' => out += "&#9;",
            '\u{0}'..='\u{1f}' | '\u{fffe}' | '\u{ffff}' => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Read back with a parser that shares nothing with the writer.
    #[test]
    fn a_parser_reads_names_messages_and_counts_back() {
        let case = |name: &str, outcome| Case { name: name.to_string(), elapsed_s: Some(1.5), outcome };
        let nasty = "a<b> & \"c\" 'd' ]]> \n\ttwo \u{1}é";
        let cases = [
            case("ppl<=12.5", CaseOutcome::Passed),
            case(nasty, CaseOutcome::Failed(nasty.to_string())),
            case("x", CaseOutcome::Errored("out of memory".to_string())),
            case("y", CaseOutcome::Skipped("beyond the limit".to_string())),
        ];
        let text = document("ropex.ppl", &cases);
        let parsed = roxmltree::Document::parse(&text).unwrap();
        let suite = parsed.descendants().find(|node| node.has_tag_name("testsuite")).unwrap();
        for (name, expected) in [("tests", "4"), ("failures", "1"), ("errors", "1"), ("skipped", "1")] {
            assert_eq!(suite.attribute(name), Some(expected));
            assert_eq!(parsed.root_element().attribute(name), Some(expected));
        }
        let found: Vec<_> = suite.children().filter(|node| node.has_tag_name("testcase")).collect();
        assert_eq!(found.len(), 4);
        let expected = nasty.replace('\u{1}', "\u{fffd}");
        assert_eq!(found[1].attribute("name"), Some(expected.as_str()));
        assert_eq!(found[1].attribute("time"), Some("1.500"));
        let failure = found[1].children().find(|node| node.is_element()).unwrap();
        assert_eq!(failure.attribute("message"), Some(expected.as_str()));
        let tags = [None, Some("failure"), Some("error"), Some("skipped")];
        for (case, tag) in found.iter().zip(tags) {
            assert_eq!(
                case.children().find(|node| node.is_element()).map(|node| node.tag_name().name()),
                tag
            );
        }
    }
}
