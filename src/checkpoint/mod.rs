//! Where weights come from: file formats, the Hub, tokenizer and chat template.

pub mod bytes;
pub mod chat_template;
pub mod config;
pub mod error;
pub mod gguf;
pub mod hub;
pub mod language;
pub mod open;
pub mod reference;
pub mod rope;
pub mod safetensors;
pub mod sidecar;
mod statistics;
pub mod tensor;
pub mod tokenizer;

pub use config::{ConfigError, HfConfig};
pub use error::CheckpointError;
pub use hub::HubOptions;
pub use language::LanguageError;
pub use open::{Checkpoint, Content, OpenOptions};
pub use reference::{ModelRef, ReferenceError};
pub use tensor::{TensorType, TensorView, UnsupportedType};
