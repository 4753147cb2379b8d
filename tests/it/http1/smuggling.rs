//! Bodies that a client or a backend breaks on purpose: nothing behind the fault becomes a request, and nothing before it is
//! lost.

use h2::server::Builder;
use http::HeaderMap;

use crate::harness::{
    AllVersions, Backend, Body, Client, Fault, Gateway, Http2Backend, everything_to, h2_get,
};

const HEAD: &str = "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n";
/// What the backend must never see as a request.
const SMUGGLED: &str = "GET /smuggled HTTP/1.1\r\nhost: a\r\nx-forwarded-for: 6.6.6.6\r\n\r\n";

/// Bodies that are broken behind a good beginning. A decoder that goes on behind its error reads some of them as an end.
const BROKEN: [&str; 12] = [
    "1\r\nh\r\n0\r\n\n",
    "0\r\n\n",
    "1\r\nh\r\n0\r\n x:\r\n\r\n",
    "1\r\nh\r\n0000000000000000: x\r\n\r\n",
    "1\r\nh\r\n0\n\r\n\r\n",
    "1\r\nh\r\n;\r\n0\r\n\r\n",
    "1\r\nh\r\n1;\r\nh\r\n0\r\n\r\n",
    "1\r\nh\r\n1;=x\r\nh\r\n0\r\n\r\n",
    "1\r\nh\r\n0;x=\"\r\n\r\n",
    "1\r\nhh\r\n0\r\n\r\n",
    "1\r\nh\r\n0 \r\n\r\n",
    "1\r\nh\r\n-0\r\n\r\n",
];

#[test]
fn nothing_behind_a_broken_body_is_a_request() {
    let backend = Backend::ok();
    let gateway = Gateway::start(&everything_to(&backend, "[server]\nworkers = 1"));
    for body in BROKEN {
        let message = [HEAD, body, SMUGGLED].concat();
        // In one piece, as the head and the first chunk, and with the broken line apart.
        for cut in [0, HEAD.len(), HEAD.len() + 6, HEAD.len() + body.len()] {
            let mut client = Client::connect(gateway.addr());
            client.write(&message.as_bytes()[..cut]);
            client.silent_for(std::time::Duration::from_millis(5));
            client.write(&message.as_bytes()[cut..]);
            match client.try_read("POST") {
                Ok(answer) => drop(answer.expect(400)),
                Err(fault) => panic!("{body:?} cut at {cut}: {fault}"),
            }
            assert!(client.closes(), "{body:?} cut at {cut}: the connection stays open");
        }
    }
    for seen in backend.requests() {
        assert_eq!(seen.request_line(), "POST / HTTP/1.1", "{}", seen.head);
        assert!(!seen.raw_body.windows(9).any(|bytes| bytes == b"/smuggled"), "{:?}", seen.raw_body);
    }
    gateway.get("/fine").expect(200);
}

#[test]
fn unusual_chunks_are_taken_and_framed_anew() {
    let backend = Backend::ok();
    let gateway = Gateway::start(&everything_to(&backend, ""));
    let mut client = Client::connect(gateway.addr());
    for body in [
        "2 ;x\r\nhi\r\n0\r\n\r\n",
        "1\r\nh\r\n1\t;\tx = y ; z\r\ni\r\n0 ; end\r\n\r\n",
        "2;x=\"a;\\\" b\"\r\nhi\r\n0\r\n\r\n",
    ] {
        client.write([HEAD, body, "GET /next HTTP/1.1\r\nhost: a\r\n\r\n"].concat());
        client.read_for("POST").expect(200);
        client.read().expect(200);
        let requests = backend.requests();
        let [.., posted, next] = &*requests else { panic!("two requests") };
        assert_eq!((&*posted.body, next.target()), (&b"hi"[..], "/next"), "{body:?}");
        assert!(!posted.raw_body.contains(&b';'), "{:?}", posted.raw_body);
    }
}

