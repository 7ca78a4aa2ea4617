//! The fast engine on CPUs: own kernels on plain slices, chosen at run time by instruction set.
//!
//! - [`isa`]: which instructions may be used.
//! - [`pool`]: the threads.
//! - [`aligned`]: buffers on cache lines.
//! - [`matrix`]: products with weights of every number format.

mod activation;
pub mod aligned;
mod attention;
mod cache;
mod engine;
pub mod isa;
mod lanes;
mod layer;
pub mod matrix;
mod norm;
pub mod pool;
mod rotate;
mod rows;
pub mod shared;

pub use engine::CpuEngine;
