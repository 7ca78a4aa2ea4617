//! Prompts of every task with every kind of tokenizer.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::plan::Item;
use super::*;
use crate::checkpoint::gguf::GgufFile;
use crate::checkpoint::tokenizer::{Sidecar, Tokenizer};

fn fixture(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures").join(name)
}

/// The five kinds of `fixtures/`, and the demo's small byte-level vocabulary, which adds BOS.
fn tokenizers() -> Vec<(String, Tokenizer)> {
    let styles = ["gpt2", "llama3", "qwen2", "smollm", "spm"].into_iter().map(|style| {
        let bytes = std::fs::read(fixture(&format!("tokenizer_{style}.json"))).unwrap();
        (style.to_string(), Tokenizer::from_tokenizer_json(&bytes, &Sidecar::default()).unwrap())
    });
    let demo = GgufFile::open(&fixture("demo/demo.gguf")).unwrap();
    let demo = ("demo".to_string(), Tokenizer::from_gguf(demo.metadata()).unwrap());
    styles.chain([demo]).collect()
}

fn smollm() -> Tokenizer {
    tokenizers().swap_remove(3).1
}

fn maker(kind: ValueKind) -> ValueMaker {
    ValueMaker { kind, digits: 7 }
}

fn retrieval(keys: usize, values: usize, queries: usize) -> Task {
    let (key_maker, value_maker) = (maker(ValueKind::Word), maker(ValueKind::Number));
    Task::Retrieval(Retrieval { keys, values, queries, key_maker, value_maker })
}

fn request(tokenizer: &Tokenizer, task: Task, lengths: &[usize]) -> NeedleRequest {
    let depths = if task.has_depth() { Depths::At(vec![0.0, 0.37, 1.0]) } else { Depths::Spread };
    NeedleRequest {
        task,
        source: Source::Prose,
        lengths: lengths.to_vec(),
        depths,
        trials: 2,
        seed: 0,
        score: ScoreKind::Both,
        decoys: 5,
        max_new_tokens: None,
        frame: Frame::plain(tokenizer),
        control: true,
        share: true,
    }
}

fn frog() -> Task {
    Task::Custom(Custom {
        needle: "the secret code is FROG".into(),
        question: "What is the secret code?".into(),
        answer: "FROG".into(),
        opening: None,
        decoys: Vec::new(),
    })
}

/// Tasks with the least length that they are tried at.
fn tasks() -> Vec<(&'static str, Task, usize)> {
    let uuids = Task::Retrieval(Retrieval {
        keys: 3,
        values: 1,
        queries: 1,
        key_maker: maker(ValueKind::Uuid),
        value_maker: maker(ValueKind::Uuid),
    });
    vec![
        ("single", retrieval(1, 1, 1), 400),
        ("multi-key", retrieval(4, 1, 1), 900),
        ("multi-value", retrieval(1, 3, 1), 900),
        ("multi-query", retrieval(4, 1, 3), 1200),
        ("uuids", uuids, 1500),
        ("tracking", Task::Tracking(Tracking { chains: 2, hops: 2 }), 1000),
        ("common words", Task::CommonWords(CommonWords { words: 3, repeats: 8, rare_repeats: 2 }), 1500),
        ("frequent words", Task::FrequentWords(FrequentWords { alpha: 2.0 }), 1500),
        ("custom", frog(), 400),
    ]
}

fn all_items(plan: &Plan<'_>) -> Vec<Vec<Item>> {
    (0..plan.request.trials).map(|trial| plan.items(trial).unwrap()).collect()
}

#[test]
fn every_prompt_is_exact_to_the_token() {
    for (style, tokenizer) in tokenizers() {
        for (name, task, least) in tasks() {
            let request = request(&tokenizer, task, &[least, least + 1, 2 * least + 37]);
            let plan = plan(&tokenizer, &request).unwrap_or_else(|error| panic!("{style}, {name}: {error}"));
            for (trial, items) in all_items(&plan).iter().enumerate() {
                for length in 0..3 {
                    let of_length = items.iter().filter(|item| item.cell.length == length);
                    let sizes: Vec<usize> = of_length.map(|item| item.tokens.len()).collect();
                    let expected = request.lengths[length] - plan.answer_room;
                    assert_eq!(sizes.iter().max(), Some(&expected), "{style}, {name}");
                }
                // D090: no question is ever cut.
                for item in items {
                    let exam = &plan.exams[trial];
                    assert!(item.tokens.starts_with(&exam.head), "{style}, {name}");
                    assert!(item.tokens.ends_with(&exam.questions[item.question].tail), "{style}, {name}");
                }
            }
        }
    }
}

