//! The fast engine on CPUs: own kernels on plain slices, chosen at run time by instruction set.
//!
//! - [`isa`]: which instructions may be used.
//! - [`pool`]: the threads.
//! - [`aligned`]: buffers on cache lines.
//! - [`matrix`]: products with weights of every number format.
//! - [`cache`], [`attention`]: keys and values, and what queries make of them.

mod activation;
pub mod aligned;
pub mod attention;
pub mod cache;
mod engine;
pub mod isa;
mod lanes;
mod layer;
pub mod matrix;
mod norm;
mod peak;
pub mod pool;
mod rotate;
mod rows;
pub mod shared;
mod sizes;

pub use engine::CpuEngine;
