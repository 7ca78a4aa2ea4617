//! The fused operations on this engine's kernels.

use std::cell::{OnceCell, RefCell};
use std::ops::Range;

use super::activation::{add, gelu_mul, scale, silu_mul};
use super::aligned::Arena;
use super::attention::{AttentionWorkspace, Problem, TiledRotation, attend, statistics};
use super::cache::{Elements, HeadRows, LayerCache};
use super::isa::Isa;
use super::layer::{Bias, Layer, Linear, norm_weights};
use super::matrix::{Activations, Arithmetic, MatrixWorkspace, Product, multiply_many};
use super::norm::{rms_norm, rms_norm_in_place};
use super::peak::peaks;
use super::pool::Pool;
use super::rotate::{HeadLayout, rotate};
use super::rows::for_each_rows;
use super::sizes::cache_shape;
use crate::engine::probe::{AttentionProbe, AttentionRows};
use crate::engine::stages::{Peaks, Stage, StageClock, StageTimes};
use crate::engine::{
    Activation, AttentionView, Engine, EngineError, KeyState, KvType, ModelShape, ModelSource,
};
use crate::named::Named;
use crate::rope::Table;

/// Model weights packed for the kernels of one instruction set.
pub struct CpuEngine<'a> {
    shape: ModelShape,
    isa: Isa,
    activations: Activations,
    pool: Pool,
    embedding: Linear<'a>,
    layers: Vec<Layer<'a>>,
    /// `[hidden]`
    norm: Vec<f32>,
    /// `None`: tied to the embedding.
    head: Option<Linear<'a>>,
    scratch: RefCell<Scratch>,
    clock: StageClock,
}

/// Memory that every call uses again.
struct Scratch {
    matrix: MatrixWorkspace,
    attention: AttentionWorkspace,
    /// Buffers of finished operations: large ones would cost a page fault for every 4 kB, small ones the allocator's work.
    spare: Vec<Vec<f32>>,
}

/// Activations `[tokens, hidden]`.
pub struct Hidden {
    tokens: usize,
    values: Vec<f32>,
}

/// Queries, keys and values of a chunk, token by token.
pub struct Heads {
    tokens: usize,
    /// `[tokens, n_heads * head_dim]`
    q: Vec<f32>,
    /// `[tokens, n_kv_heads * head_dim]`
    k: Vec<f32>,
    /// `[tokens, n_kv_heads * head_dim]`
    v: Vec<f32>,
}

/// Keys and values of every layer.
pub struct Cache {
    layers: Vec<LayerCache>,
}

/// Cosines and sines, and the same in the order of cached keys once that is asked for.
pub struct Rotation {
    table: Table,
    tiled: OnceCell<Option<TiledRotation>>,
}

impl<'a> CpuEngine<'a> {
    /// Packs the weights of `source` with `threads` threads for an instruction set; of `activations` what it can make use of.
    ///
    /// # Errors
    /// A tensor whose shape differs from what `shape` asks for.
    pub fn load(
        shape: ModelShape,
        source: &ModelSource<'a>,
        (isa, activations): (Isa, Activations),
        threads: usize,
    ) -> Result<Self, EngineError> {
        let (pool, arena) = (Pool::new(threads), Arena::default());
        let table = (shape.vocab_size, shape.hidden_size);
        let arithmetic = Arithmetic::available(isa, activations);
        let layers = source.layers.iter().map(|layer| Layer::load(layer, &shape, arithmetic, &pool, &arena));
        let layers = layers.collect::<Result<_, _>>()?;
        let plain = |view| Linear::load_plain(view, table, isa, &pool, &arena);
        let head = source.head.as_ref().map(plain).transpose()?;
        let scratch = Scratch {
            matrix: MatrixWorkspace::default(),
            attention: AttentionWorkspace::new(&pool),
            spare: Vec::new(),
        };
        Ok(Self {
            embedding: plain(&source.embedding)?,
            norm: norm_weights(&source.norm, shape.hidden_size, shape.norm_offset)?,
            layers,
            head,
            scratch: RefCell::new(scratch),
            clock: StageClock::default(),
            shape,
            isa,
            activations: arithmetic.activations,
            pool,
        })
    }

