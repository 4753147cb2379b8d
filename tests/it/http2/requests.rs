//! Requests over HTTP/2 as ordinary clients send them: the same limits, answers and bodies as over HTTP/1.1.

use http::{HeaderMap, HeaderValue, Method, Request};

use crate::harness::{
    Authority, Backend, Body, Gateway, Http2, Next, eventually, everything_to, h2_get, h2_reason,
};

const LIMITED: &str = "limits = [\"few\"]\n\
    [limits.few]\nalgorithm = \"fixed-window\"\nkey = \"global\"\nrate = \"25/day\"\nalign = \"first-request\"\n";

fn request(method: &str, path: &str, fields: &[(&str, &str)]) -> Request<()> {
    let mut request = h2_get(path);
    *request.method_mut() = method.parse::<Method>().expect("a method");
    for (name, value) in fields {
        request.headers_mut().append(
            name.parse::<http::HeaderName>().expect("a name"),
            HeaderValue::from_str(value).expect("a value"),
        );
    }
    request
}

/// Sends bodies back, as they come.
fn mirror() -> Backend {
    Backend::start(|exchange| {
        let body = exchange.read_body();
        exchange.write(format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len()));
        exchange.write(body);
        Next::KeepAlive
    })
}

/// Bytes that show when some are missing, doubled or out of order.
fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| u8::try_from((at * 7 + at / 251) % 256).expect("a byte")).collect()
}

#[test]
fn each_stream_is_charged() {
    let backend = Backend::ok();
    let gateway = Gateway::start(&everything_to(&backend, LIMITED));
    let clients = [Http2::connect(gateway.addr()), Http2::connect(gateway.addr())];
    let hundred = |client: &Http2| client.all((0..100).map(|_| (h2_get("/"), Body::default())));
    let answers: Vec<_> = clients.iter().flat_map(hundred).map(|answer| answer.expect("an answer")).collect();
    let count = |status| answers.iter().filter(|answer| answer.status == status).count();
    assert_eq!((count(200), count(429), backend.count()), (25, 175, 25));
    for refused in answers.iter().filter(|answer| answer.status == 429) {
        let wait: u32 = refused.header("retry-after").expect("a wait").parse().expect("seconds");
        assert!((1..=86400).contains(&wait));
        assert_eq!(refused.header("ratelimit-policy"), Some("\"few\";q=25;w=86400"));
        assert!(refused.header("ratelimit").expect("a field").starts_with("\"few\";r=0;t="));
        assert_eq!(refused.header("content-type"), Some("application/problem+json"));
        assert_eq!(refused.header("connection"), None);
        let problem: serde_json::Value = serde_json::from_slice(&refused.body).expect("JSON");
        assert_eq!(problem["status"], 429);
        assert_eq!(refused.header("content-length"), Some(&*refused.body.len().to_string()));
    }
}