/// What a reader sees: the fact once in the text, near the depth asked for, and never in the control.
#[test]
fn needles_are_where_they_should_be() {
    for (style, tokenizer) in tokenizers() {
        let request = request(&tokenizer, retrieval(1, 1, 1), &[1500]);
        let plan = plan(&tokenizer, &request).unwrap();
        for (trial, items) in all_items(&plan).iter().enumerate() {
            let value = &plan.exams[trial].questions[0].wanted[0];
            for item in items {
                let text = tokenizer.decode(&item.tokens, true).unwrap();
                let Some(depth) = item.cell.depth else {
                    assert!(!text.contains(value) && item.depths.is_empty(), "{style}");
                    continue;
                };
                assert_eq!(text.matches(value.as_str()).count(), 1, "{style}: {text}");
                let asked = request.depths.cells()[depth].unwrap();
                // The longest sentence of the grammar, in the smallest vocabulary.
                assert!((item.depths[0] - asked).abs() < 0.06, "{style}: {:?} {asked}", item.depths);
                let at = text.find(value.as_str()).unwrap() as f64 / text.len() as f64;
                assert!((at - asked).abs() < 0.12, "{style}: {at} {asked}");
                let ends = [". ", ".\n"];
                let sentence = ends.iter().any(|end| text.contains(&format!("is {value}{end}")));
                assert!(sentence || depth == 2, "{style}: {text}");
            }
        }
    }
}

/// D098: the answer's room and the template are part of the length.
#[test]
fn d098_the_prompt_leaves_room_for_the_answer() {
    for (style, tokenizer) in tokenizers() {
        let mut request = request(&tokenizer, retrieval(1, 1, 1), &[256]);
        request.max_new_tokens = Some(16);
        let plan = plan(&tokenizer, &request).unwrap_or_else(|error| panic!("{style}: {error}"));
        assert_eq!(plan.prompt_tokens(256), 240);
        assert!(all_items(&plan).iter().flatten().all(|item| item.tokens.len() == 240), "{style}");
        request.max_new_tokens = Some(3);
        let error = super::plan(&tokenizer, &request).err().unwrap();
        assert!(matches!(error, NeedleError::Room { found: 3, .. }), "{error}");
    }
}

/// D099: a text that cannot fill the length is an error with both numbers, never a shorter prompt.
#[test]
fn d099_a_text_too_short_for_the_length_is_refused() {
    let tokenizer = smollm();
    let text = |repeat| {
        let sentences = "The cat sat on the mat. ".repeat(700);
        Source::Text(Arc::new(Text::new("cat.txt".into(), sentences, repeat)))
    };
    let mut request = request(&tokenizer, retrieval(1, 1, 1), &[1000, 262_144]);
    request.source = text(false);
    let error = plan(&tokenizer, &request).err().unwrap();
    let NeedleError::TextTooShort { needed, found } = error else { panic!("{error}") };
    assert!(found < 20_000 && needed > 262_000 && needed < 262_144, "{found} {needed}");
    request.source = text(true);
    let repeated = plan(&tokenizer, &request).unwrap();
    assert_eq!(repeated.items(0).unwrap().last().map(|item| item.tokens.len() > 900), Some(true));
}

/// D101: every prompt of a 64k cell in less than two seconds, tokenising included.
#[test]
fn d101_a_prompt_of_64k_tokens_is_built_in_two_seconds() {
    let tokenizer = smollm();
    for (name, task, _) in tasks() {
        let mut request = request(&tokenizer, task, &[65_536]);
        request.trials = 1;
        request.control = false;
        request.depths = if request.task.has_depth() { Depths::At(vec![0.5]) } else { Depths::Spread };
        // The machine may be busy: the best of three.
        let build = |_| {
            let started = Instant::now();
            let plan = plan(&tokenizer, &request).unwrap();
            let longest = plan.items(0).unwrap().iter().map(|item| item.tokens.len()).max();
            assert_eq!(longest, Some(65_536 - plan.answer_room));
            started.elapsed()
        };
        let best = (0..3).map(build).min().unwrap();
        println!("{name}: {best:.2?}");
        assert!(best < Duration::from_secs(2), "{name}: {best:?}");
    }
}

/// D097: what stands around the words is counted and told apart.
#[test]
fn d097_a_chat_frame_is_counted() {
    let tokenizer = smollm();
    let source = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}\
                  {% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
    let template = crate::checkpoint::chat_template::ChatTemplate::new(source).unwrap();
    let mut request = request(&tokenizer, retrieval(1, 1, 1), &[500]);
    let plain = plan(&tokenizer, &request).unwrap().items(0).unwrap();
    request.frame = Frame::chat(&tokenizer, &template, 0).unwrap();
    assert_eq!(request.frame.name, "chat");
    let framed = plan(&tokenizer, &request).unwrap();
    for (item, other) in framed.items(0).unwrap().iter().zip(plain) {
        assert_eq!(item.tokens.len(), other.tokens.len());
        let text = tokenizer.decode(&item.tokens, false).unwrap();
        assert!(text.starts_with("<|im_start|>user\nRemember"), "{text}");
        let end = text.find("?<|im_end|>\n<|im_start|>assistant\nThe secret code of the").unwrap();
        assert!(text[end..].ends_with(" is"), "{text}");
    }
    let twice = crate::checkpoint::chat_template::ChatTemplate::new(
        "{{ messages[0].content }}{{ messages[0].content }}",
    );
    let error = Frame::chat(&tokenizer, &twice.unwrap(), 0).unwrap_err();
    assert!(matches!(error, NeedleError::Template), "{error}");
}