    /// A buffer of `len` values to be overwritten: the smallest that was given back and is long enough, if there is one.
    fn take(&self, len: usize) -> Vec<f32> {
        let spare = &mut self.scratch.borrow_mut().spare;
        let fitting = spare.iter().enumerate().filter(|(_, buffer)| buffer.capacity() >= len);
        let smallest = fitting.min_by_key(|(_, buffer)| buffer.capacity()).map(|(index, _)| index);
        let mut buffer = smallest.map(|index| spare.swap_remove(index)).unwrap_or_default();
        buffer.resize(len, 0.0);
        buffer
    }

    fn give_back<const N: usize>(&self, buffers: [Vec<f32>; N]) {
        self.scratch.borrow_mut().spare.extend(buffers);
    }

    fn normed(&self, x: &[f32], weight: &[f32]) -> Vec<f32> {
        let mut out = self.take(x.len());
        let (isa, width, epsilon) = (self.isa, weight.len(), self.shape.rms_norm_eps as f32);
        for_each_rows(&self.pool, &mut out, width, |first, rows| {
            let x = &x[first * width..][..rows.len()];
            rms_norm(isa, x, weight, epsilon, rows);
        });
        out
    }

    /// RMSNorm of every head: `[tokens, heads * head_dim]`, weight `[head_dim]`.
    fn norm_heads(&self, x: &mut [f32], weight: &[f32]) {
        let (isa, epsilon) = (self.isa, self.shape.rms_norm_eps as f32);
        for_each_rows(&self.pool, x, weight.len(), |_, rows| {
            rms_norm_in_place(isa, rows, weight, epsilon);
        });
    }

    fn rotate_rows(&self, x: &mut [f32], n_heads: usize, table: &Table) {
        let ModelShape { head_dim, pairing, .. } = self.shape;
        let isa = self.isa;
        let layout = HeadLayout { row: n_heads * head_dim, n_heads, head_dim, pairing };
        for_each_rows(&self.pool, x, layout.row, |first, rows| {
            rotate(isa, rows, layout, table, first);
        });
    }

    fn add_bias(&self, y: &mut [f32], bias: &Bias) {
        let Some(bias) = bias else { return };
        let isa = self.isa;
        for_each_rows(&self.pool, y, bias.len(), |_, rows| {
            rows.chunks_exact_mut(bias.len()).for_each(|row| add(isa, row, bias));
        });
    }

    fn multiply(&self, x: &[f32], rows: usize, products: &mut [Product<'_, '_, '_>], stage: Stage) {
        let operations = products.iter().map(|product| product.matrix.operations(rows)).sum();
        let bytes = products.iter().map(|product| product.matrix.size_bytes() as f64).sum();
        let scratch = &mut self.scratch.borrow_mut().matrix;
        self.clock.time(stage, operations, bytes, || multiply_many(&self.pool, x, rows, products, scratch));
    }

    /// Products of one input with several matrices, each with its bias.
    fn project<const N: usize>(
        &self,
        x: &[f32],
        rows: usize,
        linears: [&Linear<'a>; N],
        stage: Stage,
    ) -> [Vec<f32>; N] {
        let mut outputs = linears.map(|linear| self.take(rows * linear.matrix.outputs()));
        let mut products = Vec::with_capacity(N);
        for (linear, y) in linears.iter().zip(&mut outputs) {
            products.push(Product { matrix: &linear.matrix, y, accumulate: false });
        }
        self.multiply(x, rows, &mut products, stage);
        for (linear, y) in linears.iter().zip(&mut outputs) {
            self.add_bias(y, &linear.bias);
        }
        outputs
    }

    /// hidden += x W^T + bias
    fn accumulate(&self, x: &[f32], linear: &Linear<'a>, hidden: &mut Hidden) {
        let product = Product { matrix: &linear.matrix, y: &mut hidden.values, accumulate: true };
        self.multiply(x, hidden.tokens, &mut [product], Stage::Matrices);
        self.add_bias(&mut hidden.values, &linear.bias);
    }

    /// What attention is asked, in the words of its kernels.
    fn problem<'v>(&self, view: &AttentionView<'v, Self>) -> Problem<'v> {
        let head_dim = self.shape.head_dim;
        let row = self.shape.n_heads * head_dim;
        let q = HeadRows::by_token(&view.heads.q, view.heads.tokens, row, head_dim);
        let key_rotation = view
            .key_rotation
            .and_then(|rotation| rotation.tiled.get_or_init(|| TiledRotation::new(&rotation.table)).as_ref());
        let cache = &view.cache.layers[view.layer];
        Problem::new(q, self.shape.n_heads, view.start, cache, key_rotation)
            .with_scale(self.shape.attention_scale)
            .with_window(self.shape.layers[view.layer].sliding_window)
    }

