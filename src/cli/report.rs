//! What a command found, and the only code that prints it.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde_json::{Map, Value};

use crate::plot::NamedFigure;

/// How a result is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// Aligned columns for people
    Table,
    /// One object; documented in docs/json.md
    Json,
    /// The rows of the main table
    Csv,
    /// Tables for a pull request or a step summary
    Markdown,
}

/// Rows for people and spreadsheets.
#[derive(Debug, Clone, Default)]
pub struct Table {
    pub title: String,
    pub columns: Vec<String>,
    pub rows: Vec<Vec<String>>,
}

impl Table {
    pub fn new<S: AsRef<str>>(title: impl Into<String>, columns: &[S]) -> Self {
        let columns = columns.iter().map(|name| name.as_ref().to_string()).collect();
        Self { title: title.into(), columns, rows: Vec::new() }
    }

    pub fn row<I: IntoIterator<Item = String>>(&mut self, cells: I) {
        self.rows.push(cells.into_iter().collect());
    }
}

/// The result of a command in every form it may be asked for.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// Versioned name of the JSON layout, such as `ropex.ppl/1`.
    pub schema: &'static str,
    pub model: Value,
    pub rope: Value,
    pub engine: Value,
    pub result: Value,
    /// The only part that differs between reruns.
    pub timing: Value,
    /// Running text that the table format shows instead of tables.
    pub text: Option<String>,
    /// What the table format writes in the place of `text` and tables when it is no text.
    pub bytes: Option<Vec<u8>>,
    /// Whether `text` already went to standard output while it was produced.
    pub streamed: bool,
    pub tables: Vec<Table>,
    /// Which of them CSV holds.
    pub main_table: usize,
    /// What `--figures` and `--report` draw.
    pub figures: Vec<NamedFigure>,
    pub warnings: Vec<String>,
    /// Whether Ctrl-C ended the work; the result holds what was done until then.
    pub interrupted: bool,
    /// What failed although the rest has a result, one line each.
    pub failures: Vec<String>,
    /// What each gate that did not hold found and wanted.
    pub failed_gates: Vec<String>,
}

impl Report {
    /// Writes the result to `output` (standard output when `None`), and nothing else.
    ///
    /// # Errors
    /// A file or pipe that cannot be written.
    pub fn print(&self, format: Format, output: Option<&Path>) -> anyhow::Result<()> {
        if let (Format::Table, Some(bytes), Some(path)) = (format, &self.bytes, output) {
            return write_file(path, bytes);
        }
        let text = match format {
            Format::Table if self.streamed && output.is_none() => return Ok(()),
            Format::Table => self.plain(),
            Format::Json => format!("{}\n", serde_json::to_string_pretty(&self.json())?),
            Format::Csv => self.csv(),
            Format::Markdown => self.markdown(),
        };
        match output {
            Some(path) => write_file(path, text),
            None => {
                let mut stdout = io::stdout().lock();
                stdout.write_all(text.as_bytes())?;
                Ok(stdout.flush()?)
            }
        }
    }

    /// The result as the JSON format prints it.
    pub(super) fn json(&self) -> Value {
        let mut object = Map::new();
        object.insert("schema".into(), self.schema.into());
        let parts = [
            ("model", &self.model),
            ("rope", &self.rope),
            ("engine", &self.engine),
            ("result", &self.result),
        ];
        for (key, value) in parts {
            if !value.is_null() {
                object.insert(key.into(), value.clone());
            }
        }
        object.insert("warnings".into(), self.warnings.clone().into());
        if self.interrupted {
            object.insert("interrupted".into(), true.into());
        }
        if !self.timing.is_null() {
            object.insert("timing".into(), self.timing.clone());
        }
        Value::Object(object)
    }

    fn plain(&self) -> String {
        if let Some(text) = &self.text {
            return with_newline(text.clone());
        }
        let tables: Vec<String> = self.tables.iter().map(aligned).collect();
        tables.join("\n")
    }

