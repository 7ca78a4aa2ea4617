//! Rotary position embedding as arithmetic: frequencies, tables of cos and sin, and a scalar rotation.
//!
//! Everything here is `f64` and slices. A [`RopeSpec`] says which rule is in force, [`frequencies`] turns it into one
//! angular frequency per rotated pair, and [`Table`] multiplies those out for a range of positions. One file holds one
//! method, with the formula and its source.
//!
//! Words used throughout: `inv_freq` is in radians per token, fastest first, one entry per rotated pair
//! (`rotary_dim / 2` entries); a wavelength is in tokens per turn; `length` is a number of tokens.

mod base;
mod divisors;
mod dynamic;
mod error;
mod linear;
mod llama3;
mod longrope;
mod ntk;
mod proportional;
mod rotate;
mod spec;
mod table;
mod yarn;

pub use base::{Frequencies, base_frequencies, turning_pairs, wavelengths};
pub use divisors::{Divisors, divisors};
pub use dynamic::{dynamic_base, dynamic_linear, dynamic_ntk, dynamic_yarn, stretch};
pub use error::RopeError;
pub use linear::linear;
pub use llama3::{Llama3, llama3};
pub use longrope::{LongRope, LongRopeSelect, longrope};
pub use ntk::{ntk, ntk_base};
pub use proportional::proportional;
pub use rotate::{rotate, rotate_f64};
pub use spec::{Pairing, RopeSpec, Scaling, effective_base, frequencies};
pub use table::Table;
pub use yarn::{Magnitude, Ramp, Yarn, correction_dims, ntk_by_parts, yarn};
