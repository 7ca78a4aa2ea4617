//! Differences of two runs on the same tokens.

use super::losses::Losses;
use crate::eval::statistics::bootstrap::{Blocks, Bootstrap, Interval};

/// A mean with its interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Mean {
    pub nll: f64,
    /// Blocks that the interval is made from.
    pub blocks: usize,
    pub interval: Option<Interval>,
}

/// The weighted mean of losses, as the rule weights them; `document`: only that one.
pub fn mean(losses: &Losses, document: Option<usize>, bootstrap: &Bootstrap) -> Mean {
    let mut blocks = Blocks::new(1);
    let runs = losses.runs.iter().filter(|run| document.is_none_or(|wanted| wanted == run.document));
    for token in runs.flat_map(|run| losses.tokens_of(run)) {
        blocks.enter(token.document, token.token, bootstrap.block);
        blocks.add(0, token.weight, token.nll);
    }
    let interval = blocks.replicate(bootstrap).interval(0);
    Mean { nll: blocks.mean(0), blocks: blocks.count(0), interval }
}

/// Losses less those of an earlier run over the same tokens; what an interrupted run lacks is left out.
///
/// `baseline`: one loss for every scored token of the whole plan, in the same order.
pub fn differences(losses: &Losses, baseline: &[f32]) -> Losses {
    let nll = losses.nll.iter().zip(baseline).map(|(now, before)| now - before).collect();
    Losses { runs: losses.runs.clone(), nll }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eval::perplexity::losses::Run;

    fn losses() -> Losses {
        let mut losses = Losses::default();
        for window in 0..20 {
            let nll: Vec<f32> = (0..64).map(|i| ((i * 29 + window * 13) % 17) as f32).collect();
            let run = Run {
                document: window / 10,
                window: window % 10,
                first_token: (window % 10) * 64,
                first_position: 1,
                weight: 64,
                losses: 0..0,
            };
            losses.push(run, &nll);
        }
        losses
    }

    /// The difference of two runs is far surer than either of them: what the text does to both drops out.
    #[test]
    fn paired_differences_are_surer_than_the_means() {
        let now = losses();
        let baseline: Vec<f32> =
            now.nll.iter().enumerate().map(|(i, x)| x + 0.1 + 0.01 * (i % 3) as f32).collect();
        let bootstrap = Bootstrap { block: 64, ..Bootstrap::default() };
        let paired = mean(&differences(&now, &baseline), None, &bootstrap);
        assert!((paired.nll + 0.11).abs() < 1e-3, "{paired:?}");
        let interval = paired.interval.unwrap();
        assert!(interval.low < paired.nll && paired.nll < interval.high && interval.high < 0.0);
        let alone = mean(&now, None, &bootstrap).interval.unwrap();
        assert!(alone.high - alone.low > 20.0 * (interval.high - interval.low), "{alone:?} {interval:?}");
    }

    #[test]
    fn the_mean_of_one_document_is_its_own() {
        let losses = losses();
        let first = mean(&losses, Some(0), &Bootstrap::default());
        let half: f64 = losses.nll[..640].iter().map(|x| f64::from(*x)).sum::<f64>() / 640.0;
        assert!((first.nll - half).abs() < 1e-12 && first.blocks == 5, "{first:?}");
    }
}
