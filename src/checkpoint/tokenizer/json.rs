//! Reading tokenizer.json with the configuration files beside it.

use serde_json::Value;
use tokenizers::models::ModelWrapper;

use super::error::TokenizerError;
use super::pieces::{Kind, Pieces};
use super::probe::Probe;
use super::special::{EndIds, checked_id, token_text};
use super::{Encoder, MAX_VOCAB, Tokenizer, vocab_hash};

/// Ids without a token that any file may have; beyond it, no more than ids with one.
const MAX_HOLES: usize = 1 << 16;

/// The files beside tokenizer.json, where there are any.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sidecar<'a> {
    /// tokenizer_config.json
    pub tokenizer_config: Option<&'a Value>,
    /// config.json
    pub config: Option<&'a Value>,
    /// generation_config.json
    pub generation_config: Option<&'a Value>,
}

impl Tokenizer {
    /// Reads a tokenizer.json.
    ///
    /// BOS is what the file's own post-processor puts before a text, decided on ids; `bos_token` and `add_bos_token` of
    /// tokenizer_config.json come before that. Truncation and padding in the file are not followed.
    ///
    /// # Errors
    /// Anything in the file that is inconsistent or that Llama- and Qwen-family tokenizers do not use.
    pub fn from_tokenizer_json(bytes: &[u8], sidecar: &Sidecar<'_>) -> Result<Self, TokenizerError> {
        let probe = Probe::read(bytes)?;
        let mut library = tokenizers::Tokenizer::from_bytes(bytes).map_err(TokenizerError::Library)?;
        if !matches!(library.get_model(), ModelWrapper::BPE(_)) {
            return Err(TokenizerError::UnsupportedModel {
                found: "without a type".to_owned(),
                accepted: "BPE",
            });
        }
        library.with_padding(None);
        library.with_truncation(None).map_err(TokenizerError::Library)?;

        let tokens = tokens_by_id(&library)?;
        let pieces = pieces(&library, &tokens, &probe)?;
        let vocab_hash = vocab_hash(tokens.iter().map(Option::as_deref));
        let mut warnings = Vec::new();
        let start = Start::find(&library, sidecar, pieces.len())?;
        if start.add_eos {
            warnings.push("the tokenizer asks for an end token after every text; it is not added".to_owned());
        }
        let (declared_eos, eos) = end_ids(&library, sidecar, pieces.len())?;
        let drops_bytes = pieces.rules.byte_level && !probe.has_unknown_token();
        let missing_bytes = if drops_bytes { pieces.missing_bytes() } else { Vec::new() };
        Ok(Self {
            encoder: Encoder::library(library, false),
            pieces,
            bos: start.bos,
            add_bos: start.add_bos,
            add_eos: start.add_eos,
            declared_eos,
            eos: eos.into_set(),
            missing_bytes,
            source: "tokenizer.json".to_owned(),
            vocab_hash,
            warnings,
        })
    }
}

/// Every token by id; `None` where an id has no token.
fn tokens_by_id(library: &tokenizers::Tokenizer) -> Result<Vec<Option<String>>, TokenizerError> {
    let vocab = library.get_vocab(true);
    let size = vocab.values().max().map_or(0, |id| *id as usize + 1);
    if size == 0 || size > MAX_VOCAB {
        return Err(TokenizerError::VocabSize(size));
    }
    if size > MAX_HOLES + 2 * vocab.len() {
        return Err(TokenizerError::Holes { size, tokens: vocab.len() });
    }
    let mut tokens = vec![None; size];
    for (token, id) in vocab {
        if let Some(first) = tokens[id as usize].replace(token.clone()) {
            // A hash map's order is random; the message must not be.
            let (first, second) = if first < token { (first, token) } else { (token, first) };
            return Err(TokenizerError::DuplicateId { id, first, second });
        }
    }
    Ok(tokens)
}

fn pieces(
    library: &tokenizers::Tokenizer,
    tokens: &[Option<String>],
    probe: &Probe,
) -> Result<Pieces, TokenizerError> {
    let added = library.get_added_tokens_decoder();
    let mut pieces = Pieces::new(probe.rules()?);
    for (id, token) in (0u32..).zip(tokens) {
        match (token, added.get(&id)) {
            (_, Some(added)) if added.special => pieces.push(&added.content, Kind::Control),
            (_, Some(added)) => pieces.push(&added.content, Kind::Added),
            (Some(token), None) => pieces.push(token, Kind::Text),
            (None, None) => pieces.push("", Kind::Hole),
        }
    }
    Ok(pieces)
}

/// What stands around a text.
struct Start {
    bos: Option<u32>,
    add_bos: bool,
    add_eos: bool,
}

impl Start {
    fn find(
        library: &tokenizers::Tokenizer,
        sidecar: &Sidecar<'_>,
        vocab_size: usize,
    ) -> Result<Self, TokenizerError> {
        let ids = |specials| -> Result<Vec<u32>, TokenizerError> {
            Ok(library.encode_fast("a", specials).map_err(TokenizerError::Library)?.get_ids().to_vec())
        };
        let (plain, full) = (ids(false)?, ids(true)?);
        let before = (0..=full.len()).find(|at| full[*at..].starts_with(&plain)).unwrap_or(0);
        if before > 1 {
            let found = format!("{:?} before a text", &full[..before]);
            return Err(TokenizerError::UnsupportedPart { part: "post_processor", found });
        }
        let added = full[..before].first().copied();
        if let Some(bos) = added {
            let origin = || "the start token of the post-processor".to_owned();
            checked_id(Some(bos.into()), bos, origin, vocab_size)?;
        }
        let add_eos = full.len() > before + plain.len();

        let Some(config) = sidecar.tokenizer_config else {
            return Ok(Self { bos: added, add_bos: added.is_some(), add_eos });
        };
        let declared = config.get("bos_token").and_then(token_text);
        let declared = match declared {
            Some(text) => Some(library.token_to_id(text).ok_or_else(|| TokenizerError::SpecialId {
                origin: "`bos_token` in tokenizer_config.json".to_owned(),
                id: text.to_owned(),
                vocab_size,
            })?),
            None => None,
        };
        let bos = added.or(declared);
        let add_bos = config.get("add_bos_token").and_then(Value::as_bool).unwrap_or(added.is_some());
        Ok(Self { bos, add_bos, add_eos })
    }
}

/// The id that the files name as the end of a text, tokenizer_config.json before the configs, and all that end generation.
fn end_ids(
    library: &tokenizers::Tokenizer,
    sidecar: &Sidecar<'_>,
    vocab_size: usize,
) -> Result<(Option<u32>, EndIds), TokenizerError> {
    let mut ends = EndIds::new(vocab_size);
    let files = [(sidecar.config, "config.json"), (sidecar.generation_config, "generation_config.json")];
    let mut declared = None;
    for (config, file) in files {
        if let Some(config) = config {
            let first = ends.add_config(config, file)?;
            declared = declared.or(first);
        }
    }
    if let Some(text) = sidecar.tokenizer_config.and_then(|c| c.get("eos_token")).and_then(token_text) {
        let id = library.token_to_id(text).ok_or_else(|| TokenizerError::SpecialId {
            origin: "`eos_token` in tokenizer_config.json".to_owned(),
            id: text.to_owned(),
            vocab_size,
        })?;
        ends.insert(id);
        declared = Some(id);
    }
    let added = library.get_added_vocabulary();
    ends.add_markers(|text| added.get_vocab().get(text).copied().filter(|_| added.is_special_token(text)));
    Ok((declared, ends))
}
