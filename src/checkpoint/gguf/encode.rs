//! From metadata and tensors to the bytes of a GGUF file, version 3.

use super::value::{Array, Value};
use super::{DEFAULT_ALIGNMENT, MAGIC};
use crate::checkpoint::tensor::TensorType;

/// Version that is written.
const VERSION: u32 = 3;

/// One tensor to write.
#[derive(Clone, Debug, PartialEq)]
pub struct TensorData<'a> {
    /// Name
    pub name: &'a str,
    /// Element type
    pub dtype: TensorType,
    /// Row-major, outermost first
    pub shape: Vec<usize>,
    /// Blocks in file order
    pub bytes: &'a [u8],
}

/// Why a file cannot be written.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum EncodeError {
    /// Shape, type and bytes disagree
    #[error("tensor `{tensor}` of type {dtype} and shape `{shape:?}` cannot have `{size_bytes}` bytes")]
    Size {
        /// Name
        tensor: String,
        /// Element type
        dtype: TensorType,
        /// Outermost first
        shape: Vec<usize>,
        /// Bytes given
        size_bytes: usize,
    },
    /// The entry would contradict the layout that is written
    #[error("key `general.alignment` must be the u32 `{DEFAULT_ALIGNMENT}` or absent, found `{found}`")]
    Alignment {
        /// Value given
        found: String,
    },
}

/// A whole file in memory: header, metadata in the given order, records, padding, data.
///
/// # Errors
/// `Size` when bytes do not match the shape; `Alignment` for any other than the default.
pub fn encode(metadata: &[(String, Value)], tensors: &[TensorData<'_>]) -> Result<Vec<u8>, EncodeError> {
    let mut out = Vec::new();
    out.extend(MAGIC);
    out.extend(VERSION.to_le_bytes());
    out.extend((tensors.len() as u64).to_le_bytes());
    out.extend((metadata.len() as u64).to_le_bytes());
    for (key, value) in metadata {
        if key == "general.alignment" && *value != Value::U32(DEFAULT_ALIGNMENT as u32) {
            return Err(EncodeError::Alignment { found: value.to_string() });
        }
        put_string(&mut out, key);
        out.extend((value.kind() as u32).to_le_bytes());
        put_value(&mut out, value);
    }
    let mut offset = 0;
    for tensor in tensors {
        put_record(&mut out, tensor, offset)?;
        offset = (offset + tensor.bytes.len()).next_multiple_of(DEFAULT_ALIGNMENT);
    }
    for tensor in tensors {
        out.resize(out.len().next_multiple_of(DEFAULT_ALIGNMENT), 0);
        out.extend(tensor.bytes);
    }
    Ok(out)
}

fn put_record(out: &mut Vec<u8>, tensor: &TensorData<'_>, offset: usize) -> Result<(), EncodeError> {
    if tensor.dtype.size_bytes(&tensor.shape) != Some(tensor.bytes.len()) {
        return Err(EncodeError::Size {
            tensor: tensor.name.to_owned(),
            dtype: tensor.dtype,
            shape: tensor.shape.clone(),
            size_bytes: tensor.bytes.len(),
        });
    }
    put_string(out, tensor.name);
    out.extend((tensor.shape.len() as u32).to_le_bytes());
    for n in tensor.shape.iter().rev() {
        out.extend((*n as u64).to_le_bytes());
    }
    out.extend(tensor.dtype.ggml_id().to_le_bytes());
    out.extend((offset as u64).to_le_bytes());
    Ok(())
}

fn put_string(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text.as_bytes());
}

fn put_value(out: &mut Vec<u8>, value: &Value) {
    match value {
        Value::U8(n) => out.extend(n.to_le_bytes()),
        Value::I8(n) => out.extend(n.to_le_bytes()),
        Value::U16(n) => out.extend(n.to_le_bytes()),
        Value::I16(n) => out.extend(n.to_le_bytes()),
        Value::U32(n) => out.extend(n.to_le_bytes()),
        Value::I32(n) => out.extend(n.to_le_bytes()),
        Value::F32(x) => out.extend(x.to_le_bytes()),
        Value::Bool(flag) => out.push(u8::from(*flag)),
        Value::String(text) => put_string(out, text),
        Value::Array(array) => put_array(out, array),
        Value::U64(n) => out.extend(n.to_le_bytes()),
        Value::I64(n) => out.extend(n.to_le_bytes()),
        Value::F64(x) => out.extend(x.to_le_bytes()),
    }
}

