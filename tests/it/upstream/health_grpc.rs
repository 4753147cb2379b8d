//! Health checks of gRPC servers: the call, and what of the answers counts as good.

use std::sync::{Arc, Mutex};

use bytes::{Bytes, BytesMut};
use h2::RecvStream;
use h2::server::{Builder, SendResponse};
use http::{HeaderMap, Request, Response};

use crate::harness::servers::over_http2;
use crate::harness::{Gateway, Http2Backend, eventually, send_all};

const OFTEN: &str = "interval = \"20ms\", timeout = \"10s\"";
const CHECK: &str = "type = \"grpc\"";
/// `HealthCheckResponse { status: SERVING }`, framed.
const SERVING: &[u8] = &[0, 0, 0, 0, 2, 8, 1];

/// An answer of a server.
#[derive(Clone, Debug)]
struct Answer {
    status: u16,
    content_type: &'static str,
    messages: Vec<u8>,
    /// `None`: the stream ends without trailers.
    grpc_status: Option<&'static str>,
}

impl Answer {
    fn with(messages: &[u8]) -> Self {
        let (messages, grpc_status) = (messages.to_vec(), Some("0"));
        Self { status: 200, content_type: "application/grpc", messages, grpc_status }
    }

    async fn send(self, mut respond: SendResponse<Bytes>) {
        let head = Response::builder().status(self.status).header("content-type", self.content_type);
        let mut out = respond.send_response(head.body(()).expect("a head"), false).expect("it is waited for");
        send_all(&mut out, self.messages.into(), self.grpc_status.is_none()).await;
        if let Some(status) = self.grpc_status {
            let mut trailers = HeaderMap::new();
            trailers.insert("grpc-status", status.parse().expect("a value"));
            // The gateway may have read enough.
            drop(out.send_trailers(trailers));
        }
    }
}

/// A server that answers each call so.
fn answering(answer: Answer) -> Http2Backend {
    Http2Backend::start(Builder::new(), move |_, respond| answer.clone().send(respond))
}

/// A server that answers each request with trailers only: this gRPC status, and no message.
fn refusing(status: &'static str) -> Http2Backend {
    Http2Backend::start(Builder::new(), move |_, mut respond: SendResponse<Bytes>| async move {
        let head =
            Response::builder().header("content-type", "application/grpc").header("grpc-status", status);
        respond.send_response(head.body(()).expect("a head"), true).expect("the gateway waits for it");
    })
}

fn gateway(server: &Http2Backend, health: &str) -> Gateway {
    Gateway::start(&over_http2(&[&server.url()], &format!("health = {{ {health}, {OFTEN} }}"), ""))
}

fn is_up(gateway: &Gateway) -> bool {
    gateway.metric("tollgate_upstream_up", &["upstream=\"api\""]) > 0.0
}

/// The first check alone decides, so that a server is up after several.
fn stays_up(gateway: &Gateway, server: &Http2Backend) {
    eventually("several checks", || (server.connections() > 3).then_some(()));
    assert!(is_up(gateway), "{:?}", gateway.stderr_lines());
}

/// A gRPC server answers a `GET` that it does not know with 200 and a status of gRPC.
#[test]
fn a_grpc_status_other_than_0_is_bad_whatever_the_http_status() {
    for (status, words) in [
        ("12", "gRPC status 12 (UNIMPLEMENTED)"),
        ("14", "gRPC status 14 (UNAVAILABLE)"),
        ("x", "gRPC status x"),
    ] {
        let server = refusing(status);
        let gateway = gateway(&server, "path = \"/up\"");
        gateway.wait_for_log(&format!("is unhealthy: it answered with {words}"));
        assert!(!is_up(&gateway), "{status}");
    }
    let server = refusing("0");
    stays_up(&gateway(&server, "path = \"/up\""), &server);
}

