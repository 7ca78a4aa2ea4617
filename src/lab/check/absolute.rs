//! Attention without positions, and with positions that are added.

use super::attention::Head;
use super::{Finding, HEAD_DIM, dot, noise, norm, relative_difference, spec};
use crate::lab::encoding::sinusoids;
use crate::lab::error::LabError;
use crate::lab::random::Random;
use crate::rope::{Frequencies, Pairing, Scaling, base_frequencies, frequencies, rotate_f64};

const ROUNDING: f64 = 1e-9;
const TOKENS: usize = 12;
const THETA: f64 = 10_000.0;

pub fn findings(seed: u64) -> Result<Vec<Finding>, LabError> {
    let mut random = Random::new(seed, "check absolute", 0);
    let mut findings = permutations(&mut random)?;
    findings.push(linear_map()?);
    findings.push(added_is_not_relative(&mut random));
    Ok(findings)
}

/// Shuffled tokens must give shuffled outputs, unless something tells positions apart.
fn permutations(random: &mut Random) -> Result<Vec<Finding>, LabError> {
    let head = Head::random(random, TOKENS);
    let mut order: Vec<usize> = (0..TOKENS).collect();
    for last in (1..TOKENS).rev() {
        order.swap(last, random.below(last + 1));
    }
    // The shuffled outputs of the tokens in order.
    let shuffled = |out: &[f64]| -> Vec<f64> {
        order.iter().flat_map(|token| out[token * HEAD_DIM..][..HEAD_DIM].to_vec()).collect()
    };
    let f = frequencies(&spec(Scaling::None), 1)?;
    let rotated = |head: Head| head.rotated(&f, Pairing::HalfSplit, 0);
    let moved = head.permuted(&order);
    let change = |out: Vec<f64>, of_moved: Vec<f64>| relative_difference(&of_moved, &shuffled(&out));
    Ok(vec![
        Finding::identity(
            "permutation",
            change(head.attend(false), moved.attend(false)),
            ROUNDING,
            "attention without positions does not see order: relative difference of the outputs of shuffled tokens from \
             shuffled outputs",
        ),
        Finding::mistake(
            "permutation/causal",
            change(head.attend(true), moved.attend(true)),
            0.1,
            "a causal mask alone breaks that, which is why a decoder without encoding learns anything: the same difference",
        ),
        Finding::mistake(
            "permutation/rope",
            change(rotated(head.clone())?.attend(false), rotated(moved.clone())?.attend(false)),
            0.1,
            "rotated queries and keys break it without a mask: the same difference",
        ),
    ])
}

/// `PE(p + k) = M_k PE(p)` with one matrix for all `p`: a rotation of each pair `(sin, cos)` backwards by `k`.
fn linear_map() -> Result<Finding, LabError> {
    let table = sinusoids(5000, HEAD_DIM, THETA);
    let row = |position: usize| &table[position * HEAD_DIM..][..HEAD_DIM];
    let backwards = Frequencies {
        inv_freq: base_frequencies(THETA, HEAD_DIM).iter().map(|f| -f).collect(),
        attention_factor: 1.0,
    };
    let mut worst = 0f64;
    for k in [1, 10, 999] {
        for p in [0, 1, 64, 4000] {
            let mut mapped = row(p).to_vec();
            rotate_f64(&mut mapped, HEAD_DIM, &backwards, k, Pairing::Adjacent)?;
            worst = worst.max(relative_difference(&mapped, row(p + k)));
        }
    }
    let what =
        "sinusoids: PE(p + k) is one linear map of PE(p), the same for all p: largest relative difference";
    Ok(Finding::identity("sinusoid-shift", worst, ROUNDING, what))
}

/// A score of two tokens with added sinusoids changes when both move.
fn added_is_not_relative(random: &mut Random) -> Finding {
    let table = sinusoids(5000, HEAD_DIM, THETA);
    let (q, k) = (noise(random, HEAD_DIM), noise(random, HEAD_DIM));
    let with = |x: &[f64], position: usize| -> Vec<f64> {
        x.iter().zip(&table[position * HEAD_DIM..]).map(|(x, added)| x + added).collect()
    };
    let score = |at: usize| {
        let (q, k) = (with(&q, at + 7), with(&k, at));
        dot(&q, &k) / (norm(&q) * norm(&k))
    };
    let worst = [1, 63, 1000, 4096].into_iter().map(|at| (score(at) - score(0)).abs()).fold(0.0, f64::max);
    let what = "added sinusoids do not make scores relative: largest change of q.k / (|q| |k|) at distance 7 when both move";
    Finding::mistake("sinusoid-score", worst, 0.01, what)
}