#[test]
fn bodies_pass_both_ways_at_once_over_tls_and_without() {
    let backend = Backend::start(|exchange| {
        exchange.write("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n");
        let length: usize = exchange.field("content-length").expect("a length").parse().expect("digits");
        let mut left = length;
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
    let authority = Authority::new();
    authority.certify("a", &["a.test"]);
    let plain = Gateway::start(&everything_to(&backend, ""));
    let secure = Gateway::start(&everything_to(&backend, &authority.server("a")));
    let body = pattern(1_000_000);
    let clients = [
        Http2::connect(plain.addr()),
        Http2::connect_tls(secure.addr(), &authority.client_offering(&["h2"]), "a.test"),
    ];
    for client in clients {
        let one = || (request("POST", "/", &[("content-length", "1000000")]), Body::from(&*body));
        for answer in client.all([one(), one(), one(), one()]) {
            let answer = answer.expect("an answer").expect(200);
            assert!(answer.body == body, "{} bytes came", answer.body.len());
        }
    }
}

#[test]
fn bodies_without_length_come_whole_and_bounded() {
    let backend = mirror();
    let gateway = Gateway::start(&everything_to(&backend, "max_body_bytes = \"100KiB\""));
    let client = Http2::connect(gateway.addr());
    for length in [0, 1, 16_384, 16_385, 100 << 10] {
        let body = pattern(length);
        let answer = client.exchange(request("POST", "/", &[]), &*body).expect("an answer").expect(200);
        assert!(answer.body == body, "{length} bytes");
    }
    let seen = backend.latest();
    assert_eq!(
        (seen.header("transfer-encoding").as_deref(), seen.header("content-length")),
        (Some("chunked"), None)
    );
    let large = pattern(101 << 10);
    client.exchange(request("POST", "/", &[]), &*large).expect("an answer").expect(413);
    let length = (101 << 10).to_string();
    let told = request("POST", "/", &[("content-length", &length)]);
    client.exchange(told, &*large).expect("an answer").expect(413);
    client.get("/").expect(200);
    let without = request("GET", "/", &[]);
    assert_eq!(client.exchange(without, &b"x"[..]).expect("an answer").expect(200).body, b"x");
}

#[test]
fn declared_trailers_travel_both_ways() {
    let backend = Backend::start(|exchange| {
        exchange.read_body();
        exchange.write(
            "HTTP/1.1 200 OK\r\ntrailer: x-sum\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nx-sum: 7\r\nx-other: 1\r\n\r\n",
        );
        Next::KeepAlive
    });
    let gateway = Gateway::start(&everything_to(&backend, ""));
    let client = Http2::connect(gateway.addr());
    let trailers: HeaderMap = [("x-up", "1"), ("content-length", "9"), ("x-undeclared", "2")]
        .into_iter()
        .map(|(name, value)| (http::HeaderName::from_static(name), HeaderValue::from_static(value)))
        .collect();
    let body = Body { bytes: b"abc".to_vec(), trailers: Some(trailers) };
    let fields = [("te", "trailers"), ("trailer", "x-up, content-length")];
    let answer = client.exchange(request("POST", "/", &fields), body).expect("an answer").expect(200);
    let trailers = answer.trailers.expect("trailers");
    assert_eq!((trailers.len(), trailers["x-sum"].to_str().expect("text")), (1, "7"));
    assert_eq!((backend.only().trailers.as_str(), backend.only().body), ("x-up: 1\r\n", b"abc".to_vec()));
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
    let gateway = Gateway::start(&everything_to(&backend, ""));
    let client = Http2::connect(gateway.addr());
    for (method, path, status, length) in [
        ("GET", "/none", 204, None),
        ("GET", "/same", 304, Some("7")),
        ("GET", "/empty", 200, Some("0")),
        ("HEAD", "/head", 200, Some("9")),
        ("GET", "/chunked", 200, None),
    ] {
        let answer =
            client.exchange(request(method, path, &[]), Body::default()).expect("an answer").expect(status);
        assert_eq!((answer.header("content-length"), answer.body.len()), (length, 0), "{path}");
        assert!(["connection", "x-hop", "keep-alive"].iter().all(|name| answer.header(name).is_none()));
        assert!(answer.header("date").is_some());
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
    let gateway = Gateway::start(&everything_to(&backend, "max_body_bytes = \"10B\""));
    let client = Http2::connect(gateway.addr());
    let waiting = request("POST", "/", &[("expect", "100-continue"), ("content-length", "5")]);
    let answer = client.exchange(waiting, &b"hello"[..]).expect("an answer").expect(200);
    assert_eq!((answer.body, answer.interim), (b"hello".to_vec(), vec![100, 103]));
    let refused = request("POST", "/", &[("expect", "100-continue"), ("content-length", "11")]);
    let answer = client.exchange(refused, &b"hello world"[..]).expect("an answer").expect(413);
    assert!(answer.interim.is_empty(), "no 100 (Continue) for a body that is not read");
}

#[test]
fn crumbs_of_cookies_are_joined_and_the_authority_is_the_host() {
    let backend = Backend::ok();
    let gateway = Gateway::start(&everything_to(&backend, ""));
    let client = Http2::connect(gateway.addr());
    let fields = [("cookie", "a=1"), ("x-a", "1"), ("cookie", "b=2"), ("te", "trailers"), ("host", "TEST")];
    client.exchange(request("GET", "/p?q=1", &fields), Body::default()).expect("an answer").expect(200);
    let seen = backend.only();
    assert_eq!(seen.request_line(), "GET /p?q=1 HTTP/1.1");
    assert_eq!(seen.header("cookie").as_deref(), Some("a=1; b=2"));
    assert!(seen.header("host").is_some());
    assert_eq!(seen.header("te").as_deref(), Some("trailers"), "the client takes those of the answer");
    assert_eq!(seen.header("connection").as_deref(), Some("te"));
    assert_eq!(seen.header("x-forwarded-host").as_deref(), Some("test"));
}

#[test]
fn refusals_of_the_gateway_leave_the_connection_open() {
    let backend = Backend::ok();
    let cors = "cors = { origins = [\"https://app.example.com\"] }\n";
    let gateway = Gateway::start(&everything_to(&backend, &(cors.to_owned() + LIMITED)));
    let client = Http2::connect(gateway.addr());
    let ask = [("origin", "https://app.example.com"), ("access-control-request-method", "GET")];
    let preflight = client.exchange(request("OPTIONS", "/", &ask), Body::default()).expect("an answer");
    assert_eq!(preflight.expect(204).header("access-control-allow-origin"), Some("https://app.example.com"));
    let mut connect = Request::new(());
    (*connect.method_mut(), *connect.uri_mut()) =
        (Method::CONNECT, "a.test:443".parse().expect("an authority"));
    client.exchange(connect, Body::default()).expect("an answer").expect(405);
    client.exchange(request("TRACE", "/", &[]), Body::default()).expect("an answer").expect(405);
    let many: Vec<_> = (0..101).map(|number| format!("x-{number}")).collect();
    let many: Vec<_> = many.iter().map(|name| (name.as_str(), "")).collect();
    client.exchange(request("GET", "/", &many), Body::default()).expect("an answer").expect(431);
    let long = "v".repeat(17 << 10);
    client.exchange(request("GET", "/", &[("x", &long)]), Body::default()).expect("an answer").expect(431);
    let longer = "v".repeat(40 << 10);
    client.exchange(request("GET", "/", &[("x", &longer)]), Body::default()).expect("an answer").expect(431);
    let path = format!("/{}", "p".repeat(8 << 10));
    client.exchange(h2_get(&path), Body::default()).expect("an answer").expect(414);
    let answer = client.exchange(request("GET", "/", &[("expect", "x")]), &b"1"[..]).expect("an answer");
    answer.expect(417);
    let from = [("origin", "https://app.example.com")];
    for status in [200].repeat(25).into_iter().chain([429]) {
        let answer =
            client.exchange(request("GET", "/", &from), Body::default()).expect("an answer").expect(status);
        assert_eq!(answer.header("access-control-allow-origin"), Some("https://app.example.com"));
    }
    assert_eq!(backend.count(), 25);
}

#[test]
fn grpc_calls_are_refused_in_their_own_form() {
    let backend = Backend::ok();
    let gateway = Gateway::start(&everything_to(&backend, &LIMITED.replace("25/day", "1/day")));
    let client = Http2::connect(gateway.addr());
    client.get("/").expect(200);
    let call =
        || request("POST", "/a.B/C", &[("content-type", "application/grpc+proto"), ("te", "trailers")]);
    let (mut body, answer) = client.begin(call());
    body.send_data("more to come".into(), false).expect("sent");
    let refused = client.finish(answer).expect("an answer").expect(200);
    assert_eq!((refused.header("grpc-status"), refused.header("content-length")), (Some("8"), None));
    assert!(refused.header("grpc-retry-pushback-ms").is_some() && refused.header("ratelimit").is_some());
    assert!(refused.body.is_empty() && refused.trailers.is_none(), "all stands in the head");
    assert_eq!(client.until_reset(body), h2::Reason::NO_ERROR);
}

#[test]
fn an_answer_that_breaks_off_resets_its_stream_only() {
    let backend = Backend::start(|exchange| {
        if exchange.target() == "/cut" {
            exchange.write("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf");
            return Next::Close;
        }
        exchange.write("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
        Next::KeepAlive
    });
    let gateway = Gateway::start(&everything_to(&backend, ""));
    let client = Http2::connect(gateway.addr());
    let cut = client.exchange(h2_get("/cut"), Body::default());
    assert_eq!(h2_reason(cut), Some(h2::Reason::INTERNAL_ERROR));
    client.get("/").expect(200);
    assert_eq!(gateway.access_log(2)[0]["error"], "response_cut");
}

#[test]
fn the_log_tells_the_version() {
    let backend = Backend::ok();
    let gateway = Gateway::start(&everything_to(&backend, "[log]\naccess = \"combined\"\n"));
    Http2::connect(gateway.addr()).get("/a").expect(200);
    let lines = eventually("a line", || Some(gateway.stdout_lines()).filter(|lines| !lines.is_empty()));
    assert!(lines[0].contains("] \"GET /a HTTP/2.0\" 200 2 "), "{lines:?}");
}

#[test]
fn an_early_answer_ends_the_upload() {
    let backend = Backend::start(|exchange| {
        exchange.write("HTTP/1.1 403 Forbidden\r\ncontent-length: 2\r\n\r\nno");
        exchange.read_body();
        Next::Close
    });
    let gateway = Gateway::start(&everything_to(&backend, ""));
    let client = Http2::connect(gateway.addr());
    let (mut body, answer) = client.begin(request("POST", "/", &[]));
    body.send_data("part".into(), false).expect("sent");
    assert_eq!(client.finish(answer).expect("an answer").expect(403).body, b"no");
    let told = client.until_reset(body);
    assert_eq!(told, h2::Reason::NO_ERROR, "the rest is not wanted");
}

/// As over HTTP/1.1, trailers have a bound of their own.
#[test]
fn trailers_over_16_kib_are_refused() {
    let backend = Backend::start(|exchange| {
        exchange.read_body();
        exchange.write("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
        Next::KeepAlive
    });
    let gateway = Gateway::start(&everything_to(&backend, ""));
    let client = Http2::connect(gateway.addr());
    for (kib, status) in [(15, 200), (17, 400)] {
        let (mut body, answer) = client.begin(request("POST", "/", &[("trailer", "x-a")]));
        body.send_data("abc".into(), false).expect("the stream is open");
        let mut trailers = HeaderMap::new();
        for _ in 0..kib {
            trailers.append("x-a", HeaderValue::from_str(&"a".repeat(1_019)).expect("a value"));
        }
        body.send_trailers(trailers).expect("the stream is open");
        assert_eq!(client.finish(answer).expect("an answer").status, status, "{kib} KiB");
    }
}
