//! `ropex plot`: figures of the mathematics and of results.

mod common;

use std::fs;
use std::path::Path;

use common::command::{failure, json, run, stderr, success};
use common::fixture;

const KINDS: [&str; 8] =
    ["pair", "sinusoidal", "angles", "wavelength", "decay", "decay-bound", "attention-factor", "critical"];

/// Every mathematical figure of docs/figures.md: file stem and arguments.
const DOCUMENTED: [(&str, &str); 10] = [
    ("pair", "pair"),
    ("angles", "angles"),
    ("angles-linear", "angles --scaling linear --factor 4"),
    ("angles-yarn", "angles --scaling yarn --factor 4"),
    ("sinusoidal", "sinusoidal --head-dim 64"),
    ("wavelength", "wavelength"),
    ("decay", "decay"),
    ("decay-bound", "decay-bound"),
    ("attention-factor", "attention-factor"),
    ("critical", "critical --rope-theta 500000 --original-context 8k"),
];

#[test]
fn every_kind_is_one_drawing_on_standard_output() {
    for kind in KINDS {
        let light = success(&format!("plot {kind}"));
        assert!(light.starts_with("<svg ") && light.ends_with("</svg>\n"), "{kind}");
        roxmltree::Document::parse(&light).unwrap();
        assert_eq!(success(&format!("plot {kind}")), light, "{kind}");
        assert_ne!(success(&format!("plot {kind} --theme dark")), light, "{kind}");
    }
}

/// The committed drawings are what the commands beside them print.
#[test]
fn documented_figures_are_what_the_program_draws() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs");
    let page = fs::read_to_string(docs.join("figures.md")).unwrap();
    for (name, arguments) in DOCUMENTED {
        for theme in ["light", "dark"] {
            let drawn = success(&format!("plot {arguments} --theme {theme}"));
            let file = format!("{name}-{theme}.svg");
            let path = docs.join("figures").join(&file);
            if std::env::var_os("UPDATE_FIGURES").is_some() {
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(&path, &drawn).unwrap();
            }
            let committed = fs::read_to_string(&path).unwrap();
            assert!(committed == drawn, "{file} differs; UPDATE_FIGURES=1 cargo test writes it anew");
            assert!(page.contains(&format!("figures/{file}")), "{file}");
        }
        assert!(page.contains(&format!("ropex plot {arguments}\n")), "{arguments}");
    }
}

/// Published critical pairs, by flags alone.
#[test]
fn critical_pairs_without_a_checkpoint() {
    for (theta, head_dim, context, pair) in
        [("1e4", 96, "2k", 31), ("1e4", 96, "4k", 34), ("5e5", 128, "8k", 35), ("1e5", 64, "8k", 20)]
    {
        let flags = format!("--rope-theta {theta} --head-dim {head_dim} --original-context {context}");
        let found = json(&format!("plot critical {flags}"))["result"]["critical"].clone();
        assert_eq!(found["critical_pair"], pair, "{flags}");
        assert_eq!(found["pairs"], head_dim / 2, "{flags}");
    }
}

#[test]
fn a_checkpoint_gives_its_own_values() {
    let found = json("plot critical --model tiny/llama.gguf");
    assert_eq!(found["model"]["architecture"], "llama");
    let inspected = json("inspect --model tiny/llama.gguf");
    let turning = &inspected["result"]["frequencies"]["pairs_turning_in_original_context"];
    assert_eq!(&found["result"]["critical"]["critical_pair"], turning);
    let (code, message) = failure("plot critical --model tiny/llama.gguf --head-dim 64");
    assert!(code == 2 && message.contains("cannot be used with"), "{message}");
}

#[test]
fn output_takes_svg_and_png() {
    let dir = tempfile::tempdir().unwrap();
    let [svg, png] = ["a.svg", "a.PNG"].map(|name| dir.path().join(name));
    success(&format!("plot angles --scaling yarn --factor 4 --output {}", svg.display()));
    success(&format!("plot angles --scaling yarn --factor 4 --output {}", png.display()));
    assert!(fs::read_to_string(svg).unwrap().contains("yarn x4"));
    assert!(fs::read(png).unwrap().starts_with(b"\x89PNG\r\n\x1a\n"));
}

