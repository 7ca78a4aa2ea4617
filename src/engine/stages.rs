//! Where the time of forward passes goes: matrix products, attention, head.

use std::cell::Cell;
use std::ops::Sub;
use std::time::Instant;

use crate::named::Named;

/// A part of the work; what belongs to none (norms, rotation, activations) is not listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Products with the weights of the layers.
    Matrices,
    /// Scores, softmax and mix, with the keys and values of the cache.
    Attention,
    /// Product with the weights of the head, to logits or log-probabilities.
    Head,
}

impl Named for Stage {
    const WHAT: &'static str = "stage";
    const ALL: &'static [Self] = &[Self::Matrices, Self::Attention, Self::Head];

    fn name(self) -> &'static str {
        match self {
            Stage::Matrices => "matrices",
            Stage::Attention => "attention",
            Stage::Head => "head",
        }
    }
}

/// Time and work of one stage.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct StageWork {
    pub seconds: f64,
    /// Multiplications and additions that the result needs; masked scores are not counted.
    pub operations: f64,
    /// Bytes of weights and of cached keys and values, each counted once a call.
    pub bytes: f64,
}

impl Sub for StageWork {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        Self {
            seconds: self.seconds - earlier.seconds,
            operations: self.operations - earlier.operations,
            bytes: self.bytes - earlier.bytes,
        }
    }
}

/// All stages.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct StageTimes([StageWork; 3]);

impl StageTimes {
    pub fn of(&self, stage: Stage) -> StageWork {
        self.0[stage as usize]
    }

    /// Seconds of all stages together.
    pub fn seconds(&self) -> f64 {
        self.0.iter().map(|work| work.seconds).sum()
    }
}

impl Sub for StageTimes {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        Self(std::array::from_fn(|stage| self.0[stage] - earlier.0[stage]))
    }
}

/// What a machine can do at most.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Peaks {
    /// 16-bit multiplications and additions of all threads; `None` where no instruction does them.
    pub operations_per_s: Option<f64>,
    /// Bytes read from memory by all threads.
    pub bytes_per_s: f64,
}

/// Adds up what an engine does.
#[derive(Debug, Default)]
pub struct StageClock(Cell<StageTimes>);

impl StageClock {
    /// Runs `f` as work of `stage`.
    pub fn time<T>(&self, stage: Stage, operations: f64, bytes: f64, f: impl FnOnce() -> T) -> T {
        let started = Instant::now();
        let result = f();
        let seconds = started.elapsed().as_secs_f64();
        let mut times = self.0.get();
        let work = &mut times.0[stage as usize];
        work.seconds += seconds;
        work.operations += operations;
        work.bytes += bytes;
        self.0.set(times);
        result
    }

    /// All since the engine was made.
    pub fn read(&self) -> StageTimes {
        self.0.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_adds_up_by_stage() {
        let clock = StageClock::default();
        assert_eq!(clock.time(Stage::Head, 10.0, 4.0, || 7), 7);
        let before = clock.read();
        clock.time(Stage::Head, 5.0, 2.0, || ());
        clock.time(Stage::Attention, 1.0, 0.0, || std::thread::sleep(std::time::Duration::from_millis(2)));
        let since = clock.read() - before;
        assert_eq!((since.of(Stage::Head).operations, since.of(Stage::Head).bytes), (5.0, 2.0));
        assert_eq!(since.of(Stage::Matrices), StageWork::default());
        assert!(since.of(Stage::Attention).seconds >= 0.002);
        assert!(since.seconds() >= since.of(Stage::Attention).seconds);
        assert_eq!(clock.read().of(Stage::Head).operations, 15.0);
    }
}
