//! Small templates in the styles of published models.

use std::collections::BTreeMap;

use serde_json::json;

use super::{ChatTemplate, ChatTemplateError, Message, RenderOptions};
use crate::checkpoint::gguf::{Metadata, Value};

/// 2024-07-26 12:34:56 UTC.
const NOW: i64 = 1_721_997_296;

fn message(role: &str, content: &str) -> Message {
    Message { role: role.into(), content: content.into() }
}

fn options() -> RenderOptions<'static> {
    RenderOptions {
        bos_token: "<s>",
        eos_token: "</s>",
        add_generation_prompt: true,
        now_unix_s: NOW,
        variables: BTreeMap::new(),
    }
}

fn conversation() -> Vec<Message> {
    vec![message("system", " Be brief. "), message("user", "Hi"), message("assistant", "Yes?")]
}

fn render(source: &str, messages: &[Message]) -> Result<String, ChatTemplateError> {
    ChatTemplate::new(source).unwrap().render(messages, &options())
}

/// ChatML: blocks on lines of their own, trimmed as transformers trims them.
const CHATML: &str = "{% for m in messages %}
    {% if m.role not in ['system', 'user', 'assistant'] %}
        {{ raise_exception('unknown role ' ~ m.role) }}
    {% endif %}
{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>' }}
{% endfor %}
{% if add_generation_prompt %}
<|im_start|>assistant
{% endif %}";

#[test]
fn d110_blocks_are_trimmed_as_transformers_trims_them() {
    assert_eq!(
        render(CHATML, &[message("user", "Hi")]).unwrap(),
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    );
}

#[test]
fn d110_a_raised_exception_is_the_templates_own_refusal() {
    let error = render(CHATML, &[message("tool", "Hi")]).unwrap_err();
    assert_eq!(error.to_string(), "the chat template refuses these messages: unknown role tool");
}

/// Llama-3-like: writes BOS itself, strips, formats the date.
const LLAMA3: &str =
    "{{- bos_token }}{%- set today = strftime_now('%d %b %Y') if strftime_now is defined else '' %}
{%- for m in messages %}{{- '<|' + m.role.upper() + '|>' + (today if loop.first else '') }}
{{ m.content | trim }}{{- '<|eot_id|>' }}{%- endfor %}
{%- if add_generation_prompt %}{{- '<|ASSISTANT|>' }}{% endif %}";

#[test]
fn d108_d110_a_llama3_like_template_writes_bos_and_the_date() {
    assert_eq!(
        render(LLAMA3, &conversation()).unwrap(),
        "<s><|SYSTEM|>26 Jul 2024\nBe brief.<|eot_id|><|USER|>\nHi<|eot_id|><|ASSISTANT|>\nYes?<|eot_id|><|ASSISTANT|>"
    );
}

/// Zephyr-like: no BOS anywhere, so the tokenizer has to put it.
const ZEPHYR: &str = "{% for m in messages %}
{% if m['role'] == 'user' %}
{{ '<|user|>\n' + m['content'] + eos_token }}
{% elif m['role'] == 'assistant' %}
{{ '<|assistant|>\n' + m['content'] + eos_token }}
{% endif %}
{% if loop.last and add_generation_prompt %}
{{ '<|assistant|>' }}
{% endif %}
{% endfor %}";

#[test]
fn d109_a_zephyr_like_template_leaves_bos_to_the_tokenizer() {
    assert_eq!(render(ZEPHYR, &conversation()[1..2]).unwrap(), "<|user|>\nHi</s>\n<|assistant|>\n");
}

/// Mistral-like: a system text folded into the user's turn, a namespace, loop controls.
const MISTRAL: &str = "{%- if messages[0].role == 'system' %}{% set system = messages[0].content.strip() + '\n\n' %}
{%- set rest = messages[1:] %}{% else %}{% set system = '' %}{% set rest = messages %}{% endif -%}
{%- set ns = namespace(turns=0) %}{{ bos_token }}
{%- for m in rest %}{% if m.content.startswith('#') %}{% continue %}{% endif %}{% if ns.turns == 2 %}{% break %}{% endif %}
{%- set ns.turns = ns.turns + 1 %}{% if m.role == 'user' %}{{ '[INST] ' ~ (system if loop.first) ~ m.content ~ ' [/INST]' }}
{%- else %}{{ ' ' ~ m.content.split('</think>')[-1].lstrip() ~ eos_token }}{% endif %}{% endfor %}";

#[test]
fn d110_a_mistral_like_template_uses_python_methods_namespaces_and_loop_controls() {
    let mut messages = conversation();
    messages[2].content = "<think>Hm</think>\n\nYes?".into();
    messages.insert(2, message("user", "# a note"));
    messages.push(message("user", "More"));
    assert_eq!(render(MISTRAL, &messages).unwrap(), "<s>[INST] Be brief.\n\nHi [/INST] Yes?</s>");
}

/// With training marks and JSON.
const TOOLS: &str = "{% for m in messages %}{% generation %}{{ m | tojson }}{% endgeneration %}{% endfor %}
{{ {'b': [1, 2.5, none, true], 'a': 'é<&\"'} | tojson(indent=2) }}
{{ [] | tojson }}{{ {'z': 1, 'y': {}} | tojson(sort_keys=true) }}
{%- if tools is not none %} tools {% endif %}{% if enable_thinking is defined and not enable_thinking %}<think></think>{% endif %}";

#[test]
fn d110_tojson_writes_what_python_writes_and_generation_marks_vanish() {
    let mut options = options();
    options.variables.insert("enable_thinking".into(), json!(false));
    let text = ChatTemplate::new(TOOLS).unwrap().render(&[message("user", "a\n\u{1}/")], &options).unwrap();
    assert_eq!(
        text,
        "{\"role\": \"user\", \"content\": \"a\\n\\u0001/\"}\
         {\n  \"b\": [\n    1,\n    2.5,\n    null,\n    true\n  ],\n  \"a\": \"é<&\\\"\"\n}\n[]{\"y\": {}, \"z\": 1}<think></think>"
    );
}

/// Phi-like macro and a date before 1970.
const MACRO: &str = "{% macro turn(m) %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endmacro %}
{% for m in messages | selectattr('role', 'equalto', 'user') | list %}{{ turn(m) }}{% endfor %}{{ strftime_now('%Y-%m-%d') }}";

#[test]
fn d110_the_time_is_given_from_outside() {
    let template = ChatTemplate::new(MACRO).unwrap();
    let at = |now_unix_s| template.render(&conversation(), &RenderOptions { now_unix_s, ..options() });
    assert_eq!(at(NOW).unwrap(), "<|user|>Hi<|end|>2024-07-26");
    assert_eq!(at(-1).unwrap(), "<|user|>Hi<|end|>1969-12-31");
    assert!(matches!(at(i64::MAX), Err(ChatTemplateError::Time(i64::MAX))));
}

#[test]
fn d110_errors_tell_the_line() {
    let error = ChatTemplate::new("a\n{% for %}").unwrap_err();
    assert!(matches!(error, ChatTemplateError::Syntax { line: 2, .. }), "{error}");
    for (source, expected) in [
        ("\n\n{{ nothing.at_all }}", 3),
        ("\n{{ messages[0].content.nonesuch() }}", 2),
        ("{{ strftime_now('%!') }}", 1),
        ("{{ nothing | tojson }}", 1),
        ("{{ 1 | tojson(compact=true) }}", 1),
        ("{% include 'other' %}", 1),
    ] {
        let error = render(source, &conversation()).unwrap_err();
        assert!(
            matches!(error, ChatTemplateError::Render { line, .. } if line == expected),
            "{source}: {error:?}"
        );
    }
}

#[test]
fn hostile_templates_end() {
    let loops = "{% for a in range(99999) %}{% for b in range(99999) %}{{ a * b }}{% endfor %}{% endfor %}";
    assert!(matches!(render(loops, &[]), Err(ChatTemplateError::TooExpensive)));
    let doubling = "{% set ns = namespace(x='0123456789abcdef') %}{% for i in range(60) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}";
    assert!(matches!(render(doubling, &[]), Err(ChatTemplateError::TooExpensive)));
    assert!(render("{{ 'x' * 99999999999 }}", &[]).is_err());
    assert!(render("{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}", &[]).is_err());
    assert!(ChatTemplate::new(&"{% if true %}".repeat(10_000)).is_err());
    assert!(ChatTemplate::new(&format!("{{{{ {}1{} }}}}", "(".repeat(50_000), ")".repeat(50_000))).is_err());
    assert!(matches!(ChatTemplate::new(&" ".repeat(1 << 21)), Err(ChatTemplateError::TooLong(_))));
    let nested = "{% set ns = namespace(x=[]) %}{% for i in range(5000) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x | tojson }}";
    assert!(render(nested, &[]).is_err());
}

#[test]
fn the_template_is_found_where_models_keep_it() {
    let source = |config: serde_json::Value| {
        ChatTemplate::from_files(None, &[Some(&config)]).map(|t| t.map(|t| t.source().to_owned()))
    };
    assert_eq!(source(json!({"chat_template": "a"})).unwrap().as_deref(), Some("a"));
    let list =
        json!({"chat_template": [{"name": "rag", "template": "r"}, {"name": "default", "template": "d"}]});
    assert_eq!(source(list.clone()).unwrap().as_deref(), Some("d"));
    assert_eq!(ChatTemplate::from_files(Some("j"), &[Some(&list)]).unwrap().unwrap().source(), "j");
    assert_eq!(source(json!({"chat_template": null})).unwrap(), None);
    assert!(ChatTemplate::from_files(None, &[None, None]).unwrap().is_none());
    let processor = json!({"chat_template": "p"});
    let found = ChatTemplate::from_files(None, &[Some(&json!({"chat_template": null})), Some(&processor)]);
    assert_eq!(found.unwrap().unwrap().source(), "p");
    let error = source(json!({"chat_template": [{"name": "rag", "template": "r"}]})).unwrap_err();
    assert_eq!(error.to_string(), "the chat templates are named `rag`; none is `default`");
    assert!(matches!(source(json!({"chat_template": 7})), Err(ChatTemplateError::Shape(_))));
    assert!(matches!(source(json!({"chat_template": [7]})), Err(ChatTemplateError::Shape(_))));

    let meta = |value| Metadata::from_entries("m", [("tokenizer.chat_template".to_owned(), value)]).unwrap();
    let found = ChatTemplate::from_gguf(&meta(Value::String("g".into()))).unwrap().unwrap();
    assert_eq!(found.source(), "g");
    assert!(matches!(ChatTemplate::from_gguf(&meta(Value::U8(1))), Err(ChatTemplateError::Metadata(_))));
    assert!(ChatTemplate::from_gguf(&Metadata::default()).unwrap().is_none());
}

#[test]
fn a_template_may_stand_in_a_file_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let open = |name: &str, content: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, content).unwrap();
        ChatTemplate::open(&path)
    };
    assert_eq!(open("a.jinja", "{{ 1 }}").unwrap().source(), "{{ 1 }}");
    assert_eq!(open("a.json", "{\"chat_template\": \"{{ 2 }}\"}").unwrap().source(), "{{ 2 }}");
    for content in ["{{ 1 }}", "[]", "{}", "{\"chat_template\": null}"] {
        let error = open("bad.json", content).unwrap_err();
        assert!(matches!(error, ChatTemplateError::NoTemplate(_)), "{error}");
    }
    assert!(matches!(open("bad.jinja", "{% if %}"), Err(ChatTemplateError::Syntax { .. })));
    std::fs::write(folder.path().join("latin1.jinja"), [0xe9]).unwrap();
    assert!(matches!(
        ChatTemplate::open(&folder.path().join("latin1.jinja")),
        Err(ChatTemplateError::Read(_))
    ));
    let error = ChatTemplate::open(&folder.path().join("none.jinja")).unwrap_err();
    assert!(error.to_string().contains("does not exist"), "{error}");
}
