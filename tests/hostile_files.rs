//! Damaged and malicious checkpoint files: always an answer, never a panic, no memory beyond the file's own size.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::path::Path;

use ropex::checkpoint::gguf::{Array, GgufFile, GgufProblem, TensorData, Value, encode};
use ropex::checkpoint::rope::{RopeOverrides, in_force};
use ropex::checkpoint::{
    Checkpoint, CheckpointError, HfConfig, ModelRef, OpenOptions, TensorType, TensorView,
};
use ropex::engine::KvType;
use ropex::model::load::{EngineName, LoadOptions};
use ropex::model::memory::MemoryPlan;
use ropex::model::{DecoderOptions, DynamicPolicy, ModelConfig};

/// Flips of random bytes per format.
const FLIPS: usize = 4000;
/// Largest single allocation while one of these small files is read, in bytes.
const LARGEST_ALLOCATION: usize = 1 << 20;

/// Remembers the largest allocation that each thread asked for.
struct Watched;

thread_local! {
    static LARGEST: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: every call is handed to the system allocator unchanged.
unsafe impl GlobalAlloc for Watched {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LARGEST.with(|largest| largest.set(largest.get().max(layout.size())));
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Watched = Watched;

fn assert_small_allocations() {
    let largest = LARGEST.with(Cell::get);
    assert!(largest < LARGEST_ALLOCATION, "an allocation of {largest} bytes");
}

/// A sequence of numbers that is the same in every run (SplitMix64).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % limit as u64) as usize
    }
}

fn small_gguf() -> Vec<u8> {
    let texts = ["a", "bc", ""].map(str::to_owned).to_vec();
    let entries = [
        ("general.architecture", Value::String("llama".into())),
        ("llama.context_length", Value::U32(2048)),
        ("llama.rope.freq_base", Value::F32(10000.0)),
        ("tokenizer.ggml.add_bos_token", Value::Bool(true)),
        ("tokenizer.ggml.tokens", Value::Array(Array::String(texts))),
        ("tokenizer.ggml.scores", Value::Array(Array::F32(vec![0.0, -1.0, -2.0]))),
        ("nested", Value::Array(Array::Array(vec![Array::I64(vec![1]), Array::U8(vec![2])]))),
    ];
    let entries = entries.map(|(key, value)| (key.to_owned(), value));
    let bytes: Vec<u8> = (0..=255).collect();
    let tensors = [
        TensorData {
            name: "token_embd.weight",
            dtype: TensorType::F32,
            shape: vec![3, 8],
            bytes: &bytes[..96],
        },
        TensorData {
            name: "blk.0.attn_q.weight",
            dtype: TensorType::Q4_0,
            shape: vec![2, 32],
            bytes: &bytes[..36],
        },
        TensorData {
            name: "output_norm.weight",
            dtype: TensorType::BF16,
            shape: vec![8],
            bytes: &bytes[..16],
        },
    ];
    encode(&entries, &tensors).unwrap()
}

fn small_safetensors() -> Vec<u8> {
    let bytes: Vec<u8> = (0..64).collect();
    let view = |dtype, shape, bytes| safetensors::tensor::TensorView::new(dtype, shape, bytes).unwrap();
    let tensors = [
        ("model.embed_tokens.weight", view(safetensors::Dtype::F32, vec![2, 8], &bytes[..64])),
        ("model.norm.weight", view(safetensors::Dtype::BF16, vec![8], &bytes[..16])),
    ];
    safetensors::serialize(tensors, None).unwrap()
}

/// Use all that was read: every tensor must lie in the file and have the size that its shape says.
fn check(view: Option<TensorView<'_>>) {
    let view = view.expect("a listed tensor exists");
    assert_eq!(view.dtype.size_bytes(&view.shape), Some(view.bytes.len()));
    view.to_f32();
}

fn read_gguf(bytes: &[u8]) -> Result<(), String> {
    let file = GgufFile::from_bytes(bytes.to_vec(), "m.gguf").map_err(|error| {
        error.hint();
        error.to_string()
    })?;
    for (key, value) in file.metadata().iter() {
        let meta = file.metadata();
        value.to_string();
        let _ = (meta.usize(key), meta.f64(key), meta.bool(key), meta.str(key));
        let _ = (meta.strings(key), meta.f32s(key), meta.i32s(key), meta.usizes(key));
    }
    file.tensors().for_each(|tensor| check(file.tensor(&tensor.name)));
    Ok(())
}

