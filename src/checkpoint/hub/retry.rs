//! When to ask again, and how long to wait before.

use std::time::Duration;

use super::Limits;
use super::failure::Failure;
use super::progress::Bar;

/// Longest pause between two attempts, also when the server asks for more.
const MAX_PAUSE: Duration = Duration::from_secs(60);

/// Counts failed attempts at one thing.
pub(super) struct Retry<'a> {
    limits: &'a Limits,
    bar: &'a Bar,
    /// What is attempted, for messages
    subject: &'a str,
    failed: u32,
}

impl<'a> Retry<'a> {
    pub(super) fn new(limits: &'a Limits, bar: &'a Bar, subject: &'a str) -> Self {
        Self { limits, bar, subject, failed: 0 }
    }

    /// Attempts before this one count no more, because it got further.
    pub(super) fn got_further(&mut self) {
        self.failed = 0;
    }

    /// Say what failed and wait, or give the failure back when another attempt is of no use or was one too many.
    pub(super) fn pause(&mut self, failure: Failure, answered: bool) -> Result<(), Failure> {
        if self.failed >= self.limits.retries || !failure.is_passing(answered) {
            return Err(failure);
        }
        let pause = self.length(&failure);
        self.failed += 1;
        self.bar.note(&format!(
            "{}: {}; trying again in {pause:?} ({} of {})",
            self.subject,
            failure.reason(),
            self.failed,
            self.limits.retries
        ));
        std::thread::sleep(pause);
        Ok(())
    }

    /// Twice as long as before each time, or as long as the server asks for.
    fn length(&self, failure: &Failure) -> Duration {
        let own = self.limits.backoff.saturating_mul(1 << self.failed.min(16));
        match failure {
            Failure::Status { retry_after: Some(asked), .. } => own.max(*asked),
            _ => own,
        }
        .min(MAX_PAUSE)
    }

    /// Ask until it works or there is no use in asking.
    pub(super) fn until_done<T>(
        mut self,
        answered: impl Fn() -> bool,
        ask: impl Fn() -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        loop {
            match ask() {
                Ok(done) => return Ok(done),
                Err(failure) => self.pause(failure, answered())?,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    fn cut() -> Failure {
        Failure::Cut("cut".to_owned())
    }

    #[test]
    fn attempts_are_counted_and_progress_forgives() {
        let limits = Limits { retries: 2, backoff: Duration::ZERO, ..Limits::default() };
        let bar = Bar::new(true);
        let mut retry = Retry::new(&limits, &bar, "x");
        for _ in 0..2 {
            assert!(retry.pause(cut(), true).is_ok());
        }
        assert!(retry.pause(cut(), true).is_err());
        retry.got_further();
        assert!(retry.pause(cut(), true).is_ok());
        assert!(retry.pause(Failure::Refused(String::new()), true).is_err());
        let asked = Cell::new(0);
        let ask = || {
            asked.set(asked.get() + 1);
            if asked.get() < 3 { Err(cut()) } else { Ok(asked.get()) }
        };
        assert_eq!(Retry::new(&limits, &bar, "x").until_done(|| true, ask).unwrap(), 3);
    }

    #[test]
    fn pauses_double_and_stay_bounded() {
        let limits = Limits::default();
        let bar = Bar::new(true);
        let mut retry = Retry::new(&limits, &bar, "x");
        let mut length = |failed, failure: &Failure| {
            retry.failed = failed;
            retry.length(failure).as_secs()
        };
        assert_eq!([length(0, &cut()), length(3, &cut()), length(40, &cut())], [1, 8, 60]);
        let asked = |seconds| Failure::Status {
            status: 429,
            origin: String::new(),
            at_home: true,
            retry_after: Some(Duration::from_secs(seconds)),
        };
        assert_eq!([length(0, &asked(7)), length(0, &asked(u64::MAX))], [7, 60]);
    }
}
