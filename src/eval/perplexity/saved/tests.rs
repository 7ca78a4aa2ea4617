//! Files of losses: written, read back, spoilt.

use proptest::prelude::*;
use serde_json::json;

use super::super::losses::Run;
use super::*;
use crate::eval::windows::{BosPlacement, Rule, windows};

fn documents() -> Vec<Document> {
    let document = |name: &str, n: u32| Document {
        file: name.to_string(),
        tokens: (0..n).map(|i| i * 7 % 50).collect(),
        token_bytes: vec![1; n as usize],
        token_words: vec![0; n as usize],
    };
    vec![document("a.txt", 30), document("b.txt", 12)]
}

fn request() -> PerplexityRequest {
    PerplexityRequest {
        rule: Rule::Strided,
        context: 10,
        stride: 5,
        bos: BosPlacement::Never,
        bos_token: None,
        max_windows: None,
    }
}

fn planned(documents: &[Document]) -> Vec<Vec<Window>> {
    documents
        .iter()
        .map(|d| windows(Rule::Strided, d.tokens.len(), 10, 5, BosPlacement::Never).unwrap())
        .collect()
}

fn header(documents: &[Document]) -> Header {
    Header::new("model.gguf", "0123456789abcdef", &json!({"scaling": "none"}), &request(), documents)
}

fn saved() -> Saved {
    let documents = documents();
    let mut losses = Losses::default();
    for (document, windows) in planned(&documents).iter().enumerate() {
        for (window, cut) in windows.iter().enumerate() {
            let nll: Vec<f32> = cut.scored.clone().map(|token| token as f32 * 0.25).collect();
            let run = Run {
                document,
                window,
                first_token: cut.scored.start,
                first_position: cut.first_position(),
                weight: nll.len(),
                losses: 0..0,
            };
            losses.push(run, &nll);
        }
    }
    Saved::new(header(&documents), &documents, &losses).unwrap()
}

#[test]
fn what_is_written_is_read_back() {
    let saved = saved();
    let bytes = saved.encode().unwrap();
    assert_eq!(bytes, saved.encode().unwrap());
    let read = Saved::decode(&bytes).unwrap();
    assert_eq!(read, saved);
    let documents = documents();
    read.ensure_same_tokens(&header(&documents), &documents, &planned(&documents)).unwrap();
    assert_eq!((read.token[0], read.position[0], read.document[39]), (1, 1, 1));
}

/// Losses of other tokens, or of the same with another context, are never compared.
#[test]
fn other_tokens_windows_and_settings_are_refused_by_name() {
    let saved = saved();
    let documents = documents();
    let plan = planned(&documents);
    let refusal = |now: &Header, documents: &[Document], plan: &[Vec<Window>]| {
        saved.ensure_same_tokens(now, documents, plan).unwrap_err().to_string()
    };
    let now = header(&documents);
    for (changed, expected) in [
        (
            Header { tokenizer: "ff".into(), ..now.clone() },
            "`tokenizer` was `0123456789abcdef`, now it is `ff`",
        ),
        (Header { rule: "hf".into(), ..now.clone() }, "`rule` was `strided`, now it is `hf`"),
        (Header { context: 20, ..now.clone() }, "`context` was `10`, now it is `20`"),
        (Header { stride: 4, ..now.clone() }, "`stride` was `5`, now it is `4`"),
        (Header { bos: "always".into(), ..now.clone() }, "`bos` was `never`"),
        (Header { bos_token: Some(1), ..now.clone() }, "`bos_token` was `none`, now it is `1`"),
        (Header { documents: vec![], ..now.clone() }, "`number of texts` was `2`, now it is `0`"),
    ] {
        let found = refusal(&changed, &documents, &plan);
        assert!(found.contains(expected), "{found}");
    }
    let mut other = documents.clone();
    other[1].tokens[3] += 1;
    let found = refusal(&header(&other), &other, &plan);
    assert!(found.contains("`b.txt` (text 1) had other tokens"), "{found}");
    let fewer = [plan[0][..1].to_vec(), plan[1].clone()];
    assert!(refusal(&now, &documents, &fewer).contains("it holds 40 scored tokens, this run has 20"));
    let mut moved = plan.clone();
    moved[0][1].tokens.start += 1;
    assert!(refusal(&now, &documents, &moved).contains("its entry 9 is another token"));
    // A model or a rotary embedding of another name is what one compares.
    let other_model = Header { model: "other".into(), rope: json!({}), ..now };
    saved.ensure_same_tokens(&other_model, &documents, &plan).unwrap();
}

#[test]
fn files_that_are_something_else_are_refused() {
    let message = |saved: Saved| Saved::decode(&saved.encode().unwrap()).unwrap_err().to_string();
    let mut unfit = saved();
    unfit.nll[7] = f32::NAN;
    assert!(message(unfit).contains("entry 7 is not a finite number"));
    let mut unfit = saved();
    unfit.header.format = "ropex.nll/9".to_string();
    assert!(message(unfit).contains("the format is `ropex.nll/9`"));
    let bytes = [0u8; 8];
    let write = |tensors: Vec<(&str, Dtype, Vec<usize>)>, key: &str| {
        let header = serde_json::to_string(&header(&documents())).unwrap();
        let views = tensors.iter().map(|(name, dtype, shape)| {
            let size = shape.iter().product::<usize>() * dtype.bitsize() / 8;
            (*name, TensorView::new(*dtype, shape.clone(), &bytes[..size]).unwrap())
        });
        let metadata = HashMap::from([(key.to_string(), header)]);
        Saved::decode(&serialize(views, Some(metadata)).unwrap()).unwrap_err().to_string()
    };
    assert!(write(vec![], "other").contains("the metadata entry `ropex` is missing"));
    assert!(write(vec![], METADATA_KEY).contains("nll"));
    let list = |name, length| (name, Dtype::U32, vec![length]);
    let wrong = write(vec![list("nll", 2)], METADATA_KEY);
    assert!(wrong.contains("`nll` must be a list of F32 values, found U32 of shape [2]"), "{wrong}");
    let square = write(vec![("nll", Dtype::F32, vec![1, 2])], METADATA_KEY);
    assert!(square.contains("found F32 of shape [1, 2]"), "{square}");
    let short = write(vec![("nll", Dtype::F32, vec![2]), list("token_id", 1)], METADATA_KEY);
    assert!(short.contains("`token_id` has 1 entries, `nll` has 2"), "{short}");
}

proptest! {
    /// No bytes make the reader panic: cut files, and files with bytes changed anywhere.
    #[test]
    fn no_bytes_make_the_reader_panic(cut in 0usize..2000, changes in prop::collection::vec((0usize..2000, any::<u8>()), 0..4)) {
        let mut bytes = saved().encode().unwrap();
        for (at, value) in changes {
            let at = at % bytes.len();
            bytes[at] = value;
        }
        let documents = documents();
        for part in [&bytes[..], &bytes[..cut.min(bytes.len())]] {
            if let Ok(read) = Saved::decode(part) {
                let _ = read.ensure_same_tokens(&header(&documents), &documents, &planned(&documents));
            }
        }
    }
}
