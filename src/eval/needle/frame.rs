//! What stands around the user's words: nothing, or a chat template.

use super::NeedleError;
use super::fragments::Fragments;
use crate::checkpoint::chat_template::{ChatTemplate, Message, RenderOptions};
use crate::checkpoint::tokenizer::{Bos, Markers, Tokenizer};

/// Stands for the user's words while a template is rendered; no template writes it by itself.
const PLACEHOLDER: &str = "THE WORDS OF THE USER";

/// Tokens before and after what the user says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// `none` or `chat`, for reports.
    pub name: &'static str,
    pub before: Vec<u32>,
    /// Up to where the answer begins.
    pub after: Vec<u32>,
}

impl Frame {
    /// Plain text, behind a beginning-of-sequence token where the tokenizer adds one.
    pub fn plain(tokenizer: &Tokenizer) -> Self {
        let before = tokenizer.bos().filter(|_| tokenizer.adds_bos()).into_iter().collect();
        Self { name: "none", before, after: Vec::new() }
    }

    /// One user message and the beginning of the answer. `now_unix_s`: the time that a template may print.
    ///
    /// # Errors
    /// A template that fails, or that does not print the message exactly once.
    pub fn chat(
        tokenizer: &Tokenizer,
        template: &ChatTemplate,
        now_unix_s: i64,
    ) -> Result<Self, NeedleError> {
        let text = |id: Option<u32>| id.and_then(|id| tokenizer.token_text(id)).unwrap_or_default();
        let options = RenderOptions {
            bos_token: text(tokenizer.bos()),
            eos_token: text(tokenizer.eos().first().copied()),
            add_generation_prompt: true,
            now_unix_s,
            ..RenderOptions::default()
        };
        let message = Message { role: "user".into(), content: PLACEHOLDER.into() };
        let rendered = template.render(&[message], &options)?;
        let mut parts = rendered.split(PLACEHOLDER);
        let (Some(before), Some(after), None) = (parts.next(), parts.next(), parts.next()) else {
            return Err(NeedleError::Template);
        };
        let before = tokenizer.encode(before, Bos::Auto, Markers::Special)?;
        let after = tokenizer.encode(after, Bos::Never, Markers::Special)?;
        Ok(Self { name: "chat", before, after })
    }

    /// Whether the answer begins on a line of its own, and not behind the question.
    pub fn separates(&self) -> bool {
        !self.after.is_empty()
    }

    /// Everything behind the haystack: `question`, the frame, and `opening`, the words that the answer begins with.
    ///
    /// # Errors
    /// A vocabulary that cannot write them.
    pub fn tail(
        &self,
        question: &str,
        opening: &str,
        fragments: &Fragments<'_>,
    ) -> Result<Vec<u32>, NeedleError> {
        if !self.separates() {
            let space = if opening.is_empty() { "" } else { " " };
            return Ok(fragments.encode(&format!("\n\n{question}{space}{opening}"))?);
        }
        let mut tail = fragments.encode(&format!("\n\n{question}"))?;
        tail.extend(&self.after);
        tail.extend(fragments.encode(opening)?);
        Ok(tail)
    }

    /// What joins an answer to the prompt.
    pub fn before_answer(&self, opening: &str) -> &'static str {
        if self.separates() && opening.is_empty() { "" } else { " " }
    }
}
