//! The same sources over HTTP/2, on either side of the gateway.

use bytes::Bytes;
use h2::server::Builder;
use http::{HeaderMap, Request, Response};

use crate::harness::metered::{a_day, comes_to_use, metered, parrot, request, used};
use crate::harness::{AllVersions, Client, Http2Backend, Multiplexed};

const COSTS: [&str; 6] = [
    "{ reserve = 100, settle = \"json:/total\" }",
    "{ reserve = 100, settle = \"sse:/total\" }",
    "{ reserve = 100, settle = \"header:x-cost\" }",
    "{ reserve = 100, settle = \"trailer:x-cost\" }",
    "{ reserve = 100, settle = \"bytes\" }",
    "{ reserve = 100, settle = \"status\", status = { 200 = 9 } }",
];

/// What a route's response has: a header, its body in parts, and a trailer.
#[derive(Clone, Copy)]
struct Shape {
    header: Option<&'static str>,
    parts: &'static [&'static str],
    trailer: Option<&'static str>,
    cost: u64,
}

const BARE: Shape = Shape { header: None, parts: &[], trailer: None, cost: 100 };

const SHAPES: [(usize, Shape); 10] = [
    (0, Shape { parts: &["{\"to", "tal\":", "41}"], cost: 41, ..BARE }),
    (0, BARE),
    (1, Shape { parts: &["data: {\"total\":1}\n\n", "data: {\"total\"", ":42}\n", "\n"], cost: 42, ..BARE }),
    (2, Shape { header: Some("43"), parts: &["a"], cost: 43, ..BARE }),
    (2, Shape { header: Some("44"), cost: 44, ..BARE }),
    (3, Shape { parts: &["a", "b"], trailer: Some("45"), cost: 45, ..BARE }),
    // The trailers of a response without a body are in its head.
    (3, Shape { header: Some("46"), cost: 46, ..BARE }),
    (3, Shape { parts: &["a"], ..BARE }),
    (4, Shape { parts: &["abc", "de"], cost: 5, ..BARE }),
    (5, Shape { parts: &["a"], cost: 9, ..BARE }),
];

impl Shape {
    fn content_type(self) -> &'static str {
        let is_event = self.parts.first().is_some_and(|part| part.starts_with("data:"));
        if is_event { "text/event-stream" } else { "application/json" }
    }

    fn over_http1(self) -> Vec<u8> {
        let header = self.header.map(|value| format!("x-cost: {value}\r\n")).unwrap_or_default();
        if self.parts.is_empty() {
            return format!("HTTP/1.1 200 OK\r\n{header}content-length: 0\r\n\r\n").into_bytes();
        }
        let parts: String = self.parts.iter().map(|part| format!("{:x}\r\n{part}\r\n", part.len())).collect();
        let trailer = self.trailer.map(|value| format!("x-cost: {value}\r\n")).unwrap_or_default();
        let content_type = self.content_type();
        format!("HTTP/1.1 200 OK\r\n{header}content-type: {content_type}\r\ntransfer-encoding: chunked\r\n\r\n{parts}0\r\n{trailer}\r\n")
            .into_bytes()
    }
}

/// A backend that answers with the shape whose number the request names.
fn shaped() -> Http2Backend {
    Http2Backend::start(Builder::new(), |request, mut respond| async move {
        let number: usize = request.headers()["x-shape"].to_str().unwrap().parse().unwrap();
        let shape = SHAPES[number].1;
        let Shape { header, parts, trailer, .. } = shape;
        let mut response = Response::builder().status(200).header("content-type", shape.content_type());
        if let Some(value) = header {
            response = response.header("x-cost", value);
        }
        let is_bare = parts.is_empty();
        let Ok(mut body) = respond.send_response(response.body(()).unwrap(), is_bare) else { return };
        for (index, part) in parts.iter().enumerate() {
            let is_last = index + 1 == parts.len() && trailer.is_none();
            body.send_data(Bytes::from_static(part.as_bytes()), is_last).ok();
            tokio::task::yield_now().await;
        }
        if let Some(value) = trailer {
            let trailers = HeaderMap::from_iter([("x-cost".parse().unwrap(), value.parse().unwrap())]);
            body.send_trailers(trailers).ok();
        }
    })
}

