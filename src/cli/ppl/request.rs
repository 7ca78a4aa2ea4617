//! From the flags of `ropex ppl` to what is measured.

use std::path::PathBuf;

use anyhow::Context as _;

use super::{Args, Lengths};
use crate::checkpoint::tokenizer::{Markers, Tokenizer};
use crate::cli::CommandError;
use crate::cli::texts::read_text;
use crate::eval::document::Document;
use crate::eval::perplexity::bos::{Bos, BosError, place};
use crate::eval::perplexity::{PerplexityError, PerplexityRequest, curve};
use crate::eval::windows::{Rule, WindowError};
use crate::named::Named;

/// What is asked for.
pub struct Asked {
    pub request: PerplexityRequest,
    /// Lengths of the curve, in order; the last is the context.
    pub lengths: Option<Vec<usize>>,
    /// What the user should know about it.
    pub notes: Vec<String>,
}

/// `trained`: tokens that the unscaled embedding was trained for.
pub fn asked(args: &Args, trained: usize, tokenizer: &Tokenizer) -> anyhow::Result<Asked> {
    let rule = args.rule;
    check_stride(args)?;
    let context = context(args, trained)?;
    let bos = place(rule, args.bos, args.prefix_token, tokenizer).map_err(bos_error)?;
    let mut request = PerplexityRequest {
        rule,
        context,
        stride: args.stride.unwrap_or(rule.default_stride(context)),
        bos: bos.placement,
        bos_token: bos.token,
        max_windows: args.max_windows,
    };
    let mut lengths = None;
    if let Some(curve_lengths) = &args.detail.curve {
        let wanted = match curve_lengths {
            Lengths::Auto => curve::auto_lengths(context, trained),
            Lengths::List(list) => [list.as_slice(), &[context]].concat(),
        };
        lengths = Some(curve::sorted(wanted).map_err(|error| CommandError::usage(error.to_string()))?);
        request = curve::request(request).map_err(|error| CommandError::usage(error.to_string()))?;
    }
    let notes = notes(&request, &bos, lengths.is_some());
    Ok(Asked { request, lengths, notes })
}

fn check_stride(args: &Args) -> Result<(), CommandError> {
    if args.stride.is_none() {
        return Ok(());
    }
    if args.detail.curve.is_some() {
        return Err(CommandError::usage("a curve has its windows side by side: `--stride` has no meaning"));
    }
    if !args.rule.has_stride() {
        let accepted: Vec<&str> =
            Rule::ALL.iter().filter(|rule| rule.has_stride()).map(|rule| rule.name()).collect();
        let (rule, accepted) = (args.rule.name(), accepted.join(", "));
        let message = format!("rule `{rule}` has no stride; `--stride` belongs to {accepted}");
        return Err(CommandError::usage(message));
    }
    Ok(())
}

/// Tokens of a window: as given, else the longest length of the curve, else the original context.
fn context(args: &Args, trained: usize) -> Result<usize, CommandError> {
    let longest = match &args.detail.curve {
        Some(Lengths::List(list)) => list.iter().max().copied(),
        _ => None,
    };
    match (args.context, longest) {
        (Some(context), Some(longest)) if context < longest => Err(CommandError::usage(format!(
            "the curve asks for {longest} tokens, `--context` is {context}: leave it out, or make it as long"
        ))),
        (Some(context), _) => Ok(context),
        (None, Some(longest)) => Ok(longest),
        (None, None) => Ok(trained),
    }
}

fn notes(request: &PerplexityRequest, bos: &Bos, is_curve: bool) -> Vec<String> {
    let mut notes = Vec::new();
    if let (true, Some(token)) = (bos.is_eos, bos.token) {
        notes.push(format!(
            "the end-of-sequence token {token} stands before the text, as lm-eval does without a beginning-of-sequence token; \
             that can make the first tokens very unlikely (`--bos never` leaves it out)"
        ));
    }
    let one_window = is_curve && request.max_windows == Some(1);
    if request.rule == Rule::Yarn && bos.token.is_some() && request.stride == request.context && !one_window {
        notes.push(format!(
            "a stride of {} leaves one token between windows unscored, as the authors' script does: windows hold {} tokens of text",
            request.stride,
            request.context - 1
        ));
    }
    if request.rule == Rule::Hf && request.stride == 1 {
        notes.push("the recipe gives windows after the first no weight at a stride of 1".to_string());
    }
    notes
}

fn bos_error(error: BosError) -> CommandError {
    CommandError::usage(error.to_string()).hint(error.hint())
}

/// Settings that fit no text are bad usage; a text that is too short is a failure.
pub fn plan_error(error: PerplexityError) -> anyhow::Error {
    match &error {
        PerplexityError::Windows { source, .. } if !matches!(source, WindowError::TooShort { .. }) => {
            CommandError::usage(source.to_string()).into()
        }
        _ => error.into(),
    }
}

/// The texts, in the order given.
pub fn read_documents(
    args: &Args,
    request: &PerplexityRequest,
    tokenizer: &Tokenizer,
) -> anyhow::Result<Vec<Document>> {
    let markers = if args.markers { Markers::Special } else { Markers::Text };
    let read = |path: &PathBuf| {
        let text = read_text(path, args.lossy)?;
        let name = path.display().to_string();
        let document = request.document(name.clone(), &text, markers, tokenizer);
        document.with_context(|| format!("cannot tokenize `{name}`"))
    };
    args.text.iter().map(read).collect()
}
