//! Where in the cache the next token will be, and what it will see.

use super::shape::TILE;
use super::{Elements, LayerCache};
use crate::engine::cpu::soon::Soon;

impl LayerCache {
    /// Notes the memory that appending `position` writes and that attention up to it reads: the tile of the position, then the
    /// ones before it, as long as there are at most `most` bytes. Nothing when the position is beyond the capacity.
    pub fn note(&self, position: usize, most: usize, soon: &mut Soon) {
        if position >= self.capacity {
            return;
        }
        let (newest, seen) = (position / TILE, position % TILE + 1);
        for head in 0..self.shape.n_kv_heads {
            let tile = self.tile(head, position);
            let (pairs, lanes) = (self.shape.key_pairs(), self.shape.value_lanes());
            for pair in 0..pairs {
                self.keys.note(tile * self.shape.key_tile() + pair * 2 * TILE, 2 * seen, soon);
            }
            self.values.note(tile * self.shape.value_tile(), seen.next_multiple_of(2) * lanes, soon);
            self.keys.note_scales(tile, self.shape.key_scales(), soon);
            self.values.note_scales(tile, self.shape.value_scales(), soon);
        }
        for before in 1..=newest {
            for head in 0..self.shape.n_kv_heads {
                let tile = self.tile(head, position) - before;
                let (key_tile, value_tile) = (self.shape.key_tile(), self.shape.value_tile());
                self.keys.note(tile * key_tile, key_tile, soon);
                self.values.note(tile * value_tile, value_tile, soon);
                if soon.bytes() > most {
                    return;
                }
            }
        }
    }
}

impl Elements {
    fn note(&self, from: usize, len: usize, soon: &mut Soon) {
        let all = from..from + len;
        match self {
            Self::F32(values) => soon.add(&values[all]),
            Self::F16(values) | Self::BF16(values) => soon.add(&values[all]),
            Self::Q16 { values, .. } => soon.add(&values[all]),
            Self::Q8_0 { values, .. } => soon.add(&values[all]),
        }
    }

    /// `scales`: those of a tile, for [`KvType::Q8_0`](crate::engine::KvType::Q8_0).
    fn note_scales(&self, tile: usize, scales: usize, soon: &mut Soon) {
        match self {
            Self::F32(_) | Self::F16(_) | Self::BF16(_) => {}
            Self::Q16 { scales: all, .. } => soon.add(&all[tile * TILE..][..TILE]),
            Self::Q8_0 { scales: all, .. } => soon.add(&all[tile * scales..][..scales]),
        }
    }
}
