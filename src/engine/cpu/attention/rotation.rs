//! Angles of cached keys, in the order in which tiles are turned.

use crate::engine::cpu::aligned::Aligned;
use crate::engine::cpu::cache::{BEFORE_TURNING, TILE};
use crate::rope::Table;

/// cos and sin of positions from 0 on: `[tiles, pairs, TILE]` each.
#[derive(Clone, Debug)]
pub struct TiledRotation {
    pairs: usize,
    positions: usize,
    cos: Aligned<f32>,
    sin: Aligned<f32>,
    shrink: f32,
}

impl TiledRotation {
    /// The table of all cached positions; `None` when it does not start at position 0.
    pub fn new(table: &Table) -> Option<Self> {
        let (pairs, positions) = (table.pairs(), table.positions());
        if positions.start != 0 {
            return None;
        }
        let len = positions.len().div_ceil(TILE) * pairs * TILE;
        let (mut cos, mut sin) = (Aligned::zeroed(len), Aligned::zeroed(len));
        let mut longest = 1.0f32;
        for position in positions.clone() {
            let at = position / TILE * pairs * TILE + position % TILE;
            for pair in 0..pairs {
                cos[at + pair * TILE] = table.cos()[position * pairs + pair];
                sin[at + pair * TILE] = table.sin()[position * pairs + pair];
                longest = longest.max(cos[at + pair * TILE].hypot(sin[at + pair * TILE]));
            }
        }
        Some(Self { pairs, positions: positions.len(), cos, sin, shrink: BEFORE_TURNING / longest })
    }

    /// Rotated pairs per head.
    pub fn pairs(&self) -> usize {
        self.pairs
    }

    /// What keeps 16-bit integers of turned keys within their bounds, also where angles carry an attention factor.
    pub fn shrink(&self) -> f32 {
        self.shrink
    }

    /// Positions covered, from 0 on.
    pub fn positions(&self) -> usize {
        self.positions
    }

    /// Angles `[pairs, TILE]` of the tile that holds `position`.
    pub fn tile(&self, position: usize) -> (&[f32], &[f32]) {
        let range = position / TILE * self.pairs * TILE..(position / TILE + 1) * self.pairs * TILE;
        (&self.cos[range.clone()], &self.sin[range])
    }
}
