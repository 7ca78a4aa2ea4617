//! `model.safetensors.index.json`: which file has which tensor.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path};

use serde_json::Value;

use super::error::SafetensorsProblem as Problem;

/// Tensor names and the files that have them.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Index {
    pub(crate) files: BTreeMap<String, String>,
}

impl Index {
    /// Read the index and check that every file lies in the folder.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, Problem> {
        let invalid = |reason: String| Problem::Index { reason };
        let value: Value = serde_json::from_slice(bytes).map_err(|error| invalid(error.to_string()))?;
        let Some(map) = value.get("weight_map").and_then(Value::as_object) else {
            return Err(invalid("key `weight_map` must be an object".to_owned()));
        };
        if map.is_empty() {
            return Err(invalid("key `weight_map` is empty".to_owned()));
        }
        let mut files = BTreeMap::new();
        for (tensor, file) in map {
            let Some(file) = file.as_str() else {
                return Err(invalid(format!("tensor `{tensor}` must name a file, found `{file}`")));
            };
            if !stays_inside(file) {
                return Err(Problem::IndexPath { tensor: tensor.clone(), file: file.to_owned() });
            }
            files.insert(tensor.clone(), file.to_owned());
        }
        Ok(Self { files })
    }

    /// The files, each once, in the order of their names.
    pub(crate) fn shards(&self) -> BTreeSet<&str> {
        self.files.values().map(String::as_str).collect()
    }
}

/// Whether a relative path names something in or below the folder it starts from, on every system.
pub(crate) fn stays_inside(file: &str) -> bool {
    let foreign = |c: char| c == '\\' || c == ':' || c.is_control();
    let mut components = Path::new(file).components();
    !file.is_empty() && !file.contains(foreign) && components.all(|part| matches!(part, Component::Normal(_)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_are_listed_once() {
        let text = br#"{"metadata": {}, "weight_map": {"a": "2", "b": "1", "c": "2"}}"#;
        let index = Index::parse(text).unwrap();
        assert_eq!(index.shards().into_iter().collect::<Vec<_>>(), ["1", "2"]);
        assert_eq!(index.files["a"], "2");
    }

    #[test]
    fn d105_paths_that_leave_the_folder_are_refused() {
        for file in ["../x", "/etc/passwd", "a/../../x", "C:\\x", "..\\x", "", "a\0b", "."] {
            let text = serde_json::json!({ "weight_map": { "t": file } }).to_string();
            let problem = Index::parse(text.as_bytes()).unwrap_err();
            assert!(matches!(problem, Problem::IndexPath { .. }), "{file}");
        }
        assert!(stays_inside("sub/model-00001-of-00002.safetensors"));
    }

    #[test]
    fn broken_indexes_are_refused() {
        for text in
            ["", "[]", "{}", r#"{"weight_map": []}"#, r#"{"weight_map": {}}"#, r#"{"weight_map": {"a": 1}}"#]
        {
            assert!(matches!(Index::parse(text.as_bytes()), Err(Problem::Index { .. })), "{text}");
        }
    }
}
