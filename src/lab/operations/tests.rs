//! Every derivative against a difference quotient.

use candle_core::{Device, Tensor, Var};

use super::*;
use crate::lab::random::Random;
use crate::rope::{Frequencies, Pairing};

/// Step of the difference quotient: large against the rounding of f32 sums, small against the curvature.
const STEP: f32 = 1e-2;
/// Bound on the difference of both, for values and gradients of order one.
const TOLERANCE: f32 = 2e-3;

fn noise(purpose: &str, shape: &[usize]) -> Tensor {
    let mut random = Random::new(1, purpose, 0);
    let count = shape.iter().product();
    let values: Vec<f32> = (0..count).map(|_| random.normal() as f32).collect();
    Tensor::from_vec(values, shape, &Device::Cpu).unwrap()
}

/// Compares the gradient of `sum(f(x) * fixed noise)` with central differences in every value of `x`.
fn check(x: &Tensor, f: impl Fn(&Tensor) -> Tensor) {
    let var = Var::from_tensor(x).unwrap();
    let direction = noise("direction", f(x).dims());
    let total = |y: Tensor| (y * &direction).unwrap().sum_all().unwrap();
    let grads = total(f(var.as_tensor())).backward().unwrap();
    let gradient = copied(grads.get(&var).unwrap()).unwrap();
    let values = copied(x).unwrap();
    for (index, found) in gradient.iter().enumerate() {
        let moved = |by: f32| {
            let mut values = values.clone();
            values[index] += by;
            let x = Tensor::from_vec(values, x.dims(), &Device::Cpu).unwrap();
            total(f(&x)).to_scalar::<f32>().unwrap()
        };
        let expected = (moved(STEP) - moved(-STEP)) / (2.0 * STEP);
        assert!((found - expected).abs() < TOLERANCE * (1.0 + expected.abs()), "{index}: {found} {expected}");
    }
}

#[test]
fn norm_and_its_gain() {
    let (x, gain) = (noise("x", &[3, 6]), noise("gain", &[6]));
    check(&x, |x| rms_norm(x, &gain).unwrap());
    check(&gain, |gain| rms_norm(&x, gain).unwrap());
}

#[test]
fn softmax_and_its_bias() {
    let (scores, bias) = (noise("scores", &[2, 2, 4, 4]), noise("bias", &[2, 4, 4]));
    check(&scores, |scores| causal_softmax(scores, &Bias::None, 0.7).unwrap());
    check(&scores, |scores| causal_softmax(scores, &Bias::Fixed(bias.clone()), 0.7).unwrap());
    check(&bias, |bias| causal_softmax(&scores, &Bias::Learned(bias.clone()), 0.7).unwrap());
}

#[test]
fn rotation_of_both_pairings() {
    let frequencies = Frequencies { inv_freq: vec![1.0, 0.3], attention_factor: 1.2 };
    for pairing in [Pairing::Adjacent, Pairing::HalfSplit] {
        let rotation = Rotation::new(&frequencies, 3, 4, pairing);
        check(&noise("x", &[2, 3, 8]), |x| rotate(x, &rotation).unwrap());
    }
}

#[test]
fn loss() {
    let logits = noise("logits", &[3, 5]);
    let targets = Tensor::new(&[4u32, 0, 2], &Device::Cpu).unwrap();
    check(&logits, |logits| cross_entropy(logits, &targets).unwrap());
    let each = negative_log_likelihoods(&logits, &[4, 0, 2]).unwrap();
    let mean = cross_entropy(&logits, &targets).unwrap().to_scalar::<f32>().unwrap();
    assert!((each.iter().sum::<f64>() / 3.0 - f64::from(mean)).abs() < 1e-6);
}

#[test]
fn weights_sum_to_one_and_see_no_future() {
    let weights = causal_softmax(&noise("scores", &[1, 1, 5, 5]), &Bias::None, 3.0).unwrap();
    for (query, row) in copied(&weights).unwrap().chunks_exact(5).enumerate() {
        assert!((row.iter().sum::<f32>() - 1.0).abs() < 1e-6);
        assert!(row[query + 1..].iter().all(|weight| *weight == 0.0));
    }
}
