//! The figures against sums written out, published numbers and what must hold.

use super::*;
use crate::plot::figure::{BandedMap, Curves, Figure};
use crate::plot::{Theme, render_svg};
use crate::rope::{Magnitude, Pairing, Ramp, Yarn, base_frequencies, frequencies};

fn spec(theta: f64, head_dim: usize, original_context: usize, scaling: Scaling) -> RopeSpec {
    RopeSpec { theta, head_dim, rotary_dim: head_dim, pairing: Pairing::HalfSplit, original_context, scaling }
}

fn llama_2(scaling: Scaling) -> RopeSpec {
    spec(1e4, 128, 4096, scaling)
}

fn yarn(factor: f64) -> Scaling {
    Scaling::Yarn(Yarn { factor, ramp: Ramp::default(), magnitude: Magnitude::Default })
}

fn map(figure: Figure) -> BandedMap {
    let Figure::BandedMap(map) = figure else { panic!("{figure:?}") };
    map
}

fn curves(figure: Figure) -> Curves {
    let Figure::Curves(curves) = figure else { panic!("{figure:?}") };
    curves
}

/// Published critical pairs. LongRoPE2 counts Phi-3-mini from the 2048 tokens of its first training; its configuration
/// declares 4096, for which the same formula gives 34.
#[test]
fn critical_pairs_of_known_models() {
    let models = [
        ("Phi-3-mini, 2048 tokens", 1e4, 96, 2048, 31, 48),
        ("Phi-3-mini, 4096 tokens", 1e4, 96, 4096, 34, 48),
        ("Llama-3-8B", 5e5, 128, 8192, 35, 64),
        ("SmolLM2", 1e5, 64, 8192, 20, 32),
        ("Llama-2-7B", 1e4, 128, 4096, 46, 64),
    ];
    for (name, theta, head_dim, context, turning, pairs) in models {
        let (_, found) = critical(&spec(theta, head_dim, context, Scaling::None), context).unwrap();
        assert_eq!(found, Critical { turning, pairs }, "{name}");
        let half = head_dim as f64 / 2.0;
        let formula = (half * (context as f64 / std::f64::consts::TAU).ln() / f64::ln(theta)).ceil();
        assert_eq!(found.turning as f64, formula, "{name}");
    }
}

#[test]
fn means_equal_sums_written_out() {
    for inv_freq in [1.0, 0.3, 1e-3, 1e-9, 0.0, std::f64::consts::TAU, std::f64::consts::PI] {
        for (from, to) in [(0, 1), (0, 7), (5, 6), (1000, 1064)] {
            let sum: f64 = (from..to).map(|p| (p as f64 * inv_freq).cos()).sum();
            let expected = sum / (to - from) as f64;
            let found = mean_cos(inv_freq, from, to);
            assert!((found - expected).abs() < 1e-10, "{inv_freq} {from}..{to}: {found} {expected}");
        }
    }
}

/// What figures 2 to 4 of the post say.
#[test]
fn plain_rotation_leaves_the_trained_angles_and_scaling_does_not() {
    let length = 16384;
    let plain = map(angles(&llama_2(Scaling::None), length).unwrap());
    let hatched: Vec<bool> = plain.region.iter().map(|range| !range.is_empty()).collect();
    assert!(hatched[..46].iter().all(|h| !h) && hatched[46..].iter().all(|h| *h));
    // From the trained length on: column 64 of 256, 64 positions each.
    assert!(plain.region[46..].iter().all(|range| *range == (64..256)));
    assert_eq!(plain.marks[0].at, 64.0);
    for scaling in [Scaling::Linear { factor: 4.0 }, yarn(4.0)] {
        let scaled = map(angles(&llama_2(scaling), length).unwrap());
        assert!(scaled.region.is_empty());
    }
    // NTK slows only the last pair by the whole factor: those before it still leave the range.
    let ntk = map(angles(&llama_2(Scaling::Ntk { factor: 4.0 }), length).unwrap());
    assert!(!ntk.region[46].is_empty() && ntk.region[63].is_empty());
    assert!(ntk.region[46].start > 64);
}

