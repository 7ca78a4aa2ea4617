//! One finished cell as one line of JSON.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::cell::CellId;

/// Versioned name of the layout of a line.
pub const SCHEMA: &str = "ropex.sweep-cell/1";

/// What became of a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    Done,
    /// Measuring it ended with an error; it is tried again when the sweep resumes.
    Failed,
    /// The context is beyond the limit of the method and the sweep was not told to go there.
    Refused,
}

/// One finished cell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// [`SCHEMA`]
    schema: String,
    /// SHA-256 of `inputs` in hexadecimal: the name of the cell wherever it is measured.
    pub key: String,
    pub cell: CellId,
    pub status: Status,
    /// Everything that the result depends on.
    pub inputs: Value,
    /// `null` unless it is done.
    pub result: Value,
    /// Why it failed or was refused.
    pub error: Option<String>,
    /// What differs between reruns; absent when it was not asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timing: Option<Value>,
}

/// Why a line is no finished cell.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    #[error("it is not a finished cell of a sweep: {0}")]
    Json(#[from] serde_json::Error),
    #[error("its schema is `{found}`, `{SCHEMA}` is read")]
    Schema { found: String },
    #[error("its key `{found}` does not belong to its inputs: the line was changed, or damaged")]
    Key { found: String },
}

/// The key of a cell with these inputs.
pub fn key(inputs: &Value) -> String {
    sha256_hex(inputs.to_string().as_bytes())
}

/// SHA-256 in hexadecimal.
pub fn sha256_hex(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Record {
    pub fn new(cell: CellId, inputs: Value, outcome: Result<Value, (Status, String)>) -> Self {
        let (status, result, error) = match outcome {
            Ok(result) => (Status::Done, result, None),
            Err((status, error)) => (status, Value::Null, Some(error)),
        };
        let schema = SCHEMA.to_string();
        Self { schema, key: key(&inputs), cell, status, inputs, result, error, timing: None }
    }

    /// Reads a line without its end.
    ///
    /// # Errors
    /// A line that is none, of another schema, or whose key does not belong to its inputs.
    pub fn parse(line: &str) -> Result<Self, RecordError> {
        let value: Value = serde_json::from_str(line)?;
        match value.get("schema").and_then(Value::as_str) {
            Some(SCHEMA) => {}
            found => return Err(RecordError::Schema { found: found.unwrap_or("none").to_string() }),
        }
        let record: Self = serde_json::from_value(value)?;
        if key(&record.inputs) != record.key {
            return Err(RecordError::Key { found: record.key });
        }
        Ok(record)
    }

    /// The line, with its end.
    pub fn line(&self) -> String {
        // Keys are strings and every number is finite, so there is nothing that JSON cannot write.
        serde_json::to_string(self).map(|line| line + "\n").unwrap_or_default()
    }

    /// The same apart from what differs between reruns.
    pub fn without_timing(&self) -> Self {
        Self { timing: None, ..self.clone() }
    }

    pub fn is_done(&self) -> bool {
        self.status == Status::Done
    }

    /// The same result under another name.
    pub fn named(&self, cell: CellId) -> Self {
        Self { cell, ..self.clone() }
    }

    /// `done`, `failed` or `refused`.
    pub fn status_name(&self) -> &'static str {
        match self.status {
            Status::Done => "done",
            Status::Failed => "failed",
            Status::Refused => "refused",
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use serde_json::json;

    pub fn record(label: &str, context: usize, value: f64) -> Record {
        let cell = CellId {
            measure: "ppl".to_string(),
            label: label.to_string(),
            scaling: label.to_string(),
            factor: None,
            context,
        };
        let inputs = json!({ "label": label, "context": context });
        Record::new(cell, inputs, Ok(json!({ "ppl": value })))
    }

    /// D095: a line says by itself what it is the result of.
    #[test]
    fn d095_a_line_is_read_back_as_it_was() {
        // A number whose last digit a careless reader gets wrong.
        let mut written = record("yarn", 1024, 0.1 + 0.2);
        written.timing = Some(json!({ "elapsed_s": 1.25 }));
        let read = Record::parse(written.line().trim_end()).unwrap();
        assert_eq!(read, written);
        assert_eq!(read.line(), written.line());
        assert_eq!(read.without_timing().timing, None);
        assert!(!written.without_timing().line().contains("timing"));
    }

    #[test]
    fn lines_that_are_none_are_told_apart() {
        let good = record("yarn", 1024, 2.5).line();
        let good = good.trim_end();
        for (line, expected) in [
            ("", "it is not a finished cell"),
            ("{\"a\":", "it is not a finished cell"),
            ("{\"schema\":\"ropex.ppl/1\"}", "its schema is `ropex.ppl/1`"),
            ("[1]", "its schema is `none`"),
            (&good.replace("\"result\"", "\"other\""), "it is not a finished cell"),
            (&good.replace("\"context\":1024}", "\"context\":1025}"), "does not belong to its inputs"),
            (&good[..good.len() - 1], "it is not a finished cell"),
        ] {
            let error = Record::parse(line).unwrap_err().to_string();
            assert!(error.contains(expected), "{line}: {error}");
        }
    }

    #[test]
    fn the_key_is_the_sha256_of_the_inputs() {
        // printf '{}' | sha256sum
        let expected = "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a";
        assert_eq!(key(&json!({})), expected);
    }
}
