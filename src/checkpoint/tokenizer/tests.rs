//! Behaviour of [`Tokenizer`] on small vocabularies made here.

use std::collections::BTreeSet;

use serde_json::{Value as Json, json};

use super::{Bos, Markers, Sidecar, Tokenizer, TokenizerError};
use crate::checkpoint::gguf::{Array, Metadata, Value};

/// GPT-2's spelling of every byte, in byte order.
fn alphabet() -> Vec<String> {
    let mut spelling = vec![String::new(); 256];
    for code in 0..0x200 {
        if let Some(c) = char::from_u32(code)
            && let Some(byte) = super::pieces::char_to_byte(c)
        {
            spelling[usize::from(byte)] = c.to_string();
        }
    }
    spelling
}

/// 256 bytes, `he` = 256, then the control tokens from 257.
fn byte_level_json(control: &[&str]) -> Json {
    let mut vocab: serde_json::Map<String, Json> =
        alphabet().into_iter().zip(0u32..).map(|(token, id)| (token, json!(id))).collect();
    vocab.insert("he".into(), json!(256));
    let added: Vec<Json> = control
        .iter()
        .zip(257u32..)
        .map(|(t, id)| {
            json!({"id": id, "content": t, "single_word": false, "lstrip": false, "rstrip": false,
                   "normalized": false, "special": true})
        })
        .collect();
    json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": added, "normalizer": null,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": true},
        "post_processor": null, "decoder": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false},
        "model": {"type": "BPE", "vocab": vocab, "merges": ["h e"]}
    })
}

fn with_bos(mut file: Json, bos: &str, id: u32) -> Json {
    file["post_processor"] = json!({"type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": bos, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
        "special_tokens": {bos: {"id": bos, "ids": [id], "tokens": [bos]}}});
    file
}

fn open(file: &Json, sidecar: &Sidecar<'_>) -> Result<Tokenizer, TokenizerError> {
    Tokenizer::from_tokenizer_json(file.to_string().as_bytes(), sidecar)
}

fn texts(list: &[&str]) -> Value {
    Value::Array(Array::String(list.iter().map(|t| (*t).to_owned()).collect()))
}

/// Metadata of a byte-level vocabulary as `byte_level_json` lays it out, after `change`.
fn byte_level_gguf(control: &[&str], change: impl FnOnce(&mut Vec<(String, Value)>)) -> Metadata {
    let mut tokens = alphabet();
    tokens.push("he".into());
    let mut types = vec![1; tokens.len()];
    tokens.extend(control.iter().map(|t| (*t).to_owned()));
    types.resize(tokens.len(), 3);
    let mut entries = vec![
        ("tokenizer.ggml.model".to_owned(), Value::String("gpt2".into())),
        ("tokenizer.ggml.pre".to_owned(), Value::String("gpt-2".into())),
        ("tokenizer.ggml.tokens".to_owned(), Value::Array(Array::String(tokens))),
        ("tokenizer.ggml.token_type".to_owned(), Value::Array(Array::I32(types))),
        ("tokenizer.ggml.merges".to_owned(), texts(&["h e"])),
    ];
    change(&mut entries);
    Metadata::from_entries("m.gguf", entries).unwrap()
}

fn set(entries: &mut Vec<(String, Value)>, key: &str, value: Value) {
    let key = format!("tokenizer.ggml.{key}");
    entries.retain(|(k, _)| *k != key);
    entries.push((key, value));
}

