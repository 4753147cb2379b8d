//! The request that another proxy forwards, or would: its head and its client, from the fields of the proxy's own request.
//!
//! Each family of fields is read alone. A client can send the fields of the other family through the proxy, which does not
//! know them, and gains nothing by it. The head is written as text, and parsed again by the gateway's only parser, so that
//! no value of a field can add a line or change a method.

use std::net::IpAddr;

use http::Method;

use crate::http1::fields::{Field, Fields};
use crate::http1::name::{Name, same_to_cgi};
use crate::http1::request::RequestHead;
use crate::http1::syntax::is_named;
use crate::route::client::{ClientAddress, ClientRule};

/// Fields that say which request is asked about, and who asks. The request itself has none of them.
const ABOUT: [&[u8]; 14] = [
    b"forwarded",
    b"x-forwarded-for",
    b"x-forwarded-host",
    b"x-forwarded-method",
    b"x-forwarded-port",
    b"x-forwarded-prefix",
    b"x-forwarded-proto",
    b"x-forwarded-server",
    b"x-forwarded-uri",
    b"x-original-method",
    b"x-original-uri",
    b"x-original-url",
    b"x-real-ip",
    b"x-tollgate-token",
];

/// The request that is asked about.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct AskedRequest {
    /// Its head, as HTTP/1.1.
    pub(super) head: Vec<u8>,
    pub(super) client: ClientAddress,
    /// Its client uses TLS. Where the proxy does not say, it counts as if it did: a redirect to https would have no end.
    pub(super) secure: bool,
}

/// Why the request that is asked about cannot be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum AskedFault {
    /// The field is missing.
    #[error("the field {0} is missing")]
    Missing(&'static str),
    /// The field comes more than once.
    #[error("the field {0} comes more than once")]
    Repeated(&'static str),
    /// The value is none that a request has.
    #[error("the value of {0} is malformed")]
    Malformed(&'static str),
    /// Both fields of nginx are there, and name different requests: one of them may be the client's own.
    #[error(
        "x-original-url and x-original-uri name different requests: set one of them to \"\" in the proxy"
    )]
    Contradiction,
    /// There is no address of a client.
    #[error("the client is not named: send x-real-ip or x-forwarded-for")]
    NoClient,
}

impl AskedRequest {
    /// Of `x-forwarded-method`, `x-forwarded-proto`, `x-forwarded-host` and `x-forwarded-uri` (Traefik, Caddy).
    pub(super) fn forwarded(asker: Fields<'_>, rule: &ClientRule) -> Result<Self, AskedFault> {
        let method = required(asker, "x-forwarded-method")?;
        let secure = is_secure("x-forwarded-proto", required(asker, "x-forwarded-proto")?)?;
        let host = required(asker, "x-forwarded-host")?;
        let target = required(asker, "x-forwarded-uri")?;
        let client = rule.forwarded_client(asker).ok_or(AskedFault::NoClient)?;
        let head = written(("x-forwarded-method", method), ("x-forwarded-uri", target), host, asker)?;
        Ok(Self { head, client, secure })
    }

    /// Of `x-original-method`, and `x-original-url` or `x-original-uri` (nginx). The host of the latter is that of the
    /// proxy's request. Where both are there, both must name the same: nginx passes on the one that it does not set.
    pub(super) fn original(asker: &RequestHead<'_>, rule: &ClientRule) -> Result<Self, AskedFault> {
        let fields = asker.fields;
        let method = required(fields, "x-original-method")?;
        let (url, path) = (single(fields, "x-original-url")?, single(fields, "x-original-uri")?);
        let (name, secure, host, target) = match (url, path) {
            (Some(url), path) => {
                let (secure, host, target) = split_url(url).ok_or(AskedFault::Malformed("x-original-url"))?;
                let own_host = asker.host.unwrap_or_default().as_bytes();
                if path.is_some_and(|path| path != target || !host.eq_ignore_ascii_case(own_host)) {
                    return Err(AskedFault::Contradiction);
                }
                ("x-original-url", secure, host, target)
            }
            (None, Some(path)) => {
                let host = asker.host.unwrap_or_default().as_bytes();
                ("x-original-uri", true, host, path)
            }
            (None, None) => return Err(AskedFault::Missing("x-original-url")),
        };
        let client = match single(fields, "x-real-ip")? {
            Some(address) => {
                let text = std::str::from_utf8(address).ok();
                let address = text.and_then(|text| text.parse::<IpAddr>().ok());
                rule.client(address.ok_or(AskedFault::Malformed("x-real-ip"))?)
            }
            None => rule.forwarded_client(fields).ok_or(AskedFault::NoClient)?,
        };
        let target = if target.is_empty() { b"/" } else { target };
        let head = written(("x-original-method", method), (name, target), host, fields)?;
        Ok(Self { head, client, secure })
    }

    /// The proxy's request itself, at this path (Envoy).
    pub(super) fn itself(asker: &RequestHead<'_>, path: &str, rule: &ClientRule) -> Result<Self, AskedFault> {
        let secure = match asker.fields.known(Name::XForwardedProto) {
            Some(value) => is_secure("x-forwarded-proto", value)?,
            None => true,
        };
        let client = rule.forwarded_client(asker.fields).ok_or(AskedFault::NoClient)?;
        let mut target = if path.is_empty() { b"/".to_vec() } else { path.as_bytes().to_vec() };
        if let Some(query) = asker.target.query {
            target.push(b'?');
            target.extend_from_slice(query.as_bytes());
        }
        let host = asker.target.authority.or(asker.host).unwrap_or_default().as_bytes();
        let method = asker.method.as_str().as_bytes();
        let head = written(("method", method), ("path", &target), host, asker.fields)?;
        Ok(Self { head, client, secure })
    }

