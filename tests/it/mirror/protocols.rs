//! Copies between versions of HTTP, over TLS, and with PROXY protocol headers.

use std::io::Read as _;
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use h2::RecvStream;
use h2::server::{Builder, SendResponse};
use http::{HeaderMap, HeaderValue, Method, Request, Response};

use super::{file, post, wait_for, with_urls};
use crate::harness::{
    AllVersions, Authority, Backend, Body, Client, Gateway, Http2Backend, eventually, h2_get, send,
};

/// A request as a server of HTTP/2 has seen it.
#[derive(Clone, Debug)]
struct Seen {
    head: http::request::Parts,
    body: Vec<u8>,
    trailers: Option<HeaderMap>,
}

/// A server of HTTP/2, and the requests that it has seen whole.
fn http2() -> (Http2Backend, Arc<Mutex<Vec<Seen>>>) {
    let seen = Arc::<Mutex<Vec<Seen>>>::default();
    let all = Arc::clone(&seen);
    let backend = Http2Backend::start(Builder::new(), move |request: Request<RecvStream>, respond| {
        let all = Arc::clone(&all);
        async move {
            let (head, mut stream) = request.into_parts();
            let mut body = Vec::new();
            while let Some(Ok(part)) = stream.data().await {
                stream.flow_control().release_capacity(part.len()).expect("it was taken");
                body.extend_from_slice(&part);
            }
            let trailers = stream.trailers().await.ok().flatten();
            all.lock().expect("no panic inside").push(Seen { head, body, trailers });
            answer(respond);
        }
    });
    (backend, seen)
}

fn answer(mut respond: SendResponse<Bytes>) {
    let mut out = respond.send_response(Response::new(()), false).expect("the gateway waits");
    out.send_data(Bytes::from_static(b"ok"), true).ok();
}

fn only(seen: &Mutex<Vec<Seen>>, index: usize) -> Seen {
    eventually("a request", || seen.lock().expect("no panic inside").get(index).cloned())
}

/// A POST with this body and a trailer.
fn with_trailer(body: &[u8]) -> (Request<()>, Body) {
    let mut request = h2_get("/a");
    *request.method_mut() = Method::POST;
    request.headers_mut().insert("trailer", HeaderValue::from_static("x-sum"));
    let mut trailers = HeaderMap::new();
    trailers.insert("x-sum", HeaderValue::from_static("7"));
    (request, Body { bytes: body.to_vec(), trailers: Some(trailers) })
}

#[test]
fn a_backend_of_http_1_and_a_mirror_of_http_2() {
    let (api, (canary, seen)) = (Backend::ok(), http2());
    let urls = (&*api.url(), &*canary.url());
    let gateway = Gateway::start(&with_urls(urls, ("", ""), "protocol = \"http2\""));
    let body = "abc".repeat(10_000);
    gateway.get("/a?b").expect(200);
    let first = only(&seen, 0);
    assert_eq!(first.head.uri.path_and_query().map(|path| path.as_str()), Some("/a?b"));
    assert_eq!(first.head.headers["x-tollgate-mirror"], "1");
    assert_eq!(
        first.head.headers["x-request-id"],
        api.latest().header("x-request-id").expect("a field").as_str()
    );
    send(gateway.addr(), post("/", &body)).expect(200);
    assert_eq!(only(&seen, 1).body, body.as_bytes());
    let chunks = format!(
        "POST / HTTP/1.1\r\nhost: test\r\ntransfer-encoding: chunked\r\ntrailer: x-sum\r\n\r\n{:x}\r\n{body}\r\n0\r\nx-sum: 7\r\n\r\n",
        body.len()
    );
    send(gateway.addr(), chunks).expect(200);
    let third = only(&seen, 2);
    assert_eq!(
        (third.body, third.trailers.expect("trailers")["x-sum"].clone()),
        (body.into(), "7".parse().expect("text"))
    );
    wait_for(&gateway, "sent", 3);
}

#[test]
fn a_backend_of_http_2_and_a_mirror_of_http_1() {
    let ((api, seen), canary) = (http2(), Backend::ok());
    let toml = with_urls((&api.url(), &canary.url()), ("", ""), "")
        .replace(&format!("api = \"{}\"\n", api.url()), "")
        + &format!("[upstreams.api]\nservers = [\"{}\"]\nprotocol = \"http2\"\n", api.url());
    let gateway = AllVersions::start(&toml);
    let body = b"abc".repeat(10_000);
    let clients = gateway.clients();
    let mut count = 0;
    for client in &clients {
        let (request, sent) = with_trailer(&body);
        client.exchange(request, sent).expect("an answer").expect(200);
        assert_eq!(only(&seen, count).body, body);
        canary.wait_for(count + 1);
        eventually("its body", || (canary.latest().body == body).then_some(()));
        eventually("its trailers", || (canary.latest().trailers == "x-sum: 7\r\n").then_some(()));
        client.get("/b").expect(200);
        count += 2;
        canary.wait_for(count);
    }
    send(gateway.addr(), post("/", "abc")).expect(200);
    wait_for(&gateway, "sent", u32::try_from(count + 1).expect("few"));
    assert_eq!(canary.latest().body, b"abc");
}

