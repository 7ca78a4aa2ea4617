//! A request to stop, set from outside while a model runs.

use std::sync::atomic::{AtomicBool, Ordering};

/// Looked at between chunks of tokens; once set, work ends with [`super::ModelError::Interrupted`].
#[derive(Debug, Clone, Copy)]
pub struct Cancel(&'static AtomicBool);

impl Cancel {
    pub fn new(flag: &'static AtomicBool) -> Self {
        Self(flag)
    }

    pub fn is_set(self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
