//! Ctrl-C: the first one asks running work to stop and print what it has, the second one ends the program.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, LazyLock};

use anyhow::Context as _;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

use crate::model::cancel::Cancel;

/// Exit code of a run that was interrupted, as shells give it for the signal.
pub const EXIT_CODE: u8 = 130;

static INTERRUPTED: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);
static HANDLED: LazyLock<std::io::Result<()>> = LazyLock::new(|| {
    for signal in [SIGINT, SIGTERM] {
        // In this order: the second signal finds the flag that the first one set.
        flag::register_conditional_shutdown(signal, i32::from(EXIT_CODE), Arc::clone(&INTERRUPTED))?;
        flag::register(signal, Arc::clone(&INTERRUPTED))?;
    }
    Ok(())
});

/// Handles the signals from now on; what is returned tells whether one came.
///
/// # Errors
/// A system that does not let signals be handled.
pub fn cancel() -> anyhow::Result<Cancel> {
    if let Err(error) = &*HANDLED {
        return Err(anyhow::anyhow!("{error}")).context("cannot handle Ctrl-C");
    }
    Ok(Cancel::new(&INTERRUPTED))
}
