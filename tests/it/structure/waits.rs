//! Every wait on a peer has a bound: this table names each place that waits on a socket, and the timer that ends the wait.
//!
//! The test reads `src/` and fails where a function waits on a socket and is not in the table, where the table names one that
//! does not, and where the file that is to hold the timer does not mention it. That a timer ends its wait is tested where the
//! behaviour is (`docs/security.md` names the tests).

use std::collections::BTreeSet;
use std::path::Path;

use crate::harness::sources::{read, rust_files};

/// Calls that wait on a socket, or on a stream of HTTP/2.
const WAITS: [&str; 24] = [
    ".poll_read(",
    ".poll_write(",
    ".poll_flush(",
    ".poll_peek(",
    ".poll_body(",
    ".poll_accept(",
    ".poll_reset(",
    ".poll_room(",
    ".poll_open(",
    ".poll_ready(",
    ".accept().await",
    "TcpStream::connect(",
    "UnixStream::connect(",
    "socket.ready(",
    ".readable(",
    ".writable(",
    ".read_exact(",
    "stream.write_all(",
    ".read_buf(",
    ".handshake(",
    ".serve_connection(",
    "send_request(",
    "connection.poll(",
    "Pin::new(&mut connection).poll(",
];

/// File and function that wait; the timer, and the file that has it.
const BOUNDS: &[(&str, &str, &str, &str)] = &[
    // The client's side, HTTP/1.1.
    ("proxy/connection/proxy_protocol.rs", "read", "header_timeout", "proxy/connection/proxy_protocol.rs"),
    ("proxy/session/request_reader.rs", "poll_head", "header_timeout", "proxy/session/request_reader.rs"),
    ("proxy/session/request_reader.rs", "poll_body", "body_timeout", "proxy/session/request_reader.rs"),
    // As long as a leaky bucket delays a request: `max_wait`.
    ("proxy/session/request_reader.rs", "gone", "delay", "proxy/decide.rs"),
    // Beside the wait for the backend, which ends it.
    ("proxy/session/request_reader.rs", "poll", "route.timeout", "proxy/forward.rs"),
    (
        "proxy/session/request_body/interim.rs",
        "poll_interim",
        "write_timeout",
        "proxy/session/request_body/interim.rs",
    ),
    (
        "proxy/session/request_body/interim.rs",
        "poll_hints",
        "write_timeout",
        "proxy/session/request_body/interim.rs",
    ),
    ("proxy/session/request_body.rs", "poll_more", "body_timeout", "proxy/session/request_reader.rs"),
    ("proxy/decide/read_content.rs", "ask_for_body", "write_timeout", "proxy/decide/read_content.rs"),
    ("proxy/decide/read_content.rs", "poll_end", "body_timeout", "proxy/session/request_reader.rs"),
    ("proxy/session/response_writer.rs", "poll_write", "write_timeout", "proxy/session/response_writer.rs"),
    ("proxy/session/response_writer.rs", "poll_flush", "write_timeout", "proxy/session/response_writer.rs"),
    ("proxy/session/response_writer.rs", "poll_held", "write_timeout", "proxy/session/response_writer.rs"),
    ("proxy/session/response_writer.rs", "write", "write_timeout", "proxy/session/response_writer.rs"),
    ("proxy/session/response_writer.rs", "flush", "write_timeout", "proxy/session/response_writer.rs"),
    ("proxy/forward/response_body.rs", "poll_http1", "write_timeout", "proxy/session/response_writer.rs"),
    ("proxy/forward/response_body.rs", "poll_more", "read_timeout", "proxy/forward/response_body.rs"),
    ("proxy/connection/tunnel.rs", "poll", "silence", "proxy/connection/tunnel.rs"),
    ("proxy/connection/tunnel.rs", "relay", "silence", "proxy/connection/tunnel.rs"),
    ("proxy/connection/tunnel/side.rs", "poll_read", "silence", "proxy/connection/tunnel.rs"),
    ("proxy/connection/tunnel/side.rs", "poll_write", "silence", "proxy/connection/tunnel.rs"),
    ("proxy/connection/tunnel/side.rs", "poll_flush", "silence", "proxy/connection/tunnel.rs"),
    ("proxy/connection/tunnel/side.rs", "poll_reset", "silence", "proxy/connection/tunnel.rs"),
    ("proxy/connection/tunnel.rs", "drop_received", "silence", "proxy/connection/tunnel.rs"),
    ("proxy/connection/linger.rs", "linger_for", "SILENCE", "proxy/connection/linger.rs"),
    // The client's side, HTTP/2.
    ("proxy/connection/http2.rs", "poll", "PING_EVERY", "proxy/connection/http2.rs"),
    ("proxy/connection/linger.rs", "linger_stream", "SILENCE", "proxy/connection/linger.rs"),
    ("http2/connection/receive.rs", "poll_receive", "PING_EVERY", "proxy/connection/http2.rs"),
    ("http2/connection/send.rs", "poll_send", "ack_timeout", "http2/traffic.rs"),
    ("http2/connection/send.rs", "poll_flush", "ack_timeout", "http2/traffic.rs"),
    ("http2/connection/handle.rs", "poll_room", "write_timeout", "proxy/session/server_stream.rs"),
    ("proxy/session/server_stream.rs", "poll_read", "body_timeout", "proxy/session/request_reader.rs"),
    ("proxy/session/server_stream.rs", "poll_room", "write_timeout", "proxy/session/server_stream.rs"),
    ("proxy/session/server_stream.rs", "poll_send", "write_timeout", "proxy/session/server_stream.rs"),
    ("proxy/forward/response_body.rs", "poll_http2", "write_timeout", "proxy/session/server_stream.rs"),
    // The client's side, HTTP/3.
    ("proxy/connection/http3.rs", "poll", "idle_timeout", "proxy/connection/http3.rs"),
    ("proxy/connection/http3/control.rs", "poll_flush", "idle_timeout", "proxy/connection/http3.rs"),
    ("proxy/connection/http3/stream.rs", "sending", "write_timeout", "proxy/session/server_stream.rs"),
    ("proxy/connection/http3/stream.rs", "send_rest", "write_timeout", "proxy/connection/http3/stream.rs"),
    ("http3/stream.rs", "put", "write_timeout", "proxy/session/server_stream.rs"),
    ("http3/stream.rs", "poll_room", "write_timeout", "proxy/session/server_stream.rs"),
    ("http3/stream.rs", "poll_flush", "write_timeout", "proxy/connection/http3/stream.rs"),
    // Either version: a stream has the bounds of `server_stream.rs`, and a tunnel those of `tunnel.rs`.
    (
        "proxy/session/server_stream/transport.rs",
        "poll_read",
        "body_timeout",
        "proxy/session/request_reader.rs",
    ),
    (
        "proxy/session/server_stream/transport.rs",
        "poll_room",
        "write_timeout",
        "proxy/session/server_stream.rs",
    ),
    (
        "proxy/session/server_stream/transport.rs",
        "poll_flush",
        "write_timeout",
        "proxy/connection/http3/stream.rs",
    ),
    ("proxy/session/server_stream/transport.rs", "poll_reset", "route.timeout", "proxy/forward.rs"),
    ("proxy/connection/tunnel.rs", "relay", "silence", "proxy/connection/tunnel.rs"),
    ("proxy/connection/tunnel/side.rs", "poll_read", "silence", "proxy/connection/tunnel.rs"),
    ("proxy/connection/tunnel/side.rs", "poll_write", "silence", "proxy/connection/tunnel.rs"),
    ("proxy/connection/tunnel/side.rs", "poll_flush", "silence", "proxy/connection/tunnel.rs"),
    ("proxy/connection/tunnel/side.rs", "poll_reset", "silence", "proxy/connection/tunnel.rs"),
    // Beside the wait for the backend, or for the rest of the request.
    ("proxy/session/server_stream.rs", "poll_reset", "route.timeout", "proxy/forward.rs"),
    // Backends.
    ("upstream/connect.rs", "open_socket", "connect_timeout", "upstream/pool.rs"),
    ("upstream/connect.rs", "open_unix_socket", "connect_timeout", "upstream/pool.rs"),
    ("upstream/exchange.rs", "poll_answer", "timeout", "upstream/exchange.rs"),
    ("upstream/exchange.rs", "poll_send", "timeout", "upstream/exchange.rs"),
    ("proxy/forward/mirror.rs", "discard", "self.timeout", "proxy/forward/mirror.rs"),
    ("upstream/exchange.rs", "poll_body", "read_timeout", "proxy/forward/response_body.rs"),
    ("upstream/health/probing.rs", "ask_http1", "self.timeout", "upstream/health/probing.rs"),
    ("upstream/health/probing.rs", "read_call", "self.timeout", "upstream/health/probing.rs"),
    // The exchange waits no longer than `timeout`, and lets go of the stream then.
    ("upstream/http2/stream.rs", "poll_turn", "timeout", "upstream/exchange.rs"),
    ("upstream/http2/stream.rs", "poll_send", "timeout", "upstream/exchange.rs"),
    ("upstream/http2/stream.rs", "poll_body", "read_timeout", "proxy/forward/response_body.rs"),
    ("upstream/http2.rs", "drive", "CLOSE_TIMEOUT", "upstream/http2.rs"),
    // The authority that issues certificates.
    ("acme/order.rs", "finish", "LONGEST_ORDER", "serve/acme/orders.rs"),
    // The shared store.
    ("store/redis/transport.rs", "open", "bound", "store/redis/pipeline/driver.rs"),
    ("store/redis/transport.rs", "poll_read", "timeout", "store/redis/pipeline/driver.rs"),
    ("store/redis/transport.rs", "poll_send", "timeout", "store/redis/pipeline/driver.rs"),
    ("store/redis/handshake.rs", "answer", "bound", "store/redis/pipeline/driver.rs"),
    ("store/redis/pipeline/driver.rs", "poll_serve", "timeout", "store/redis/pipeline/driver.rs"),
    // Administration, traces, the process before and after this one.
    ("admin.rs", "serve_http", "WHOLE_TIMEOUT", "admin.rs"),
    ("cli/admin.rs", "exchange", "timeout", "cli/admin.rs"),
    ("serve/takeover/ask.rs", "sockets", "TIMEOUT", "serve/takeover/ask.rs"),
    ("serve/takeover/ask.rs", "relieve", "TIMEOUT", "serve/takeover/ask.rs"),
    ("serve/takeover/datagrams.rs", "asked_for", "TIMEOUT", "serve/takeover/datagrams.rs"),
    ("serve/takeover/offer.rs", "hand_over", "STARTING", "serve/takeover/offer.rs"),
    ("serve/takeover/offer.rs", "acknowledge", "STARTING", "serve/takeover/offer.rs"),
    ("serve/takeover/give_counters.rs", "give", "TIMEOUT", "serve/takeover/give_counters.rs"),
    ("serve/takeover/give_counters.rs", "write_with_length", "STARTING", "serve/takeover/give_counters.rs"),
    ("serve/takeover/take_counters.rs", "ask_at", "TIMEOUT", "serve/takeover/ask.rs"),
    ("serve/takeover/take_counters.rs", "take", "COUNTERS_TIMEOUT", "serve/takeover/take_counters.rs"),
    ("serve/takeover/take_counters.rs", "read_bytes", "COUNTERS_TIMEOUT", "serve/takeover/take_counters.rs"),
];

