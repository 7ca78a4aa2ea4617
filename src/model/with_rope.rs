//! A loaded model under another rotary embedding.

use super::{LanguageModel, ModelConfig, ModelError, Session};
use crate::checkpoint::rope::RopeSettings;
use crate::engine::stages::{Peaks, StageTimes};

/// Forwards to a model, with `rope` in place of its own: methods are compared without loading weights again.
pub struct WithRope<'a> {
    model: &'a dyn LanguageModel,
    rope: RopeSettings,
}

impl<'a> WithRope<'a> {
    pub fn new(model: &'a dyn LanguageModel, rope: RopeSettings) -> Self {
        Self { model, rope }
    }
}

impl LanguageModel for WithRope<'_> {
    fn config(&self) -> &ModelConfig {
        self.model.config()
    }

    fn rope(&self) -> &RopeSettings {
        &self.rope
    }

    fn engine(&self) -> String {
        self.model.engine()
    }

    fn stage_times(&self) -> Option<StageTimes> {
        self.model.stage_times()
    }

    fn peaks(&self) -> Option<Peaks> {
        self.model.peaks()
    }

    fn session_with(
        &self,
        rope: &RopeSettings,
        planned_length: usize,
    ) -> Result<Box<dyn Session + '_>, ModelError> {
        self.model.session_with(rope, planned_length)
    }
}
