//! What rotating queries and keys does, and what happens when it is done wrongly.

use super::attention::Head;
use super::{BOTH_PAIRINGS, Finding, HEAD_DIM, all_scalings, dot, noise, norm, relative_difference, spec};
use crate::lab::error::LabError;
use crate::lab::random::Random;
use crate::rope::{Frequencies, Pairing, RopeError, Scaling, frequencies, rotate_f64};

/// Rounding of f64: angles up to 1e5 radians are known to about 1e-11.
const ROUNDING: f64 = 1e-9;
/// How far every text is shifted to see whether anything but distances matters.
const SHIFT: usize = 1000;
const FACTOR: f64 = 4.0;

pub fn findings(seed: u64) -> Result<Vec<Finding>, LabError> {
    let mut random = Random::new(seed, "check rotation", 0);
    let mut findings = distance_only(&mut random)?;
    findings.push(length(&mut random)?);
    findings.push(composition(&mut random)?);
    findings.push(fastest_first()?);
    findings.extend(values(&mut random)?);
    findings.extend(pairings(&mut random)?);
    Ok(findings)
}

/// `x` rotated to `position`.
fn turned(x: &[f64], f: &Frequencies, position: usize, pairing: Pairing) -> Result<Vec<f64>, RopeError> {
    let mut x = x.to_vec();
    rotate_f64(&mut x, HEAD_DIM, f, position, pairing)?;
    Ok(x)
}

fn distance_only(random: &mut Random) -> Result<Vec<Finding>, LabError> {
    let (q, k) = (noise(random, HEAD_DIM), noise(random, HEAD_DIM));
    let scale = norm(&q) * norm(&k);
    let of_pairing = |(name, pairing): (&'static str, Pairing)| {
        let (mut worst, mut of) = (0f64, "none");
        for (method, f) in all_scalings(FACTOR)? {
            for distance in [0, 1, 7, 100, 5000] {
                let score = |at: usize| -> Result<f64, RopeError> {
                    Ok(dot(&turned(&q, &f, at + distance, pairing)?, &turned(&k, &f, at, pairing)?))
                };
                let near = score(0)?;
                for at in [1, 63, 4096, 100_000] {
                    let deviation = (score(at)? - near).abs() / scale;
                    if deviation > worst {
                        (worst, of) = (deviation, method);
                    }
                }
            }
        }
        let what = format!(
            "a rotated score depends on the distance only: largest change of q.k / (|q| |k|) when both move, positions up \
             to 105,000, 12 scalings (most: {of})"
        );
        Ok(Finding::identity(name, worst, ROUNDING, what))
    };
    let both =
        [("distance-only/half-split", Pairing::HalfSplit), ("distance-only/adjacent", Pairing::Adjacent)];
    both.into_iter().map(of_pairing).collect()
}

fn length(random: &mut Random) -> Result<Finding, LabError> {
    let x = noise(random, HEAD_DIM);
    let mut worst = 0f64;
    for (_, f) in all_scalings(FACTOR)? {
        for pairing in BOTH_PAIRINGS {
            for position in [0, 1, 4095, 1_000_000] {
                let found = norm(&turned(&x, &f, position, pairing)?);
                // The pairs that `proportional` leaves alone have frequency 0 and are part of the head.
                worst = worst.max((found / (norm(&x) * f.attention_factor) - 1.0).abs());
            }
        }
    }
    let what = "rotation keeps the length up to the attention factor: largest relative change, 12 scalings, both pairings";
    Ok(Finding::identity("length-kept", worst, ROUNDING, what))
}

fn composition(random: &mut Random) -> Result<Finding, LabError> {
    let x = noise(random, HEAD_DIM);
    let f = frequencies(&spec(Scaling::None), 1)?;
    let mut worst = 0f64;
    for pairing in BOTH_PAIRINGS {
        for (p, q) in [(1, 2), (100, 4000), (77_777, 22_222)] {
            let twice = turned(&turned(&x, &f, p, pairing)?, &f, q, pairing)?;
            worst = worst.max(relative_difference(&twice, &turned(&x, &f, p + q, pairing)?));
        }
    }
    let what = "rotating by p, then by q, is rotating by p + q: largest relative difference";
    Ok(Finding::identity("composition", worst, ROUNDING, what))
}

