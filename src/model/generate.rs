//! Generation: prefill, then one token at a time until a reason to stop.

use std::time::Instant;

use candle_core::{Device, Tensor};
use candle_transformers::generation::{LogitsProcessor, Sampling};

use super::{LanguageModel, ModelError, Want};
use crate::checkpoint::tokenizer::{StreamDecoder, Tokenizer};
use crate::engine::EngineError;

/// How the next token is drawn from the logits.
#[derive(Debug, Clone, PartialEq)]
pub struct SamplingOptions {
    /// 0: always the most likely token.
    pub temperature: f64,
    /// Keep the most likely tokens whose probabilities add up to this.
    pub top_p: Option<f64>,
    /// Keep this many most likely tokens.
    pub top_k: Option<usize>,
    /// Drop tokens less likely than this share of the most likely one.
    pub min_p: Option<f64>,
    pub seed: u64,
}

/// What to continue, and until when.
#[derive(Debug, Clone)]
pub struct GenerateRequest {
    pub prompt: Vec<u32>,
    pub max_new_tokens: usize,
    /// Most tokens that prompt and continuation may have together, when the rotary embedding bounds them.
    pub limit: Option<usize>,
    pub sampling: SamplingOptions,
    /// Texts that end the generation; they are not part of the result.
    pub stop: Vec<String>,
    /// Go on past end-of-sequence tokens.
    pub ignore_eos: bool,
}

/// Why a generation ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StopReason {
    /// An end-of-sequence token was drawn.
    EndOfSequence(u32),
    /// One of the stop texts appeared.
    StopText(String),
    /// The run was cancelled; what was made until then counts.
    Interrupted,
    /// As many tokens as asked for.
    MaxNewTokens,
    /// Prompt and continuation reached this many tokens, the limit of the rotary embedding.
    Limit(usize),
}

impl StopReason {
    pub fn name(&self) -> &'static str {
        match self {
            StopReason::EndOfSequence(_) => "end-of-sequence",
            StopReason::StopText(_) => "stop-text",
            StopReason::Interrupted => "interrupted",
            StopReason::MaxNewTokens => "max-new-tokens",
            StopReason::Limit(_) => "limit",
        }
    }
}

/// A finished generation.
#[derive(Debug, Clone)]
pub struct Generation {
    /// New tokens, an end-of-sequence token included.
    pub tokens: Vec<u32>,
    /// Their text, without special tokens and stop texts.
    pub text: String,
    pub stop: StopReason,
    pub prefill_s: f64,
    pub decode_s: f64,
    /// Tokens that went through the decoder, recomputed ones included.
    pub computed_tokens: usize,
}

/// Receives what happens while a generation runs.
pub trait Listener {
    /// So many prompt tokens are processed.
    fn prefilled(&mut self, tokens: usize);
    /// More text is certain.
    fn text(&mut self, text: &str);
}

/// Continues `request.prompt` on `model`.
///
/// # Errors
/// As [`super::Session::extend`], and a prompt that cannot be sampled from.
pub fn generate(
    model: &dyn LanguageModel,
    tokenizer: &Tokenizer,
    request: &GenerateRequest,
    listener: &mut dyn Listener,
) -> Result<Generation, ModelError> {
    let prompt = &request.prompt;
    let wanted = prompt.len() + request.max_new_tokens;
    let length = request.limit.map_or(wanted, |limit| wanted.min(limit));
    let mut session = model.session(length)?;
    let mut sampler = Sampler::new(&request.sampling);
    let mut output = Output::new(tokenizer.stream_continuing(true), &request.stop);
    let started = Instant::now();
    let mut logits = session.extend(prompt, Want::LastLogits, &mut |done| listener.prefilled(done))?;
    let prefill_s = started.elapsed().as_secs_f64();
    let started = Instant::now();
    let mut tokens = Vec::new();
    let stop = loop {
        if tokens.len() == request.max_new_tokens {
            break StopReason::MaxNewTokens;
        }
        if prompt.len() + tokens.len() == length {
            break StopReason::Limit(length);
        }
        let token = sampler.draw(logits)?;
        tokens.push(token);
        if tokenizer.is_eos(token) && !request.ignore_eos {
            break StopReason::EndOfSequence(token);
        }
        if let Some(text) = output.push(token, listener)? {
            break StopReason::StopText(text);
        }
        if prompt.len() + tokens.len() == length {
            logits = Vec::new(); // nothing more to draw
            continue;
        }
        logits = match session.extend(&[token], Want::LastLogits, &mut |_| ()) {
            Err(ModelError::Interrupted { .. }) => break StopReason::Interrupted,
            extended => extended?,
        };
    };
    let text = output.finish(&stop, listener);
    Ok(Generation {
        tokens,
        text,
        stop,
        prefill_s,
        decode_s: started.elapsed().as_secs_f64(),
        computed_tokens: session.computed_tokens(),
    })
}

