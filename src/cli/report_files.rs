//! Files that a result leaves beside its text: figures and a page.

use std::collections::HashSet;
use std::fs;
use std::path::Path;

use anyhow::Context as _;
use serde_json::Value;

use super::report::{Report, Table, write_file};
use super::values::format_number;
use crate::named::Named;
use crate::plot::{NamedFigure, Page, PageTable, PlotError, Theme, render_page, render_png, render_svg};

impl Report {
    /// Writes each figure to `dir` as `NAME-light.svg`, `NAME-dark.svg` and the same as PNG; the folder is made if need be.
    /// Returns how many files were written.
    ///
    /// # Errors
    /// A [`PlotError`] for data that make no figure; a folder or file that cannot be written.
    pub fn write_figures(&self, dir: &Path) -> anyhow::Result<usize> {
        check_names(&self.figures)?;
        if self.figures.is_empty() {
            return Ok(0);
        }
        fs::create_dir_all(dir).with_context(|| format!("cannot make the folder `{}`", dir.display()))?;
        let mut files = 0;
        for NamedFigure { name, figure } in &self.figures {
            for theme in Theme::ALL {
                let failed = || format!("cannot draw the figure `{name}`");
                let stem = format!("{name}-{}", theme.name());
                let svg = render_svg(figure, *theme).with_context(failed)?;
                write_file(&dir.join(format!("{stem}.svg")), svg)?;
                let png = render_png(figure, *theme).with_context(failed)?;
                write_file(&dir.join(format!("{stem}.png")), png)?;
                files += 2;
            }
        }
        Ok(files)
    }

    /// Writes one self-contained HTML page with everything in this report.
    ///
    /// # Errors
    /// A [`PlotError`] for data that make no figure; a file that cannot be written.
    pub fn write_page(&self, path: &Path) -> anyhow::Result<()> {
        check_names(&self.figures)?;
        let command = self.schema.split('/').next().unwrap_or(self.schema).replace('.', " ");
        let page = Page {
            title: command,
            subtitle: self.model["name"].as_str().unwrap_or_default().to_string(),
            warnings: &self.warnings,
            text: self.text.as_deref(),
            figures: &self.figures,
            tables: self.tables.iter().map(page_table).collect(),
            settings: self.settings(),
            json: serde_json::to_string_pretty(&self.json())?,
            footer: format!("ropex {}, layout {}", env!("CARGO_PKG_VERSION"), self.schema),
        };
        write_file(path, render_page(&page).context("cannot draw the figures of the page")?)
    }

    /// What was in force, as tables; parts that a command does not have are left out.
    fn settings(&self) -> Vec<PageTable> {
        let parts = [
            ("model", &self.model),
            ("rotary position embedding", &self.rope),
            ("engine", &self.engine),
            ("timing", &self.timing),
        ];
        let tables = parts.map(|(title, value)| {
            let mut table = PageTable { title: title.to_string(), ..PageTable::default() };
            let entries = value.as_object().into_iter().flatten();
            // Values of the embedding come with their origin.
            let traced = value.as_object().is_some_and(|o| o.values().all(|v| v.get("origin").is_some()));
            if traced {
                table.columns = ["name", "value", "origin"].map(String::from).to_vec();
                let row = |(name, entry): (&String, &Value)| {
                    vec![name.clone(), shown(&entry["value"]), shown(&entry["origin"])]
                };
                table.rows = entries.map(row).collect();
            } else {
                table.columns = ["name", "value"].map(String::from).to_vec();
                entries.for_each(|(name, value)| flatten(name, value, &mut table.rows));
            }
            table
        });
        tables.into_iter().filter(|table| !table.rows.is_empty()).collect()
    }
}

fn page_table(table: &Table) -> PageTable {
    PageTable {
        title: table.title.clone(),
        columns: table.columns.iter().map(|name| name.to_string()).collect(),
        rows: table.rows.clone(),
    }
}

/// Objects become one row a key, `outer.inner`.
fn flatten(name: &str, value: &Value, rows: &mut Vec<Vec<String>>) {
    match value {
        Value::Object(object) => {
            object.iter().for_each(|(inner, value)| flatten(&format!("{name}.{inner}"), value, rows));
        }
        _ => rows.push(vec![name.to_string(), shown(value)]),
    }
}

