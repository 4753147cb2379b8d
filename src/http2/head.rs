//! Heads on their way from HTTP/2 to HTTP/1.1 and back.

use std::borrow::Cow;

use bytes::{BufMut as _, Bytes, BytesMut};
use http::header::{CONTENT_LENGTH, COOKIE, HOST, HeaderMap, HeaderName, HeaderValue, TE};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{Method, Request, Response, StatusCode, Uri, Version, request, response};

use crate::http1::name::Name;

/// A head cannot be said in the other version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unfit;

/// Writes a client's request head as HTTP/1.1. It is to be read as strictly as if the client had sent it so: what is
/// wrong with it is found there. `ended`: no body follows.
pub fn write_request(head: &request::Parts, ended: bool, out: &mut BytesMut) {
    put(out, &[head.method.as_str().as_bytes(), b" "]);
    let authority = head.uri.authority();
    // CONNECT has no path. Whatever else has none is malformed, and no target is no target in HTTP/1.1 either.
    let target = head.uri.path_and_query().map(PathAndQuery::as_str);
    put(out, &[target.or(authority.map(Authority::as_str)).unwrap_or_default().as_bytes()]);
    put(out, &[b" HTTP/1.1\r\n"]);
    if let Some(authority) = authority {
        put_line(out, b"host", authority.as_str().as_bytes());
    }
    put_fields(&head.headers, out, |name, value| {
        // One that names another host stands beside the first, and two are refused.
        name == HOST && authority.is_some_and(|authority| same_host(authority, value))
    });
    put_cookies(&head.headers, out);
    if !ended && !head.headers.contains_key(CONTENT_LENGTH) {
        put(out, &[b"transfer-encoding: chunked\r\n"]);
    }
    put(out, &[b"\r\n"]);
}

/// Writes a server's response head as HTTP/1.1, for the strict grammar to read: its fields are kept where they stand then.
pub fn write_response(head: &response::Parts, out: &mut BytesMut) {
    let reason = head.status.canonical_reason().unwrap_or_default();
    put(out, &[b"HTTP/1.1 ", head.status.as_str().as_bytes(), b" ", reason.as_bytes(), b"\r\n"]);
    put_fields(&head.headers, out, |_, _| false);
    put(out, &[b"\r\n"]);
}

/// A head of ours: a status line, lines of fields, and an empty line. Fields of one connection are left out.
///
/// # Errors
/// A field that the `http` crate does not hold.
pub fn response_of(head: &[u8]) -> Result<Response<()>, Unfit> {
    // The values share one copy. HPACK's table holds some of them as long as the connection lives, so nothing more may hang on them.
    let head = Bytes::copy_from_slice(head);
    let mut lines = head.split(|&byte| byte == b'\n');
    let status = lines.next().and_then(|line| line.get(9..12)).ok_or(Unfit)?;
    let mut response = Response::new(());
    *response.status_mut() = StatusCode::from_bytes(status).map_err(|_| Unfit)?;
    *response.version_mut() = Version::HTTP_2;
    for line in lines.filter_map(|line| line.strip_suffix(b"\r")).take_while(|line| !line.is_empty()) {
        let colon = memchr::memchr(b':', line).ok_or(Unfit)?;
        if Name::of(&line[..colon]).is_hop_by_hop() {
            continue;
        }
        let name = HeaderName::from_bytes(&line[..colon]).map_err(|_| Unfit)?;
        let value = head.slice_ref(line[colon + 1..].trim_ascii());
        let value = HeaderValue::from_maybe_shared(value).map_err(|_| Unfit)?;
        response.headers_mut().try_append(name, value).map_err(|_| Unfit)?;
    }
    Ok(response)
}

