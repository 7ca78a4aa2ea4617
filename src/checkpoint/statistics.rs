//! Counts over all tensors of a checkpoint.

use std::collections::BTreeMap;

use super::{Checkpoint, TensorView};

impl Checkpoint {
    /// Every tensor, in the order of [`Checkpoint::tensor_names`].
    pub fn views(&self) -> impl Iterator<Item = TensorView<'_>> {
        self.tensor_names().into_iter().filter_map(|name| self.tensor(name))
    }

    /// Values in all tensors.
    pub fn n_weights(&self) -> u64 {
        self.views().map(|view| view.n_values() as u64).sum()
    }

    /// Bytes of all tensors as stored.
    pub fn weights_bytes(&self) -> u64 {
        self.views().map(|view| view.bytes.len() as u64).sum()
    }

    /// Element types with the number of tensors of each, for example `Q4_1 (210), F32 (61)`; the largest share of bytes first.
    pub fn tensor_types(&self) -> String {
        let mut types: BTreeMap<&'static str, (usize, usize)> = BTreeMap::new();
        for view in self.views() {
            let entry = types.entry(view.dtype.name()).or_default();
            entry.0 += 1;
            entry.1 += view.bytes.len();
        }
        let mut types: Vec<_> = types.into_iter().collect();
        types.sort_by_key(|(_, (_, bytes))| std::cmp::Reverse(*bytes));
        let shown = types.iter().map(|(name, (count, _))| format!("{name} ({count})"));
        shown.collect::<Vec<_>>().join(", ")
    }
}
