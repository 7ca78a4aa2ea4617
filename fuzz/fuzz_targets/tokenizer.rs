//! A tokenizer.json, or a GGUF file with a vocabulary: read it, then write and read texts.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ropex::checkpoint::gguf::GgufFile;
use ropex::checkpoint::tokenizer::{Bos, Markers, Sidecar, Tokenizer};
use ropex_fuzz::TEXTS;

fuzz_target!(|bytes: &[u8]| {
    ropex_fuzz::in_proportion(bytes.len(), 0, || {
        let read = if bytes.starts_with(b"GGUF") {
            let Ok(file) = GgufFile::from_bytes(bytes.to_vec(), "m.gguf") else {
                return;
            };
            Tokenizer::from_gguf(file.metadata())
        } else {
            Tokenizer::from_tokenizer_json(bytes, &Sidecar::default())
        };
        match read {
            Ok(tokenizer) => texts(&tokenizer),
            Err(error) => drop(error.to_string()),
        }
    });
});

fn texts(tokenizer: &Tokenizer) {
    for text in TEXTS {
        for markers in [Markers::Text, Markers::Special] {
            let Ok(ids) = tokenizer.encode(text, Bos::Auto, markers).map_err(|error| error.to_string()) else {
                continue;
            };
            assert!(ids.iter().all(|id| (*id as usize) < tokenizer.vocab_size()));
            let whole = tokenizer.decode(&ids, false).expect("own ids are known");
            let mut stream = tokenizer.stream(false);
            let mut streamed: String =
                ids.iter().map(|id| stream.push(*id).expect("own ids are known")).collect();
            streamed += &stream.finish();
            assert_eq!(streamed, whole);
        }
    }
    assert!(tokenizer.decode(&[u32::MAX], true).is_err());
}
