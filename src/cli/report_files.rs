//! Files that a result leaves beside its text: figures.

use std::collections::HashSet;
use std::fs;
use std::path::Path;

use anyhow::Context as _;

use super::report::{Report, write_file};
use crate::named::Named;
use crate::plot::{NamedFigure, PlotError, Theme, render_png, render_svg};

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
