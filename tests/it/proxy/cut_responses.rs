//! A response that breaks off never looks complete: any content type, any framing, either version on either side.

use std::sync::{Arc, Mutex};

use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use crate::harness::{
    AllVersions, Backend, Client, Fault, Frame, FrameServer, Frames, Gateway, Multiplexed, Next, h2_get,
};

/// A response that is not whole.
#[derive(Clone, Debug)]
struct CutResponse {
    content_type: String,
    /// The length in its head, more than is sent; without one it is chunked, or a stream without a length.
    declared: Option<usize>,
    sent: usize,
    end: End,
}

/// What follows the last byte that is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// The end of the connection.
    Close,
    /// A reset: of the stream with this code, or of the connection.
    Reset(u32),
    /// END_STREAM, although the head has announced more.
    Early,
}

/// The response that the backend gives next.
type NextResponse = Arc<Mutex<Option<CutResponse>>>;

fn responses() -> impl Strategy<Value = CutResponse> {
    let content_type = prop_oneof![
        2 => Just("application/grpc".to_owned()),
        6 => "application/(grpc|GRPC)[-+;. ]?(web|proto|json|web-text|x)?([+;](proto|v=1))?",
        2 => "(text/event-stream|application/json|text/html; charset=utf-8|multipart/mixed|[a-z]{1,6}/[a-z+]{1,9})",
    ];
    let end = prop_oneof![
        Just(End::Close),
        // NO_ERROR, INTERNAL_ERROR, REFUSED_STREAM and CANCEL (RFC 9113 §7).
        prop::sample::select(vec![0, 2, 7, 8]).prop_map(End::Reset),
        Just(End::Early),
    ];
    (content_type, any::<bool>(), 0_usize..40, end).prop_map(|(content_type, is_declared, sent, end)| {
        let declared = (is_declared || end == End::Early).then_some(sent + 7);
        CutResponse { content_type, declared, sent, end }
    })
}

impl CutResponse {
    /// gRPC has a status of its own after the body (the protocol "gRPC over HTTP/2", Content-Type).
    fn is_grpc(&self) -> bool {
        let lower = self.content_type.to_ascii_lowercase();
        lower
            .strip_prefix("application/grpc")
            .is_some_and(|rest| rest.is_empty() || rest.starts_with(['+', ';', ' ']))
    }

    fn body(&self) -> String {
        "x".repeat(self.sent)
    }

    /// As HTTP/1.1.
    fn text(&self) -> String {
        let body = self.body();
        let (framing, body) = match self.declared {
            Some(length) => (format!("content-length: {length}"), body),
            None if body.is_empty() => ("transfer-encoding: chunked".to_owned(), body),
            None => ("transfer-encoding: chunked".to_owned(), format!("{:x}\r\n{body}\r\n", body.len())),
        };
        format!("HTTP/1.1 200 OK\r\ncontent-type: {}\r\n{framing}\r\n\r\n{body}", self.content_type)
    }

    /// Sends it over HTTP/2. Returns whether the connection goes on.
    fn send(&self, frames: &mut Frames, stream: u32) -> bool {
        let length = self.declared.map(|length| length.to_string());
        let mut fields = vec![(":status", "200"), ("content-type", self.content_type.as_str())];
        fields.extend(length.as_deref().map(|length| ("content-length", length)));
        frames.head(stream, &fields, false);
        let is_early = self.end == End::Early;
        if self.sent > 0 || is_early {
            frames.data(stream, self.body().as_bytes(), is_early);
        }
        if let End::Reset(code) = self.end {
            frames.reset(stream, code);
        }
        self.end != End::Close
    }
}

fn next(response: &NextResponse) -> CutResponse {
    response.lock().expect("no panic").clone().expect("a response")
}

fn http1_backend(response: NextResponse) -> Backend {
    Backend::start(move |exchange| {
        let response = next(&response);
        exchange.write(response.text());
        if matches!(response.end, End::Reset(_)) { Next::Reset } else { Next::Close }
    })
}

/// Returns where it listens.
fn http2_backend(response: NextResponse) -> String {
    let server = FrameServer::start();
    let url = server.url();
    std::thread::spawn(move || {
        loop {
            let mut frames = server.accept();
            let response = Arc::clone(&response);
            std::thread::spawn(move || {
                while let Some(frame) = frames.try_next() {
                    if frame.kind == Frame::HEADERS && !next(&response).send(&mut frames, frame.stream) {
                        return;
                    }
                }
            });
        }
    });
    url
}

fn gateway(url: &str, protocol: &str) -> AllVersions {
    AllVersions::start(&format!(
        "[upstreams.api]\nservers = [\"{url}\"]\nprotocol = \"{protocol}\"\n[[routes]]\npath = \"/*\"\nupstream = \"api\"\n"
    ))
}

fn http1_client_sees_it(gateway: &Gateway, case: &CutResponse) {
    let mut client = Client::connect(gateway.addr());
    client.write("GET / HTTP/1.1\r\nhost: test\r\n\r\n");
    match client.try_read("GET") {
        Err(Fault::Cut(_)) => {}
        Ok(response) if response.status == 502 => {}
        other => panic!("{case:?}: {other:?}"),
    }
}

fn client_sees_it(client: &Multiplexed, case: &CutResponse) {
    let version = client.version();
    match client.exchange(h2_get("/"), &b""[..]) {
        // The gateway says so; the client's library would notice a wrong length by itself.
        Err(lost) => assert!(lost.is_remote, "{version}: {case:?}: {}", lost.text),
        Ok(answer) if answer.status == 502 => {}
        Ok(answer) => {
            let status = answer.trailers.as_ref().and_then(|trailers| trailers.get("grpc-status"));
            assert!(
                case.is_grpc() && status.is_some_and(|status| status == "14"),
                "{version}: {case:?}: {answer:?}"
            );
        }
    }
}

/// Behind a backend, a client of each version.
fn all_clients_see_it(gateway: &AllVersions, response: &NextResponse) {
    let clients = gateway.clients();
    let property = |case: CutResponse| {
        *response.lock().expect("no panic") = Some(case.clone());
        http1_client_sees_it(gateway, &case);
        clients.iter().for_each(|client| client_sees_it(client, &case));
        Ok(())
    };
    let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) };
    TestRunner::new(config).run(&responses(), property).expect("it holds");
}

#[test]
fn a_response_over_http_1_that_breaks_off_never_looks_complete() {
    let response = NextResponse::default();
    let backend = http1_backend(Arc::clone(&response));
    all_clients_see_it(&gateway(&backend.url(), "http1"), &response);
}

#[test]
fn a_response_over_http_2_that_breaks_off_never_looks_complete() {
    let response = NextResponse::default();
    let url = http2_backend(Arc::clone(&response));
    all_clients_see_it(&gateway(&url, "http2"), &response);
}