/// Sentencepiece-style: unknown, control, three bytes, then entries with scores.
fn spm_gguf(change: impl FnOnce(&mut Vec<(String, Value)>)) -> Metadata {
    let tokens = [
        "<unk>",
        "<s>",
        "</s>",
        "<0xF0>",
        "<0x9F>",
        "<0x99>",
        "<0x82>",
        "\u{2581}",
        "a",
        "\u{2581}a",
        "\u{2581}a\u{2581}a",
    ];
    let scores = vec![0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, -9.0, -8.0, -1.0, -2.0];
    let mut entries = vec![
        ("tokenizer.ggml.model".to_owned(), Value::String("llama".into())),
        ("tokenizer.ggml.tokens".to_owned(), texts(&tokens)),
        ("tokenizer.ggml.scores".to_owned(), Value::Array(Array::F32(scores))),
        (
            "tokenizer.ggml.token_type".to_owned(),
            Value::Array(Array::I32(vec![2, 3, 3, 6, 6, 6, 6, 1, 1, 1, 1])),
        ),
        ("tokenizer.ggml.bos_token_id".to_owned(), Value::U32(1)),
        ("tokenizer.ggml.eos_token_id".to_owned(), Value::U32(2)),
    ];
    change(&mut entries);
    Metadata::from_entries("m.gguf", entries).unwrap()
}

#[test]
fn d108_bos_stands_at_the_start_exactly_once() {
    let file = with_bos(byte_level_json(&["<s>", "</s>"]), "<s>", 257);
    let tokenizer = open(&file, &Sidecar::default()).unwrap();
    assert_eq!((tokenizer.bos(), tokenizer.adds_bos()), (Some(257), true));
    let encode = |text, bos, markers| tokenizer.encode(text, bos, markers).unwrap();
    assert_eq!(encode("he", Bos::Auto, Markers::Text), [257, 256]);
    assert_eq!(encode("<s>he", Bos::Auto, Markers::Special), [257, 256]);
    assert_eq!(encode("<s>he", Bos::Always, Markers::Special), [257, 256]);
    assert_eq!(encode("he", Bos::Never, Markers::Special), [256]);
    assert_eq!(encode("<s>he", Bos::Never, Markers::Special), [257, 256]);
    assert_eq!(encode("", Bos::Auto, Markers::Text), [257]);
    // As text the marker is four ordinary tokens, so BOS is still wanted.
    assert_eq!(encode("<s>", Bos::Auto, Markers::Text), [257, 60, 115, 62]);
}

#[test]
fn tokenizer_config_decides_over_the_post_processor() {
    let file = byte_level_json(&["<s>", "</s>"]);
    let open_with = |file: &Json, config: &Json| {
        open(file, &Sidecar { tokenizer_config: Some(config), ..Sidecar::default() }).unwrap()
    };
    let silent = open_with(&file, &json!({"bos_token": "<s>", "eos_token": {"content": "</s>"}}));
    assert_eq!((silent.bos(), silent.adds_bos()), (Some(257), false));
    assert_eq!(silent.encode("he", Bos::Always, Markers::Text).unwrap(), [257, 256]);
    assert!(silent.is_eos(258));
    let asked = open_with(&file, &json!({"bos_token": {"content": "<s>"}, "add_bos_token": true}));
    assert!(asked.adds_bos());
    let off =
        open_with(&with_bos(file.clone(), "<s>", 257), &json!({"bos_token": "<s>", "add_bos_token": false}));
    assert_eq!(off.encode("he", Bos::Auto, Markers::Text).unwrap(), [256]);
    let none = open_with(&file, &json!({"bos_token": null, "add_bos_token": true}));
    assert_eq!(none.encode("he", Bos::Auto, Markers::Text).unwrap(), [256]);
    assert!(matches!(none.encode("he", Bos::Always, Markers::Text), Err(TokenizerError::NoBos)));
    let config = json!({"bos_token": "<nonesuch>"});
    let error = open(&file, &Sidecar { tokenizer_config: Some(&config), ..Sidecar::default() }).unwrap_err();
    assert!(error.to_string().contains("`bos_token` in tokenizer_config.json is `<nonesuch>`"), "{error}");
}

