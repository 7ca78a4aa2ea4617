//! What the server says of a file before it is fetched.

use ureq::http::Method;

use super::client::{Answer, Client, Part};
use super::failure::Failure;
use super::names;

/// Statuses of servers that do not know HEAD. A storage host may refuse it in any way: its addresses are signed for GET.
const NO_HEAD: [u16; 3] = [400, 405, 501];

/// One file of one commit.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Facts {
    /// Name of the blob; safe as a file name
    pub(super) etag: String,
    /// Whether the ETag is the Hub's own and not the one of whoever sends the bytes
    linked: bool,
    pub(super) size_bytes: u64,
    /// Commit, if the server tells it; safe as a file name
    pub(super) commit: Option<String>,
}

impl Facts {
    /// Ask by HEAD, and by GET for one byte when the answer to that is refused or lacks something.
    pub(super) fn ask(client: &Client, url: &str) -> Result<Self, Failure> {
        match client.send(&Method::HEAD, url, Part::Whole) {
            Ok(answer) => match Self::read(&answer) {
                Err(Failure::Lacking(_)) => {}
                done => return done,
            },
            Err(Failure::Status { status, at_home, .. }) if !at_home || NO_HEAD.contains(&status) => {}
            Err(failure) => return Err(failure),
        }
        Self::read(&client.send(&Method::GET, url, Part::First)?)
    }

    fn read(answer: &Answer) -> Result<Self, Failure> {
        let etag = answer.linked_etag().or(answer.etag()).ok_or(Failure::Lacking("the ETag"))?;
        let unsafe_name = |what, found: &str| Failure::Unsafe { what, found: found.to_owned() };
        let commit = match answer.commit() {
            Some(commit) if names::is_commit(commit) => Some(commit.to_owned()),
            Some(commit) => return Err(unsafe_name("the commit", commit)),
            None => None,
        };
        Ok(Self {
            etag: names::etag(etag).ok_or_else(|| unsafe_name("the ETag", etag))?,
            linked: answer.linked_etag().is_some(),
            size_bytes: answer.size_bytes().ok_or(Failure::Lacking("the size"))?,
            commit,
        })
    }

    /// Whether the ETag is the SHA-256 of the content.
    pub(super) fn is_hashed(&self) -> bool {
        names::is_sha256(&self.etag)
    }

    /// Whether an answer speaks of other content.
    pub(super) fn differ_from(&self, answer: &Answer) -> bool {
        let found = if self.linked { answer.linked_etag() } else { answer.home_etag() };
        found.is_some_and(|etag| names::etag(etag).as_ref() != Some(&self.etag))
    }
}
