//! Sums over scored tokens, and the figures made of them.

/// Sums over windows; two add up to those of the pooled text.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Score {
    pub windows: usize,
    pub tokens_scored: usize,
    /// Bytes and words of text that the scored tokens stand for.
    pub bytes_scored: u64,
    pub words_scored: u64,
    /// Sum of the negative log-likelihoods in nats.
    nll_sum: f64,
    /// Sums of v, v nll, v², v² nll and v² nll², where v is the weight of a token: that of its window, shared out.
    weights: f64,
    weighted: f64,
    squared_weights: f64,
    squared_weighted: f64,
    squared_weighted_square: f64,
}

impl Score {
    /// Adds a window with the losses of its scored tokens in nats, and its weight in the mean (`Window::weight`).
    pub fn add_window(&mut self, nll: &[f32], weight: usize) {
        self.windows += 1;
        self.tokens_scored += nll.len();
        let v = weight as f64 / nll.len() as f64;
        for nll in nll.iter().copied().map(f64::from) {
            self.nll_sum += nll;
            self.weights += v;
            self.weighted += v * nll;
            self.squared_weights += v * v;
            self.squared_weighted += v * v * nll;
            self.squared_weighted_square += v * v * nll * nll;
        }
    }

    /// Adds the sums of another score.
    pub fn merge(&mut self, other: &Score) {
        self.windows += other.windows;
        self.tokens_scored += other.tokens_scored;
        self.bytes_scored += other.bytes_scored;
        self.words_scored += other.words_scored;
        self.nll_sum += other.nll_sum;
        self.weights += other.weights;
        self.weighted += other.weighted;
        self.squared_weights += other.squared_weights;
        self.squared_weighted += other.squared_weighted;
        self.squared_weighted_square += other.squared_weighted_square;
    }

    /// Mean negative log-likelihood in nats, weighted as the rule says.
    pub fn nll(&self) -> f64 {
        self.weighted / self.weights
    }

    /// exp of [`Score::nll`].
    pub fn ppl(&self) -> f64 {
        self.nll().exp()
    }

    /// Mean negative log-likelihood in nats with every scored token counting the same.
    pub fn token_nll(&self) -> f64 {
        self.nll_sum / self.tokens_scored as f64
    }

    /// Standard error of [`Score::nll`], tokens taken as independent; `None` below two tokens.
    pub fn nll_stderr(&self) -> Option<f64> {
        if self.tokens_scored < 2 {
            return None;
        }
        let n = self.tokens_scored as f64;
        let mean = self.nll();
        // The sum of v² (nll - mean)².
        let spread = self.squared_weighted_square - 2.0 * mean * self.squared_weighted
            + mean * mean * self.squared_weights;
        Some((spread.max(0.0) * n / (n - 1.0)).sqrt() / self.weights)
    }

    /// Standard error of [`Score::ppl`] to first order: ppl times that of its logarithm (as llama.cpp prints it).
    pub fn stderr(&self) -> Option<f64> {
        Some(self.ppl() * self.nll_stderr()?)
    }

    /// Bits per byte of text.
    pub fn bits_per_byte(&self) -> f64 {
        self.nll_sum / std::f64::consts::LN_2 / self.bytes_scored as f64
    }

    /// exp of the negative log-likelihood per byte of text.
    pub fn byte_ppl(&self) -> f64 {
        (self.nll_sum / self.bytes_scored as f64).exp()
    }

    /// exp of the negative log-likelihood per word; infinite when no word begins in the scored text.
    pub fn word_ppl(&self) -> f64 {
        (self.nll_sum / self.words_scored as f64).exp()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn score(windows: &[(&[f32], usize)]) -> Score {
        let mut score = Score::default();
        windows.iter().for_each(|(nll, weight)| score.add_window(nll, *weight));
        score
    }

    #[test]
    fn merged_scores_equal_the_score_of_all_windows() {
        let mut merged = score(&[(&[1.0, 2.0], 2)]);
        merged.merge(&score(&[(&[4.0], 1)]));
        assert_eq!(merged, score(&[(&[1.0, 2.0], 2), (&[4.0], 1)]));
        assert!((merged.nll() - 7.0 / 3.0).abs() < 1e-12);
    }

    #[test]
    fn the_standard_error_is_that_of_the_mean() {
        // Sample variance of 1, 2, 4 is 7/3; of the mean, 7/9.
        let stderr = score(&[(&[1.0, 2.0, 4.0], 3)]).nll_stderr().unwrap();
        assert!((stderr - (7.0f64 / 9.0).sqrt()).abs() < 1e-12);
        assert_eq!(score(&[(&[1.0], 1)]).nll_stderr(), None);
    }

    /// D085, D091: a mean of window means is kept apart from the mean over tokens.
    #[test]
    fn d085_d091_windows_are_weighted_as_the_rule_says() {
        let unweighted = score(&[(&[1.0, 2.0, 3.0], 1), (&[6.0], 1)]);
        assert!((unweighted.nll() - 4.0).abs() < 1e-12);
        assert!((unweighted.token_nll() - 3.0).abs() < 1e-12);
        let one_less = score(&[(&[1.0, 2.0, 3.0], 3), (&[6.0, 8.0], 1)]);
        assert!((one_less.nll() - (3.0 * 2.0 + 7.0) / 4.0).abs() < 1e-12);
    }
}
