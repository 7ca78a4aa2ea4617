//! Stretch the context window of Llama- and Qwen-family language models.
//!
//! `ropex` loads a GGUF or safetensors checkpoint, replaces its rotary position embedding (RoPE) by linear, NTK, YaRN,
//! LongRoPE or another published rule, and generates or measures perplexity with it.
//!
//! - [`rope`] — the mathematics, in f64 and without tensors.
//! - [`checkpoint`] — where weights, settings, tokenizers and templates come from.
//! - [`engine`] — who computes.
//! - [`model`] — the one decoder, its cache and generation.
//! - [`eval`] — measurements.
//! - [`plot`] — figures as SVG and PNG, and the page of a report.
//! - [`lab`] — toy models that compare position encodings.
//! - [`cli`] — the commands of the `ropex` program.

pub mod checkpoint;
pub mod cli;
pub mod demo;
pub mod engine;
pub mod eval;
pub mod lab;
pub mod model;
pub mod named;
pub mod plot;
pub mod rope;
