//! How much memory a run takes, told before it starts.

use super::load::{EngineName, LoadOptions, weight_format};
use super::{ModelConfig, ModelError};
use crate::checkpoint::Checkpoint;
use crate::engine::candle::{WeightFormat, Workspace};
use crate::engine::cpu::CpuEngine;
use crate::rope::RopeSpec;

/// Bytes that a run of a given context holds at its peak.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryPlan {
    pub weights_bytes: u64,
    /// 2 x layers x key/value heads x head_dim x context x bytes of an element.
    pub kv_bytes: u64,
    /// Activations, attention scores and logits of one chunk.
    pub workspace_bytes: u64,
}

impl MemoryPlan {
    /// The plan for `context` tokens; sizes too large for the machine saturate.
    pub fn new(
        checkpoint: &Checkpoint,
        config: &ModelConfig,
        rope: &RopeSpec,
        options: &LoadOptions,
        context: usize,
    ) -> Self {
        let shape = config.shape(rope);
        let decoder = &options.decoder;
        let chunk = decoder.prefill_chunk.min(context);
        if options.resolved_engine() == EngineName::Cpu {
            return Self {
                weights_bytes: CpuEngine::weights_bytes(checkpoint.views()),
                kv_bytes: CpuEngine::cache_bytes(&shape, context, decoder.kv_type),
                workspace_bytes: CpuEngine::workspace_bytes(&shape, chunk),
            };
        }
        let format = options.weights.unwrap_or_else(|| weight_format(checkpoint));
        let workspace = Workspace { format, kv_type: decoder.kv_type, chunk, context };
        Self {
            weights_bytes: match format {
                WeightFormat::Unpacked => checkpoint.n_weights().saturating_mul(4),
                WeightFormat::Packed => checkpoint.weights_bytes(),
            },
            kv_bytes: workspace.cache_bytes(&shape),
            workspace_bytes: workspace.bytes(&shape),
        }
    }

    pub fn total_bytes(&self) -> u64 {
        let cache = self.weights_bytes.saturating_add(self.kv_bytes);
        cache.saturating_add(self.workspace_bytes)
    }

    /// Refuses a plan above `allowed_bytes`.
    ///
    /// # Errors
    /// [`ModelError::Memory`] with both numbers.
    pub fn ensure_within(&self, allowed_bytes: Option<u64>) -> Result<(), ModelError> {
        let needed_bytes = self.total_bytes();
        match allowed_bytes {
            Some(allowed_bytes) if needed_bytes > allowed_bytes => {
                Err(ModelError::Memory { needed_bytes, allowed_bytes })
            }
            _ => Ok(()),
        }
    }
}

/// The most memory that this process has held so far, in bytes; `None` where the system does not tell.
///
/// Source: `VmHWM` in `/proc/self/status`, Linux.
pub fn peak_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn the_peak_grows_with_what_is_held() {
        let before = peak_bytes().unwrap();
        let held = std::hint::black_box(vec![1u8; 64 << 20]);
        assert!(peak_bytes().unwrap() >= before.max(held.len() as u64));
    }
}