#[test]
fn yarn_has_three_bands_where_its_ramp_ends() {
    let bands = map(angles(&llama_2(yarn(4.0)), 16384).unwrap()).bands;
    let names: Vec<&str> = bands.iter().map(|band| band.label.as_str()).collect();
    // Correction dimensions 20.94 and 45.03, rounded outwards to 20 and 46 (Llama 2, betas 32 and 1).
    assert_eq!(names, ["kept: pairs 0 to 20", "blended: pairs 21 to 45", "interpolated: pairs 46 to 63"]);
    let plain = map(angles(&llama_2(Scaling::None), 16384).unwrap()).bands;
    assert_eq!(plain[1].label, "less than one turn in training: pairs 46 to 63");
}

#[test]
fn columns_cover_every_position_once() {
    for length in [1, 2, 255, 256, 257, 8192, 100_000] {
        let BandedMap { map, .. } = map(angles(&llama_2(Scaling::None), length).unwrap());
        assert_eq!(map.columns.len(), length.min(256));
        assert_eq!(map.columns[0], "0");
        assert!(map.cells.iter().flatten().flatten().all(|cos| cos.abs() <= 1.0 + 1e-12));
        assert!((map.cells[63][0].unwrap() - 1.0).abs() < 1e-3);
    }
}

#[test]
fn methods_with_equal_tables_share_a_curve() {
    let found = compared(&llama_2(yarn(4.0)), 4.0).unwrap();
    let names: Vec<&str> = found.iter().map(|method| method.name.as_str()).collect();
    let expected = [
        "none",
        "linear, dynamic-linear",
        "ntk, dynamic-ntk",
        "ntk-by-parts",
        "yarn, dynamic-yarn",
        "llama3",
    ];
    assert_eq!(names, expected);
    // Without scaling, all of them are one.
    assert_eq!(compared(&llama_2(Scaling::None), 1.0).unwrap().len(), 1);
    let own = Scaling::NtkByParts { factor: 8.0, ramp: Ramp::default() };
    assert_eq!(compared(&llama_2(own), 4.0).unwrap().len(), 7);
}

#[test]
fn wavelengths_are_those_of_the_frequencies() {
    let spec = llama_2(Scaling::None);
    let figure = curves(wavelength_figure(&spec, 4.0, &compared(&spec, 4.0).unwrap()));
    let of = |name: &str| figure.series.iter().find(|series| series.name == name).unwrap().points.clone();
    assert!((of("none")[0].1 - std::f64::consts::TAU).abs() < 1e-12);
    assert!((of("linear, dynamic-linear")[63].1 / of("none")[63].1 - 4.0).abs() < 1e-12);
    assert_eq!(of("trained length 4k"), [(0.0, 4096.0), (63.0, 4096.0)]);
    assert_eq!(of("target length 16k")[0].1, 16384.0);
    assert_eq!(figure.marks[0].at, 46.0);
}

#[test]
fn scores_are_means_over_the_pairs() {
    let spec = llama_2(yarn(4.0));
    let found = frequencies(&spec, 16384).unwrap();
    let sum: f64 = found.inv_freq.iter().map(|f| (100.0 * f).cos()).sum();
    let expected = sum / 64.0 * found.attention_factor.powi(2);
    assert!((mean_score(&found, 100, 101) - expected).abs() < 1e-12);
    let figure = curves(decay(&spec, 16384, &compared(&spec, 4.0).unwrap()));
    let plain = &figure.series[0].points;
    assert!(plain[0].1 > 0.9 && plain.last().unwrap().1 < 0.35, "{plain:?}");
    let (first, last) = (plain[0].0, plain.last().unwrap().0);
    assert!(first == 1.0 && last < 16384.0);
}

