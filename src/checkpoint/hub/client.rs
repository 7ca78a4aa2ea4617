//! One request to the endpoint, with its redirects followed by hand.
//!
//! The access token goes to the endpoint's own scheme, host and port and nowhere else. Once a redirect has left them,
//! nothing that follows gets it, not even the endpoint.

use std::cell::Cell;
use std::io::Read;
use std::time::Duration;

use ureq::http::header::{
    AUTHORIZATION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, ETAG, IF_RANGE, LOCATION, RANGE,
    RETRY_AFTER,
};
use ureq::http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri};
use ureq::{Agent, Body};

use super::Limits;
use super::address::{self, origin, same_origin};
use super::failure::Failure;

/// Most redirects of one request.
const MAX_REDIRECTS: usize = 10;

/// Name in the log of the server.
const USER_AGENT: &str = concat!(env!("CARGO_PKG_NAME"), "/", env!("CARGO_PKG_VERSION"));

/// Largest description of a repository that is read, in bytes. A hundred thousand files need 10 MB.
const MAX_TEXT_BYTES: u64 = 64 << 20;

/// The endpoint and how to ask it.
pub(super) struct Client {
    agent: Agent,
    home: Uri,
    authorization: Option<HeaderValue>,
    limits: Limits,
    answered: Cell<bool>,
}

/// Which part of a file is wanted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Part<'a> {
    /// All of it
    Whole,
    /// Its first byte, to see the headers
    First,
    /// What follows the bytes that are there
    Rest {
        from_byte: u64,
        /// Content that these bytes are of
        etag: &'a str,
        /// Whether the ETag is the hash of the content, which is compared in the end
        hashed: bool,
    },
}

/// A successful answer.
pub(super) struct Answer {
    pub(super) status: StatusCode,
    headers: HeaderMap,
    body: Body,
    told: Told,
}

/// What the hops of a request said of the file. Headers of the Hub itself come before those of a redirect's target.
#[derive(Debug, Default)]
struct Told {
    commit: Option<String>,
    linked_etag: Option<String>,
    linked_size: Option<u64>,
    etag: Option<String>,
    /// Whether a redirect has left the endpoint
    left_home: bool,
}

impl Client {
    /// `endpoint`: checked address of the server. `token`: without white space around it.
    ///
    /// # Errors
    /// `()` for a token that cannot be part of a header.
    pub(super) fn new(home: Uri, token: Option<&str>, limits: &Limits) -> Result<Self, ()> {
        let authorization = match token {
            Some(token) => {
                let mut value = HeaderValue::from_str(&format!("Bearer {token}")).map_err(|_| ())?;
                value.set_sensitive(true);
                Some(value)
            }
            None => None,
        };
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .user_agent(USER_AGENT)
            .accept_encoding("identity")
            .timeout_resolve(Some(limits.connect_timeout))
            .timeout_connect(Some(limits.connect_timeout))
            .timeout_send_request(Some(limits.read_timeout))
            .timeout_recv_response(Some(limits.read_timeout))
            .timeout_per_read(Some(limits.read_timeout))
            .build();
        let agent = config.new_agent();
        Ok(Self { agent, home, authorization, limits: limits.clone(), answered: Cell::new(false) })
    }

    pub(super) fn has_token(&self) -> bool {
        self.authorization.is_some()
    }

    /// Whether anything has answered yet.
    pub(super) fn answered(&self) -> bool {
        self.answered.get()
    }

    /// Ask, and follow redirects to the end; HEAD stops where the Hub has said all.
    pub(super) fn send(&self, method: &Method, url: &str, part: Part<'_>) -> Result<Answer, Failure> {
        let refused = Failure::Refused;
        let mut url = address::parse(url).map_err(refused)?;
        let mut told = Told::default();
        for _ in 0..=MAX_REDIRECTS {
            told.left_home |= !same_origin(&self.home, &url);
            let request = self.request(method, &url, part, !told.left_home)?;
            let response =
                self.agent.run(request).map_err(|error| Failure::of_client(error, &self.limits))?;
            self.answered.set(true);
            told.note(response.headers());
            let next = match response.headers().get(LOCATION) {
                Some(location) if response.status().is_redirection() => location,
                _ => return finished(response, &url, told),
            };
            if method == Method::HEAD && told.is_complete() {
                return Ok(Answer::new(response, told));
            }
            url = address::follow(&url, next.as_bytes()).map_err(refused)?;
        }
        Err(Failure::Refused(format!("it redirects more than {MAX_REDIRECTS} times")))
    }

