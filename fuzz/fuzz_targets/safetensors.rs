//! A folder of safetensors in memory: index, config, weights.
//!
//! The input is four parts with a zero byte between: index (may be empty), config, header, data. The length in front
//! of the header is made to fit, so that changes reach what lies behind it; without zero bytes the input is one whole file.
#![no_main]

use std::collections::BTreeMap;
use std::path::Path;

use libfuzzer_sys::fuzz_target;
use ropex::checkpoint::rope::{RopeOverrides, in_force};
use ropex::checkpoint::safetensors::{SINGLE_FILE, SafetensorsFolder};
use ropex::checkpoint::{Checkpoint, HfConfig};
use ropex::engine::KvType;
use ropex::model::load::{LoadOptions, load};
use ropex::model::{DecoderOptions, DynamicPolicy, ModelConfig, ModelError, Want};

/// Tokens that are run through a model that loads.
const TOKENS: [u32; 3] = [0, 1, 2];

fuzz_target!(|bytes: &[u8]| {
    ropex_fuzz::in_proportion(bytes.len(), 0, || {
        let parts: Vec<&[u8]> = bytes.splitn(4, |byte| *byte == 0).collect();
        let (index, config, file) = match parts[..] {
            [index, config, header, data] => {
                let length = (header.len() as u64).to_le_bytes();
                (index, config, [&length, header, data].concat())
            }
            _ => (&b""[..], &b"{}"[..], bytes.to_vec()),
        };
        open(index, config, file);
    });
});

fn open(index: &[u8], config: &[u8], file: Vec<u8>) {
    let mut files = BTreeMap::new();
    let index = (!index.is_empty()).then_some(index);
    if let Some(Ok(index)) = index.map(serde_json::from_slice::<serde_json::Value>)
        && let Some(map) = index.get("weight_map").and_then(|map| map.as_object())
    {
        let names = map.values().filter_map(|name| name.as_str()).take(4);
        files.extend(names.map(|name| (name.to_owned(), file.clone())));
    }
    files.insert(SINGLE_FILE.to_owned(), file);
    let Ok(folder) = SafetensorsFolder::from_memory(Path::new("m"), index, files).map_err(|e| e.to_string())
    else {
        return;
    };
    assert!(folder.paths().all(|path| path.starts_with("m") && !path.to_string_lossy().contains("..")));
    for name in folder.tensor_names() {
        let view = folder.tensor(name).expect("a listed tensor exists");
        assert_eq!(view.dtype.size_bytes(&view.shape), Some(view.bytes.len()));
        view.to_f32();
    }
    let Ok(config) = HfConfig::from_slice(config, Path::new("m/config.json")) else {
        return;
    };
    let checkpoint = Checkpoint::from_safetensors(folder, config);
    if let Ok(config) = ModelConfig::read(&checkpoint) {
        let _ = run(&checkpoint, config);
    }
}

/// Loads the model and runs a few tokens.
fn run(checkpoint: &Checkpoint, config: ModelConfig) -> Result<(), ModelError> {
    let rope = in_force(&config.rope, &RopeOverrides::default(), TOKENS.len())?;
    let decoder =
        DecoderOptions { kv_type: KvType::F32, prefill_chunk: TOKENS.len(), dynamic: DynamicPolicy::Planned };
    let options = LoadOptions { threads: 1, decoder, ..LoadOptions::default() };
    let loaded = load(checkpoint, config, rope, &options)?;
    let mut session = loaded.model.session(TOKENS.len())?;
    session.extend(&TOKENS, Want::LastLogits, &mut |_| ())?;
    Ok(())
}
