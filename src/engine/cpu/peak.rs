//! What this machine can do at most, measured: the yardstick for the kernels.

use std::hint::black_box;
use std::time::Instant;

use super::aligned::Aligned;
use super::isa::{Isa, Vectorised};
use super::pool::Pool;
use crate::engine::stages::Peaks;

/// Bytes that are read: more than any cache holds.
const BYTES: usize = 256 << 20;
/// Bytes that a thread reads before it asks for more.
const PIECE: usize = 1 << 20;
/// Turns of the register loop of one piece of work: some 0.1 ms.
const TURNS: usize = 30_000;
const PIECES: usize = 64;
const ROUNDS: usize = 3;

/// Measures both peaks with all threads of `pool`: the best of three rounds, some 0.3 s.
pub fn peaks(isa: Isa, pool: &Pool) -> Peaks {
    Peaks { operations_per_s: operations_per_s(isa, pool), bytes_per_s: bytes_per_s(isa, pool) }
}

/// The shortest of some rounds, in seconds.
fn shortest(mut round: impl FnMut()) -> f64 {
    let seconds = (0..ROUNDS).map(|_| {
        let started = Instant::now();
        round();
        started.elapsed().as_secs_f64()
    });
    seconds.fold(f64::INFINITY, f64::min)
}

/// Reads memory that no cache holds.
fn bytes_per_s(isa: Isa, pool: &Pool) -> f64 {
    let mut memory = Aligned::<i32>::zeroed(BYTES / size_of::<i32>());
    // Pages that nobody has written are all the same one.
    memory.fill(1);
    let piece = PIECE / size_of::<i32>();
    let seconds = shortest(|| {
        pool.for_each(memory.len() / piece, 1, |range| {
            for index in range {
                black_box(isa.vectorise(Sum(&memory[index * piece..][..piece])));
            }
        });
    });
    BYTES as f64 / seconds
}

/// The sum of some values, read from four places at a time: a core asks for more memory at once than along a single stream.
struct Sum<'a>(&'a [i32]);

impl Vectorised for Sum<'_> {
    type Output = i32;

    #[inline(always)]
    fn run(self) -> i32 {
        const AT_ONCE: usize = 32;
        let mut sums = [0i32; AT_ONCE];
        let (parts, rest) = self.0.as_chunks::<AT_ONCE>();
        let quarter = parts.len() / 4;
        let (first, last) = parts.split_at(2 * quarter);
        let (a, b) = first.split_at(quarter);
        let (c, d) = last.split_at(quarter);
        let mut add = |values: &[i32]| {
            for (sum, value) in sums.iter_mut().zip(values) {
                *sum = sum.wrapping_add(*value);
            }
        };
        for (((a, b), c), d) in a.iter().zip(b).zip(c).zip(d) {
            add(a);
            add(b);
            add(c);
            add(d);
        }
        d[quarter..].iter().for_each(|values| add(values));
        add(rest);
        sums.iter().fold(0, |all, sum| all.wrapping_add(*sum))
    }
}

/// Multiplies and adds in registers only, with the instruction that the matrix kernels use. `None`: there is no such
/// instruction, what the compiler makes of plain code is no yardstick.
fn operations_per_s(isa: Isa, pool: &Pool) -> Option<f64> {
    let per_turn = operations_per_turn(isa)?;
    let seconds = shortest(|| {
        pool.for_each(PIECES, 1, |range| {
            for _ in range {
                black_box(turn(isa, TURNS));
            }
        });
    });
    Some(per_turn * TURNS as f64 * PIECES as f64 / seconds)
}

/// Independent sums: more than the latency of an instruction times those that start in a cycle.
const CHAINS: usize = 14;

fn operations_per_turn(isa: Isa) -> Option<f64> {
    let per_vector = match isa {
        Isa::Scalar => return None,
        Isa::Avx2Fma => 32.0,
        Isa::Avx512 | Isa::Avx512Bf16Vnni => 64.0,
    };
    Some(CHAINS as f64 * per_vector)
}

