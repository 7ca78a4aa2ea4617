//! What the user sees of a download, on stderr.

use indicatif::{HumanBytes, ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Name, share, sizes, speed and time to go.
const TEMPLATE: &str = "{msg} [{bar:30}] {bytes}/{total_bytes} {bytes_per_sec} ETA {eta}";

/// The bar of one file, and the messages beside it. Quiet: neither.
pub(super) struct Bar {
    bar: ProgressBar,
    quiet: bool,
}

impl Bar {
    pub(super) fn new(quiet: bool) -> Self {
        Self { bar: ProgressBar::hidden(), quiet }
    }

    /// Show a file of `size_bytes`, of which `have_bytes` are there already.
    pub(super) fn start(&self, name: &str, size_bytes: u64, have_bytes: u64) {
        if self.quiet {
            return;
        }
        self.bar.set_length(size_bytes);
        if let Ok(style) = ProgressStyle::with_template(TEMPLATE) {
            self.bar.set_style(style);
        }
        self.bar.set_draw_target(ProgressDrawTarget::stderr());
        self.set(have_bytes);
        self.bar.set_message(name.to_owned());
        if self.bar.is_hidden() {
            let rest = HumanBytes(size_bytes.saturating_sub(have_bytes));
            self.note(&format!("fetching {name}, {rest} of {}", HumanBytes(size_bytes)));
        }
    }

    /// The file has this many bytes, which did not come just now: they tell nothing about the speed.
    pub(super) fn set(&self, have_bytes: u64) {
        self.bar.set_position(have_bytes);
        self.bar.reset_eta();
    }

    pub(super) fn advance(&self, bytes: usize) {
        self.bar.inc(bytes as u64);
    }

    pub(super) fn finish(&self) {
        self.bar.finish();
    }

    /// Say something without disturbing the bar.
    pub(super) fn note(&self, text: &str) {
        if !self.quiet {
            self.bar.suspend(|| eprintln!("{text}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_template_is_valid_and_the_position_is_kept() {
        assert!(ProgressStyle::with_template(TEMPLATE).is_ok());
        let bar = Bar::new(true);
        bar.start("file", 7, 3);
        bar.set(3);
        bar.advance(4);
        bar.finish();
        assert_eq!(bar.bar.position(), 7);
    }
}
