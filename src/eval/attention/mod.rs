//! Where heads look: attention by distance, on the first tokens, its entropy, exact and in bounded memory.
//!
//! One causal pass over a text. Engines hand over sums per query ([`crate::engine::probe`]); here they are added up per
//! head, per layer and by the position of the query.

mod compare;
mod sums;

use std::cell::RefCell;

pub use self::compare::{Comparison, Largest};
pub use self::sums::{ByPosition, Statistic, Sums};
use crate::engine::probe::{AttentionProbe, AttentionRows};
use crate::model::{AttentionObserver, LanguageModel, ModelError};

/// What to measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttentionRequest {
    /// Tokens at the start of the text whose share is [`Statistic::Sink`].
    pub sink_tokens: usize,
    /// Count the last so many queries only; `None`: all of them.
    pub last_queries: Option<usize>,
}

/// Why attention could not be measured.
#[derive(Debug, thiserror::Error)]
pub enum AttentionError {
    #[error("a text of {tokens} tokens has no {wanted} queries to count")]
    Queries { wanted: usize, tokens: usize },
    #[error("no text to look at")]
    NoText,
    #[error(transparent)]
    Model(#[from] ModelError),
}

/// Attention of a model on one text.
#[derive(Debug, Clone, PartialEq)]
pub struct Attention {
    pub n_layers: usize,
    pub n_heads: usize,
    /// Tokens of the text that were processed.
    pub tokens: usize,
    /// Position of the first query that counts.
    pub first_query: usize,
    pub sink_tokens: usize,
    /// `[n_layers, n_heads]`
    heads: Vec<Sums>,
    /// Queries of all layers and heads.
    pub by_position: ByPosition,
    /// Whether the run was cancelled before the end of the text.
    pub interrupted: bool,
}

impl Attention {
    fn new(model: &dyn LanguageModel, first_query: usize, request: &AttentionRequest) -> Self {
        let (n_layers, n_heads) = (model.config().n_layers(), model.config().n_heads);
        Self {
            n_layers,
            n_heads,
            tokens: 0,
            first_query,
            sink_tokens: request.sink_tokens,
            heads: vec![Sums::default(); n_layers * n_heads],
            by_position: ByPosition::default(),
            interrupted: false,
        }
    }

    fn add(&mut self, layer: usize, position: usize, rows: &AttentionRows) {
        for query in 0..rows.queries() {
            for head in 0..rows.n_heads {
                let (row, mass) = rows.row(query, head);
                self.heads[layer * self.n_heads + head].add(row, mass);
                self.by_position.add(position + query, row, mass);
            }
        }
    }

    pub fn head(&self, layer: usize, head: usize) -> &Sums {
        &self.heads[layer * self.n_heads + head]
    }

    /// All heads of a layer together.
    pub fn layer(&self, layer: usize) -> Sums {
        merged(&self.heads[layer * self.n_heads..][..self.n_heads])
    }

    /// All heads of all layers together.
    pub fn all(&self) -> Sums {
        merged(&self.heads)
    }

    /// Queries of each head that counted.
    pub fn queries(&self) -> usize {
        self.tokens.saturating_sub(self.first_query)
    }
}

fn merged(parts: &[Sums]) -> Sums {
    let mut all = Sums::default();
    parts.iter().for_each(|part| all.merge(part));
    all
}

/// Receives progress: tokens processed, and what is known of them.
pub type Progress<'a> = &'a mut dyn FnMut(usize, &Attention);

/// Looks at the attention of every head of `model` on `tokens`.
///
/// Memory is that of a forward pass and of some sums per head. A cancelled run returns what it saw, if it saw a query.
///
/// # Errors
/// [`AttentionError::Queries`] when there are fewer tokens than queries to count; a failing model.
pub fn attention(
    model: &dyn LanguageModel,
    tokens: &[u32],
    request: &AttentionRequest,
    progress: Progress<'_>,
) -> Result<Attention, AttentionError> {
    if tokens.is_empty() {
        return Err(AttentionError::NoText);
    }
    let wanted = request.last_queries.unwrap_or(tokens.len());
    let first_query = match tokens.len().checked_sub(wanted) {
        Some(first) if wanted > 0 => first,
        _ => return Err(AttentionError::Queries { wanted, tokens: tokens.len() }),
    };
    let found = RefCell::new(Attention::new(model, first_query, request));
    let mut observer = AttentionObserver {
        probe: AttentionProbe { longest: tokens.len(), sink_tokens: request.sink_tokens },
        first_query,
        found: &mut |layer, position, rows| found.borrow_mut().add(layer, position, rows),
    };
    let mut session = model.session(tokens.len())?;
    let outcome = session.observe(tokens, &mut observer, &mut |done| {
        found.borrow_mut().tokens = done;
        progress(done, &found.borrow());
    });
    let mut found = found.into_inner();
    match outcome {
        Err(ModelError::Interrupted { .. }) if found.queries() > 0 => found.interrupted = true,
        outcome => outcome?,
    }
    Ok(found)
}
