//! The progress bar of a download, on stderr.

use std::cell::Cell;
use std::rc::Rc;

use hf_hub::api::Progress;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Name, share, sizes, speed and time to go.
const TEMPLATE: &str = "{msg} [{bar:30}] {bytes}/{total_bytes} {bytes_per_sec} ETA {eta}";

/// Draws a bar, unless quiet, and remembers the announced size.
pub(super) struct Bar {
    bar: ProgressBar,
    size_bytes: Rc<Cell<u64>>,
}

impl Bar {
    /// A bar, and the cell that gets the size of the file once the server has told it.
    pub(super) fn new(quiet: bool) -> (Self, Rc<Cell<u64>>) {
        let target = if quiet { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
        let bar = ProgressBar::with_draw_target(None, target);
        if let Ok(style) = ProgressStyle::with_template(TEMPLATE) {
            bar.set_style(style);
        }
        let size_bytes = Rc::new(Cell::new(0));
        (Self { bar, size_bytes: Rc::clone(&size_bytes) }, size_bytes)
    }
}

impl Progress for Bar {
    fn init(&mut self, size: usize, filename: &str) {
        self.size_bytes.set(size as u64);
        self.bar.set_length(size as u64);
        self.bar.set_position(0);
        self.bar.set_message(filename.to_owned());
    }

    fn update(&mut self, size: usize) {
        self.bar.inc(size as u64);
    }

    fn finish(&mut self) {
        self.bar.finish();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_announced_size_is_kept() {
        assert!(ProgressStyle::with_template(TEMPLATE).is_ok());
        let (mut bar, size) = Bar::new(true);
        bar.init(7, "file");
        bar.update(7);
        bar.finish();
        assert_eq!((size.get(), bar.bar.position()), (7, 7));
    }
}