#[test]
fn echo_reads_a_body_as_strictly_as_a_proxied_route() {
    let gateway = Gateway::start(
        "[upstreams]\ndemo = \"builtin:echo\"\n[[routes]]\npath = \"/*\"\nupstream = \"demo\"\nmax_body_bytes = 5",
    );
    for (body, status) in
        [("2\r\nhi\r\n0\r\n\r\n", 200), ("2\r\nhi\r\n0\r\n\n", 400), ("6\r\nhihihi\r\n0\r\n\r\n", 413)]
    {
        let mut client = Client::connect(gateway.addr());
        client.write([HEAD, body, SMUGGLED].concat());
        let answer = client.read_for("POST").expect(status);
        assert_eq!(answer.closed, status != 200, "{body:?}");
    }
}

#[test]
fn a_chunked_body_is_bounded_also_where_it_comes_with_its_head() {
    let backend = Backend::ok();
    let gateway = Gateway::start(&everything_to(&backend, "max_body_bytes = 10"));
    for (length, status) in [(10, 200), (11, 413), (3000, 413)] {
        let mut client = Client::connect(gateway.addr());
        client.write(format!("{HEAD}{length:x}\r\n{}\r\n0\r\n\r\n", "x".repeat(length)));
        client.read_for("POST").expect(status);
    }
    assert_eq!(backend.only().body.len(), 10, "what is too large is not sent on");
}

#[test]
fn padded_chunk_sizes_are_read_in_answers_and_refused_in_requests() {
    let backend = Backend::answering(
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2   \r\nok\r\n2;x=y\r\n!!\r\n0  \r\n\r\n",
    );
    let gateway = Gateway::start(&everything_to(&backend, ""));
    assert_eq!(gateway.get("/").expect(200).text(), "ok!!");
    let mut client = Client::connect(gateway.addr());
    client.write([HEAD, "2  \r\nhi\r\n0\r\n\r\n"].concat());
    client.read_for("POST").expect(400);
}

/// Trailers, together with their empty line, may have 16 KiB.
#[test]
fn trailers_of_up_to_16_kib_pass_both_ways() {
    for length in [1_100, (16 << 10) - "x-sum: \r\n\r\n".len()] {
        let value = "v".repeat(length);
        let chunks = format!("2\r\nhi\r\n0\r\nx-sum: {value}\r\n\r\n");
        let answer =
            format!("HTTP/1.1 200 OK\r\ntrailer: x-sum\r\ntransfer-encoding: chunked\r\n\r\n{chunks}");
        let backend = Backend::answering(answer);
        let gateway = Gateway::start(&everything_to(&backend, ""));
        let mut client = Client::connect(gateway.addr());
        client.write(format!(
            "POST / HTTP/1.1\r\nhost: a\r\nte: trailers\r\ntrailer: x-sum\r\ntransfer-encoding: chunked\r\n\r\n{chunks}"
        ));
        let answer = client.read_for("POST").expect(200);
        assert_eq!(answer.trailers, [("x-sum".to_owned(), value.clone())]);
        assert_eq!(backend.only().trailers, format!("x-sum: {value}\r\n"));
    }
}

/// As gRPC's `grpc-status-details-bin`.
#[test]
fn large_trailers_pass_from_http_2_to_other_versions() {
    for length in [1_100, 15_000] {
        let value = "v".repeat(length);
        let sent = value.clone();
        let backend = Http2Backend::start(Builder::new(), move |_, mut respond| {
            let sent = sent.clone();
            async move {
                let mut stream =
                    respond.send_response(http::Response::new(()), false).expect("the stream is open");
                let mut trailers = HeaderMap::new();
                trailers.insert("grpc-status-details-bin", sent.parse().expect("a value"));
                stream.send_trailers(trailers).expect("the stream is open");
            }
        });
        let gateway = AllVersions::start(&format!(
            "[upstreams.api]\nservers = [\"{}\"]\nprotocol = \"http2\"\n[[routes]]\npath = \"/*\"\nupstream = \"api\"",
            backend.url()
        ));
        for client in gateway.clients() {
            let mut request = h2_get("/");
            request.headers_mut().insert("te", "trailers".parse().expect("a value"));
            let answer = client.exchange(request, Body::default()).expect("an answer");
            let trailers = answer.trailers.expect("trailers");
            assert_eq!(trailers["grpc-status-details-bin"].as_bytes(), value.as_bytes());
        }
    }
}

