//! A chat template: parse it and render short conversations.
#![no_main]

use std::collections::BTreeMap;

use libfuzzer_sys::fuzz_target;
use ropex::checkpoint::chat_template::{ChatTemplate, Message, RenderOptions};

/// What the limit on steps lets a rendering make.
const RENDERED_BYTES: usize = 128 << 20;

fuzz_target!(|bytes: &[u8]| {
    let Ok(source) = std::str::from_utf8(bytes) else {
        return;
    };
    ropex_fuzz::in_proportion(bytes.len(), RENDERED_BYTES, || {
        let Ok(template) = ChatTemplate::new(source).map_err(|error| error.to_string()) else {
            return;
        };
        let options = RenderOptions {
            bos_token: "<s>",
            eos_token: "</s>",
            add_generation_prompt: true,
            now_unix_s: 1_721_997_296,
            variables: BTreeMap::from([("enable_thinking".to_owned(), false.into())]),
        };
        let messages = [("system", " Be brief. "), ("user", "Hi"), ("assistant", "<think>x</think>Yes?"), ("user", "")];
        let messages = messages.map(|(role, content)| Message { role: role.into(), content: content.into() });
        for count in [1, 4] {
            let _ = template.render(&messages[..count], &options).map_err(|error| error.to_string());
        }
    });
});