/// A head of ours, for a server: a request line, lines of fields with `host` among them, and an empty line. Fields of one
/// connection are left out. What the grammar of a path does not hold (`"`, `<`, `>`, …) is percent-encoded.
///
/// # Errors
/// A field that the `http` crate does not hold.
pub fn request_of(head: &[u8], scheme: Scheme) -> Result<Request<()>, Unfit> {
    // See [`response_of`].
    let head = Bytes::copy_from_slice(head);
    let mut lines = head.split(|&byte| byte == b'\n').filter_map(|line| line.strip_suffix(b"\r"));
    let line = lines.next().and_then(|line| line.strip_suffix(b" HTTP/1.1")).ok_or(Unfit)?;
    let blank = memchr::memchr(b' ', line).ok_or(Unfit)?;
    let mut request = Request::new(());
    *request.method_mut() = Method::from_bytes(&line[..blank]).map_err(|_| Unfit)?;
    let target = encoded(&line[blank + 1..]);
    let (mut host, mut chunked) = (Bytes::new(), false);
    for line in lines.take_while(|line| !line.is_empty()) {
        let colon = memchr::memchr(b':', line).ok_or(Unfit)?;
        let value = head.slice_ref(line[colon + 1..].trim_ascii());
        match Name::of(&line[..colon]) {
            Name::Host => host = value,
            Name::TransferEncoding => chunked = true,
            name if name.is_hop_by_hop() => {}
            _ => {
                let name = HeaderName::from_bytes(&line[..colon]).map_err(|_| Unfit)?;
                let value = HeaderValue::from_maybe_shared(value).map_err(|_| Unfit)?;
                request.headers_mut().try_append(name, value).map_err(|_| Unfit)?;
            }
        }
    }
    if chunked {
        request.headers_mut().remove(CONTENT_LENGTH);
    }
    // Whatever trailers come are read, and passed on where the client takes them. gRPC servers insist.
    request.headers_mut().insert(TE, HeaderValue::from_static("trailers"));
    let mut uri = Uri::builder().path_and_query(target.as_ref());
    match Authority::from_maybe_shared(host.clone()) {
        Ok(authority) => {
            uri = uri.scheme(scheme).authority(authority);
            *request.version_mut() = Version::HTTP_2;
        }
        // No authority, as of `host:` with nothing behind it: the `h2` crate lets only a request of HTTP/1.1 have none.
        Err(_) if !host.is_empty() => {
            let host = HeaderValue::from_maybe_shared(host).map_err(|_| Unfit)?;
            request.headers_mut().insert(HOST, host);
        }
        Err(_) => {}
    }
    *request.uri_mut() = uri.build().map_err(|_| Unfit)?;
    Ok(request)
}

/// A target with what is no character of a path or query percent-encoded (RFC 3986 §3.3): clients send it, and HTTP/1.1 servers
/// take it.
fn encoded(target: &[u8]) -> Cow<'_, [u8]> {
    let is_foreign =
        |byte: &u8| matches!(byte, b'"' | b'<' | b'>' | b'\\' | b'^' | b'`' | b'{' | b'|' | b'}' | 0x80..);
    if !target.iter().any(is_foreign) {
        return Cow::Borrowed(target);
    }
    let mut encoded = Vec::with_capacity(target.len() + 16);
    for byte in target {
        if is_foreign(byte) {
            encoded.extend_from_slice(format!("%{byte:02X}").as_bytes());
        } else {
            encoded.push(*byte);
        }
    }
    Cow::Owned(encoded)
}

/// Trailer lines, each with its CR LF, as fields. What is none is left out.
pub fn read_trailers(lines: &[u8]) -> HeaderMap {
    let fields = lines.split(|&byte| byte == b'\n').filter_map(|line| {
        let line = line.strip_suffix(b"\r")?;
        let colon = memchr::memchr(b':', line)?;
        let name = HeaderName::from_bytes(line.get(..colon)?).ok()?;
        Some((name, HeaderValue::from_bytes(line.get(colon + 1..)?.trim_ascii()).ok()?))
    });
    let mut trailers = HeaderMap::new();
    // A number of them that the map does not hold was not let through by the bound on their size.
    fields.for_each(|(name, value)| drop(trailers.try_append(name, value)));
    trailers
}

/// Trailers as lines.
pub fn write_trailers(trailers: &HeaderMap, out: &mut BytesMut) {
    trailers.iter().for_each(|(name, value)| put_line(out, name.as_str().as_bytes(), value.as_bytes()));
}

/// Cookies may come in crumbs (RFC 9113 §8.2.3), each a field: see [`put_cookies`].
fn put_fields(fields: &HeaderMap, out: &mut BytesMut, dropped: impl Fn(&HeaderName, &HeaderValue) -> bool) {
    for (name, value) in fields.iter().filter(|&(name, value)| name != COOKIE && !dropped(name, value)) {
        put_line(out, name.as_str().as_bytes(), value.as_bytes());
    }
}

/// Joins the crumbs of cookies: HTTP/1.1 allows one field.
fn put_cookies(fields: &HeaderMap, out: &mut BytesMut) {
    let mut crumbs = fields.get_all(COOKIE).iter();
    if let Some(first) = crumbs.next() {
        put(out, &[b"cookie: ", first.as_bytes()]);
        crumbs.for_each(|crumb| put(out, &[b"; ", crumb.as_bytes()]));
        put(out, &[b"\r\n"]);
    }
}

fn same_host(authority: &Authority, host: &HeaderValue) -> bool {
    host.as_bytes().eq_ignore_ascii_case(authority.as_str().as_bytes())
}