    fn csv(&self) -> String {
        let Some(table) = self.tables.get(self.main_table) else {
            return self.plain();
        };
        let line = |cells: &mut dyn Iterator<Item = &str>| {
            let cells: Vec<String> = cells.map(csv_cell).collect();
            cells.join(",") + "\n"
        };
        let mut text = line(&mut table.columns.iter().map(String::as_str));
        for row in &table.rows {
            text += &line(&mut row.iter().map(String::as_str));
        }
        text
    }

    fn markdown(&self) -> String {
        if let Some(text) = &self.text {
            return with_newline(text.clone());
        }
        let mut text = self.markdown_heading();
        for table in &self.tables {
            if !table.title.is_empty() {
                text += &format!("\n### {}\n", markdown_cell(&table.title));
            }
            text += &format!("\n| {} |\n", table.columns.join(" | "));
            let rule = |column| if is_number_column(table, column) { "---:|" } else { "---|" };
            text += &format!("|{}\n", (0..table.columns.len()).map(rule).collect::<String>());
            for row in &table.rows {
                let cells: Vec<String> = row.iter().map(|cell| markdown_cell(cell)).collect();
                text += &format!("| {} |\n", cells.join(" | "));
            }
        }
        for warning in &self.warnings {
            text += &format!("\n> **Warning:** {}\n", markdown_cell(warning));
        }
        text
    }

    /// Which command ran on what, for a page that collects several results.
    fn markdown_heading(&self) -> String {
        let command = self.schema.split('/').next().unwrap_or_default();
        let mut facts = Vec::new();
        let parts = [
            ("model", &self.model["name"]),
            ("rope", &self.rope["scaling"]["value"]),
            ("factor", &self.rope["factor"]["value"]),
            ("engine", &self.engine["name"]),
            ("kv type", &self.engine["kv_type"]),
        ];
        for (label, value) in parts {
            let shown = value.as_str().map(str::to_string).or(value.is_number().then(|| value.to_string()));
            facts.extend(shown.map(|value| format!("{label} `{value}`")));
        }
        let facts = if facts.is_empty() { String::new() } else { format!("\n{}\n", facts.join(", ")) };
        format!("## {}\n{facts}", command.replace('.', " "))
    }
}

fn with_newline(mut text: String) -> String {
    if !text.ends_with('\n') {
        text.push('\n');
    }
    text
}

fn csv_cell(cell: &str) -> String {
    if cell.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", cell.replace('"', "\"\""))
    } else {
        cell.to_string()
    }
}

/// A cell that cannot end its row or begin a tag.
fn markdown_cell(cell: &str) -> String {
    cell.replace('|', "\\|").replace('<', "&lt;").replace(['\n', '\r'], " ")
}

fn is_number_column(table: &Table, column: usize) -> bool {
    let mut cells = table.rows.iter().filter_map(|row| row.get(column));
    let number =
        |cell: &String| cell.chars().next().is_some_and(|c| c.is_ascii_digit() || matches!(c, '-' | '+'));
    !table.rows.is_empty() && cells.all(number)
}

/// Columns of numbers are set flush right, the others flush left.
fn aligned(table: &Table) -> String {
    let width = |column: usize| {
        let cells = table.rows.iter().filter_map(|row| row.get(column));
        let widest = cells.map(|cell| cell.chars().count()).max().unwrap_or(0);
        widest.max(table.columns[column].chars().count())
    };
    let layout: Vec<(usize, bool)> =
        (0..table.columns.len()).map(|c| (width(c), is_number_column(table, c))).collect();
    let line = |cells: &mut dyn Iterator<Item = &str>| {
        let cells: Vec<String> = cells
            .zip(&layout)
            .map(|(cell, (width, right))| match right {
                true => format!("{cell:>width$}"),
                false => format!("{cell:<width$}"),
            })
            .collect();
        cells.join("  ").trim_end().to_string() + "\n"
    };
    let mut text = String::new();
    if !table.title.is_empty() {
        text += &format!("{}\n", table.title);
    }
    text += &line(&mut table.columns.iter().map(String::as_str));
    for row in &table.rows {
        text += &line(&mut row.iter().map(String::as_str));
    }
    text
}