#[test]
fn a_server_that_serves_is_up() {
    let server = answering(Answer::with(SERVING));
    stays_up(&gateway(&server, CHECK), &server);
    // Fields that a later version adds are skipped.
    let server = answering(Answer::with(&[0, 0, 0, 0, 5, 8, 1, 0x12, 1, b'x']));
    stays_up(&gateway(&server, CHECK), &server);
}

#[test]
fn every_other_answer_is_bad() {
    let of = |messages: &[u8]| Answer::with(messages);
    for (answer, words) in [
        (of(&[0, 0, 0, 0, 2, 8, 2]), "it reports 2 (NOT_SERVING)"),
        (of(&[0, 0, 0, 0, 2, 8, 3]), "it reports 3 (SERVICE_UNKNOWN)"),
        (of(&[0, 0, 0, 0, 2, 8, 9]), "it reports 9"),
        (of(&[0; 5]), "it reports 0 (UNKNOWN)"),
        (Answer { grpc_status: Some("13"), ..of(SERVING) }, "gRPC status 13 (INTERNAL)"),
        (Answer { grpc_status: None, ..of(SERVING) }, "its answer has no gRPC status"),
        (of(b""), "not one whole message"),
        (of(&SERVING[..6]), "not one whole message"),
        (of(&[SERVING, SERVING].concat()), "not one whole message"),
        (of(&[1, 0, 0, 0, 2, 8, 1]), "the message is compressed"),
        (of(&[0, 0, 0, 0, 2, 8, 0x80]), "the message is malformed"),
        (of(&vec![0; 5_000]), "more than 4096 bytes"),
        (Answer { content_type: "text/html", ..of(SERVING) }, "its answer is not gRPC"),
        (Answer { status: 503, ..of(SERVING) }, "it answered 503"),
    ] {
        let server = answering(answer.clone());
        let gateway = gateway(&server, CHECK);
        gateway.wait_for_log("is unhealthy");
        let told = gateway.stderr_lines().into_iter().find(|line| line.contains("is unhealthy"));
        assert!(told.as_ref().is_some_and(|told| told.contains(words)), "{answer:?}: {told:?}");
        assert!(!is_up(&gateway), "{answer:?}");
    }
    let server = refusing("5");
    gateway(&server, CHECK).wait_for_log("is unhealthy: it answered with gRPC status 5 (NOT_FOUND)");
}

#[test]
fn the_call_is_that_of_the_health_service() {
    let calls = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&calls);
    let server = Http2Backend::start(Builder::new(), move |request: Request<RecvStream>, respond| {
        let seen = Arc::clone(&seen);
        async move {
            let (head, mut body) = request.into_parts();
            let mut message = BytesMut::new();
            while let Some(Ok(part)) = body.data().await {
                message.extend_from_slice(&part);
            }
            seen.lock().expect("no panic inside").push((head, message));
            Answer::with(SERVING).send(respond).await;
        }
    });
    let health =
        "type = \"grpc\", service = \"shop.Cart\", host = \"cart.internal\", headers = { x-probe = \"7\" }";
    stays_up(&gateway(&server, health), &server);
    let (head, message) = calls.lock().expect("no panic inside")[0].clone();
    assert_eq!(head.method, "POST");
    assert_eq!(head.uri.to_string(), "http://cart.internal/grpc.health.v1.Health/Check");
    for (name, value) in [("content-type", "application/grpc"), ("te", "trailers"), ("x-probe", "7")] {
        assert_eq!(head.headers.get(name).map(|value| value.as_bytes()), Some(value.as_bytes()), "{name}");
    }
    assert_eq!(&*message, [&[0, 0, 0, 0, 11, 10, 9][..], b"shop.Cart"].concat());
}

/// The server that the library of gRPC makes has no health service.
#[test]
fn a_grpc_server_without_the_service_is_down() {
    let server = crate::harness::GrpcServer::start();
    let health = format!("health = {{ {CHECK}, {OFTEN} }}");
    let gateway = Gateway::start(&over_http2(&[&server.url()], &health, ""));
    gateway.wait_for_log("is unhealthy: it answered with gRPC status 12 (UNIMPLEMENTED)");
}
