//! Keys and values of one layer, stored in the order in which attention multiplies them.
//!
//! Positions are grouped in tiles of [`TILE`]. A tile of keys is `[pairs, TILE, 2]`: pair `p` holds two lanes of every
//! key, the two that rotary embedding turns together (a product of two heads does not care about the order of lanes, and
//! keys cached before rotation then turn pair by pair whatever the pairing). A tile of values is `[TILE / 2, lanes, 2]`:
//! two consecutive positions side by side, lanes rounded up to [`LANES`]. Both are what dot products of pairs read, for
//! one query as for many, so a bfloat16 cache needs no packing at all.

mod shape;
mod write;

use std::ops::Range;

#[cfg(test)]
use half::{bf16, f16};

pub use self::shape::{CacheShape, HeadRows, Q8_BLOCK, TILE};
pub use self::write::{BEFORE_TURNING, key_step, round_to_steps};
use self::write::{Place, Writer};
use super::aligned::Aligned;
use super::pool::Pool;
use crate::engine::{EngineError, KvType};

/// From this many appended values on, the threads share the work.
const PARALLEL_FROM: usize = 1 << 14;

/// The stored numbers, tile after tile, head after head.
#[derive(Clone, Debug)]
pub enum Elements {
    F32(Aligned<f32>),
    F16(Aligned<u16>),
    BF16(Aligned<u16>),
    /// One scale for each position of a head.
    Q16 {
        values: Aligned<i16>,
        scales: Aligned<f32>,
    },
    Q8_0 {
        values: Aligned<i8>,
        scales: Aligned<f32>,
    },
}

impl Elements {
    /// `tiles` of `tile` numbers; `scales`: those of a tile, for [`KvType::Q8_0`].
    fn zeroed(cache_type: KvType, tiles: usize, tile: usize, scales: usize) -> Self {
        let values = tiles * tile;
        match cache_type {
            KvType::F32 => Self::F32(Aligned::zeroed(values)),
            KvType::F16 => Self::F16(Aligned::zeroed(values)),
            KvType::BF16 => Self::BF16(Aligned::zeroed(values)),
            KvType::Q16 => {
                Self::Q16 { values: Aligned::zeroed(values), scales: Aligned::zeroed(tiles * TILE) }
            }
            KvType::Q8_0 => {
                Self::Q8_0 { values: Aligned::zeroed(values), scales: Aligned::zeroed(tiles * scales) }
            }
        }
    }

    #[cfg(test)]
    /// One stored value; its position counts from the start of the first tile, `scale` is its place among those of [`KvType::Q8_0`].
    fn get(&self, index: usize, position: usize, scale: usize) -> f32 {
        match self {
            Self::F32(all) => all[index],
            Self::F16(all) => f16::from_bits(all[index]).to_f32(),
            Self::BF16(all) => bf16::from_bits(all[index]).to_f32(),
            Self::Q16 { values, scales } => f32::from(values[index]) * scales[position],
            Self::Q8_0 { values, scales } => f32::from(values[index]) * scales[scale],
        }
    }

    fn writer(&mut self) -> Writer {
        match self {
            Self::F32(all) => Writer::F32(all.as_mut_ptr()),
            Self::F16(all) => Writer::F16(all.as_mut_ptr()),
            Self::BF16(all) => Writer::BF16(all.as_mut_ptr()),
            Self::Q16 { values, scales } => Writer::Q16(values.as_mut_ptr(), scales.as_mut_ptr()),
            Self::Q8_0 { values, scales } => Writer::Q8_0(values.as_mut_ptr(), scales.as_mut_ptr()),
        }
    }
}

/// Keys and values of one layer for up to `capacity` positions.
#[derive(Clone, Debug)]
pub struct LayerCache {
    shape: CacheShape,
    capacity: usize,
    order: Vec<usize>,
    keys: Elements,
    values: Elements,
}

impl LayerCache {
    /// An empty cache; memory is that of whole tiles.
    pub fn new(shape: CacheShape, capacity: usize, cache_type: KvType) -> Self {
        let tiles = shape.n_kv_heads * capacity.div_ceil(TILE);
        let keys = Elements::zeroed(cache_type, tiles, shape.key_tile(), shape.key_scales());
        let values = Elements::zeroed(cache_type, tiles, shape.value_tile(), shape.value_scales());
        Self { shape, capacity, order: shape.key_order(), keys, values }
    }

