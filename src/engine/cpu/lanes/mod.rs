//! Vectors of `f32` for kernels that are written once: the same body over the lanes of each instruction set.
//!
//! A kernel is a generic function over [`Lanes`], marked `#[inline(always)]`; one thin wrapper per instruction set
//! carries `#[target_feature]` and calls it. [`on_lanes!`] writes the wrappers and the choice between them. No closure may
//! use lanes: it would be compiled without the instruction set, each operation a call.

pub mod exp;
mod portable;

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "x86_64")]
pub mod exp_avx2;

#[cfg(target_arch = "x86_64")]
pub use avx2::Avx2;
#[cfg(target_arch = "x86_64")]
pub use avx512::Avx512;
pub use portable::Portable;

/// Operations on one vector of [`Lanes::N`] values.
///
/// # Safety
/// Every function needs a CPU with the instruction set that the implementing type stands for. Functions that take a
/// pointer access exactly the elements that they name, at any alignment.
#[allow(clippy::missing_safety_doc)]
pub unsafe trait Lanes: Copy + 'static {
    /// One vector.
    type F: Copy;
    /// Values per vector: a power of two, at least 4.
    const N: usize;

    /// Asks for the cache line of an address, which need not be valid.
    fn prefetch<T>(at: *const T);
    unsafe fn splat(x: f32) -> Self::F;
    /// `N` values from `from`.
    unsafe fn load(from: *const f32) -> Self::F;
    unsafe fn store(to: *mut f32, x: Self::F);
    /// The first `count < N` values from `from`, then zeros.
    unsafe fn load_first(from: *const f32, count: usize) -> Self::F;
    /// Writes the first `count < N` lanes.
    unsafe fn store_first(to: *mut f32, x: Self::F, count: usize);
    /// The first two values, again and again.
    unsafe fn load_pair(from: *const f32) -> Self::F;
    /// `N / 2` values, each twice.
    unsafe fn load_doubled(from: *const f32) -> Self::F;
    /// `N` half-precision values.
    unsafe fn load_f16(from: *const u16) -> Self::F;
    /// `N` bfloat16 values.
    unsafe fn load_bf16(from: *const u16) -> Self::F;
    /// `N` integers.
    unsafe fn load_i16(from: *const i16) -> Self::F;
    /// `N` integers.
    unsafe fn load_i8(from: *const i8) -> Self::F;

    unsafe fn add(a: Self::F, b: Self::F) -> Self::F;
    unsafe fn sub(a: Self::F, b: Self::F) -> Self::F;
    unsafe fn mul(a: Self::F, b: Self::F) -> Self::F;
    unsafe fn div(a: Self::F, b: Self::F) -> Self::F;
    /// `a * b + c`
    unsafe fn mul_add(a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    /// The larger of each; any of the two where one is not a number.
    unsafe fn max(a: Self::F, b: Self::F) -> Self::F;
    /// Whether any lane of `a` is above that of `b`.
    unsafe fn any_above(a: Self::F, b: Self::F) -> bool;
    /// Lanes exchanged within each pair `(2i, 2i + 1)`.
    unsafe fn swap_pairs(x: Self::F) -> Self::F;
    /// `a[2i] + a[2i + 1]`, then those of `b`.
    unsafe fn pair_sums(a: Self::F, b: Self::F) -> Self::F;
    /// Lane `i` of `x` where `from <= i < to`, else of `other`.
    unsafe fn keep(x: Self::F, from: usize, to: usize, other: Self::F) -> Self::F;
    /// `x - floor(x)` and what [`Lanes::scale`] needs to multiply by two to the floor of `x`.
    unsafe fn split(x: Self::F) -> (Self::F, Self::F);
    /// `y` times two to the power of the floor of `x`; `floor` from [`Lanes::split`]. Zero below 2^-126, infinite from 2^128.
    unsafe fn scale(y: Self::F, floor: Self::F) -> Self::F;
    /// Sum of all lanes, in a fixed order.
    unsafe fn sum(x: Self::F) -> f32;
    /// Largest lane that is a number.
    #[inline(always)]
    unsafe fn max_lane(x: Self::F) -> f32 {
        let mut lanes = [0.0f32; 16];
        // SAFETY: `N <= 16` values fit; the instruction set is the caller's promise.
        unsafe { Self::store(lanes.as_mut_ptr(), x) };
        lanes[..Self::N].iter().copied().fold(f32::NEG_INFINITY, f32::max)
    }
}

/// Defines `pub fn $name(isa, arguments...)` that runs the generic `$body::<L>(arguments...)` compiled for `isa`.
macro_rules! on_lanes {
    ($(#[$doc:meta])* $vis:vis fn $name:ident = $body:ident($($arg:ident: $type:ty),* $(,)?) $(-> $out:ty)?) => {
        $(#[$doc])*
        #[allow(clippy::too_many_arguments)]
        $vis fn $name(isa: $crate::engine::cpu::isa::Isa, $($arg: $type),*) $(-> $out)? {
            use $crate::engine::cpu::isa::Isa;
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,f16c")]
            #[allow(clippy::too_many_arguments)]
            fn avx2($($arg: $type),*) $(-> $out)? {
                // SAFETY: this function is compiled for, and only called on, a CPU with these features.
                unsafe { $body::<$crate::engine::cpu::lanes::Avx2>($($arg),*) }
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
            #[allow(clippy::too_many_arguments)]
            fn avx512($($arg: $type),*) $(-> $out)? {
                // SAFETY: this function is compiled for, and only called on, a CPU with these features.
                unsafe { $body::<$crate::engine::cpu::lanes::Avx512>($($arg),*) }
            }
            match isa {
                #[cfg(target_arch = "x86_64")]
                // SAFETY: an `Isa` value is the promise that this CPU runs it.
                Isa::Avx2Fma => unsafe { avx2($($arg),*) },
                #[cfg(target_arch = "x86_64")]
                // SAFETY: an `Isa` value is the promise that this CPU runs it.
                Isa::Avx512 | Isa::Avx512Bf16Vnni => unsafe { avx512($($arg),*) },
                // SAFETY: `Portable` needs no instruction set.
                _ => unsafe { $body::<$crate::engine::cpu::lanes::Portable>($($arg),*) },
            }
        }
    };
}
pub(crate) use on_lanes;

#[cfg(test)]
mod tests;
