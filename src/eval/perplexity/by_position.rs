//! Mean loss by position in the window, and how far the context is of use.

use super::losses::Losses;
use crate::eval::statistics::bootstrap::{Blocks, Bootstrap, Interval};

/// Positions from `first` to `last`: tokens of context before a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bucket {
    pub first: usize,
    pub last: usize,
}

/// Buckets that cover positions 1 to `max_position`, `per_doubling` of them to every doubling.
///
/// Borders stand at `trained` times powers of two (rounded), so that no bucket holds positions on both sides of the
/// trained length; position `trained` is the first beyond it.
pub fn buckets(max_position: usize, trained: usize, per_doubling: usize) -> Vec<Bucket> {
    let steps = per_doubling.max(1) as f64;
    let border = |k: f64| (trained.max(1) as f64 * (k / steps).exp2()).round() as usize;
    let first_k = -((trained.max(1) as f64).log2() * steps).ceil();
    let mut borders = vec![1];
    let mut k = first_k;
    while border(k) <= max_position {
        borders.push(border(k).max(1));
        k += 1.0;
    }
    borders.push(max_position + 1);
    borders.dedup();
    borders.windows(2).map(|pair| Bucket { first: pair[0], last: pair[1] - 1 }).collect()
}

/// The tokens of a bucket.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BucketScore {
    pub bucket: Bucket,
    pub tokens: usize,
    /// Mean loss in nats, every token counting the same.
    pub nll: f64,
    pub interval: Option<Interval>,
    /// Interval of the mean less that of the bucket at the trained length.
    pub excess: Option<Interval>,
}

/// Why the effective context ends where it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndedBy {
    /// The next bucket is significantly worse.
    Worse,
    /// The next bucket has too few blocks to tell.
    TooFewTokens,
    /// There is no next bucket.
    LastPosition,
}

impl EndedBy {
    pub fn name(self) -> &'static str {
        match self {
            EndedBy::Worse => "worse",
            EndedBy::TooFewTokens => "too few tokens",
            EndedBy::LastPosition => "last position",
        }
    }
}

/// How many tokens of context the model makes use of without loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EffectiveContext {
    /// The end of the last bucket, counted from the one that ends at the trained length, up to which no bucket is
    /// significantly worse than that one: the lower bound of its excess is at most 0.
    pub tokens: usize,
    pub ended_by: EndedBy,
}

/// Mean losses by position.
#[derive(Debug, Clone, PartialEq)]
pub struct ByPosition {
    /// Those that hold tokens, in order.
    pub buckets: Vec<BucketScore>,
    /// Index of the bucket that ends at the trained length; `None` when windows do not reach it.
    pub reference: Option<usize>,
    /// `None` without a reference, or when that has too few blocks.
    pub effective: Option<EffectiveContext>,
}

/// Sorts losses into [`buckets`]. `trained`: tokens that the unscaled embedding was trained for.
pub fn by_position(
    losses: &Losses,
    trained: usize,
    per_doubling: usize,
    bootstrap: &Bootstrap,
) -> ByPosition {
    let max_position = losses.tokens().map(|token| token.position).max().unwrap_or(0);
    let all = buckets(max_position, trained, per_doubling);
    let mut blocks = Blocks::new(all.len());
    let mut tokens = vec![0; all.len()];
    for token in losses.tokens() {
        let index = all.partition_point(|bucket| bucket.last < token.position);
        blocks.enter(token.document, token.token, bootstrap.block);
        blocks.add(index, 1.0, token.nll);
        tokens[index] += 1;
    }
    let replicates = blocks.replicate(bootstrap);
    let is_reference = |bucket: &Bucket| bucket.last + 1 == trained;
    let reference = (0..all.len()).find(|&index| tokens[index] > 0 && is_reference(&all[index]));
    let score = |index: usize| BucketScore {
        bucket: all[index],
        tokens: tokens[index],
        nll: blocks.mean(index),
        interval: replicates.interval(index),
        excess: reference.and_then(|reference| replicates.difference(index, reference)),
    };
    let scores: Vec<BucketScore> = (0..all.len()).filter(|&index| tokens[index] > 0).map(score).collect();
    let reference = scores.iter().position(|score| is_reference(&score.bucket));
    let effective = reference.and_then(|reference| effective_context(&scores, reference));
    ByPosition { buckets: scores, reference, effective }
}

