//! The URL of a server: `http://HOST[:PORT][/PATH]`, `https://HOST[:PORT][/PATH]`, `unix:PATH`, or `builtin:echo`.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::sync::Arc;

use super::remedies;
use super::report::quoted;
use super::text::SyntaxError;
use crate::plan::Endpoint;
use crate::route::path::{Path as RequestPath, PathMatching};

/// The target of a server's URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum UpstreamTarget {
    /// The built-in echo.
    Echo,
    /// A server, of weight 1.
    Server(Listed),
}

/// A server as written in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Listed {
    /// Its TLS settings are still to be set.
    pub(super) endpoint: Endpoint,
    /// Whether it uses TLS.
    pub(super) secure: bool,
    /// The path of its URL, without a final slash; empty: it has none.
    pub(super) base_path: Box<str>,
}

/// The longest path of a Unix socket on Linux, in bytes (unix(7)).
const MAX_SOCKET_PATH: usize = 107;

/// Parses `http://HOST[:PORT][/PATH]` or the same with `https`, and `unix:PATH`. A query, fragment or user is an error.
pub(super) fn parse(text: &str) -> Result<UpstreamTarget, SyntaxError> {
    if text == "builtin:echo" {
        return Ok(UpstreamTarget::Echo);
    }
    if let Some(path) = text.strip_prefix("unix:") {
        return unix_socket(path).map(UpstreamTarget::Server);
    }
    let secure = text.starts_with("https://");
    let (scheme, default_port) = if secure { ("https://", 443) } else { ("http://", 80) };
    let Some(rest) = text.strip_prefix(scheme) else {
        let message = format!("{} is not the URL of a server", quoted(text));
        let forms =
            || "write `http://HOST:PORT`, `https://HOST:PORT`, `unix:/PATH`, or `builtin:echo`".to_owned();
        return Err(SyntaxError::new(message, remedies::http2_url(text).unwrap_or_else(forms)));
    };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority_text, after) = rest.split_at(end);
    let Some(base_path) = base_path(after) else {
        let message = format!("{} has a query, a fragment, or a path that is not normalised", quoted(text));
        let help = format!(
            "write `{scheme}{authority_text}`, or with a path that stands before each request's own: \
             `{scheme}{authority_text}/v1`"
        );
        return Err(SyntaxError::new(message, help));
    };
    if authority_text.contains('@') {
        // The text is not repeated: the part before the `@` may be a password.
        let help = "leave out what stands before the `@`, and use `set_request_headers` for `authorization`";
        return Err(SyntaxError::new("the URL of the server has a user", help));
    }
    let endpoint = authority(authority_text, default_port)?;
    Ok(UpstreamTarget::Server(Listed { endpoint, secure, base_path: base_path.into() }))
}

/// Parses the path of a Unix socket. A path that depends on the working directory is an error.
fn unix_socket(path: &str) -> Result<Listed, SyntaxError> {
    // `unix://` is how Traefik and others write it.
    let path = path.strip_prefix("//").filter(|rest| rest.starts_with('/')).unwrap_or(path);
    let example = || "write `unix:` and an absolute path: `unix:/run/app.sock`".to_owned();
    if !path.starts_with('/') || path.ends_with('/') {
        return Err(SyntaxError::new(
            format!("{} is not the absolute path of a Unix socket", quoted(path)),
            example(),
        ));
    }
    if let Some((socket, base)) = path.split_once(":/") {
        let message = format!("the Unix socket {} has a base path", quoted(socket));
        let help = format!("leave out `:/{base}`, and use `rewrite` of the routes");
        return Err(SyntaxError::new(message, help));
    }
    if path.len() > MAX_SOCKET_PATH {
        let message = format!("the path of the Unix socket has {} bytes", path.len());
        return Err(SyntaxError::new(
            message,
            format!("the operating system allows {MAX_SOCKET_PATH}: use a shorter path"),
        ));
    }
    if path.bytes().any(|byte| byte.is_ascii_control() || byte == b' ') {
        return Err(SyntaxError::new(
            format!("the path of the Unix socket {} has a space or a control character", quoted(path)),
            example(),
        ));
    }
    let endpoint = Endpoint {
        host: path.to_owned(),
        port: 0,
        unix_socket: Some(Path::new(path).into()),
        authority: format!("unix:{path}").into(),
        weight: 1,
        tls: None,
    };
    Ok(Listed { endpoint, secure: false, base_path: Box::default() })
}

/// A normalised path without its final slash.
fn base_path(text: &str) -> Option<&str> {
    let path = text.strip_suffix('/').unwrap_or(text);
    let is_plain = path.bytes().all(|byte| byte.is_ascii_graphic() && !b"{}*\"<>".contains(&byte));
    let is_normal = |path: &str| {
        RequestPath::parse(path, PathMatching::Strict).is_ok_and(|normal| normal.form(true) == path)
    };
    (path.is_empty() || is_plain && is_normal(path)).then_some(path)
}

/// Parses `HOST[:PORT]`, the host a name, an IPv4 address, or an IPv6 address in brackets.
pub(super) fn authority(text: &str, default_port: u16) -> Result<Endpoint, SyntaxError> {
    let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, after)) => (host, after),
        None => text.split_at(text.find(':').unwrap_or(text.len())),
    };
    let is_bracketed = text.starts_with('[');
    let is_host = if is_bracketed { host.parse::<Ipv6Addr>().is_ok() } else { is_name_or_ipv4(host) };
    if !is_host {
        let message = format!("{} is not a host", quoted(text));
        return Err(SyntaxError::new(message, host_help(text)));
    }
    let port = match port.strip_prefix(':') {
        None if port.is_empty() => default_port,
        port => port.and_then(parse_port).ok_or_else(|| {
            SyntaxError::new(
                format!("{} has no valid port", quoted(text)),
                "a port is a number from 1 to 65535",
            )
        })?,
    };
    let host = host.to_ascii_lowercase();
    let shown = if is_bracketed { format!("[{host}]") } else { host.clone() };
    let authority: Arc<str> = format!("{shown}:{port}").into();
    Ok(Endpoint { host, port, authority, weight: 1, unix_socket: None, tls: None })
}

fn host_help(text: &str) -> String {
    if text.parse::<Ipv6Addr>().is_ok() {
        return format!("put the IPv6 address in brackets: `[{text}]`");
    }
    "write a name, an IPv4 address, or an IPv6 address in brackets, such as `[::1]`".to_owned()
}

fn parse_port(text: &str) -> Option<u16> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|port| is_number && *port > 0)
}

/// A DNS name as it is used (RFC 1123, and `_`), or an IPv4 address. A name of digits only would be neither.
fn is_name_or_ipv4(host: &str) -> bool {
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
    };
    let name = host.strip_suffix('.').unwrap_or(host);
    let is_numeric =
        name.rsplit('.').next().is_some_and(|last| last.bytes().all(|byte| byte.is_ascii_digit()));
    if is_numeric {
        return host.parse::<Ipv4Addr>().is_ok();
    }
    name.len() <= 253 && name.split('.').all(is_label)
}
