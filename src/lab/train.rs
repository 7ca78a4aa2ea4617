//! One training run.

use std::ops::ControlFlow;
use std::path::Path;

use candle_core::{Device, Tensor, Var};

use super::checkpoint;
use super::error::LabError;
use super::model::{Model, Positions, Role, WeightSpec, initial_values, weight_specs};
use super::operations::cross_entropy;
use super::optimizer::{Moments, Rates, adam_w, clip};
use super::settings::Settings;
use super::text::Text;
use crate::rope::Scaling;

/// Everything that a run needs to go on, as plain numbers.
#[derive(Debug, Clone, PartialEq)]
pub struct State {
    pub settings: Settings,
    /// Hash of the text it is trained on.
    pub text: u64,
    /// Loss in nats per token of every step so far.
    pub losses: Vec<f32>,
    /// In the order of [`weight_specs`], as are the moments.
    pub weights: Vec<Vec<f32>>,
    pub moments: Vec<Moments>,
}

impl State {
    /// The state before the first step.
    ///
    /// # Errors
    /// As [`Settings::validate`].
    pub fn start(settings: &Settings, text: &Text) -> Result<Self, LabError> {
        settings.validate()?;
        let specs = weight_specs(settings);
        let weights: Vec<Vec<f32>> = specs.iter().map(|spec| initial_values(spec, settings)).collect();
        let moments = weights.iter().map(|weight| Moments::zero(weight.len())).collect();
        Ok(State { settings: settings.clone(), text: text.hash(), losses: Vec::new(), weights, moments })
    }

    /// Steps taken.
    pub fn step(&self) -> usize {
        self.losses.len()
    }

    /// Whether every step is taken.
    pub fn is_finished(&self) -> bool {
        self.step() >= self.settings.steps
    }

    /// Values in all weights.
    pub fn weight_count(&self) -> usize {
        self.weights.iter().map(Vec::len).sum()
    }

    /// Mean loss of the last twentieth of the steps so far; `None` before the first.
    pub fn recent_loss(&self) -> Option<f64> {
        let last = self.losses.len().div_ceil(20);
        let recent = &self.losses[self.losses.len() - last..];
        (last > 0).then(|| recent.iter().map(|l| f64::from(*l)).sum::<f64>() / last as f64)
    }

    /// The model of these weights, for measuring.
    ///
    /// # Errors
    /// [`LabError::Tensor`] when a weight has another size than the settings say.
    pub fn model(&self) -> Result<Model, LabError> {
        let tensor = |(spec, values): (&WeightSpec, &Vec<f32>)| {
            Tensor::from_vec(values.clone(), spec.shape.as_slice(), &Device::Cpu)
        };
        let specs = weight_specs(&self.settings);
        let weights = specs.iter().zip(&self.weights).map(tensor).collect::<candle_core::Result<_>>()?;
        Model::new(&self.settings, weights)
    }
}

/// A run in motion: the state, and its weights as variables.
pub struct Trainer {
    state: State,
    specs: Vec<WeightSpec>,
    variables: Vec<Var>,
    model: Model,
    positions: Positions,
}

impl Trainer {
    /// Goes on from `state`.
    ///
    /// # Errors
    /// As [`State::model`] and [`Model::positions`].
    pub fn new(state: State) -> Result<Self, LabError> {
        let specs = weight_specs(&state.settings);
        let variable = |(spec, values): (&WeightSpec, &Vec<f32>)| {
            Var::from_vec(values.clone(), spec.shape.as_slice(), &Device::Cpu)
        };
        let variables: Vec<Var> =
            specs.iter().zip(&state.weights).map(variable).collect::<candle_core::Result<_>>()?;
        let tensors = variables.iter().map(|variable| variable.as_tensor().clone()).collect();
        let model = Model::new(&state.settings, tensors)?;
        let positions = model.positions(state.settings.context, &Scaling::None)?;
        Ok(Trainer { state, specs, variables, model, positions })
    }

    pub fn state(&self) -> &State {
        &self.state
    }

    pub fn into_state(self) -> State {
        self.state
    }

    /// One step on the next batch of `text`; returns its loss in nats per token.
    ///
    /// # Errors
    /// As [`Trainer::step_on`] and [`Text::batch`].
    pub fn step(&mut self, text: &Text) -> Result<f32, LabError> {
        let Settings { seed, batch, context, .. } = self.state.settings;
        let (inputs, targets) = text.batch((seed, self.state.step()), batch, context)?;
        self.step_on(inputs, targets)
    }

    /// One step on `inputs` and `targets`, `[batch, context]` each; returns the loss before the step.
    ///
    /// # Errors
    /// [`LabError::NotFinite`] when the loss is no number, [`LabError::Tensor`] when sizes disagree.
    pub fn step_on(&mut self, inputs: Vec<u32>, targets: Vec<u32>) -> Result<f32, LabError> {
        let context = self.state.settings.context;
        let rows = targets.len();
        let inputs = Tensor::from_vec(inputs, (rows / context, context), &Device::Cpu)?;
        let targets = Tensor::from_vec(targets, rows, &Device::Cpu)?;
        let loss = cross_entropy(&self.model.logits(&inputs, &self.positions, context)?, &targets)?;
        let value = loss.to_scalar::<f32>()?;
        if !value.is_finite() {
            return Err(LabError::NotFinite { step: self.state.step() + 1 });
        }
        let grads = loss.backward()?;
        let gradient = |variable: &Var| match grads.get(variable) {
            Some(gradient) => gradient.flatten_all()?.to_vec1(),
            None => Ok(vec![0.0; variable.elem_count()]),
        };
        let gradients = self.variables.iter().map(gradient).collect::<candle_core::Result<_>>()?;
        self.update(gradients)?;
        self.state.losses.push(value);
        Ok(value)
    }

