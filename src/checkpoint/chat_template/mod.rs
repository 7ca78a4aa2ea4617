//! Chat templates: from messages to the text a chat model was trained on.
//!
//! Templates are Jinja as transformers runs it (`utils/chat_template_utils.py`): blocks trimmed, Python's string and dict
//! methods, `raise_exception`, `strftime_now`, `tojson`, loop controls, `generation` blocks.

mod generation;
mod json;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use minijinja::syntax::SyntaxConfig;
use minijinja::value::Value;
use minijinja::{Environment, Error, ErrorKind};
use serde_json::Value as Json;

use crate::checkpoint::gguf::{GgufError, Metadata};
use crate::checkpoint::sidecar::{self, SidecarError};

/// Name under which the engine knows the template; it has no extension, so nothing is HTML-escaped.
const NAME: &str = "chat template";
/// Steps a rendering may take, each an instruction or 64 bytes made: at most about 64 MiB.
const FUEL: u64 = 1_000_000;
/// Longest accepted template; published ones stay below 64 KiB.
const MAX_SOURCE_BYTES: usize = 1 << 20;
/// Stack for the engine, which recurses over expressions and over nested values. Only what is used is ever backed by
/// memory; with the limits above the deepest templates known to us use a third of it in a debug build.
const STACK_BYTES: usize = 256 << 20;
/// Name that tokenizer_config.json gives to the template for ordinary conversations.
const DEFAULT: &str = "default";
/// Key of the template in GGUF files.
const GGUF_KEY: &str = "tokenizer.chat_template";

/// Names that a rendering sets itself, which [`RenderOptions::variables`] may not.
pub const RESERVED_NAMES: [&str; 6] =
    ["messages", "bos_token", "eos_token", "add_generation_prompt", "strftime_now", "raise_exception"];

/// Errors of reading and running a chat template.
#[derive(Debug, thiserror::Error)]
pub enum ChatTemplateError {
    /// The file cannot be read.
    #[error(transparent)]
    Read(#[from] SidecarError),

    /// There is no such file.
    #[error("chat template file `{}` does not exist", .0.display())]
    NotFound(PathBuf),

    /// A .json file that is not JSON or has no template.
    #[error("`{}` must hold a JSON object with the key `chat_template`", .0.display())]
    NoTemplate(PathBuf),

    /// `chat_template` is neither a text nor a list of named texts.
    #[error("`chat_template` must be a text or a list of objects with `name` and `template`, found {0}")]
    Shape(String),

    /// Several named templates, none of them `default`.
    #[error("the chat templates are named {0}; none is `default`")]
    NoDefault(String),

    /// The template is longer than any known one.
    #[error("the chat template has {0} bytes, more than {MAX_SOURCE_BYTES}")]
    TooLong(usize),

    /// The template is more complicated than any known one.
    #[error("the chat template is too complicated: {0} has more than {1} {2}")]
    TooComplex(&'static str, usize, &'static str),

    /// No thread for the template engine.
    #[error("cannot start a thread for the chat template")]
    Thread(#[source] std::io::Error),

    /// The template cannot be parsed.
    #[error("the chat template cannot be read, line {line}: {message}")]
    Syntax {
        /// Line in the template, from 1; 0 if not known.
        line: usize,
        /// What the engine says.
        message: String,
    },

    /// The template failed on these messages.
    #[error("the chat template failed, line {line}: {message}")]
    Render {
        /// Line in the template, from 1; 0 if not known.
        line: usize,
        /// What the engine says.
        message: String,
    },

    /// The template itself called `raise_exception`.
    #[error("the chat template refuses these messages: {0}")]
    Refused(String),

    /// The template ran longer than any honest one.
    #[error("the chat template did not finish within {FUEL} steps")]
    TooExpensive,

    /// The time given is outside the years -9999 to 9999.
    #[error("`{0}` is not a time in seconds since 1970")]
    Time(i64),

    /// The GGUF key has the wrong type.
    #[error("cannot read the chat template in the GGUF metadata")]
    Metadata(#[from] GgufError),
}

/// One turn of a conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// `system`, `user`, `assistant`, or what the template knows besides.
    pub role: String,
    /// What was said.
    pub content: String,
}

/// What a template may ask for besides the messages.
#[derive(Clone, Debug, Default)]
pub struct RenderOptions<'a> {
    /// Text of the BOS token, empty if there is none.
    pub bos_token: &'a str,
    /// Text of the EOS token, empty if there is none.
    pub eos_token: &'a str,
    /// End with the beginning of an answer.
    pub add_generation_prompt: bool,
    /// Time that `strftime_now` formats: seconds since 1970-01-01 00:00 UTC. Formatted as UTC.
    pub now_unix_s: i64,
    /// Further variables, for example `enable_thinking`.
    pub variables: BTreeMap<String, Json>,
}

/// A chat template, parsed.
#[derive(Clone, Debug)]
pub struct ChatTemplate {
    source: String,
    environment: Environment<'static>,
}

impl ChatTemplate {
    /// Parses a template.
    ///
    /// # Errors
    /// `TooLong`, or `Syntax` with the line.
    pub fn new(source: &str) -> Result<Self, ChatTemplateError> {
        if source.len() > MAX_SOURCE_BYTES {
            return Err(ChatTemplateError::TooLong(source.len()));
        }
        let syntax =
            |e: Error| ChatTemplateError::Syntax { line: e.line().unwrap_or(0), message: describe(&e) };
        let mut environment = Environment::new();
        let blocks = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build().map_err(syntax)?;
        environment.set_syntax(blocks);
        environment.set_fuel(Some(FUEL));
        environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.add_filter("tojson", json::tojson);
        environment.add_function("raise_exception", |message: String| -> Result<Value, Error> {
            Err(Error::new(ErrorKind::InvalidOperation, "refused").with_source(Refusal(message)))
        });
        let plain = generation::as_plain_blocks(source)?;
        on_large_stack(|| environment.add_template_owned(NAME, plain).map_err(syntax))??;
        Ok(Self { source: source.to_owned(), environment })
    }