/// Writes a sibling file and renames it, so that a reader never sees half a result. What is there and is no file of its
/// own (a device, a pipe) is written to and stays what it is; a link keeps pointing where it does.
pub(super) fn write_file(path: &Path, bytes: impl AsRef<[u8]>) -> anyhow::Result<()> {
    let failed = || format!("cannot write `{}`", path.display());
    if path.exists() && !path.is_file() {
        return fs::write(path, bytes.as_ref()).with_context(failed);
    }
    let path = &path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
    let mut name = path.file_name().map(|name| name.to_os_string()).unwrap_or_default();
    name.push(format!(".{}.tmp", std::process::id()));
    let sibling: PathBuf = path.with_file_name(name);
    let written = fs::write(&sibling, bytes.as_ref()).and_then(|()| fs::rename(&sibling, path));
    if written.is_err() {
        fs::remove_file(&sibling).ok(); // nothing to clean up when it was never created
    }
    written.with_context(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let mut table = Table::new("sizes", &["name", "bytes"]);
        table.row(["a, \"b\"".to_string(), "12".to_string()]);
        table.row(["c|d".to_string(), "3".to_string()]);
        Report {
            schema: "ropex.test/1",
            result: serde_json::json!({"ok": true}),
            tables: vec![table],
            ..Report::default()
        }
    }

    #[test]
    fn csv_quotes_and_markdown_escapes() {
        assert_eq!(report().csv(), "name,bytes\n\"a, \"\"b\"\"\",12\nc|d,3\n");
        let text = report().markdown();
        assert!(text.contains("| c\\|d | 3 |"), "{text}");
        assert!(text.starts_with("## ropex test\n\n### sizes\n\n| name | bytes |\n|---|---:|\n"), "{text}");
    }

    #[test]
    fn numbers_are_flush_right() {
        assert_eq!(report().plain(), "sizes\nname    bytes\na, \"b\"     12\nc|d         3\n");
    }

    #[test]
    fn json_names_its_schema_first_and_leaves_out_absent_parts() {
        let text = serde_json::to_string(&report().json()).unwrap();
        assert_eq!(text, r#"{"schema":"ropex.test/1","result":{"ok":true},"warnings":[]}"#);
    }

    /// A device in the place of the file must be written to, never replaced.
    #[cfg(unix)]
    #[test]
    fn devices_stay_devices() {
        use std::os::unix::fs::FileTypeExt;
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
        assert!(made.success());
        let reader = std::thread::spawn({
            let pipe = pipe.clone();
            move || fs::read_to_string(pipe).unwrap()
        });
        report().print(Format::Csv, Some(&pipe)).unwrap();
        assert_eq!(reader.join().unwrap(), report().csv());
        assert!(fs::metadata(&pipe).unwrap().file_type().is_fifo());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn files_are_replaced_whole() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out.json");
        report().print(Format::Json, Some(&path)).unwrap();
        report().print(Format::Csv, Some(&path)).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), report().csv());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        #[cfg(unix)]
        {
            let link = dir.path().join("link");
            std::os::unix::fs::symlink(&path, &link).unwrap();
            report().print(Format::Markdown, Some(&link)).unwrap();
            assert!(link.is_symlink());
            assert_eq!(fs::read_to_string(&path).unwrap(), report().markdown());
        }
        let missing = dir.path().join("no/such/folder");
        let error = report().print(Format::Json, Some(&missing)).unwrap_err();
        assert!(format!("{error:#}").contains("cannot write"), "{error:#}");
    }
}
