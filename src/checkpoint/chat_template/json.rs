//! The `tojson` filter, written as Python's `json.dumps(ensure_ascii=False)` writes it.

use std::fmt::Write;

use minijinja::value::{Kwargs, Value, ValueKind};
use minijinja::{Error, ErrorKind, State};
use serde_json::Value as Json;

/// Deepest nesting written; Python's own limit is near a thousand.
const MAX_DEPTH: usize = 128;

/// `value | tojson(indent=N, ensure_ascii=false, sort_keys=false)`.
///
/// # Errors
/// Undefined values, functions and nesting beyond 128 levels are not JSON; unknown arguments are refused.
pub(super) fn tojson(state: &State, value: &Value, arguments: Kwargs) -> Result<Value, Error> {
    let mut writer = Writer {
        state,
        out: String::new(),
        indent: arguments.get::<Option<usize>>("indent")?,
        ascii: arguments.get::<Option<bool>>("ensure_ascii")?.unwrap_or(false),
        sort_keys: arguments.get::<Option<bool>>("sort_keys")?.unwrap_or(false),
    };
    arguments.assert_all_used()?;
    if writer.indent.is_some_and(|n| n > MAX_DEPTH) {
        return Err(Error::new(ErrorKind::InvalidOperation, format!("tojson indent is above {MAX_DEPTH}")));
    }
    writer.write(value, 0)?;
    Ok(Value::from(writer.out))
}

struct Writer<'s, 't, 'e> {
    /// Pays for every value written.
    state: &'s State<'t, 'e>,
    out: String,
    /// Blanks per level; `None`: all on one line.
    indent: Option<usize>,
    ascii: bool,
    sort_keys: bool,
}

impl Writer<'_, '_, '_> {
    fn write(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        if depth > MAX_DEPTH {
            return Err(Error::new(ErrorKind::InvalidOperation, "value is nested too deeply for tojson"));
        }
        self.state.consume_fuel(1)?;
        match value.kind() {
            ValueKind::None => self.out.push_str("null"),
            ValueKind::Bool => self.out.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => self.out.push_str(&value.to_string()),
            ValueKind::String => self.write_text(value.as_str().unwrap_or_default()),
            ValueKind::Seq | ValueKind::Iterable => {
                let items: Vec<Value> = value.try_iter()?.collect();
                self.write_items(&items, depth, ['[', ']'], |writer, item| writer.write(item, depth + 1))?;
            }
            ValueKind::Map => {
                let mut keys: Vec<Value> = value.try_iter()?.collect();
                if self.sort_keys {
                    keys.sort();
                }
                self.write_items(&keys, depth, ['{', '}'], |writer, key| {
                    writer.write_text(&key.to_string());
                    writer.out.push_str(": ");
                    writer.write(&value.get_item(key)?, depth + 1)
                })?;
            }
            other => {
                return Err(Error::new(ErrorKind::InvalidOperation, format!("{other} is not JSON")));
            }
        }
        Ok(())
    }

    fn write_items(
        &mut self,
        items: &[Value],
        depth: usize,
        [open, close]: [char; 2],
        mut write: impl FnMut(&mut Self, &Value) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.out.push(open);
        for (i, item) in items.iter().enumerate() {
            if i > 0 {
                self.out.push_str(if self.indent.is_some() { "," } else { ", " });
            }
            self.new_line(depth + 1);
            write(self, item)?;
        }
        if !items.is_empty() {
            self.new_line(depth);
        }
        self.out.push(close);
        Ok(())
    }

    fn new_line(&mut self, depth: usize) {
        if let Some(indent) = self.indent {
            self.out.push('\n');
            self.out.extend(std::iter::repeat_n(' ', indent * depth));
        }
    }

    fn write_text(&mut self, text: &str) {
        self.out.push('"');
        for c in text.chars() {
            match c {
                '"' => self.out.push_str("\\\""),
                '\\' => self.out.push_str("\\\\"),
                '\n' => self.out.push_str("\\n"),
                '\r' => self.out.push_str("\\r"),
                '\t' => self.out.push_str("\\t"),
                '\u{8}' => self.out.push_str("\\b"),
                '\u{c}' => self.out.push_str("\\f"),
                c if c < ' ' || (self.ascii && !c.is_ascii()) => {
                    for unit in c.encode_utf16(&mut [0; 2]) {
                        // Writing to a String does not fail.
                        let _ = write!(self.out, "\\u{unit:04x}");
                    }
                }
                c => self.out.push(c),
            }
        }
        self.out.push('"');
    }
}

/// A JSON value as the engine's value, objects in their order.
pub(super) fn to_value(json: &Json) -> Value {
    match json {
        Json::Null => Value::from(()),
        Json::Bool(b) => Value::from(*b),
        Json::Number(n) => match (n.as_i64(), n.as_u64()) {
            (Some(n), _) => Value::from(n),
            (None, Some(n)) => Value::from(n),
            (None, None) => Value::from(n.as_f64().unwrap_or(f64::NAN)),
        },
        Json::String(text) => Value::from(text.as_str()),
        Json::Array(list) => Value::from(list.iter().map(to_value).collect::<Vec<_>>()),
        Json::Object(map) => Value::from_pairs(map.iter().map(|(k, v)| (k.as_str(), to_value(v)))),
    }
}
