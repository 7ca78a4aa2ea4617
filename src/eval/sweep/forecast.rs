//! How long a sweep will take, told before it starts.
//!
//! Reading a token costs a fixed time and one that grows with the tokens before it (attention). Both are measured by one
//! short pass; the probability of the next token, over the whole vocabulary, and writing tokens one by one are measured in it.

use std::time::Instant;

use crate::model::{LanguageModel, ModelError, Want};

/// What a cell will put through the model.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Work {
    pub passes: Vec<Pass>,
}

/// One pass over a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pass {
    /// Tokens already in the cache.
    pub start: usize,
    /// Tokens read together.
    pub tokens: usize,
    /// Those of them whose successor gets a probability.
    pub scored: usize,
    /// Tokens written one by one behind them.
    pub decoded: usize,
}

impl Work {
    pub fn tokens(&self) -> usize {
        self.passes.iter().map(|pass| pass.tokens + pass.decoded).sum()
    }
}

/// Measured times.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Speeds {
    /// Seconds to read a token with nothing before it.
    pub token_s: f64,
    /// Seconds more for every token before it.
    pub attention_s: f64,
    /// Seconds more for a probability.
    pub score_s: f64,
    /// Seconds to write a token with nothing before it, and more for every token before it.
    pub decode_s: f64,
    pub decode_attention_s: f64,
}

impl Speeds {
    /// Seconds for `work`.
    pub fn forecast_s(&self, work: &Work) -> f64 {
        work.passes.iter().map(|pass| self.pass_s(pass)).sum()
    }

    fn pass_s(&self, pass: &Pass) -> f64 {
        let read = pass.tokens as f64;
        let before = pass.start as f64 + read / 2.0;
        let written = pass.decoded as f64;
        let before_written = pass.start as f64 + read + written / 2.0;
        read * (self.token_s + self.attention_s * before)
            + pass.scored as f64 * self.score_s
            + written * (self.decode_s + self.decode_attention_s * before_written)
    }
}

/// Tokens written at one place to time them.
const WRITTEN: usize = 4;
/// Shares of all the work, and tokens, that the calibration may take.
const SHARE: usize = 12;
const MOST_TOKENS: usize = 4096;
/// Fewer pieces than this show no growth.
const PIECES: usize = 4;
const MOST_PIECE: usize = 512;

/// Times one short pass on `model`, for work of `total_tokens` in passes of at most `longest` tokens.
///
/// # Errors
/// A failing model.
pub fn calibrate(
    model: &dyn LanguageModel,
    longest: usize,
    total_tokens: usize,
) -> Result<Speeds, ModelError> {
    let tokens = (total_tokens / SHARE).clamp(PIECES, MOST_TOKENS).min(longest.max(PIECES));
    let piece = (tokens / PIECES).clamp(1, MOST_PIECE);
    let pieces = tokens / piece;
    // One more piece with probabilities, one to warm up, and what is written at both ends.
    let planned = (pieces + 2) * piece + 2 * WRITTEN;
    let ids = crate::eval::speed::sample_ids(planned, model.config().vocab_size);
    let mut timer = Timer { session: model.session(planned)?, ids: &ids };
    // Not timed: it pays for what is allocated once.
    timer.read(piece, Want::Nothing)?;
    let written_first = timer.write()?;
    let mut reading = Vec::with_capacity(pieces);
    for _ in 0..pieces {
        reading.push(timer.read(piece, Want::Nothing)?);
    }
    let line = Line::through(&reading);
    let start = timer.session.len();
    let targets = ids[start + 1..=start + piece].to_vec();
    let scored = timer.read(piece, Want::LogProbs { first_row: 0, targets: &targets })?;
    let written_last = timer.write()?;
    let writing = Line::through(&[written_first, written_last]);
    Ok(Speeds {
        token_s: line.at_zero,
        attention_s: line.slope,
        score_s: (scored.token_s - line.at(scored.before)).max(0.0),
        decode_s: writing.at_zero,
        decode_attention_s: writing.slope,
    })
}

