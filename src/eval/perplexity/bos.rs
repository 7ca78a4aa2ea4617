//! Which token begins windows, by rule, tokenizer and choice.

use crate::checkpoint::tokenizer::Tokenizer;
use crate::eval::windows::{BosPlacement, Rule};
use crate::named::Named;

/// What the user says about the beginning-of-sequence token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BosChoice {
    /// As the source of the rule does with this tokenizer.
    #[default]
    Auto,
    Always,
    First,
    Never,
}

impl Named for BosChoice {
    const WHAT: &'static str = "placement";
    const ALL: &'static [Self] = &[Self::Auto, Self::Always, Self::First, Self::Never];

    fn name(self) -> &'static str {
        match self {
            BosChoice::Auto => "auto",
            BosChoice::Always => "always",
            BosChoice::First => "first",
            BosChoice::Never => "never",
        }
    }
}

/// Why windows cannot begin as asked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BosError {
    #[error("the tokenizer has no beginning-of-sequence token")]
    NoBos,
    #[error(
        "the tokenizer has neither a beginning-of-sequence nor an end-of-sequence token for rule `lm-eval`"
    )]
    NoPrefix,
    #[error("the tokenizer has no beginning-of-sequence token and several that end a text: {0}")]
    SeveralEos(String),
    #[error("a prefix token belongs to rule `lm-eval` and to a text that begins with one")]
    PrefixUnused,
    #[error("the prefix token {id} is outside the vocabulary of {vocab_size}")]
    PrefixId { id: u32, vocab_size: usize },
}

impl BosError {
    /// What to do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            BosError::NoBos => "leave `--bos` out, or write `--bos never`",
            BosError::NoPrefix | BosError::SeveralEos(_) => {
                "choose one with `--prefix-token ID`, or leave the first token unscored with `--bos never`"
            }
            BosError::PrefixUnused => "leave `--prefix-token` out",
            BosError::PrefixId { .. } => "`ropex tokenize` shows ids",
        }
    }
}

/// Where windows carry which token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bos {
    pub placement: BosPlacement,
    /// `None` exactly when `placement` is [`BosPlacement::Never`].
    pub token: Option<u32>,
    /// Whether it is an end-of-sequence token, because there is no other.
    pub is_eos: bool,
}

/// What `choice` means for `rule`. `prefix`: a token in place of the tokenizer's own, for [`Rule::LmEval`].
///
/// Auto is what each source does: strided and llama.cpp put the token before every window if the tokenizer's files ask for
/// one, hf before the text on the same condition, yarn before every window if there is one, and lm-eval before the text:
/// the beginning-of-sequence token, else the end-of-sequence token.
///
/// # Errors
/// A token that is wanted and is not there.
pub fn place(
    rule: Rule,
    choice: BosChoice,
    prefix: Option<u32>,
    tokenizer: &Tokenizer,
) -> Result<Bos, BosError> {
    let placement = match (choice, rule) {
        (BosChoice::Never, _) => BosPlacement::Never,
        (BosChoice::Always, _) => BosPlacement::Every,
        (BosChoice::First, _) => BosPlacement::First,
        (BosChoice::Auto, Rule::LmEval) => BosPlacement::First,
        (BosChoice::Auto, Rule::Yarn) if tokenizer.bos().is_some() => BosPlacement::Every,
        (BosChoice::Auto, Rule::Hf) if tokenizer.adds_bos() => BosPlacement::First,
        (BosChoice::Auto, Rule::Strided | Rule::LlamaCpp) if tokenizer.adds_bos() => BosPlacement::Every,
        (BosChoice::Auto, _) => BosPlacement::Never,
    };
    if prefix.is_some() && (rule != Rule::LmEval || placement == BosPlacement::Never) {
        return Err(BosError::PrefixUnused);
    }
    if placement == BosPlacement::Never {
        return Ok(Bos { placement, token: None, is_eos: false });
    }
    let (token, is_eos) = match (prefix, tokenizer.bos()) {
        (Some(id), _) if id as usize >= tokenizer.vocab_size() => {
            return Err(BosError::PrefixId { id, vocab_size: tokenizer.vocab_size() });
        }
        (Some(id), _) => (id, tokenizer.is_eos(id)),
        (None, Some(bos)) => (bos, false),
        (None, None) if rule == Rule::LmEval && choice == BosChoice::Auto => (only_eos(tokenizer)?, true),
        (None, None) => return Err(BosError::NoBos),
    };
    Ok(Bos { placement, token: Some(token), is_eos })
}

fn only_eos(tokenizer: &Tokenizer) -> Result<u32, BosError> {
    let ids: Vec<u32> = tokenizer.eos().iter().copied().collect();
    match ids.as_slice() {
        [] => Err(BosError::NoPrefix),
        [only] => Ok(*only),
        _ => {
            let name = |id: &u32| format!("{id} (`{}`)", tokenizer.token_text(*id).unwrap_or("?"));
            Err(BosError::SeveralEos(ids.iter().map(name).collect::<Vec<_>>().join(", ")))
        }
    }
}