    /// The body of an answer to GET, as text of bounded length.
    pub(super) fn text(&self, url: &str) -> Result<Vec<u8>, Failure> {
        let answer = self.send(&Method::GET, url, Part::Whole)?;
        let body = answer.body.into_with_config().limit(MAX_TEXT_BYTES);
        body.read_to_vec().map_err(|error| Failure::of_client(error, &self.limits))
    }

    fn request(
        &self,
        method: &Method,
        url: &Uri,
        part: Part<'_>,
        at_home: bool,
    ) -> Result<Request<()>, Failure> {
        let mut request = Request::builder().method(method).uri(url);
        if let Some(value) = self.authorization.as_ref().filter(|_| at_home) {
            request = request.header(AUTHORIZATION, value);
        }
        match part {
            Part::Whole => {}
            Part::First => request = request.header(RANGE, "bytes=0-0"),
            Part::Rest { from_byte, hashed: true, .. } => {
                request = request.header(RANGE, format!("bytes={from_byte}-"));
            }
            // without a hash only the server that gave the ETag can say whether the content is still the same
            Part::Rest { from_byte, etag, hashed: false } if at_home => {
                request = request.header(RANGE, format!("bytes={from_byte}-"));
                request = request.header(IF_RANGE, format!("\"{etag}\""));
            }
            Part::Rest { .. } => {}
        }
        request.body(()).map_err(|error| Failure::Refused(error.to_string()))
    }
}

/// Check the answer at the end of the redirects.
fn finished(response: Response<Body>, url: &Uri, told: Told) -> Result<Answer, Failure> {
    let status = response.status();
    if !status.is_success() && status != StatusCode::RANGE_NOT_SATISFIABLE {
        let seconds = text(response.headers(), RETRY_AFTER.as_str()).and_then(|text| text.parse().ok());
        return Err(Failure::Status {
            status: status.as_u16(),
            origin: origin(url),
            at_home: !told.left_home,
            retry_after: seconds.map(Duration::from_secs),
        });
    }
    match text(response.headers(), CONTENT_ENCODING.as_str()) {
        Some(encoding) if !encoding.eq_ignore_ascii_case("identity") => {
            Err(Failure::Refused(format!("it sends the encoding `{encoding}`, which was not asked for")))
        }
        _ => Ok(Answer::new(response, told)),
    }
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok().map(str::trim)
}

impl Told {
    fn note(&mut self, headers: &HeaderMap) {
        let owned = |name| text(headers, name).map(str::to_owned);
        self.commit = self.commit.take().or_else(|| owned("x-repo-commit"));
        self.linked_etag = self.linked_etag.take().or_else(|| owned("x-linked-etag"));
        self.linked_size = self.linked_size.or_else(|| text(headers, "x-linked-size")?.parse().ok());
        self.etag = owned(ETAG.as_str());
    }

    /// Whether the file is known without asking a further host.
    fn is_complete(&self) -> bool {
        self.commit.is_some() && self.linked_etag.is_some() && self.linked_size.is_some()
    }
}

impl Answer {
    fn new(response: Response<Body>, told: Told) -> Self {
        let (parts, body) = response.into_parts();
        Self { status: parts.status, headers: parts.headers, body, told }
    }

    /// Commit of the file, unchecked.
    pub(super) fn commit(&self) -> Option<&str> {
        self.told.commit.as_deref()
    }

    /// ETag that the Hub gives to the content, wherever that is stored; unchecked.
    pub(super) fn linked_etag(&self) -> Option<&str> {
        self.told.linked_etag.as_deref()
    }

    /// ETag at the end of the redirects, unchecked.
    pub(super) fn etag(&self) -> Option<&str> {
        self.told.etag.as_deref()
    }

    /// The same, unless it comes from another host, which has marks of its own.
    pub(super) fn home_etag(&self) -> Option<&str> {
        self.etag().filter(|_| !self.told.left_home)
    }