/// Seconds a token with so many tokens before it.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Sample {
    before: f64,
    token_s: f64,
}

struct Timer<'a> {
    session: Box<dyn crate::model::Session + 'a>,
    ids: &'a [u32],
}

impl Timer<'_> {
    fn read(&mut self, tokens: usize, want: Want<'_>) -> Result<Sample, ModelError> {
        let start = self.session.len();
        let started = Instant::now();
        self.session.extend(&self.ids[start..start + tokens], want, &mut |_| ())?;
        let token_s = started.elapsed().as_secs_f64() / tokens as f64;
        Ok(Sample { before: start as f64 + tokens as f64 / 2.0, token_s })
    }

    fn write(&mut self) -> Result<Sample, ModelError> {
        let start = self.session.len();
        let mut fastest = f64::INFINITY;
        for _ in 0..WRITTEN {
            fastest = fastest.min(self.read(1, Want::LastLogits)?.token_s);
        }
        Ok(Sample { before: start as f64 + WRITTEN as f64 / 2.0, token_s: fastest })
    }
}

/// A straight line of time over tokens before.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Line {
    at_zero: f64,
    slope: f64,
}

impl Line {
    /// Least squares. More tokens before never make a token cheaper, so a slope below 0 is noise, and the mean is taken; the same
    /// for a start below 0.
    fn through(samples: &[Sample]) -> Self {
        let n = samples.len() as f64;
        let mean_before = samples.iter().map(|sample| sample.before).sum::<f64>() / n;
        let mean_s = samples.iter().map(|sample| sample.token_s).sum::<f64>() / n;
        let spread: f64 = samples.iter().map(|sample| (sample.before - mean_before).powi(2)).sum();
        let joint: f64 = samples.iter().map(|s| (s.before - mean_before) * (s.token_s - mean_s)).sum();
        let slope = if spread > 0.0 { joint / spread } else { 0.0 };
        let at_zero = mean_s - slope * mean_before;
        if slope < 0.0 || at_zero < 0.0 {
            Self { at_zero: mean_s, slope: 0.0 }
        } else {
            Self { at_zero, slope }
        }
    }

    fn at(self, before: f64) -> f64 {
        self.at_zero + self.slope * before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(found: f64, expected: f64) {
        assert!((found - expected).abs() < 1e-9, "{found} {expected}");
    }

    #[test]
    fn a_line_is_found_and_noise_never_makes_it_fall() {
        let sample = |before: f64, token_s: f64| Sample { before, token_s };
        let line = Line::through(&[sample(100.0, 1.1), sample(200.0, 1.2), sample(300.0, 1.3)]);
        close(line.at_zero, 1.0);
        close(line.slope, 0.001);
        close(line.at(400.0), 1.4);
        for falling in [[sample(1.0, 2.0), sample(2.0, 1.0)], [sample(10.0, 0.1), sample(11.0, 1.9)]] {
            let line = Line::through(&falling);
            close(line.slope, 0.0);
            assert!(line.at_zero > 0.0);
        }
        close(Line::through(&[sample(5.0, 3.0)]).at_zero, 3.0);
    }

    /// The closed form equals a sum token by token.
    #[test]
    fn a_pass_costs_the_sum_of_its_tokens() {
        let speeds = Speeds {
            token_s: 0.5,
            attention_s: 0.25,
            score_s: 2.0,
            decode_s: 3.0,
            decode_attention_s: 0.125,
        };
        let pass = Pass { start: 7, tokens: 100, scored: 30, decoded: 10 };
        let read: f64 = (0..100).map(|i| 0.5 + 0.25 * (7.0 + f64::from(i) + 0.5)).sum();
        let written: f64 = (0..10).map(|i| 3.0 + 0.125 * (107.0 + f64::from(i) + 0.5)).sum();
        close(speeds.forecast_s(&Work { passes: vec![pass] }), read + written + 60.0);
        assert_eq!(Work { passes: vec![pass, pass] }.tokens(), 220);
        close(speeds.forecast_s(&Work::default()), 0.0);
    }
}