    /// A template in a file of its own: Jinja, or, where the name ends in `.json`, the key `chat_template` of an object.
    ///
    /// # Errors
    /// `NotFound` and `Read`; for JSON `NoTemplate`, `Shape` and `NoDefault`; those of [`ChatTemplate::new`].
    pub fn open(path: &Path) -> Result<Self, ChatTemplateError> {
        let text = sidecar::read_text(path)?.ok_or_else(|| ChatTemplateError::NotFound(path.to_owned()))?;
        if path.extension().is_none_or(|ending| !ending.eq_ignore_ascii_case("json")) {
            return Self::new(&text);
        }
        let object: Option<Json> = serde_json::from_str(&text).ok();
        let template = Self::from_files(None, &[object.as_ref()])?;
        template.ok_or_else(|| ChatTemplateError::NoTemplate(path.to_owned()))
    }

    /// The template of a folder: chat_template.jinja if there is one, else the first key `chat_template`.
    ///
    /// `jinja`: contents of chat_template.jinja. `objects`: tokenizer_config.json and then chat_template.json, where they
    /// exist. Returns `None` when none has one.
    ///
    /// # Errors
    /// `Shape` and `NoDefault` for what the objects say, and those of [`ChatTemplate::new`].
    pub fn from_files(
        jinja: Option<&str>,
        objects: &[Option<&Json>],
    ) -> Result<Option<Self>, ChatTemplateError> {
        if let Some(source) = jinja {
            return Self::new(source).map(Some);
        }
        let mut declared = objects.iter().flatten().filter_map(|object| object.get("chat_template"));
        let declared = declared.find(|value| !value.is_null());
        declared.map(|value| Self::new(default_of(value)?)).transpose()
    }

    /// The template in a GGUF file, if there is one.
    ///
    /// # Errors
    /// `Metadata` when the key is not a text, and those of [`ChatTemplate::new`].
    pub fn from_gguf(meta: &Metadata) -> Result<Option<Self>, ChatTemplateError> {
        meta.str(GGUF_KEY)?.map(Self::new).transpose()
    }

