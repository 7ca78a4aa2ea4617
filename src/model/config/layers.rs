//! Which layers have a sliding window and which rotate.

use super::families::{Family, RotationRule, WindowRule};
use super::refuse;
use crate::checkpoint::config::HfConfig;
use crate::checkpoint::gguf::{Array, Metadata, Value};
use crate::engine::{LayerRotation, LayerShape};
use crate::model::ModelError;

/// Whether a layer is not the last of every `period` layers; with a period of 0, always.
fn is_inner(layer: usize, period: usize) -> bool {
    period == 0 || layer % period < period - 1
}

/// Layers of a family with these windows; `rotates`: where the config says it layer by layer.
fn shapes(family: &Family, windows: Vec<Option<usize>>, rotates: Option<Vec<bool>>) -> Vec<LayerShape> {
    let shape = |(layer, sliding_window): (usize, Option<usize>)| {
        let listed = rotates.as_ref().map(|list| list[layer]);
        let rotation = match family.rotation {
            RotationRule::Every => LayerRotation::Global,
            RotationRule::AllButEvery(period) if listed.unwrap_or(is_inner(layer, period)) => {
                LayerRotation::Global
            }
            RotationRule::AllButEvery(_) => LayerRotation::Unrotated,
            RotationRule::LocalInWindow(_) if sliding_window.is_some() => LayerRotation::Local,
            RotationRule::LocalInWindow(_) => LayerRotation::Global,
        };
        LayerShape { rotation, sliding_window }
    };
    windows.into_iter().enumerate().map(shape).collect()
}

/// The layers that a GGUF file describes.
///
/// # Errors
/// A malformed key, or a pattern of another length.
pub(super) fn from_gguf(
    meta: &Metadata,
    family: &Family,
    n_layers: usize,
) -> Result<Vec<LayerShape>, ModelError> {
    let window_key = format!("{}.attention.sliding_window", family.gguf);
    let pattern_key = format!("{window_key}_pattern");
    let window = meta.usize(&window_key)?.filter(|&tokens| tokens > 0);
    let windowed: Vec<bool> = match family.window {
        WindowRule::AllButEvery(period) => match meta.get(&pattern_key) {
            Some(Value::Array(Array::Bool(list))) => list.clone(),
            Some(Value::Array(_)) => {
                meta.usizes(&pattern_key)?.into_iter().flatten().map(|flag| flag != 0).collect()
            }
            _ => {
                let period = meta.usize(&pattern_key)?.unwrap_or(period);
                (0..n_layers).map(|layer| is_inner(layer, period)).collect()
            }
        },
        _ => vec![true; n_layers],
    };
    check_length(&pattern_key, windowed.len(), n_layers)?;
    let windows = windowed.into_iter().map(|is_windowed| window.filter(|_| is_windowed)).collect();
    Ok(shapes(family, windows, None))
}

/// The layers that a `config.json` describes. `sliding_window` counts the query's own token: a query at p sees keys
/// above p - window.
///
/// # Errors
/// A malformed key, a list of another length, an unknown kind of layer.
pub(super) fn from_hf(
    config: &HfConfig,
    family: &Family,
    n_layers: usize,
) -> Result<Vec<LayerShape>, ModelError> {
    let rotates = rotating_layers(config, family, n_layers)?;
    let kinds = windowed_layers(config, n_layers)?;
    let given = config.usize("sliding_window")?;
    // A window of null is no window; only an absent key has a default.
    let or_default = |default: Option<usize>| match config.map().contains_key("sliding_window") {
        true => given,
        false => default,
    };
    let used = config.bool("use_sliding_window")?.unwrap_or(false);
    let by_rule = |layer: usize| -> Result<bool, ModelError> {
        Ok(match family.window {
            WindowRule::Never => false,
            WindowRule::Always(_) => true,
            WindowRule::WhenUsed => layer >= config.usize("max_window_layers")?.unwrap_or(28),
            WindowRule::WhenUsedUnrotated => rotates.as_ref().is_some_and(|rotates| !rotates[layer]),
            WindowRule::AllButEvery(period) => {
                let keys = ["sliding_window_pattern", "_sliding_window_pattern"];
                let given = keys.map(|key| config.usize(key));
                let [first, second] = given;
                is_inner(layer, first?.or(second?).unwrap_or(period))
            }
        })
    };
    let window = match family.window {
        WindowRule::Never => None,
        WindowRule::Always(default) => or_default(default),
        WindowRule::WhenUsed | WindowRule::WhenUsedUnrotated => given.filter(|_| used),
        WindowRule::AllButEvery(_) => or_default(Some(4096)),
    };
    let windows = (0..n_layers).map(|layer| {
        let is_windowed = match (&kinds, family.window) {
            (Some(_), WindowRule::Never) => false,
            (Some(kinds), _) => kinds[layer],
            (None, _) => by_rule(layer)?,
        };
        Ok(window.filter(|_| is_windowed))
    });
    let windows = windows.collect::<Result<Vec<_>, ModelError>>()?;
    Ok(shapes(family, windows, rotates))
}