struct Sampler {
    processor: LogitsProcessor,
    min_p: Option<f32>,
}

impl Sampler {
    fn new(options: &SamplingOptions) -> Self {
        let temperature = options.temperature;
        let sampling = match (options.top_k, options.top_p) {
            _ if temperature == 0.0 => Sampling::ArgMax,
            (None, None) => Sampling::All { temperature },
            (Some(k), None) => Sampling::TopK { k, temperature },
            (None, Some(p)) => Sampling::TopP { p, temperature },
            (Some(k), Some(p)) => Sampling::TopKThenTopP { k, p, temperature },
        };
        Self {
            processor: LogitsProcessor::from_sampling(options.seed, sampling),
            min_p: options.min_p.map(|p| p as f32),
        }
    }

    /// logits: `[vocab]`
    fn draw(&mut self, logits: Vec<f32>) -> Result<u32, EngineError> {
        let n = logits.len();
        let logits = Tensor::from_vec(logits, n, &Device::Cpu)?;
        let min_p = self.min_p;
        let drop_unlikely = |probabilities: &mut [f32]| {
            let Some(min_p) = min_p else { return };
            let floor = min_p * probabilities.iter().copied().fold(0.0, f32::max);
            probabilities.iter_mut().filter(|p| **p < floor).for_each(|p| *p = 0.0);
        };
        Ok(self.processor.sample_f(&logits, drop_unlikely)?)
    }
}

/// Text that is certain, and text that may still turn into a stop text.
struct Output<'a> {
    decoder: StreamDecoder<'a>,
    stop: &'a [String],
    text: String,
    held: String,
}

impl<'a> Output<'a> {
    fn new(decoder: StreamDecoder<'a>, stop: &'a [String]) -> Self {
        Self { decoder, stop, text: String::new(), held: String::new() }
    }

    /// Returns the stop text that has appeared, if any.
    fn push(&mut self, token: u32, listener: &mut dyn Listener) -> Result<Option<String>, ModelError> {
        self.held.push_str(&self.decoder.push(token)?);
        let first = self.stop.iter().filter_map(|stop| Some((self.held.find(stop.as_str())?, stop)));
        if let Some((at, stop)) = first.min_by_key(|(at, _)| *at) {
            self.held.truncate(at);
            return Ok(Some(stop.clone()));
        }
        let certain = self.held.len() - self.possible_stop_length();
        let text: String = self.held.drain(..certain).collect();
        emit(&mut self.text, &text, listener);
        Ok(None)
    }

    /// Bytes at the end of the held text that begin a stop text.
    fn possible_stop_length(&self) -> usize {
        let begins = |from: usize| self.stop.iter().any(|stop| stop.starts_with(&self.held[from..]));
        let starts = self.held.char_indices().map(|(at, _)| at);
        starts.filter(|&at| begins(at)).map(|at| self.held.len() - at).max().unwrap_or(0)
    }

    /// The whole text, after everything still held has been emitted.
    fn finish(mut self, stop: &StopReason, listener: &mut dyn Listener) -> String {
        let mut rest = std::mem::take(&mut self.held);
        if !matches!(stop, StopReason::StopText(_)) {
            rest.push_str(&self.decoder.finish());
        }
        emit(&mut self.text, &rest, listener);
        self.text
    }
}

fn emit(all: &mut String, text: &str, listener: &mut dyn Listener) {
    if !text.is_empty() {
        all.push_str(text);
        listener.text(text);
    }
}
