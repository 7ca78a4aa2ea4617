//! What may be asked about attention probabilities, which no engine keeps: sums over the keys of each query.

use std::ops::Range;

/// Which sums to take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttentionProbe {
    /// Tokens of the longest text, at least 1: distances below it have a bucket.
    pub longest: usize,
    /// Tokens at the start of the text whose share is summed.
    pub sink_tokens: usize,
}

impl AttentionProbe {
    /// The bucket of a distance in tokens: 0, 1, 2 to 3, 4 to 7, and so on.
    #[inline]
    pub fn bucket(distance: usize) -> usize {
        distance.checked_ilog2().map_or(0, |power| power as usize + 1)
    }

    /// The smallest distance in a bucket.
    #[inline]
    pub fn smallest(bucket: usize) -> usize {
        if bucket == 0 { 0 } else { 1 << (bucket - 1) }
    }

    /// Distances in a bucket.
    pub fn distances(bucket: usize) -> Range<usize> {
        Self::smallest(bucket)..Self::smallest(bucket + 1)
    }

    /// Buckets that the longest text fills.
    pub fn n_buckets(&self) -> usize {
        Self::bucket(self.longest.saturating_sub(1)) + 1
    }
}

/// One query of one head: sums over the keys that it sees, weighted by their attention probabilities.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct AttentionRow {
    /// Keys that the query sees, itself included.
    pub seen: usize,
    /// Entropy of the probabilities, in nats.
    pub entropy: f64,
    /// Mean distance from the query, in tokens.
    pub distance: f64,
    /// Probability of the first token of the text.
    pub first: f64,
    /// Probability of the first `sink_tokens` tokens together.
    pub sink: f64,
    /// The part of `distance` that these contribute.
    pub sink_distance: f64,
}

/// Consecutive queries of every head.
#[derive(Debug, Clone, PartialEq)]
pub struct AttentionRows {
    pub n_heads: usize,
    pub n_buckets: usize,
    /// `[queries, n_heads]`
    pub rows: Vec<AttentionRow>,
    /// Probability by distance: `[queries, n_heads, n_buckets]`.
    pub mass: Vec<f64>,
}

impl AttentionRows {
    /// `queries` empty rows.
    pub fn new(queries: usize, n_heads: usize, probe: &AttentionProbe) -> Self {
        let (rows, n_buckets) = (queries * n_heads, probe.n_buckets());
        Self {
            n_heads,
            n_buckets,
            rows: vec![AttentionRow::default(); rows],
            mass: vec![0.0; rows * n_buckets],
        }
    }

    pub fn queries(&self) -> usize {
        self.rows.len() / self.n_heads
    }

    /// The row of a query and a head, and its mass by distance.
    pub fn row(&self, query: usize, head: usize) -> (&AttentionRow, &[f64]) {
        let index = query * self.n_heads + head;
        (&self.rows[index], &self.mass[index * self.n_buckets..][..self.n_buckets])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_double_and_leave_no_distance_out() {
        let found: Vec<usize> = (0..10).map(AttentionProbe::bucket).collect();
        assert_eq!(found, [0, 1, 2, 2, 3, 3, 3, 3, 4, 4]);
        let mut next = 0;
        for bucket in 0..20 {
            let distances = AttentionProbe::distances(bucket);
            assert_eq!(distances.start, next);
            assert!([distances.start, distances.end - 1].map(AttentionProbe::bucket) == [bucket; 2]);
            next = distances.end;
        }
        for (longest, n_buckets) in [(1, 1), (2, 2), (3, 3), (4, 3), (5, 4), (8192, 14), (8193, 15)] {
            assert_eq!(AttentionProbe { longest, sink_tokens: 4 }.n_buckets(), n_buckets, "{longest}");
        }
    }
}