/// A folder whose weights can be replaced.
struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("config.json"), "{}").unwrap();
        Self(folder)
    }

    fn read(&self, weights: &[u8]) -> Result<(), String> {
        let path = self.0.path().join("model.safetensors");
        std::fs::remove_file(&path).ok(); // a new file is written much faster than an old one is replaced
        std::fs::write(&path, weights).unwrap();
        let reference = ModelRef::Folder(self.0.path().to_owned());
        let checkpoint = Checkpoint::open(&reference, &OpenOptions::default()).map_err(|error| {
            error.hint();
            assert!(matches!(error, CheckpointError::Safetensors(_)), "{error}");
            error.to_string()
        })?;
        checkpoint.tensor_names().iter().for_each(|name| check(checkpoint.tensor(name)));
        Ok(())
    }
}

#[test]
fn d106_a_gguf_cut_anywhere_is_an_error() {
    let whole = small_gguf();
    read_gguf(&whole).unwrap();
    for size in 0..whole.len() {
        let error = read_gguf(&whole[..size]).expect_err("a truncated file was accepted");
        assert!(error.starts_with("`m.gguf`: "), "{error}");
    }
    assert_small_allocations();
}

#[test]
fn d106_safetensors_cut_anywhere_are_an_error() {
    let (whole, folder) = (small_safetensors(), Folder::new());
    folder.read(&whole).unwrap();
    for size in 0..whole.len() {
        let error = folder.read(&whole[..size]).expect_err("a truncated file was accepted");
        assert!(error.contains("model.safetensors"), "{error}");
    }
    assert_small_allocations();
}

#[test]
fn flipped_bytes_in_a_gguf_never_panic() {
    let (whole, mut random) = (small_gguf(), Random(1));
    for _ in 0..FLIPS {
        let mut bytes = whole.clone();
        for _ in 0..=random.below(4) {
            let position = random.below(bytes.len());
            bytes[position] = random.below(256) as u8;
        }
        let _ = read_gguf(&bytes);
    }
    assert_small_allocations();
}

#[test]
fn flipped_bytes_in_safetensors_never_panic() {
    let (whole, mut random, folder) = (small_safetensors(), Random(2), Folder::new());
    for _ in 0..FLIPS {
        let mut bytes = whole.clone();
        for _ in 0..=random.below(4) {
            let position = random.below(bytes.len());
            bytes[position] = random.below(256) as u8;
        }
        let _ = folder.read(&bytes);
    }
    assert_small_allocations();
}

#[test]
fn every_word_of_a_gguf_may_be_an_extreme_number() {
    let whole = small_gguf();
    let extremes = [u64::MAX, 1 << 63, 1 << 60, u64::MAX / 2, 1 << 32, u64::from(u32::MAX), 0];
    for position in 0..whole.len() - 8 {
        for extreme in extremes {
            let mut bytes = whole.clone();
            bytes[position..position + 8].copy_from_slice(&extreme.to_le_bytes());
            let _ = read_gguf(&bytes);
        }
    }
    assert_small_allocations();
}

