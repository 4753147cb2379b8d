//! HTTP/2 to backends that keep to it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use h2::server::{Builder, SendResponse};
use h2::{RecvStream, SendStream};
use http::{HeaderMap, Method, Request, Response, StatusCode};

use crate::harness::servers::{ALONE, is_cut, over, over_http2};
use crate::harness::{Authority, Backend, Client, Gateway, Http2Backend, eventually, send, send_all};

fn begin(respond: &mut SendResponse<Bytes>, status: u16) -> SendStream<Bytes> {
    let status = StatusCode::from_u16(status).expect("a status");
    let mut head = Response::new(());
    *head.status_mut() = status;
    respond.send_response(head, false).expect("the gateway waits for it")
}

async fn answer(mut respond: SendResponse<Bytes>, body: impl Into<Bytes>) {
    send_all(&mut begin(&mut respond, 200), body.into(), true).await;
}

async fn read(body: &mut RecvStream) -> BytesMut {
    let mut whole = BytesMut::new();
    while let Some(Ok(part)) = body.data().await {
        body.flow_control().release_capacity(part.len()).expect("it was taken");
        whole.extend_from_slice(&part);
    }
    whole
}

/// Sends the body back as it comes, and its trailers behind that.
async fn echo(request: Request<RecvStream>, mut respond: SendResponse<Bytes>) {
    let mut body = request.into_body();
    let mut out = begin(&mut respond, 200);
    while let Some(Ok(part)) = body.data().await {
        body.flow_control().release_capacity(part.len()).expect("it was taken");
        send_all(&mut out, part, false).await;
    }
    match body.trailers().await {
        Ok(Some(trailers)) => out.send_trailers(trailers).expect("the gateway reads"),
        _ => out.send_data(Bytes::new(), true).expect("the gateway reads"),
    }
}

fn large(length: u32) -> Bytes {
    (0..length).map(|place| (place % 251) as u8).collect::<Vec<u8>>().into()
}

