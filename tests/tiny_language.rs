//! Tokenizers and the chat template of the tiny checkpoints against transformers.

mod common;

use common::{fixture, open};
use ropex::checkpoint::chat_template::{Message, RenderOptions};
use ropex::checkpoint::tokenizer::{Bos, Markers};
use serde_json::Value;

fn golden() -> Value {
    serde_json::from_str(&std::fs::read_to_string(fixture("tiny/golden.json")).unwrap()).unwrap()
}

fn ids(value: &Value) -> Vec<u32> {
    value.as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect()
}

/// D016: a tokenizer rebuilt from GGUF metadata gives the ids of tokenizer.json, and both those of transformers.
#[test]
fn d016_ids_of_both_formats_equal_transformers() {
    for case in golden()["tokenizer"].as_array().unwrap() {
        let folder = case["folder"].as_str().unwrap();
        let text = case["text"].as_str().unwrap();
        for name in [folder.to_string(), format!("{folder}.gguf")] {
            let tokenizer = open(&name).tokenizer(None).unwrap();
            let found = |bos| tokenizer.encode(text, bos, Markers::Special).unwrap();
            assert_eq!(found(Bos::Auto), ids(&case["ids"]), "{name}: {text:?}");
            assert_eq!(found(Bos::Never), ids(&case["ids_without_bos"]), "{name}: {text:?}");
            // Qwen's tokenizer composes characters first, so only the others give the text back as it was.
            if folder != "qwen2" {
                assert_eq!(tokenizer.decode(&found(Bos::Never), false).unwrap(), text, "{name}");
            }
        }
    }
}

#[test]
fn the_chat_template_renders_what_transformers_renders() {
    let golden = golden();
    let chat = &golden["chat"];
    let message = |message: &Value| Message {
        role: message["role"].as_str().unwrap().to_string(),
        content: message["content"].as_str().unwrap().to_string(),
    };
    let messages: Vec<Message> = chat["messages"].as_array().unwrap().iter().map(message).collect();
    let folder = chat["folder"].as_str().unwrap();
    for name in [folder.to_string(), format!("{folder}.gguf")] {
        let template = open(&name).chat_template().unwrap().unwrap();
        let options = RenderOptions {
            add_generation_prompt: chat["add_generation_prompt"].as_bool().unwrap(),
            ..RenderOptions::default()
        };
        assert_eq!(template.render(&messages, &options).unwrap(), chat["text"].as_str().unwrap(), "{name}");
    }
}

/// D017: every marker of a rendered conversation is one token.
#[test]
fn d017_markers_are_single_tokens() {
    for name in ["qwen2", "qwen2.gguf"] {
        let tokenizer = open(name).tokenizer(None).unwrap();
        let count = |text: &str, markers| tokenizer.encode(text, Bos::Never, markers).unwrap().len();
        assert_eq!(count("<|im_start|><|im_end|>", Markers::Special), 2, "{name}");
        assert!(count("<|im_start|><|im_end|>", Markers::Text) > 2, "{name}");
    }
}
