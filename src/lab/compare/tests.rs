//! Small comparisons, whole and stopped.

use super::*;

fn request(keep: Option<(PathBuf, usize)>) -> CompareRequest {
    CompareRequest {
        settings: Settings {
            layers: 1,
            width: 16,
            heads: 2,
            feed_forward: 16,
            context: 16,
            batch: 2,
            steps: 8,
            warmup: 1,
            ..Settings::default()
        },
        encodings: vec![Encoding::Learned, Encoding::Rope],
        seeds: vec![4, 5],
        lengths: vec![8, 16, 32],
        factors: vec![2.0],
        windows: 4,
        keep,
        workers: 2,
    }
}

fn through(_: Progress) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

#[test]
fn all_encodings_and_seeds_are_measured_and_learned_positions_say_where_they_end() {
    let text = Text::generated(0, 5000);
    let found = compare(&request(None), &text, &through).unwrap();
    assert_eq!((found.finished, found.tokens_scored), (4, 16));
    let learned = &found.encodings[0];
    assert!(matches!(&learned.perplexity[1], Outcome::Measured(spread) if spread.0.len() == 2));
    match &learned.perplexity[2] {
        Outcome::Refused(reason) => assert!(reason.contains("end at 16"), "{reason}"),
        other => panic!("{other:?}"),
    }
    let methods: Vec<&str> = found.scaled.iter().map(|scaled| scaled.method).collect();
    assert_eq!(methods, METHODS);
    assert!(found.scaled.iter().all(|scaled| scaled.length == 32 && scaled.plain != scaled.scaled));
    // Dynamic NTK changes nothing within the trained length.
    let Outcome::Measured(plain) = &found.encodings[1].perplexity[1] else { panic!("rope refused") };
    assert_eq!(&found.scaled[2].within, plain);
}

#[test]
fn a_stopped_comparison_goes_on_and_ends_alike() {
    let text = Text::generated(0, 5000);
    let dir = tempfile::tempdir().unwrap();
    let kept = request(Some((dir.path().to_path_buf(), 3)));
    let steps = AtomicUsize::new(0);
    let stop = |_: Progress| match steps.fetch_add(1, Ordering::Relaxed) < 20 {
        true => ControlFlow::Continue(()),
        false => ControlFlow::Break(()),
    };
    let part = compare(&kept, &text, &stop).unwrap();
    assert!(part.finished < 4, "{}", part.finished);
    let again = AtomicUsize::new(0);
    let count = |_: Progress| {
        again.fetch_add(1, Ordering::Relaxed);
        ControlFlow::Continue(())
    };
    let whole = compare(&request(None), &text, &through).unwrap();
    assert_eq!(compare(&kept, &text, &count).unwrap(), whole);
    assert_eq!(again.into_inner() + steps.into_inner(), 32);
}

#[test]
fn requests_are_checked() {
    let wrong = [
        CompareRequest { seeds: vec![], ..request(None) },
        CompareRequest { lengths: vec![3], ..request(None) },
        CompareRequest { factors: vec![0.5], ..request(None) },
        CompareRequest { windows: 0, ..request(None) },
    ];
    for request in wrong {
        let error = compare(&request, &Text::generated(0, 5000), &through).unwrap_err();
        assert!(matches!(error, LabError::Setting { .. }), "{error}");
    }
    let error = compare(&request(None), &Text::generated(0, 300), &through).unwrap_err();
    assert!(matches!(error, LabError::ShortText { needed: 33, found: 30, .. }), "{error}");
}

#[test]
fn spread_is_the_deviation_of_the_sample() {
    let spread = Spread(vec![1.0, 3.0]);
    assert_eq!((spread.mean(), spread.deviation()), (2.0, Some(2f64.sqrt())));
    assert_eq!(Spread(vec![1.0]).deviation(), None);
}
