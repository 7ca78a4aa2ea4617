//! Progress of long work on standard error.

use std::fmt::Write;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

/// Work shorter than this shows nothing.
const QUIET_FOR: Duration = Duration::from_secs(2);

/// A bar with an estimate of the time left, which appears once the work has taken two seconds.
pub struct Progress {
    bar: ProgressBar,
    started: Instant,
    shown: bool,
    quiet: bool,
}

impl Progress {
    /// `total`: tokens of work; `quiet`: never show anything.
    pub fn tokens(label: &str, total: usize, quiet: bool) -> Self {
        let bar = ProgressBar::with_draw_target(Some(total as u64), ProgressDrawTarget::hidden());
        let template = "{prefix} {wide_bar} {human_pos}/{human_len} tokens, {rate}/s, {eta} left {msg}";
        if let Ok(style) = ProgressStyle::with_template(template) {
            // The library prints four decimals.
            let rate = |state: &ProgressState, out: &mut dyn Write| {
                write!(out, "{:.0}", state.per_sec()).ok();
            };
            bar.set_style(style.with_key("rate", rate));
        }
        bar.set_prefix(label.to_string());
        Self { bar, started: Instant::now(), shown: false, quiet }
    }

    /// `total_s`: seconds of work, as they were forecast; [`Progress::update`] takes thousandths of them.
    pub fn seconds(label: &str, total_s: f64, quiet: bool) -> Self {
        let progress = Self::tokens(label, (total_s * 1000.0) as usize, quiet);
        let template = "{prefix} {wide_bar} {percent} %, {eta} left {msg}";
        if let Ok(style) = ProgressStyle::with_template(template) {
            progress.bar.set_style(style);
        }
        progress
    }

    /// `done`: tokens finished so far; `message`: what is known so far.
    pub fn update(&mut self, done: usize, message: String) {
        if !self.shown && !self.quiet && self.started.elapsed() > QUIET_FOR {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
            self.shown = true;
        }
        self.bar.set_position(done as u64);
        self.bar.set_message(message);
    }

    /// A line above the bar, once it is shown.
    pub fn say(&self, line: &str) {
        if self.shown {
            self.bar.suspend(|| eprintln!("{line}"));
        }
    }

    pub fn finish(self) {
        self.bar.finish_and_clear();
    }
}
