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
        Some(Self { prefix, number: digits(number)?, count: digits(count)? })
    }

    /// Name of another part of the same checkpoint.
    pub(crate) fn sibling(&self, number: usize) -> String {
        format!("{}-{number:0DIGITS$}-of-{:0DIGITS$}.gguf", self.prefix, self.count)
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
        return Err(fail(GgufProblem::SplitNameCount { count, found: part_name.count }));
    }
    let sibling = |number| path.with_file_name(part_name.sibling(number));
    let first = usize::from(part_name.number != 0 && !sibling(0).exists());
    let mut given = Some(opened);
    let mut parts = Vec::new();
    for number in first..first + count {
        let part = if number == part_name.number { given.take() } else { None };
        let part = match part {
            Some(part) => part,
            None => open_sibling(&sibling(number), count).map_err(|error| match *error.problem {
                GgufProblem::Io(source) => {
                    fail(GgufProblem::SplitMissing { count, missing: part_name.sibling(number), source })
                }
                _ => error,
            })?,
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
        return Err(GgufError::new(&file, GgufProblem::SplitCount { found, expected }));
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
            return Err(GgufError::new(metadata.file(), GgufProblem::SplitNumber { found, expected }));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::gguf::{GgufFile, TensorData, Value, encode};
    use crate::checkpoint::tensor::TensorType;

    /// One part with one tensor.
    fn part(number: u16, count: u16, tensor: &str) -> Vec<u8> {
        let entries = [
            (NUMBER.to_owned(), Value::U16(number)),
            (COUNT.to_owned(), Value::U16(count)),
            (TENSORS_COUNT.to_owned(), Value::I32(2)),
            ("from.part".to_owned(), Value::U16(number)),
        ];
        let bytes = [number as u8; 4];
        let tensor = TensorData { name: tensor, dtype: TensorType::F32, shape: vec![1], bytes: &bytes };
        encode(&entries, &[tensor]).unwrap()
    }

    fn open(files: &[(&str, Vec<u8>)], which: usize) -> Result<GgufFile, GgufError> {
        let folder = tempfile::tempdir().unwrap();
        for (name, bytes) in files {
            std::fs::write(folder.path().join(name), bytes).unwrap();
        }
        GgufFile::open(&folder.path().join(files[which].0))
    }

    fn problem(files: &[(&str, Vec<u8>)], which: usize) -> GgufProblem {
        let error = open(files, which).unwrap_err();
        assert!(error.hint().is_some(), "{error}");
        *error.problem
    }

    const NAMES: [&str; 2] = ["m-00001-of-00002.gguf", "m-00002-of-00002.gguf"];

    #[test]
    fn d107_all_parts_are_found_from_any_of_them() {
        let from_zero = ["m-00000-of-00002.gguf", "m-00001-of-00002.gguf"];
        for (names, start) in [(NAMES, 0), (NAMES, 1), (from_zero, 0)] {
            let files = [(names[0], part(start, 2, "a")), (names[1], part(start + 1, 2, "b"))];
            for which in [0, 1] {
                let file = open(&files, which).unwrap();
                let tensors: Vec<_> = file.tensors().map(|t| (t.name.as_str(), t.part)).collect();
                assert_eq!(tensors, [("a", 0), ("b", 1)]);
                assert_eq!(file.metadata().usize("from.part").unwrap(), Some(start.into()));
                assert_eq!(file.tensor("b").unwrap().bytes, [start as u8 + 1; 4]);
                assert_eq!(file.paths().count(), 2);
            }
        }
    }

    #[test]
    fn d107_incomplete_or_mixed_parts_are_refused() {
        use GgufProblem as P;
        let (a, b) = (part(0, 2, "a"), part(1, 2, "b"));
        let found = problem(&[(NAMES[0], a.clone())], 0);
        assert!(matches!(found, P::SplitMissing { missing, .. } if missing == NAMES[1]));
        assert!(matches!(problem(&[("m.gguf", a.clone())], 0), P::SplitName { count: 2 }));
        let found = problem(&[("m-00001-of-00003.gguf", a.clone())], 0);
        assert!(matches!(found, P::SplitNameCount { found: 3, .. }));
        let found = problem(&[(NAMES[0], a.clone()), (NAMES[1], part(1, 3, "b"))], 0);
        assert!(matches!(found, P::SplitCount { found: 3, expected: 2 }));
        let found = problem(&[(NAMES[0], b), (NAMES[1], part(0, 2, "c"))], 0);
        assert!(matches!(found, P::SplitNumber { found: 0, expected: 2 }));
        let entries = [(NUMBER, 1), (COUNT, 2)].map(|(key, n)| (key.to_owned(), Value::U16(n)));
        let empty = encode(&entries, &[]).unwrap();
        let found = problem(&[(NAMES[0], a), (NAMES[1], empty)], 1);
        assert!(matches!(found, P::SplitTensors { found: 1, expected: 2 }));
    }

    #[test]
    fn names_of_parts_are_taken_apart() {
        let name = PartName::parse("a-b-00002-of-00010.gguf").unwrap();
        assert_eq!(name, PartName { prefix: "a-b", number: 2, count: 10 });
        assert_eq!(name.sibling(7), "a-b-00007-of-00010.gguf");
        for other in ["a.gguf", "a-1-of-2.gguf", "a-00001-of-+0002.gguf", "a-00001-of-00002.bin"] {
            assert_eq!(PartName::parse(other), None, "{other}");
        }
    }
}