    /// hidden += x W^T + bias, the sum normed before it is added where `norm` is given.
    fn accumulate_normed(&self, x: &[f32], linear: &Linear<'a>, norm: Option<&[f32]>, hidden: &mut Hidden) {
        let Some(norm) = norm else { return self.accumulate(x, linear, hidden) };
        let [mut added] = self.project(x, hidden.tokens, [linear], Stage::Matrices);
        let (isa, width, epsilon) = (self.isa, norm.len(), self.shape.rms_norm_eps as f32);
        for_each_rows(&self.pool, &mut added, width, |_, rows| rms_norm_in_place(isa, rows, norm, epsilon));
        for_each_rows(&self.pool, &mut hidden.values, width, |first, rows| {
            add(isa, rows, &added[first * width..][..rows.len()]);
        });
        self.give_back([added]);
    }

    fn head(&self) -> &Linear<'a> {
        self.head.as_ref().unwrap_or(&self.embedding)
    }
}

/// A cache in f32 is attended to in f32: dot products in bfloat16 are for caches that round anyway.
fn attention_isa(isa: Isa, cache: &LayerCache) -> Isa {
    match cache.keys() {
        Elements::F32(_) => isa.min(Isa::Avx512),
        _ => isa,
    }
}

impl<'a> Engine for CpuEngine<'a> {
    type Hidden = Hidden;
    type Heads = Heads;
    type Cache = Cache;
    type Rotation = Rotation;

    fn describe(&self) -> String {
        format!("cpu, {}, weights packed, {}-bit activations", self.isa, self.activations.name())
    }

    fn stage_times(&self) -> Option<StageTimes> {
        Some(self.clock.read())
    }

    fn peaks(&self) -> Option<Peaks> {
        Some(peaks(self.isa, &self.pool))
    }

    fn new_cache(&self, capacity: usize, kv_type: KvType) -> Result<Cache, EngineError> {
        let layer = |_| LayerCache::new(cache_shape(&self.shape), capacity, kv_type);
        Ok(Cache { layers: (0..self.shape.n_layers()).map(layer).collect() })
    }

    fn rotation(&self, table: &Table) -> Result<Rotation, EngineError> {
        Ok(Rotation { table: table.clone(), tiled: OnceCell::new() })
    }

    fn embed(&self, tokens: &[u32]) -> Result<Hidden, EngineError> {
        let width = self.shape.hidden_size;
        let mut values = vec![0.0; tokens.len() * width];
        for (token, row) in tokens.iter().zip(values.chunks_exact_mut(width)) {
            self.embedding.matrix.row(*token as usize, row);
        }
        if self.shape.embedding_scale != 1.0 {
            scale(self.isa, &mut values, self.shape.embedding_scale);
        }
        Ok(Hidden { tokens: tokens.len(), values })
    }

    fn project_qkv(&self, layer: usize, hidden: &Hidden) -> Result<Heads, EngineError> {
        let weights = &self.layers[layer];
        let x = self.normed(&hidden.values, &weights.attention_norm);
        let projections = [&weights.q, &weights.k, &weights.v];
        let [mut q, mut k, v] = self.project(&x, hidden.tokens, projections, Stage::Matrices);
        self.give_back([x]);
        if let Some(norm) = &weights.q_norm {
            self.norm_heads(&mut q, norm);
        }
        if let Some(norm) = &weights.k_norm {
            self.norm_heads(&mut k, norm);
        }
        Ok(Heads { tokens: hidden.tokens, q, k, v })
    }

