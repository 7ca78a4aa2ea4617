//! Tiles of the cache in the form that products read: in place where they are stored so, else converted into scratch.

use super::arithmetic::{Arithmetic, Form};
use super::rotation::TiledRotation;
use super::stored::{Bf16, Plain, Scaled, Shrunk, Stepped, Stored};
use crate::engine::cpu::cache::{Elements, LayerCache, TILE};
use crate::engine::cpu::lanes::Lanes;

/// # Safety
/// `to`: room for `[rows, columns, 2]`, `columns` a multiple of `N`; the tile has as many; the instruction set of `A`.
#[inline(always)]
unsafe fn convert<A: Arithmetic>(
    from: impl Stored<A::L>,
    to: *mut A::E,
    rows: std::ops::Range<usize>,
    columns: usize,
) {
    let n = <A::L as Lanes>::N;
    for row in rows {
        for column in (0..columns).step_by(n) {
            // SAFETY: the caller's promise.
            unsafe {
                from.prefetch(row, column);
                let (a, b) = (from.load(row, column), from.load(row, column + n / 2));
                A::pack(to.add((row * columns + column) * 2), a, b);
            }
        }
    }
}

/// As [`convert`] for keys, each pair turned by the angles of its position.
///
/// # Safety
/// As [`convert`]; cos, sin: `[turning, TILE]`.
#[inline(always)]
unsafe fn convert_turned<A: Arithmetic>(
    from: impl Stored<A::L>,
    to: *mut A::E,
    turning: usize,
    cos: &[f32],
    sin: &[f32],
) {
    let n = <A::L as Lanes>::N;
    for row in 0..turning {
        let angles = (&cos[row * TILE..][..TILE], &sin[row * TILE..][..TILE]);
        for column in (0..TILE).step_by(n) {
            from.prefetch(row, column);
            // SAFETY: the caller's promise.
            unsafe {
                let a = turned::<A::L>(from, row, column, angles);
                let b = turned::<A::L>(from, row, column + n / 2, angles);
                A::pack(to.add((row * TILE + column) * 2), a, b);
            }
        }
    }
}

/// `N / 2` pairs from `(row, column)` on, turned by the angles (cos and sin, `[TILE]`) of the row.
///
/// # Safety
/// They lie inside the tile; the instruction set of `L`.
#[inline(always)]
unsafe fn turned<L: Lanes>(
    from: impl Stored<L>,
    row: usize,
    column: usize,
    (cos, sin): (&[f32], &[f32]),
) -> L::F {
    debug_assert!(column + L::N / 2 <= cos.len() && cos.len() == sin.len());
    // SAFETY: the caller's promise; the angles are as many as the columns.
    unsafe {
        let x = from.load(row, column);
        let c = L::load_doubled(cos.as_ptr().add(column));
        let s = L::load_doubled(sin.as_ptr().add(column));
        let signs = L::load_pair([-1.0f32, 1.0].as_ptr());
        L::mul_add(x, c, L::mul(L::swap_pairs(x), L::mul(s, signs)))
    }
}

/// Where the tiles of one layer come from.
#[derive(Clone, Copy)]
pub struct Tiles<'a> {
    pub cache: &'a LayerCache,
    /// Angles of the keys, when the cache holds them unrotated.
    pub rotation: Option<&'a TiledRotation>,
    /// Positions that are filled.
    pub end: usize,
}

impl<'a> Tiles<'a> {
    /// Keys of the tile at `position` as `[pairs, TILE, 2]`: in the cache, or in `scratch`.
    ///
    /// # Safety
    /// `scratch` has room for a tile; `position < end`; the instruction set of `A`.
    #[inline(always)]
    pub unsafe fn keys<A: Arithmetic>(
        &self,
        head: usize,
        position: usize,
        scratch: *mut A::E,
    ) -> *const A::E {
        let shape = self.cache.shape();
        let tile = self.cache.tile(head, position);
        let (tile_len, columns) = (shape.key_tile(), TILE);
        let offset = tile * tile_len;
        // SAFETY: the tile lies inside the cache; the scratch is the caller's promise.
        unsafe {
            match self.cache.keys() {
                Elements::F32(all) if A::FORM == Form::Single && self.rotation.is_none() => {
                    all[offset..].as_ptr().cast::<A::E>()
                }
                Elements::BF16(all) if A::FORM == Form::Bf16 && self.rotation.is_none() => {
                    all[offset..].as_ptr().cast::<A::E>()
                }
                Elements::Q16 { values, scales } => {
                    let from = Plain { from: values[offset..].as_ptr(), columns, tile: tile_len };
                    match self.rotation {
                        None if A::FORM == Form::Integers => from.from.cast::<A::E>(),
                        Some(rotation) if A::FORM == Form::Integers => {
                            let from = Shrunk { integers: from, factor: rotation.shrink() };
                            self.pack_keys::<A>(from, position, scratch)
                        }
                        _ => {
                            let scales = &scales[tile * TILE..][..TILE];
                            let from = Stepped { integers: from, scales, keys: true };
                            self.pack_keys::<A>(from, position, scratch)
                        }
                    }
                }
                Elements::F32(all) => self.pack_keys::<A>(
                    Plain { from: all[offset..].as_ptr(), columns, tile: tile_len },
                    position,
                    scratch,
                ),
                Elements::F16(all) => self.pack_keys::<A>(
                    Plain { from: all[offset..].as_ptr(), columns, tile: tile_len },
                    position,
                    scratch,
                ),
                Elements::BF16(all) => {
                    let from = all[offset..].as_ptr().cast::<Bf16>();
                    self.pack_keys::<A>(Plain { from, columns, tile: tile_len }, position, scratch)
                }
                Elements::Q8_0 { values, scales } => {
                    let scales = &scales[tile * shape.key_scales()..][..shape.key_scales()];
                    let integers = Plain { from: values[offset..].as_ptr(), columns, tile: tile_len };
                    let from = Scaled { integers, scales, keys: true };
                    self.pack_keys::<A>(from, position, scratch)
                }
            }
        }
    }

