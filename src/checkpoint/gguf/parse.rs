//! From bytes to metadata and tensor records, all checked against the file.

use super::error::{GgufError, GgufProblem};
use super::metadata::Metadata;
use super::reader::Reader;
use super::{DEFAULT_ALIGNMENT, MAGIC};
use crate::checkpoint::tensor::TensorType;

/// Longest key, in bytes. Source: ggml `docs/gguf.md`.
const MAX_KEY_BYTES: u64 = 65_535;
/// Longest tensor name, in bytes: the format says 64, files in the wild exceed it.
const MAX_TENSOR_NAME_BYTES: u64 = 1_024;
/// Most dimensions of a tensor. Source: ggml `GGML_MAX_DIMS`.
const MAX_RANK: u32 = 4;
/// Fewest bytes of a metadata entry: key length, one byte of key, type, value. One of them is a length.
const MIN_ENTRY_BYTES: (usize, usize) = (8 + 1 + 4 + 1, 1);
/// Fewest bytes of a tensor record: name length, one byte of name, rank, one dimension, type, offset. Two of them are
/// lengths.
const MIN_RECORD_BYTES: (usize, usize) = (8 + 1 + 4 + 8 + 4 + 8, 2);
/// Key of the alignment of tensor data.
const ALIGNMENT: &str = "general.alignment";

/// One tensor of a GGUF file.
#[derive(Clone, Debug, PartialEq)]
pub struct TensorInfo {
    /// Name
    pub name: String,
    /// Element type
    pub dtype: TensorType,
    /// Row-major, outermost first (the file stores the opposite order)
    pub shape: Vec<usize>,
    /// Which part of a split file holds the data, 0 for a whole file
    pub part: usize,
    /// Where the data starts, in bytes from the start of that part
    pub offset: usize,
    /// Length of the data in bytes
    pub size_bytes: usize,
}

/// The checked content of one file.
pub(super) struct Parsed {
    pub(super) version: u32,
    pub(super) metadata: Metadata,
    pub(super) tensors: Vec<TensorInfo>,
}

/// Read and check everything in front of the tensor data, and that the data is there.
pub(super) fn parse(bytes: &[u8], file: &str) -> Result<Parsed, GgufError> {
    let fail = |problem| GgufError::new(file, problem);
    let mut reader = Reader::new(bytes);
    let version = read_version(&mut reader).map_err(fail)?;
    let n_tensors = reader.count(MIN_RECORD_BYTES, "tensors").map_err(fail)?;
    let n_entries = reader.count(MIN_ENTRY_BYTES, "metadata entries").map_err(fail)?;
    let entries = (0..n_entries).map(|_| {
        let key = reader.name(MAX_KEY_BYTES, "a metadata key")?;
        let value = reader.value(&key)?;
        Ok((key, value))
    });
    let entries = entries.collect::<Result<Vec<_>, _>>().map_err(fail)?;
    let metadata = Metadata::from_entries(file, entries)?;
    let alignment = metadata.usize(ALIGNMENT)?.unwrap_or(DEFAULT_ALIGNMENT);
    if !alignment.is_power_of_two() {
        return Err(fail(GgufProblem::Alignment { found: alignment }));
    }
    let records = (0..n_tensors).map(|_| read_record(&mut reader, alignment));
    let mut tensors = records.collect::<Result<Vec<_>, _>>().map_err(fail)?;
    place(&mut tensors, reader.position(), alignment, bytes.len()).map_err(fail)?;
    Ok(Parsed { version, metadata, tensors })
}

fn read_version(reader: &mut Reader<'_>) -> Result<u32, GgufProblem> {
    let magic = reader.take(MAGIC.len() as u64, "the magic number")?;
    if magic.iter().rev().eq(&MAGIC) {
        return Err(GgufProblem::BigEndian);
    }
    if magic != MAGIC {
        return Err(GgufProblem::Magic { found: magic.to_vec() });
    }
    match reader.u32("the version")? {
        version @ 1..=3 => {
            if version == 1 {
                reader.shorten_lengths();
            }
            Ok(version)
        }
        // a small number with its bytes swapped has its low half empty
        swapped if swapped != 0 && swapped & 0xffff == 0 => Err(GgufProblem::BigEndian),
        found => Err(GgufProblem::Version { found }),
    }
}

