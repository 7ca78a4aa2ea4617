//! How sure a mean is: pure functions over numbers that somebody else measured.

pub mod bootstrap;
pub mod random;