fn effective_context(scores: &[BucketScore], reference: usize) -> Option<EffectiveContext> {
    scores[reference].interval?;
    let mut tokens = scores[reference].bucket.last + 1;
    for score in &scores[reference + 1..] {
        match score.excess {
            None => return Some(EffectiveContext { tokens, ended_by: EndedBy::TooFewTokens }),
            Some(excess) if excess.low > 0.0 => {
                return Some(EffectiveContext { tokens, ended_by: EndedBy::Worse });
            }
            Some(_) => tokens = score.bucket.last + 1,
        }
    }
    Some(EffectiveContext { tokens, ended_by: EndedBy::LastPosition })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eval::perplexity::losses::Run;

    fn run(document: usize, first_position: usize) -> Run {
        Run { document, window: 0, first_token: first_position, first_position, weight: 1, losses: 0..0 }
    }

    fn pairs(max: usize, trained: usize, per_doubling: usize) -> Vec<(usize, usize)> {
        buckets(max, trained, per_doubling).iter().map(|bucket| (bucket.first, bucket.last)).collect()
    }

    #[test]
    fn borders_stand_at_the_trained_length_times_powers_of_two() {
        assert_eq!(pairs(9, 4, 1), [(1, 1), (2, 3), (4, 7), (8, 9)]);
        assert_eq!(pairs(7, 8, 1), [(1, 1), (2, 3), (4, 7)]);
        assert_eq!(pairs(20, 10, 1), [(1, 2), (3, 4), (5, 9), (10, 19), (20, 20)]);
        assert_eq!(pairs(15, 8, 2), [(1, 1), (2, 2), (3, 3), (4, 5), (6, 7), (8, 10), (11, 15)]);
        for (max, trained, per_doubling) in [(1, 1, 1), (1, 4096, 3), (70_000, 8192, 4), (3, 40_960, 1)] {
            let all = buckets(max, trained, per_doubling);
            assert_eq!((all[0].first, all.last().unwrap().last), (1, max));
            assert!(all.windows(2).all(|pair| pair[1].first == pair[0].last + 1));
            assert!(all.iter().all(|bucket| bucket.first >= trained || bucket.last < trained));
        }
    }

    /// Losses of 16 documents: `level` by position, with a ripple that averages out.
    fn losses(positions: usize, level: impl Fn(usize) -> f32) -> Losses {
        let mut losses = Losses::default();
        for document in 0..16 {
            let value = |p: usize| level(p) + ((p * 31 + document * 17) % 11) as f32 * 0.01;
            let nll: Vec<f32> = (1..positions).map(value).collect();
            losses.push(run(document, 1), &nll);
        }
        losses
    }

    #[test]
    fn means_and_counts_are_those_of_the_positions() {
        let found = by_position(&losses(64, |p| p as f32), 16, 1, &Bootstrap::default());
        let last = found.buckets.last().unwrap();
        assert_eq!((last.bucket, last.tokens), (Bucket { first: 32, last: 63 }, 16 * 32));
        assert!((last.nll - (47.5 + 0.05)).abs() < 0.01, "{last:?}");
        assert_eq!(found.buckets[found.reference.unwrap()].bucket.last, 15);
        let interval = last.interval.unwrap();
        assert!(interval.low <= last.nll && last.nll <= interval.high);
    }

    #[test]
    fn the_effective_context_ends_before_the_first_worse_bucket() {
        let flat = by_position(&losses(512, |_| 2.0), 64, 1, &Bootstrap::default());
        assert_eq!(flat.effective, Some(EffectiveContext { tokens: 512, ended_by: EndedBy::LastPosition }));
        let rising = losses(512, |p| if p < 256 { 2.0 } else { 2.5 });
        let found = by_position(&rising, 64, 1, &Bootstrap::default());
        assert_eq!(found.effective, Some(EffectiveContext { tokens: 256, ended_by: EndedBy::Worse }));
        // One document is one or two blocks a bucket: nothing can be said.
        let mut single = Losses::default();
        single.push(run(0, 1), &[2.0; 511]);
        let found = by_position(&single, 64, 1, &Bootstrap::default());
        assert_eq!(found.effective, None);
        // Windows that end before the trained length say nothing about it.
        assert_eq!(by_position(&losses(32, |_| 2.0), 64, 1, &Bootstrap::default()).reference, None);
    }

    #[test]
    fn a_last_bucket_with_too_few_tokens_is_no_evidence() {
        let mut losses = losses(64, |_| 2.0);
        losses.push(run(16, 1), &[2.0; 80]);
        let found = by_position(&losses, 64, 1, &Bootstrap::default());
        assert_eq!(found.effective, Some(EffectiveContext { tokens: 64, ended_by: EndedBy::TooFewTokens }));
    }
}