    /// # Safety
    /// As [`Tiles::keys`]; `from` is the tile at `position`.
    #[inline(always)]
    unsafe fn pack_keys<A: Arithmetic>(
        &self,
        from: impl Stored<A::L>,
        position: usize,
        to: *mut A::E,
    ) -> *const A::E {
        let pairs = self.cache.shape().key_pairs();
        // SAFETY: the caller's promise.
        unsafe {
            let turning = match self.rotation {
                Some(rotation) => {
                    let (cos, sin) = rotation.tile(position);
                    convert_turned::<A>(from, to, rotation.pairs(), cos, sin);
                    rotation.pairs()
                }
                None => 0,
            };
            convert::<A>(from, to, turning..pairs, TILE);
        }
        to
    }

    /// Scales of the keys of a tile, `[TILE]`, and of its values, where the cache has one for each.
    pub fn scales(&self, head: usize, position: usize) -> Option<(&'a [f32], &'a [f32])> {
        let tile = self.cache.tile(head, position);
        let of = |elements: &'a Elements| match elements {
            Elements::Q16 { scales, .. } => Some(&scales[tile * TILE..][..TILE]),
            _ => None,
        };
        of(self.cache.keys()).zip(of(self.cache.values()))
    }

    /// Values of the tile at `position` as `[TILE / 2, lanes, 2]`: in the cache, or in `scratch`.
    ///
    /// # Safety
    /// As [`Tiles::keys`].
    #[inline(always)]
    pub unsafe fn values<A: Arithmetic>(
        &self,
        head: usize,
        position: usize,
        scratch: *mut A::E,
    ) -> *const A::E {
        let shape = self.cache.shape();
        let tile = self.cache.tile(head, position);
        let (tile_len, columns) = (shape.value_tile(), shape.value_lanes());
        let offset = tile * tile_len;
        let filled = (self.end - position / TILE * TILE).min(TILE);
        let whole_pairs = filled.is_multiple_of(2);
        let rows = 0..filled.div_ceil(2);
        // SAFETY: the tile lies inside the cache; the scratch is the caller's promise.
        unsafe {
            match self.cache.values() {
                Elements::F32(all) if A::FORM == Form::Single && whole_pairs => {
                    return all[offset..].as_ptr().cast::<A::E>();
                }
                Elements::BF16(all) if A::FORM == Form::Bf16 && whole_pairs => {
                    return all[offset..].as_ptr().cast::<A::E>();
                }
                Elements::Q16 { values, scales } => {
                    let from = Plain { from: values[offset..].as_ptr(), columns, tile: tile_len };
                    if A::FORM == Form::Integers {
                        // Whatever follows the last position has a weight of 0 and is a number.
                        return from.from.cast::<A::E>();
                    }
                    let scales = &scales[tile * TILE..][..TILE];
                    convert::<A>(Stepped { integers: from, scales, keys: false }, scratch, rows, columns)
                }
                Elements::F32(all) => convert::<A>(
                    Plain { from: all[offset..].as_ptr(), columns, tile: tile_len },
                    scratch,
                    rows,
                    columns,
                ),
                Elements::F16(all) => convert::<A>(
                    Plain { from: all[offset..].as_ptr(), columns, tile: tile_len },
                    scratch,
                    rows,
                    columns,
                ),
                Elements::BF16(all) => {
                    let from = all[offset..].as_ptr().cast::<Bf16>();
                    convert::<A>(Plain { from, columns, tile: tile_len }, scratch, rows, columns)
                }
                Elements::Q8_0 { values, scales } => {
                    let scales = &scales[tile * shape.value_scales()..][..shape.value_scales()];
                    let integers = Plain { from: values[offset..].as_ptr(), columns, tile: tile_len };
                    let from = Scaled { integers, scales, keys: false };
                    convert::<A>(from, scratch, rows, columns)
                }
            }
            if !whole_pairs {
                // What follows the last position is old or nothing; its weight of 0 would not hide a NaN.
                for lane in 0..columns {
                    *scratch.add((filled / 2 * columns + lane) * 2 + 1) = A::round(0.0);
                }
            }
        }
        scratch
    }
}
