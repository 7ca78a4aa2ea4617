//! Sizes and orders of cached keys and values.

use crate::rope::Pairing;

/// Positions in a tile.
pub const TILE: usize = 64;

/// Lanes of values are rounded up to a multiple of this.
pub const LANES: usize = 16;

/// Lanes that share a scale in a [`KvType::Q8_0`](crate::engine::KvType::Q8_0) cache.
pub const Q8_BLOCK: usize = 32;

/// What a cache must know of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheShape {
    pub n_kv_heads: usize,
    pub head_dim: usize,
    /// Lanes of a head that rotate: the pairs that stay together.
    pub rotary_dim: usize,
    pub pairing: Pairing,
}

impl CacheShape {
    /// Pairs of a key, the last one padded when `head_dim` is odd.
    pub fn key_pairs(&self) -> usize {
        self.head_dim.div_ceil(2)
    }

    /// Lanes of a value, padding included.
    pub fn value_lanes(&self) -> usize {
        self.head_dim.next_multiple_of(LANES)
    }

    /// Elements in a tile of keys.
    pub fn key_tile(&self) -> usize {
        self.key_pairs() * 2 * TILE
    }

    /// Elements in a tile of values.
    pub fn value_tile(&self) -> usize {
        self.value_lanes() * TILE
    }

    /// Scales in a tile of keys: `[blocks, TILE]`.
    pub fn key_scales(&self) -> usize {
        (2 * self.key_pairs()).div_ceil(Q8_BLOCK) * TILE
    }

    /// Scales in a tile of values: `[TILE / 2, blocks, 2]`.
    pub fn value_scales(&self) -> usize {
        self.value_lanes().div_ceil(Q8_BLOCK) * TILE
    }

    /// Lane of a head at each place of a packed key: `[head_dim]`.
    pub fn key_order(&self) -> Vec<usize> {
        let half = self.rotary_dim / 2;
        let turning = (0..2 * half).map(|place| match self.pairing {
            Pairing::Adjacent => place,
            Pairing::HalfSplit => place / 2 + (place % 2) * half,
        });
        turning.chain(2 * half..self.head_dim).collect()
    }
}

/// Rows of several heads in one buffer: row `(head, token)` starts at `head * head_stride + token * token_stride`.
#[derive(Clone, Copy, Debug)]
pub struct HeadRows<'a> {
    pub values: &'a [f32],
    pub tokens: usize,
    pub head_stride: usize,
    pub token_stride: usize,
}

impl<'a> HeadRows<'a> {
    #[cfg(test)]
    /// values: `[heads, tokens, head_dim]`
    pub fn by_head(values: &'a [f32], tokens: usize, head_dim: usize) -> Self {
        Self { values, tokens, head_stride: tokens * head_dim, token_stride: head_dim }
    }

    /// values: `[tokens, row]`, the heads next to each other at the start of each row.
    pub fn by_token(values: &'a [f32], tokens: usize, row: usize, head_dim: usize) -> Self {
        Self { values, tokens, head_stride: head_dim, token_stride: row }
    }

    /// The row `[head_dim]` of one head and token.
    ///
    /// # Panics
    /// When the buffer is shorter than its shape.
    #[inline]
    pub fn row(&self, head: usize, token: usize, head_dim: usize) -> &'a [f32] {
        &self.values[head * self.head_stride + token * self.token_stride..][..head_dim]
    }
}
