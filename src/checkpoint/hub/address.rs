//! Addresses, and where a redirect leads.
//!
//! The parsed form that is checked here is the one that is connected to, so no two readers of an address can disagree.

use ureq::http::Uri;
use ureq::http::uri::Scheme;

/// Read an address that a client can ask: http or https, with a host, and with no name or password in it.
pub(super) fn parse(text: &str) -> Result<Uri, String> {
    let uri: Uri = text.parse().map_err(|error| format!("it is no address ({error})"))?;
    match uri.scheme() {
        Some(scheme) if [Scheme::HTTP, Scheme::HTTPS].contains(scheme) => {}
        _ => return Err("it must start with `https://` or `http://`".to_owned()),
    }
    match uri.authority() {
        Some(authority) if authority.as_str().contains('@') => {
            Err("it must not contain a name or a password".to_owned())
        }
        Some(authority) if authority.host().is_empty() => Err("it names no host".to_owned()),
        Some(authority) if authority.as_str() != authority.host() && authority.port_u16().is_none() => {
            Err("its port is no number below 65536".to_owned())
        }
        Some(_) => Ok(uri),
        None => Err("it names no host".to_owned()),
    }
}

/// Whether two addresses have the same scheme, host and port.
pub(super) fn same_origin(a: &Uri, b: &Uri) -> bool {
    let host = |uri: &Uri| uri.host().map(str::to_ascii_lowercase);
    a.scheme() == b.scheme() && host(a) == host(b) && port(a) == port(b)
}

fn port(uri: &Uri) -> u16 {
    let usual = if uri.scheme() == Some(&Scheme::HTTPS) { 443 } else { 80 };
    uri.port_u16().unwrap_or(usual)
}

/// Scheme, host and port, for messages: queries may hold signatures.
pub(super) fn origin(uri: &Uri) -> String {
    let authority = uri.authority().map_or("", |authority| authority.as_str());
    format!("{}://{authority}", uri.scheme_str().unwrap_or_default())
}

/// Where a `Location` header leads from `base`.
///
/// Source: RFC 3986, section 5.2; the fragment is dropped.
///
/// # Errors
/// A reason, for what is no address and for a step from https to http.
pub(super) fn follow(base: &Uri, location: &[u8]) -> Result<Uri, String> {
    let location = printable(location);
    let location = location.split('#').next().unwrap_or_default();
    let absolute = if has_scheme(location) {
        location.to_owned()
    } else if let Some(rest) = location.strip_prefix("//") {
        format!("{}://{rest}", base.scheme_str().unwrap_or_default())
    } else {
        let (path, query) = match location.split_once('?') {
            Some((path, query)) => (path, format!("?{query}")),
            None => (location, String::new()),
        };
        format!("{}{}{query}", origin(base), join(base.path(), path))
    };
    let bad = |reason| format!("a redirect leads to `{}`: {reason}", shown(location));
    let uri = parse(&absolute).map_err(bad)?;
    if base.scheme() == Some(&Scheme::HTTPS) && uri.scheme() != Some(&Scheme::HTTPS) {
        return Err(bad("it gives up encryption".to_owned()));
    }
    Ok(uri)
}

/// An address without its query, for messages.
fn shown(location: &str) -> &str {
    location.split('?').next().unwrap_or_default()
}

/// Bytes that no address may contain, escaped.
fn printable(location: &[u8]) -> String {
    let mut text = String::with_capacity(location.len());
    for &byte in location {
        match byte {
            0x21..=0x7e => text.push(char::from(byte)),
            _ => text.push_str(&format!("%{byte:02X}")),
        }
    }
    text
}

fn has_scheme(location: &str) -> bool {
    let Some((scheme, _)) = location.split_once(':') else {
        return false;
    };
    let allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.');
    scheme.starts_with(|c: char| c.is_ascii_alphabetic()) && scheme.bytes().all(allowed)
}

/// A path seen from another one, without `.` and `..`; never above the root.
fn join(base: &str, path: &str) -> String {
    let whole = match path {
        "" => base.to_owned(),
        _ if path.starts_with('/') => path.to_owned(),
        _ => format!("{}/{path}", base.rsplit_once('/').map_or("", |(folder, _)| folder)),
    };
    let mut parts: Vec<&str> = Vec::new();
    for part in whole.split('/').skip(1) {
        match part {
            "." => {}
            ".." => {
                parts.pop();
            }
            _ => parts.push(part),
        }
    }
    if whole.ends_with("/.") || whole.ends_with("/..") {
        parts.push("");
    }
    format!("/{}", parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn led(base: &str, location: &str) -> Result<String, String> {
        follow(&base.parse().unwrap(), location.as_bytes()).map(|uri| uri.to_string())
    }

    #[test]
    fn redirects_of_every_form_are_resolved() {
        let base = "https://host:8/base/a/b?old=1";
        for (location, expected) in [
            ("https://cdn/x?sig=1#part", "https://cdn/x?sig=1"),
            ("//cdn/x", "https://cdn/x"),
            ("/root?q=%2F", "https://host:8/root?q=%2F"),
            ("c", "https://host:8/base/a/c"),
            ("../c/./d", "https://host:8/base/c/d"),
            ("../../../../c", "https://host:8/c"),
            ("..", "https://host:8/base/"),
            ("?new=a:b", "https://host:8/base/a/b?new=a:b"),
            ("", "https://host:8/base/a/b"),
            ("/é x", "https://host:8/%C3%A9%20x"),
        ] {
            assert_eq!(led(base, location).as_deref(), Ok(expected), "{location}");
        }
        assert_eq!(led("http://host", "x").as_deref(), Ok("http://host/x"));
    }

    #[test]
    fn hostile_redirects_are_refused_without_panic() {
        for location in [
            "ftp://host/x",
            "file:///etc/passwd",
            "https://user:pw@host/x",
            "https://",
            "http:///x",
            "https://:80",
            "https://a b/",
            "javascript:1",
            "http://host/x",
            "https://[::1",
            "//",
            "///x",
            "https://h\\@g/",
            "https://host:99999/",
        ] {
            let error = led("https://host/a", location).unwrap_err();
            assert!(error.starts_with("a redirect leads to"), "{error}");
        }
        let error = led("https://host/a", "http://cdn/x?signature=secret").unwrap_err();
        assert!(error.contains("encryption") && !error.contains("secret"), "{error}");
    }

    #[test]
    fn origins_differ_in_scheme_host_or_port() {
        let same = |a: &str, b: &str| same_origin(&a.parse().unwrap(), &b.parse().unwrap());
        assert!(same("https://Host/a", "https://host:443/b") && same("http://h:80", "http://h/x"));
        assert!(!same("https://host", "http://host") && !same("http://h:1", "http://h:2"));
        assert!(!same("https://host", "https://host.evil") && !same("https://hub", "https://cdn.hub"));
    }
}
