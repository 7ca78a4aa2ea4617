//! Metadata values: thirteen types, kept at the width the file uses.

use std::fmt;

/// Type tag of a metadata value.
///
/// Source: ggml `docs/gguf.md`, `gguf_metadata_value_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
#[allow(missing_docs)]
pub enum ValueType {
    U8 = 0,
    I8 = 1,
    U16 = 2,
    I16 = 3,
    U32 = 4,
    I32 = 5,
    F32 = 6,
    Bool = 7,
    String = 8,
    Array = 9,
    U64 = 10,
    I64 = 11,
    F64 = 12,
}

impl ValueType {
    /// Every type, in the order of the tags.
    pub const ALL: [Self; 13] = [
        Self::U8,
        Self::I8,
        Self::U16,
        Self::I16,
        Self::U32,
        Self::I32,
        Self::F32,
        Self::Bool,
        Self::String,
        Self::Array,
        Self::U64,
        Self::I64,
        Self::F64,
    ];

    /// Type of a tag, if there is one.
    pub fn from_id(id: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u32 == id)
    }

    /// Name for messages, for example `u32`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::U8 => "u8",
            Self::I8 => "i8",
            Self::U16 => "u16",
            Self::I16 => "i16",
            Self::U32 => "u32",
            Self::I32 => "i32",
            Self::F32 => "f32",
            Self::Bool => "bool",
            Self::String => "string",
            Self::Array => "array",
            Self::U64 => "u64",
            Self::I64 => "i64",
            Self::F64 => "f64",
        }
    }

    /// Fewest bytes that one value of this type takes in a file.
    pub(super) const fn min_bytes(self) -> usize {
        match self {
            Self::U8 | Self::I8 | Self::Bool => 1,
            Self::U16 | Self::I16 => 2,
            Self::U32 | Self::I32 | Self::F32 => 4,
            Self::U64 | Self::I64 | Self::F64 => 8,
            Self::String => 8,
            Self::Array => 12,
        }
    }
}

/// One metadata value.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum Value {
    U8(u8),
    I8(i8),
    U16(u16),
    I16(i16),
    U32(u32),
    I32(i32),
    F32(f32),
    Bool(bool),
    String(String),
    Array(Array),
    U64(u64),
    I64(i64),
    F64(f64),
}

/// A list whose elements all have one type.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum Array {
    U8(Vec<u8>),
    I8(Vec<i8>),
    U16(Vec<u16>),
    I16(Vec<i16>),
    U32(Vec<u32>),
    I32(Vec<i32>),
    F32(Vec<f32>),
    Bool(Vec<bool>),
    String(Vec<String>),
    Array(Vec<Array>),
    U64(Vec<u64>),
    I64(Vec<i64>),
    F64(Vec<f64>),
}

impl Value {
    /// Type tag.
    pub fn kind(&self) -> ValueType {
        match self {
            Self::U8(_) => ValueType::U8,
            Self::I8(_) => ValueType::I8,
            Self::U16(_) => ValueType::U16,
            Self::I16(_) => ValueType::I16,
            Self::U32(_) => ValueType::U32,
            Self::I32(_) => ValueType::I32,
            Self::F32(_) => ValueType::F32,
            Self::Bool(_) => ValueType::Bool,
            Self::String(_) => ValueType::String,
            Self::Array(_) => ValueType::Array,
            Self::U64(_) => ValueType::U64,
            Self::I64(_) => ValueType::I64,
            Self::F64(_) => ValueType::F64,
        }
    }

    /// The number, for an integer of any width.
    pub fn as_integer(&self) -> Option<i128> {
        Some(match *self {
            Self::U8(n) => n.into(),
            Self::I8(n) => n.into(),
            Self::U16(n) => n.into(),
            Self::I16(n) => n.into(),
            Self::U32(n) => n.into(),
            Self::I32(n) => n.into(),
            Self::U64(n) => n.into(),
            Self::I64(n) => n.into(),
            _ => return None,
        })
    }

    /// The number, for a float or an integer of any width.
    pub fn as_float(&self) -> Option<f64> {
        match *self {
            Self::F32(x) => Some(x.into()),
            Self::F64(x) => Some(x),
            _ => self.as_integer().map(|n| n as f64),
        }
    }

    /// Type in words for messages, for example `u32` or `array of string`.
    pub fn type_name(&self) -> String {
        match self {
            Self::Array(array) => format!("array of {}", array.kind().name()),
            other => other.kind().name().to_owned(),
        }
    }
}