    /// Size of the whole file in bytes.
    pub(super) fn size_bytes(&self) -> Option<u64> {
        let length = || text(&self.headers, CONTENT_LENGTH.as_str())?.parse().ok();
        match (self.told.linked_size, self.status) {
            (Some(size), _) => Some(size),
            (None, StatusCode::PARTIAL_CONTENT) => self.content_range()?.1,
            (None, StatusCode::OK) => length(),
            _ => None,
        }
    }

    /// First byte of the part that was sent, and the size of the whole if it is told.
    pub(super) fn content_range(&self) -> Option<(u64, Option<u64>)> {
        let range = text(&self.headers, CONTENT_RANGE.as_str())?.strip_prefix("bytes ")?;
        let (span, size) = range.split_once('/')?;
        Some((span.split_once('-')?.0.trim().parse().ok()?, size.trim().parse().ok()))
    }

    pub(super) fn into_reader(self) -> impl Read {
        self.body.into_reader()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, headers: &[(&str, &str)]) -> Result<Answer, Failure> {
        let mut response = Response::builder().status(status);
        for (name, value) in headers {
            response = response.header(*name, *value);
        }
        let response = response.body(Body::builder().data("")).unwrap();
        let mut told = Told::default();
        told.note(response.headers());
        finished(response, &"https://host/x?signature=1".parse().unwrap(), told)
    }

    #[test]
    fn sizes_and_ranges_are_read_or_absent() {
        let range = |value| answer(206, &[("content-range", value)]).unwrap().content_range();
        assert_eq!(range("bytes 5-9/10"), Some((5, Some(10))));
        assert_eq!(range("bytes 5-9/*"), Some((5, None)));
        for bad in [
            "",
            "bytes",
            "bytes */10",
            "items 5-9/10",
            "bytes -5-9/10",
            "bytes 5/10",
            "bytes 99999999999999999999-/1",
        ] {
            assert_eq!(range(bad), None, "{bad}");
        }
        let size = |status, headers: &[(&str, &str)]| answer(status, headers).unwrap().size_bytes();
        assert_eq!(size(200, &[("content-length", "7")]), Some(7));
        assert_eq!(size(200, &[("content-length", "7"), ("x-linked-size", "9")]), Some(9));
        assert_eq!(size(206, &[("content-length", "1"), ("content-range", "bytes 0-0/8")]), Some(8));
        assert_eq!(size(200, &[("content-length", "-7")]), None);
        assert_eq!(size(204, &[("content-length", "7")]), None);
    }

    #[test]
    fn answers_that_are_no_success_are_failures() {
        let failure = answer(429, &[("retry-after", "7")]).err().unwrap();
        let Failure::Status { status: 429, origin, retry_after, at_home: true } = failure else { panic!() };
        assert_eq!((origin.as_str(), retry_after), ("https://host", Some(Duration::from_secs(7))));
        assert!(matches!(answer(302, &[]), Err(Failure::Status { status: 302, .. })));
        let encoded = answer(200, &[("content-encoding", "gzip")]).err().unwrap();
        assert!(encoded.reason().contains("`gzip`"));
    }

    #[test]
    fn the_token_is_sent_home_only_and_must_fit_a_header() {
        let home: Uri = "https://host/base".parse().unwrap();
        let client = Client::new(home.clone(), Some("secret"), &Limits::default()).unwrap();
        let sent = |at_home| {
            let request = client.request(&Method::GET, &home, Part::Whole, at_home).unwrap();
            request.headers().contains_key(AUTHORIZATION)
        };
        assert!(sent(true) && !sent(false));
        assert!(Client::new(home, Some("a\nb"), &Limits::default()).is_err());
    }

    #[test]
    fn only_hashed_content_is_continued_on_another_host() {
        let home: Uri = "https://host".parse().unwrap();
        let client = Client::new(home.clone(), None, &Limits::default()).unwrap();
        let sent = |hashed, at_home| {
            let part = Part::Rest { from_byte: 5, etag: "tag", hashed };
            let request = client.request(&Method::GET, &home, part, at_home).unwrap();
            let text = |name| text(request.headers(), name).map(str::to_owned);
            (text("range"), text("if-range"))
        };
        let range = Some("bytes=5-".to_owned());
        assert_eq!(sent(true, true), (range.clone(), None));
        assert_eq!(sent(true, false), (range.clone(), None));
        assert_eq!(sent(false, true), (range, Some("\"tag\"".to_owned())));
        assert_eq!(sent(false, false), (None, None));
    }
}
