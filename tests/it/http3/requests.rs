//! Requests over HTTP/3 as ordinary clients send them: the same limits, answers and bodies as over HTTP/1.1.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use h2::server::Builder;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response};

use super::{Http3Gateway, pattern};
use crate::harness::quic_client::{H3_DATA, h3_frame, h3_head};
use crate::harness::{
    Backend, Body, Http2Backend, Next, QuicEnd, eventually, everything_to, h3_get, h3_request, send_all,
};

/// Sends bodies back, as they come.
fn mirror() -> Backend {
    Backend::start(|exchange| {
        let body = exchange.read_body();
        exchange.write(format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len()));
        exchange.write(body);
        Next::KeepAlive
    })
}

fn to_http2(backend: &Http2Backend, rest: &str) -> String {
    let url = backend.url();
    format!(
        "[upstreams.api]\nservers = [\"{url}\"]\nprotocol = \"http2\"\n\
         [[routes]]\nname = \"all\"\npath = \"/*\"\nupstream = \"api\"\n{rest}\n"
    )
}

fn fields(fields: &[(&'static str, &'static str)]) -> HeaderMap {
    fields
        .iter()
        .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
        .collect()
}

#[test]
fn a_request_is_forwarded_and_answered() {
    let backend = Backend::ok();
    let http3 = Http3Gateway::start(&everything_to(&backend, ""));
    let client = http3.connect();
    let request = h3_request("GET", "/p?q=1", &[("cookie", "a=1"), ("x-a", "1"), ("cookie", "b=2")]);
    let answer = client.exchange(request, Body::default()).expect("an answer").expect(200);
    assert_eq!((answer.body, answer.trailers), (b"ok".to_vec(), None));
    assert!(answer.headers.contains_key("date") && !answer.headers.contains_key("connection"));
    let seen = backend.only();
    assert_eq!(seen.request_line(), "GET /p?q=1 HTTP/1.1");
    assert_eq!(seen.header("cookie").as_deref(), Some("a=1; b=2"));
    assert_eq!(seen.header("x-forwarded-host").as_deref(), Some("a.test"));
    assert_eq!(seen.header("x-forwarded-proto").as_deref(), Some("https"));
    assert_eq!(seen.header("x-forwarded-for").as_deref(), Some("127.0.0.1"));
    // HTTP/1.1 and HTTP/2 stay available on the same port.
    let tls = http3.authority.client_offering(&["h2"]);
    crate::harness::Http2::connect_tls(http3.gateway.addr(), &tls, "a.test").get("/").expect(200);
}

#[test]
fn the_log_tells_the_version() {
    let backend = Backend::ok();
    let http3 = Http3Gateway::start(&everything_to(&backend, "[log]\naccess = \"combined\"\n"));
    http3.connect().get("/a").expect(200);
    let lines = eventually("a line", || Some(http3.gateway.stdout_lines()).filter(|lines| !lines.is_empty()));
    assert!(lines[0].contains("] \"GET /a HTTP/3.0\" 200 2 "), "{lines:?}");
}

#[test]
fn bodies_of_known_and_unknown_length_come_whole() {
    let backend = mirror();
    let http3 = Http3Gateway::start(&everything_to(&backend, "max_body_bytes = \"20MiB\""));
    let client = http3.connect();
    for length in [0, 1, 16_384, 16_385, 65_536, 65_537, 10 << 20] {
        let body = pattern(length);
        for declared in [None, Some(length.to_string())] {
            let length_field = declared.as_deref().map(|length| ("content-length", length));
            let request = h3_request("POST", "/", length_field.as_slice());
            let answer = client.exchange(request, &*body).expect("an answer").expect(200);
            assert!(answer.body == body, "{length} bytes, declared: {declared:?}");
            let (seen, is_declared) = (backend.latest(), declared.is_some());
            if length > 0 && !is_declared {
                assert_eq!(seen.header("transfer-encoding").as_deref(), Some("chunked"));
            }
            assert!(seen.header("content-length").is_none_or(|sent| sent == length.to_string()));
        }
    }
}