/// Waits on no peer: a listener waits for connections for as long as it lives, and a file is there.
const NO_PEERS: [(&str, &str); 7] = [
    ("proxy/connection/http3/accept.rs", "run"),
    ("admin.rs", "run"),
    ("serve/takeover/offer.rs", "next"),
    // A process of the same user, for as long as it lives: packets for it, and packets from it.
    ("serve/takeover/datagrams.rs", "give"),
    ("serve/takeover/datagrams.rs", "pass_back"),
    ("serve/takeover/give_counters.rs", "next"),
    ("telemetry/access_log/output.rs", "ends_inside_a_line"),
];

/// What passes a wait on to its caller: the socket itself, and what wraps it.
const PASSED_ON: [&str; 2] = ["net.rs", "net/"];

/// The functions of a file that wait.
fn waiting(text: &str) -> BTreeSet<String> {
    let code = text.split("#[cfg(test)]").next().unwrap_or_default();
    let mut function = String::new();
    let mut found = BTreeSet::new();
    for line in code.lines().map(str::trim).filter(|line| !line.starts_with("//")) {
        if let Some((_, rest)) = line.split_once("fn ") {
            function = rest.chars().take_while(|byte| byte.is_alphanumeric() || *byte == '_').collect();
        }
        if WAITS.iter().any(|wait| line.contains(wait)) {
            found.insert(function.clone());
        }
    }
    found
}

