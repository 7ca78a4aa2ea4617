//! Checkpoints that llama.cpp split into several files.
//!
//! Every part has `split.no` (counted from 0), `split.count` and `split.tensors.count`; only the first has the other
//! metadata. Names end in `-00001-of-00003.gguf`, counted from 1.
//! Source: llama.cpp `tools/gguf-split/README.md`. Files counted the other way are accepted if they are consistent.

use std::path::Path;

use super::error::{GgufError, GgufProblem};
use super::file::{Part, open_part};
use super::metadata::Metadata;
use super::parse::Parsed;

const COUNT: &str = "split.count";
const NUMBER: &str = "split.no";
/// Key of the number of tensors in all parts.
pub(super) const TENSORS_COUNT: &str = "split.tensors.count";
/// Digits of a number in a part's name.
const DIGITS: usize = 5;

/// Number of parts, if there are several.
pub(super) fn count(metadata: &Metadata) -> Result<Option<usize>, GgufError> {
    Ok(metadata.usize(COUNT)?.filter(|count| *count > 1))
}

/// A part's file name taken apart.
#[derive(Debug, PartialEq)]
pub(crate) struct PartName<'a> {
    /// What stands in front of `-00001-of-00003.gguf`
    pub(crate) prefix: &'a str,
    /// Number of the part, as in the name
    pub(crate) number: usize,
    /// Number of parts
    pub(crate) count: usize,
}

impl<'a> PartName<'a> {
    /// Parts of `file_name`, or `None` when it is not named like a part.
    pub(crate) fn parse(file_name: &'a str) -> Option<Self> {
        let digits = |text: &str| -> Option<usize> {
            let valid = text.len() == DIGITS && text.bytes().all(|b| b.is_ascii_digit());
            valid.then(|| text.parse().ok()).flatten()
        };
        let (rest, count) = file_name.strip_suffix(".gguf")?.rsplit_once("-of-")?;
        let (prefix, number) = rest.rsplit_once('-')?;
        Some(Self {
            prefix,
            number: digits(number)?,
            count: digits(count)?,
        })
    }

    /// Name of another part of the same checkpoint.
    pub(crate) fn sibling(&self, number: usize) -> String {
        format!(
            "{}-{number:0DIGITS$}-of-{:0DIGITS$}.gguf",
            self.prefix, self.count
        )
    }
}

/// Open all parts, in order. `opened` is the part that was given, `count` what it says of their number.
pub(super) fn open_all(
    path: &Path,
    count: usize,
    opened: (Part, Parsed),
) -> Result<Vec<(Part, Parsed)>, GgufError> {
    let fail = |problem| GgufError::new(&path.display().to_string(), problem);
    let file_name = path.file_name().and_then(|name| name.to_str());
    let Some(part_name) = file_name.and_then(PartName::parse) else {
        return Err(fail(GgufProblem::SplitName { count }));
    };
    if part_name.count != count {
        return Err(fail(GgufProblem::SplitNameCount {
            count,
            found: part_name.count,
        }));
    }
    let sibling = |number| path.with_file_name(part_name.sibling(number));
    let first = usize::from(part_name.number != 0 && !sibling(0).exists());
    let mut given = Some(opened);
    let mut parts = Vec::new();
    for number in first..first + count {
        let part = if number == part_name.number {
            given.take()
        } else {
            None
        };
        let part = match part {
            Some(part) => part,
            None => {
                open_sibling(&sibling(number), count).map_err(|error| match *error.problem {
                    GgufProblem::Io(source) => fail(GgufProblem::SplitMissing {
                        count,
                        missing: part_name.sibling(number),
                        source,
                    }),
                    _ => error,
                })?
            }
        };
        parts.push(part);
    }
    check_numbers(&parts)?;
    Ok(parts)
}

fn open_sibling(path: &Path, expected: usize) -> Result<(Part, Parsed), GgufError> {
    let (part, parsed) = open_part(path)?;
    let found = count(&parsed.metadata)?.unwrap_or(1);
    if found != expected {
        let file = path.display().to_string();
        return Err(GgufError::new(
            &file,
            GgufProblem::SplitCount { found, expected },
        ));
    }
    Ok((part, parsed))
}

/// The parts must be numbered in the order of their names, from 0 or from 1.
fn check_numbers(parts: &[(Part, Parsed)]) -> Result<(), GgufError> {
    let mut start = None;
    for (position, (_, parsed)) in parts.iter().enumerate() {
        let metadata = &parsed.metadata;
        let found = metadata.required(NUMBER, metadata.usize(NUMBER)?)?;
        let expected = position + *start.get_or_insert(found.min(1));
        if found != expected {
            return Err(GgufError::new(
                metadata.file(),
                GgufProblem::SplitNumber { found, expected },
            ));
        }
    }
    Ok(())
}
