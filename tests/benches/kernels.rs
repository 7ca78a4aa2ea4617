//! The kernels one by one, at the sizes of a 135M model: `cargo bench`. `ropex bench` measures whole passes.
//!
//! Throughput is in operations (multiplications and additions) or in bytes of weights or cache. `ROPEX_BENCH_ISA` chooses
//! the instruction set, `ROPEX_BENCH_THREADS` the number of threads.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use ropex::checkpoint::tensor::{TensorType, TensorView};
use ropex::engine::KvType;
use ropex::engine::cpu::attention::{AttentionWorkspace, Problem, attend};
use ropex::engine::cpu::cache::{CacheShape, HeadRows, LayerCache};
use ropex::engine::cpu::isa::Isa;
use ropex::engine::cpu::matrix::{Activations, Arithmetic, Matrix, MatrixWorkspace};
use ropex::engine::cpu::pool::Pool;
use ropex::named::Named;
use ropex::rope::Pairing;

const TYPES: [TensorType; 7] = [
    TensorType::Q4_1,
    TensorType::Q4_0,
    TensorType::Q8_0,
    TensorType::Q4K,
    TensorType::F16,
    TensorType::BF16,
    TensorType::F32,
];
/// Read as f16, bf16, f32 or as part of a block, this byte repeated is an ordinary number.
const BYTE: u8 = 0x2b;

fn isa() -> Isa {
    std::env::var("ROPEX_BENCH_ISA").map_or_else(|_| Isa::detect(), |name| name.parse().unwrap())
}

fn pool() -> Pool {
    let all = || std::thread::available_parallelism().map_or(1, usize::from);
    Pool::new(std::env::var("ROPEX_BENCH_THREADS").map_or_else(|_| all(), |n| n.parse().unwrap()))
}

/// Values between -1 and 1, no two neighbours alike.
fn values(n: usize) -> Vec<f32> {
    (0..n).map(|i| ((i * 29 % 83) as f32 - 41.0) / 41.0).collect()
}

/// Runs `run` on a matrix `[outputs, inputs]` of `dtype`.
fn with_matrix(
    (dtype, activations): (TensorType, Activations),
    outputs: usize,
    inputs: usize,
    run: impl FnOnce(&Pool, &Matrix<'_>),
) {
    let pool = pool();
    let shape = vec![outputs, inputs];
    let bytes = vec![BYTE; dtype.size_bytes(&shape).unwrap()];
    let stored = TensorView { name: "weights", dtype, shape, bytes: &bytes };
    let arithmetic = Arithmetic::available(isa(), activations);
    run(&pool, &Matrix::new(&stored, outputs, inputs, arithmetic, &pool).unwrap());
}

/// Products of many rows and of one, for each stored type.
fn products(criterion: &mut Criterion) {
    let (outputs, inputs) = (1536, 1536);
    for rows in [512, 1] {
        let mut group = criterion.benchmark_group(format!("product of {rows} row(s)"));
        for (dtype, activations) in TYPES
            .into_iter()
            .flat_map(|dtype| [(dtype, Activations::Sixteen), (dtype, Activations::Eight)])
            .filter(|(dtype, bits)| *bits == Activations::Sixteen || dtype.name().starts_with('Q'))
        {
            with_matrix((dtype, activations), outputs, inputs, |pool, matrix| {
                let work = if rows == 1 {
                    Throughput::Bytes(matrix.size_bytes() as u64)
                } else {
                    Throughput::Elements((2 * rows * outputs * inputs) as u64)
                };
                group.throughput(work);
                let (x, mut y) = (values(rows * inputs), vec![0.0; rows * outputs]);
                let mut workspace = MatrixWorkspace::default();
                let name = format!("{}, {}-bit activations", dtype.name(), activations.name());
                group.bench_function(name, |bencher| {
                    bencher.iter(|| matrix.multiply(pool, &x, rows, &mut y, &mut workspace));
                });
            });
        }
    }
}

/// Log-probabilities of targets in a vocabulary of 49,152.
fn head(criterion: &mut Criterion) {
    let (vocab_size, hidden, rows) = (49_152, 576, 64);
    let mut group = criterion.benchmark_group("log-probabilities");
    group.throughput(Throughput::Elements((2 * rows * vocab_size * hidden) as u64));
    with_matrix((TensorType::Q8_0, Activations::Sixteen), vocab_size, hidden, |pool, matrix| {
        let (x, targets) = (values(rows * hidden), vec![7; rows]);
        let mut workspace = MatrixWorkspace::default();
        group.bench_function("64 rows", |bencher| {
            bencher.iter(|| matrix.log_probs(pool, &x, &targets, &mut workspace));
        });
    });
}

/// A chunk of a prompt and a single token, both behind a long cache of each type.
fn attention(criterion: &mut Criterion) {
    let shape = CacheShape { n_kv_heads: 3, head_dim: 64, rotary_dim: 64, pairing: Pairing::Adjacent };
    let (n_heads, pool) = (9, pool());
    for (tokens, start) in [(512, 3584), (1, 8191)] {
        let mut group = criterion.benchmark_group(format!("attention of {tokens} token(s) behind {start}"));
        for cache_type in KvType::ALL {
            let end = start + tokens;
            let (row, kv_row) = (n_heads * shape.head_dim, shape.n_kv_heads * shape.head_dim);
            let (q, kv) = (values(tokens * row), values(end * kv_row));
            let mut cache = LayerCache::new(shape, end, *cache_type);
            let rows = HeadRows::by_token(&kv, end, kv_row, shape.head_dim);
            cache.append(&pool, 0, rows, rows).unwrap();
            let q = HeadRows::by_token(&q, tokens, row, shape.head_dim);
            let problem = Problem::new(q, n_heads, start, &cache, None);
            group.throughput(if tokens == 1 {
                Throughput::Bytes(problem.bytes() as u64)
            } else {
                Throughput::Elements(problem.operations() as u64)
            });
            let (mut out, mut workspace) = (vec![0.0; tokens * row], AttentionWorkspace::new(&pool));
            group.bench_function(cache_type.name(), |bencher| {
                bencher.iter(|| attend(isa(), &pool, &problem, &mut workspace, &mut out));
            });
        }
    }
}

criterion_group!(kernels, products, head, attention);
criterion_main!(kernels);
