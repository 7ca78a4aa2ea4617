//! What a checkpoint and the command line say about rotary embedding, and which of it is in force.
//!
//! [`from_hf`] and [`from_gguf`] read a declaration; [`in_force`] lets flags replace its scaling as a whole and says
//! where every value came from. Foreign spellings end here: `freq_base` and `max_position_embeddings` go no further.

mod by_dictionary;
mod by_flag;
mod dictionary;
mod error;
mod gguf;
mod gguf_scaling;
mod hf;
mod hf_scaling;
mod limit;
mod method;
mod origin;
mod overrides;
mod replace;
mod settings;

use std::collections::BTreeMap;

pub use error::RopeConfigError;
pub use gguf::{RopeTensors, from_gguf, from_gguf_layered};
pub use hf::{from_hf, from_hf_layered};
pub use method::Method;
pub use origin::Origin;
pub use overrides::{Factor, RopeOverrides, in_force};
pub use settings::RopeSettings;

use crate::rope::{Pairing, RopeSpec, Scaling};

/// Theta of a checkpoint that names none, in every implementation.
const DEFAULT_THETA: f64 = 10_000.0;

/// Where each value came from, by the name of the value.
pub type Origins = BTreeMap<&'static str, Origin>;

/// What the architecture knows about a head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeadLayout {
    /// Lanes of one head.
    pub head_dim: usize,
    pub pairing: Pairing,
}

/// Bases of a family whose layers with a short window have a plain embedding of their own: what counts where a
/// checkpoint names none.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LayerBases {
    pub theta: f64,
    pub local_theta: f64,
}

/// The rotary embedding that a checkpoint declares.
#[derive(Debug, Clone, PartialEq)]
pub struct RopeDeclaration {
    pub theta: f64,
    /// Base of layers with a short window, which scalings leave alone; `None` where all layers share one embedding.
    pub local_theta: Option<f64>,
    pub rotary_dim: usize,
    pub head_dim: usize,
    pub pairing: Pairing,
    /// `max_position_embeddings` or `context_length`, in tokens.
    pub declared_context: usize,
    /// Tokens that the unscaled embedding was trained for; the declared context where nothing else is said.
    pub original_context: usize,
    /// The scaling, or why it cannot be used. An error stops the run unless flags replace the scaling.
    pub scaling: Result<Scaling, RopeConfigError>,
    /// Tokens that the declared embedding reaches.
    pub limit: usize,
    /// Whether the checkpoint says that it was trained with its scaling; `None` where it says nothing.
    pub fine_tuned: Option<bool>,
    pub origins: Origins,
    /// Things a user should know about base and widths, one sentence each.
    pub notes: Vec<String>,
    /// The same about the scaling; they fall away with it.
    pub scaling_notes: Vec<String>,
}

impl RopeDeclaration {
    /// The spec of this checkpoint with `scaling` over `original_context` tokens.
    fn spec(&self, scaling: Scaling, original_context: usize) -> RopeSpec {
        RopeSpec {
            theta: self.theta,
            head_dim: self.head_dim,
            rotary_dim: self.rotary_dim,
            pairing: self.pairing,
            original_context,
            scaling,
        }
    }

    /// Takes over a scaling that was read, checked against the rest, or the reason why there is none.
    fn adopt(mut self, reading: Result<Reading, RopeConfigError>) -> RopeDeclaration {
        let reading = match reading {
            Ok(reading) => reading,
            Err(error) => return RopeDeclaration { scaling: Err(error), ..self },
        };
        self.original_context = reading.original_context;
        self.limit = reading.limit;
        self.fine_tuned = reading.fine_tuned;
        self.origins.extend(reading.origins);
        self.scaling_notes = reading.notes;
        let spec = self.spec(reading.scaling, self.original_context);
        self.scaling = match spec.validate() {
            Ok(()) => Ok(spec.scaling),
            Err(error) => Err(error.into()),
        };
        self
    }

    /// For families whose declared context counts the scaling in: it is the limit.
    fn reaching_what_is_declared(mut self) -> RopeDeclaration {
        self.limit = self.declared_context;
        self.origins.insert("limit", Origin::derived("the declared context, which counts the scaling in"));
        self
    }

    /// Rotated pairs of one head.
    fn pairs(&self) -> usize {
        self.rotary_dim / 2
    }
}

/// A scaling as it was read, with what belongs to it.
#[derive(Debug)]
struct Reading {
    scaling: Scaling,
    original_context: usize,
    limit: usize,
    fine_tuned: Option<bool>,
    origins: Origins,
    notes: Vec<String>,
}
