//! The file of finished cells: one line a cell, added as soon as it is known.
//!
//! A line is written and flushed to the disk in one go. A kill may leave its beginning behind, which has no line end: it is
//! cut off and the cell measured again. Anything else that is no cell is an error, and the file stays as it is.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use super::record::{Record, RecordError, SCHEMA};

/// Why a file of finished cells cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("cannot use `{}`", .path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("`{}` is in use by another run; give each run a file of its own and put them together with `ropex sweep merge`", .path.display())]
    InUse { path: PathBuf },
    #[error("line {line} of `{}` cannot be used", .path.display())]
    Line { path: PathBuf, line: usize, source: RecordError },
    #[error("`{}` holds no finished cells of a sweep", .path.display())]
    Foreign { path: PathBuf },
    #[error("two results for {cell} (key {key}): in `{}` and in `{}`; they were made from the same inputs and must be equal", .first.display(), .second.display())]
    Conflict { cell: String, key: String, first: PathBuf, second: PathBuf },
}

/// What a file holds.
#[derive(Debug, Default)]
struct Contents {
    records: Vec<Record>,
    /// Bytes of whole lines.
    whole_bytes: usize,
    /// Bytes of a line that a kill cut off.
    torn_bytes: usize,
}

fn read(path: &Path, bytes: &[u8]) -> Result<Contents, StoreError> {
    let whole_bytes = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    let (whole, torn) = bytes.split_at(whole_bytes);
    let mut records = Vec::new();
    for (index, line) in whole.split_inclusive(|byte| *byte == b'\n').enumerate() {
        let line = String::from_utf8_lossy(line);
        let record = Record::parse(line.trim_end());
        records.push(record.map_err(|source| {
            let path = path.to_owned();
            match (index, &source) {
                (0, RecordError::Json(_)) => StoreError::Foreign { path },
                _ => StoreError::Line { path, line: index + 1, source },
            }
        })?);
    }
    // Nothing but the beginning of a line: of ours, or another file given by mistake?
    let beginning = format!("{{\"schema\":\"{SCHEMA}\"");
    let ours = torn.iter().zip(beginning.as_bytes()).all(|(a, b)| a == b);
    if !ours {
        return Err(match records.is_empty() {
            true => StoreError::Foreign { path: path.to_owned() },
            false => {
                let source = RecordError::Schema { found: "none".to_string() };
                StoreError::Line { path: path.to_owned(), line: records.len() + 1, source }
            }
        });
    }
    Ok(Contents { records, whole_bytes, torn_bytes: torn.len() })
}

/// The records of a file, a line that a kill cut off left out.
///
/// # Errors
/// A file that cannot be read or holds anything else.
pub fn load(path: &Path) -> Result<Vec<Record>, StoreError> {
    let bytes = fs::read(path).map_err(|source| StoreError::Io { path: path.to_owned(), source })?;
    Ok(read(path, &bytes)?.records)
}

/// The latest record of every key. A cell that is done stays so; of two that are not, the later one counts.
///
/// # Errors
/// [`StoreError::Conflict`] for two different results of one key.
pub fn latest(sources: &[(PathBuf, Vec<Record>)]) -> Result<Vec<Record>, StoreError> {
    let mut kept: Vec<(usize, Record)> = Vec::new();
    let mut places = std::collections::HashMap::new();
    for (source, (path, records)) in sources.iter().enumerate() {
        for record in records {
            let Some(&place) = places.get(&record.key) else {
                places.insert(record.key.clone(), kept.len());
                kept.push((source, record.clone()));
                continue;
            };
            let (from, old) = &kept[place];
            match (old.is_done(), record.is_done()) {
                (true, true) if old.without_timing() != record.without_timing() => {
                    return Err(StoreError::Conflict {
                        cell: record.cell.to_string(),
                        key: record.key.clone(),
                        first: sources[*from].0.clone(),
                        second: path.clone(),
                    });
                }
                (true, _) => {}
                (false, _) => kept[place] = (source, record.clone()),
            }
        }
    }
    let mut records: Vec<Record> = kept.into_iter().map(|(_, record)| record).collect();
    records.sort_by(|a, b| a.cell.order(&b.cell).then_with(|| a.key.cmp(&b.key)));
    Ok(records)
}

