//! A GGUF file in memory: from its bytes to the first logits.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ropex::checkpoint::Checkpoint;
use ropex::checkpoint::gguf::GgufFile;
use ropex::checkpoint::rope::{RopeOverrides, in_force};
use ropex::engine::KvType;
use ropex::model::load::{LoadOptions, load};
use ropex::model::memory::MemoryPlan;
use ropex::model::{DecoderOptions, DynamicPolicy, ModelConfig, ModelError, Want};

/// Tokens that are run through a model that loads.
const TOKENS: [u32; 3] = [0, 1, 2];

fuzz_target!(|bytes: &[u8]| {
    ropex_fuzz::in_proportion(bytes.len(), 0, || {
        let Ok(file) = GgufFile::from_bytes(bytes.to_vec(), "m.gguf").map_err(|error| error.to_string()) else {
            return;
        };
        look_at(&file);
        let checkpoint = Checkpoint::from_gguf(file);
        if let Ok(config) = ModelConfig::read(&checkpoint) {
            let _ = run(&checkpoint, config);
        }
    });
});

/// Reads every entry as every type, and every tensor.
fn look_at(file: &GgufFile) {
    let meta = file.metadata();
    for (key, value) in meta.iter() {
        value.to_string();
        let _ = (meta.usize(key), meta.f64(key), meta.bool(key), meta.str(key));
        let _ = (meta.strings(key), meta.f32s(key), meta.i32s(key), meta.usizes(key));
    }
    for tensor in file.tensors() {
        let view = file.tensor(&tensor.name).expect("a listed tensor exists");
        assert_eq!(view.dtype.size_bytes(&view.shape), Some(view.bytes.len()));
        view.to_f32();
    }
}

/// Loads the model and runs a few tokens.
fn run(checkpoint: &Checkpoint, config: ModelConfig) -> Result<(), ModelError> {
    let rope = in_force(&config.rope, &RopeOverrides::default(), TOKENS.len())?;
    let decoder =
        DecoderOptions { kv_type: KvType::F32, prefill_chunk: TOKENS.len(), dynamic: DynamicPolicy::Planned };
    let options = LoadOptions { threads: 1, decoder, ..LoadOptions::default() };
    MemoryPlan::new(checkpoint, &config, &rope.spec, &options, 1 << 40).total_bytes();
    let loaded = load(checkpoint, config, rope, &options)?;
    let mut session = loaded.model.session(TOKENS.len())?;
    session.extend(&TOKENS, Want::LastLogits, &mut |_| ())?;
    Ok(())
}
