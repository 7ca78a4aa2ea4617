//! A training run as one safetensors file: weights, both moments, losses, and the settings in its metadata.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use serde_json::Value;

use super::error::LabError;
use super::model::weight_specs;
use super::optimizer::Moments;
use super::settings::Settings;
use super::text::Text;
use super::train::State;

/// The metadata key that marks the files of this module.
const KEY: &str = "ropex.lab";
/// Layout of the metadata.
const VERSION: u32 = 1;
/// Largest file that is read.
const MAX_BYTES: u64 = 1 << 30;

#[derive(serde::Serialize, serde::Deserialize)]
struct Header {
    version: u32,
    /// 16 hex digits.
    text: String,
    settings: Settings,
}

/// Writes `state` to a sibling of `path` and renames it, so that a killed run leaves the last whole checkpoint.
///
/// # Errors
/// [`LabError::Io`], or [`LabError::Checkpoint`] when the state does not fit its settings.
pub fn write(path: &Path, state: &State) -> Result<(), LabError> {
    let bytes = serialize(path, state)?;
    let failed = || LabError::io("write", path);
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(failed())?;
    }
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(format!(".{}.tmp", std::process::id()));
    let sibling = path.with_file_name(name);
    let written = File::create(&sibling)
        .and_then(|mut file| file.write_all(&bytes).and_then(|()| file.sync_all()))
        .and_then(|()| fs::rename(&sibling, path));
    if written.is_err() {
        fs::remove_file(&sibling).ok(); // nothing to clean up when it was never created
    }
    written.map_err(failed())
}

fn serialize(path: &Path, state: &State) -> Result<Vec<u8>, LabError> {
    let bad = |reason: String| LabError::checkpoint(path, reason);
    let header =
        Header { version: VERSION, text: format!("{:016x}", state.text), settings: state.settings.clone() };
    let header = serde_json::to_string(&header).map_err(|error| bad(error.to_string()))?;
    let bytes = |values: &[f32]| values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>();
    let mut tensors: Vec<(String, Vec<usize>, Vec<u8>)> =
        vec![("losses".into(), vec![state.losses.len()], bytes(&state.losses))];
    for ((spec, weights), moments) in
        weight_specs(&state.settings).iter().zip(&state.weights).zip(&state.moments)
    {
        for (kind, values) in [("weight", weights), ("first", &moments.first), ("second", &moments.second)] {
            tensors.push((format!("{}.{kind}", spec.name), spec.shape.clone(), bytes(values)));
        }
    }
    let views = tensors
        .iter()
        .map(|(name, shape, bytes)| Ok((name, TensorView::new(Dtype::F32, shape.clone(), bytes)?)))
        .collect::<Result<Vec<_>, safetensors::SafeTensorError>>()
        .map_err(|error| bad(error.to_string()))?;
    let metadata = HashMap::from([(KEY.to_string(), header)]);
    safetensors::serialize(views, Some(metadata)).map_err(|error| bad(error.to_string()))
}

/// Reads what [`write`] wrote.
///
/// # Errors
/// [`LabError::Io`]; [`LabError::Checkpoint`] for anything that is not such a file.
pub fn read(path: &Path) -> Result<State, LabError> {
    let bad = |reason: String| LabError::checkpoint(path, reason);
    let size = fs::metadata(path).map_err(LabError::io("read", path))?.len();
    if size > MAX_BYTES {
        return Err(bad(format!("it has {size} bytes, more than {MAX_BYTES}")));
    }
    let bytes = fs::read(path).map_err(LabError::io("read", path))?;
    let (_, metadata) = SafeTensors::read_metadata(&bytes).map_err(|error| bad(error.to_string()))?;
    let tensors = SafeTensors::deserialize(&bytes).map_err(|error| bad(error.to_string()))?;
    let header = metadata.metadata().as_ref().and_then(|metadata| metadata.get(KEY));
    let header = header.ok_or_else(|| bad(format!("its metadata has no key `{KEY}`")))?;
    let header: Header =
        serde_json::from_str(header).map_err(|error| bad(format!("metadata `{KEY}`: {error}")))?;
    if header.version != VERSION {
        return Err(bad(format!("its layout has version {}, this program reads {VERSION}", header.version)));
    }
    header.settings.validate()?;
    let text = u64::from_str_radix(&header.text, 16)
        .map_err(|_| bad(format!("`text` is `{}`, not 16 hex digits", header.text)))?;
    let values = |name: &str, shape: Option<&[usize]>| {
        let tensor = tensors.tensor(name).map_err(|_| bad(format!("tensor `{name}` is missing")))?;
        if tensor.dtype() != Dtype::F32 || shape.is_some_and(|shape| shape != tensor.shape()) {
            let (dtype, found) = (tensor.dtype(), tensor.shape());
            return Err(bad(format!(
                "tensor `{name}` is {dtype:?} {found:?}, which the settings do not ask for"
            )));
        }
        let number = |bytes: &[u8]| f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        Ok(tensor.data().chunks_exact(4).map(number).collect::<Vec<f32>>())
    };
    let losses = values("losses", None)?;
    if losses.len() > header.settings.steps {
        return Err(bad(format!("it has {} losses of {} steps", losses.len(), header.settings.steps)));
    }
    let (mut weights, mut moments) = (Vec::new(), Vec::new());
    for spec in weight_specs(&header.settings) {
        let of = |kind: &str| values(&format!("{}.{kind}", spec.name), Some(&spec.shape));
        weights.push(of("weight")?);
        moments.push(Moments { first: of("first")?, second: of("second")? });
    }
    Ok(State { settings: header.settings, text, losses, weights, moments })
}

