//! A config.json, and rope dictionaries as `--rope-parameters` takes them.
//!
//! The input is a config; what follows a zero byte is a dictionary that replaces its scaling.
#![no_main]

use std::collections::BTreeMap;
use std::path::Path;

use libfuzzer_sys::fuzz_target;
use ropex::checkpoint::rope::{HeadLayout, RopeDeclaration, RopeOverrides, from_hf, in_force};
use ropex::checkpoint::safetensors::{SINGLE_FILE, SafetensorsFolder};
use ropex::checkpoint::{Checkpoint, HfConfig};
use ropex::model::ModelConfig;
use ropex::rope::{Pairing, Table, frequencies};

/// Lengths that a run is planned for: inside, at the edge of and beyond what configs declare.
const LENGTHS: [usize; 4] = [1, 4096, 1 << 20, usize::MAX];

fuzz_target!(|bytes: &[u8]| {
    ropex_fuzz::in_proportion(bytes.len(), 0, || {
        let (config, dictionary) = match bytes.iter().position(|byte| *byte == 0) {
            Some(at) => (&bytes[..at], &bytes[at + 1..]),
            None => (bytes, &b""[..]),
        };
        let Ok(config) = HfConfig::from_slice(config, Path::new("m/config.json")).map_err(|e| e.to_string())
        else {
            return;
        };
        let layout = HeadLayout { head_dim: 16, pairing: Pairing::HalfSplit };
        if let Ok(declared) = from_hf(config.map(), layout).map_err(|e| e.to_string()) {
            compute(&declared, dictionary);
        }
        if let Ok(model) = ModelConfig::read(&checkpoint(config)).map_err(|e| e.to_string()) {
            compute(&model.rope, dictionary);
        }
    });
});

/// A checkpoint of one unused tensor, so that the config is all that matters.
fn checkpoint(config: HfConfig) -> Checkpoint {
    let header = br#"{"t":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}"#;
    let file = [&(header.len() as u64).to_le_bytes(), &header[..], &[0; 4]].concat();
    let files = BTreeMap::from([(SINGLE_FILE.to_owned(), file)]);
    let folder = SafetensorsFolder::from_memory(Path::new("m"), None, files).expect("a valid file");
    Checkpoint::from_safetensors(folder, config)
}

fn compute(declared: &RopeDeclaration, dictionary: &[u8]) {
    let mut overrides = vec![RopeOverrides::default()];
    if let Ok(value) = serde_json::from_slice(dictionary) {
        overrides.push(RopeOverrides { rope_parameters: Some(value), ..RopeOverrides::default() });
    }
    for overrides in overrides {
        for length in LENGTHS {
            let Ok(settings) = in_force(declared, &overrides, length).map_err(|e| e.to_string()) else {
                continue;
            };
            let _ = settings.parameters(length).map_err(|e| e.to_string());
            let Ok(found) = frequencies(&settings.spec, length).map_err(|e| e.to_string()) else {
                continue;
            };
            assert_eq!(found.inv_freq.len(), settings.spec.pairs());
            assert!(found.inv_freq.iter().all(|f| f.is_finite()) && found.attention_factor.is_finite());
            Table::new(&found, 0..2);
        }
    }
}