    fn rotate_append(
        &self,
        layer: usize,
        heads: &mut Heads,
        rotation: Option<&Rotation>,
        cache: &mut Cache,
        start: usize,
        keys: KeyState,
    ) -> Result<(), EngineError> {
        if let Some(Rotation { table, .. }) = rotation {
            self.rotate_rows(&mut heads.q, self.shape.n_heads, table);
            if keys == KeyState::Rotated {
                self.rotate_rows(&mut heads.k, self.shape.n_kv_heads, table);
            }
        }
        let (tokens, head_dim) = (heads.tokens, self.shape.head_dim);
        let row = self.shape.n_kv_heads * head_dim;
        let k = HeadRows::by_token(&heads.k, tokens, row, head_dim);
        let v = HeadRows::by_token(&heads.v, tokens, row, head_dim);
        cache.layers[layer].append(&self.pool, start, k, v)
    }

    fn keep(&self, tokens: Range<usize>, heads: &mut Heads, hidden: &mut Hidden) -> Result<(), EngineError> {
        let keep = |values: &mut Vec<f32>, width: usize| {
            values.truncate(tokens.end * width);
            values.drain(..tokens.start * width);
        };
        let all = heads.tokens;
        for values in [&mut heads.q, &mut heads.k, &mut heads.v, &mut hidden.values] {
            keep(values, values.len() / all);
        }
        (heads.tokens, hidden.tokens) = (tokens.len(), tokens.len());
        Ok(())
    }

    fn attend(
        &self,
        layer: usize,
        heads: Heads,
        mut hidden: Hidden,
        cache: &Cache,
        start: usize,
        key_rotation: Option<&Rotation>,
    ) -> Result<Hidden, EngineError> {
        let view = AttentionView { layer, heads: &heads, cache, start, key_rotation };
        let problem = self.problem(&view);
        let mut mixed = self.take(heads.q.len());
        let isa = attention_isa(self.isa, &cache.layers[layer]);
        let (operations, bytes) = (problem.operations(), problem.bytes());
        self.clock.time(Stage::Attention, operations, bytes, || {
            attend(isa, &self.pool, &problem, &mut self.scratch.borrow_mut().attention, &mut mixed);
        });
        let weights = &self.layers[layer];
        self.accumulate_normed(&mixed, &weights.o, weights.post_attention_norm.as_deref(), &mut hidden);
        self.give_back([mixed, heads.q, heads.k, heads.v]);
        Ok(hidden)
    }

    fn attention_rows(
        &self,
        view: &AttentionView<'_, Self>,
        queries: Range<usize>,
        probe: &AttentionProbe,
    ) -> Result<AttentionRows, EngineError> {
        Ok(statistics(self.isa, &self.pool, &self.problem(view), queries, probe))
    }

    fn mlp(&self, layer: usize, mut hidden: Hidden) -> Result<Hidden, EngineError> {
        let weights = &self.layers[layer];
        let x = self.normed(&hidden.values, &weights.mlp_norm);
        let [mut gate, up] = self.project(&x, hidden.tokens, [&weights.gate, &weights.up], Stage::Matrices);
        let (isa, width, activation) = (self.isa, self.shape.intermediate_size, self.shape.activation);
        for_each_rows(&self.pool, &mut gate, width, |first, rows| {
            let up = &up[first * width..][..rows.len()];
            match activation {
                Activation::Silu => silu_mul(isa, rows, up),
                Activation::GeluTanh => gelu_mul(isa, rows, up),
            }
        });
        self.accumulate_normed(&gate, &weights.down, weights.post_mlp_norm.as_deref(), &mut hidden);
        self.give_back([x, gate, up]);
        Ok(hidden)
    }

    fn logits(&self, hidden: &Hidden) -> Result<Vec<f32>, EngineError> {
        let x = self.normed(&hidden.values, &self.norm);
        let [logits] = self.project(&x, hidden.tokens, [self.head()], Stage::Head);
        self.give_back([x]);
        Ok(logits)
    }

    fn log_probs(&self, hidden: &Hidden, targets: &[u32]) -> Result<Vec<f32>, EngineError> {
        let x = self.normed(&hidden.values, &self.norm);
        let head = &self.head().matrix;
        let (operations, bytes) = (head.operations(hidden.tokens), head.size_bytes() as f64);
        let found = self.clock.time(Stage::Head, operations, bytes, || {
            head.log_probs(&self.pool, &x, targets, &mut self.scratch.borrow_mut().matrix)
        });
        self.give_back([x]);
        Ok(found)
    }
}
