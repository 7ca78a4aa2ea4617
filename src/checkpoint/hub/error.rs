//! What can go wrong between the Hub and the cache.

use std::fmt;
use std::path::PathBuf;

/// Where files were looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The repository on the server
    Hub,
    /// The local cache, because the run is offline
    Cache,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Hub => "the repository",
            Self::Cache => "the local cache (offline, nothing was fetched)",
        })
    }
}

/// Why a repository cannot be used.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the messages say what each field is
pub enum HubError {
    #[error("no cache folder was given for `{repo}`")]
    NoCacheFolder { repo: String },
    #[error("cannot use the server `{endpoint}`: {reason}")]
    Endpoint { endpoint: String, reason: String },
    #[error("the access token has characters that cannot be sent")]
    Token,
    #[error("`{endpoint}` refuses access to `{repo}` (401): it is private or gated, or it does not exist")]
    Unauthorized { endpoint: String, repo: String, token_sent: bool },
    #[error("`{endpoint}` forbids access to `{repo}` (403): the account has not been granted it")]
    Forbidden { endpoint: String, repo: String, token_sent: bool },
    #[error("`{endpoint}` has no `{repo}` at revision `{revision}` (404)")]
    NotFound { endpoint: String, repo: String, revision: String },
    #[error("`{repo}` lists the file `{file}`, but `{endpoint}` does not have it (404)")]
    FileNotFound { endpoint: String, repo: String, file: String },
    #[error("cannot fetch {what} of `{repo}` from `{endpoint}`: {reason}")]
    Transport { endpoint: String, repo: String, what: String, reason: String },
    #[error("`{endpoint}` does not say {missing} of `{file}` of `{repo}`")]
    NoMetadata { endpoint: String, repo: String, file: String, missing: &'static str },
    #[error("`{endpoint}` does not describe `{repo}` as a Hub does: {reason}")]
    Listing { endpoint: String, repo: String, reason: String },
    #[error("cannot store `{file}` of `{repo}` in the cache: {reason}")]
    Store { repo: String, file: String, reason: String },
    #[error("`{file}` of `{repo}` did not arrive whole: {expected} bytes were announced, {found} came")]
    Incomplete { repo: String, file: String, expected: u64, found: u64 },
    #[error("`{file}` of `{repo}` arrived damaged: its SHA-256 should be `{expected}` and is `{found}`")]
    Damaged { repo: String, file: String, expected: String, found: String },
    #[error("`{repo}` changed while it was fetched: file `{file}` is not of commit `{commit}`")]
    Changed { repo: String, file: String, commit: String },
    #[error("`{repo}` names {what} `{found}`, which is not safe to use as a path")]
    UnsafeName { repo: String, what: &'static str, found: String },
    #[error("revision `{revision}` of `{repo}` is not in the cache `{}`, and the run is offline", .cache.display())]
    NotCached { repo: String, revision: String, cache: PathBuf },
    #[error("`{file}` of `{repo}` is not in the cache `{}`, and the run is offline", .cache.display())]
    FileNotCached { repo: String, file: String, cache: PathBuf },
    #[error("`{repo}` has no GGUF file `{quant}` in {place}; found {}", list(.found))]
    NoQuant { repo: String, quant: String, place: Place, found: Vec<String> },
    #[error("`{repo}` has several GGUF files to choose from in {place}: {}", list(.found))]
    Ambiguous { repo: String, place: Place, found: Vec<String> },
    #[error("`{repo}` lacks part `{missing}` of the split file `{opened}` in {place}")]
    PartMissing { repo: String, place: Place, opened: String, missing: String },
    #[error("`{repo}` lacks `{missing}` in {place}")]
    Missing { repo: String, place: Place, missing: String },
    #[error("`{repo}` has neither GGUF files nor `model.safetensors` in {place}; found {}", list(.found))]
    NoWeights { repo: String, place: Place, found: Vec<String> },
    #[error("`{repo}`: the index of the weights cannot be used: {reason}")]
    Index { repo: String, reason: String },
    #[error("cannot use the cache: `{}`: {source}", .path.display())]
    Cache { path: PathBuf, source: std::io::Error },
}

/// Most names in one message.
const LISTED: usize = 40;

fn list(names: &[String]) -> String {
    let shown: Vec<String> = names.iter().take(LISTED).map(|name| format!("`{name}`")).collect();
    match names.len() {
        0 => "nothing".to_owned(),
        n if n > LISTED => format!("{} and {} more", shown.join(", "), n - LISTED),
        _ => shown.join(", "),
    }
}

impl HubError {
    /// What the user can do about it.
    pub fn hint(&self) -> Option<String> {
        let text = match self {
            Self::NoCacheFolder { .. } => "set HF_HOME to a folder for downloads".to_owned(),
            Self::Unauthorized { token_sent: false, .. } => {
                "check the spelling of `org/name`; for a private or gated repository set HF_TOKEN".to_owned()
            }
            Self::Unauthorized { token_sent: true, .. } => {
                "check the spelling of `org/name`, and that the token in HF_TOKEN is valid and may read it".to_owned()
            }
            Self::Forbidden { endpoint, repo, token_sent } => {
                let token = if *token_sent { "" } else { ", then set HF_TOKEN" };
                format!("open {endpoint}/{repo} and accept its terms or ask for access{token}")
            }
            Self::NotFound { .. } => "check the spelling of `org/name` and of the revision".to_owned(),
            Self::Transport { .. } => {
                "check the connection and HF_ENDPOINT, then run the command again: what has arrived is kept; files that are in the cache can be used with `--offline`".to_owned()
            }
            Self::Store { .. } => "check that HF_HOME can be written and has space".to_owned(),
            Self::Endpoint { .. } => format!("set HF_ENDPOINT to a server, for example {}", super::DEFAULT_ENDPOINT),
            Self::Token => "check HF_TOKEN, or the file `token` in HF_HOME".to_owned(),
            Self::NoMetadata { .. } | Self::Listing { .. } => {
                "check HF_ENDPOINT: it must be a Hub or a full mirror of one".to_owned()
            }
            Self::Incomplete { .. } | Self::Damaged { .. } | Self::Changed { .. } => {
                "run the command again; if it fails in the same way, the fault is with the server".to_owned()
            }
            Self::NotCached { .. } | Self::FileNotCached { .. } => {
                "run once without `--offline` to fetch it, or set HF_HOME to the folder that has it".to_owned()
            }
            Self::NoQuant { repo, found, .. } | Self::Ambiguous { repo, found, .. } => {
                let example = found.first()?;
                format!("choose one, for example `{repo}:{}`", super::select::label(example))
            }
            Self::NoWeights { .. } => "only GGUF and safetensors are read: choose a repository with one of them".to_owned(),
            _ => return None,
        };
        Some(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lists_are_cut_and_counted() {
        let names: Vec<String> = (0..42).map(|n| format!("f{n}")).collect();
        assert!(list(&names).ends_with("`f39` and 2 more"));
        assert_eq!(list(&names[..2]), "`f0`, `f1`");
        assert_eq!(list(&[]), "nothing");
    }

    #[test]
    fn hints_say_what_to_do() {
        let repo = || "org/name".to_owned();
        let endpoint = || "https://host".to_owned();
        let error = HubError::Forbidden { endpoint: endpoint(), repo: repo(), token_sent: false };
        let hint = error.hint().unwrap();
        assert!(hint.contains("https://host/org/name") && hint.contains("HF_TOKEN"), "{hint}");
        let error = HubError::Unauthorized { endpoint: endpoint(), repo: repo(), token_sent: true };
        assert!(error.to_string().contains("(401)") && error.hint().unwrap().contains("valid"));
        let found = vec!["m-Q4_0.gguf".to_owned()];
        let error = HubError::Ambiguous { repo: repo(), place: Place::Hub, found };
        assert_eq!(error.hint().unwrap(), "choose one, for example `org/name:Q4_0`");
        let error = HubError::NotCached { repo: repo(), revision: "main".into(), cache: "/c".into() };
        assert!(error.to_string().contains("offline") && error.hint().unwrap().contains("--offline"));
    }
}
