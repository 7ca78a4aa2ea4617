//! AdamW on slices.

/// Decay of the first moment.
const BETA_1: f64 = 0.9;
/// Decay of the second moment: short, because runs are.
const BETA_2: f64 = 0.99;
/// Added to the root of the second moment.
const EPSILON: f32 = 1e-8;
/// Added to a gradient norm before dividing by it.
const NORM_EPSILON: f64 = 1e-6;

/// Running means of a weight's gradient and of its square.
#[derive(Debug, Clone, PartialEq)]
pub struct Moments {
    pub first: Vec<f32>,
    pub second: Vec<f32>,
}

impl Moments {
    pub fn zero(count: usize) -> Self {
        Moments { first: vec![0.0; count], second: vec![0.0; count] }
    }
}

/// The rates of one step.
#[derive(Debug, Clone, Copy)]
pub struct Rates {
    /// Counted from 1.
    pub step: usize,
    pub learning_rate: f64,
    pub weight_decay: f64,
}

/// One step of Adam with decoupled weight decay, in the order of operations of `torch.optim.AdamW`.
///
/// Source: Loshchilov and Hutter 2019, arXiv:1711.05101, algorithm 2.
pub fn adam_w(weights: &mut [f32], gradient: &[f32], moments: &mut Moments, rates: Rates) {
    let steps = rates.step as i32;
    let step_size = (rates.learning_rate / (1.0 - BETA_1.powi(steps))) as f32;
    let root = (1.0 - BETA_2.powi(steps)).sqrt() as f32;
    let kept = (1.0 - rates.learning_rate * rates.weight_decay) as f32;
    let (beta_2, new_1, new_2) = (BETA_2 as f32, (1.0 - BETA_1) as f32, (1.0 - BETA_2) as f32);
    let moments = moments.first.iter_mut().zip(&mut moments.second);
    for ((weight, g), (first, second)) in weights.iter_mut().zip(gradient).zip(moments) {
        *first += new_1 * (g - *first);
        *second = beta_2 * *second + new_2 * g * g;
        *weight = *weight * kept - step_size * *first / (second.sqrt() / root + EPSILON);
    }
}

/// Scales all gradients together so that their norm is at most `largest`; returns the norm before.
pub fn clip(gradients: &mut [Vec<f32>], largest: f64) -> f64 {
    let squares = |gradient: &Vec<f32>| gradient.iter().map(|g| f64::from(*g) * f64::from(*g)).sum::<f64>();
    let norm = gradients.iter().map(squares).sum::<f64>().sqrt();
    let scale = (largest / (norm + NORM_EPSILON)) as f32;
    if scale < 1.0 {
        gradients.iter_mut().flatten().for_each(|g| *g *= scale);
    }
    norm
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_step_has_the_length_of_the_learning_rate() {
        let mut weights = [1.0, -2.0];
        let rates = Rates { step: 1, learning_rate: 0.1, weight_decay: 0.5 };
        let mut moments = Moments::zero(2);
        adam_w(&mut weights, &[3.0, -1e-3], &mut moments, rates);
        for (found, expected) in weights.iter().zip([0.95 - 0.1, -1.9 + 0.1]) {
            assert!((found - expected).abs() < 1e-5, "{found} {expected}");
        }
        assert!((moments.first[0] - 0.3).abs() < 1e-6 && (moments.second[0] - 0.09).abs() < 1e-6);
    }

    #[test]
    fn long_gradients_are_shortened_and_short_ones_kept() {
        let mut gradients = vec![vec![3.0], vec![0.0, 4.0]];
        assert_eq!(clip(&mut gradients, 10.0), 5.0);
        assert_eq!(gradients, [vec![3.0], vec![0.0, 4.0]]);
        clip(&mut gradients, 1.0);
        assert!((gradients[0][0] - 0.6).abs() < 1e-6 && (gradients[1][1] - 0.8).abs() < 1e-6);
    }
}
