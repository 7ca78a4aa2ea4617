//! The metadata of a GGUF file and typed access to it.

use std::borrow::Cow;
use std::collections::HashMap;

use super::error::{GgufError, GgufProblem};
use super::value::{Array, Value};

/// Key of the architecture name.
const ARCHITECTURE: &str = "general.architecture";

/// Metadata entries in the order of the file.
///
/// The typed getters return `None` for an absent key and an error for one of another type or out of range, never a
/// default. Integers are accepted at every width and sign, and where a float is asked for.
#[derive(Clone, Debug, Default)]
pub struct Metadata {
    file: String,
    entries: Vec<(String, Value)>,
    index: HashMap<String, usize>,
}

impl Metadata {
    /// Metadata of `file` (a name for messages) from its entries.
    ///
    /// # Errors
    /// `DuplicateKey` when a key appears twice.
    pub fn from_entries(
        file: &str,
        entries: impl IntoIterator<Item = (String, Value)>,
    ) -> Result<Self, GgufError> {
        let mut metadata = Self { file: file.to_owned(), ..Self::default() };
        for (key, value) in entries {
            if metadata.index.insert(key.clone(), metadata.entries.len()).is_some() {
                return Err(metadata.error(GgufProblem::DuplicateKey { key }));
            }
            metadata.entries.push((key, value));
        }
        Ok(metadata)
    }

