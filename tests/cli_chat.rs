//! Chat templates and raw prompts of `ropex generate`, on committed checkpoints.

mod common;

use common::command::{ropex, stderr};
use common::open;
use ropex::checkpoint::chat_template::{ChatTemplate, Message, RenderOptions};
use ropex::checkpoint::tokenizer::{Bos, Markers};
use serde_json::Value;

/// Exit code, standard output and standard error of `ropex generate` on the tiny Llama.
fn generate(more: &[&str]) -> (i32, String, String) {
    let base = ["generate", "--model", "tiny/llama", "--max-new-tokens", "2", "--allow-beyond"];
    let output = ropex().args(base).args(more).output().unwrap();
    let stdout = String::from_utf8(output.stdout.clone()).unwrap();
    (output.status.code().unwrap(), stdout, stderr(&output))
}

fn prompt_tokens(more: &[&str]) -> u64 {
    let (code, stdout, stderr) = generate(&[more, &["--format", "json"]].concat());
    assert_eq!(code, 0, "{stderr}");
    let object: Value = serde_json::from_str(&stdout).unwrap();
    object["result"]["prompt_tokens"].as_u64().unwrap()
}

/// A template in a file of its own.
struct Template(tempfile::TempDir);

impl Template {
    fn new(source: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("t.jinja"), source).unwrap();
        Self(folder)
    }

    fn path(&self) -> String {
        self.0.path().join("t.jinja").display().to_string()
    }
}

/// The ids of a conversation of one message, as the command makes them.
fn ids(source: &str) -> Vec<u32> {
    let tokenizer = open("llama").tokenizer(None).unwrap();
    let options = RenderOptions { bos_token: "<s>", eos_token: "</s>", ..RenderOptions::default() };
    let message = Message { role: "user".to_owned(), content: "hi".to_owned() };
    let text = ChatTemplate::new(source).unwrap().render(&[message], &options).unwrap();
    tokenizer.encode(&text, Bos::Auto, Markers::Special).unwrap()
}

const BOS: u32 = 0;

/// D108: the template writes BOS and the tokenizer adds BOS: one.
#[test]
fn d108_a_template_that_writes_bos_gives_one_bos() {
    let with = ids("{{- bos_token }}{% for m in messages %}{{ '<|im_start|>' + m.content }}{% endfor %}");
    assert_eq!(with.iter().filter(|id| **id == BOS).count(), 1);
    assert_eq!(with[..2], [BOS, 2]);
}

/// D109: the template leaves BOS to the tokenizer: one as well.
#[test]
fn d109_a_template_that_writes_no_bos_gives_one_bos() {
    let without = ids("{% for m in messages %}{{ '<|im_start|>' + m.content + eos_token }}{% endfor %}");
    assert_eq!(without.iter().filter(|id| **id == BOS).count(), 1);
    assert_eq!((without[..2].to_vec(), without.last()), (vec![BOS, 2], Some(&1)));
}

#[test]
fn a_template_from_a_file_gets_the_variables_of_the_command_line() {
    let source = "{{ messages[0].content }}{% if think is not defined %}{{ 'x' * 9 }}{% elif think %}{{ 'y' * 40 }}{% endif %}";
    let template = Template::new(source);
    let path = template.path();
    let chat = ["--chat", "--prompt", "hi", "--chat-template", &path];
    let count = |more: &[&str]| prompt_tokens(&[&chat[..], more].concat());
    let (absent, off) = (count(&[]), count(&["--template-var", "think=false"]));
    let on = count(&["--template-var", "think=true"]);
    assert!(off < absent && absent < on, "{off} {absent} {on}");
    let (_, _, stderr) = generate(&[&chat[..], &["-v", "--template-var", "think=false"]].concat());
    assert!(stderr.contains("the chat template made this prompt:\nhi\n"), "{stderr}");
}

/// D110: a raised error is shown as the template's own, and nothing is generated.
#[test]
fn d110_a_raised_exception_is_shown_as_such() {
    let template = Template::new("{{ raise_exception('roles must\u{1b}[31m alternate') }}");
    let (code, stdout, stderr) = generate(&["--chat", "--prompt", "hi", "--chat-template", &template.path()]);
    assert_eq!((code, stdout.as_str()), (1, ""));
    assert!(stderr.contains("the chat template refuses these messages: roles must"), "{stderr}");
    assert!(!stderr.contains('\u{1b}'), "{stderr:?}");
    let template = Template::new("\n{{ messages.nope() }}");
    let (code, _, stderr) = generate(&["--chat", "--prompt", "hi", "--chat-template", &template.path()]);
    assert!(code == 1 && stderr.contains("the chat template failed, line 2"), "{stderr}");
}

/// D110: `--raw` takes a prompt that is already rendered: markers are control tokens, and BOS stands there once.
#[test]
fn d110_a_raw_prompt_goes_through_untouched() {
    let prompt = "<|im_start|>user<|im_end|>";
    let plain = prompt_tokens(&["--prompt", prompt]);
    let raw = prompt_tokens(&["--raw", "--prompt", prompt]);
    assert_eq!(raw, prompt_tokens(&["--raw", "--prompt", &format!("<s>{prompt}")]));
    assert_eq!(raw, prompt_tokens(&["--prompt", "user"]) + 2);
    assert!(plain > raw, "{plain} {raw}");
}

#[test]
fn what_cannot_be_is_refused_by_name() {
    for (more, part) in [
        (&["--raw", "--chat"][..], "cannot be used with"),
        (&["--chat-template", "x"], "--chat"),
        (&["--chat", "--template-var", "messages=1"], "`messages` is set by ropex itself"),
        (&["--chat", "--template-var", "x"], "NAME=VALUE"),
    ] {
        let (code, _, stderr) = generate(&[&["--prompt", "hi"], more].concat());
        assert!(code == 2 && stderr.contains(part), "{stderr}");
    }
    let (code, _, stderr) = generate(&["--prompt", "hi", "--chat", "--chat-template", "none.jinja"]);
    assert!(code == 1 && stderr.contains("`none.jinja` does not exist"), "{stderr}");
}
