//! Measurements on a loaded model.

pub mod attention;
pub mod document;
pub mod gate;
pub mod needle;
pub mod perplexity;
pub mod speed;
pub mod statistics;
pub mod sweep;
pub mod windows;
