//! What requests cost whose responses tell it, when clients of HTTP/3 read them to their ends or not.

use http::Request;

use crate::harness::metered::{a_day, comes_to_use, metered, parrot, used};
use crate::harness::{AllVersions, Body, h3_request};

const COSTS: [&str; 4] = [
    "{ reserve = 100, settle = \"json:/total\" }",
    "{ reserve = 100, settle = \"sse:/total\" }",
    "{ reserve = 100, settle = \"trailer:x-cost\" }",
    "{ reserve = 100, settle = \"bytes\" }",
];

/// The backend answers with the body of the request, and holds what follows a bar.
fn ask(route: usize, client: &str, then: &str) -> Request<()> {
    h3_request("POST", &format!("/{route}/"), &[("x-client", client), ("x-then", then)])
}

fn start() -> (crate::harness::Backend, AllVersions) {
    let backend = parrot();
    let gateway = AllVersions::start(&metered(&backend.url(), &COSTS, &a_day(1_000), ""));
    (backend, gateway)
}

#[test]
fn a_response_that_is_read_costs_what_it_says() {
    let (_backend, gateway) = start();
    let client = gateway.http3();
    let head = "HTTP/1.1 200 OK\r\n";
    for (route, response, cost) in [
        (0, "content-length: 12\r\n\r\n{\"total\":41}", 41),
        (1, "content-type: text/event-stream\r\ncontent-length: 19\r\n\r\ndata: {\"total\":7}\n\n", 7),
        (2, "transfer-encoding: chunked\r\ntrailer: x-cost\r\n\r\n1\r\na\r\n0\r\nx-cost: 45\r\n\r\n", 45),
        (3, "content-length: 3\r\n\r\nabc", 3),
    ] {
        let name = format!("c{route}");
        let body = Body::from(format!("{head}{response}").as_bytes());
        client.exchange(ask(route, &name, ""), body).expect("an answer").expect(200);
        assert_eq!(used(&gateway, &name), cost, "{}", COSTS[route]);
    }
}

/// A stream that its client resets costs what is known.
#[test]
fn a_stream_that_is_reset_costs_what_is_known() {
    let (_backend, gateway) = start();
    let response = b"HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n{\"total\":30,|";
    for (route, name, cost) in [(0, "a", 30), (3, "b", 12), (2, "c", 100)] {
        let client = gateway.http3();
        let (mut upload, mut download) = client.begin(ask(route, name, "gate"));
        client.send(&mut upload, response).expect("the stream is open");
        client.end_body(&mut upload).expect("the stream is open");
        comes_to_use(&gateway, name, 100);
        assert_eq!(client.status(&mut download), Ok(200));
        client.quic().block_on(download.recv_data()).expect("no reset").expect("the first bytes");
        drop(download);
        comes_to_use(&gateway, name, cost);
    }
}
