//! Perplexity of texts under a published rule.

pub mod bos;
pub mod by_position;
pub mod compare;
pub mod curve;
pub mod gain;
pub mod losses;
pub mod saved;
mod score;

pub use self::score::Score;

use self::losses::{Losses, Run};
use super::document::Document;
use super::windows::{BosPlacement, Rule, Window, WindowError, windows};
use crate::checkpoint::tokenizer::{Bos, Markers, Tokenizer, TokenizerError};
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
    #[error("cannot build the frequencies")]
    Frequencies(#[source] Box<ModelError>),
}

impl PerplexityError {
    /// Whether the run was stopped before it had anything to show.
    pub fn is_interrupt(&self) -> bool {
        matches!(self, PerplexityError::Model { source, .. } if matches!(**source, ModelError::Interrupted { .. }))
    }
}

/// How texts are cut and scored.
#[derive(Debug, Clone, PartialEq)]
pub struct PerplexityRequest {
    pub rule: Rule,
    /// Tokens of a window.
    pub context: usize,
    /// Tokens from the start of a window to the start of the next, for rules that have a stride.
    pub stride: usize,
    pub bos: BosPlacement,
    /// The beginning-of-sequence or prefix token; required unless `bos` is [`BosPlacement::Never`].
    pub bos_token: Option<u32>,
    /// Score at most this many windows of each text.
    pub max_windows: Option<usize>,
}

impl PerplexityRequest {
    /// Tokens from one window to the next; the context for rules without a stride.
    pub fn effective_stride(&self) -> usize {
        if self.rule.has_stride() { self.stride } else { self.context }
    }

    /// The text as this request reads it: with its beginning-of-sequence token where the rule counts it as one of the
    /// text, without it where windows bring their own.
    ///
    /// # Errors
    /// A text that the vocabulary cannot write.
    pub fn document(
        &self,
        name: String,
        text: &str,
        markers: Markers,
        tokenizer: &Tokenizer,
    ) -> Result<Document, TokenizerError> {
        let placed = self.bos != BosPlacement::Never;
        let bos = if placed && self.rule.bos_is_in_text() { Bos::Always } else { Bos::Never };
        let mut tokens = tokenizer.encode(text, bos, markers)?;
        // A text that writes it must not have it twice.
        if placed && !self.rule.bos_is_in_text() && tokens.first() == self.bos_token.as_ref() {
            tokens.remove(0);
        }
        Ok(Document::new(name, tokens, tokenizer))
    }
}

/// What was measured.
#[derive(Debug, Clone, PartialEq)]
pub struct Perplexity {
    /// One row per text, in order; texts that an interrupted run did not reach are missing.
    pub per_file: Vec<(String, Score)>,
    pub pooled: Score,
    pub losses: Losses,
    /// Whether the run was stopped: then the last window may be scored in part.
    pub interrupted: bool,
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
/// A run that is stopped ([`ModelError::Interrupted`]) returns what it has, unless it has nothing.
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
    let mut found = Perplexity {
        per_file: Vec::new(),
        pooled: Score::default(),
        losses: Losses::default(),
        interrupted: false,
    };
    let mut done = 0;
    for (document_index, (document, windows)) in documents.iter().zip(plan).enumerate() {
        let mut score = Score::default();
        for (window_index, window) in windows.iter().enumerate() {
            let before = found.pooled;
            let (nll, ending) = score_window(model, document, window, bos_token, &mut |tokens, nll| {
                let mut now = before;
                if !nll.is_empty() {
                    now.add_window(nll, window.weight.min(nll.len()));
                }
                progress(done + tokens, &now);
            });
            if !nll.is_empty() {
                let scored = score_of(document, window, &nll);
                score.merge(&scored);
                found.pooled.merge(&scored);
                let run = run(document_index, window_index, window, nll.len());
                found.losses.push(run, &nll);
            }
            match ending {
                Ok(()) => done += window.len(),
                Err(ModelError::Interrupted { .. }) if !found.losses.is_empty() => found.interrupted = true,
                Err(source) => {
                    let source = Box::new(source);
                    let file = document.file.clone();
                    return Err(PerplexityError::Model { file, window: window_index, source });
                }
            }
            if found.interrupted {
                break;
            }
            progress(done, &found.pooled);
        }
        if score.windows > 0 {
            found.per_file.push((document.file.clone(), score));
        }
        if found.interrupted {
            break;
        }
    }
    Ok(found)
}

/// Where the first `scored` tokens of a window stand. A window scored in part weighs no more than its tokens.
fn run(document: usize, index: usize, window: &Window, scored: usize) -> Run {
    Run {
        document,
        window: index,
        first_token: window.scored.start,
        first_position: window.first_position(),
        weight: window.weight.min(scored),
        losses: 0..0,
    }
}

fn score_of(document: &Document, window: &Window, nll: &[f32]) -> Score {
    let mut score = Score::default();
    score.add_window(nll, window.weight.min(nll.len()));
    for token in window.scored.clone().take(nll.len()) {
        score.bytes_scored += u64::from(document.token_bytes[token]);
        score.words_scored += u64::from(document.token_words[token]);
    }
    score
}

/// Tokens that go through the model in one call, so that a stopped run keeps what it has.
const SLICE: usize = 2048;

/// Losses of the scored tokens of a window: all, or those before the error that comes with them.
/// `progress`: tokens done, losses known.
fn score_window(
    model: &dyn LanguageModel,
    document: &Document,
    window: &Window,
    bos_token: Option<u32>,
    progress: &mut dyn FnMut(usize, &[f32]),
) -> (Vec<f32>, Result<(), ModelError>) {
    let input = window.input(&document.tokens, bos_token);
    let targets = &document.tokens[window.scored.clone()];
    // A token is predicted by the row of the one before it.
    let first_row = window.first_position() - 1;
    let mut nll = Vec::with_capacity(targets.len());
    let mut session = match model.session(input.len()) {
        Ok(session) => session,
        Err(error) => return (nll, Err(error)),
    };
    // Where frequencies follow the length reached, the window is one call: they must be those of its whole length.
    let slice = if model.rope().spec.depends_on_length() { input.len() } else { SLICE };
    let mut done = 0;
    for part in input.chunks(slice.max(1)) {
        let rows = done.max(first_row)..(done + part.len()).min(first_row + targets.len());
        let want = match rows.is_empty() {
            true => Want::Nothing,
            false => Want::LogProbs {
                first_row: rows.start - done,
                targets: &targets[rows.start - first_row..rows.end - first_row],
            },
        };
        match session.extend(part, want, &mut |tokens| progress(done + tokens, &nll)) {
            Ok(log_probs) => nll.extend(log_probs.iter().map(|log_prob| -log_prob)),
            Err(error) => return (nll, Err(error)),
        }
        done += part.len();
    }
    (nll, Ok(()))
}