#[test]
fn every_wait_on_a_peer_has_a_timer() {
    let source = Path::new("src");
    let mut found = BTreeSet::new();
    for path in rust_files("src") {
        let file = path.strip_prefix(source).unwrap_or(&path).display().to_string();
        let is_test = file.contains("tests") || file.contains("segmentation");
        if !is_test && !PASSED_ON.iter().any(|prefix| file.starts_with(prefix)) {
            found.extend(waiting(&read(&path)).into_iter().map(|function| (file.clone(), function)));
        }
    }
    let known = |file: &str, function: &str| (file.to_owned(), function.to_owned());
    let listed: BTreeSet<_> = BOUNDS
        .iter()
        .map(|(file, function, ..)| known(file, function))
        .chain(NO_PEERS.iter().map(|(file, function)| known(file, function)))
        .collect();
    let unlisted: Vec<_> = found.difference(&listed).collect();
    assert!(unlisted.is_empty(), "these wait on a socket, and the table names no timer: {unlisted:#?}");
    let gone: Vec<_> = listed.difference(&found).collect();
    assert!(gone.is_empty(), "these wait on no socket any more: {gone:#?}");
    for (file, function, timer, place) in BOUNDS {
        let text = std::fs::read_to_string(source.join(place)).expect("the file exists");
        assert!(
            text.contains(timer),
            "{place} does not mention `{timer}`, which bounds `{function}` in {file}"
        );
    }
}
