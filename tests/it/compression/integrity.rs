//! The client decodes the very body that the backend sent, however either frames it.

use bytes::Bytes;
use h2::server::Builder;
use http::{Request, Response};

use super::{CODINGS, compressing, text};
use crate::harness::servers::over_http2;
use crate::harness::{
    AllVersions, Backend, Client, Fault, Gateway, Http2Backend, Next, content_coding, eventually, get_with,
    send_all,
};

const HEAD: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n";

/// The body with a length, in chunks of many sizes, and to the end of the connection: by the request's target.
fn framing(body: Vec<u8>) -> Backend {
    Backend::start(move |exchange| match exchange.target() {
        "/length" => {
            exchange.write(format!("{HEAD}content-length: {}\r\n\r\n", body.len()));
            exchange.write(&body);
            Next::KeepAlive
        }
        "/chunks" => {
            exchange.write(format!("{HEAD}transfer-encoding: chunked\r\ntrailer: x-sum\r\n\r\n"));
            let (mut rest, mut size) = (&body[..], 1);
            while !rest.is_empty() {
                let (part, after) = rest.split_at(size.min(rest.len()));
                exchange.write([format!("{:x}\r\n", part.len()).as_bytes(), part, b"\r\n"].concat());
                (rest, size) = (after, size * 3 % 50_021 + 1);
            }
            exchange.write("0\r\nx-sum: 7\r\n\r\n");
            Next::KeepAlive
        }
        _ => {
            exchange.write(format!("{HEAD}connection: close\r\n\r\n"));
            exchange.write(&body);
            Next::Close
        }
    })
}

#[test]
fn a_body_of_any_framing_arrives_whole_in_any_coding() {
    for length in [1, 1_000, 300_000, 2_000_000] {
        let body = text(length);
        let backend = framing(body.clone());
        let gateway = AllVersions::start(&compressing(&backend, "{ min = 0 }", ""));
        let mut client = Client::connect(gateway.addr());
        let others = gateway.clients();
        for coding in CODINGS {
            for path in ["/length", "/chunks", "/close"] {
                let answer =
                    client.get(path, &format!("accept-encoding: {coding}\r\nte: trailers\r\n")).expect(200);
                assert_eq!(answer.header("content-encoding"), Some(coding));
                assert!(content_coding::whole(coding, &answer.body) == body, "{coding} {path} {length}");
                let trailers = if path == "/chunks" { 1 } else { 0 };
                assert_eq!(answer.trailers.len(), trailers, "{coding} {path}");
                for client in &others {
                    let version = client.version();
                    let request =
                        Request::get(format!("http://test{path}")).header("accept-encoding", coding);
                    let request = request.body(()).expect("a request");
                    let answer = client.exchange(request, &b""[..]).expect("an answer");
                    assert_eq!(answer.header("content-encoding"), Some(coding));
                    assert!(!answer.headers.contains_key("content-length"));
                    let is_whole = content_coding::whole(coding, &answer.body) == body;
                    assert!(is_whole, "{version}: {coding} {path} {length}");
                }
            }
        }
    }
}

#[test]
fn a_body_from_an_http2_backend_arrives_whole() {
    let body = text(400_000);
    let sent = Bytes::from(body.clone());
    let backend = Http2Backend::start(Builder::new(), move |request, mut respond| {
        let (sent, is_declared) = (sent.clone(), request.uri().path() == "/length");
        async move {
            let mut head = Response::builder().header("content-type", "application/json");
            if is_declared {
                head = head.header("content-length", sent.len());
            }
            let mut out = respond.send_response(head.body(()).expect("a head"), false).expect("it waits");
            send_all(&mut out, sent, true).await;
        }
    });
    let gateway = Gateway::start(&over_http2(&[&backend.url()], "", "compress = true"));
    let mut client = Client::connect(gateway.addr());
    for coding in CODINGS {
        for path in ["/length", "/stream"] {
            let answer = client.get(path, &format!("accept-encoding: {coding}\r\n")).expect(200);
            assert!(content_coding::whole(coding, &answer.body) == body, "{coding} {path}");
        }
    }
}