#[test]
fn http_2_or_later_on_all_sides() {
    let ((api, seen), (canary, copied)) = (http2(), http2());
    let toml = with_urls((&api.url(), &canary.url()), ("", ""), "protocol = \"http2\"")
        .replace(&format!("api = \"{}\"\n", api.url()), "")
        + &format!("[upstreams.api]\nservers = [\"{}\"]\nprotocol = \"http2\"\n", api.url());
    let gateway = AllVersions::start(&toml);
    let body = b"abc".repeat(10_000);
    let mut count = 0;
    for client in gateway.clients() {
        let (request, sent) = with_trailer(&body);
        client.exchange(request, sent).expect("an answer").expect(200);
        let (original, copy) = (only(&seen, count), only(&copied, count));
        assert_eq!((&original.body, &original.trailers), (&copy.body, &copy.trailers));
        let mut headers = copy.head.headers.clone();
        headers.remove("x-tollgate-mirror").expect("the mark");
        assert_eq!(
            (headers, &copy.head.uri),
            (
                original.head.headers.clone(),
                &original.head.uri.to_string().replace(&api.url(), &canary.url()).parse().expect("a URI")
            )
        );
        client.all((0..50).map(|_| (h2_get("/"), Body::default()))).into_iter().for_each(|answer| {
            answer.expect("an answer").expect(200);
        });
        count += 51;
        wait_for(&gateway, "sent", u32::try_from(count).expect("few"));
    }
    assert!(canary.connections() <= 4, "{}", canary.connections());
}

/// A stream of messages is copied if it ends, as a unary call does.
#[test]
fn calls_of_grpc_are_copied() {
    let ((api, seen), (canary, copied)) = (http2(), http2());
    let toml = with_urls((&api.url(), &canary.url()), ("", ""), "protocol = \"http2\"")
        .replace(&format!("api = \"{}\"\n", api.url()), "")
        + &format!("[upstreams.api]\nservers = [\"{}\"]\nprotocol = \"http2\"\n", api.url());
    let gateway = AllVersions::start(&toml);
    let mut request = h2_get("/shop.Shop/Buy");
    *request.method_mut() = Method::POST;
    request.headers_mut().insert("content-type", HeaderValue::from_static("application/grpc"));
    request.headers_mut().insert("te", HeaderValue::from_static("trailers"));
    let message = [0, 0, 0, 0, 3, 1, 2, 3];
    for (number, client) in gateway.clients().into_iter().enumerate() {
        client.exchange(request.clone(), &message[..]).expect("an answer").expect(200);
        assert_eq!(only(&seen, number).body, message);
        let copy = only(&copied, number);
        assert_eq!(
            (copy.body.as_slice(), &copy.head.headers["te"]),
            (&message[..], &HeaderValue::from_static("trailers"))
        );
    }
}

#[test]
fn a_mirror_over_tls() {
    let authority = Authority::new();
    authority.certify("server", &["a.test", "127.0.0.1"]);
    let (api, canary) = (Backend::ok(), Backend::ok_tls(authority.backend("server")));
    let urls = (&*api.url(), &*canary.url());
    let gateway = Gateway::start(&with_urls(urls, ("", ""), &authority.trusted("")));
    let mut client = Client::connect(gateway.addr());
    for _ in 0..5 {
        client.exchange(post("/", "abc")).expect(200);
    }
    wait_for(&gateway, "sent", 5);
    assert!(canary.requests().iter().all(|request| request.body == b"abc"));
    let stranger = Authority::new();
    let gateway = Gateway::start(&with_urls(urls, ("", ""), &stranger.trusted("")));
    gateway.get("/").expect(200);
    wait_for(&gateway, "failed", 1);
}

#[test]
fn a_client_over_tls_is_copied() {
    let authority = Authority::new();
    authority.certify("server", &["a.test"]);
    let (api, canary) = (Backend::ok(), Backend::ok());
    let toml = format!(
        "[server]\nlisten = [{{ address = \"127.0.0.1:0\", tls = true }}]\n{}{}",
        authority.server("server"),
        file(&api, &canary, "", "")
    );
    let gateway = Gateway::start(&toml);
    let mut client = Client::connect_tls(gateway.addr(), &authority.client(), "a.test");
    client.exchange(post("/", "abc")).expect(200);
    wait_for(&gateway, "sent", 1);
    assert_eq!(canary.only().header("x-forwarded-proto").as_deref(), Some("https"));
    assert_eq!(canary.only().body, b"abc");
}

/// The connection of a copy begins with the header of its client.
#[test]
fn a_mirror_behind_the_proxy_protocol() {
    let api = Backend::ok();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("http://{}", listener.local_addr().expect("bound"));
    let gateway = Gateway::start(&with_urls((&api.url(), &url), ("", ""), "send_proxy_protocol = \"v1\""));
    let mut client = Client::connect_from([127, 0, 3, 1].into(), gateway.addr());
    client.get("/", "").expect(200);
    let (mut stream, _) = listener.accept().expect("a connection");
    let mut begin = [0; 29];
    stream.read_exact(&mut begin).expect("bytes");
    let begin = String::from_utf8_lossy(&begin).into_owned();
    assert!(begin.starts_with("PROXY TCP4 127.0.3.1 127.0.0."), "{begin}");
}