/// Answers when this number of requests has arrived.
fn gathering(count: usize) -> Http2Backend {
    let here = Arc::new(AtomicUsize::new(0));
    Http2Backend::start(Builder::new(), move |_, respond| {
        let here = Arc::clone(&here);
        async move {
            here.fetch_add(1, Ordering::SeqCst);
            while here.load(Ordering::SeqCst) < count {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            answer(respond, "ok").await;
        }
    })
}

#[test]
fn many_requests_share_a_connection() {
    let backend = gathering(100);
    let gateway = Gateway::start(&over_http2(&[&backend.url()], "", ""));
    let ask = |_| {
        let mut client = Client::connect(gateway.addr());
        client.write("GET / HTTP/1.1\r\nhost: test\r\n\r\n");
        client
    };
    let clients: Vec<Client> = (0..100).map(ask).collect();
    for mut client in clients {
        assert_eq!(client.read().expect(200).text(), "ok");
    }
    assert!(backend.connections() <= 2, "one for each worker, not {}", backend.connections());
}

/// What a backend of HTTP/1.1 would get, one of HTTP/2 gets, too.
#[test]
fn any_legal_head_reaches_the_backend() {
    let backend = Http2Backend::start(Builder::new(), |request: Request<RecvStream>, respond| async move {
        let (head, _) = request.into_parts();
        let target = head.uri.path_and_query().map_or("none", |target| target.as_str());
        let own = head.headers.keys().filter(|name| name.as_str().starts_with("x-own-")).count();
        let host = head.uri.authority().map_or("none", |authority| authority.as_str());
        answer(respond, format!("{} {target} of {host} with {own}", head.method)).await;
    });
    let gateway = Gateway::start(&over_http2(&[&backend.url()], "", ""));
    let ask = |line: &str, fields: &str| {
        let response = send(gateway.addr(), format!("{line} HTTP/1.1\r\n{fields}\r\n"));
        response.expect(200).text()
    };
    let many: String = (0..98).map(|number| format!("x-own-{number}: {number}\r\n")).collect();
    assert_eq!(ask("GET /", &format!("host: a\r\n{many}")), "GET / of a with 98");
    assert_eq!(
        ask("GET /<a>`{b}|\"^?q=<\">", "host: a\r\n"),
        "GET /%3Ca%3E%60%7Bb%7D%7C%22%5E?q=%3C%22%3E of a with 0"
    );
    assert_eq!(ask("OPTIONS /x", "host: a:80\r\n"), "OPTIONS /x of a with 0");
    assert_eq!(ask("GET /a[b]?c[]=d|e", "host: a\r\n"), "GET /a[b]?c[]=d%7Ce of a with 0");
    assert_eq!(gateway.metric("tollgate_upstream_failed_attempts_total", &["upstream=\"api\""]), 0.0);
}

/// Trailers have a bound of their own: an answer with more of them never looks whole.
#[test]
fn trailers_of_up_to_64_kib_pass_and_larger_ones_are_no_end() {
    let backend =
        Http2Backend::start(Builder::new(), |request: Request<RecvStream>, mut respond| async move {
            let kib: usize = request.uri().path().trim_start_matches('/').parse().expect("a number");
            let mut out = begin(&mut respond, 200);
            send_all(&mut out, "abc".into(), false).await;
            let mut trailers = HeaderMap::new();
            for _ in 0..kib {
                trailers.append("x-a", "a".repeat(1_019).parse().expect("a value"));
            }
            out.send_trailers(trailers).expect("the gateway reads");
        });
    let gateway = Gateway::start(&over_http2(&[&backend.url()], "", ""));
    for (kib, whole) in [(15, true), (17, true), (60, true), (200, false)] {
        let mut client = Client::connect(gateway.addr());
        client.write(format!("GET /{kib} HTTP/1.1\r\nhost: test\r\nte: trailers\r\nconnection: te\r\n\r\n"));
        assert_eq!(!is_cut(&mut client), whole, "{kib} KiB");
    }
}

/// Those that do not fit wait, or go with others; none is turned away.
#[test]
fn no_more_connections_than_are_allowed() {
    let backend = gathering(150);
    let bound = "max_connections = 2\nmax_pending = 0";
    let gateway = Gateway::start(&over_http2(&[&backend.url()], bound, ""));
    let ask = |_| {
        let mut client = Client::connect(gateway.addr());
        client.write("GET / HTTP/1.1\r\nhost: test\r\n\r\n");
        client
    };
    let clients: Vec<Client> = (0..150).map(ask).collect();
    for mut client in clients {
        client.read().expect(200);
    }
    assert_eq!(backend.connections(), 2, "one for each worker");
    assert_eq!(gateway.metric("tollgate_upstream_connections", &[]), 2.0);
}

/// More wait for their turn, or for another connection.
#[test]
fn no_more_streams_than_the_server_takes() {
    let (here, max) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let mut settings = Builder::new();
    settings.max_concurrent_streams(3);
    let known = Arc::clone(&max);
    let backend = Http2Backend::start(settings, move |_, respond| {
        let (here, max) = (Arc::clone(&here), Arc::clone(&known));
        async move {
            max.fetch_max(here.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(10)).await;
            here.fetch_sub(1, Ordering::SeqCst);
            answer(respond, "ok").await;
        }
    });
    let gateway = Gateway::start(&over_http2(&[&backend.url()], "", ""));
    let clients: Vec<_> = (0..60)
        .map(|_| {
            let address = gateway.addr();
            std::thread::spawn(move || {
                let mut client = Client::connect(address);
                (0..5).for_each(|_| drop(client.get("/", "").expect(200)));
            })
        })
        .collect();
    clients.into_iter().for_each(|client| client.join().expect("all were answered"));
    let (connections, max) = (backend.connections(), max.load(Ordering::SeqCst));
    assert!(connections <= 16 && max <= 3 * connections, "{max} at once on {connections} connections");
}

#[test]
fn large_bodies_pass_both_ways_at_once() {
    let backend = Http2Backend::start(Builder::new(), echo);
    let gateway = Gateway::start(&over_http2(&[&backend.url()], "", ""));
    let body = large(1 << 20);
    for framing in ["content-length: 1048576", "transfer-encoding: chunked"] {
        let mut request = format!("POST / HTTP/1.1\r\nhost: test\r\n{framing}\r\n\r\n").into_bytes();
        if framing.ends_with("chunked") {
            for part in body.chunks(100_000) {
                request.extend_from_slice(format!("{:x}\r\n", part.len()).as_bytes());
                request.extend_from_slice(part);
                request.extend_from_slice(b"\r\n");
            }
            request.extend_from_slice(b"0\r\n\r\n");
        } else {
            request.extend_from_slice(&body);
        }
        // An answer that begins before the request has ended is the connection's last.
        let mut client = Client::connect(gateway.addr());
        let writer = client.write_in_background(request);
        assert!(client.read().expect(200).body == body, "it comes back as it went");
        writer.join().expect("it was written");
    }
    assert!(backend.connections() <= 2);
}

/// A client that speaks HTTP/2, before a backend that speaks HTTP/1.1 and one that speaks HTTP/2.
#[tokio::test]
async fn a_client_that_speaks_http_2_is_served_by_either() {
    let old = Backend::start(|exchange| {
        let body = exchange.read_body();
        exchange.write(format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len()));
        exchange.write(&body);
        crate::harness::Next::KeepAlive
    });
    let new = Http2Backend::start(Builder::new(), echo);
    for file in [over(&[&old], ""), over_http2(&[&new.url()], "", "")] {
        let gateway = Gateway::start(&file);
        let socket = tokio::net::TcpStream::connect(gateway.addr()).await.expect("it listens");
        let (sender, connection) = h2::client::handshake(socket).await.expect("HTTP/2");
        tokio::spawn(connection);
        let mut sender = sender.ready().await.expect("room for a request");
        let request = Request::post("http://test/").body(()).expect("a request");
        let (response, mut out) = sender.send_request(request, false).expect("a stream");
        let body = large(1 << 20);
        let sending = async { send_all(&mut out, body.clone(), true).await };
        let receiving = async { read(response.await.expect("an answer").body_mut()).await };
        let ((), back) = tokio::join!(sending, receiving);
        assert!(back == body, "it comes back as it went");
    }
}

