//! Where weights come from: file formats, the Hub, tokenizer and chat template.

pub mod bytes;
pub mod chat_template;
pub mod gguf;
pub mod rope;
pub mod tensor;
pub mod tokenizer;

pub use tensor::{TensorType, TensorView, UnsupportedType};
