//! Perplexity rules against transformers: `fixtures/make_perplexity_golden.py` follows each source step by step.

mod common;

use common::{Setup, fixture};
use ropex::eval::document::Document;
use ropex::eval::perplexity::{PerplexityRequest, perplexity, plan};
use ropex::eval::windows::{BosPlacement, Rule};
use ropex::model::load::EngineName;
use ropex::named::Named;
use serde_json::Value;

/// Largest difference of a mean loss in nats from the f32 one of transformers, on either engine.
const NLL_TOLERANCE: f64 = 1e-5;

fn golden(name: &str) -> Value {
    serde_json::from_slice(&std::fs::read(fixture(name)).unwrap()).unwrap()
}

fn document() -> Document {
    let ids = golden("tiny/golden.json")["input_ids"].clone();
    let tokens: Vec<u32> = ids.as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect();
    let tokenizer = common::open("llama").tokenizer(None).unwrap();
    Document::new("golden ids".to_string(), tokens, &tokenizer)
}

/// D079: one text, one model, five rules, and the number that each source prints; both of transformers' own recipe too.
#[test]
fn d079_every_rule_gives_the_loss_that_transformers_gives() {
    let documents = [document()];
    let mut largest: f64 = 0.0;
    for case in golden("perplexity_golden.json")["transformers"].as_array().unwrap() {
        let number = |key: &str| case[key].as_u64().unwrap() as usize;
        let rule = Rule::parse(case["rule"].as_str().unwrap()).unwrap();
        let bos = BosPlacement::parse(case["bos"].as_str().unwrap()).unwrap();
        let request = PerplexityRequest {
            rule,
            context: number("context"),
            stride: number("stride"),
            bos,
            bos_token: (bos != BosPlacement::Never).then_some(0),
            max_windows: None,
        };
        let windows = plan(&documents, &request).unwrap();
        for engine in [EngineName::Candle, EngineName::Cpu] {
            let folder = case["folder"].as_str().unwrap();
            let model = Setup { engine, ..Setup::new(folder) }.load(request.context);
            let found = perplexity(&*model, &documents, &windows, request.bos_token, &mut |_, _| ()).unwrap();
            let score = found.pooled;
            assert_eq!((score.windows, score.tokens_scored), (number("windows"), number("tokens_scored")));
            let mut expected = vec![("nll", score.nll()), ("token_nll", score.token_nll())];
            if rule == Rule::Hf {
                expected.push(("recipe_nll", score.nll()));
            }
            for (key, found) in expected {
                let difference = (found - case[key].as_f64().unwrap()).abs();
                largest = largest.max(difference);
                let what =
                    format!("{folder}, {rule:?}, {key}, context {}, {}", request.context, engine.name());
                assert!(difference <= NLL_TOLERANCE, "{what}: {difference:e}");
            }
        }
    }
    println!("largest difference {largest:e} nats");
}
