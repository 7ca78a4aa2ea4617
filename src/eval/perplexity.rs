//! Perplexity of texts under a published rule.

use super::document::Document;
use super::windows::{BosPlacement, Rule, Window, WindowError, windows};
use crate::model::{LanguageModel, ModelError, Want};

/// Why a perplexity could not be measured.
#[derive(Debug, thiserror::Error)]
pub enum PerplexityError {
    #[error("cannot score `{file}`")]
    Windows { file: String, source: WindowError },
    #[error("cannot score window {window} of `{file}`")]
    Model { file: String, window: usize, source: Box<ModelError> },
    #[error("no text to score")]
    NoText,
}

/// How texts are cut and scored.
#[derive(Debug, Clone, PartialEq)]
pub struct PerplexityRequest {
    pub rule: Rule,
    /// Tokens of a window.
    pub context: usize,
    /// Tokens from the start of a window to the start of the next; only [`Rule::Strided`] uses it.
    pub stride: usize,
    pub bos: BosPlacement,
    /// The beginning-of-sequence token; required unless `bos` is [`BosPlacement::Never`].
    pub bos_token: Option<u32>,
    /// Score at most this many windows of each text.
    pub max_windows: Option<usize>,
}

/// Sums over scored tokens; two add up to those of the pooled text.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Score {
    pub windows: usize,
    pub tokens_scored: usize,
    /// Bytes and words of text that the scored tokens stand for.
    pub bytes_scored: u64,
    pub words_scored: u64,
    /// Sum of the negative log-likelihoods in nats, and of their squares.
    nll_sum: f64,
    nll_square_sum: f64,
}

impl Score {
    fn add_token(&mut self, nll: f64) {
        self.tokens_scored += 1;
        self.nll_sum += nll;
        self.nll_square_sum += nll * nll;
    }

    fn merge(&mut self, other: &Score) {
        self.windows += other.windows;
        self.tokens_scored += other.tokens_scored;
        self.bytes_scored += other.bytes_scored;
        self.words_scored += other.words_scored;
        self.nll_sum += other.nll_sum;
        self.nll_square_sum += other.nll_square_sum;
    }

    /// Mean negative log-likelihood of a token in nats.
    pub fn nll(&self) -> f64 {
        self.nll_sum / self.tokens_scored as f64
    }

    /// exp of the mean over tokens.
    pub fn ppl(&self) -> f64 {
        self.nll().exp()
    }

    /// Standard error of [`Score::nll`], tokens taken as independent; `None` below two tokens.
    pub fn nll_stderr(&self) -> Option<f64> {
        if self.tokens_scored < 2 {
            return None;
        }
        let n = self.tokens_scored as f64;
        let mean = self.nll();
        let variance = (self.nll_square_sum / n - mean * mean).max(0.0);
        Some((variance / (n - 1.0)).sqrt())
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

/// One row per text, and all of them pooled.
#[derive(Debug, Clone, PartialEq)]
pub struct Perplexity {
    pub per_file: Vec<(String, Score)>,
    pub pooled: Score,
}

/// Receives progress: tokens that went through the model, and the score so far.
pub type Progress<'a> = &'a mut dyn FnMut(usize, &Score);

/// Cuts every document into windows, at most `max_windows` of each.
///
/// # Errors
/// [`PerplexityError::Windows`] for a text that the rule cannot score, with its name.
pub fn plan(
    documents: &[Document],
    request: &PerplexityRequest,
) -> Result<Vec<Vec<Window>>, PerplexityError> {
    if documents.is_empty() {
        return Err(PerplexityError::NoText);
    }
    let cut = |document: &Document| {
        let n = document.tokens.len();
        let all = windows(request.rule, n, request.context, request.stride, request.bos);
        let mut all =
            all.map_err(|source| PerplexityError::Windows { file: document.file.clone(), source })?;
        all.truncate(request.max_windows.unwrap_or(usize::MAX));
        Ok(all)
    };
    documents.iter().map(cut).collect()
}

/// Scores `documents` in the windows that [`plan`] cut; every window starts from an empty context.
///
/// # Errors
/// A failing model, with the file and the window.
pub fn perplexity(
    model: &dyn LanguageModel,
    documents: &[Document],
    plan: &[Vec<Window>],
    bos_token: Option<u32>,
    progress: Progress<'_>,
) -> Result<Perplexity, PerplexityError> {
    let mut pooled = Score::default();
    let mut per_file = Vec::new();
    let mut done = 0;
    for (document, windows) in documents.iter().zip(plan) {
        let mut score = Score::default();
        for (index, window) in windows.iter().enumerate() {
            let before = pooled;
            let scored = score_window(model, document, window, bos_token, &mut |tokens| {
                progress(done + tokens, &before);
            });
            let scored = scored.map_err(|source| PerplexityError::Model {
                file: document.file.clone(),
                window: index,
                source: Box::new(source),
            })?;
            done += window.len();
            score.merge(&scored);
            pooled.merge(&scored);
            progress(done, &pooled);
        }
        per_file.push((document.file.clone(), score));
    }
    Ok(Perplexity { per_file, pooled })
}

fn score_window(
    model: &dyn LanguageModel,
    document: &Document,
    window: &Window,
    bos_token: Option<u32>,
    progress: &mut dyn FnMut(usize),
) -> Result<Score, ModelError> {
    let mut input = Vec::with_capacity(window.len());
    if window.prepend_bos {
        input.extend(bos_token);
    }
    input.extend(&document.tokens[window.tokens.clone()]);
    if let (true, Some(bos)) = (window.overwrite_bos, bos_token) {
        input[0] = bos;
    }
    let targets = &document.tokens[window.scored.clone()];
    // The token at text position p is predicted by the row of the one before it.
    let offset = usize::from(window.prepend_bos);
    let first_row = window.scored.start - window.tokens.start + offset - 1;
    let mut session = model.session(input.len())?;
    let log_probs = session.extend(&input, Want::LogProbs { first_row, targets }, progress)?;
    let mut score = Score { windows: 1, ..Score::default() };
    for (log_prob, token) in log_probs.iter().zip(window.scored.clone()) {
        score.add_token(-f64::from(*log_prob));
        score.bytes_scored += u64::from(document.token_bytes[token]);
        score.words_scored += u64::from(document.token_words[token]);
    }
    Ok(score)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn score(nlls: &[f64]) -> Score {
        let mut score = Score::default();
        nlls.iter().for_each(|nll| score.add_token(*nll));
        score
    }

    #[test]
    fn merged_scores_equal_the_score_of_all_tokens() {
        let mut merged = score(&[1.0, 2.0]);
        merged.merge(&score(&[4.0]));
        assert_eq!(merged, score(&[1.0, 2.0, 4.0]));
        assert!((merged.nll() - 7.0 / 3.0).abs() < 1e-12);
    }

    #[test]
    fn the_standard_error_is_that_of_the_mean() {
        // Sample variance of 1, 2, 4 is 7/3; of the mean, 7/9.
        let stderr = score(&[1.0, 2.0, 4.0]).nll_stderr().unwrap();
        assert!((stderr - (7.0f64 / 9.0).sqrt()).abs() < 1e-12);
        assert_eq!(score(&[1.0]).nll_stderr(), None);
    }
}
