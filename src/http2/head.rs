//! Heads on their way from HTTP/2 to HTTP/1.1 and back.

use bytes::{BufMut as _, Bytes, BytesMut};
use http::header::{CONTENT_LENGTH, COOKIE, HOST, HeaderMap, HeaderName, HeaderValue, TE};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{Method, Request, Response, StatusCode, Uri, Version, request, response};

use super::body::Rest;
use crate::http1::body::Body;
use crate::http1::fields::{Field, Fields};
use crate::http1::name::Name;
use crate::http1::request::RequestHead;
use crate::http1::response::ResponseHead;

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

/// Writes a backend's response head as HTTP/1.1. `ended`: no body follows; `to_head`: it answers HEAD.
pub fn write_response(head: &response::Parts, ended: bool, to_head: bool, out: &mut BytesMut) {
    let reason = head.status.canonical_reason().unwrap_or_default();
    put(out, &[b"HTTP/1.1 ", head.status.as_str().as_bytes(), b" ", reason.as_bytes(), b"\r\n"]);
    put_fields(&head.headers, out, |_, _| false);
    let bodiless = to_head
        || head.status.is_informational()
        || matches!(head.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    match (head.headers.contains_key(CONTENT_LENGTH), ended) {
        (false, true) if !bodiless => put(out, &[b"content-length: 0\r\n"]),
        (false, false) if !bodiless => put(out, &[b"transfer-encoding: chunked\r\n"]),
        _ => {}
    }
    put(out, &[b"\r\n"]);
}

/// A response head that was read as HTTP/1.1.
///
/// # Errors
/// A field that the `http` crate does not hold.
pub fn read_response(head: &ResponseHead, fields: Fields<'_>) -> Result<Response<()>, Unfit> {
    let mut response = Response::new(());
    *response.status_mut() = head.status;
    *response.version_mut() = Version::HTTP_2;
    take_fields(fields, |_| true, response.headers_mut())?;
    Ok(response)
}

/// A head of ours: a status line, lines of fields, and an empty line. Fields of one connection are left out.
///
/// # Errors
/// A field that the `http` crate does not hold.
pub fn response_of(head: Bytes) -> Result<Response<()>, Unfit> {
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

/// A request that we wrote as HTTP/1.1 ourselves.
#[derive(Debug)]
pub struct RequestOut {
    /// Its head.
    pub head: Request<()>,
    /// What follows that.
    pub rest: Rest,
}

impl RequestOut {
    /// Takes the head that `come` begins with. `None` if it is not there yet.
    ///
    /// # Errors
    /// It can not be said in HTTP/2.
    pub fn take(come: &mut BytesMut, scheme: Scheme) -> Option<Result<Self, Unfit>> {
        let length = memchr::memmem::find(come, b"\r\n\r\n")? + 4;
        let text = come.split_to(length);
        let mut spans = Vec::new();
        let head = RequestHead::parse(&text, &mut spans).map_err(|_| Unfit);
        Some(head.and_then(|head| {
            let rest = Rest::of(head.body);
            Ok(Self { head: read_request(&head, scheme)?, rest })
        }))
    }
}

fn read_request(head: &RequestHead<'_>, scheme: Scheme) -> Result<Request<()>, Unfit> {
    let host = head.fields.known(Name::Host).unwrap_or_default();
    let authority = Authority::try_from(host).map_err(|_| Unfit)?;
    let target = head.target.text;
    // OPTIONS `*` is the one target that is no path (RFC 9113 §8.3.1).
    let uri = Uri::builder().scheme(scheme).authority(authority).path_and_query(target);
    let mut request = Request::new(());
    *request.method_mut() = Method::clone(&head.method);
    *request.uri_mut() = uri.build().map_err(|_| Unfit)?;
    *request.version_mut() = Version::HTTP_2;
    take_fields(head.fields, |field| field.known != Name::Host, request.headers_mut())?;
    // Whatever trailers come are read, and passed on where the client takes them. gRPC servers insist.
    request.headers_mut().insert(TE, HeaderValue::from_static("trailers"));
    if head.body == Body::Chunked {
        request.headers_mut().remove(CONTENT_LENGTH);
    }
    Ok(request)
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

/// Copies the fields that concern more than one connection (RFC 9113 §8.2.2). The other version has its own framing.
fn take_fields(
    fields: Fields<'_>,
    wanted: impl Fn(&Field<'_>) -> bool,
    into: &mut HeaderMap,
) -> Result<(), Unfit> {
    for field in fields.iter().filter(|field| !field.known.is_hop_by_hop() && wanted(field)) {
        let name = HeaderName::from_bytes(field.name).map_err(|_| Unfit)?;
        let value = HeaderValue::from_bytes(field.value).map_err(|_| Unfit)?;
        into.try_append(name, value).map_err(|_| Unfit)?;
    }
    Ok(())
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

    #[test]
    fn a_response_comes_back_without_what_concerned_the_connection() {
        let text = b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\nconnection: close\r\nx: 1\r\nX: 2\r\ntransfer-coding: y\r\n\r\n";
        let mut spans = Vec::new();
        let head = ResponseHead::parse(text, false, &mut spans).expect("a head");
        let response = read_response(&head, Fields::new(text, &spans)).expect("a response");
        let names: Vec<_> =
            response.headers().iter().map(|(name, value)| format!("{name}={value:?}")).collect();
        assert_eq!(names, ["content-length=\"3\"", "x=\"1\"", "x=\"2\"", "transfer-coding=\"y\""]);
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
