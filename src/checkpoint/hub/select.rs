//! Which files of a repository a run needs.

use std::collections::{BTreeMap, BTreeSet};

use super::error::{HubError, Place};
use crate::checkpoint::gguf::PartName;
use crate::checkpoint::safetensors::{INDEX_FILE, SINGLE_FILE};

/// File that describes a safetensors model.
const CONFIG_FILE: &str = "config.json";

/// Small files that are fetched with safetensors when the repository has them.
const SIDECARS: [&str; 7] = [
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "chat_template.json",
];

/// Start of the names of GGUF files that are no language model: vision projectors and importance matrices.
const NOT_A_MODEL: [&str; 2] = ["mmproj", "imatrix"];

/// What to fetch.
#[derive(Debug, PartialEq)]
pub(super) enum Selection {
    /// One GGUF checkpoint: all its parts, in order
    Gguf(Vec<String>),
    /// A folder: these files, and then the weights
    Folder {
        /// Config and tokenizer files
        files: Vec<String>,
        /// Whether the weights are named by an index
        indexed: bool,
    },
}

/// A repository's files and what was asked of them.
pub(super) struct Request<'a> {
    pub(super) repo: &'a str,
    pub(super) quant: Option<&'a str>,
    pub(super) place: Place,
    pub(super) files: &'a [String],
}

impl Request<'_> {
    /// Choose by need: the named GGUF, else safetensors, else the only GGUF.
    pub(super) fn select(&self) -> Result<Selection, HubError> {
        let ggufs = self.gguf_checkpoints();
        match self.quant {
            Some(quant) => self.select_quant(&ggufs, quant),
            None if self.has(INDEX_FILE) || self.has(SINGLE_FILE) => self.select_folder(),
            None => match ggufs.iter().collect::<Vec<_>>()[..] {
                [] => Err(HubError::NoWeights {
                    repo: self.repo.to_owned(),
                    place: self.place,
                    found: self.files.to_vec(),
                }),
                [first] => self.all_parts(first),
                _ => Err(self.ambiguous(ggufs.into_iter().collect())),
            },
        }
    }

    fn has(&self, name: &str) -> bool {
        self.files.iter().any(|file| file == name)
    }

    fn select_folder(&self) -> Result<Selection, HubError> {
        if !self.has(CONFIG_FILE) {
            return Err(self.missing(CONFIG_FILE));
        }
        let sidecars = SIDECARS.iter().filter(|name| self.has(name));
        let indexed = self.has(INDEX_FILE);
        let mut files = vec![CONFIG_FILE.to_owned()];
        files.extend(sidecars.map(|name| (*name).to_owned()));
        files.push(if indexed { INDEX_FILE } else { SINGLE_FILE }.to_owned());
        Ok(Selection::Folder { files, indexed })
    }

    fn select_quant(&self, ggufs: &BTreeSet<String>, quant: &str) -> Result<Selection, HubError> {
        if let Some(file) = self.files.iter().find(|file| *file == quant) {
            return self.all_parts(file);
        }
        let matching: Vec<&String> = ggufs.iter().filter(|file| has_label(file, quant)).collect();
        match matching[..] {
            [file] => self.all_parts(file),
            [] => Err(HubError::NoQuant {
                repo: self.repo.to_owned(),
                quant: quant.to_owned(),
                place: self.place,
                found: ggufs.iter().cloned().collect(),
            }),
            _ => Err(self.ambiguous(matching.into_iter().cloned().collect())),
        }
    }

    /// First files of the GGUF checkpoints.
    fn gguf_checkpoints(&self) -> BTreeSet<String> {
        let mut found: BTreeMap<(&str, &str), &String> = BTreeMap::new();
        for file in self.files {
            let name = file_name(file);
            let lower = name.to_ascii_lowercase();
            if !lower.ends_with(".gguf") || NOT_A_MODEL.iter().any(|start| lower.starts_with(start)) {
                continue;
            }
            let folder = &file[..file.len() - name.len()];
            let prefix = PartName::parse(name).map_or(name, |part| part.prefix);
            let first = found.entry((folder, prefix)).or_insert(file);
            *first = file.min(first);
        }
        found.into_values().cloned().collect()
    }

    /// All parts of the checkpoint that `file` belongs to.
    fn all_parts(&self, file: &str) -> Result<Selection, HubError> {
        let name = file_name(file);
        let folder = &file[..file.len() - name.len()];
        let Some(part) = PartName::parse(name) else {
            return Ok(Selection::Gguf(vec![file.to_owned()]));
        };
        let sibling = |number| format!("{folder}{}", part.sibling(number));
        let first = usize::from(!self.has(&sibling(0)));
        let parts: Vec<String> = (first..first + part.count).map(sibling).collect();
        match parts.iter().find(|part| !self.has(part)) {
            Some(missing) => Err(HubError::PartMissing {
                repo: self.repo.to_owned(),
                place: self.place,
                opened: file.to_owned(),
                missing: missing.clone(),
            }),
            None => Ok(Selection::Gguf(parts)),
        }
    }

    fn ambiguous(&self, found: Vec<String>) -> HubError {
        HubError::Ambiguous { repo: self.repo.to_owned(), place: self.place, found }
    }

    fn missing(&self, name: &str) -> HubError {
        HubError::Missing { repo: self.repo.to_owned(), place: self.place, missing: name.to_owned() }
    }
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// File name without `.gguf` and without the number of a part.
fn stem(file: &str) -> &str {
    let name = file_name(file);
    match PartName::parse(name) {
        Some(part) => part.prefix,
        None => name.get(..name.len().saturating_sub(".gguf".len())).unwrap_or(name),
    }
}