#[cfg(not(target_arch = "x86_64"))]
fn turn(_: Isa, _: usize) -> i32 {
    0
}

#[cfg(target_arch = "x86_64")]
fn turn(isa: Isa, turns: usize) -> i32 {
    match isa {
        Isa::Scalar => 0,
        // SAFETY: an `Isa` value is the promise that the CPU runs it; likewise below.
        Isa::Avx2Fma => unsafe { x86::avx2(turns) },
        // SAFETY: as above.
        Isa::Avx512 => unsafe { x86::avx512(turns) },
        // SAFETY: as above.
        Isa::Avx512Bf16Vnni => unsafe { x86::vnni(turns) },
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;
    use std::hint::black_box;

    use super::CHAINS;

    /// Two words of -5.
    const FACTOR: i32 = (-5 << 16) | 0xfffb;

    /// A loop over sums in registers, each of which starts at 1 in every lane: the sum of all lanes at the end.
    macro_rules! register_loop {
        ($name:ident, $features:literal, $splat:ident, $lanes:literal, |$sum:ident, $factor:ident| $next:expr) => {
            /// # Safety
            /// Needs the instruction set of its name.
            #[target_feature(enable = $features)]
            pub unsafe fn $name(turns: usize) -> i32 {
                let $factor = black_box($splat(FACTOR));
                let mut sums = [black_box($splat(1)); CHAINS];
                for _ in 0..turns {
                    for sum in &mut sums {
                        let $sum = *sum;
                        *sum = $next;
                    }
                }
                // SAFETY: vectors are their lanes.
                let lanes: [[i32; $lanes]; CHAINS] = unsafe { std::mem::transmute(sums) };
                lanes.as_flattened().iter().fold(0, |all, lane| all.wrapping_add(*lane))
            }
        };
    }

    register_loop!(vnni, "avx512f,avx512bw,avx512vnni", _mm512_set1_epi32, 16, |sum, factor| {
        _mm512_dpwssd_epi32(sum, factor, factor)
    });
    // Products of what was summed, so that none can be taken out of the loop.
    register_loop!(avx512, "avx512f,avx512bw", _mm512_set1_epi32, 16, |sum, factor| {
        _mm512_add_epi32(sum, _mm512_madd_epi16(sum, factor))
    });
    register_loop!(avx2, "avx2", _mm256_set1_epi32, 8, |sum, factor| {
        _mm256_add_epi32(sum, _mm256_madd_epi16(sum, factor))
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn register_loops_compute_what_they_claim() {
        for isa in Isa::ALL_AVAILABLE() {
            let expected = match isa {
                Isa::Scalar => 0,
                // Two products of -5 and -5 a turn.
                Isa::Avx512Bf16Vnni => 16 * CHAINS as i32 * (1 + 50 * 7),
                Isa::Avx512 => 16 * CHAINS as i32 * lane(7),
                Isa::Avx2Fma => 8 * CHAINS as i32 * lane(7),
            };
            assert_eq!(turn(isa, 7), expected, "{isa}");
        }
    }

    #[test]
    fn every_value_is_read_once() {
        for len in [0, 1, 31, 32, 95, 128, 1000, 4096 + 77] {
            let values: Vec<i32> = (0..len).map(|i| i * i + 1).collect();
            for isa in Isa::ALL_AVAILABLE() {
                assert_eq!(isa.vectorise(Sum(&values)), values.iter().sum::<i32>(), "{isa} {len}");
            }
        }
    }

    /// What a lane of the loops without VNNI holds after some turns.
    fn lane(turns: usize) -> i32 {
        (0..turns).fold(1i32, |x, _| {
            let (low, high) = (i32::from(x as i16), x >> 16);
            x.wrapping_add(-5 * low - 5 * high)
        })
    }
}