#[test]
fn a_trailer_with_underscores_does_not_pass_for_another_field() {
    let backend = Backend::ok();
    let gateway = Gateway::start(&everything_to(&backend, ""));
    let names = "content_length, x_forwarded_for, set_cookie, x_sum";
    let lines = "content_length: 9\r\nx_forwarded_for: 6.6.6.6\r\nset_cookie: a\r\nx_sum: 1\r\n";
    let mut client = Client::connect(gateway.addr());
    client.write(format!(
        "POST / HTTP/1.1\r\nhost: a\r\ntrailer: {names}\r\ntransfer-encoding: chunked\r\n\r\n0\r\n{lines}\r\n"
    ));
    client.read_for("POST").expect(200);
    assert_eq!(backend.only().trailers, "x_sum: 1\r\n");
}

#[test]
fn an_answer_whose_body_is_malformed_from_the_beginning_is_502() {
    for chunk in ["zz\r\n", "2\nok\r\n", "0\r\n\n", "0\r\n x:\r\n\r\n", "1;\r\nx\r\n"] {
        let backend =
            Backend::answering_once(format!("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n{chunk}"));
        let gateway = AllVersions::start(&everything_to(&backend, ""));
        let mut client = Client::connect(gateway.addr());
        client.write("GET / HTTP/1.1\r\nhost: a\r\n\r\n");
        let answer = client.read().expect(502);
        assert!(!answer.closed, "{chunk:?}: the client's connection is good");
        let others = gateway.clients();
        for client in &others {
            client.get("/").expect(502);
        }
        for record in &gateway.access_log(1 + others.len()) {
            assert_eq!((&record["status"], &record["error"]), (&502.into(), &"protocol".into()), "{chunk:?}");
        }
    }
}

#[test]
fn what_comes_before_a_malformed_chunk_is_delivered_and_then_cut() {
    for behind in ["zz\r\n", "3\r\nabcd", "0\r\n\n"] {
        let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
        let backend = Backend::answering_once(format!("{head}5\r\nhello\r\n{behind}"));
        let gateway = Gateway::start(&everything_to(&backend, ""));
        let mut client = Client::connect(gateway.addr());
        client.write("GET / HTTP/1.1\r\nhost: a\r\n\r\n");
        client.read_head().expect("a head").expect(200);
        assert_eq!(client.read_exact(10).expect("the chunk"), b"5\r\nhello\r\n", "{behind:?}");
        let rest = std::iter::from_fn(|| Some(client.read_some(1 << 10)).filter(|read| !read.is_empty()));
        let rest: Vec<u8> = rest.flatten().collect();
        assert!(!rest.ends_with(b"0\r\n\r\n"), "{behind:?} passed as whole: {rest:?}");
        assert_eq!(gateway.access_log(1)[0]["error"], "response_cut", "{behind:?}");
    }
}

#[test]
fn control_characters_in_an_answers_field_are_502() {
    for control in (0..32).chain([127]).filter(|byte| !matches!(byte, b'\t' | b'\n')) {
        let mut answer = b"HTTP/1.1 200 OK\r\nx: a".to_vec();
        answer.extend([control, b'b']);
        answer.extend(b"\r\ncontent-length: 0\r\n\r\n");
        let backend = Backend::answering_once(answer);
        let gateway = Gateway::start(&everything_to(&backend, ""));
        let mut client = Client::connect(gateway.addr());
        client.write("GET / HTTP/1.1\r\nhost: a\r\n\r\n");
        match client.try_read("GET") {
            Ok(answer) => drop(answer.expect(502)),
            Err(fault @ (Fault::Closed | Fault::Cut(_) | Fault::Malformed(_) | Fault::Timeout)) => {
                panic!("{control:#x}: {fault}")
            }
        }
        assert_eq!(gateway.access_log(1)[0]["error"], "protocol", "{control:#x}");
    }
}
