//! Why one request failed, and whether asking again can help.

use std::io::{self, ErrorKind};
use std::time::Duration;

use ureq::Timeout;

use super::Limits;

/// Why one request, or one transfer, failed.
#[derive(Debug)]
pub(super) enum Failure {
    /// An answer that is no success
    Status {
        status: u16,
        /// Scheme, host and port of who answered
        origin: String,
        /// Whether that is the endpoint, and not a host that it redirects to
        at_home: bool,
        /// Pause that the server asks for
        retry_after: Option<Duration>,
    },
    /// No connection came about
    Unreachable(String),
    /// A connection ended or fell silent
    Cut(String),
    /// Something that stays wrong when it is asked again
    Refused(String),
    /// The disk, not the server
    Store(io::Error),
    /// Fewer or more bytes than were announced
    Size { expected: u64, found: u64 },
    /// Content that is not what its name says
    Hash { expected: String, found: String },
    /// An answer that lacks a header
    Lacking(&'static str),
    /// A header that is no safe file name
    Unsafe { what: &'static str, found: String },
}

impl Failure {
    /// Whether another attempt can succeed. `answered`: whether the server was reached before.
    pub(super) fn is_passing(&self, answered: bool) -> bool {
        match self {
            // the address of a file on another host is signed for a limited time
            Self::Status { status: 403, at_home: false, .. } => true,
            Self::Status { status, .. } => matches!(status, 408 | 425 | 429 | 500 | 502 | 503 | 504),
            Self::Unreachable(_) => answered,
            Self::Cut(_) => true,
            Self::Size { expected, found } => found < expected,
            _ => false,
        }
    }

    /// What happened, in words.
    pub(super) fn reason(&self) -> String {
        match self {
            Self::Status { status, origin, at_home: false, .. } => {
                format!("`{origin}`, to which it redirects, answered {}", described(*status))
            }
            Self::Status { status, .. } => format!("it answered {}", described(*status)),
            Self::Unreachable(reason) | Self::Cut(reason) | Self::Refused(reason) => reason.clone(),
            Self::Store(error) => error.to_string(),
            Self::Size { expected, found } => {
                format!("{expected} bytes were announced and {found} came")
            }
            Self::Hash { .. } => "the content does not have the announced SHA-256".to_owned(),
            Self::Lacking(what) => format!("the answer does not say {what}"),
            Self::Unsafe { what, found } => format!("{what} `{found}` is not safe to use as a path"),
        }
    }

    /// Sort what the HTTP client reports.
    pub(super) fn of_client(error: ureq::Error, limits: &Limits) -> Self {
        use ureq::Error as E;
        match error {
            E::Timeout(Timeout::Resolve | Timeout::Connect) => {
                Self::Unreachable(format!("no connection within {:?}", limits.connect_timeout))
            }
            E::Timeout(_) => Self::Cut(format!("nothing arrived for {:?}", limits.read_timeout)),
            E::HostNotFound => Self::Unreachable("the host name was not found".to_owned()),
            E::ConnectionFailed | E::ConnectProxyFailed(_) => Self::Unreachable(error.to_string()),
            E::Io(error) if error.kind() == ErrorKind::InvalidData => Self::Refused(error.to_string()),
            E::Io(error) if was_connected(error.kind()) => {
                Self::Cut(format!("the connection was cut ({error})"))
            }
            // a host that is not found has no kind of its own
            E::Io(error) => Self::Unreachable(error.to_string()),
            E::Protocol(error) => Self::Cut(format!("the answer is no HTTP ({error})")),
            other => Self::Refused(other.to_string()),
        }
    }
}

/// Whether an I/O error can only come from a connection that stood.
fn was_connected(kind: ErrorKind) -> bool {
    use ErrorKind as K;
    matches!(
        kind,
        K::ConnectionReset
            | K::ConnectionAborted
            | K::BrokenPipe
            | K::UnexpectedEof
            | K::TimedOut
            | K::WouldBlock
    )
}

/// A status with its usual name.
fn described(status: u16) -> String {
    let name = ureq::http::StatusCode::from_u16(status).ok().and_then(|status| status.canonical_reason());
    name.map_or_else(|| status.to_string(), |name| format!("{status} {name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(status: u16, at_home: bool) -> Failure {
        Failure::Status { status, origin: "https://cdn".to_owned(), at_home, retry_after: None }
    }

    #[test]
    fn only_what_can_pass_is_tried_again() {
        assert!(status(503, true).is_passing(false) && status(429, false).is_passing(true));
        assert!(!status(403, true).is_passing(true) && status(403, false).is_passing(true));
        assert!(!status(404, true).is_passing(true));
        let unreachable = Failure::Unreachable(String::new());
        assert!(unreachable.is_passing(true) && !unreachable.is_passing(false));
        assert!(Failure::Size { expected: 2, found: 1 }.is_passing(true));
        assert!(!Failure::Size { expected: 1, found: 2 }.is_passing(true));
        assert!(!Failure::Lacking("the size").is_passing(true));
        assert!(
            status(403, false)
                .reason()
                .contains("`https://cdn`, to which it redirects, answered 403 Forbidden")
        );
    }

    #[test]
    fn errors_of_the_client_are_sorted() {
        let limits = Limits::default();
        let sorted = |error| Failure::of_client(error, &limits);
        let io = |kind: ErrorKind| sorted(ureq::Error::Io(kind.into()));
        assert!(matches!(io(ErrorKind::ConnectionRefused), Failure::Unreachable(_)));
        assert!(matches!(io(ErrorKind::Other), Failure::Unreachable(_)));
        assert!(matches!(io(ErrorKind::UnexpectedEof), Failure::Cut(_)));
        assert!(matches!(io(ErrorKind::ConnectionReset), Failure::Cut(_)));
        assert!(matches!(io(ErrorKind::InvalidData), Failure::Refused(_)));
        assert!(matches!(sorted(ureq::Error::HostNotFound), Failure::Unreachable(_)));
        let silent = sorted(ureq::Error::Timeout(Timeout::PerRead));
        assert!(matches!(&silent, Failure::Cut(reason) if reason == "nothing arrived for 30s"), "{silent:?}");
        assert!(matches!(sorted(ureq::Error::Timeout(Timeout::Connect)), Failure::Unreachable(_)));
        assert!(matches!(sorted(ureq::Error::BadUri(String::new())), Failure::Refused(_)));
    }
}