#[test]
fn heads_and_trailers_pass() {
    let backend = Http2Backend::start(Builder::new(), |request, mut respond| async move {
        let (head, mut body) = request.into_parts();
        assert_eq!((head.method.as_str(), head.headers["te"].as_bytes()), ("PUT", &b"trailers"[..]));
        assert_eq!(head.uri.to_string(), "http://test:8/a/b?c=%20d");
        assert_eq!(
            (&head.headers["cookie"], head.headers.contains_key("connection")),
            (&"a=1; b=2".parse().unwrap(), false)
        );
        assert_eq!(read(&mut body).await, "hi");
        let trailers = body.trailers().await.expect("they come").expect("they were sent");
        assert_eq!(trailers["x-sum"], "1");
        let response =
            Response::builder().header("x-twice", "1").header("x-twice", "2").header("trailer", "x-end");
        let mut out = respond.send_response(response.body(()).expect("a head"), false).expect("a stream");
        out.send_data("ho".into(), false).expect("it is taken");
        let mut trailers = HeaderMap::new();
        trailers.insert("x-end", "2".parse().expect("a value"));
        trailers.insert("x-undeclared", "3".parse().expect("a value"));
        out.send_trailers(trailers).expect("they are taken");
    });
    let gateway = Gateway::start(&over_http2(&[&backend.url()], "", ""));
    let fields = "cookie: a=1; b=2\r\nconnection: te, x-gone\r\nte: trailers\r\nx-gone: 1\r\ntrailer: x-sum";
    let answer = Client::connect(gateway.addr()).exchange(format!(
        "PUT /a/./b?c=%20d HTTP/1.1\r\nhost: test:8\r\n{fields}\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\nx-sum: 1\r\n\r\n"
    ));
    assert_eq!(answer.clone().expect(200).text(), "ho");
    let twice = answer.headers.iter().filter(|(name, _)| name == "x-twice");
    assert_eq!(twice.map(|(_, value)| value.as_str()).collect::<Vec<_>>(), ["1", "2"]);
    assert_eq!(answer.trailers, [("x-end".to_owned(), "2".to_owned())], "HTTP/1.1 wants them declared");
}

#[test]
fn answers_without_a_body_have_none() {
    let backend =
        Http2Backend::start(Builder::new(), |request: Request<RecvStream>, mut respond| async move {
            let status: u16 = request.uri().path().trim_start_matches('/').parse().expect("a status");
            let response = Response::builder().status(status);
            let response = if request.method() == Method::HEAD || status == 304 {
                response.header("content-length", "5")
            } else {
                response
            };
            respond.send_response(response.body(()).expect("a head"), true).expect("a stream");
        });
    let gateway = Gateway::start(&over_http2(&[&backend.url()], "", ""));
    let mut client = Client::connect(gateway.addr());
    for (method, status, length) in [
        ("HEAD", 200, Some("5")),
        ("GET", 204, None),
        ("GET", 304, Some("5")),
        ("GET", 200, Some("0")),
        ("POST", 205, Some("0")),
    ] {
        client.write(format!("{method} /{status} HTTP/1.1\r\nhost: test\r\n\r\n"));
        let answer = client.read_for(method).expect(status);
        assert_eq!((answer.header("content-length"), answer.body.len()), (length, 0), "{method} {status}");
    }
    assert_eq!(backend.connections(), 1);
}