/// The state in `path` if there is a file, checked to belong to a run with these settings on this text.
///
/// # Errors
/// As [`read`]; [`LabError::OtherRun`] with the first setting that differs.
pub fn resume(path: &Path, settings: &Settings, text: &Text) -> Result<Option<State>, LabError> {
    if !path.exists() {
        return Ok(None);
    }
    let state = read(path)?;
    let other = |setting: &str, expected: String, found: String| {
        Err(LabError::OtherRun { path: path.to_path_buf(), setting: setting.to_string(), expected, found })
    };
    if let Some((name, expected, found)) = difference(settings, &state.settings) {
        return other(&format!("`{name}`"), expected, found);
    }
    if state.text != text.hash() {
        return other("text hash", format!("{:016x}", text.hash()), format!("{:016x}", state.text));
    }
    Ok(Some(state))
}

/// The first setting in which two runs differ, with both values.
fn difference(expected: &Settings, found: &Settings) -> Option<(String, String, String)> {
    let map = |settings: &Settings| match serde_json::to_value(settings) {
        Ok(Value::Object(map)) => map,
        _ => serde_json::Map::new(),
    };
    let found = map(found);
    let differs = |(name, value): (String, Value)| {
        let other = found.get(&name).cloned().unwrap_or(Value::Null);
        (other != value).then(|| (name, value.to_string(), other.to_string()))
    };
    map(expected).into_iter().find_map(differs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::encoding::Encoding;

    fn settings() -> Settings {
        Settings { layers: 1, width: 8, heads: 2, feed_forward: 8, context: 8, ..Settings::default() }
    }

    fn state() -> (State, Text) {
        let text = Text::generated(0, 500);
        let mut state = State::start(&settings(), &text).unwrap();
        state.losses = vec![3.5, 2.25];
        state.moments[1].second[3] = 1e-30;
        (state, text)
    }

    #[test]
    fn what_is_written_is_read_and_leaves_nothing_behind() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("runs/a.safetensors");
        let (state, text) = state();
        write(&path, &state).unwrap();
        assert_eq!(read(&path).unwrap(), state);
        assert_eq!(resume(&path, &settings(), &text).unwrap(), Some(state.clone()));
        assert_eq!(resume(&dir.path().join("none"), &settings(), &text).unwrap(), None);
        let first = fs::read(&path).unwrap();
        write(&path, &state).unwrap();
        assert_eq!(fs::read(&path).unwrap(), first);
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn another_run_is_refused_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.safetensors");
        let (state, text) = state();
        write(&path, &state).unwrap();
        for (other, name) in [
            (Settings { seed: 9, ..settings() }, "`seed` 0, asked for 9"),
            (
                Settings { encoding: Encoding::Alibi, ..settings() },
                "`encoding` \"rope\", asked for \"alibi\"",
            ),
        ] {
            let error = resume(&path, &other, &text).unwrap_err().to_string();
            assert!(error.contains(name), "{error}");
        }
        let error = resume(&path, &settings(), &Text::generated(1, 500)).unwrap_err();
        assert!(error.to_string().contains("text hash"), "{error}");
    }

    #[test]
    fn files_that_are_no_checkpoint_say_why() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.safetensors");
        let (state, _) = state();
        write(&path, &state).unwrap();
        let whole = fs::read(&path).unwrap();
        for cut in (0..whole.len()).step_by(97) {
            fs::write(&path, &whole[..cut]).unwrap();
            assert!(matches!(read(&path), Err(LabError::Checkpoint { .. })), "{cut}");
        }
        let text = String::from_utf8_lossy(&whole).into_owned();
        for (from, to, expected) in [
            ("ropex.lab", "other.lab", "no key `ropex.lab`"),
            (r#"\"version\":1"#, r#"\"version\":2"#, "version 2"),
            (r#"\"width\":8"#, r#"\"width\":4"#, "which the settings do not ask for"),
            (r#"\"steps\":600"#, r#"\"steps\":0  "#, "`steps` must be"),
            (r#"\"seed\":0"#, r#"\"seed\":a"#, "metadata `ropex.lab`"),
        ] {
            assert!(text.contains(from), "{from}");
            let at = text.find(from).unwrap();
            let mut bytes = whole.clone();
            bytes[at..at + to.len()].copy_from_slice(to.as_bytes());
            fs::write(&path, bytes).unwrap();
            let error = read(&path).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        let (mut state, _) = self::state();
        state.losses = vec![1.0; 601];
        write(&path, &state).unwrap();
        assert!(read(&path).unwrap_err().to_string().contains("601 losses"));
    }
}