/// A cell is the same whatever else is asked for: another run can be added to or compared with an earlier one.
#[test]
fn cells_do_not_depend_on_each_other() {
    let tokenizer = smollm();
    for (name, task, least) in tasks() {
        let both = request(&tokenizer, task.clone(), &[least, 3 * least]);
        let one = request(&tokenizer, task, &[least]);
        let of = |request: &NeedleRequest| -> Vec<Item> {
            let plan = plan(&tokenizer, request).unwrap();
            plan.items(1).unwrap().into_iter().filter(|item| item.cell.length == 0).collect()
        };
        assert_eq!(of(&both), of(&one), "{name}");
    }
}

#[test]
fn decoys_look_like_the_answer_and_are_not_it() {
    for (style, tokenizer) in tokenizers() {
        for (name, task, least) in tasks() {
            let request = request(&tokenizer, task, &[least]);
            let plan = plan(&tokenizer, &request).unwrap();
            assert_eq!(plan.warnings, Vec::<String>::new(), "{style}, {name}");
            assert_eq!(plan.chance().map(|chance| (chance * 6.0).round()), Some(1.0));
            for contest in plan.exams.iter().flat_map(|exam| &exam.questions).flat_map(|q| &q.contests) {
                let mut all: Vec<&str> = contest.decoys.iter().map(|decoy| decoy.text.as_str()).collect();
                all.push(&contest.answer.text);
                let n = contest.answer.tokens.len();
                assert!(contest.decoys.iter().all(|decoy| decoy.tokens.len() == n), "{style}, {name}");
                all.sort_unstable();
                all.dedup();
                assert_eq!(all.len(), 6, "{style}, {name}: {all:?}");
            }
        }
    }
}

/// In a multi-key text, the other keys' values are among the decoys: it takes the right key to tell them apart.
#[test]
fn values_of_other_keys_are_decoys() {
    let tokenizer = smollm();
    for source in [Source::Prose, Source::Needles] {
        let mut request = request(&tokenizer, retrieval(4, 1, 1), &[1200]);
        request.source = source;
        let plan = plan(&tokenizer, &request).unwrap();
        let items = plan.items(0).unwrap();
        let contest = &plan.exams[0].questions[0].contests[0];
        let present = |item: &Item| {
            let text = tokenizer.decode(&item.tokens, true).unwrap();
            contest.decoys.iter().filter(|decoy| text.contains(&decoy.text)).count()
        };
        for item in &items {
            match item.cell.depth {
                Some(_) => assert!(present(item) >= 3, "{}", present(item)),
                None => assert_eq!(present(item), 0),
            }
        }
    }
}

#[test]
fn requests_that_make_no_sense_are_refused() {
    let tokenizer = smollm();
    let good = request(&tokenizer, retrieval(1, 1, 1), &[500]);
    let refuse = |change: &dyn Fn(&mut NeedleRequest)| {
        let mut request = good.clone();
        change(&mut request);
        plan(&tokenizer, &request).err().unwrap().to_string()
    };
    type Change<'a> = &'a dyn Fn(&mut NeedleRequest);
    let cases: [(Change<'_>, &str); 9] = [
        (&|r| r.trials = 0, "0 trials"),
        (&|r| r.decoys = 0, "0 decoys"),
        (&|r| r.lengths.clear(), "no length"),
        (&|r| r.depths = Depths::At(vec![]), "no depth"),
        (&|r| r.depths = Depths::At(vec![0.5, 1.5]), "`1.5` is not a depth"),
        (&|r| r.task = Task::Tracking(Tracking { chains: 1, hops: 1 }), "has no depth"),
        (&|r| r.lengths = vec![500, 40], "a length of 40 tokens is too short: this task needs at least"),
        (&|r| r.decoys = 100_000_000, "not enough different values"),
        (
            &|r| {
                let Task::Custom(custom) = frog() else { unreachable!() };
                r.task = Task::Custom(Custom { answer: "two words!".into(), ..custom });
            },
            "no wrong answers can be made for `two words!`",
        ),
    ];
    for (change, expected) in cases {
        // One-digit values run out soon.
        let digits = |r: &mut NeedleRequest| {
            if r.decoys > 1000 {
                let digit = ValueMaker { kind: ValueKind::Number, digits: 1 };
                let Task::Retrieval(task) = &mut r.task else { unreachable!() };
                task.value_maker = digit;
            }
        };
        let message = refuse(&|r| {
            change(r);
            digits(r);
        });
        assert!(message.contains(expected), "{message}");
    }
}
