//! What the scaling methods do and do not do.

use super::attention::softmax;
use super::{Finding, HEAD_DIM, all_scalings, dot, noise, norm, spec};
use crate::lab::error::LabError;
use crate::lab::random::Random;
use crate::rope::{
    Frequencies, Llama3, Magnitude, Pairing, Ramp, RopeError, RopeSpec, Scaling, Yarn, base_frequencies,
    frequencies, ntk_by_parts, rotate_f64,
};

const ROUNDING: f64 = 1e-12;
const FACTOR: f64 = 4.0;

pub fn findings(seed: u64) -> Result<Vec<Finding>, LabError> {
    let mut random = Random::new(seed, "check scaling", 0);
    let mut findings = vec![factor_one()?, attention_factor(&mut random)?, entropy(&mut random)];
    findings.extend(ramp()?);
    findings.push(llama_3_1()?);
    findings.extend(dynamic_cache(&mut random)?);
    Ok(findings)
}

fn yarn(factor: f64) -> Scaling {
    Scaling::Yarn(Yarn { factor, ramp: Ramp::default(), magnitude: Magnitude::Default })
}

fn largest_ratio(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| (a / b).max(b / a) - 1.0).fold(0.0, f64::max)
}

fn factor_one() -> Result<Finding, LabError> {
    let plain = frequencies(&spec(Scaling::None), 1)?.inv_freq;
    let mut worst = 0f64;
    // The last two are given by lists or by a number of pairs, not by a factor.
    for (_, f) in all_scalings(1.0)?.iter().filter(|(name, _)| !["proportional", "rope-freqs"].contains(name))
    {
        worst = worst.max(largest_ratio(&f.inv_freq, &plain)).max((f.attention_factor - 1.0).abs());
    }
    let what = "a factor of 1 changes nothing: largest relative change of a frequency or the attention factor, 10 methods";
    Ok(Finding::identity("factor-one", worst, 0.0, what))
}

/// Both sides of a score are multiplied.
fn attention_factor(random: &mut Random) -> Result<Finding, LabError> {
    let scaled = frequencies(&spec(yarn(FACTOR)), 1)?;
    let plain = Frequencies { attention_factor: 1.0, ..scaled.clone() };
    let (q, k) = (noise(random, HEAD_DIM), noise(random, HEAD_DIM));
    let score = |f: &Frequencies| -> Result<f64, RopeError> {
        let (mut q, mut k) = (q.clone(), k.clone());
        rotate_f64(&mut q, HEAD_DIM, f, 900, Pairing::HalfSplit)?;
        rotate_f64(&mut k, HEAD_DIM, f, 850, Pairing::HalfSplit)?;
        Ok(dot(&q, &k))
    };
    let a = scaled.attention_factor;
    let deviation = (score(&scaled)? / score(&plain)? / (a * a) - 1.0).abs();
    let what = format!(
        "the attention factor multiplies queries and keys, so scores get its square: YaRN x4 has {a:.5}, scores grow by \
         {:.5}; relative deviation",
        a * a
    );
    Ok(Finding::identity("attention-factor-squared", deviation, ROUNDING * 100.0, what))
}

/// The factor does not bring back the entropy that attention had over the original length.
fn entropy(random: &mut Random) -> Finding {
    let (keys, trials) = (1024, 20);
    let a = 0.1 * FACTOR.ln() + 1.0;
    let of = |scores: &[f64], scale: f64| {
        let scaled: Vec<f64> = scores.iter().map(|score| scale * score).collect();
        -softmax(&scaled).iter().map(|p| p * p.ln()).sum::<f64>()
    };
    let (mut short, mut long, mut corrected) = (0.0, 0.0, 0.0);
    for _ in 0..trials {
        let scores = noise(random, keys * FACTOR as usize);
        short += of(&scores[..keys], 1.0) / f64::from(trials);
        long += of(&scores, 1.0) / f64::from(trials);
        corrected += of(&scores, a * a) / f64::from(trials);
    }
    let what = format!(
        "the attention factor is a fit, no exact restoration: entropy of attention over normal scores is {short:.2} nats \
         with {keys} keys, {long:.2} with {} and {corrected:.2} with the factor; what is left of the difference, nats",
        keys * FACTOR as usize
    );
    Finding::mistake("attention-factor-fit", corrected - short, 0.1, what)
}

/// The blend by number of turns, as the paper's text has it: `(turns - slow) / (fast - slow)` of each frequency kept.
fn ramp_by_turns(theta: f64, dim: usize, context: usize, factor: f64, ramp: &Ramp) -> Vec<f64> {
    let blended = |f: &f64| {
        let turns = context as f64 * f / std::f64::consts::TAU;
        let kept = ((turns - ramp.beta_slow) / (ramp.beta_fast - ramp.beta_slow)).clamp(0.0, 1.0);
        (1.0 - kept) * f / factor + kept * f
    };
    base_frequencies(theta, dim).iter().map(blended).collect()
}