/// A value for people; long lists are counted, the page holds them as JSON.
fn shown(value: &Value) -> String {
    match value {
        Value::Null => "-".to_string(),
        Value::String(text) => text.clone(),
        Value::Number(number) if number.is_f64() => number.as_f64().map_or(number.to_string(), format_number),
        Value::Array(list) if list.len() > 8 => format!("{} values", list.len()),
        Value::Array(list) => list.iter().map(shown).collect::<Vec<_>>().join(", "),
        other => other.to_string(),
    }
}

/// Names become file names and ids of a page.
fn check_names(figures: &[NamedFigure]) -> Result<(), PlotError> {
    let mut known = HashSet::new();
    for NamedFigure { name, .. } in figures {
        let plain = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_' | '.');
        if name.is_empty() || name.starts_with('.') || !name.chars().all(plain) {
            return Err(PlotError::Name(name.clone()));
        }
        if !known.insert(name) {
            return Err(PlotError::SameName(name.clone()));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plot::{Curves, Figure, Series};

    fn report(names: &[&str], value: f64) -> Report {
        let figure = |name: &&str| {
            let series = vec![Series { name: "a".into(), points: vec![(0.0, value)], ..Series::default() }];
            NamedFigure::new(*name, Figure::Curves(Curves { title: "t".into(), series, ..Curves::default() }))
        };
        Report { figures: names.iter().map(figure).collect(), ..Report::default() }
    }

    #[test]
    fn each_figure_is_four_files_in_a_new_folder() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("new/figures");
        assert_eq!(report(&["loss", "heat-map"], 1.0).write_figures(&folder).unwrap(), 8);
        let mut names: Vec<String> = fs::read_dir(&folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        assert_eq!(names[..2], ["heat-map-dark.png", "heat-map-dark.svg"]);
        assert_eq!(names.len(), 8);
        assert!(fs::read(folder.join("loss-light.png")).unwrap().starts_with(b"\x89PNG\r\n\x1a\n"));
    }

    #[test]
    fn a_page_holds_settings_tables_figures_and_the_result() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("report.html");
        let mut table = Table::new("perplexity", &["text", "ppl"]);
        table.row(["</table><script>".to_string(), "12.5".to_string()]);
        let report = Report {
            schema: "ropex.ppl/1",
            model: serde_json::json!({ "name": "demo <b>", "tokenizer": { "source": "gguf" } }),
            rope: serde_json::json!({ "theta": { "value": 10000.0, "origin": "--rope-theta" } }),
            result: serde_json::json!({ "ppl": 12.5, "note": "</script>" }),
            tables: vec![table],
            warnings: vec!["mind the gap".into()],
            ..report(&["loss"], 1.0)
        };
        report.write_page(&path).unwrap();
        let html = fs::read_to_string(&path).unwrap();
        let parts = [
            "<h1>ropex ppl</h1>",
            "demo &lt;b&gt;",
            "<td>tokenizer.source</td><td>gguf</td>",
            "<td>theta</td><td class=\"n\">10000</td><td>--rope-theta</td>",
            "warning: mind the gap",
            "<td>&lt;/table&gt;&lt;script&gt;</td>",
            "<figure id=\"loss\"",
            "\\u003c/script\\u003e",
        ];
        for part in parts {
            assert!(html.contains(part), "{part}");
        }
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    /// A command without figures has a page all the same.
    #[test]
    fn a_page_needs_no_figures() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("report.html");
        let report = Report { schema: "ropex.generate/1", text: Some("a < b".into()), ..Report::default() };
        report.write_page(&path).unwrap();
        let html = fs::read_to_string(&path).unwrap();
        assert!(html.contains("<pre>a &lt; b</pre>") && !html.contains("<figure"), "{html}");
    }

    #[test]
    fn names_that_leave_the_folder_or_collide_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        for bad in ["../loss", "a/b", "", ".hidden", "a b", "a\u{0}"] {
            let error = report(&[bad], 1.0).write_figures(dir.path()).unwrap_err();
            assert!(error.to_string().contains("name may hold"), "{error:#}");
        }
        let error = report(&["a", "a"], 1.0).write_figures(dir.path()).unwrap_err();
        assert_eq!(error.to_string(), "two figures have the name `a`");
        let error = report(&["loss"], f64::NAN).write_figures(dir.path()).unwrap_err();
        assert!(format!("{error:#}").contains("found NaN at index 0"), "{error:#}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