    /// Name of the file for messages.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Entries in the order of the file.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.entries.iter().map(|(key, value)| (key.as_str(), value))
    }

    /// The value of `key` as stored.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.index.get(key).map(|position| &self.entries[*position].1)
    }

    /// Architecture name, for example `llama`; the prefix of the model's keys.
    ///
    /// # Errors
    /// `MissingKey` or `WrongType`.
    pub fn architecture(&self) -> Result<&str, GgufError> {
        self.required(ARCHITECTURE, self.str(ARCHITECTURE)?)
    }

    /// Turn an absent value into an error: `meta.required(key, meta.usize(key)?)?`.
    ///
    /// # Errors
    /// `MissingKey` when `value` is `None`.
    pub fn required<T>(&self, key: &str, value: Option<T>) -> Result<T, GgufError> {
        value.ok_or_else(|| self.error(GgufProblem::MissingKey { key: key.to_owned() }))
    }

    /// A count or length from an integer of any width.
    ///
    /// # Errors
    /// `WrongType` for anything but an integer, `Range` for a negative or too large one.
    pub fn usize(&self, key: &str) -> Result<Option<usize>, GgufError> {
        self.integer(key)
    }

    /// A token id from an integer of any width.
    ///
    /// # Errors
    /// As for `usize`.
    pub fn u32(&self, key: &str) -> Result<Option<u32>, GgufError> {
        self.integer(key)
    }

    /// A finite number from a float or an integer of any width.
    ///
    /// # Errors
    /// `WrongType` for anything but a number, `Range` for one that is not finite.
    pub fn f64(&self, key: &str) -> Result<Option<f64>, GgufError> {
        let Some(value) = self.get(key) else {
            return Ok(None);
        };
        match value.as_float() {
            Some(number) if number.is_finite() => Ok(Some(number)),
            Some(_) => Err(self.out_of_range(key, "a finite number", value)),
            None => Err(self.wrong_type(key, "a number", value)),
        }
    }

    /// A flag.
    ///
    /// # Errors
    /// `WrongType` for anything but a bool.
    pub fn bool(&self, key: &str) -> Result<Option<bool>, GgufError> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(*flag)),
            Some(other) => Err(self.wrong_type(key, "a bool", other)),
        }
    }

    /// A text.
    ///
    /// # Errors
    /// `WrongType` for anything but a string.
    pub fn str(&self, key: &str) -> Result<Option<&str>, GgufError> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(self.wrong_type(key, "a string", other)),
        }
    }

    /// A list of texts, such as a vocabulary.
    ///
    /// # Errors
    /// `WrongType` for anything but an array of strings.
    pub fn strings(&self, key: &str) -> Result<Option<&[String]>, GgufError> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Array(Array::String(list))) => Ok(Some(list)),
            Some(other) => Err(self.wrong_type(key, "an array of strings", other)),
        }
    }

    /// A list of floats, such as vocabulary scores. Values may be infinite or NaN.
    ///
    /// # Errors
    /// `WrongType` for anything but an array of f32 or f64.
    pub fn f32s(&self, key: &str) -> Result<Option<Cow<'_, [f32]>>, GgufError> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Array(Array::F32(list))) => Ok(Some(Cow::Borrowed(list))),
            Some(Value::Array(Array::F64(list))) => Ok(Some(list.iter().map(|x| *x as f32).collect())),
            Some(other) => Err(self.wrong_type(key, "an array of floats", other)),
        }
    }

    /// A list of signed integers, such as token types, from integers of any width.
    ///
    /// # Errors
    /// `WrongType` for anything but an array of integers, `Range` for an element beyond i32.
    pub fn i32s(&self, key: &str) -> Result<Option<Cow<'_, [i32]>>, GgufError> {
        match self.get(key) {
            Some(Value::Array(Array::I32(list))) => Ok(Some(Cow::Borrowed(list))),
            _ => Ok(self.integers(key)?.map(Cow::Owned)),
        }
    }

    /// A list of counts, such as heads per layer, from integers of any width.
    ///
    /// # Errors
    /// `WrongType` for anything but an array of integers, `Range` for a negative or too large element.
    pub fn usizes(&self, key: &str) -> Result<Option<Vec<usize>>, GgufError> {
        self.integers(key)
    }

    fn integer<T: TryFrom<i128> + Bounds>(&self, key: &str) -> Result<Option<T>, GgufError> {
        let Some(value) = self.get(key) else {
            return Ok(None);
        };
        let number = value.as_integer().ok_or_else(|| self.wrong_type(key, "an integer", value))?;
        match T::try_from(number) {
            Ok(number) => Ok(Some(number)),
            Err(_) => Err(self.out_of_range(key, T::BOUNDS, value)),
        }
    }

    fn integers<T: TryFrom<i128> + Bounds>(&self, key: &str) -> Result<Option<Vec<T>>, GgufError> {
        let Some(value) = self.get(key) else {
            return Ok(None);
        };
        let wrong = || self.wrong_type(key, "an array of integers", value);
        let Value::Array(array) = value else {
            return Err(wrong());
        };
        let mut numbers = Vec::with_capacity(array.len());
        for element in (0..array.len()).map_while(|position| array.get(position)) {
            let number = element.as_integer().ok_or_else(wrong)?;
            let number = T::try_from(number).map_err(|_| self.out_of_range(key, T::BOUNDS, &element))?;
            numbers.push(number);
        }
        Ok(Some(numbers))
    }

    fn error(&self, problem: GgufProblem) -> GgufError {
        GgufError::new(&self.file, problem)
    }

    fn wrong_type(&self, key: &str, expected: &'static str, value: &Value) -> GgufError {
        self.error(GgufProblem::WrongType {
            key: key.to_owned(),
            expected,
            found_type: value.type_name(),
            found: value.to_string(),
        })
    }

    fn out_of_range(&self, key: &str, expected: &str, value: &Value) -> GgufError {
        self.error(GgufProblem::Range {
            key: key.to_owned(),
            expected: expected.to_owned(),
            found: value.to_string(),
        })
    }
}

/// The values of an integer type in words.
trait Bounds {
    const BOUNDS: &'static str;
}

impl Bounds for usize {
    const BOUNDS: &'static str = "a count of 0 or more that this machine can address";
}

impl Bounds for u32 {
    const BOUNDS: &'static str = "an integer from 0 to 4294967295";
}

impl Bounds for i32 {
    const BOUNDS: &'static str = "an integer of 32 bits";
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metadata(value: Value) -> Metadata {
        Metadata::from_entries("m.gguf", [("key".to_owned(), value)]).unwrap()
    }