    /// A request that an application describes.
    pub(super) fn described(
        method: &Method,
        url: &str,
        headers: &[(String, String)],
        client: ClientAddress,
    ) -> Result<Self, AskedFault> {
        let named =
            |name: &str| headers.iter().filter(|(other, _)| other.eq_ignore_ascii_case(name)).collect();
        let hosts: Vec<&(String, String)> = named("host");
        let (secure, host, target) = match url.as_bytes() {
            [b'/', ..] => {
                let host = match hosts.as_slice() {
                    [] => None,
                    [(_, host)] => Some(host.as_bytes()),
                    _ => return Err(AskedFault::Repeated("host")),
                };
                (true, host, url.as_bytes())
            }
            _ => {
                let url = split_url(url.as_bytes()).ok_or(AskedFault::Malformed("url"))?;
                (url.0, Some(url.1), url.2)
            }
        };
        let target = if target.is_empty() { b"/" } else { target };
        let mut head = begun(("method", method.as_str().as_bytes()), ("url", target), host)?;
        for (name, value) in headers {
            let (name, value) = (name.as_bytes(), value.as_bytes());
            let is_line = |bytes: &[u8]| !bytes.iter().any(|byte| matches!(byte, b'\r' | b'\n'));
            if name.is_empty() || !is_line(name) || !is_line(value) || name.contains(&b':') {
                return Err(AskedFault::Malformed("headers"));
            }
            if passes(&Field { known: Name::of(name), name, value }) {
                put_line(&mut head, name, value);
            }
        }
        head.extend_from_slice(b"\r\n");
        Ok(Self { head, client, secure })
    }
}

/// Writes the head of the request: method, target, host, and the fields of the asker's request that are the client's.
fn written(
    method: (&'static str, &[u8]),
    target: (&'static str, &[u8]),
    host: &[u8],
    fields: Fields<'_>,
) -> Result<Vec<u8>, AskedFault> {
    let mut head = begun(method, target, Some(host))?;
    for field in fields.iter().filter(passes) {
        put_line(&mut head, field.name, field.value);
    }
    head.extend_from_slice(b"\r\n");
    Ok(head)
}

/// The request line and the host; a request without one is of HTTP/1.0. A blank would end a method or a target, so that another request would be asked about.
fn begun(
    (method_name, method): (&'static str, &[u8]),
    (target_name, target): (&'static str, &[u8]),
    host: Option<&[u8]>,
) -> Result<Vec<u8>, AskedFault> {
    let has_blank = |text: &[u8]| text.iter().any(|byte| *byte <= b' ');
    if method.is_empty() || has_blank(method) {
        return Err(AskedFault::Malformed(method_name));
    }
    // A proxy that asks about `*`, or names another host in the target, asks about no path of its own.
    if target.first() != Some(&b'/') || has_blank(target) {
        return Err(AskedFault::Malformed(target_name));
    }
    let mut head = Vec::with_capacity(512);
    let version: &[u8] = if host.is_some() { b" HTTP/1.1\r\n" } else { b" HTTP/1.0\r\n" };
    [method, b" ", target, version].into_iter().for_each(|part| head.extend_from_slice(part));
    if let Some(host) = host {
        put_line(&mut head, b"host", host);
    }
    Ok(head)
}

fn put_line(head: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    [name, b": ", value, b"\r\n"].into_iter().for_each(|part| head.extend_from_slice(part));
}

/// Whether a field of the asker's request is one of the client's, and not of the connection, the body, or the question.
fn passes(field: &Field<'_>) -> bool {
    let of_message = matches!(field.known, Name::ContentLength | Name::Expect | Name::Host | Name::Trailer);
    !of_message
        && !field.known.is_hop_by_hop()
        && !ABOUT.iter().any(|about| same_to_cgi(field.name, about))
        && !same_to_cgi(field.name, b"content-length")
}

/// The value of a field that must not come twice: of two, one is perhaps the client's.
fn single<'h>(fields: Fields<'h>, name: &'static str) -> Result<Option<&'h [u8]>, AskedFault> {
    let mut values = fields.iter().filter(|field| is_named(field.name, name.as_bytes()));
    match (values.next(), values.next()) {
        (first, None) => Ok(first.map(|field| field.value)),
        _ => Err(AskedFault::Repeated(name)),
    }
}

fn required<'h>(fields: Fields<'h>, name: &'static str) -> Result<&'h [u8], AskedFault> {
    single(fields, name)?.ok_or(AskedFault::Missing(name))
}

/// Whether a scheme is one of TLS. Traefik says `ws` and `wss` of WebSocket.
fn is_secure(name: &'static str, scheme: &[u8]) -> Result<bool, AskedFault> {
    match scheme {
        b"https" | b"wss" => Ok(true),
        b"http" | b"ws" => Ok(false),
        _ => Err(AskedFault::Malformed(name)),
    }
}

/// Whether a URL is one of TLS, its host, and its path with the query.
fn split_url(url: &[u8]) -> Option<(bool, &[u8], &[u8])> {
    let (secure, rest) = match (url.strip_prefix(b"https://"), url.strip_prefix(b"http://")) {
        (Some(rest), _) => (true, rest),
        (_, Some(rest)) => (false, rest),
        _ => return None,
    };
    let end = rest.iter().position(|byte| matches!(byte, b'/' | b'?' | b'#')).unwrap_or(rest.len());
    let (host, target) = rest.split_at(end);
    // Before `?` there has to be a path, and user information names no host.
    let is_fit = !host.is_empty() && !host.contains(&b'@') && matches!(target.first(), None | Some(b'/'));
    is_fit.then_some((secure, host, target))
}

#[cfg(test)]
mod tests;
