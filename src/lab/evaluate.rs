//! Perplexity of a toy model within and beyond its trained length.

use candle_core::{Device, Tensor};

use super::error::LabError;
use super::model::Model;
use super::operations::negative_log_likelihoods;
use crate::rope::Scaling;

/// Tokens that go through a model together.
const TOKENS_AT_ONCE: usize = 4096;

/// Which tokens are scored: the same ones at every length, so that lengths differ in nothing but the text before them.
#[derive(Debug, Clone, PartialEq)]
pub struct Probe {
    /// Where windows end, in bytes of the held-out text.
    ends: Vec<usize>,
    /// Tokens scored at the end of each window.
    pub scored: usize,
    /// The longest window that fits before every end.
    pub longest: usize,
}

impl Probe {
    /// `windows` ends spread evenly over `text`, each with at least `longest` tokens before it.
    ///
    /// # Errors
    /// [`LabError::ShortText`] when the text is shorter than one window and the token after it.
    pub fn new(text: &[u8], windows: usize, scored: usize, longest: usize) -> Result<Self, LabError> {
        let first = longest + 1;
        let Some(room) = text.len().checked_sub(first) else {
            let found = text.len();
            return Err(LabError::ShortText {
                purpose: "measuring (a tenth of the text)",
                needed: first,
                found,
            });
        };
        let ends = (0..windows).map(|index| first + room * index / windows.max(1)).collect();
        Ok(Probe { ends, scored, longest })
    }

    /// Tokens scored in all.
    pub fn tokens_scored(&self) -> usize {
        self.ends.len() * self.scored
    }

    /// Mean negative log-likelihood in nats per token of the scored tokens, seen in windows of `length` tokens.
    ///
    /// # Errors
    /// [`LabError::Setting`] when `length` is below the scored tokens or above the longest window; as
    /// [`Model::positions`] and [`Model::logits`].
    pub fn nll(&self, model: &Model, text: &[u8], length: usize, scaling: &Scaling) -> Result<f64, LabError> {
        if !(self.scored..=self.longest).contains(&length) {
            let accepted = format!("between {} and {}", self.scored, self.longest);
            return Err(LabError::Setting { name: "length", accepted, found: length.to_string() });
        }
        let positions = model.positions(length, scaling)?;
        let mut total = 0.0;
        for ends in self.ends.chunks((TOKENS_AT_ONCE / length).max(1)) {
            let windows = ends.iter().map(|end| &text[end - length - 1..*end]);
            let ids = |bytes: &[u8]| bytes.iter().map(|b| u32::from(*b)).collect::<Vec<u32>>();
            let inputs: Vec<u32> = windows.clone().flat_map(|window| ids(&window[..length])).collect();
            let targets: Vec<u32> =
                windows.flat_map(|window| ids(&window[length + 1 - self.scored..])).collect();
            let inputs = Tensor::from_vec(inputs, (ends.len(), length), &Device::Cpu)?;
            let logits = model.logits(&inputs, &positions, self.scored)?;
            total += negative_log_likelihoods(&logits, &targets)?.iter().sum::<f64>();
        }
        Ok(total / self.tokens_scored() as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::encoding::Encoding;
    use crate::lab::settings::Settings;
    use crate::lab::text::{Text, generate};
    use crate::lab::train::State;

    fn model(encoding: Encoding) -> Model {
        let settings = Settings {
            encoding,
            layers: 1,
            width: 16,
            heads: 2,
            feed_forward: 16,
            context: 8,
            ..Settings::default()
        };
        State::start(&settings, &Text::generated(0, 100)).unwrap().model().unwrap()
    }

    #[test]
    fn every_length_scores_the_same_tokens() {
        let text = generate(3, 400).into_bytes();
        let probe = Probe::new(&text, 5, 4, 32).unwrap();
        assert_eq!(probe.tokens_scored(), 20);
        assert!(probe.ends.iter().all(|end| (33..=400).contains(end)));
        // Without heads that look around, only the token before counts: all lengths must agree.
        let settings =
            Settings { encoding: Encoding::None, layers: 1, width: 16, heads: 2, ..Settings::default() };
        let mut state = State::start(&settings, &Text::generated(0, 100)).unwrap();
        let output = 5;
        state.weights[output].fill(0.0);
        let model = state.model().unwrap();
        let at = |length| probe.nll(&model, &text, length, &Scaling::None).unwrap();
        assert!((at(4) - at(32)).abs() < 1e-5 && (at(9) - at(32)).abs() < 1e-5, "{} {}", at(4), at(32));
    }

    #[test]
    fn learned_positions_end_and_others_go_on() {
        let text = generate(3, 400).into_bytes();
        let probe = Probe::new(&text, 2, 4, 16).unwrap();
        let nll = |encoding, length| probe.nll(&model(encoding), &text, length, &Scaling::None);
        assert!(nll(Encoding::Learned, 8).unwrap().is_finite());
        let error = nll(Encoding::Learned, 9).unwrap_err();
        assert_eq!(error.to_string(), "learned positions end at 8: there is none for token 9");
        for encoding in [Encoding::None, Encoding::Sinusoidal, Encoding::Alibi, Encoding::T5, Encoding::Rope]
        {
            assert!(nll(encoding, 16).unwrap().is_finite());
        }
    }

    #[test]
    fn lengths_and_texts_are_checked() {
        let text = [b'a'; 20];
        let error = Probe::new(&text, 2, 4, 20).unwrap_err();
        assert!(matches!(error, LabError::ShortText { needed: 21, found: 20, .. }), "{error}");
        let probe = Probe::new(&text, 2, 4, 10).unwrap();
        for length in [3, 11] {
            let error = probe.nll(&model(Encoding::None), &text, length, &Scaling::None).unwrap_err();
            assert!(matches!(error, LabError::Setting { name: "length", .. }), "{error}");
        }
    }

    #[test]
    fn scaling_changes_rotations_only() {
        let text = generate(3, 400).into_bytes();
        let probe = Probe::new(&text, 2, 4, 16).unwrap();
        let scaling = Scaling::Linear { factor: 2.0 };
        for (encoding, changes) in
            [(Encoding::Rope, true), (Encoding::RopeAdjacent, true), (Encoding::Alibi, false)]
        {
            let nll = |scaling| probe.nll(&model(encoding), &text, 16, scaling).unwrap();
            assert_eq!(nll(&Scaling::None) != nll(&scaling), changes);
        }
    }
}