/// The text of a file with these records.
pub fn text(records: &[Record]) -> String {
    records.iter().map(Record::line).collect()
}

/// A file of finished cells that this run adds to.
#[derive(Debug)]
pub struct Store {
    path: PathBuf,
    file: File,
    records: Vec<Record>,
    /// Bytes of a line that an earlier run could not finish, now cut off.
    pub torn_bytes: usize,
}

impl Store {
    /// Opens or begins the file at `path`, and keeps other runs from it.
    ///
    /// # Errors
    /// A file that cannot be written, is in use, or holds anything but finished cells; it is not changed then.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let fail = |source| StoreError::Io { path: path.to_owned(), source };
        let mut options = OpenOptions::new();
        let mut file =
            options.create(true).truncate(false).read(true).write(true).open(path).map_err(fail)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(StoreError::InUse { path: path.to_owned() }),
            // Some network file systems know no locks; then nobody can be kept away.
            Err(TryLockError::Error(error)) if error.kind() == ErrorKind::Unsupported => {}
            Err(TryLockError::Error(error)) => return Err(fail(error)),
        }
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(fail)?;
        let contents = read(path, &bytes)?;
        if contents.torn_bytes > 0 {
            file.set_len(contents.whole_bytes as u64).map_err(fail)?;
        }
        file.seek(SeekFrom::Start(contents.whole_bytes as u64)).map_err(fail)?;
        let path = path.to_owned();
        Ok(Self { path, file, records: contents.records, torn_bytes: contents.torn_bytes })
    }

    /// Everything in the file, in its order.
    pub fn records(&self) -> &[Record] {
        &self.records
    }

    /// Adds a cell; it survives a kill from here on.
    ///
    /// # Errors
    /// A full or failing disk.
    pub fn append(&mut self, record: &Record) -> Result<(), StoreError> {
        let written = self.file.write_all(record.line().as_bytes()).and_then(|()| self.file.sync_data());
        written.map_err(|source| StoreError::Io { path: self.path.clone(), source })?;
        self.records.push(record.clone());
        Ok(())
    }

    /// Brings the file into its final form: one line a key, in the order of cells. A run without interruption leaves it so
    /// anyway.
    ///
    /// # Errors
    /// A file that cannot be replaced; two different results of one key.
    pub fn finish(self) -> Result<(), StoreError> {
        let records = latest(&[(self.path.clone(), self.records.clone())])?;
        if records == self.records {
            return Ok(());
        }
        let fail = |source| StoreError::Io { path: self.path.clone(), source };
        replace(&self.path, &text(&records)).map_err(fail)
    }
}

/// Writes a sibling file to the disk and renames it.
pub fn replace(path: &Path, text: &str) -> io::Result<()> {
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let mut name = path.file_name().map(|name| name.to_os_string()).unwrap_or_default();
    name.push(format!(".{}.tmp", std::process::id()));
    let sibling = path.with_file_name(name);
    let written = File::create(&sibling)
        .and_then(|mut file| file.write_all(text.as_bytes()).and_then(|()| file.sync_all()))
        .and_then(|()| fs::rename(&sibling, &path));
    if written.is_err() {
        fs::remove_file(&sibling).ok(); // nothing to clean up when it was never created
    }
    written
}

#[cfg(test)]
mod tests {
    use super::super::record::Status;
    use super::super::record::tests::record;
    use super::*;

    fn failed(label: &str, context: usize) -> Record {
        let good = record(label, context, 0.0);
        Record::new(good.cell, good.inputs, Err((Status::Failed, "no".to_string())))
    }