#[test]
fn every_word_of_a_safetensors_header_may_be_extreme() {
    let folder = Folder::new();
    let extremes =
        ["18446744073709551615", "9223372036854775808", "1152921504606846976", "-1", "1e9", "null"];
    for extreme in extremes {
        for header in [
            format!(r#"{{"t":{{"dtype":"F32","shape":[{extreme}],"data_offsets":[0,4]}}}}"#),
            format!(r#"{{"t":{{"dtype":"F32","shape":[1],"data_offsets":[0,{extreme}]}}}}"#),
            format!(r#"{{"t":{{"dtype":"F32","shape":[1],"data_offsets":[{extreme},4]}}}}"#),
            format!(r#"{{"t":{{"dtype":"F32","shape":[{extreme},0],"data_offsets":[0,0]}}}}"#),
            format!(r#"{{"t":{{"dtype":"F32","shape":[{extreme},{extreme}],"data_offsets":[0,0]}}}}"#),
            format!(r#"{{"t":{{"dtype":"F4","shape":[{extreme}],"data_offsets":[0,4]}}}}"#),
        ] {
            let bytes = [&(header.len() as u64).to_le_bytes(), header.as_bytes(), &[0; 4]].concat();
            folder.read(&bytes).expect_err("extreme header was accepted");
        }
    }
    // sizes that agree with each other and together reach the end of the address space
    let quarter = 1u64 << 62;
    let tensors: Vec<String> = (0..4u64)
        .map(|n| {
            let (from, to) = (n * quarter, (n * quarter).saturating_add(quarter));
            format!(r#""t{n}":{{"dtype":"F32","shape":[{}],"data_offsets":[{from},{to}]}}"#, (to - from) / 4)
        })
        .collect();
    for count in 1..=tensors.len() {
        let header = format!("{{{}}}", tensors[..count].join(","));
        let bytes = [&(header.len() as u64).to_le_bytes(), header.as_bytes()].concat();
        folder.read(&bytes).expect_err("a header beyond the address space was accepted");
    }
    assert_small_allocations();
}

#[test]
fn a_header_of_nested_brackets_does_not_exhaust_the_stack() {
    let folder = Folder::new();
    let header = "[".repeat(200_000);
    let bytes = [&(header.len() as u64).to_le_bytes(), header.as_bytes()].concat();
    folder.read(&bytes).expect_err("brackets were accepted");
    HfConfig::from_slice(header.as_bytes(), Path::new("config.json")).expect_err("brackets were accepted");
}

#[test]
fn arrays_nested_without_end_do_not_exhaust_the_stack() {
    let mut bytes = b"GGUF\x03\0\0\0".to_vec();
    bytes.extend([0u64.to_le_bytes(), 1u64.to_le_bytes(), 1u64.to_le_bytes()].concat());
    bytes.push(b'k');
    bytes.extend(9u32.to_le_bytes());
    for _ in 0..50_000 {
        bytes.extend(9u32.to_le_bytes());
        bytes.extend(1u64.to_le_bytes());
    }
    let error = GgufFile::from_bytes(bytes, "m.gguf").unwrap_err();
    assert!(matches!(*error.problem, GgufProblem::Nesting { .. }), "{error}");
}

/// Metadata of a whole model with one value replaced.
fn sized_gguf(key: &str, value: Value) -> Vec<u8> {
    let size = |n: u32| Value::U32(n);
    let mut entries = vec![
        ("general.architecture".to_owned(), Value::String("llama".into())),
        ("llama.context_length".to_owned(), size(64)),
        ("llama.embedding_length".to_owned(), size(8)),
        ("llama.feed_forward_length".to_owned(), size(8)),
        ("llama.block_count".to_owned(), size(1)),
        ("llama.attention.head_count".to_owned(), size(1)),
        ("llama.attention.head_count_kv".to_owned(), size(1)),
        ("llama.attention.layer_norm_rms_epsilon".to_owned(), Value::F32(1e-5)),
    ];
    entries.retain(|(name, _)| name != key);
    entries.push((key.to_owned(), value));
    let bytes = [0; 96];
    let tensor =
        TensorData { name: "token_embd.weight", dtype: TensorType::F32, shape: vec![3, 8], bytes: &bytes };
    encode(&entries, &[tensor]).unwrap()
}

fn open_memory(bytes: Vec<u8>) -> Checkpoint {
    Checkpoint::from_gguf(GgufFile::from_bytes(bytes, "m.gguf").unwrap())
}

#[test]
fn sizes_beyond_any_model_are_refused_by_name() {
    for (key, name) in [
        ("llama.block_count", "layers"),
        ("llama.feed_forward_length", "intermediate size"),
        ("llama.attention.head_count_kv", "key/value heads"),
    ] {
        let checkpoint = open_memory(sized_gguf(key, Value::U64(1 << 40)));
        let error = ModelConfig::read(&checkpoint).unwrap_err().to_string();
        assert!(error.contains("1099511627776"), "{name}: {error}");
    }
    for key in ["llama.embedding_length", "llama.attention.key_length"] {
        let checkpoint = open_memory(sized_gguf(key, Value::U64(1 << 40)));
        assert!(ModelConfig::read(&checkpoint).is_err(), "{key}");
    }
    // flags may replace what a file says of its rope, so that is refused when it is about to be used
    let checkpoint = open_memory(sized_gguf("llama.rope.dimension_count", Value::U64(1 << 40)));
    let rope = ModelConfig::read(&checkpoint).unwrap().rope;
    assert!(in_force(&rope, &RopeOverrides::default(), 8).is_err());
    assert_small_allocations();
}

/// A plan for more memory than there is says so: it does not wrap around to a little.
#[test]
fn memory_plans_saturate() {
    let checkpoint = open_memory(sized_gguf("llama.block_count", Value::U32(1 << 14)));
    let config = ModelConfig::read(&checkpoint).unwrap();
    let rope = in_force(&config.rope, &RopeOverrides::default(), 8).unwrap();
    for engine in [EngineName::Cpu, EngineName::Candle] {
        for kv_type in [KvType::F32, KvType::BF16] {
            let decoder = DecoderOptions { kv_type, prefill_chunk: 1 << 40, dynamic: DynamicPolicy::Planned };
            let options = LoadOptions { engine, decoder, ..LoadOptions::default() };
            let plan = |context| MemoryPlan::new(&checkpoint, &config, &rope.spec, &options, context);
            assert!(plan(1 << 40).total_bytes() > plan(1 << 20).total_bytes(), "{engine:?}");
            assert!(plan(1 << 40).ensure_within(Some(1 << 50)).is_err(), "{engine:?}");
        }
    }
}
