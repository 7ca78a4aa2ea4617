//! What is supported, as a document made from the code.

use std::fmt::Write;

use super::config::{Supported, supported};
use crate::checkpoint::TensorType;
use crate::engine::candle::keeps_packed;
use crate::engine::cpu::matrix::packed_bytes;

/// Types that safetensors are read in, with the name that the format gives them.
const SAFETENSORS_TYPES: [(&str, TensorType); 3] =
    [("F32", TensorType::F32), ("F16", TensorType::F16), ("BF16", TensorType::BF16)];

/// The tables of `docs/models.md`: architectures, formats and tensor types.
pub fn markdown() -> String {
    let mut text = String::from(INTRODUCTION);
    text.push_str("\n## Architectures\n\n");
    let columns = ["models", "GGUF", "safetensors", "pairs in GGUF", "window", "rotation", "also"];
    header(&mut text, &columns);
    for Supported { models, gguf, hf, pairing, window, rotation, also } in supported() {
        row(
            &mut text,
            &[models, &format!("`{gguf}`"), &format!("`{hf}`"), pairing, window, &rotation, &also],
        );
    }
    text.push_str(AFTER_ARCHITECTURES);
    text.push_str("\n## Tensor types\n\nEvery architecture takes every type, matrix by matrix.\n\n");
    let columns = ["type", "GGUF", "safetensors", "bits stored", "bits in engine `cpu`", "engine `candle`"];
    header(&mut text, &columns);
    let bits = |bytes: usize| ((bytes * 8) as f64 / f64::from(16 * 256)).to_string();
    for dtype in TensorType::ALL {
        let in_safetensors = SAFETENSORS_TYPES.iter().any(|(_, known)| *known == dtype);
        row(
            &mut text,
            &[
                dtype.name(),
                "yes",
                if in_safetensors { "yes" } else { "" },
                &bits(dtype.size_bytes(&[16, 256]).unwrap_or(0)),
                &bits(packed_bytes(dtype, 16, 256)),
                if keeps_packed(dtype) { "as stored or f32" } else { "f32" },
            ],
        );
    }
    let packed = bits(packed_bytes(TensorType::BF16, 16, 256));
    row(&mut text, &["F8_E4M3 with scales", "", "yes", "8", &packed, "as BF16"]);
    let unread: Vec<String> = TensorType::unread().map(|name| format!("`{name}`")).collect();
    let _ = write!(text, "{}\nRefused by name: {}.\n", AFTER_TYPES, unread.join(", "));
    text
}

const INTRODUCTION: &str = "\
# Models, formats and tensor types

Made from the code by `ROPEX_UPDATE_DOCS=1 cargo test --release --test docs_models`; a test compares.

Formats: GGUF versions 1 to 3, whole or split; a folder with `config.json` and safetensors, one file or shards with an
index; either of them from the Hugging Face Hub. Every architecture comes in both formats, under the names below.
";

const AFTER_ARCHITECTURES: &str = "
Pairs: which lanes of a head turn together in GGUF files; safetensors always pair the halves. Biases are added wherever a
checkpoint has them. A head that is not stored is the embedding. Mixtures of experts and models with images are refused.

Where layers with a window have a base of their own (Gemma 3), scalings, `--rope-theta` and all other rope flags act on
the layers without a window; the others keep their base, `local_theta` in `inspect`, as in llama.cpp. GGUF files of Phi-3
name a window that llama.cpp leaves out; here it is in force, as in transformers.
";

const AFTER_TYPES: &str = "
Bits are those of one value, scales included. The engine `cpu` packs weights for its kernels when it loads them; integers
stay what they are, 16-bit floats and Q2_K become 13-bit integers with a scale for 32. 8-bit floats are unpacked when a
folder is opened: one scale for a matrix, an output or a block of 128 by 128.
";

fn header(text: &mut String, columns: &[&str]) {
    row(text, columns);
    row(text, &vec!["---"; columns.len()]);
}

fn row(text: &mut String, cells: &[&str]) {
    let _ = writeln!(text, "| {} |", cells.join(" | "));
}
