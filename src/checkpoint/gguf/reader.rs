//! A cursor over untrusted bytes: nothing is read, sliced or allocated before it is known to fit.

use super::error::GgufProblem;
use super::value::{Array, Value, ValueType};

/// Deepest nesting of arrays in arrays that is read.
pub(super) const MAX_ARRAY_DEPTH: usize = 4;

/// Cursor over the bytes of one file.
pub(super) struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    /// Whether lengths, counts and dimensions have 32 bits, as in version 1, instead of 64.
    short_lengths: bool,
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0, short_lengths: false }
    }

    /// Bytes read so far.
    pub(super) fn position(&self) -> usize {
        self.at
    }

    /// Bytes not yet read.
    fn remaining(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// The next `needed` bytes, if the file has them. `what` names them in the error.
    pub(super) fn take(&mut self, needed: u64, what: &str) -> Result<&'a [u8], GgufProblem> {
        let found = usize::try_from(needed)
            .ok()
            .and_then(|length| self.bytes.get(self.at..self.at.checked_add(length)?));
        let found = found.ok_or_else(|| GgufProblem::Truncated {
            what: what.to_owned(),
            at: self.at as u64,
            needed,
            size: self.bytes.len() as u64,
        })?;
        self.at += found.len();
        Ok(found)
    }

    fn array<const N: usize>(&mut self, what: &str) -> Result<[u8; N], GgufProblem> {
        let bytes = self.take(N as u64, what)?;
        let mut array = [0; N];
        array.copy_from_slice(bytes);
        Ok(array)
    }

    pub(super) fn u32(&mut self, what: &str) -> Result<u32, GgufProblem> {
        self.array(what).map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self, what: &str) -> Result<u64, GgufProblem> {
        self.array(what).map(u64::from_le_bytes)
    }

    /// From here on lengths, counts and dimensions have 32 bits.
    pub(super) fn shorten_lengths(&mut self) {
        self.short_lengths = true;
    }

    /// A length, a count or a dimension.
    pub(super) fn length(&mut self, what: &str) -> Result<u64, GgufProblem> {
        if self.short_lengths { self.u32(what).map(u64::from) } else { self.u64(what) }
    }

    /// `bytes` that hold `lengths` lengths of 64 bits, in the width of this file.
    fn narrowed(&self, bytes: usize, lengths: usize) -> usize {
        if self.short_lengths { bytes - 4 * lengths } else { bytes }
    }

    /// A count of things that take at least `min_bytes` each, of which `lengths` are lengths of 64 bits; refused when
    /// they cannot fit.
    pub(super) fn count(
        &mut self,
        (min_bytes, lengths): (usize, usize),
        what: &str,
    ) -> Result<usize, GgufProblem> {
        let count = self.length(what)?;
        self.fits(count, self.narrowed(min_bytes, lengths), what)
    }

    fn fits(&self, count: u64, min_bytes: usize, what: &str) -> Result<usize, GgufProblem> {
        let fits = self.remaining() / min_bytes;
        match usize::try_from(count) {
            Ok(count) if count <= fits => Ok(count),
            _ => Err(GgufProblem::Count { what: what.to_owned(), count, fits: fits as u64 }),
        }
    }

    /// A text of `limit` bytes at most, when it must have at least one.
    pub(super) fn name(&mut self, limit: u64, what: &str) -> Result<String, GgufProblem> {
        let length = self.length(what)?;
        if length == 0 || length > limit {
            return Err(GgufProblem::NameLength { what: what.to_owned(), length, limit });
        }
        self.text(length, what)
    }

    fn string(&mut self, what: &str) -> Result<String, GgufProblem> {
        let length = self.length(what)?;
        self.text(length, what)
    }

    fn text(&mut self, length: u64, what: &str) -> Result<String, GgufProblem> {
        let bytes = self.take(length, what)?;
        match std::str::from_utf8(bytes) {
            Ok(text) => Ok(text.to_owned()),
            Err(_) => Err(GgufProblem::NotUtf8 { what: what.to_owned() }),
        }
    }

    fn bool(&mut self, key: &str, what: &str) -> Result<bool, GgufProblem> {
        match self.array(what)? {
            [0] => Ok(false),
            [1] => Ok(true),
            [found] => Err(GgufProblem::Bool { key: key.to_owned(), found }),
        }
    }

    fn value_type(&mut self, key: &str, what: &str) -> Result<ValueType, GgufProblem> {
        let id = self.u32(what)?;
        ValueType::from_id(id).ok_or_else(|| GgufProblem::ValueType { key: key.to_owned(), id })
    }

    /// The value of `key`: its type tag and what follows.
    pub(super) fn value(&mut self, key: &str) -> Result<Value, GgufProblem> {
        let what = format!("the value of key `{key}`");
        Ok(match self.value_type(key, &what)? {
            ValueType::U8 => Value::U8(u8::from_le_bytes(self.array(&what)?)),
            ValueType::I8 => Value::I8(i8::from_le_bytes(self.array(&what)?)),
            ValueType::U16 => Value::U16(u16::from_le_bytes(self.array(&what)?)),
            ValueType::I16 => Value::I16(i16::from_le_bytes(self.array(&what)?)),
            ValueType::U32 => Value::U32(u32::from_le_bytes(self.array(&what)?)),
            ValueType::I32 => Value::I32(i32::from_le_bytes(self.array(&what)?)),
            ValueType::F32 => Value::F32(f32::from_le_bytes(self.array(&what)?)),
            ValueType::U64 => Value::U64(u64::from_le_bytes(self.array(&what)?)),
            ValueType::I64 => Value::I64(i64::from_le_bytes(self.array(&what)?)),
            ValueType::F64 => Value::F64(f64::from_le_bytes(self.array(&what)?)),
            ValueType::Bool => Value::Bool(self.bool(key, &what)?),
            ValueType::String => Value::String(self.string(&what)?),
            ValueType::Array => Value::Array(self.list(key, &what, 1)?),
        })
    }

    /// An array: element type, count, elements. `depth`: levels of arrays, this one included.
    fn list(&mut self, key: &str, what: &str, depth: usize) -> Result<Array, GgufProblem> {
        if depth > MAX_ARRAY_DEPTH {
            return Err(GgufProblem::Nesting { key: key.to_owned(), limit: MAX_ARRAY_DEPTH });
        }
        let kind = self.value_type(key, what)?;
        let count = self.length(what)?;
        let in_key = format!("values in key `{key}`");
        let lengths = usize::from(matches!(kind, ValueType::String | ValueType::Array));
        let count = self.fits(count, self.narrowed(kind.min_bytes(), lengths), &in_key)?;
        Ok(match kind {
            ValueType::U8 => Array::U8(self.numbers(count, what, u8::from_le_bytes)?),
            ValueType::I8 => Array::I8(self.numbers(count, what, i8::from_le_bytes)?),
            ValueType::U16 => Array::U16(self.numbers(count, what, u16::from_le_bytes)?),
            ValueType::I16 => Array::I16(self.numbers(count, what, i16::from_le_bytes)?),
            ValueType::U32 => Array::U32(self.numbers(count, what, u32::from_le_bytes)?),
            ValueType::I32 => Array::I32(self.numbers(count, what, i32::from_le_bytes)?),
            ValueType::F32 => Array::F32(self.numbers(count, what, f32::from_le_bytes)?),
            ValueType::U64 => Array::U64(self.numbers(count, what, u64::from_le_bytes)?),
            ValueType::I64 => Array::I64(self.numbers(count, what, i64::from_le_bytes)?),
            ValueType::F64 => Array::F64(self.numbers(count, what, f64::from_le_bytes)?),
            ValueType::Bool => {
                Array::Bool((0..count).map(|_| self.bool(key, what)).collect::<Result<_, _>>()?)
            }
            ValueType::String => {
                Array::String((0..count).map(|_| self.string(what)).collect::<Result<_, _>>()?)
            }
            ValueType::Array => {
                Array::Array((0..count).map(|_| self.list(key, what, depth + 1)).collect::<Result<_, _>>()?)
            }
        })
    }

    /// `count` numbers of `N` bytes each.
    fn numbers<T, const N: usize>(
        &mut self,
        count: usize,
        what: &str,
        convert: fn([u8; N]) -> T,
    ) -> Result<Vec<T>, GgufProblem> {
        let bytes = self.take((count as u64).saturating_mul(N as u64), what)?;
        Ok(bytes.as_chunks::<N>().0.iter().map(|chunk| convert(*chunk)).collect())
    }
}