/// Whether a file name ends in the label, upper or lower case, as a word of its own.
fn has_label(file: &str, label: &str) -> bool {
    let stem = stem(file).to_ascii_lowercase();
    match stem.strip_suffix(&label.to_ascii_lowercase()) {
        Some(rest) => rest.is_empty() || rest.ends_with(['-', '.', '_']),
        None => false,
    }
}

/// Short name of a GGUF file that tells it apart: its last word, for example `Q4_K_M`.
pub(super) fn label(file: &str) -> &str {
    let stem = stem(file);
    stem.rsplit(['-', '.']).next().unwrap_or(stem)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn select(files: &[&str], quant: Option<&str>) -> Result<Selection, HubError> {
        let files: Vec<String> = files.iter().map(|file| (*file).to_owned()).collect();
        Request { repo: "org/name", quant, place: Place::Hub, files: &files }.select()
    }

    fn gguf(files: &[&str]) -> Selection {
        Selection::Gguf(files.iter().map(|file| (*file).to_owned()).collect())
    }

    const QUANTS: [&str; 6] =
        ["README.md", "m-Q4_K_M.gguf", "m-IQ4_K_M.gguf", "m-BF16.gguf", "m-F16.gguf", "mmproj-m-F16.gguf"];

    #[test]
    fn a_quantisation_is_found_as_a_word() {
        assert_eq!(select(&QUANTS, Some("Q4_K_M")).unwrap(), gguf(&["m-Q4_K_M.gguf"]));
        assert_eq!(select(&QUANTS, Some("f16")).unwrap(), gguf(&["m-F16.gguf"]));
        assert_eq!(select(&QUANTS, Some("m-BF16.gguf")).unwrap(), gguf(&["m-BF16.gguf"]));
        assert_eq!(select(&["m.q8_0.gguf"], Some("Q8_0")).unwrap(), gguf(&["m.q8_0.gguf"]));
        let error = select(&QUANTS, Some("Q4_K")).unwrap_err();
        assert!(matches!(&error, HubError::NoQuant { found, .. } if found.len() == 4), "{error}");
    }

    #[test]
    fn several_candidates_are_listed() {
        let error = select(&QUANTS, None).unwrap_err();
        let text = error.to_string();
        assert!(matches!(error, HubError::Ambiguous { .. }));
        assert!(text.contains("`m-Q4_K_M.gguf`") && !text.contains("mmproj"), "{text}");
        let error = select(&["a-Q4_0.gguf", "b-Q4_0.gguf"], Some("Q4_0")).unwrap_err();
        assert!(matches!(error, HubError::Ambiguous { .. }));
        assert_eq!(select(&["x.gguf"], None).unwrap(), gguf(&["x.gguf"]));
    }

    #[test]
    fn d107_all_parts_of_a_split_file_are_chosen() {
        let parts = ["d/m-Q8_0-00001-of-00002.gguf", "d/m-Q8_0-00002-of-00002.gguf"];
        for quant in [None, Some("Q8_0"), Some(parts[1])] {
            assert_eq!(select(&parts, quant).unwrap(), gguf(&parts));
        }
        let from_zero = ["m-00000-of-00002.gguf", "m-00001-of-00002.gguf"];
        assert_eq!(select(&from_zero, None).unwrap(), gguf(&from_zero));
        let error = select(&parts[..1], None).unwrap_err();
        assert!(matches!(error, HubError::PartMissing { missing, .. } if missing == parts[1]));
    }

    #[test]
    fn safetensors_come_with_config_and_tokenizer() {
        let files = ["config.json", "tokenizer.json", "model.safetensors", "pytorch_model.bin"];
        let expected = ["config.json", "tokenizer.json", "model.safetensors"].map(str::to_owned);
        let selection = select(&files, None).unwrap();
        assert_eq!(selection, Selection::Folder { files: expected.into(), indexed: false });
        let files = ["config.json", "model.safetensors", INDEX_FILE];
        let selection = select(&files, None).unwrap();
        assert!(matches!(selection, Selection::Folder { indexed: true, .. }));
    }

    #[test]
    fn what_is_missing_is_named() {
        let error = select(&["model.safetensors"], None).unwrap_err();
        assert!(matches!(error, HubError::Missing { missing, .. } if missing == CONFIG_FILE));
        let error = select(&["pytorch_model.bin"], None).unwrap_err();
        assert!(matches!(&error, HubError::NoWeights { .. }) && error.hint().is_some());
        let error = select(&["model.safetensors", "config.json"], Some("Q4_0")).unwrap_err();
        assert!(error.to_string().ends_with("found nothing") && error.hint().is_none());
    }
}