    #[test]
    fn records_survive_and_torn_lines_are_cut_off() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out.jsonl");
        let (a, b) = (record("a", 8, 1.0), record("b", 8, 2.0));
        let mut store = Store::open(&path).unwrap();
        store.append(&a).unwrap();
        drop(store);
        let line = b.line();
        for cut in [1, 20, line.len() - 1] {
            let whole = a.line();
            fs::write(&path, whole.clone() + &line[..cut]).unwrap();
            assert_eq!(load(&path).unwrap(), std::slice::from_ref(&a));
            let store = Store::open(&path).unwrap();
            assert_eq!((store.records().len(), store.torn_bytes), (1, cut));
            drop(store);
            assert_eq!(fs::read_to_string(&path).unwrap(), whole);
        }
        // Nothing but a torn line.
        fs::write(&path, &line[..30]).unwrap();
        let mut store = Store::open(&path).unwrap();
        assert_eq!(store.records(), []);
        store.append(&b).unwrap();
        store.finish().unwrap();
        assert_eq!(load(&path).unwrap(), [b]);
    }

    #[test]
    fn other_files_are_refused_and_stay_as_they_are() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notes.md");
        let good = record("a", 8, 1.0).line();
        let changed = good.replace("\"context\":8}", "\"context\":9}");
        for (content, expected) in [
            ("# Notes\n".to_string(), "holds no finished cells"),
            ("# Notes".to_string(), "holds no finished cells"),
            ("{\"schema\":\"ropex.ppl/1\"}\n".to_string(), "line 1 of"),
            (good.clone() + "{}\n", "line 2 of"),
            (good.clone() + "x", "line 2 of"),
            (good.clone() + &changed, "line 2 of"),
        ] {
            fs::write(&path, &content).unwrap();
            let error = Store::open(&path).unwrap_err().to_string();
            assert!(error.contains(expected) && error.contains("notes.md"), "{content}: {error}");
            assert_eq!(fs::read_to_string(&path).unwrap(), content);
        }
        assert!(Store::open(&dir.path().join("no/such")).is_err());
    }

    #[test]
    fn a_file_has_one_writer() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out.jsonl");
        let first = Store::open(&path).unwrap();
        let error = Store::open(&path).unwrap_err();
        assert!(error.to_string().contains("in use by another run"), "{error}");
        drop(first);
        assert!(Store::open(&path).is_ok());
    }

    #[test]
    fn a_finished_file_is_in_order_with_one_line_a_key() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out.jsonl");
        let mut store = Store::open(&path).unwrap();
        for record in [record("b", 16, 1.0), failed("a", 8), record("a", 8, 2.0)] {
            store.append(&record).unwrap();
        }
        store.finish().unwrap();
        assert_eq!(load(&path).unwrap(), [record("a", 8, 2.0), record("b", 16, 1.0)]);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn done_beats_failed_and_two_results_conflict() {
        let source = |name: &str, records: &[Record]| (PathBuf::from(name), records.to_vec());
        let done = record("a", 8, 1.0);
        for order in [[done.clone(), failed("a", 8)], [failed("a", 8), done.clone()]] {
            let [first, second] = order.map(|record| [record]);
            assert_eq!(
                latest(&[source("x", &first), source("y", &second)]).unwrap(),
                std::slice::from_ref(&done)
            );
        }
        let mut timed = done.clone();
        timed.timing = Some(1.into());
        assert_eq!(
            latest(&[source("x", std::slice::from_ref(&timed)), source("y", std::slice::from_ref(&done))])
                .unwrap(),
            [timed]
        );
        let other = record("a", 8, 1.5);
        let error = latest(&[source("x", &[done]), source("y", &[other])]).unwrap_err().to_string();
        assert!(error.contains("two results for a/ppl@8 ") && error.contains("in `x` and in `y`"), "{error}");
    }
}
