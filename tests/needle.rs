//! Needles on tiny models with random weights: what sharing a prefix changes, which is nothing.

mod common;

use common::{Setup, fixture};
use ropex::checkpoint::tokenizer::{Sidecar, Tokenizer};
use ropex::eval::needle::{
    Depths, Frame, NeedleRequest, NeedleResult, Retrieval, ScoreKind, Source, Task, Tracking, ValueKind,
    ValueMaker, plan, run,
};
use ropex::model::LanguageModel;
use ropex::model::load::EngineName;
use serde_json::json;

/// Largest difference of a log-probability in nats that sharing may make: none on `cpu`, whose rows do not depend on the
/// rows beside them; candle's matrix products add up in another order for another number of rows.
const SHARING_TOLERANCES: [(EngineName, f64); 2] = [(EngineName::Cpu, 0.0), (EngineName::Candle, 1e-5)];

fn tokenizer() -> Tokenizer {
    let bytes = std::fs::read(fixture("tiny/llama/tokenizer.json")).unwrap();
    Tokenizer::from_tokenizer_json(&bytes, &Sidecar::default()).unwrap()
}

fn request(tokenizer: &Tokenizer, lengths: &[usize]) -> NeedleRequest {
    let digits = 4;
    let task = Retrieval {
        keys: 3,
        values: 1,
        queries: 2,
        key_maker: ValueMaker { kind: ValueKind::Word, digits },
        value_maker: ValueMaker { kind: ValueKind::Number, digits },
    };
    NeedleRequest {
        task: Task::Retrieval(task),
        source: Source::Prose,
        lengths: lengths.to_vec(),
        depths: Depths::At(vec![0.0, 0.5, 1.0]),
        trials: 2,
        seed: 5,
        score: ScoreKind::Both,
        decoys: 6,
        max_new_tokens: None,
        frame: Frame::plain(tokenizer),
        control: true,
        share: true,
    }
}

fn measure(model: &dyn LanguageModel, tokenizer: &Tokenizer, request: &NeedleRequest) -> NeedleResult {
    run(model, &plan(tokenizer, request).unwrap(), &mut |_| ()).unwrap()
}

/// Largest difference of a log-probability; everything else must be equal.
fn difference(a: &NeedleResult, b: &NeedleResult) -> f64 {
    let cells = |result: &NeedleResult| {
        let all = result.cells.iter().chain(&result.controls);
        all.flat_map(|cell| cell.trials.clone()).collect::<Vec<_>>()
    };
    let (a, b) = (cells(a), cells(b));
    assert_eq!(a.len(), b.len());
    let mut largest: f64 = 0.0;
    for (a, b) in a.iter().zip(&b) {
        assert_eq!((a.number, &a.depths, &a.generated), (b.number, &b.depths, &b.generated));
        for (a, b) in a.ranked.iter().zip(&b.ranked) {
            assert_eq!((&a.answer, a.rank), (&b.answer, b.rank));
            largest = largest.max((a.log_prob - b.log_prob).abs());
        }
    }
    largest
}

#[test]
fn sharing_prefixes_changes_no_result() {
    let tokenizer = tokenizer();
    let ropes = [
        json!({"rope_type": "yarn", "factor": 32.0, "original_max_position_embeddings": 64, "rope_theta": 5000.0}),
        json!({"rope_type": "dynamic", "factor": 2.0, "original_max_position_embeddings": 64, "rope_theta": 5000.0}),
    ];
    for (engine, tolerance) in SHARING_TOLERANCES {
        for rope in &ropes {
            let model = Setup { engine, ..Setup::new("llama") }.rope(rope).load(1600);
            let request = request(&tokenizer, &[900, 1600]);
            let shared = measure(&*model, &tokenizer, &request);
            let alone = measure(&*model, &tokenizer, &NeedleRequest { share: false, ..request.clone() });
            let found = difference(&shared, &alone);
            println!("{engine:?}, {}: {found:.1e}", rope["rope_type"]);
            assert!(found <= tolerance, "{engine:?}: {found}");
            assert_eq!(shared.tokens.naive, alone.tokens.computed);
            assert!(shared.tokens.computed * 3 < shared.tokens.naive * 2, "{:?}", shared.tokens);
            assert!(shared.tokens.naive * 4 < shared.tokens.naive_per_candidate);
        }
    }
}

/// A cell measured on its own equals the same cell of a grid.
#[test]
fn a_length_on_its_own_gives_the_same_cells() {
    let tokenizer = tokenizer();
    let model = Setup { engine: EngineName::Cpu, ..Setup::new("llama") }.load(1600);
    let mut grid = measure(&*model, &tokenizer, &request(&tokenizer, &[900, 1600]));
    let alone = measure(&*model, &tokenizer, &request(&tokenizer, &[900]));
    grid.cells.retain(|cell| cell.length == 900);
    grid.controls.retain(|cell| cell.length == 900);
    assert_eq!((grid.cells, grid.controls), (alone.cells, alone.controls));
}

/// A model that has learnt nothing ranks the right answer anywhere, with the needle and without.
#[test]
fn random_weights_score_at_chance() {
    let tokenizer = tokenizer();
    let model = Setup { engine: EngineName::Cpu, ..Setup::new("llama") }.load(1600);
    let tracking = Task::Tracking(Tracking { chains: 1, hops: 3 });
    let mut request = NeedleRequest { trials: 30, ..request(&tokenizer, &[800]) };
    let asked = [(request.task.clone(), request.depths.clone()), (tracking, Depths::Spread)];
    for (task, depths) in asked {
        (request.task, request.depths) = (task, depths);
        let found = measure(&*model, &tokenizer, &request);
        let chance = found.chance.unwrap();
        assert!((chance - 1.0 / 7.0).abs() < 1e-12, "{chance}");
        for cell in &found.controls {
            let share = cell.likelihood().unwrap();
            assert!(share.interval.low <= chance && chance <= share.interval.high, "{share:?}");
            assert!((cell.beaten().unwrap() - 0.5).abs() < 0.2, "{:?}", cell.beaten());
            assert_eq!(cell.generation().unwrap().mean, 0.0);
        }
    }
}

/// Progress ends at what was announced when every answer takes its room, and never runs past it.
#[test]
fn progress_counts_the_tokens_that_are_computed() {
    let tokenizer = tokenizer();
    let model = Setup { engine: EngineName::Cpu, ..Setup::new("llama") }.load(1600);
    for score in [ScoreKind::Likelihood, ScoreKind::Both] {
        let request = NeedleRequest { score, ..request(&tokenizer, &[900]) };
        let plan = plan(&tokenizer, &request).unwrap();
        let mut last = None;
        let found = run(&*model, &plan, &mut |at| {
            assert!(at.done <= at.total, "{at:?}");
            last = Some(at);
        });
        let (found, last) = (found.unwrap(), last.unwrap());
        assert_eq!(last.done, found.tokens.computed);
        match score {
            ScoreKind::Likelihood => assert_eq!(last.done, last.total),
            _ => assert!(last.done as f64 > 0.9 * last.total as f64, "{last:?}"),
        }
        assert_eq!(last.generation.is_some(), score == ScoreKind::Both);
    }
}
