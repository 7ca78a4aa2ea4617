//! One pair of lanes: an added encoding moves it, a rotation turns it.

use crate::plot::figure::{Arrow, Figure, VectorPanel, Vectors};
use crate::rope::{Frequencies, Pairing, RopeError, rotate_f64};

/// Radians per token of the pair that is drawn.
const INV_FREQ: f64 = 0.45;
const QUERY: [f64; 2] = [0.9, -0.5];
const KEY: [f64; 2] = [0.8, 0.4];
/// Positions that are drawn.
const POSITIONS: [usize; 4] = [0, 1, 2, 3];
/// Two pairs of a query's and a key's position, of equal distance.
const PLACES: [(usize, usize); 2] = [(1, 3), (6, 8)];

/// Figure 1 of the post: the same vector at positions 0 to 3, once with a sinusoidal encoding added, once rotated; with its
/// length and the score against a key at two places of equal distance.
///
/// # Errors
/// None that these constants can cause; [`RopeError`] is what a rotation returns.
pub fn pair() -> Result<Figure, RopeError> {
    let added = |[a, b]: [f64; 2], position: usize| {
        let (sin, cos) = (position as f64 * INV_FREQ).sin_cos();
        [a + sin, b + cos]
    };
    let frequencies = Frequencies { inv_freq: vec![INV_FREQ], attention_factor: 1.0 };
    let rotated = |vector: [f64; 2], position: usize| {
        let mut turned = vector;
        rotate_f64(&mut turned, 2, &frequencies, position, Pairing::Adjacent).map(|()| turned)
    };
    let translation = panel("absolute: encoding added", added, true);
    let mut turned = Vec::new();
    for position in POSITIONS {
        turned.push(rotated(QUERY, position)?);
    }
    let mut scores = Vec::new();
    for (query, key) in PLACES {
        scores.push(dot(rotated(QUERY, query)?, rotated(KEY, key)?));
    }
    let rotation = VectorPanel {
        circle: Some(norm(QUERY)),
        ..panel_of("relative: rotated by position", &turned, false, &scores)
    };
    Ok(Figure::Vectors(Vectors {
        title: "One pair of a query at positions 0 to 3".into(),
        panels: vec![translation, rotation],
    }))
}

fn panel(title: &str, at: impl Fn([f64; 2], usize) -> [f64; 2], moved: bool) -> VectorPanel {
    let vectors: Vec<[f64; 2]> = POSITIONS.iter().map(|position| at(QUERY, *position)).collect();
    let scores: Vec<f64> = PLACES.iter().map(|(query, key)| dot(at(QUERY, *query), at(KEY, *key))).collect();
    panel_of(title, &vectors, moved, &scores)
}

fn panel_of(title: &str, vectors: &[[f64; 2]], moved: bool, scores: &[f64]) -> VectorPanel {
    let mut arrows = Vec::new();
    if moved {
        let query = Arrow { label: "q".into(), group: 7, ..arrow([0.0, 0.0], QUERY) };
        let moves = vectors.iter().map(|to| Arrow { group: 1, dashed: true, ..arrow(QUERY, *to) });
        arrows.push(query);
        arrows.extend(moves);
    }
    for (position, to) in POSITIONS.iter().zip(vectors) {
        arrows.push(Arrow { label: position.to_string(), ..arrow([0.0, 0.0], *to) });
    }
    let lengths: Vec<String> = vectors.iter().map(|vector| format!("{:.2}", norm(*vector))).collect();
    let places: Vec<String> = PLACES
        .iter()
        .zip(scores)
        .map(|((query, key), score)| format!("{score:.2} at positions {query} and {key}"))
        .collect();
    VectorPanel {
        title: title.into(),
        notes: vec![
            format!("Length at positions 0 to 3: {}.", lengths.join(", ")),
            format!("Score with a key two tokens later: {}.", places.join(", ")),
        ],
        arrows,
        circle: None,
    }
}

fn arrow(from: [f64; 2], to: [f64; 2]) -> Arrow {
    let point = |[x, y]: [f64; 2]| (x, y);
    Arrow { from: point(from), to: point(to), label: String::new(), group: 0, dashed: false }
}

fn dot(a: [f64; 2], b: [f64; 2]) -> f64 {
    a[0] * b[0] + a[1] * b[1]
}

fn norm(vector: [f64; 2]) -> f64 {
    dot(vector, vector).sqrt()
}