    /// The template as it was given.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Renders a conversation.
    ///
    /// The text may begin with BOS: encode it with `Bos::Auto`, which does not add another, and `Markers::Special`.
    ///
    /// # Errors
    /// `Refused` with the template's own words, `Render` with the line, `TooExpensive`, `Time`.
    pub fn render(
        &self,
        messages: &[Message],
        options: &RenderOptions<'_>,
    ) -> Result<String, ChatTemplateError> {
        let now = jiff::Timestamp::from_second(options.now_unix_s)
            .map_err(|_| ChatTemplateError::Time(options.now_unix_s))?
            .to_zoned_datetime(jiff::tz::TimeZone::UTC);
        let strftime_now = Value::from_function(move |format: String| {
            jiff::fmt::strtime::format(&format, &now).map_err(|e| {
                Error::new(ErrorKind::InvalidOperation, format!("strftime_now(`{format}`): {e}"))
            })
        });
        let messages: Vec<Value> = messages
            .iter()
            .map(|m| Value::from_pairs([("role", m.role.as_str()), ("content", m.content.as_str())]))
            .collect();
        let fixed = [
            ("messages", Value::from(messages)),
            ("bos_token", Value::from(options.bos_token)),
            ("eos_token", Value::from(options.eos_token)),
            ("add_generation_prompt", Value::from(options.add_generation_prompt)),
            ("strftime_now", strftime_now),
            // transformers passes these even when there are none, and templates test `is not none`.
            ("tools", Value::from(())),
            ("documents", Value::from(())),
        ];
        let given = options.variables.iter().map(|(name, value)| (name.as_str(), json::to_value(value)));
        let context = Value::from_pairs(fixed.into_iter().chain(given));
        on_large_stack(|| {
            let template = self.environment.get_template(NAME);
            template.and_then(|t| t.render(context)).map_err(|e| failed(&e))
        })?
    }
}

/// Runs `work` on a thread of its own with [`STACK_BYTES`] of stack, and waits for it.
fn on_large_stack<T: Send>(work: impl FnOnce() -> T + Send) -> Result<T, ChatTemplateError> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new()
            .stack_size(STACK_BYTES)
            .spawn_scoped(scope, work)
            .map_err(ChatTemplateError::Thread)?;
        Ok(thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}

/// The template's own refusal, carried through the engine's error.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Refusal(String);

fn failed(error: &Error) -> ChatTemplateError {
    let mut source: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(cause) = source {
        if let Some(Refusal(message)) = cause.downcast_ref() {
            return ChatTemplateError::Refused(printable(message));
        }
        source = cause.source();
    }
    if error.kind() == ErrorKind::OutOfFuel {
        return ChatTemplateError::TooExpensive;
    }
    ChatTemplateError::Render { line: error.line().unwrap_or(0), message: describe(error) }
}

/// The engine's kind and detail, without the place, which is told apart.
fn describe(error: &Error) -> String {
    match error.detail() {
        Some(detail) => printable(&format!("{}: {detail}", error.kind())),
        None => error.kind().to_string(),
    }
}

/// A template's words for a terminal: control characters but line breaks and tabs become U+FFFD, so that it cannot steer it.
pub fn printable(text: &str) -> String {
    let steers = |c: char| c.is_control() && c != '\n' && c != '\t';
    text.chars().map(|c| if steers(c) { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

/// The template for ordinary conversations among those of a list.
fn default_of(value: &Json) -> Result<&str, ChatTemplateError> {
    let shape = |v: &Json| ChatTemplateError::Shape(v.to_string().chars().take(80).collect());
    let list = match value {
        Json::String(source) => return Ok(source),
        Json::Array(list) => list,
        other => return Err(shape(other)),
    };
    let mut names = Vec::new();
    for entry in list {
        let text = |key| entry.get(key).and_then(Json::as_str);
        let (Some(name), Some(template)) = (text("name"), text("template")) else {
            return Err(shape(entry));
        };
        if name == DEFAULT {
            return Ok(template);
        }
        names.push(format!("`{name}`"));
    }
    Err(ChatTemplateError::NoDefault(names.join(", ")))
}

#[cfg(test)]
mod tests;
