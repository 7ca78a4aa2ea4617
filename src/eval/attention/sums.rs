//! Sums over queries, and the means that are reported.

use crate::engine::probe::{AttentionProbe, AttentionRow};
use crate::named::Named;

/// Sums over the queries of one head, or of several heads together; two add up to those of all their queries.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Sums {
    /// Queries, each head of each layer counted on its own.
    pub queries: u64,
    entropy: f64,
    /// Entropy over its largest value, the logarithm of the keys seen; queries that see one key have none.
    normalised: f64,
    normalised_queries: u64,
    effective: f64,
    distance: f64,
    first: f64,
    sink: f64,
    sink_distance: f64,
    /// `[buckets]`; buckets that no query reached may be missing.
    mass: Vec<f64>,
}

impl Sums {
    /// Adds one query; `mass`: its probability by distance.
    pub fn add(&mut self, row: &AttentionRow, mass: &[f64]) {
        self.queries += 1;
        self.entropy += row.entropy;
        if row.seen > 1 {
            self.normalised += row.entropy / (row.seen as f64).ln();
            self.normalised_queries += 1;
        }
        self.effective += row.entropy.exp();
        self.distance += row.distance;
        self.first += row.first;
        self.sink += row.sink;
        self.sink_distance += row.sink_distance;
        self.add_mass(mass);
    }

    pub fn merge(&mut self, other: &Sums) {
        self.queries += other.queries;
        self.entropy += other.entropy;
        self.normalised += other.normalised;
        self.normalised_queries += other.normalised_queries;
        self.effective += other.effective;
        self.distance += other.distance;
        self.first += other.first;
        self.sink += other.sink;
        self.sink_distance += other.sink_distance;
        self.add_mass(&other.mass);
    }

    fn add_mass(&mut self, mass: &[f64]) {
        if self.mass.len() < mass.len() {
            self.mass.resize(mass.len(), 0.0);
        }
        for (sum, x) in self.mass.iter_mut().zip(mass) {
            *sum += x;
        }
    }

    /// The mean of a statistic over the queries; `None` where it has no value.
    pub fn mean(&self, statistic: Statistic) -> Option<f64> {
        let (sum, count) = match statistic {
            Statistic::First => (self.first, self.queries as f64),
            Statistic::Sink => (self.sink, self.queries as f64),
            Statistic::Entropy => (self.entropy, self.queries as f64),
            Statistic::NormalisedEntropy => (self.normalised, self.normalised_queries as f64),
            Statistic::EffectiveTokens => (self.effective, self.queries as f64),
            Statistic::Distance => (self.distance, self.queries as f64),
            Statistic::DistanceBeyondSink => {
                (self.distance - self.sink_distance, self.queries as f64 - self.sink)
            }
        };
        // Less than this of a query's attention is the rounding of the sums that are subtracted.
        const LEAST: f64 = 1e-6;
        (count > LEAST * self.queries as f64).then(|| sum / count)
    }

    /// Mean attention at the distances of each bucket, `[buckets]`, from [`AttentionProbe::distances`].
    pub fn mass(&self) -> Vec<f64> {
        self.mass.iter().map(|mass| mass / self.queries as f64).collect()
    }

    /// Half the sum of absolute differences of the mass by distance: the share of attention that lies at other
    /// distances, 0 to 1.
    pub fn moved(&self, other: &Sums) -> f64 {
        let (a, b) = (self.mass(), other.mass());
        let at = |mass: &[f64], bucket: usize| mass.get(bucket).copied().unwrap_or(0.0);
        let differences = (0..a.len().max(b.len())).map(|bucket| (at(&a, bucket) - at(&b, bucket)).abs());
        differences.sum::<f64>() / 2.0
    }
}

/// What is reported of the attention of a head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Statistic {
    /// Share of the first token.
    First,
    /// Share of the first `sink_tokens` tokens together.
    Sink,
    Entropy,
    NormalisedEntropy,
    EffectiveTokens,
    Distance,
    /// Mean distance of the attention that is not on the sink tokens.
    DistanceBeyondSink,
}

