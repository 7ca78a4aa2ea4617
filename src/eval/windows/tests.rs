//! Windows against the lists of the script `fixtures/make_perplexity_golden.py`, which follows each source by itself.

use std::path::Path;

use serde_json::Value;

use super::*;

fn scored(windows: &[Window]) -> usize {
    windows.iter().map(|w| w.scored.len()).sum()
}

fn golden() -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/perplexity_golden.json");
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

fn number(value: &Value) -> usize {
    value.as_u64().unwrap() as usize
}

/// `[first, end, prepended, overwritten, first scored, end of scored, weight]`, as the script writes windows.
fn written(window: &Window) -> Vec<usize> {
    vec![
        window.tokens.start,
        window.tokens.end,
        window.prepend_bos.into(),
        window.overwrite_bos.into(),
        window.scored.start,
        window.scored.end,
        window.weight,
    ]
}

/// D079, D085, D089, D090, D091: every rule on 1000, 4096 and 100 tokens, windows of 128 and 1000.
#[test]
fn d079_d085_d091_windows_of_every_rule_equal_those_of_an_independent_script() {
    let golden = golden();
    let cases = golden["windows"].as_array().unwrap();
    for rule in Rule::ALL {
        assert!(cases.iter().filter(|case| case["rule"] == rule.name()).count() >= 9, "{rule:?}");
    }
    for case in cases {
        let rule = Rule::parse(case["rule"].as_str().unwrap()).unwrap();
        let bos = BosPlacement::parse(case["bos"].as_str().unwrap()).unwrap();
        let [n, context, stride] = ["n", "context", "stride"].map(|key| number(&case[key]));
        let what = format!("{rule:?}, {n} tokens, context {context}, stride {stride}, bos {bos:?}");
        let found = windows(rule, n, context, stride, bos);
        let Some(expected) = case["windows"].as_array() else {
            assert!(matches!(found, Err(WindowError::TooShort { .. })), "{what}: {found:?}");
            continue;
        };
        let found = found.unwrap_or_else(|error| panic!("{what}: {error}"));
        let row = |row: &Value| -> Vec<usize> { row.as_array().unwrap().iter().map(number).collect() };
        let expected: Vec<Vec<usize>> = expected.iter().map(row).collect();
        assert_eq!(found.iter().map(written).collect::<Vec<_>>(), expected, "{what}");
        assert_eq!(scored(&found), number(&case["tokens_scored"]), "{what}");
        assert!(found.iter().all(|window| window.len() <= context), "{what}");
    }
}

/// D085: 1000 tokens, windows of 128 every 32: all but the first token are scored.
#[test]
fn d085_strided_and_hf_score_every_token_but_the_first_once() {
    for rule in [Rule::Strided, Rule::Hf] {
        let all = windows(rule, 1000, 128, 32, BosPlacement::Never).unwrap();
        assert_eq!(scored(&all), 999);
        assert_eq!(all.last().unwrap().tokens, 896..1000);
        let mut next = 1;
        for window in &all {
            assert_eq!(window.scored.start, next);
            next = window.scored.end;
        }
        assert_eq!(next, 1000);
    }
}

#[test]
fn strided_with_bos_scores_the_first_token_too() {
    for bos in [BosPlacement::First, BosPlacement::Every] {
        let all = windows(Rule::Strided, 1000, 128, 32, bos).unwrap();
        assert_eq!(scored(&all), 1000);
        assert!(all.iter().all(|window| window.len() <= 128));
    }
}

#[test]
fn llama_cpp_scores_second_halves_and_drops_the_tail() {
    let all = windows(Rule::LlamaCpp, 1100, 512, 512, BosPlacement::Every).unwrap();
    assert_eq!(all.len(), 2);
    assert_eq!(all[1].scored, 512 + 257..1024);
    assert_eq!(scored(&all), 2 * 255);
    assert!(all.iter().all(|window| window.overwrite_bos));
}

/// D088: without a prefix token lm-eval's first token stays unscored, and nothing else changes.
#[test]
fn d088_lm_eval_without_a_prefix_token_leaves_the_first_token_unscored() {
    let all = windows(Rule::LmEval, 300, 128, 128, BosPlacement::Never).unwrap();
    let ends: Vec<_> = all.iter().map(|window| (window.tokens.clone(), window.scored.clone())).collect();
    assert_eq!(ends, [(0..128, 1..129), (128..256, 129..257), (171..299, 257..300)]);
}

#[test]
fn inputs_hold_the_token_once() {
    let text: Vec<u32> = (10..20).collect();
    let input = |rule, bos| -> Vec<Vec<u32>> {
        let all = windows(rule, text.len(), 4, 2, bos).unwrap();
        all.iter().map(|window| window.input(&text, Some(1))).collect()
    };
    assert_eq!(input(Rule::Yarn, BosPlacement::Every)[1], [1, 12, 13, 14]);
    assert_eq!(input(Rule::LlamaCpp, BosPlacement::Every)[1], [1, 15, 16, 17]);
    assert_eq!(input(Rule::LmEval, BosPlacement::First)[..2], [[1, 10, 11, 12], [13, 14, 15, 16]]);
}

#[test]
fn texts_too_short_bad_strides_and_unknown_placements_are_refused() {
    let short = windows(Rule::LlamaCpp, 1023, 512, 512, BosPlacement::Never);
    assert!(matches!(short, Err(WindowError::TooShort { needed: 1024, found: 1023, .. })));
    for (rule, needed) in [(Rule::Strided, 2), (Rule::Hf, 2), (Rule::LmEval, 2)] {
        let one = windows(rule, 1, 128, 32, BosPlacement::Never);
        assert_eq!(one, Err(WindowError::TooShort { rule, needed, found: 1 }));
    }
    for stride in [0, 129] {
        for rule in [Rule::Strided, Rule::Hf, Rule::Yarn] {
            let gap = windows(rule, 1000, 128, stride, BosPlacement::Never);
            assert!(matches!(gap, Err(WindowError::Stride { most: 128, .. })), "{rule:?}");
        }
    }
    let with_bos = windows(Rule::Strided, 1000, 128, 128, BosPlacement::Every);
    assert!(matches!(with_bos, Err(WindowError::Stride { most: 127, .. })));
    let tiny = windows(Rule::Strided, 1000, 1, 1, BosPlacement::Never);
    assert_eq!(tiny, Err(WindowError::Context(1)));
    for rule in Rule::ALL {
        for bos in BosPlacement::ALL {
            let refused = matches!(windows(*rule, 1000, 128, 32, *bos), Err(WindowError::Bos { .. }));
            assert_eq!(refused, !rule.placements().contains(bos), "{rule:?} {bos:?}");
        }
    }
}