/// A request that is received whole before its bytes are forwarded: the gateway looks for a reset meanwhile.
#[test]
fn requests_that_come_whole_are_served() {
    let backend = Http2Backend::start(Builder::new(), |mut request, mut respond| async move {
        let mut length = 0;
        while let Some(Ok(part)) = request.body_mut().data().await {
            length += part.len();
            request.body_mut().flow_control().release_capacity(part.len()).ok();
        }
        let mut stream = respond.send_response(Response::new(()), false).expect("a client");
        send_all(&mut stream, length.to_string().into(), true).await;
    });
    let http1 = mirror();
    for config in [to_http2(&backend, ""), everything_to(&http1, "")] {
        let http3 = Http3Gateway::start(&config);
        let client = http3.quic();
        let pseudo = [(":method", "POST"), (":scheme", "https"), (":path", "/"), (":authority", "a.test")];
        let streams: Vec<_> = (0..60)
            .map(|number| {
                let body = h3_frame(H3_DATA, &pattern(number * 500));
                client.send(&[h3_head(&pseudo), body].concat())
            })
            .collect();
        for stream in streams {
            assert_eq!(client.end_of(stream), QuicEnd::Answered(200));
        }
    }
}

#[test]
fn bodies_pass_both_ways_at_once() {
    let backend = Backend::start(|exchange| {
        exchange.write("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n");
        let mut left: usize = exchange.field("content-length").expect("a length").parse().expect("digits");
        while left > 0 {
            let part = exchange.read_some();
            left -= part.len();
            exchange.write(format!("{:x}\r\n", part.len()));
            exchange.write(part);
            exchange.write("\r\n");
        }
        exchange.write("0\r\n\r\n");
        Next::KeepAlive
    });
    let http3 = Http3Gateway::start(&everything_to(&backend, ""));
    let client = http3.connect();
    let body = pattern(1_000_000);
    let one = || (h3_request("POST", "/", &[("content-length", "1000000")]), Body::from(&*body));
    for answer in client.all([one(), one(), one(), one()]) {
        let answer = answer.expect("an answer").expect(200);
        assert!(answer.body == body, "{} bytes came", answer.body.len());
    }
}

#[test]
fn answers_without_a_body_have_none() {
    let backend = Backend::start(|exchange| {
        let answer = match exchange.target() {
            "/none" => "HTTP/1.1 204 No Content\r\n\r\n",
            "/same" => "HTTP/1.1 304 Not Modified\r\ncontent-length: 7\r\n\r\n",
            "/empty" => "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
            "/head" => {
                "HTTP/1.1 200 OK\r\ncontent-length: 9\r\nconnection: x-hop\r\nx-hop: 1\r\nkeep-alive: timeout=5\r\n\r\n"
            }
            _ => "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        };
        exchange.write(answer);
        Next::KeepAlive
    });
    let http3 = Http3Gateway::start(&everything_to(&backend, ""));
    let client = http3.connect();
    for (method, path, status, length) in [
        ("GET", "/none", 204, None),
        ("GET", "/same", 304, Some("7")),
        ("GET", "/empty", 200, Some("0")),
        ("HEAD", "/head", 200, Some("9")),
        ("GET", "/chunked", 200, None),
    ] {
        let request = h3_request(method, path, &[]);
        let answer = client.exchange(request, Body::default()).expect("an answer").expect(status);
        assert_eq!((answer.header("content-length"), answer.body.len()), (length, 0), "{path}");
        assert!(["connection", "x-hop", "keep-alive"].iter().all(|name| answer.header(name).is_none()));
    }
}

#[test]
fn interim_answers_are_passed_on() {
    let backend = Backend::start(|exchange| {
        if exchange.field("expect").is_some() {
            exchange.write("HTTP/1.1 100 Continue\r\n\r\n");
        }
        let body = exchange.read_body();
        exchange.write("HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n");
        exchange.write(format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len()));
        exchange.write(body);
        Next::KeepAlive
    });
    let http3 = Http3Gateway::start(&everything_to(&backend, "max_body_bytes = \"10B\""));
    let client = http3.connect();
    let waiting = h3_request("POST", "/", &[("expect", "100-continue"), ("content-length", "5")]);
    let (mut upload, mut download) = client.begin(waiting);
    assert_eq!(client.status(&mut download), Ok(100), "asked for before any byte of the body");
    client.send(&mut upload, b"hello").expect("the stream is open");
    client.end_body(&mut upload).expect("the stream is open");
    let answer = client.finish(download).expect("an answer").expect(200);
    assert_eq!((answer.body, answer.interim), (b"hello".to_vec(), vec![103]));
    let refused = h3_request("POST", "/", &[("expect", "100-continue"), ("content-length", "11")]);
    let answer = client.exchange(refused, &b"hello world"[..]).expect("an answer").expect(413);
    assert!(answer.interim.is_empty(), "no 100 (Continue) for a body that is not read");
}