impl Named for Statistic {
    const WHAT: &'static str = "statistic";
    const ALL: &'static [Self] = &[
        Self::First,
        Self::Sink,
        Self::Entropy,
        Self::NormalisedEntropy,
        Self::EffectiveTokens,
        Self::Distance,
        Self::DistanceBeyondSink,
    ];

    fn name(self) -> &'static str {
        match self {
            Statistic::First => "first_token",
            Statistic::Sink => "sink",
            Statistic::Entropy => "entropy",
            Statistic::NormalisedEntropy => "normalised_entropy",
            Statistic::EffectiveTokens => "effective_tokens",
            Statistic::Distance => "distance",
            Statistic::DistanceBeyondSink => "distance_beyond_sink",
        }
    }
}

/// Sums of queries by their position: bucket `b` holds positions [`AttentionProbe::distances`]`(b)`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ByPosition(Vec<Sums>);

impl ByPosition {
    pub fn add(&mut self, position: usize, row: &AttentionRow, mass: &[f64]) {
        let bucket = AttentionProbe::bucket(position);
        if self.0.len() <= bucket {
            self.0.resize(bucket + 1, Sums::default());
        }
        self.0[bucket].add(row, mass);
    }

    /// Buckets with queries, in order.
    pub fn filled(&self) -> impl Iterator<Item = (usize, &Sums)> {
        self.0.iter().enumerate().filter(|(_, sums)| sums.queries > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(seen: usize, entropy: f64) -> AttentionRow {
        AttentionRow { seen, entropy, distance: 3.0, first: 0.25, sink: 0.5, sink_distance: 2.0 }
    }

    #[test]
    fn means_are_sums_over_queries() {
        let (mut sums, mut other) = (Sums::default(), Sums::default());
        sums.add(&row(1, 0.0), &[1.0]);
        other.add(&row(8, 8f64.ln()), &[0.25, 0.25, 0.5]);
        sums.merge(&other);
        let close = |statistic: Statistic, expected: f64| {
            let found = sums.mean(statistic).unwrap();
            assert!((found - expected).abs() < 1e-12, "{statistic:?}: {found}");
        };
        close(Statistic::First, 0.25);
        close(Statistic::Sink, 0.5);
        close(Statistic::Entropy, 8f64.ln() / 2.0);
        // The query that sees one key only is no part of it.
        close(Statistic::NormalisedEntropy, 1.0);
        close(Statistic::EffectiveTokens, 4.5);
        close(Statistic::Distance, 3.0);
        // One of three tokens of distance lies outside the sink, which holds half of the attention.
        close(Statistic::DistanceBeyondSink, 2.0);
        assert_eq!(sums.mass(), [0.625, 0.125, 0.25]);
    }

    #[test]
    fn what_has_no_value_is_none() {
        let mut sums = Sums::default();
        assert_eq!(sums.mean(Statistic::Entropy), None);
        sums.add(&AttentionRow { seen: 1, first: 1.0, sink: 1.0, ..AttentionRow::default() }, &[1.0]);
        assert_eq!(sums.mean(Statistic::NormalisedEntropy), None);
        assert_eq!(sums.mean(Statistic::DistanceBeyondSink), None);
        assert_eq!(sums.mean(Statistic::Entropy), Some(0.0));
    }

    #[test]
    fn moved_attention_is_the_part_at_other_distances() {
        let (mut a, mut b) = (Sums::default(), Sums::default());
        a.add(&row(4, 1.0), &[0.5, 0.5]);
        b.add(&row(4, 1.0), &[0.25, 0.25, 0.5]);
        assert_eq!((a.moved(&b), b.moved(&a), a.moved(&a)), (0.5, 0.5, 0.0));
    }

    #[test]
    fn positions_without_queries_are_left_out() {
        let mut all = ByPosition::default();
        for position in [4, 7, 8] {
            all.add(position, &row(position + 1, 1.0), &[1.0]);
        }
        let counts: Vec<_> = all.filled().map(|(bucket, sums)| (bucket, sums.queries)).collect();
        assert_eq!(counts, [(3, 2), (4, 1)]);
    }
}