/// 1 at distance 0 by construction, and it bounds the mean score (both as shares): |sum over pairs| is its last term.
#[test]
fn the_bound_starts_at_one_and_falls() {
    let plain = frequencies(&llama_2(Scaling::None), 1).unwrap();
    assert!((decay::bound(&plain, 0) - 1.0).abs() < 1e-12);
    let points =
        curves(decay_bound(&llama_2(Scaling::None), 4096, &compared(&llama_2(Scaling::None), 1.0).unwrap()));
    let points = &points.series[0].points;
    assert!(points[0].1 > 0.9 && points.last().unwrap().1 < 0.4, "{points:?}");
    // Written out for two pairs at distance 3.
    let two = crate::rope::Frequencies { inv_freq: vec![1.0, 0.1], attention_factor: 1.0 };
    let (re, im) = (3f64.cos() + 0.3f64.cos(), 3f64.sin() + 0.3f64.sin());
    assert!((decay::bound(&two, 3) - (1.0 + (re * re + im * im).sqrt()) / 3.0).abs() < 1e-12);
}

/// D041: a factor of 64 gives 1.4159 with YaRN; LongRoPE over 4096 tokens gives sqrt(1 + 6/12).
#[test]
fn d041_attention_factors_are_the_formulas() {
    let figure = curves(attention_factor(&llama_2(Scaling::None)).unwrap());
    let at = |series: usize| {
        let points = &figure.series[series].points;
        points.iter().find(|(factor, _)| (*factor - 64.0).abs() < 1e-9).unwrap().1
    };
    assert!((at(0) - 1.415888).abs() < 1e-6, "{}", at(0));
    assert!((at(1) - 1.5f64.sqrt()).abs() < 1e-12, "{}", at(1));
    assert!((at(2) - at(0) * at(0)).abs() < 1e-12 && (at(3) - 1.5).abs() < 1e-12);
    assert!(figure.series.iter().all(|series| series.points[0] == (1.0, 1.0)));
    assert!(attention_factor(&spec(1e4, 128, 1, Scaling::None)).is_err());
}

/// What figure 1 of the post says.
#[test]
fn rotation_keeps_length_and_score_where_addition_does_not() {
    let Figure::Vectors(figure) = pair().unwrap() else { unreachable!() };
    let [added, rotated] = &figure.panels[..] else { unreachable!() };
    let lengths = |notes: &[String]| -> Vec<String> {
        let list = notes[0].rsplit_once(": ").unwrap().1.trim_end_matches('.');
        list.split(", ").map(String::from).collect()
    };
    let scores = |notes: &[String]| -> Vec<String> {
        let list = notes[1].rsplit_once(": ").unwrap().1;
        list.split(", ").map(|part| part.split(' ').next().unwrap().to_string()).collect()
    };
    assert!(lengths(&rotated.notes).iter().all(|length| *length == "1.03"), "{:?}", rotated.notes);
    assert!(lengths(&added.notes).windows(2).any(|pair| pair[0] != pair[1]));
    let (kept, moved) = (scores(&rotated.notes), scores(&added.notes));
    assert!(kept[0] == kept[1] && moved[0] != moved[1], "{kept:?} {moved:?}");
}

#[test]
fn encodings_are_sines_and_cosines() {
    let Figure::HeatMap(map) = sinusoidal(1e4, 8, 16) else { unreachable!() };
    assert_eq!((map.rows.len(), map.columns.len()), (8, 16));
    let f = base_frequencies(1e4, 8)[1];
    assert_eq!(map.cells[2][5], Some((5.0 * f).sin()));
    assert_eq!(map.cells[3][5], Some((5.0 * f).cos()));
}

#[test]
fn every_figure_can_be_drawn_at_the_ends_of_its_range() {
    let specs = [
        spec(1e4, 2, 1, Scaling::None),
        spec(1.5, 4, 2, Scaling::None),
        spec(1e6, 256, 1 << 20, yarn(32.0)),
        llama_2(Scaling::DynamicNtk { factor: 2.0 }),
    ];
    for spec in specs {
        for length in [1, 2, 3, 300, 1 << 20] {
            let mut figures = vec![angles(&spec, length).unwrap(), critical(&spec, length).unwrap().0];
            if let Ok(methods) = compared(&spec, 2.0) {
                figures.push(wavelength_figure(&spec, 2.0, &methods));
                figures.push(decay(&spec, length, &methods));
                figures.push(decay_bound(&spec, length, &methods));
            }
            for figure in figures {
                render_svg(&figure, Theme::Light)
                    .unwrap_or_else(|error| panic!("{spec:?} {length}: {error}"));
            }
        }
    }
}