#[test]
fn trailers_travel_both_ways_to_http1_and_http2() {
    let http1 = Backend::start(|exchange| {
        exchange.read_body();
        exchange.write(
            "HTTP/1.1 200 OK\r\ntrailer: x-sum\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nx-sum: 7\r\nx-other: 1\r\n\r\n",
        );
        Next::KeepAlive
    });
    let seen = Arc::new(Mutex::new(None));
    let told = Arc::clone(&seen);
    let http2 = Http2Backend::start(Builder::new(), move |mut request, mut respond| {
        let told = Arc::clone(&told);
        async move {
            while let Some(Ok(part)) = request.body_mut().data().await {
                request.body_mut().flow_control().release_capacity(part.len()).ok();
            }
            let trailers = request.body_mut().trailers().await.expect("a whole request");
            *told.lock().expect("no panic inside") = trailers;
            let mut stream = respond.send_response(Response::new(()), false).expect("a client");
            send_all(&mut stream, Bytes::from_static(b"ok"), false).await;
            stream.send_trailers(fields(&[("x-sum", "7")])).ok();
        }
    });
    for (config, is_http2) in [(everything_to(&http1, ""), false), (to_http2(&http2, ""), true)] {
        let http3 = Http3Gateway::start(&config);
        let client = http3.connect();
        let trailers = fields(&[("x-up", "1"), ("content-length", "9")]);
        let body = Body { bytes: b"abc".to_vec(), trailers: Some(trailers) };
        let request = h3_request("POST", "/", &[("te", "trailers"), ("trailer", "x-up, content-length")]);
        let answer = client.exchange(request, body).expect("an answer").expect(200);
        assert_eq!(answer.body, b"ok");
        let trailers = answer.trailers.expect("trailers");
        assert_eq!((trailers.len(), trailers["x-sum"].to_str().expect("text")), (1, "7"));
        if is_http2 {
            let seen = seen.lock().expect("no panic inside").take().expect("trailers");
            assert_eq!((seen.len(), &seen["x-up"]), (1, &HeaderValue::from_static("1")));
        } else {
            assert_eq!((http1.only().trailers.as_str(), http1.only().body), ("x-up: 1\r\n", b"abc".to_vec()));
        }
    }
}

/// Answers calls in the form of gRPC; `/cut` is reset in the middle of its messages.
fn grpc_backend() -> Http2Backend {
    Http2Backend::start(Builder::new(), |request, mut respond| async move {
        let head = Response::builder().header("content-type", "application/grpc").body(()).expect("a head");
        let mut stream = respond.send_response(head, false).expect("a client");
        send_all(&mut stream, Bytes::from_static(b"\0\0\0\0\x02hi"), false).await;
        match request.uri().path() {
            "/a.B/Cut" => {
                // What was sent is not taken back by the reset.
                tokio::time::sleep(Duration::from_millis(100)).await;
                stream.send_reset(h2::Reason::INTERNAL_ERROR);
            }
            _ => stream.send_trailers(fields(&[("grpc-status", "0")])).expect("it is open"),
        }
    })
}

