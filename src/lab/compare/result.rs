//! What a comparison found.

use super::{CompareRequest, METHODS};
use crate::lab::encoding::Encoding;
use crate::lab::evaluate::Probe;

/// One value per seed.
#[derive(Debug, Clone, PartialEq)]
pub struct Spread(pub Vec<f64>);

impl Spread {
    pub fn mean(&self) -> f64 {
        self.0.iter().sum::<f64>() / self.0.len() as f64
    }

    /// Standard deviation of the sample; `None` below two seeds.
    pub fn deviation(&self) -> Option<f64> {
        let (mean, count) = (self.mean(), self.0.len());
        let squares: f64 = self.0.iter().map(|v| (v - mean) * (v - mean)).sum();
        (count > 1).then(|| (squares / (count - 1) as f64).sqrt())
    }
}

/// Perplexity at one length, or why there is none.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    Measured(Spread),
    Refused(String),
}

/// One encoding.
#[derive(Debug, Clone, PartialEq)]
pub struct EncodingResult {
    pub encoding: Encoding,
    /// Values in all weights.
    pub weights: usize,
    /// Mean loss of the last twentieth of the steps, nats per token.
    pub loss: Spread,
    /// One for each length of the request.
    pub perplexity: Vec<Outcome>,
}

/// One scaling of a rotary encoding.
#[derive(Debug, Clone, PartialEq)]
pub struct ScaledResult {
    pub encoding: Encoding,
    pub method: &'static str,
    pub factor: f64,
    /// Factor times the trained length.
    pub length: usize,
    /// Perplexity at `length`, plain.
    pub plain: Spread,
    /// Perplexity at `length`, scaled.
    pub scaled: Spread,
    /// Perplexity at the trained length, scaled: the price within it.
    pub within: Spread,
}

/// All that was found; encodings of which no seed was finished are left out.
#[derive(Debug, Clone, PartialEq)]
pub struct Comparison {
    pub encodings: Vec<EncodingResult>,
    pub scaled: Vec<ScaledResult>,
    /// Runs finished, of all encodings and seeds.
    pub finished: usize,
    /// Tokens scored at each length for each seed.
    pub tokens_scored: usize,
}

/// What one finished run yields.
pub(super) struct Measured {
    pub weights: usize,
    pub loss: f64,
    pub by_length: Vec<Result<f64, String>>,
    /// Plain, scaled and within, for each factor and method in order.
    pub scaled: Vec<[f64; 3]>,
}

/// Puts the seeds of each encoding together.
pub(super) fn gather(request: &CompareRequest, found: &[Option<Measured>], probe: &Probe) -> Comparison {
    let mut comparison = Comparison {
        encodings: Vec::new(),
        scaled: Vec::new(),
        finished: found.iter().flatten().count(),
        tokens_scored: probe.tokens_scored(),
    };
    let count = request.encodings.len();
    for (index, &encoding) in request.encodings.iter().enumerate() {
        let runs: Vec<&Measured> = found.iter().skip(index).step_by(count).flatten().collect();
        let Some(first) = runs.first() else { continue };
        let outcome = |length: usize| match &first.by_length[length] {
            Err(reason) => Outcome::Refused(reason.clone()),
            Ok(_) => {
                let values = runs.iter().filter_map(|run| run.by_length[length].as_ref().ok().copied());
                Outcome::Measured(Spread(values.collect()))
            }
        };
        comparison.encodings.push(EncodingResult {
            encoding,
            weights: first.weights,
            loss: Spread(runs.iter().map(|run| run.loss).collect()),
            perplexity: (0..request.lengths.len()).map(outcome).collect(),
        });
        let kinds = request.factors.iter().flat_map(|factor| METHODS.map(|method| (*factor, method)));
        for (kind, (factor, method)) in kinds.enumerate().take(first.scaled.len()) {
            let spread = |which: usize| Spread(runs.iter().map(|run| run.scaled[kind][which]).collect());
            comparison.scaled.push(ScaledResult {
                encoding,
                method,
                factor,
                length: request.stretched(factor),
                plain: spread(0),
                scaled: spread(1),
                within: spread(2),
            });
        }
    }
    comparison
}
