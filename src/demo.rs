//! The demonstration checkpoint inside the program: a small Llama trained on 256 tokens of context.
//!
//! Made by `fixtures/make_demo.py`; how it was trained and what it shows stands in `fixtures/demo/results.md`.

/// Name in reports and messages.
pub const NAME: &str = "built-in demo";

/// The checkpoint as a GGUF file.
pub const GGUF: &[u8] = include_bytes!("../fixtures/demo/demo.gguf");

/// A prompt in the style of its training text, longer than the trained context.
pub const PROMPT: &str = include_str!("../fixtures/demo/prompt.txt");
