//! From the text that a user gives to the tokens a model reads: plain text, a text with control tokens, or a chat.

use std::path::PathBuf;
use std::time::SystemTime;

use serde_json::Value;

use super::model_args::OpenModel;
use super::{CommandError, Context};
use crate::checkpoint::chat_template::{ChatTemplate, Message, RESERVED_NAMES, RenderOptions, printable};
use crate::checkpoint::tokenizer::{Bos, Markers, Tokenizer};

/// How the prompt is read.
#[derive(Debug, clap::Args)]
pub struct ChatArgs {
    /// Wrap the prompt as a user's message in the checkpoint's chat template
    #[arg(long)]
    chat: bool,
    /// System message of the chat
    #[arg(long, value_name = "TEXT", requires = "chat")]
    system: Option<String>,
    /// Jinja file (or a .json file with the key chat_template) to use instead of the checkpoint's own template
    #[arg(long, value_name = "FILE", requires = "chat")]
    chat_template: Option<PathBuf>,
    /// Variable for the template, for example enable_thinking=false; a value that is no JSON is a text. May be given several times
    #[arg(long, value_name = "NAME=VALUE", requires = "chat", value_parser = parse_variable)]
    template_var: Vec<(String, Value)>,
    /// The prompt is what a template would have made: no template, and markers such as <|im_start|> are control tokens
    #[arg(long, conflicts_with = "chat")]
    raw: bool,
}

/// A name and a value, for the template.
fn parse_variable(text: &str) -> Result<(String, Value), String> {
    let Some((name, value)) = text.split_once('=') else {
        return Err("must be NAME=VALUE, for example enable_thinking=false".to_owned());
    };
    let is_name = |name: &str| {
        name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    if !is_name(name) {
        return Err(format!("`{name}` is no name of a variable: letters, digits and `_`, not a digit first"));
    }
    if RESERVED_NAMES.contains(&name) {
        return Err(format!("`{name}` is set by ropex itself"));
    }
    Ok((name.to_owned(), serde_json::from_str(value).unwrap_or_else(|_| value.into())))
}

impl ChatArgs {
    /// The tokens of `text`. BOS stands at the start once, if the tokenizer asks for it or the text writes it.
    ///
    /// # Errors
    /// A checkpoint without a template, a template that cannot be used or that refuses the messages, a text that the
    /// vocabulary cannot write.
    pub fn encode(
        &self,
        text: &str,
        open: &OpenModel,
        tokenizer: &Tokenizer,
        context: &Context,
    ) -> anyhow::Result<Vec<u32>> {
        if !self.chat {
            let markers = if self.raw { Markers::Special } else { Markers::Text };
            return Ok(tokenizer.encode(text, Bos::Auto, markers)?);
        }
        let rendered = self.render(text, open, tokenizer)?;
        context.detail(|| format!("the chat template made this prompt:\n{}", printable(&rendered)));
        Ok(tokenizer.encode(&rendered, Bos::Auto, Markers::Special)?)
    }

    fn render(&self, text: &str, open: &OpenModel, tokenizer: &Tokenizer) -> anyhow::Result<String> {
        let template = match &self.chat_template {
            Some(path) => Some(ChatTemplate::open(path)?),
            None => open.checkpoint.chat_template()?,
        };
        let Some(template) = template else {
            let error = CommandError::failed(format!("`{}` has no chat template", open.checkpoint.name()));
            let hint = "give one with `--chat-template FILE`, or leave `--chat` out to continue the prompt as plain text";
            return Err(error.hint(hint).into());
        };
        let message = |role: &str, text: &str| Message { role: role.to_owned(), content: text.to_owned() };
        let system = self.system.iter().map(|text| message("system", text));
        let messages: Vec<Message> = system.chain([message("user", text)]).collect();
        let text = |id: Option<u32>| id.and_then(|id| tokenizer.token_text(id)).unwrap_or_default();
        let options = RenderOptions {
            bos_token: text(tokenizer.bos()),
            eos_token: text(tokenizer.declared_eos()),
            add_generation_prompt: true,
            now_unix_s: now_unix_s(),
            variables: self.template_var.iter().cloned().collect(),
        };
        Ok(template.render(&messages, &options)?)
    }
}

fn now_unix_s() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |elapsed| elapsed.as_secs() as i64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn variables_are_json_where_they_can_be() {
        let value = |text: &str| parse_variable(text).unwrap().1;
        assert_eq!(value("enable_thinking=false"), json!(false));
        assert_eq!(value("n=3"), json!(3));
        assert_eq!(value("effort=high"), json!("high"));
        assert_eq!(value("x=a=b"), json!("a=b"));
        assert_eq!(value("tools=[{\"name\": \"f\"}]"), json!([{"name": "f"}]));
        for (text, part) in
            [("x", "NAME=VALUE"), ("=1", "no name"), ("9x=1", "no name"), ("messages=1", "ropex itself")]
        {
            assert!(parse_variable(text).unwrap_err().contains(part), "{text}");
        }
    }
}