/// One tensor record; the offset in it is still relative to the start of the data.
fn read_record(reader: &mut Reader<'_>, alignment: usize) -> Result<TensorInfo, GgufProblem> {
    let name = reader.name(MAX_TENSOR_NAME_BYTES, "a tensor")?;
    let what = format!("the record of tensor `{name}`");
    let rank = reader.u32(&what)?;
    if !(1..=MAX_RANK).contains(&rank) {
        return Err(GgufProblem::Rank { tensor: name, found: rank, limit: MAX_RANK });
    }
    let stored = (0..rank).map(|_| reader.length(&what)).collect::<Result<Vec<_>, _>>()?;
    let id = reader.u32(&what)?;
    let offset = reader.u64(&what)?;
    let dtype = match TensorType::from_ggml_id(id) {
        Ok(dtype) => dtype,
        Err(source) => {
            return Err(GgufProblem::TensorType { tensor: name, source });
        }
    };
    let shape = stored.iter().rev().map(|n| usize::try_from(*n).ok().filter(|n| *n > 0));
    let Some(shape) = shape.collect::<Option<Vec<_>>>() else {
        return Err(GgufProblem::Shape { tensor: name, shape: stored });
    };
    let row = shape.last().copied().unwrap_or(1);
    if !row.is_multiple_of(dtype.block_size()) {
        return Err(GgufProblem::Rows { tensor: name, row, dtype });
    }
    let Some(size_bytes) = dtype.size_bytes(&shape) else {
        return Err(GgufProblem::Shape { tensor: name, shape: stored });
    };
    match usize::try_from(offset) {
        Ok(offset) if offset.is_multiple_of(alignment) => {
            Ok(TensorInfo { name, dtype, shape, part: 0, offset, size_bytes })
        }
        _ => Err(GgufProblem::Offset { tensor: name, offset, alignment }),
    }
}