#[test]
fn several_figures_go_to_a_folder_and_a_page() {
    let (code, message) = failure("plot pair critical");
    assert!(code == 2 && message.contains("2 figures cannot share one file"), "{message}");
    assert!(message.contains("--figures DIR"), "{message}");
    let dir = tempfile::tempdir().unwrap();
    let page = dir.path().join("page.html");
    let figures = dir.path().join("figures");
    let listed = success(&format!("plot all --figures {} --report {}", figures.display(), page.display()));
    assert_eq!(listed.lines().count(), KINDS.len(), "{listed}");
    assert_eq!(fs::read_dir(figures).unwrap().count(), 4 * KINDS.len());
    let html = fs::read_to_string(page).unwrap();
    for kind in KINDS {
        assert!(html.contains(&format!("<figure id=\"{kind}\"")), "{kind}");
    }
}

#[test]
fn json_and_csv_hold_the_numbers() {
    let found = json("plot attention-factor");
    let figure = &found["result"]["figures"][0];
    assert_eq!(
        (figure["kind"].as_str(), figure["name"].as_str()),
        (Some("curves"), Some("attention-factor"))
    );
    assert_eq!(figure["series"][0]["points"][0], serde_json::json!([1.0, 1.0]));
    let csv = success("plot attention-factor --format csv");
    assert!(csv.starts_with("figure,series,x,y,low,high\nattention-factor,"), "{csv}");
    assert_eq!(csv.lines().count(), 1 + 4 * 57);
}

/// Results of `ppl` drawn again, two files over common axes.
#[test]
fn results_of_other_commands_are_drawn() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, scaling: &str| {
        let rope =
            serde_json::json!({ "scaling": { "value": scaling }, "original_context": { "value": 256 } });
        let curve = serde_json::json!({ "positions": [128, 256, 512], "ppl": [20.0, 18.0, 60.0] });
        let result =
            serde_json::json!({ "schema": "ropex.ppl/1", "rope": rope, "result": { "curve": curve } });
        let path = dir.path().join(name);
        fs::write(&path, result.to_string()).unwrap();
        path.display().to_string()
    };
    let (a, b) = (write("a.json", "none"), write("b.json", "linear"));
    let svg = success(&format!("plot {a} {b}"));
    for part in [">none<", ">linear<", ">trained length<", "Perplexity by length"] {
        assert!(svg.contains(part), "{part}");
    }
}

#[test]
fn words_that_name_nothing_say_what_is_accepted() {
    let (code, message) = failure("plot angels");
    assert!(code == 2 && message.contains("`angels` is neither a kind of figure nor a file"), "{message}");
    assert!(message.contains("kinds: pair, sinusoidal, angles"), "{message}");
    for bad in
        ["--head-dim 3", "--head-dim 0", "--rope-theta 0.5", "--scaling linear --factor 0.5", "--theme blue"]
    {
        let (code, message) = failure(&format!("plot angles {bad}"));
        assert!(code == 2 && message.starts_with("error: "), "{bad}: {message}");
    }
    let text = fixture("demo/sample.txt");
    let (code, message) = failure(&format!("plot {}", text.display()));
    assert!(code == 1 && message.contains("is not JSON"), "{message}");
}

/// Any command has a page; one without figures says so when they are asked for.
#[test]
fn a_result_without_figures_has_a_page() {
    let dir = tempfile::tempdir().unwrap();
    let page = dir.path().join("page.html");
    let output =
        run(&format!("inspect --report {} --figures {}", page.display(), dir.path().join("f").display()));
    assert!(output.status.success());
    assert!(stderr(&output).contains("this result has no figures"), "{}", stderr(&output));
    assert!(!dir.path().join("f").exists());
    let html = fs::read_to_string(page).unwrap();
    assert!(html.contains("<h1>ropex inspect</h1>") && html.contains("attention_factor"));
}