fn put_line(out: &mut BytesMut, name: &[u8], value: &[u8]) {
    put(out, &[name, b": ", value, b"\r\n"]);
}

fn put(out: &mut BytesMut, parts: &[&[u8]]) {
    out.reserve(parts.iter().map(|part| part.len()).sum());
    parts.iter().for_each(|part| out.put_slice(part));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(request: request::Builder, ended: bool) -> String {
        let (head, ()) = request.body(()).expect("a request").into_parts();
        let mut out = BytesMut::new();
        write_request(&head, ended, &mut out);
        String::from_utf8(out.to_vec()).expect("text")
    }

    #[test]
    fn a_request_is_written_as_http_1_1() {
        let request = Request::get("https://a.example:8443/x?y=1")
            .header("cookie", "a=1")
            .header("accept", "*/*")
            .header("host", "A.example:8443")
            .header("cookie", "b=2");
        assert_eq!(
            written(request, true),
            "GET /x?y=1 HTTP/1.1\r\nhost: a.example:8443\r\naccept: */*\r\ncookie: a=1; b=2\r\n\r\n"
        );
        let request = Request::post("http://a/x").header("host", "b");
        assert_eq!(
            written(request, false),
            "POST /x HTTP/1.1\r\nhost: a\r\nhost: b\r\ntransfer-encoding: chunked\r\n\r\n",
            "two hosts: to be refused by whoever reads it"
        );
        let request = Request::post("/x").header("host", "b").header("content-length", "3");
        assert_eq!(written(request, false), "POST /x HTTP/1.1\r\nhost: b\r\ncontent-length: 3\r\n\r\n");
    }

    fn lines(headers: &HeaderMap) -> Vec<String> {
        headers.iter().map(|(name, value)| format!("{name}={value:?}")).collect()
    }

    #[test]
    fn a_response_goes_without_what_concerns_the_connection() {
        let text = "HTTP/1.1 404 Not here\r\ncontent-length: 3\r\nconnection: close\r\nx: 1\r\nX:2\r\ntransfer-encoding: y\r\n\r\n";
        let response = response_of(text.as_bytes()).expect("a response");
        assert_eq!(response.status(), StatusCode::NOT_FOUND);
        assert_eq!(lines(response.headers()), ["content-length=\"3\"", "x=\"1\"", "x=\"2\""]);
    }

    fn request(text: &str) -> Request<()> {
        request_of(text.as_bytes(), Scheme::HTTP).expect("a request")
    }

    #[test]
    fn a_request_goes_with_its_host_as_authority() {
        let text = "POST /a?b HTTP/1.1\r\nhost: b.test:80\r\nX-A: 1\r\ncontent-length: 9\r\ntransfer-encoding: chunked\r\nconnection: te\r\nte: x\r\n\r\n";
        let head = request(text);
        assert_eq!((head.method(), head.version()), (&Method::POST, Version::HTTP_2));
        assert_eq!(head.uri().to_string(), "http://b.test:80/a?b");
        assert_eq!(lines(head.headers()), ["x-a=\"1\"", "te=\"trailers\""]);
    }

    /// What servers of HTTP/1.1 take goes to those of HTTP/2, too.
    #[test]
    fn any_head_can_be_said() {
        let head = request("GET /<a>`{b}|\"^?q=<\u{e9}> HTTP/1.1\r\nhost: a\r\n\r\n");
        assert_eq!(head.uri().path(), "/%3Ca%3E%60%7Bb%7D%7C%22%5E");
        assert_eq!(head.uri().query(), Some("q=%3C%C3%A9%3E"));
        let head = request("OPTIONS * HTTP/1.1\r\nhost: \r\n\r\n");
        assert_eq!((head.uri().authority(), head.uri().path()), (None, "*"));
        let fields: String = (0..300).map(|number| format!("x-{number}: {number}\r\n")).collect();
        let head = request(&format!("GET / HTTP/1.1\r\nhost: a\r\n{fields}\r\n"));
        assert_eq!(head.headers().len(), 301);
        for cut in ["", "GET", "GET /", "GET / HTTP/1.1\r\nno field\r\n\r\n", "GET / HTTP/1.1\r\n: x\r\n\r\n"]
        {
            assert!(request_of(cut.as_bytes(), Scheme::HTTP).is_err(), "{cut}");
        }
    }

    #[test]
    fn trailers_go_there_and_back() {
        let lines = b"grpc-status: 0\r\ngrpc-message: a b\r\n";
        let trailers = read_trailers(lines);
        let mut out = BytesMut::new();
        write_trailers(&trailers, &mut out);
        assert_eq!(&out[..], lines);
        assert!(read_trailers(b"no field\r\n: x\r\n").is_empty());
    }
}
