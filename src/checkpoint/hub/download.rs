//! One file, fetched over as many connections as it takes.

use std::io::{ErrorKind, Read};
use std::path::Path;

use ureq::http::{Method, StatusCode};

use super::Limits;
use super::client::{Answer, Client, Part};
use super::facts::Facts;
use super::failure::Failure;
use super::partial::{CHUNK_BYTES, Partial};
use super::progress::Bar;
use super::retry::Retry;

/// What an attempt must bring before earlier failed ones are forgotten, in bytes. It bounds the attempts at a file.
const FORGIVEN_BYTES: u64 = 1 << 20;

/// How a download ended, other than by a failure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Fetched {
    /// The blob is there
    Done,
    /// The server has other content by now, under another ETag
    Changed,
}

/// A file to fetch.
pub(super) struct Download<'a> {
    pub(super) client: &'a Client,
    pub(super) limits: &'a Limits,
    pub(super) bar: &'a Bar,
    pub(super) name: &'a str,
    pub(super) url: &'a str,
    pub(super) facts: &'a Facts,
    /// Where the file goes; beside it lies what has arrived in part
    pub(super) blob: &'a Path,
}

/// How one attempt ended, other than by a failure.
enum Step {
    Whole,
    Changed,
    /// The bytes so far were of no use; ask for all of it
    FromStart,
}

impl Download<'_> {
    /// Fetch the file; the caller holds its lock.
    ///
    /// A cut connection is taken up where it ended, also by the next run. Size and, where the ETag tells it, SHA-256
    /// are compared before the file gets its name.
    pub(super) fn run(&self) -> Result<Fetched, Failure> {
        let mut partial = self.open()?;
        let mut resumed = partial.size_bytes() > 0;
        self.bar.start(self.name, self.facts.size_bytes, partial.size_bytes());
        loop {
            if !self.fill(&mut partial)? {
                partial.discard().map_err(Failure::Store)?;
                self.bar.note(&format!("`{}` has changed on the server; starting again", self.name));
                return Ok(Fetched::Changed);
            }
            match partial.sha256() {
                Some(found) if found != self.facts.etag => {
                    let expected = self.facts.etag.clone();
                    if !resumed {
                        partial.discard().map_err(Failure::Store)?;
                        return Err(Failure::Hash { expected, found });
                    }
                    // what an earlier run left may be the culprit
                    resumed = false;
                    self.start_again(&mut partial, "its content does not have the announced SHA-256")?;
                }
                _ => break,
            }
        }
        partial.finish(self.blob).map_err(Failure::Store)?;
        self.bar.finish();
        Ok(Fetched::Done)
    }

    fn open(&self) -> Result<Partial, Failure> {
        let mut path = self.blob.as_os_str().to_owned();
        path.push(".incomplete");
        if let Some(folder) = self.blob.parent() {
            std::fs::create_dir_all(folder).map_err(Failure::Store)?;
        }
        let size_bytes = self.facts.size_bytes;
        let left = std::fs::metadata(&path).map_or(0, |left| left.len());
        if left > 0 {
            self.bar.note(&format!("`{}`: an earlier run has left {left} of {size_bytes} bytes", self.name));
        }
        Partial::open(Path::new(&path), self.facts.is_hashed(), size_bytes).map_err(Failure::Store)
    }

    /// Attempt until all bytes are there. Returns whether they are, or else the content changed.
    fn fill(&self, partial: &mut Partial) -> Result<bool, Failure> {
        let subject = format!("`{}`", self.name);
        let mut retry = Retry::new(self.limits, self.bar, &subject);
        let mut ranges = true;
        let mut furthest = partial.size_bytes();
        while partial.size_bytes() < self.facts.size_bytes {
            match self.attempt(partial, ranges) {
                Ok(Step::Whole) => {}
                Ok(Step::Changed) => return Ok(false),
                Ok(Step::FromStart) if ranges => {
                    ranges = false;
                    self.start_again(partial, "the server does not continue it")?;
                }
                Ok(Step::FromStart) => {
                    return Err(Failure::Refused("it sends a part that was not asked for".to_owned()));
                }
                Err(failure) => {
                    if partial.size_bytes() >= furthest.saturating_add(FORGIVEN_BYTES) {
                        furthest = partial.size_bytes();
                        retry.got_further();
                    }
                    retry.pause(failure, self.client.answered())?;
                }
            }
        }
        Ok(true)
    }

    fn start_again(&self, partial: &mut Partial, reason: &str) -> Result<(), Failure> {
        self.bar.note(&format!("`{}`: {reason}; starting again from the first byte", self.name));
        self.bar.set(0);
        partial.restart().map_err(Failure::Store)
    }

    fn attempt(&self, partial: &mut Partial, ranges: bool) -> Result<Step, Failure> {
        let part = match partial.size_bytes() {
            from_byte if ranges && from_byte > 0 => {
                Part::Rest { from_byte, etag: &self.facts.etag, hashed: self.facts.is_hashed() }
            }
            _ => Part::Whole,
        };
        let answer = self.client.send(&Method::GET, self.url, part)?;
        if self.facts.differ_from(&answer) {
            return Ok(Step::Changed);
        }
        match first_byte(&answer, self.facts.size_bytes) {
            Some(first) if first == partial.size_bytes() => {}
            Some(0) => self.start_again(partial, "the server sends all of it")?,
            _ => return Ok(Step::FromStart),
        }
        self.copy(answer, partial)?;
        Ok(Step::Whole)
    }

    fn copy(&self, answer: Answer, partial: &mut Partial) -> Result<(), Failure> {
        let expected = self.facts.size_bytes;
        let mut reader = answer.into_reader();
        let mut buffer = vec![0; CHUNK_BYTES];
        loop {
            let read = match reader.read(&mut buffer) {
                Ok(0) if partial.size_bytes() < expected => {
                    return Err(Failure::Size { expected, found: partial.size_bytes() });
                }
                Ok(0) => return Ok(()),
                Ok(read) => read,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(Failure::of_client(error.into(), self.limits)),
            };
            let found = partial.size_bytes().saturating_add(read as u64);
            if found > expected {
                partial.restart().map_err(Failure::Store)?;
                return Err(Failure::Size { expected, found });
            }
            partial.append(&buffer[..read]).map_err(Failure::Store)?;
            self.bar.advance(read);
        }
    }
}

/// Where an answer begins in the file, or `None` when it is of no use.
fn first_byte(answer: &Answer, size_bytes: u64) -> Option<u64> {
    match answer.status {
        StatusCode::PARTIAL_CONTENT => {
            let (first, whole) = answer.content_range()?;
            whole.is_none_or(|whole| whole == size_bytes).then_some(first)
        }
        StatusCode::OK => Some(0),
        _ => None,
    }
}
