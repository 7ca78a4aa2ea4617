//! Stored blocks against what the `gguf` package unpacks them to.
//!
//! Golden values: `fixtures/make_tensor_types.py`.

use ropex::checkpoint::TensorType;
use ropex::engine::cpu::matrix::unpack_row;

const VALUES: usize = 512;

fn golden(name: &str) -> (Vec<u8>, Vec<f32>) {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/tensor_types.safetensors");
    let bytes = std::fs::read(path).unwrap();
    let file = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let stored = file.tensor(&format!("{name}/stored")).unwrap().data().to_vec();
    let values = file.tensor(&format!("{name}/values")).unwrap();
    let words = values.data().as_chunks::<4>().0;
    (stored, words.iter().map(|word| f32::from_le_bytes(*word)).collect())
}

#[test]
fn every_type_unpacks_as_in_the_gguf_package() {
    let mut compared = 0;
    for dtype in TensorType::ALL {
        // Not made by converters, so the package does not know them: activations in llama.cpp.
        if matches!(dtype, TensorType::F32 | TensorType::Q8_1 | TensorType::Q8K) {
            continue;
        }
        let (stored, expected) = golden(dtype.name());
        assert_eq!(Some(stored.len()), dtype.size_bytes(&[VALUES]), "{dtype}");
        let mut found = vec![0.0; VALUES];
        unpack_row(dtype, &stored, &mut found);
        // Two roundings to f32 where the package rounds once, or in another order.
        for (block, (found, expected)) in found.chunks(32).zip(expected.chunks(32)).enumerate() {
            let largest = expected.iter().fold(0.0f32, |all, x| all.max(x.abs()));
            for (found, expected) in found.iter().zip(expected) {
                let allowed = largest * 1e-6;
                assert!((found - expected).abs() <= allowed, "{dtype}, block {block}: {found} {expected}");
            }
        }
        compared += 1;
    }
    assert_eq!(compared, TensorType::ALL.len() - 3);
}
