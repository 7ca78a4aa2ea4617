//! The fast engine on CPUs: own kernels on plain slices, chosen at run time by instruction set.
//!
//! - [`isa`]: which instructions may be used.
//! - [`pool`]: the threads.
//! - [`aligned`]: buffers on cache lines.
//! - [`matrix`]: products with weights of every number format.

pub mod aligned;
pub mod isa;
pub mod matrix;
pub mod pool;
pub mod shared;
