//! Toy language models that differ in nothing but their position encoding, and the identities behind the encodings.
//!
//! - [`text`] — what they are trained on: a file, or a text from a seeded generator.
//! - [`settings`] — sizes of model and training, checked.
//! - [`encoding`] — the position encodings as numbers.
//! - [`model`] — the decoder and its weights.
//! - [`train`] — one training run, which can stop and go on at any step.
//! - [`checkpoint`] — that run as one safetensors file.
//! - [`evaluate`] — perplexity within and beyond the trained length.
//! - [`compare`] — every encoding over several seeds.
//! - [`check`] — the identities, each with its largest deviation.
//!
//! Everything is computed on the CPU in f32, by candle's matrix products and operations of our own with their gradients.

pub mod check;
pub mod checkpoint;
pub mod compare;
pub mod encoding;
mod error;
pub mod evaluate;
pub mod model;
mod operations;
pub mod optimizer;
mod random;
pub mod settings;
pub mod text;
pub mod train;

pub use self::error::LabError;
