//! Sweeps: methods x factors x contexts x measures, cell by cell.
//!
//! A cell is named by everything that its result depends on ([`record::key`]), so a sweep that was killed resumes, a new column
//! costs only itself, and parts that several machines measured fit together.

pub mod cell;
pub mod forecast;
pub mod identity;
mod measures;
mod needle_cell;
pub mod record;
pub mod run;
pub mod store;

pub use cell::{CellId, Measure, RopeChoice, Shard};
pub use measures::{Detail, MemoryCell, PplCell, SpeedCell, Texts};
pub use needle_cell::{NeedleCell, NeedleSettings};
pub use record::{Record, Status};
pub use run::{Cell, Measurement, Settings, Sweep, run};
pub use store::{Store, StoreError};