fn ask(connection: &Multiplexed, number: usize, client: &str, body: Vec<u8>) {
    let (route, shape) = SHAPES[number];
    let request = Request::builder()
        .method("POST")
        .uri(format!("http://test/{route}/"))
        .header("x-client", client)
        .header("x-shape", number.to_string())
        .body(())
        .unwrap();
    let answer = connection.exchange(request, &*body).unwrap().expect(200);
    assert_eq!(answer.body, shape.parts.concat().into_bytes(), "{number}");
}

#[test]
fn clients_of_http2_and_http3_before_a_backend_of_http1() {
    let backend = parrot();
    let gateway = AllVersions::start(&metered(&backend.url(), &COSTS, &a_day(1_000), ""));
    for connection in gateway.clients() {
        for (number, (_, shape)) in SHAPES.into_iter().enumerate() {
            let client = format!("c{number}-{}", connection.scheme());
            ask(&connection, number, &client, shape.over_http1());
            assert_eq!(used(&gateway, &client), shape.cost, "{client}");
        }
    }
}

fn before_http2(backend: &Http2Backend) -> AllVersions {
    let toml = metered(&backend.url(), &COSTS, &a_day(1_000), "");
    let one = format!("api = \"{}\"", backend.url());
    let two = format!("api = {{ servers = [\"{}\"], protocol = \"http2\" }}", backend.url());
    AllVersions::start(&toml.replace(&one, &two))
}

#[test]
fn clients_of_http2_and_http3_before_a_backend_of_http2() {
    let backend = shaped();
    let gateway = before_http2(&backend);
    for connection in gateway.clients() {
        for (number, (_, shape)) in SHAPES.into_iter().enumerate() {
            let client = format!("c{number}-{}", connection.scheme());
            ask(&connection, number, &client, Vec::new());
            assert_eq!(used(&gateway, &client), shape.cost, "{client}");
        }
    }
}

#[test]
fn clients_of_http1_before_a_backend_of_http2() {
    let backend = shaped();
    let gateway = before_http2(&backend);
    let mut connection = Client::connect(gateway.addr());
    for (number, (route, shape)) in SHAPES.into_iter().enumerate() {
        let client = format!("c{number}");
        let shape_field = format!("x-shape: {number}\r\n");
        let answer = connection.exchange(request(route, &client, &shape_field, b"")).expect(200);
        assert_eq!(answer.body, shape.parts.concat().into_bytes(), "{number}");
        assert_eq!(used(&gateway, &client), shape.cost, "{number}");
    }
}

/// A stream that its client resets costs what is known.
#[test]
fn a_stream_that_is_reset_costs_what_is_known() {
    let backend = parrot();
    let gateway = AllVersions::start(&metered(&backend.url(), &COSTS, &a_day(1_000), ""));
    let body = b"HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n{\"total\":30,|";
    let request = |route: usize, client: &str| {
        Request::builder()
            .method("POST")
            .uri(format!("http://test/{route}/"))
            .header("x-client", client)
            .header("x-then", "gate")
            .body(())
            .unwrap()
    };
    for (number, connection) in gateway.clients().into_iter().enumerate() {
        for (route, cost) in [(0, 30), (4, 12), (3, 100)] {
            let client = format!("{route}-{number}");
            let stream = connection.begin(request(route, &client), body);
            comes_to_use(&gateway, &client, 100);
            // The head and the first bytes have arrived, or arrive before the reset is seen.
            std::thread::sleep(std::time::Duration::from_millis(200));
            stream.cancel();
            comes_to_use(&gateway, &client, cost);
        }
    }
}