#[test]
fn d026_end_ids_are_the_union_of_every_source() {
    let file = byte_level_json(&["<|im_end|>", "</s>", "<x>", "<y>"]);
    let (config, generation) = (json!({"eos_token_id": 258}), json!({"eos_token_id": [259, 260]}));
    let tokenizer_config = json!({});
    let sidecar = Sidecar {
        tokenizer_config: Some(&tokenizer_config),
        config: Some(&config),
        generation_config: Some(&generation),
    };
    let tokenizer = open(&file, &sidecar).unwrap();
    assert_eq!(tokenizer.eos(), &BTreeSet::from([257, 258, 259, 260]));
    assert_eq!(tokenizer.declared_eos(), Some(258));
    let tokenizer_config = json!({"eos_token": "<y>"});
    let sidecar = Sidecar { tokenizer_config: Some(&tokenizer_config), ..sidecar };
    assert_eq!(open(&file, &sidecar).unwrap().declared_eos(), Some(260));
    let config = json!({"eos_token_id": 261});
    let error = open(&file, &Sidecar { config: Some(&config), ..Sidecar::default() }).unwrap_err();
    assert_eq!(
        error.to_string(),
        "`eos_token_id` in config.json is `261`, which is not a token id (the vocabulary has 261 tokens)"
    );
}