fn fastest_first() -> Result<Finding, LabError> {
    let f = frequencies(&spec(Scaling::None), 1)?.inv_freq;
    let ratio = f.windows(2).map(|pair| pair[1] / pair[0]).fold(0.0, f64::max);
    let wavelength = |i: usize| std::f64::consts::TAU / f[i];
    let last = f.len() - 1;
    let what = format!(
        "low-index pairs turn fastest: largest ratio of a frequency to the one before it (a turn of pair 0 takes {:.2} \
         tokens, of pair {last} {:.0})",
        wavelength(0),
        wavelength(last)
    );
    // Strictly falling; equal neighbours would give 1.
    Ok(Finding::identity("fast-pairs-first", ratio, 1.0 - f64::EPSILON, what))
}

/// Outputs must not change when a text moves; with rotated values they do.
fn values(random: &mut Random) -> Result<Vec<Finding>, LabError> {
    let f = frequencies(&spec(Scaling::None), 1)?;
    let head = Head::random(random, 16);
    let pairing = Pairing::HalfSplit;
    let plain = |start| Ok::<_, RopeError>(head.clone().rotated(&f, pairing, start)?.attend(true));
    let wrong = |start| {
        let head = head.clone().rotated(&f, pairing, start)?;
        Ok::<_, RopeError>(head.with_rotated_values(&f, pairing, start)?.attend(true))
    };
    Ok(vec![
        Finding::identity(
            "values-unrotated",
            relative_difference(&plain(SHIFT)?, &plain(0)?),
            ROUNDING,
            format!(
                "with unrotated values, moving a text by {SHIFT} positions changes no output: relative change"
            ),
        ),
        Finding::mistake(
            "values-rotated",
            relative_difference(&wrong(SHIFT)?, &wrong(0)?),
            0.1,
            format!(
                "what goes wrong when values are rotated too: relative change of the outputs by the same move of {SHIFT}"
            ),
        ),
    ])
}

/// Weights stored for one pairing and rotated by the other.
fn pairings(random: &mut Random) -> Result<Vec<Finding>, LabError> {
    let f = frequencies(&spec(Scaling::None), 1)?;
    let head = Head::random(random, 16);
    let reference = head.clone().rotated(&f, Pairing::HalfSplit, 0)?.attend(true);
    let wrong = head.clone().rotated(&f, Pairing::Adjacent, 0)?.attend(true);
    // Lane i of the halves becomes lane 2i, lane i + d/2 becomes 2i + 1: the permutation of llama.cpp's converter.
    let reordered = |rows: &[Vec<f64>]| -> Vec<Vec<f64>> {
        let lane = |row: &[f64], lane: usize| row[lane / 2 + lane % 2 * (HEAD_DIM / 2)];
        rows.iter().map(|row| (0..HEAD_DIM).map(|index| lane(row, index)).collect()).collect()
    };
    let moved =
        Head { queries: reordered(&head.queries), keys: reordered(&head.keys), values: head.values.clone() };
    let right = moved.rotated(&f, Pairing::Adjacent, 0)?.attend(true);
    let (mut at_zero, mut far) = (0f64, 0f64);
    for (q, k) in head.queries.iter().zip(&head.keys) {
        let score = |distance, pairing| -> Result<f64, RopeError> {
            let (q_turned, k_turned) =
                (turned(q, &f, SHIFT + distance, pairing)?, turned(k, &f, SHIFT, pairing)?);
            Ok(dot(&q_turned, &k_turned) / (norm(q) * norm(k)))
        };
        for (distance, worst) in [(0, &mut at_zero), (100, &mut far)] {
            let difference = score(distance, Pairing::Adjacent)? - score(distance, Pairing::HalfSplit)?;
            *worst = worst.max(difference.abs());
        }
    }
    let wrong = relative_difference(&wrong, &reference);
    Ok(vec![
        Finding::mistake(
            "wrong-pairing",
            wrong,
            0.1,
            "what goes wrong when weights for half-split lanes are rotated as adjacent ones: relative error of the outputs \
             of 16 tokens",
        ),
        Finding::mistake(
            "wrong-pairing/score",
            far,
            0.1,
            format!(
                "the same for scores: largest error of q.k / (|q| |k|) at distance 100; at distance 0 it is {at_zero:.0e}, so \
                 nothing shows there"
            ),
        ),
        Finding::identity(
            "pairing-permutation",
            relative_difference(&right, &reference),
            ROUNDING,
            "with the lanes of queries and keys put in the other order, both pairings agree: relative difference",
        ),
    ])
}