fn put_array(out: &mut Vec<u8>, array: &Array) {
    out.extend((array.kind() as u32).to_le_bytes());
    out.extend((array.len() as u64).to_le_bytes());
    match array {
        Array::U8(list) => out.extend(list),
        Array::I8(list) => out.extend(list.iter().flat_map(|n| n.to_le_bytes())),
        Array::U16(list) => out.extend(list.iter().flat_map(|n| n.to_le_bytes())),
        Array::I16(list) => out.extend(list.iter().flat_map(|n| n.to_le_bytes())),
        Array::U32(list) => out.extend(list.iter().flat_map(|n| n.to_le_bytes())),
        Array::I32(list) => out.extend(list.iter().flat_map(|n| n.to_le_bytes())),
        Array::F32(list) => out.extend(list.iter().flat_map(|x| x.to_le_bytes())),
        Array::Bool(list) => out.extend(list.iter().map(|flag| u8::from(*flag))),
        Array::String(list) => list.iter().for_each(|text| put_string(out, text)),
        Array::Array(list) => list.iter().for_each(|inner| put_array(out, inner)),
        Array::U64(list) => out.extend(list.iter().flat_map(|n| n.to_le_bytes())),
        Array::I64(list) => out.extend(list.iter().flat_map(|n| n.to_le_bytes())),
        Array::F64(list) => out.extend(list.iter().flat_map(|x| x.to_le_bytes())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::gguf::GgufFile;

    #[test]
    fn write_then_read_is_the_identity() {
        let values = [
            Value::U8(1),
            Value::I8(-1),
            Value::U16(2),
            Value::I16(-2),
            Value::U32(3),
            Value::I32(-3),
            Value::F32(0.5),
            Value::Bool(true),
            Value::String("ünï".into()),
            Value::U64(4),
            Value::I64(-4),
            Value::F64(-0.25),
            Value::Array(Array::U8(vec![1])),
            Value::Array(Array::I8(vec![-1])),
            Value::Array(Array::U16(vec![1, 2])),
            Value::Array(Array::I16(vec![-1])),
            Value::Array(Array::U32(vec![3])),
            Value::Array(Array::I32(vec![-3])),
            Value::Array(Array::F32(vec![0.5])),
            Value::Array(Array::Bool(vec![true, false])),
            Value::Array(Array::String(vec![String::new(), "b".into()])),
            Value::Array(Array::Array(vec![Array::U8(vec![]), Array::Bool(vec![true])])),
            Value::Array(Array::U64(vec![4])),
            Value::Array(Array::I64(vec![-4])),
            Value::Array(Array::F64(vec![-0.25])),
        ];
        let entries: Vec<_> = (0..).zip(values).map(|(n, value)| (format!("key.{n}"), value)).collect();
        let bytes: Vec<u8> = (0..48).collect();
        let tensors = [
            TensorData { name: "a", dtype: TensorType::F32, shape: vec![2, 3], bytes: &bytes[..24] },
            TensorData { name: "b", dtype: TensorType::Q8_0, shape: vec![32], bytes: &bytes[..34] },
        ];
        let file = GgufFile::from_bytes(encode(&entries, &tensors).unwrap(), "made").unwrap();
        let read: Vec<_> = file.metadata().iter().map(|(k, v)| (k.to_owned(), v.clone())).collect();
        assert_eq!(read, entries);
        for tensor in tensors {
            let view = file.tensor(tensor.name).unwrap();
            assert_eq!((view.dtype, &view.shape, view.bytes), (tensor.dtype, &tensor.shape, tensor.bytes));
        }
    }

    #[test]
    fn inconsistent_input_is_refused() {
        let tensor = TensorData { name: "a", dtype: TensorType::F32, shape: vec![2], bytes: &[0; 7] };
        assert!(matches!(encode(&[], &[tensor]), Err(EncodeError::Size { size_bytes: 7, .. })));
        let entry = ("general.alignment".to_owned(), Value::U32(64));
        assert!(matches!(encode(&[entry], &[]), Err(EncodeError::Alignment { .. })));
    }
}