/// The backend has not announced that it opens WebSockets, so it is not asked for one and answers as it likes.
#[test]
fn an_upgrade_is_a_request_like_any_other() {
    let backend =
        Http2Backend::start(Builder::new(), |request: Request<RecvStream>, mut respond| async move {
            assert!(!request.headers().contains_key("upgrade"));
            begin(&mut respond, 426).send_data("no".into(), true).expect("it is taken");
        });
    let gateway = Gateway::start(&over_http2(&[&backend.url()], "", ""));
    let fields = "connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n\
                  sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    let mut client = Client::connect(gateway.addr());
    assert_eq!(client.get("/", fields).expect(426).text(), "no");
    client.get("/", "").expect(426);
}

/// A backend that answers early needs no more of the body.
#[test]
fn an_early_answer_arrives() {
    let backend = Http2Backend::start(Builder::new(), |_, mut respond| async move {
        begin(&mut respond, 403).send_data("no".into(), true).expect("it is taken");
    });
    let gateway = Gateway::start(&over_http2(&[&backend.url()], "", ""));
    let mut client = Client::connect(gateway.addr());
    client.write("POST / HTTP/1.1\r\nhost: test\r\ncontent-length: 100000000\r\n\r\n");
    client.write(vec![0; 100_000]);
    assert_eq!(client.read().expect(403).text(), "no");
    gateway.get("/").expect(403);
}

#[test]
fn slow_clients_do_not_hold_up_others() {
    let long = large(20 << 20);
    let body = long.clone();
    let backend = Http2Backend::start(Builder::new(), move |request: Request<RecvStream>, respond| {
        let body = match request.uri().path() {
            "/large" => body.clone(),
            "/middling" => body.slice(..1 << 20),
            _ => "ok".into(),
        };
        answer(respond, body)
    });
    let gateway = Gateway::start(&format!("{}{ALONE}", over_http2(&[&backend.url()], "", "")));
    let stall = |_| {
        let mut client = Client::connect_narrow(gateway.addr(), 4096);
        client.write("GET /large HTTP/1.1\r\nhost: test\r\n\r\n");
        assert!(!client.read_some(100).is_empty());
        client
    };
    let _stalled: Vec<Client> = (0..50).map(stall).collect();
    let mut client = Client::connect(gateway.addr());
    for _ in 0..20 {
        assert_eq!(client.get("/", "").expect(200).text(), "ok");
    }
    assert!(client.get("/middling", "").expect(200).body == long[..1 << 20]);
    assert_eq!(backend.connections(), 1);
}

#[test]
fn servers_are_asked_over_http_2_whether_they_are_well() {
    let ill = Arc::new(AtomicUsize::new(0));
    let switch = Arc::clone(&ill);
    let backend = Http2Backend::start(Builder::new(), move |request: Request<RecvStream>, mut respond| {
        let status = if switch.load(Ordering::SeqCst) == 1 { 503 } else { 200 };
        async move {
            assert_eq!(request.uri().path(), "/healthz");
            begin(&mut respond, status).send_data("so".into(), true).expect("it is taken");
        }
    });
    let health = "health = { path = \"/healthz\", interval = \"20ms\", healthy = 1, unhealthy = 1 }";
    let gateway = Gateway::start(&over_http2(&[&backend.url()], health, ""));
    let is = |up: f64| {
        eventually("the check to notice", || {
            (gateway.metric("tollgate_upstream_up", &[]) == up).then_some(())
        });
    };
    is(1.0);
    ill.store(1, Ordering::SeqCst);
    is(0.0);
    ill.store(0, Ordering::SeqCst);
    is(1.0);
    // A server with HTTP/1.1 only is unhealthy.
    let old = Backend::ok();
    let gateway = Gateway::start(&over_http2(&[&old.url()], health, ""));
    gateway.wait_for_log("it does not speak HTTP/2");
}

#[test]
fn a_server_without_http2_is_logged() {
    let authority = Authority::new();
    authority.certify("server", &["127.0.0.1"]);
    let agreeing_on = |protocols: &[&[u8]]| {
        let mut config = authority.backend_of("server", rustls::ALL_VERSIONS, false);
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        Backend::ok_tls(config.into())
    };
    let backends = [
        (agreeing_on(&[]), "protocol", "no HTTP/2: it did not agree on `h2` by ALPN"),
        (agreeing_on(&[b"http/1.1"]), "tls", "no TLS: "),
        (Backend::ok(), "protocol", "no HTTP/2: "),
    ];
    for (backend, error, told) in backends {
        let tls = if backend.url().starts_with("https") { authority.trusted("") } else { String::new() };
        let gateway = Gateway::start(&over_http2(&[&backend.url()], &tls, ""));
        gateway.get("/").expect(502);
        let log = gateway.access_log(1);
        assert_eq!(log[0]["error"], error, "{told}");
        gateway.wait_for_log(told);
        gateway.wait_for_log(&format!("server {}: ", backend.addr()));
    }
}