    #[test]
    fn d010_every_integer_width_is_accepted() {
        let widths = [
            Value::U8(77),
            Value::I8(77),
            Value::U16(77),
            Value::I16(77),
            Value::U32(77),
            Value::I32(77),
            Value::U64(77),
            Value::I64(77),
        ];
        for value in widths {
            let meta = metadata(value);
            assert_eq!(meta.usize("key").unwrap(), Some(77));
            assert_eq!(meta.u32("key").unwrap(), Some(77));
            assert_eq!(meta.f64("key").unwrap(), Some(77.0));
        }
        for array in [Array::U8(vec![7]), Array::I64(vec![7]), Array::I32(vec![7])] {
            let meta = metadata(Value::Array(array));
            assert_eq!(meta.i32s("key").unwrap().as_deref(), Some(&[7][..]));
            assert_eq!(meta.usizes("key").unwrap(), Some(vec![7]));
        }
    }

    #[test]
    fn d010_nothing_falls_back_to_a_default() {
        let text = metadata(Value::I32(-5)).usize("key").unwrap_err().to_string();
        assert!(
            text.starts_with("`m.gguf`: key `key` must be a count") && text.ends_with("found `-5`"),
            "{text}"
        );
        let text = metadata(Value::F32(8192.0)).usize("key").unwrap_err().to_string();
        assert_eq!(text, "`m.gguf`: key `key` must be an integer, found f32 `8192`");
        assert!(metadata(Value::U64(1 << 40)).u32("key").is_err());
        assert!(metadata(Value::F64(f64::NAN)).f64("key").is_err());
        assert!(metadata(Value::String("1".into())).f64("key").is_err());
        assert!(metadata(Value::U8(1)).bool("key").is_err());
        assert!(metadata(Value::U8(1)).str("key").is_err());
        assert!(metadata(Value::U8(1)).strings("key").is_err());
        assert!(metadata(Value::U8(1)).f32s("key").is_err());
        assert!(metadata(Value::U8(1)).i32s("key").is_err());
        assert!(metadata(Value::Array(Array::U32(vec![u32::MAX]))).i32s("key").is_err());
        assert!(metadata(Value::Array(Array::I8(vec![-1]))).usizes("key").is_err());
        assert!(metadata(Value::Array(Array::Bool(vec![true]))).usizes("key").is_err());
    }

    #[test]
    fn absent_keys_are_none_and_can_be_required() {
        let meta = metadata(Value::Bool(true));
        assert_eq!(meta.bool("key").unwrap(), Some(true));
        assert!(meta.usize("x").unwrap().is_none() && meta.f64("x").unwrap().is_none());
        assert!(meta.str("x").unwrap().is_none() && meta.strings("x").unwrap().is_none());
        assert!(meta.f32s("x").unwrap().is_none() && meta.i32s("x").unwrap().is_none());
        let text = meta.architecture().unwrap_err().to_string();
        assert_eq!(text, "`m.gguf`: key `general.architecture` is missing");
        assert_eq!((meta.len(), meta.is_empty(), meta.iter().count()), (1, false, 1));
    }

    #[test]
    fn duplicate_keys_are_refused() {
        let entries = ["a", "a"].map(|key| (key.to_owned(), Value::U8(0)));
        let text = Metadata::from_entries("m.gguf", entries).unwrap_err().to_string();
        assert_eq!(text, "`m.gguf`: key `a` appears twice");
    }

    #[test]
    fn floats_are_borrowed_or_converted() {
        let meta = metadata(Value::Array(Array::F64(vec![0.5])));
        assert_eq!(meta.f32s("key").unwrap().as_deref(), Some(&[0.5f32][..]));
        let meta = metadata(Value::Array(Array::F32(vec![0.5])));
        assert!(matches!(meta.f32s("key"), Ok(Some(Cow::Borrowed(_)))));
    }
}