#[test]
fn truncation_and_padding_in_the_file_are_not_followed() {
    let mut file = byte_level_json(&["<p>"]);
    file["truncation"] =
        json!({"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0});
    file["padding"] = json!({"strategy": {"Fixed": 9}, "direction": "Right", "pad_to_multiple_of": null,
        "pad_id": 257, "pad_type_id": 0, "pad_token": "<p>"});
    let tokenizer = open(&file, &Sidecar::default()).unwrap();
    assert_eq!(tokenizer.encode("abcd", Bos::Auto, Markers::Text).unwrap().len(), 4);
}

#[test]
fn d027_a_character_split_over_tokens_is_streamed_whole() {
    let tokenizer = open(&byte_level_json(&["<s>"]), &Sidecar::default()).unwrap();
    let mut stream = tokenizer.stream(true);
    let mut seen = Vec::new();
    for id in [97, 0xF0, 0x9F, 257, 0x99, 0x82, 0xFF, 98, 0xC3] {
        seen.push(stream.push(id).unwrap());
    }
    assert_eq!(seen, ["a", "", "", "", "", "🙂", "\u{fffd}", "b", ""]);
    assert_eq!(stream.finish(), "\u{fffd}");
    assert!(matches!(
        tokenizer.decode(&[258], true),
        Err(TokenizerError::UnknownId { id: 258, vocab_size: 258 })
    ));
}

#[test]
fn a_byte_without_a_token_is_an_error_with_its_place() {
    let mut file = byte_level_json(&[]);
    file["model"]["vocab"].as_object_mut().unwrap().remove(&alphabet()[4]);
    let tokenizer = open(&file, &Sidecar::default()).unwrap();
    let error = tokenizer.encode("ab\u{4}", Bos::Auto, Markers::Text).unwrap_err();
    assert!(matches!(error, TokenizerError::MissingByte { byte: 4, offset: 2 }), "{error}");
}

#[test]
fn d015_d028_a_blank_at_the_start_is_dropped_once_and_kept_in_a_continuation() {
    let tokenizer = Tokenizer::from_gguf(&spm_gguf(|_| ())).unwrap();
    assert_eq!(tokenizer.encode("a a", Bos::Auto, Markers::Text).unwrap(), [1, 10]);
    // The first token holds two words: the blank between them stays.
    assert_eq!(tokenizer.decode(&[10, 9], true).unwrap(), "a a a");
    assert_eq!(tokenizer.decode(&[1, 10], true).unwrap(), "a a");
    assert_eq!(tokenizer.stream_continuing(true).push(9).unwrap(), " a");
    let bytes = tokenizer.encode("🙂", Bos::Never, Markers::Text).unwrap();
    assert_eq!(bytes, [7, 3, 4, 5, 6]);
    let mut stream = tokenizer.stream(true);
    let pieces: Vec<String> = bytes.iter().map(|id| stream.push(*id).unwrap()).collect();
    assert_eq!(pieces, ["", "", "", "", "🙂"]);
}

#[test]
fn d017_gguf_flags_decide_about_bos_and_the_blank_before_text() {
    let off = spm_gguf(|e| {
        set(e, "add_bos_token", Value::Bool(false));
        set(e, "add_space_prefix", Value::Bool(false));
        set(e, "add_eos_token", Value::Bool(true));
    });
    let tokenizer = Tokenizer::from_gguf(&off).unwrap();
    assert_eq!(tokenizer.encode("a", Bos::Auto, Markers::Text).unwrap(), [8]);
    assert!(tokenizer.adds_eos() && tokenizer.warnings()[0].contains("add_eos_token"));
    let llama3 = |flag: Option<bool>| {
        let meta = byte_level_gguf(&["<|begin_of_text|>", "<|eot_id|>"], |e| {
            set(e, "pre", Value::String("llama-bpe".into()));
            set(e, "bos_token_id", Value::U32(257));
            if let Some(flag) = flag {
                set(e, "add_bos_token", Value::Bool(flag));
            }
        });
        Tokenizer::from_gguf(&meta).unwrap()
    };
    assert!(llama3(None).adds_bos() && llama3(None).is_eos(258));
    assert!(!llama3(Some(false)).adds_bos());
    assert_eq!(llama3(None).source(), "GGUF metadata, pre = llama-bpe");
}

#[test]
fn d017_control_tokens_of_a_gguf_are_one_id_each_in_a_template_and_text_in_a_corpus() {
    let tokenizer = Tokenizer::from_gguf(&byte_level_gguf(&["<|im_start|>", "<|im_end|>"], |_| ())).unwrap();
    let text = "<|im_start|>he<|im_end|>";
    assert_eq!(tokenizer.encode(text, Bos::Auto, Markers::Special).unwrap(), [257, 256, 258]);
    let plain = tokenizer.encode(text, Bos::Auto, Markers::Text).unwrap();
    assert!(plain.iter().all(|id| *id < 257));
    assert_eq!(tokenizer.decode(&plain, true).unwrap(), text);
    assert_eq!(tokenizer.decode(&[257, 256], true).unwrap(), "he");
    assert_eq!(tokenizer.token_text(258), Some("<|im_end|>"));
    assert_eq!(tokenizer.token_to_id("<|im_end|>"), Some(258));
}

#[test]
fn every_inconsistency_in_gguf_metadata_is_an_error_that_names_it() {
    let refusal = |change: fn(&mut Vec<(String, Value)>)| {
        Tokenizer::from_gguf(&byte_level_gguf(&["<s>"], change)).unwrap_err().to_string()
    };
    let spm_refusal = |change: fn(&mut Vec<(String, Value)>)| {
        Tokenizer::from_gguf(&spm_gguf(change)).unwrap_err().to_string()
    };
    let drop = |e: &mut Vec<(String, Value)>, key: &str| e.retain(|(k, _)| !k.ends_with(key));
    let cases = [
        (refusal(|e| set(e, "model", Value::String("bert".into()))), "tokenizer model `bert`"),
        (refusal(|e| set(e, "pre", Value::String("x".into()))), "`tokenizer.ggml.pre` is `x`"),
        (refusal(|e| set(e, "merges", texts(&["h"]))), "merge 0 `h`"),
        (refusal(|e| set(e, "token_type", Value::Array(Array::I32(vec![1])))), "has 1 entries, expected 258"),
        (refusal(|e| set(e, "token_type", Value::Array(Array::I32(vec![9; 258])))), "holds `9` for token 0"),
        (refusal(|e| set(e, "eos_token_id", Value::U32(258))), "`tokenizer.ggml.eos_token_id` is `258`"),
        (refusal(|e| set(e, "bos_token_id", Value::U32(u32::MAX))), "`tokenizer.ggml.bos_token_id` is"),
        (refusal(|e| set(e, "tokens", texts(&[]))), "the vocabulary has `0` tokens"),
        (
            spm_refusal(|e| set(e, "scores", Value::Array(Array::F32(vec![0.0])))),
            "has 1 entries, expected 11",
        ),
        (
            spm_refusal(|e| set(e, "scores", Value::Array(Array::F32(vec![f32::NAN; 11])))),
            "holds `NaN` for token 0",
        ),
        (
            spm_refusal(|e| set(e, "token_type", Value::Array(Array::I32(vec![6; 11])))),
            "holds `<unk>` for token 0",
        ),
        (spm_refusal(|e| set(e, "tokens", texts(&["a"; 11]))), "token `a` has the ids 0 and 1"),
    ];
    for (message, expected) in cases {
        assert!(message.contains(expected), "{message}");
    }
    for key in ["model", "tokens", "merges"] {
        let meta = byte_level_gguf(&["<s>"], |e| drop(e, key));
        assert!(
            matches!(Tokenizer::from_gguf(&meta), Err(TokenizerError::MissingKey(k)) if k.ends_with(key))
        );
    }
    assert!(matches!(
        Tokenizer::from_gguf(&spm_gguf(|e| drop(e, "scores"))),
        Err(TokenizerError::MissingKey(_))
    ));
    let wrong = byte_level_gguf(&["<s>"], |e| set(e, "tokens", Value::U32(1)));
    assert!(matches!(Tokenizer::from_gguf(&wrong), Err(TokenizerError::Metadata(_))));
}

#[test]
fn d016_a_missing_pre_tokenizer_or_token_type_is_a_warning() {
    let meta = byte_level_gguf(&["<s>"], |e| {
        e.retain(|(k, _)| !k.ends_with(".pre") && !k.ends_with("token_type"));
        set(e, "bos_token_id", Value::U32(257));
    });
    let tokenizer = Tokenizer::from_gguf(&meta).unwrap();
    assert_eq!(tokenizer.warnings().len(), 2);
    assert_eq!(tokenizer.encode("<s>", Bos::Auto, Markers::Special).unwrap(), [257]);
}

#[test]
fn hostile_json_is_an_error_not_a_panic() {
    let whole = with_bos(byte_level_json(&["<s>"]), "<s>", 257).to_string();
    for end in (0..whole.len()).step_by(97) {
        let cut = whole.get(..end).unwrap_or_default();
        assert!(Tokenizer::from_tokenizer_json(cut.as_bytes(), &Sidecar::default()).is_err());
    }
    let mut far = byte_level_json(&[]);
    far["model"]["vocab"]["zz"] = json!(u32::MAX);
    assert!(matches!(open(&far, &Sidecar::default()), Err(TokenizerError::VocabSize(_))));
    far["model"]["vocab"]["zz"] = json!(3_000_000);
    let error = open(&far, &Sidecar::default()).unwrap_err();
    assert!(matches!(error, TokenizerError::Holes { size: 3_000_001, tokens: 258 }), "{error}");
    let mut twice = byte_level_json(&[]);
    twice["model"]["vocab"]["zz"] = json!(5);
    assert!(matches!(open(&twice, &Sidecar::default()), Err(TokenizerError::DuplicateId { id: 5, .. })));
    let outside = with_bos(byte_level_json(&["<s>"]), "<s>", 9999);
    assert!(matches!(open(&outside, &Sidecar::default()), Err(TokenizerError::SpecialId { .. })));
}

/// D028: the library's Metaspace decoder drops every blank of the first token; only the one in front may go.
#[test]
fn d028_the_first_token_may_hold_two_words() {
    let mut file = json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
        "pre_tokenizer": {"type": "Metaspace", "replacement": "\u{2581}", "prepend_scheme": "first", "split": false},
        "post_processor": null,
        "decoder": {"type": "Metaspace", "replacement": "\u{2581}", "prepend_scheme": "first", "split": false},
        "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
            "vocab": {"\u{2581}": 0, "a": 1, "\u{2581}a": 2, "\u{2581}a\u{2581}a": 3},
            "merges": [["\u{2581}", "a"], ["\u{2581}a", "\u{2581}a"]]},
    });
    let tokenizer = open(&file, &Sidecar::default()).unwrap();
    assert_eq!(tokenizer.encode("a a", Bos::Auto, Markers::Text).unwrap(), [3]);
    assert_eq!(tokenizer.decode(&[3, 2], true).unwrap(), "a a a");
    file["decoder"]["prepend_scheme"] = "never".into();
    assert_eq!(open(&file, &Sidecar::default()).unwrap().decode(&[3], true).unwrap(), " a a");
}
