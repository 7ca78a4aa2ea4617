//! Results as other commands write them, and files that hold none.

use super::*;
use serde_json::json;

fn ppl(scaling: &str, factor: Option<f64>) -> Value {
    json!({
        "schema": "ropex.ppl/1",
        "rope": {
            "scaling": { "value": scaling },
            "original_context": { "value": 512 },
            "factor": factor.map(|factor| json!({ "value": factor })),
        },
        "result": {
            "curve": { "positions": [256, 1024], "ppl": [8.0, 90.0], "nll_low": [2.0, null], "nll_high": [2.2, null] },
            "by_position": { "positions": [0, 2], "last_positions": [1, 7], "nll": [3.0, 2.0] },
        },
    })
}

fn read(name: &str, value: &Value) -> ResultFile {
    ResultFile::parse(name, &value.to_string()).unwrap()
}

fn curves(figure: &NamedFigure) -> &Curves {
    let Figure::Curves(curves) = &figure.figure else { panic!("{figure:?}") };
    curves
}

#[test]
fn perplexities_of_several_files_share_axes() {
    let files =
        [read("a", &ppl("none", None)), read("b", &ppl("yarn", Some(2.0))), read("c", &ppl("none", None))];
    let found = figures(&files).unwrap();
    assert_eq!(
        found.iter().map(|figure| figure.name.as_str()).collect::<Vec<_>>(),
        ["ppl-curve", "ppl-by-position"]
    );
    let curve = curves(&found[0]);
    let names: Vec<&str> = curve.series.iter().map(|series| series.name.as_str()).collect();
    assert_eq!(names, ["none", "yarn x2", "none (c)"]);
    assert_eq!(curve.series[0].points, [(256.0, 8.0), (1024.0, 90.0)]);
    assert_eq!(curve.series[0].band, [(256.0, 2f64.exp(), 2.2f64.exp())]);
    assert_eq!((curve.y.scale, curve.marks[0].at), (AxisScale::Log10, 512.0));
    let by_position = curves(&found[1]);
    assert_eq!(by_position.series[0].points, [(1.0, 3.0), (14f64.sqrt(), 2.0)]);
    assert_eq!(by_position.y.scale, AxisScale::Linear);
}

#[test]
fn each_needle_grid_has_a_map_per_score() {
    let cell = |length: usize, depth: f64, score: f64| json!({ "length": length, "depth": depth, "likelihood": { "score": score }, "generation": null });
    let cells = [cell(2048, 0.5, 1.0), cell(1024, 0.0, 0.25), cell(1024, 0.5, 0.5)];
    let result = json!({ "schema": "ropex.needle/1", "rope": { "scaling": { "value": "ntk" } }, "result": { "cells": cells } });
    let found = figures(&[read("run 1", &result), read("run 1", &result)]).unwrap();
    let names: Vec<&str> = found.iter().map(|figure| figure.name.as_str()).collect();
    assert_eq!(names, ["needle-likelihood-run-1", "needle-likelihood-run-1-2"]);
    let Figure::HeatMap(map) = &found[0].figure else { unreachable!() };
    assert_eq!(map.columns, ["1k", "2k"]);
    assert_eq!(map.rows, ["0", "0.5"]);
    assert_eq!(map.cells, [vec![Some(25.0), None], vec![Some(50.0), Some(100.0)]]);
}

#[test]
fn cells_of_a_sweep_are_points() {
    let cell = |label: &str, context: usize, status: &str, ppl: Option<f64>| {
        let cell = json!({ "measure": "ppl", "label": label, "context": context });
        json!({ "schema": "ropex.sweep-cell/1", "cell": cell, "status": status, "result": { "ppl": ppl } })
    };
    let lines = [
        cell("yarn x2", 2048, "done", Some(9.0)),
        cell("yarn x2", 1024, "done", Some(8.0)),
        cell("none", 1024, "done", Some(8.5)),
        cell("none", 2048, "failed", None),
    ];
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    let found = figures(&[ResultFile::parse("cells", &text).unwrap()]).unwrap();
    let curve = curves(&found[0]);
    assert_eq!((found[0].name.as_str(), curve.series.len()), ("sweep-ppl", 2));
    assert_eq!(curve.series[0].points, [(1024.0, 8.0), (2048.0, 9.0)]);
}

#[test]
fn files_that_hold_no_figure_say_why() {
    let parse = |text: &str| ResultFile::parse("a", text).unwrap_err().to_string();
    assert!(
        parse("{\n  \"a\": nope\n}").starts_with("line 2 is not JSON"),
        "{}",
        parse("{\n  \"a\": nope\n}")
    );
    let good = json!({ "schema": "ropex.ppl/1" });
    assert!(parse(&format!("{good}\nnope\n")).starts_with("line 2 is not JSON"));
    assert!(parse("{}").starts_with("its schema is absent; results of these are drawn: ropex.ppl, "));
    assert!(parse("{\"schema\":\"ropex.bench/1\"}").contains("`ropex.bench/1`"));
    let draw = |value: Value| figures(&[read("a", &value)]).unwrap_err().to_string();
    assert!(draw(json!({ "schema": "ropex.ppl/1", "result": {} })).contains("--curve"));
    assert!(
        draw(json!({ "schema": "ropex.needle/1", "result": { "cells": [] } }))
            .contains("no cell has a score")
    );
    let mut wrong = ppl("none", None);
    wrong["result"]["curve"]["ppl"] = json!([1.0, "x"]);
    assert_eq!(draw(wrong), "`ppl` must be a list of numbers, found [1.0,\"x\"]");
}
