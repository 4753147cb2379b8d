//! A place is free when its response has ended, however it ends, and no earlier.

use std::time::Duration;

use crate::harness::api::api;
use crate::harness::in_flight::{all_gone, ask, ask_with, begin, comes_to_hold, fits, held, limited};
use crate::harness::{
    Backend, Client, Gateway, GrpcClient, GrpcServer, HoldingBackend, Http2, eventually, h2_get,
};

const MAX: usize = 3;

fn start(route: &str, rest: &str) -> (HoldingBackend, Gateway) {
    let backend = HoldingBackend::start();
    let gateway = Gateway::start(&limited(&backend, &format!("max = {MAX}"), route, rest));
    (backend, gateway)
}

/// The status that is logged for the only request.
fn logged(gateway: &Gateway) -> u64 {
    gateway.access_log(1)[0]["status"].as_u64().expect("a status")
}

#[track_caller]
fn is_broken_off(backend: &HoldingBackend, count: usize) {
    eventually("the exchange with the backend to end", || (backend.broken_off() == count).then_some(()));
}

#[test]
fn a_client_that_is_gone_before_the_response() {
    let (backend, gateway) = start("", "");
    let client = begin(&gateway, "/");
    backend.holds(1);
    client.reset();
    is_broken_off(&backend, 1);
    assert_eq!(logged(&gateway), 499);
    fits(&gateway, &backend, MAX);
}

#[test]
fn a_client_that_is_gone_during_its_upload() {
    let (backend, gateway) = start("", "");
    for reset in [true, false] {
        let mut client = Client::connect(gateway.addr());
        client.write(ask_with("/upload", "content-length: 100\r\n").replace("GET", "POST") + "ten bytes.");
        backend.holds(1);
        assert_eq!(held(&gateway), 1);
        if reset {
            client.reset();
        } else {
            drop(client);
        }
        is_broken_off(&backend, if reset { 1 } else { 2 });
    }
    fits(&gateway, &backend, MAX);
}

#[test]
fn a_client_that_is_gone_while_the_response_streams() {
    let (backend, gateway) = start("", "");
    for (number, leave) in [Client::reset, drop, |mut client: Client| {
        client.finish();
        assert_eq!(client.read_some(1), b"", "the gateway ends it");
    }]
    .into_iter()
    .enumerate()
    {
        let mut client = begin(&gateway, "/stream");
        client.read_head().expect("a head");
        client.read_exact(7).expect("the first chunk");
        assert_eq!(held(&gateway), 1, "as long as the response streams");
        leave(client);
        is_broken_off(&backend, number + 1);
    }
    fits(&gateway, &backend, MAX);
}

#[test]
fn a_client_that_half_closes_after_a_whole_request() {
    let (backend, gateway) = start("", "");
    let mut client = begin(&gateway, "/");
    backend.holds(1);
    client.finish();
    is_broken_off(&backend, 1);
    assert!(client.closes());
    assert_eq!(logged(&gateway), 499);
    // The same with the request in one segment with the end, and with bytes sent ahead.
    for ahead in ["", "GET /ahead HTTP/1.1\r\nhost: test\r\n\r\n"] {
        let before = backend.broken_off();
        let mut client = Client::connect(gateway.addr());
        client.write(format!("{}{ahead}", ask("/again")));
        backend.holds(1);
        client.finish();
        is_broken_off(&backend, before + 1);
    }
    fits(&gateway, &backend, MAX);
}

#[test]
fn without_a_concurrency_limit_a_half_closed_client_is_answered() {
    let (backend, gateway) = start("limits = []", "");
    let mut client = begin(&gateway, "/");
    backend.holds(1);
    client.finish();
    std::thread::sleep(Duration::from_millis(100));
    backend.open();
    client.read().expect(200);
}

#[test]
fn a_request_that_is_gone_at_once_takes_no_place_for_good() {
    let (backend, gateway) = start("", "");
    for _ in 0..100 {
        begin(&gateway, "/").reset();
    }
    for _ in 0..100 {
        begin(&gateway, "/").finish();
    }
    all_gone(&gateway, 200);
    fits(&gateway, &backend, MAX);
}

/// Routes to a backend that refuses, that is dead but has a live one beside it, and that is not waited for.
fn troubled(refusing: &str, backend: &HoldingBackend) -> String {
    format!(
        "[upstreams.dead]\nservers = [\"{refusing}\"]\n[upstreams.half]\nservers = [\"{refusing}\", \"{}\"]\n\
         [[routes]]\nname = \"dead\"\npath = \"/dead\"\nupstream = \"dead\"\nlimits = [\"x\"]\n\
         [[routes]]\nname = \"half\"\npath = \"/half\"\nupstream = \"half\"\nlimits = [\"x\"]\n\
         [[routes]]\nname = \"slow\"\npath = \"/slow\"\nupstream = \"api\"\nlimits = [\"x\"]\ntimeout = \"200ms\"\n",
        backend.url()
    )
}