fn ramp() -> Result<Vec<Finding>, LabError> {
    let (theta, dim, context) = (10_000.0, 128, 4096);
    let ramp = Ramp { truncate: false, ..Ramp::default() };
    let by_pair = ntk_by_parts(theta, dim, context, FACTOR, &ramp)?.inv_freq;
    let by_turns = ramp_by_turns(theta, dim, context, FACTOR, &ramp);
    let turns = |f: f64| context as f64 * f / std::f64::consts::TAU;
    let plain = base_frequencies(theta, dim);
    let (mut inside, mut outside, mut at) = (0f64, 0f64, 0);
    for (pair, f) in plain.iter().enumerate() {
        let difference = (by_pair[pair] / by_turns[pair] - 1.0).abs();
        if turns(*f) >= ramp.beta_fast || turns(*f) <= ramp.beta_slow {
            outside = outside.max(difference);
        } else if difference > inside {
            (inside, at) = (difference, pair);
        }
    }
    Ok(vec![
        Finding::identity(
            "yarn-ramp/outside",
            outside,
            ROUNDING,
            "YaRN's ramp by pair index (every implementation) and by turns (the paper's text) agree outside the ramp: largest \
             relative difference of a frequency, Llama 2, factor 4",
        ),
        Finding::mistake(
            "yarn-ramp/inside",
            inside,
            0.05,
            format!("inside the ramp they do not: largest relative difference, at pair {at}"),
        ),
    ])
}

/// A `rope_scaling` entry holds one method: YaRN given for Llama 3.1 takes the place of its own rule.
fn llama_3_1() -> Result<Finding, LabError> {
    let with = |scaling| RopeSpec {
        theta: 5e5,
        head_dim: 128,
        rotary_dim: 128,
        pairing: Pairing::HalfSplit,
        original_context: 8192,
        scaling,
    };
    let own = Llama3 { factor: 8.0, low_freq_factor: 1.0, high_freq_factor: 4.0 };
    let own = frequencies(&with(Scaling::Llama3(own)), 1)?.inv_freq;
    let given = frequencies(&with(yarn(FACTOR)), 1)?.inv_freq;
    let last = own.len() - 1;
    let slowest = given[last] / own[last];
    let what = format!(
        "`rope_scaling` given for Llama 3.1 replaces its llama3 rule instead of adding to it: YaRN x4 turns the slowest pair \
         {slowest:.1} times as fast as the model was trained with; largest relative change of a frequency"
    );
    Ok(Finding::mistake("llama3-replaced", largest_ratio(&given, &own), 0.5, what))
}

/// Keys cached after rotation keep the base of the length at which they were seen; queries come with the current one.
fn dynamic_cache(random: &mut Random) -> Result<Vec<Finding>, LabError> {
    let original = 64;
    let length = 4 * original;
    let spec = RopeSpec { original_context: original, ..spec(Scaling::DynamicNtk { factor: 1.0 }) };
    let turned = |x: &[f64], position: usize, length: usize| -> Result<Vec<f64>, RopeError> {
        let mut x = x.to_vec();
        rotate_f64(&mut x, HEAD_DIM, &frequencies(&spec, length)?, position, Pairing::HalfSplit)?;
        Ok(x)
    };
    let query = noise(random, HEAD_DIM);
    let last = turned(&query, length - 1, length)?;
    let (mut worst, mut scores, mut stale_scores) = (0f64, Vec::new(), Vec::new());
    for position in 0..length {
        let key = noise(random, HEAD_DIM);
        let fresh = dot(&last, &turned(&key, position, length)?);
        let stale = dot(&last, &turned(&key, position, position + 1)?);
        worst = worst.max((stale - fresh).abs() / (norm(&query) * norm(&key)));
        scores.push(fresh / (HEAD_DIM as f64).sqrt());
        stale_scores.push(stale / (HEAD_DIM as f64).sqrt());
    }
    let (p, q) = (softmax(&scores), softmax(&stale_scores));
    let moved = 0.5 * p.iter().zip(&q).map(|(p, q)| (p - q).abs()).sum::<f64>();
    Ok(vec![
        Finding::mistake(
            "dynamic-ntk-cache/score",
            worst,
            0.05,
            format!(
                "dynamic NTK with a cache of rotated keys: largest error of q.k / (|q| |k|), {length} tokens one by one on an \
                 original context of {original}, against all keys rotated at the current length"
            ),
        ),
        Finding::mistake(
            "dynamic-ntk-cache/attention",
            moved,
            0.05,
            "the same: share of the last token's attention that goes elsewhere",
        ),
    ])
}