    /// Bytes that [`LayerCache::new`] allocates; sizes too large for the machine saturate.
    pub fn size_bytes(shape: &CacheShape, capacity: usize, cache_type: KvType) -> usize {
        let values = shape.key_tile() + shape.value_tile();
        let tile = match cache_type {
            KvType::F32 => 4 * values,
            KvType::F16 | KvType::BF16 => 2 * values,
            KvType::Q16 => 2 * values + 4 * 2 * TILE,
            KvType::Q8_0 => values + 4 * (shape.key_scales() + shape.value_scales()),
        };
        tile.saturating_mul(shape.n_kv_heads).saturating_mul(capacity.div_ceil(TILE))
    }

    pub fn shape(&self) -> &CacheShape {
        &self.shape
    }

    pub fn cache_type(&self) -> KvType {
        match self.keys {
            Elements::F32(_) => KvType::F32,
            Elements::F16(_) => KvType::F16,
            Elements::BF16(_) => KvType::BF16,
            Elements::Q16 { .. } => KvType::Q16,
            Elements::Q8_0 { .. } => KvType::Q8_0,
        }
    }

    pub fn capacity(&self) -> usize {
        self.capacity
    }

    pub fn keys(&self) -> &Elements {
        &self.keys
    }

    pub fn values(&self) -> &Elements {
        &self.values
    }

    /// Lane of a head at each place of a packed key.
    pub fn order(&self) -> &[usize] {
        &self.order
    }

    /// Number of the tile of `head` that holds `position`, counted over all heads.
    pub fn tile(&self, head: usize, position: usize) -> usize {
        head * self.capacity.div_ceil(TILE) + position / TILE
    }

    /// Writes keys and values at positions `start..start + tokens`.
    ///
    /// k, v: rows of `n_kv_heads` heads, lanes in the order of the model.
    ///
    /// # Errors
    /// [`EngineError::CacheFull`]; nothing is written.
    pub fn append(
        &mut self,
        pool: &Pool,
        start: usize,
        k: HeadRows<'_>,
        v: HeadRows<'_>,
    ) -> Result<(), EngineError> {
        let (capacity, wanted) = (self.capacity, start.saturating_add(k.tokens));
        assert_eq!(k.tokens, v.tokens, "as many keys as values");
        if wanted > capacity {
            return Err(EngineError::CacheFull { capacity, wanted });
        }
        let (keys, values) = (self.keys.writer(), self.values.writer());
        let (shape, order, this) = (self.shape, &self.order, &*self);
        let (first, last) = (start / TILE, wanted.div_ceil(TILE));
        let tiles = last - first;
        let write = |items: Range<usize>| {
            for item in items {
                let (head, tile) = (item / tiles, first + item % tiles);
                let place = Place {
                    tile: this.tile(head, tile * TILE),
                    head,
                    start,
                    positions: start.max(tile * TILE)..wanted.min((tile + 1) * TILE),
                };
                // SAFETY: each item owns the positions of its tile; the tile lies inside the cache by the check above.
                unsafe {
                    keys.write_keys(&shape, &place, order, k);
                    values.write_values(&shape, &place, v);
                }
            }
        };
        let items = shape.n_kv_heads * tiles;
        if 2 * k.tokens * shape.n_kv_heads * shape.head_dim < PARALLEL_FROM {
            write(0..items);
        } else {
            pool.for_each(items, 1, write);
        }
        Ok(())
    }

    #[cfg(test)]
    /// The stored key of one position, lanes in the order of the model.
    pub fn key(&self, head: usize, position: usize, out: &mut [f32]) {
        let (tile, key) = (self.tile(head, position), position % TILE);
        for (place, &lane) in self.order.iter().enumerate() {
            let index = tile * self.shape.key_tile() + (place / 2 * TILE + key) * 2 + place % 2;
            let scale = tile * self.shape.key_scales() + place / Q8_BLOCK * TILE + key;
            out[lane] = self.keys.get(index, tile * TILE + key, scale);
        }
    }

    #[cfg(test)]
    /// The stored value of one position.
    pub fn value(&self, head: usize, position: usize, out: &mut [f32]) {
        let (tile, key) = (self.tile(head, position), position % TILE);
        let (lanes, blocks) = (self.shape.value_lanes(), self.shape.value_lanes().div_ceil(Q8_BLOCK));
        for (lane, value) in out.iter_mut().enumerate() {
            let index = tile * self.shape.value_tile() + (key / 2 * lanes + lane) * 2 + key % 2;
            let scale = tile * self.shape.value_scales() + (key / 2 * blocks + lane / Q8_BLOCK) * 2 + key % 2;
            *value = self.values.get(index, tile * TILE + key, scale);
        }
    }
}

#[cfg(test)]
mod tests;