#[test]
fn a_body_that_breaks_off_is_cut_for_the_client_too() {
    for coding in CODINGS {
        let backend = Backend::start(|exchange| {
            exchange.write(format!("{HEAD}content-length: 100000\r\n\r\n"));
            exchange.write(text(50_000));
            exchange.wait_at_gate();
            Next::Close
        });
        let gateway = Gateway::start(&compressing(&backend, "true", ""));
        let mut client = Client::connect(gateway.addr());
        client.write(format!("GET / HTTP/1.1\r\nhost: test\r\naccept-encoding: {coding}\r\n\r\n"));
        backend.wait_for(1);
        backend.open_gate();
        assert!(matches!(client.try_read("GET"), Err(Fault::Cut(_))), "{coding}");
        assert_eq!(gateway.access_log(1)[0]["error"], "response_cut");
    }
}

#[test]
fn a_malformed_body_is_answered_502_as_long_as_nothing_was_sent() {
    let backend = Backend::answering(format!("{HEAD}transfer-encoding: chunked\r\n\r\nnonsense\r\n"));
    let gateway = Gateway::start(&compressing(&backend, "true", ""));
    get_with(gateway.addr(), "/", "accept-encoding: gzip\r\n").expect(502);
}

#[test]
fn many_clients_at_once_each_get_their_own_body() {
    let backend = Backend::start(|exchange| {
        let body = exchange.target().repeat(20_000);
        exchange.write(format!("{HEAD}content-length: {}\r\n\r\n{body}", body.len()));
        Next::KeepAlive
    });
    let gateway = Gateway::start(&compressing(&backend, "true", ""));
    std::thread::scope(|scope| {
        for client in 0..12 {
            let gateway = &gateway;
            scope.spawn(move || {
                let mut connection = Client::connect(gateway.addr());
                for turn in 0..20 {
                    let (path, coding) = (format!("/{client}-{turn}"), CODINGS[(client + turn) % 3]);
                    let answer = connection.get(&path, &format!("accept-encoding: {coding}\r\n")).expect(200);
                    assert!(content_coding::whole(coding, &answer.body) == path.repeat(20_000).as_bytes());
                }
            });
        }
    });
}

/// Bodies with which each worker has all its encoders in use: further ones go on as they are.
#[test]
fn responses_beyond_the_encoders_are_not_compressed() {
    let backend = Backend::start(|exchange| {
        exchange.write(format!("{HEAD}transfer-encoding: chunked\r\n\r\n6\r\nbegin\n\r\n"));
        exchange.wait_at_gate();
        exchange.write("4\r\nend\n\r\n0\r\n\r\n");
        Next::KeepAlive
    });
    let one_worker = "[server]\nlisten = [\"127.0.0.1:0\"]\nworkers = 1\n";
    let gateway = Gateway::start(&format!("{one_worker}{}", compressing(&backend, "true", "")));
    let mut clients: Vec<Client> = (0..140).map(|_| Client::connect(gateway.addr())).collect();
    let mut plain = 0;
    for client in &mut clients {
        client.write("GET / HTTP/1.1\r\nhost: test\r\naccept-encoding: zstd\r\n\r\n");
    }
    let heads: Vec<_> = clients.iter_mut().map(|client| client.read_head().expect("a head")).collect();
    backend.open_gate();
    for (client, head) in clients.iter_mut().zip(heads) {
        assert_eq!(head.header("vary"), Some("accept-encoding"));
        let mut body = Vec::new();
        while client.read_chunk(&mut body).expect("a chunk") {}
        client.read_exact(2).expect("no trailers");
        match head.header("content-encoding") {
            Some(coding) => assert_eq!(content_coding::whole(coding, &body), b"begin\nend\n"),
            None => {
                plain += 1;
                assert_eq!(body, b"begin\nend\n");
            }
        }
    }
    assert_eq!(plain, 12, "128 at one time");
    eventually("the encoders are given back", || {
        let answer = clients[0].get("/", "accept-encoding: zstd\r\n").expect(200);
        answer.header("content-encoding").is_some().then_some(())
    });
}