/// Make the offsets absolute and check that the tensors lie in the file, apart from each other.
///
/// `header`: bytes in front of the padding. `size`: bytes of the file.
fn place(
    tensors: &mut [TensorInfo],
    header: usize,
    alignment: usize,
    size: usize,
) -> Result<(), GgufProblem> {
    let beyond = |tensor: &TensorInfo, at: u64| GgufProblem::Truncated {
        what: format!("the data of tensor `{}`", tensor.name),
        at,
        needed: tensor.size_bytes as u64,
        size: size as u64,
    };
    let mut farthest: Option<&TensorInfo> = None;
    for tensor in tensors.iter_mut() {
        let relative = tensor.offset as u64;
        let offset =
            header.checked_next_multiple_of(alignment).and_then(|start| start.checked_add(tensor.offset));
        let placed = offset.and_then(|offset| Some((offset, offset.checked_add(tensor.size_bytes)?)));
        let Some((offset, end)) = placed else {
            return Err(beyond(tensor, relative.saturating_add(header as u64)));
        };
        tensor.offset = offset;
        if end > size && farthest.is_none_or(|other| end > other.offset + other.size_bytes) {
            farthest = Some(tensor);
        }
    }
    if let Some(tensor) = farthest {
        return Err(beyond(tensor, tensor.offset as u64));
    }
    let mut order: Vec<&TensorInfo> = tensors.iter().collect();
    order.sort_by_key(|tensor| tensor.offset);
    for pair in order.windows(2) {
        if pair[0].offset + pair[0].size_bytes > pair[1].offset {
            return Err(GgufProblem::Overlap { first: pair[0].name.clone(), second: pair[1].name.clone() });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Header with the given counts, then `rest`.
    fn file(version: u32, n_tensors: u64, n_entries: u64, rest: &[&[u8]]) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend(version.to_le_bytes());
        bytes.extend(n_tensors.to_le_bytes());
        bytes.extend(n_entries.to_le_bytes());
        bytes.extend(rest.concat());
        bytes
    }

    fn string(text: &str) -> Vec<u8> {
        [&(text.len() as u64).to_le_bytes(), text.as_bytes()].concat()
    }

    fn entry(key: &str, kind: u32, value: &[u8]) -> Vec<u8> {
        [&string(key)[..], &kind.to_le_bytes(), value].concat()
    }

    /// Element type, count, elements.
    fn array(kind: u32, count: u64, elements: &[u8]) -> Vec<u8> {
        [&kind.to_le_bytes()[..], &count.to_le_bytes(), elements].concat()
    }

    /// `stored`: innermost first.
    fn record(name: &str, stored: &[u64], id: u32, offset: u64) -> Vec<u8> {
        let mut bytes = string(name);
        bytes.extend((stored.len() as u32).to_le_bytes());
        bytes.extend(stored.iter().flat_map(|n| n.to_le_bytes()));
        bytes.extend(id.to_le_bytes());
        bytes.extend(offset.to_le_bytes());
        bytes
    }

    fn problem(bytes: &[u8]) -> GgufProblem {
        match parse(bytes, "m.gguf") {
            Ok(_) => panic!("accepted"),
            Err(error) => {
                assert!(error.to_string().starts_with("`m.gguf`: "), "{error}");
                *error.problem
            }
        }
    }

    /// Problem of a file with one entry, followed by enough bytes for the counts to pass.
    fn entry_problem(entry: &[u8]) -> GgufProblem {
        problem(&file(3, 0, 1, &[entry, &[0; 64]]))
    }

    /// Problem of a file with these records and 96 bytes of data.
    fn record_problem(records: &[Vec<u8>]) -> GgufProblem {
        let records_bytes = records.concat();
        problem(&file(3, records.len() as u64, 0, &[&records_bytes, &[0; 128]]))
    }

    #[test]
    fn versions_2_and_3_are_read() {
        for version in [2, 3] {
            let bytes = file(version, 0, 1, &[&entry("k", 0, &[7])]);
            let parsed = parse(&bytes, "m.gguf").unwrap();
            assert_eq!((parsed.version, parsed.metadata.usize("k").unwrap()), (version, Some(7)));
        }
    }

    /// Version 1 differs in the width of lengths, counts and dimensions alone.
    #[test]
    fn version_1_has_lengths_of_32_bits() {
        let string = |text: &str| [&(text.len() as u32).to_le_bytes()[..], text.as_bytes()].concat();
        let list = [&8u32.to_le_bytes()[..], &2u32.to_le_bytes(), &string("a"), &string("bc")].concat();
        let entries = [string("k"), 9u32.to_le_bytes().to_vec(), list].concat();
        let record = [string("t"), words(&[2, 2, 3, 0]), 0u64.to_le_bytes().to_vec()].concat();
        let mut bytes = [MAGIC.to_vec(), words(&[1, 1, 1]), entries, record].concat();
        let start = bytes.len().next_multiple_of(DEFAULT_ALIGNMENT);
        bytes.resize(start + 24, 0);
        let parsed = parse(&bytes, "m.gguf").unwrap();
        assert_eq!(parsed.version, 1);
        assert_eq!(parsed.metadata.strings("k").unwrap().unwrap(), ["a", "bc"]);
        assert_eq!((&parsed.tensors[0].shape[..], parsed.tensors[0].offset), (&[3, 2][..], start));
        bytes.truncate(start + 23);
        assert!(matches!(problem(&bytes), GgufProblem::Truncated { .. }));
        let huge = [MAGIC.to_vec(), words(&[1, u32::MAX, 0]), vec![0; 64]].concat();
        assert!(matches!(problem(&huge), GgufProblem::Count { .. }));
    }

    fn words(list: &[u32]) -> Vec<u8> {
        list.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    #[test]
    fn other_files_are_told_apart() {
        assert!(matches!(problem(b"ggjt0000"), GgufProblem::Magic { .. }));
        let pointer = problem(b"version https://git-lfs.github.com/spec/v1");
        assert!(pointer.hint().unwrap().contains("git lfs pull"));
        assert!(matches!(problem(&file(0, 0, 0, &[])), GgufProblem::Version { found: 0 }));
        assert!(matches!(problem(&file(4, 0, 0, &[])), GgufProblem::Version { found: 4 }));
        assert!(matches!(problem(&file(3u32.swap_bytes(), 0, 0, &[])), GgufProblem::BigEndian));
        assert!(matches!(problem(b"FUGG\0\0\0\x03"), GgufProblem::BigEndian));
        assert!(matches!(problem(b"GG"), GgufProblem::Truncated { size: 2, .. }));
        assert!(matches!(problem(b""), GgufProblem::Truncated { size: 0, .. }));
    }

    #[test]
    fn d106_counts_are_compared_with_the_file_before_anything_is_allocated() {
        let huge = 1u64 << 60;
        for bytes in [
            file(3, huge, 0, &[&[0; 64]]),
            file(3, 0, huge, &[&[0; 64]]),
            file(3, u64::MAX, u64::MAX, &[&[0; 64]]),
            file(3, 0, 1, &[&entry("k", 9, &array(8, huge, &[])), &[0; 64]]),
            file(3, 0, 1, &[&entry("k", 9, &array(0, u64::MAX, &[])), &[0; 64]]),
            file(3, 0, 1, &[&entry("k", 9, &array(9, 100, &[])), &[0; 64]]),
        ] {
            let found = problem(&bytes);
            assert!(matches!(found, GgufProblem::Count { .. }), "{found}");
            assert!(found.hint().is_some());
        }
        let text = entry_problem(&entry("k", 8, &u64::MAX.to_le_bytes())).to_string();
        assert!(text.contains("truncated: the value of key `k`"), "{text}");
    }

    #[test]
    fn bad_entries_are_named() {
        use GgufProblem as P;
        let text = [&2u64.to_le_bytes()[..], &[0xff, 0xff]].concat();
        assert!(matches!(entry_problem(&entry("k", 8, &text)), P::NotUtf8 { .. }));
        assert!(matches!(entry_problem(&entry("", 0, &[0])), P::NameLength { length: 0, .. }));
        let long = "k".repeat(MAX_KEY_BYTES as usize + 1);
        assert!(matches!(entry_problem(&entry(&long, 0, &[0])), P::NameLength { .. }));
        let text = entry_problem(&entry("k", 13, &[])).to_string();
        assert!(text.contains("`13`") && text.contains("12 (f64)"), "{text}");
        assert!(matches!(entry_problem(&entry("k", 7, &[2])), P::Bool { found: 2, .. }));
        let nested = |inner: &[u8]| array(9, 1, inner);
        let deep = nested(&nested(&nested(&nested(&array(0, 1, &[1])))));
        assert!(matches!(entry_problem(&entry("k", 9, &deep)), P::Nesting { limit: 4, .. }));
        let twice = entry("k", 0, &[1]).repeat(2);
        let found = problem(&file(3, 0, 2, &[&twice, &[0; 64]]));
        assert!(matches!(found, P::DuplicateKey { key } if key == "k"));
        for bad in [0, 3, 48] {
            let found = entry_problem(&entry("general.alignment", 0, &[bad]));
            assert!(matches!(found, P::Alignment { found } if found == usize::from(bad)));
        }
        let found = entry_problem(&entry("general.alignment", 6, &1f32.to_le_bytes()));
        assert!(matches!(found, P::WrongType { .. }));
    }

    #[test]
    fn bad_tensor_records_are_named() {
        use GgufProblem as P;
        let one = |stored: &[u64], id, offset| record_problem(&[record("t", stored, id, offset)]);
        assert!(matches!(one(&[1; 5], 0, 0), P::Rank { found: 5, .. }));
        assert!(matches!(one(&[], 0, 0), P::Rank { found: 0, .. }));
        assert!(matches!(one(&[4, 0], 0, 0), P::Shape { .. }));
        assert!(matches!(one(&[1 << 40, 1 << 40], 0, 0), P::Shape { .. }));
        assert!(matches!(one(&[u64::MAX], 0, 0), P::Shape { .. }));
        assert!(matches!(one(&[48], 2, 0), P::Rows { row: 48, dtype: TensorType::Q4_0, .. }));
        assert!(matches!(one(&[1], 0, 4), P::Offset { offset: 4, .. }));
        assert!(matches!(one(&[1], 0, u64::MAX - 31), P::Truncated { .. }));
        let name = "t".repeat(MAX_TENSOR_NAME_BYTES as usize + 1);
        assert!(matches!(record_problem(&[record(&name, &[1], 0, 0)]), P::NameLength { .. }));
        let overlapping = [record("a", &[9], 0, 0), record("b", &[1], 0, 32)];
        let found = record_problem(&overlapping);
        assert!(matches!(found, P::Overlap { first, second } if first == "a" && second == "b"));
    }

    #[test]
    fn d014_an_unsupported_type_is_refused_by_name_before_its_data_is_missed() {
        let bytes = file(3, 1, 0, &[&record("blk.0.attn_q.weight", &[256], 16, 0)]);
        let text = problem(&bytes).to_string();
        assert!(text.contains("tensor `blk.0.attn_q.weight`: type `IQ2_XXS`"), "{text}");
        assert!(text.contains("supported are F32, F16, BF16, Q4_0"), "{text}");
    }

    #[test]
    fn d106_a_truncated_file_tells_expected_and_actual_bytes() {
        let records = [record("a", &[8], 0, 0), record("b", &[2, 8], 0, 32)].concat();
        let mut bytes = file(3, 2, 0, &[&records]);
        let start = bytes.len().next_multiple_of(DEFAULT_ALIGNMENT);
        let expected = start + 32 + 64;
        bytes.resize(expected, 0);
        let parsed = parse(&bytes, "m.gguf").unwrap();
        assert_eq!(parsed.tensors[1].shape, [8, 2]);
        assert_eq!((parsed.tensors[1].offset, parsed.tensors[1].size_bytes), (start + 32, 64));
        for size in [expected - 10, start + 1] {
            let text = problem(&bytes[..size]).to_string();
            let numbers = format!("expected a file of at least {expected} bytes, found {size}");
            assert!(text.contains("the data of tensor `b`") && text.ends_with(&numbers), "{text}");
        }
    }

    #[test]
    fn alignment_of_the_file_is_honoured() {
        let alignment = entry("general.alignment", 10, &64u64.to_le_bytes());
        let mut bytes = file(2, 1, 1, &[&alignment, &record("t", &[1], 0, 0)]);
        let start = bytes.len().next_multiple_of(64);
        bytes.resize(start + 4, 0);
        assert_eq!(parse(&bytes, "m.gguf").unwrap().tensors[0].offset, start);
    }
}