/// `layer_types`: true for `sliding_attention`.
fn windowed_layers(config: &HfConfig, n_layers: usize) -> Result<Option<Vec<bool>>, ModelError> {
    const KEY: &str = "layer_types";
    let Some(kinds) = config.strings(KEY)? else { return Ok(None) };
    check_length(KEY, kinds.len(), n_layers)?;
    let unknown = kinds.iter().find(|kind| !matches!(**kind, "full_attention" | "sliding_attention"));
    refuse(KEY, unknown, "`full_attention` and `sliding_attention` are supported")?;
    Ok(Some(kinds.into_iter().map(|kind| kind == "sliding_attention").collect()))
}

/// `no_rope_layers`, where 1 stands for a layer that rotates in spite of the name, or `no_rope_layer_interval`.
fn rotating_layers(
    config: &HfConfig,
    family: &Family,
    n_layers: usize,
) -> Result<Option<Vec<bool>>, ModelError> {
    const KEY: &str = "no_rope_layers";
    let RotationRule::AllButEvery(period) = family.rotation else { return Ok(None) };
    if let Some(list) = config.token_ids(KEY)? {
        check_length(KEY, list.len(), n_layers)?;
        refuse(KEY, list.iter().find(|&&flag| flag > 1), "every entry is 0 or 1")?;
        return Ok(Some(list.into_iter().map(|flag| flag == 1).collect()));
    }
    let period = config.usize("no_rope_layer_interval")?.unwrap_or(period);
    Ok(Some((0..n_layers).map(|layer| is_inner(layer, period)).collect()))
}

fn check_length(key: &str, found: usize, n_layers: usize) -> Result<(), ModelError> {
    if found == n_layers {
        return Ok(());
    }
    Err(ModelError::Inconsistent(format!("`{key}` speaks of {found} layers, the model has {n_layers}")))
}

#[cfg(test)]
mod tests {
    use super::super::families::find;
    use super::*;
    use std::path::Path;

    fn layers(name: &str, text: &str, n_layers: usize) -> Result<Vec<LayerShape>, ModelError> {
        let config = HfConfig::from_slice(text.as_bytes(), Path::new("config.json")).unwrap();
        from_hf(&config, find(name, |family| family.hf).unwrap(), n_layers)
    }

    fn windows(name: &str, text: &str) -> Vec<Option<usize>> {
        layers(name, text, 4).unwrap().iter().map(|layer| layer.sliding_window).collect()
    }

    /// D022: which layers of a Qwen have a window, and that an unused one has no effect.
    #[test]
    fn d022_windows_of_qwen_layers() {
        let unused = r#"{"use_sliding_window": false, "sliding_window": 8, "max_window_layers": 2,
            "layer_types": ["sliding_attention", "full_attention", "full_attention", "full_attention"]}"#;
        assert_eq!(windows("qwen2", unused), [None; 4]);
        let from_two = r#"{"use_sliding_window": true, "sliding_window": 8, "max_window_layers": 2}"#;
        assert_eq!(windows("qwen2", from_two), [None, None, Some(8), Some(8)]);
        let listed = r#"{"use_sliding_window": true, "sliding_window": 8, "max_window_layers": 2,
            "layer_types": ["sliding_attention", "full_attention", "full_attention", "full_attention"]}"#;
        assert_eq!(windows("qwen3", listed), [Some(8), None, None, None]);
        assert_eq!(windows("llama", from_two), [None; 4]);
    }

    #[test]
    fn windows_of_other_families() {
        assert_eq!(windows("mistral", "{}"), [Some(4096); 4]);
        assert_eq!(windows("mistral", r#"{"sliding_window": null}"#), [None; 4]);
        assert_eq!(windows("phi3", "{}"), [None; 4]);
        assert_eq!(windows("phi3", r#"{"sliding_window": 16}"#), [Some(16); 4]);
        let pattern = r#"{"sliding_window": 16, "sliding_window_pattern": 2}"#;
        let found = layers("gemma3_text", pattern, 4).unwrap();
        let local = LayerShape { rotation: LayerRotation::Local, sliding_window: Some(16) };
        assert_eq!(found, [local, LayerShape::FULL, local, LayerShape::FULL]);
    }

    #[test]
    fn layers_without_rotation() {
        let rotations = |text: &str| -> Vec<bool> {
            let found = layers("smollm3", text, 8).unwrap();
            found.iter().map(|layer| layer.rotation == LayerRotation::Global).collect()
        };
        let every_fourth = [true, true, true, false, true, true, true, false];
        assert_eq!(rotations("{}"), every_fourth);
        assert_eq!(rotations(r#"{"no_rope_layer_interval": 0}"#), [true; 8]);
        assert_eq!(rotations(r#"{"no_rope_layers": [1, 1, 1, 0, 1, 1, 1, 0]}"#), every_fourth);
        let used = r#"{"use_sliding_window": true, "sliding_window": 4}"#;
        assert_eq!(windows("smollm3", used), [None, None, None, Some(4)]);
    }

    #[test]
    fn lists_are_checked() {
        let refusal = |name, text| layers(name, text, 2).unwrap_err().to_string();
        let text = refusal("qwen2", r#"{"layer_types": ["full_attention"]}"#);
        assert!(text.contains("`layer_types` speaks of 1 layers, the model has 2"), "{text}");
        let text = refusal("qwen2", r#"{"layer_types": ["full_attention", "linear_attention"]}"#);
        assert!(text.contains("`linear_attention`"), "{text}");
        let text = refusal("smollm3", r#"{"no_rope_layers": [1, 2]}"#);
        assert!(text.contains("`2`"), "{text}");
    }
}
