//! Two measurements of the same text, head by head.

use super::{Attention, Statistic, Sums};

/// `of` minus `to`.
pub struct Comparison<'a> {
    pub of: &'a Attention,
    pub to: &'a Attention,
}

/// The head with the largest difference.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Largest {
    pub layer: usize,
    pub head: usize,
    pub difference: f64,
}

impl<'a> Comparison<'a> {
    /// `None` when the two measured other heads or counted other queries.
    pub fn new(of: &'a Attention, to: &'a Attention) -> Option<Self> {
        let what = |a: &Attention| (a.n_layers, a.n_heads, a.first_query, a.tokens, a.sink_tokens);
        (what(of) == what(to)).then_some(Self { of, to })
    }

    /// The difference of the means over all heads.
    pub fn mean(&self, statistic: Statistic) -> Option<f64> {
        difference(&self.of.all(), &self.to.all(), statistic)
    }

    pub fn layer(&self, layer: usize, statistic: Statistic) -> Option<f64> {
        difference(&self.of.layer(layer), &self.to.layer(layer), statistic)
    }

    pub fn head(&self, layer: usize, head: usize, statistic: Statistic) -> Option<f64> {
        difference(self.of.head(layer, head), self.to.head(layer, head), statistic)
    }

    /// The head whose mean differs most, up or down.
    pub fn largest(&self, statistic: Statistic) -> Option<Largest> {
        let largest = |layer: usize, head: usize| {
            Some(Largest { layer, head, difference: self.head(layer, head, statistic)? })
        };
        let all = self.heads().filter_map(|(layer, head)| largest(layer, head));
        all.max_by(|a, b| a.difference.abs().total_cmp(&b.difference.abs()))
    }

    /// Share of a head's attention that lies at other distances, see [`Sums::moved`].
    pub fn moved(&self, layer: usize, head: usize) -> f64 {
        self.of.head(layer, head).moved(self.to.head(layer, head))
    }

    /// The mean of [`Comparison::moved`] over all heads.
    pub fn mean_moved(&self) -> f64 {
        let moved = self.heads().map(|(layer, head)| self.moved(layer, head));
        moved.sum::<f64>() / (self.of.n_layers * self.of.n_heads) as f64
    }

    fn heads(&self) -> impl Iterator<Item = (usize, usize)> {
        let (n_layers, n_heads) = (self.of.n_layers, self.of.n_heads);
        (0..n_layers).flat_map(move |layer| (0..n_heads).map(move |head| (layer, head)))
    }
}

fn difference(of: &Sums, to: &Sums, statistic: Statistic) -> Option<f64> {
    Some(of.mean(statistic)? - to.mean(statistic)?)
}