#[test]
fn a_backend_that_refuses_dies_or_is_late() {
    let (address, _kept) = Backend::refusing();
    let backend = HoldingBackend::start();
    let rest = troubled(&format!("http://{address}"), &backend);
    let gateway = Gateway::start(&limited(&backend, &format!("max = {MAX}"), "", &rest));
    for _ in 0..2 * MAX {
        begin(&gateway, "/dead").read().expect(502);
    }
    comes_to_hold(&gateway, 0);
    for count in 1..=2 * MAX {
        begin(&gateway, "/slow").read().expect(504);
        is_broken_off(&backend, count);
    }
    comes_to_hold(&gateway, 0);
    backend.release("/cut");
    for _ in 0..2 * MAX {
        begin(&gateway, "/cut").read().expect(502);
    }
    comes_to_hold(&gateway, 0);
    // A second attempt has the place of the first.
    let mut retried: Vec<_> = (0..MAX).map(|_| begin(&gateway, "/half")).collect();
    backend.holds(MAX);
    assert_eq!(held(&gateway), MAX as u64);
    backend.open();
    for client in &mut retried {
        client.read().expect(200);
    }
    fits(&gateway, &backend, MAX);
}

#[test]
fn a_tunnel_holds_its_place_until_it_is_closed() {
    let (backend, gateway) = start("", "");
    let switch = "connection: upgrade\r\nupgrade: websocket\r\n";
    let open = |number: usize| {
        let mut client = Client::connect(gateway.addr());
        client.write(ask_with(&format!("/tunnel-{number}"), switch));
        client.read().expect(101);
        client
    };
    let mut tunnels: Vec<_> = (0..MAX).map(open).collect();
    assert_eq!(held(&gateway), MAX as u64);
    begin(&gateway, "/more").read().expect(429);
    drop(tunnels.pop());
    comes_to_hold(&gateway, MAX as u64 - 1);
    backend.release("/tunnel-0");
    assert!(tunnels[0].closes());
    drop(tunnels.swap_remove(0));
    comes_to_hold(&gateway, MAX as u64 - 2);
    drop(tunnels);
    fits(&gateway, &backend, MAX);
}

#[test]
fn streams_of_http2_that_are_reset() {
    let (backend, gateway) = start("", "");
    let mut request = h2_get("/");
    request.headers_mut().insert("x-client", http::HeaderValue::from_static("a"));
    let client = Http2::connect(gateway.addr());
    let streams: Vec<_> = (0..MAX).map(|_| client.begin(request.clone())).collect();
    comes_to_hold(&gateway, MAX as u64);
    begin(&gateway, "/more").read().expect(429);
    drop(streams);
    fits(&gateway, &backend, MAX);
    // Resets right behind their requests; a connection with too many is ended, and its streams with it.
    for _ in 0..10 {
        let client = Http2::connect(gateway.addr());
        for _ in 0..30 {
            if client.try_begin(request.clone()).is_err() {
                break;
            }
        }
    }
    fits(&gateway, &backend, MAX);
    // A connection that breaks with open streams.
    let client = Http2::connect(gateway.addr());
    let streams: Vec<_> = (0..MAX).map(|_| client.begin(request.clone())).collect();
    comes_to_hold(&gateway, MAX as u64);
    drop((client, streams));
    fits(&gateway, &backend, MAX);
}

#[test]
fn calls_of_grpc_give_their_places_back() {
    let server = GrpcServer::start();
    let toml = format!(
        "[upstreams.api]\nservers = [\"{}\"]\nprotocol = \"http2\"\n[[routes]]\npath = \"/test.Echo/*\"\nupstream = \"api\"\n\
         max_body_bytes = 0\nlimits = [\"x\"]\n[limits.x]\nalgorithm = \"concurrency\"\nkey = \"ip\"\nmax = 200\n\
         [admin]\nlisten = \"127.0.0.1:0\"\n",
        server.url()
    );
    let gateway = Gateway::start(&toml);
    let cases =
        ["unary", "client_streaming", "server_streaming", "both_streaming", "cancellation", "leaving"];
    GrpcClient::start(&gateway, &server, None, &cases).finishes();
    eventually("all places to be free", || {
        let key = api(&gateway, "limits/x/keys/127.0.0.1");
        (key["policies"][0]["remaining"] == 200).then_some(())
    });
}

/// The request has its place from its admission on, not from its departure.
#[test]
fn a_place_is_held_during_the_delay_of_a_leaky_bucket() {
    let bucket = "[limits.l]\nalgorithm = \"leaky-bucket\"\nkey = \"header:x-client\"\nrate = \"1/min\"\nqueue = 9\n\
                  max_wait = \"1h\"\n";
    let (backend, gateway) = start("limits = [\"l\", \"x\"]", bucket);
    let _first = begin(&gateway, "/first");
    backend.holds(1);
    let mut delayed: Vec<_> = (1..MAX).map(|_| begin(&gateway, "/delayed")).collect();
    comes_to_hold(&gateway, MAX as u64);
    assert_eq!(backend.present(), 1);
    let refused = begin(&gateway, "/more").read().expect(429);
    assert_eq!(refused.header("retry-after"), None, "by the concurrency limit: {}", refused.head);
    drop(delayed.pop());
    comes_to_hold(&gateway, MAX as u64 - 1);
    delayed[0].finish();
    comes_to_hold(&gateway, MAX as u64 - 2);
    backend.open();
    comes_to_hold(&gateway, 0);
}