impl Array {
    /// Type tag of the elements.
    pub fn kind(&self) -> ValueType {
        match self {
            Self::U8(_) => ValueType::U8,
            Self::I8(_) => ValueType::I8,
            Self::U16(_) => ValueType::U16,
            Self::I16(_) => ValueType::I16,
            Self::U32(_) => ValueType::U32,
            Self::I32(_) => ValueType::I32,
            Self::F32(_) => ValueType::F32,
            Self::Bool(_) => ValueType::Bool,
            Self::String(_) => ValueType::String,
            Self::Array(_) => ValueType::Array,
            Self::U64(_) => ValueType::U64,
            Self::I64(_) => ValueType::I64,
            Self::F64(_) => ValueType::F64,
        }
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        match self {
            Self::U8(list) => list.len(),
            Self::I8(list) => list.len(),
            Self::U16(list) => list.len(),
            Self::I16(list) => list.len(),
            Self::U32(list) => list.len(),
            Self::I32(list) => list.len(),
            Self::F32(list) => list.len(),
            Self::Bool(list) => list.len(),
            Self::String(list) => list.len(),
            Self::Array(list) => list.len(),
            Self::U64(list) => list.len(),
            Self::I64(list) => list.len(),
            Self::F64(list) => list.len(),
        }
    }

    /// Whether there is no element.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Element `index`, if there is one.
    pub fn get(&self, index: usize) -> Option<Value> {
        match self {
            Self::U8(list) => list.get(index).copied().map(Value::U8),
            Self::I8(list) => list.get(index).copied().map(Value::I8),
            Self::U16(list) => list.get(index).copied().map(Value::U16),
            Self::I16(list) => list.get(index).copied().map(Value::I16),
            Self::U32(list) => list.get(index).copied().map(Value::U32),
            Self::I32(list) => list.get(index).copied().map(Value::I32),
            Self::F32(list) => list.get(index).copied().map(Value::F32),
            Self::Bool(list) => list.get(index).copied().map(Value::Bool),
            Self::String(list) => list.get(index).cloned().map(Value::String),
            Self::Array(list) => list.get(index).cloned().map(Value::Array),
            Self::U64(list) => list.get(index).copied().map(Value::U64),
            Self::I64(list) => list.get(index).copied().map(Value::I64),
            Self::F64(list) => list.get(index).copied().map(Value::F64),
        }
    }
}

/// Longest text of a value in a message, in characters.
const SHOWN_CHARACTERS: usize = 60;

impl fmt::Display for Value {
    /// The value for messages; long texts are cut and lists are counted.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::F32(x) => write!(f, "{x}"),
            Self::F64(x) => write!(f, "{x}"),
            Self::Bool(flag) => write!(f, "{flag}"),
            Self::String(text) => match text.char_indices().nth(SHOWN_CHARACTERS) {
                Some((end, _)) => write!(f, "{}…", &text[..end]),
                None => f.write_str(text),
            },
            Self::Array(list) => write!(f, "{} values of {}", list.len(), list.kind().name()),
            other => write!(f, "{}", other.as_integer().unwrap_or_default()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_and_types_agree() {
        for (id, kind) in (0u32..).zip(ValueType::ALL) {
            assert_eq!(kind as u32, id);
            assert_eq!(ValueType::from_id(id), Some(kind));
        }
        assert_eq!(ValueType::from_id(13), None);
    }

    #[test]
    fn integers_of_every_width_are_numbers() {
        assert_eq!(Value::U64(u64::MAX).as_integer(), Some(u64::MAX.into()));
        assert_eq!(Value::I8(-3).as_float(), Some(-3.0));
        assert_eq!(Value::F32(0.5).as_integer(), None);
        assert_eq!(Value::Bool(true).as_float(), None);
    }

    #[test]
    fn long_values_are_shortened_in_messages() {
        let long = Value::String("é".repeat(100)).to_string();
        assert_eq!(long.chars().count(), SHOWN_CHARACTERS + 1);
        let list = Value::Array(Array::U32(vec![1, 2]));
        assert_eq!(list.to_string(), "2 values of u32");
        assert_eq!(list.type_name(), "array of u32");
        assert_eq!(Value::I16(-7).to_string(), "-7");
        assert_eq!(Array::Bool(vec![true]).get(0), Some(Value::Bool(true)));
        assert!(Array::F64(vec![]).is_empty());
    }
}
