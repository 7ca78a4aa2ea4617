//! Lanes in plain Rust: what the compiler makes of four values at a time, on any CPU.

use half::{bf16, f16};

use super::Lanes;

/// Four values, no instruction set asked for.
#[derive(Clone, Copy)]
pub struct Portable;

const N: usize = 4;
type F = [f32; N];

#[inline(always)]
fn each(f: impl Fn(usize) -> f32) -> F {
    [f(0), f(1), f(2), f(3)]
}

// SAFETY: plain Rust; each function accesses the elements that the trait names.
unsafe impl Lanes for Portable {
    type F = F;
    const N: usize = N;

    #[inline(always)]
    fn prefetch<T>(_at: *const T) {}

    #[inline(always)]
    unsafe fn splat(x: f32) -> F {
        [x; N]
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> F {
        // SAFETY: the caller gives `N` readable values; arrays of f32 read unaligned.
        unsafe { from.cast::<F>().read_unaligned() }
    }

    #[inline(always)]
    unsafe fn store(to: *mut f32, x: F) {
        // SAFETY: the caller gives room for `N` values.
        unsafe { to.cast::<F>().write_unaligned(x) }
    }

    #[inline(always)]
    unsafe fn load_first(from: *const f32, count: usize) -> F {
        // SAFETY: lanes below `count` are readable.
        each(|i| if i < count { unsafe { from.add(i).read_unaligned() } } else { 0.0 })
    }

    #[inline(always)]
    unsafe fn store_first(to: *mut f32, x: F, count: usize) {
        for (i, value) in x.into_iter().take(count).enumerate() {
            // SAFETY: lanes below `count` are writable.
            unsafe { to.add(i).write_unaligned(value) };
        }
    }

    #[inline(always)]
    unsafe fn load_pair(from: *const f32) -> F {
        // SAFETY: two values are readable.
        let [a, b] = unsafe { from.cast::<[f32; 2]>().read_unaligned() };
        [a, b, a, b]
    }

    #[inline(always)]
    unsafe fn load_doubled(from: *const f32) -> F {
        // SAFETY: `N / 2` values are readable.
        let [a, b] = unsafe { from.cast::<[f32; 2]>().read_unaligned() };
        [a, a, b, b]
    }

    #[inline(always)]
    unsafe fn load_f16(from: *const u16) -> F {
        // SAFETY: `N` values are readable.
        each(|i| f16::from_bits(unsafe { from.add(i).read_unaligned() }).to_f32_const())
    }

    #[inline(always)]
    unsafe fn load_bf16(from: *const u16) -> F {
        // SAFETY: `N` values are readable.
        each(|i| bf16::from_bits(unsafe { from.add(i).read_unaligned() }).to_f32_const())
    }

    #[inline(always)]
    unsafe fn load_i16(from: *const i16) -> F {
        // SAFETY: `N` values are readable.
        each(|i| f32::from(unsafe { from.add(i).read() }))
    }

    #[inline(always)]
    unsafe fn load_i8(from: *const i8) -> F {
        // SAFETY: `N` values are readable.
        each(|i| f32::from(unsafe { from.add(i).read() }))
    }

    #[inline(always)]
    unsafe fn add(a: F, b: F) -> F {
        each(|i| a[i] + b[i])
    }

    #[inline(always)]
    unsafe fn sub(a: F, b: F) -> F {
        each(|i| a[i] - b[i])
    }

    #[inline(always)]
    unsafe fn mul(a: F, b: F) -> F {
        each(|i| a[i] * b[i])
    }

    #[inline(always)]
    unsafe fn div(a: F, b: F) -> F {
        each(|i| a[i] / b[i])
    }

    #[inline(always)]
    unsafe fn mul_add(a: F, b: F, c: F) -> F {
        // Not fused: without the instruction a fused product is a call per value.
        each(|i| a[i] * b[i] + c[i])
    }

    #[inline(always)]
    unsafe fn max(a: F, b: F) -> F {
        each(|i| if a[i] > b[i] { a[i] } else { b[i] })
    }

    #[inline(always)]
    unsafe fn any_above(a: F, b: F) -> bool {
        (a[0] > b[0]) | (a[1] > b[1]) | (a[2] > b[2]) | (a[3] > b[3])
    }

    #[inline(always)]
    unsafe fn swap_pairs(x: F) -> F {
        [x[1], x[0], x[3], x[2]]
    }

    #[inline(always)]
    unsafe fn pair_sums(a: F, b: F) -> F {
        [a[0] + a[1], a[2] + a[3], b[0] + b[1], b[2] + b[3]]
    }

    #[inline(always)]
    unsafe fn keep(x: F, from: usize, to: usize, other: F) -> F {
        each(|i| if from <= i && i < to { x[i] } else { other[i] })
    }

    #[inline(always)]
    unsafe fn split(x: F) -> (F, F) {
        // Adding and taking away 1.5 * 2^23 rounds to an integer; one step down where that went up.
        const ROUND: f32 = 12_582_912.0;
        let floor = each(|i| {
            let clamped = x[i].clamp(-127.0, 128.0);
            let nearest = (clamped + ROUND) - ROUND;
            if nearest > clamped { nearest - 1.0 } else { nearest }
        });
        (each(|i| if floor[i] <= -127.0 || floor[i] >= 128.0 { 0.0 } else { x[i] - floor[i] }), floor)
    }

    #[inline(always)]
    unsafe fn scale(y: F, floor: F) -> F {
        // 127 is the exponent bias: -127 gives the bits of 0, 128 those of infinity. Not a number stays in `y`.
        each(|i| y[i] * f32::from_bits(((floor[i] as i32 + 127) as u32) << 23))
    }

    #[inline(always)]
    unsafe fn sum(x: F) -> f32 {
        (x[0] + x[1]) + (x[2] + x[3])
    }
}