#[test]
fn grpc_calls_are_served_refused_and_cut_in_their_own_form() {
    let backend = grpc_backend();
    let limit = "limits = [\"few\"]\n[limits.few]\nalgorithm = \"fixed-window\"\nkey = \"global\"\n\
        rate = \"2/day\"\nalign = \"first-request\"\n";
    let http3 = Http3Gateway::start(&to_http2(&backend, limit));
    let client = http3.connect();
    let call = |path| h3_request("POST", path, &[("content-type", "application/grpc"), ("te", "trailers")]);
    let body = &b"\0\0\0\0\x02hi"[..];
    let status = |trailers: &HeaderMap| trailers["grpc-status"].to_str().expect("text").to_owned();
    let served = client.exchange(call("/a.B/C"), body).expect("an answer").expect(200);
    assert_eq!((served.body, status(&served.trailers.expect("trailers"))), (body.to_vec(), "0".to_owned()));
    let cut = client.exchange(call("/a.B/Cut"), body).expect("an answer").expect(200);
    assert_eq!(status(&cut.trailers.expect("trailers")), "14");
    let refused = client.exchange(call("/a.B/C"), body).expect("an answer").expect(200);
    assert_eq!((refused.header("grpc-status"), refused.header("content-length")), (Some("8"), None));
    assert!(refused.header("grpc-retry-pushback-ms").is_some() && refused.header("ratelimit").is_some());
    assert!(refused.body.is_empty() && refused.trailers.is_none(), "all is in the head");
}

#[test]
fn refusals_of_the_gateway_leave_the_connection_open() {
    let backend = mirror();
    let routes = "max_body_bytes = \"100KiB\"\n[[routes]]\nname = \"no\"\npath = \"/no\"\n\
        respond = { status = 403 }\n[[routes]]\nname = \"other\"\nhosts = [\"b.test\"]\npath = \"/b\"\nupstream = \"api\"\n";
    let http3 =
        Http3Gateway::start(&everything_to(&backend, routes).replace("path = \"/*\"", "path = \"/a\""));
    let client = http3.connect();
    let refused = |request: Request<()>, body: &[u8], status| {
        client.exchange(request, body).expect("an answer").expect(status)
    };
    refused(h3_get("/nowhere"), b"", 404);
    refused(h3_get("/b"), b"", 404);
    refused(h3_get("/no"), b"", 403);
    refused(h3_request("POST", "/a", &[]), &pattern(101 << 10), 413);
    refused(h3_request("POST", "/a", &[("content-length", "103424")]), &pattern(101 << 10), 413);
    refused(h3_request("TRACE", "/a", &[]), b"", 405);
    refused(h3_request("POST", "/a", &[("expect", "x")]), b"1", 417);
    let many: Vec<_> = (0..101).map(|number| format!("x-{number}")).collect();
    let many: Vec<_> = many.iter().map(|name| (name.as_str(), "")).collect();
    refused(h3_request("GET", "/a", &many), b"", 431);
    refused(h3_get(&format!("/{}", "p".repeat(8 << 10))), b"", 414);
    assert_eq!(refused(h3_request("POST", "/a", &[]), b"x", 200).body, b"x");
}

#[test]
fn an_answer_that_breaks_off_resets_its_stream_only() {
    let backend = Backend::start(|exchange| {
        match exchange.target() {
            "/cut" => exchange.write("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf"),
            "/chunks" => exchange.write("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nhalf\r\n"),
            _ => {
                exchange.write("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
                return Next::KeepAlive;
            }
        };
        Next::Close
    });
    let http3 = Http3Gateway::start(&everything_to(&backend, ""));
    let client = http3.connect();
    for path in ["/cut", "/chunks"] {
        let cut = client.try_get(path).map(|answer| answer.body);
        assert_eq!(cut, Err(crate::harness::Http3Lost::Reset(super::codes::INTERNAL_ERROR)), "{path}");
    }
    client.get("/").expect(200);
    assert_eq!(http3.gateway.access_log(3)[0]["error"], "response_cut");
}

#[test]
fn an_early_answer_ends_the_upload() {
    let backend = Backend::start(|exchange| {
        exchange.write("HTTP/1.1 403 Forbidden\r\ncontent-length: 2\r\n\r\nno");
        exchange.read_body();
        Next::Close
    });
    let http3 = Http3Gateway::start(&everything_to(&backend, ""));
    let client = http3.connect();
    let (mut upload, download) = client.begin(h3_request("POST", "/", &[]));
    client.send(&mut upload, b"part").expect("the stream is open");
    assert_eq!(client.finish(download).expect("an answer").expect(403).body, b"no");
    let stopped = eventually("the client to be stopped", || client.send(&mut upload, b"more").err());
    assert_eq!(stopped, crate::harness::Http3Lost::Reset(super::codes::NO_ERROR), "the rest is not wanted");
}