    /// Clips the gradients and moves the weights.
    fn update(&mut self, mut gradients: Vec<Vec<f32>>) -> Result<(), LabError> {
        let State { settings, losses, weights, moments, .. } = &mut self.state;
        clip(&mut gradients, settings.clip);
        let step = losses.len();
        for (index, gradient) in gradients.iter().enumerate() {
            let spec = &self.specs[index];
            let decays = matches!(spec.role, Role::Matrix | Role::Residual);
            let rates = Rates {
                step: step + 1,
                learning_rate: settings.learning_rate_at(step),
                weight_decay: if decays { settings.weight_decay } else { 0.0 },
            };
            adam_w(&mut weights[index], gradient, &mut moments[index], rates);
            let moved = Tensor::from_slice(&weights[index], spec.shape.as_slice(), &Device::Cpu)?;
            self.variables[index].set(&moved)?;
        }
        Ok(())
    }
}

/// Where and how often a run is kept.
#[derive(Debug, Clone, Copy)]
pub struct Keep<'a> {
    pub path: &'a Path,
    /// Steps from one checkpoint to the next.
    pub every: usize,
}

/// Trains until the last step, or until `watch` breaks; it sees the state after each step.
///
/// With `keep`, the run goes on from the checkpoint there if there is one, and is written there every so many steps and
/// at the end. The weights do not depend on whether and where it was stopped.
///
/// # Errors
/// As [`Trainer::step`], [`checkpoint::resume`] and [`checkpoint::write`].
pub fn train(
    settings: &Settings,
    text: &Text,
    keep: Option<Keep>,
    watch: &mut dyn FnMut(&State) -> ControlFlow<()>,
) -> Result<State, LabError> {
    settings.validate()?;
    let kept = match keep {
        Some(keep) => checkpoint::resume(keep.path, settings, text)?,
        None => None,
    };
    let mut trainer = Trainer::new(match kept {
        Some(state) => state,
        None => State::start(settings, text)?,
    })?;
    let mut written = keep.filter(|keep| keep.path.exists()).map(|_| trainer.state.step());
    while !trainer.state.is_finished() {
        trainer.step(text)?;
        let step = trainer.state.step();
        if let Some(keep) = keep.filter(|keep| step.is_multiple_of(keep.every.max(1))) {
            checkpoint::write(keep.path, &trainer.state)?;
            written = Some(step);
        }
        if watch(&trainer.state).is_break() {
            break;
        }
    }
    if let Some(keep) = keep.filter(|_| written != Some(trainer.state.step())) {
        checkpoint::write(keep.path, &trainer.state)?;
    }
    Ok(trainer.into_state())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::encoding::Encoding;
    use crate::named::Named;

    fn tiny(encoding: Encoding) -> Settings {
        Settings {
            encoding,
            layers: 1,
            width: 16,
            heads: 2,
            feed_forward: 32,
            context: 16,
            batch: 4,
            steps: 12,
            warmup: 2,
            ..Settings::default()
        }
    }

    fn through(_: &State) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    /// Stopped after any step and gone on with, from the file that was written: the same weights, bit for bit.
    #[test]
    fn a_stopped_run_ends_with_the_weights_of_an_unbroken_one() {
        let text = Text::generated(0, 5000);
        let dir = tempfile::tempdir().unwrap();
        for encoding in [Encoding::Rope, Encoding::T5, Encoding::Learned] {
            let settings = tiny(encoding);
            let whole = train(&settings, &text, None, &mut through).unwrap();
            let path = dir.path().join(format!("{}.safetensors", encoding.name()));
            let keep = Some(Keep { path: &path, every: 5 });
            for stop in [1, 7] {
                let mut stop_at = |state: &State| match state.step() == stop {
                    true => ControlFlow::Break(()),
                    false => ControlFlow::Continue(()),
                };
                assert_eq!(train(&settings, &text, keep, &mut stop_at).unwrap().step(), stop);
            }
            assert_eq!(train(&settings, &text, keep, &mut through).unwrap(), whole);
            assert_eq!(checkpoint::read(&path).unwrap(), whole);
        }
    }

    #[test]
    fn training_lowers_the_loss_of_every_encoding() {
        let text = Text::generated(0, 5000);
        for &encoding in Encoding::ALL {
            let settings = Settings { steps: 30, learning_rate: 1e-2, ..tiny(encoding) };
            let state = train(&settings, &text, None, &mut through).unwrap();
            let (first, last) = (f64::from(state.losses[0]), state.recent_loss().unwrap());
            assert!(last < first - 1.0, "{}: {first} {last}", encoding.name());
        }
    }

    #[test]
    fn encodings_start_from_the_same_weights() {
        let text = Text::generated(0, 5000);
        let start = |encoding| State::start(&tiny(encoding), &text).unwrap().weights;
        assert_eq!(start(Encoding::Rope), start(Encoding::None));
        assert_eq!(start(Encoding::Learned)[2..], start(Encoding::Rope)[1..]);
        let other = State::start(&Settings { seed: 1, ..tiny(Encoding::Rope) }, &text).unwrap();
        assert_ne!(other.weights, start(Encoding::Rope));
    }

    #[test]
    fn a_loss_that_is_no_number_stops_the_run() {
        let text = Text::generated(0, 5000);
        let settings = Settings { learning_rate: 1e30, steps: 10, warmup: 0, ..tiny(Encoding::Rope) };
        let error = train(&settings, &text, None, &mut through).unwrap_err();
        assert!(matches!(error, LabError::NotFinite { step: 2..=4 }), "{error}");
    }
}
