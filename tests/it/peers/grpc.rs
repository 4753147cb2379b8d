//! gRPC through the gateway, with gRPC's own library on both sides.

use crate::harness::{Authority, Backend, Gateway, GrpcClient, GrpcServer};

const CALLS: [&str; 12] = [
    "unary",
    "client_streaming",
    "server_streaming",
    "both_streaming",
    "metadata",
    "large_messages",
    "statuses",
    "deadlines",
    "cancellation",
    "leaving",
    "at_once",
    "many_small_messages",
];

/// All calls go to this server. `rest` follows the route's own lines.
fn over(server: &str, lines: &str, rest: &str) -> String {
    format!(
        "[upstreams.api]\nservers = [\"{server}\"]\nprotocol = \"http2\"\n{lines}\n[[routes]]\npath = \"/test.Echo/*\"\n\
         upstream = \"api\"\nmax_body_bytes = 0\n{rest}\n"
    )
}

/// Goes through these cases, with this behind the route's own lines.
#[track_caller]
fn go_through(rest: &str, cases: &[&str]) -> Gateway {
    let server = GrpcServer::start();
    let gateway = Gateway::start(&over(&server.url(), "", rest));
    GrpcClient::start(&gateway, &server, None, cases).finishes();
    gateway
}

#[test]
fn calls_of_all_kinds_pass() {
    go_through("", &CALLS);
}

#[test]
fn calls_of_all_kinds_pass_over_tls_to_the_gateway() {
    let (authority, server) = (Authority::new(), GrpcServer::start());
    authority.certify("server", &["127.0.0.1"]);
    let file = format!("{}{}", authority.server("server"), over(&server.url(), "", ""));
    let gateway = Gateway::start(&file);
    GrpcClient::start(&gateway, &server, Some(&authority), &CALLS[..11]).finishes();
}

#[test]
fn calls_pass_over_tls_on_both_sides() {
    let authority = Authority::new();
    authority.certify("server", &["127.0.0.1"]);
    let server = GrpcServer::start_tls(&authority, "server");
    let rest = over(&server.url(), &authority.trusted(""), "");
    let gateway = Gateway::start(&format!("{}{rest}", authority.server("server")));
    // The server that it asks how a call ended takes no TLS, so those cases are left out.
    GrpcClient::start(&gateway, &server, Some(&authority), &CALLS[..7]).finishes();
}

/// Only silence before the answer's head, and of the server behind it, is bounded: by `read_timeout`.
#[test]
fn streams_of_messages_may_be_silent() {
    go_through("[server]\nbody_timeout = \"1s\"\n", &["silence"]);
    go_through("read_timeout = \"1s\"\n", &["server_is_silent"]);
    // A head that lets itself be waited for is not late as long as the client has more to say.
    go_through("timeout = \"1s\"\n", &["silence"]);
}

fn calls(rate: &str) -> String {
    format!(
        "limits = [\"calls\"]\n[limits.calls]\nalgorithm = \"fixed-window\"\nkey = \"ip\"\nrate = \"{rate}\"\n\
         align = \"first-request\"\n"
    )
}

#[test]
fn a_refused_call_learns_how_long_to_wait() {
    let gateway = go_through(&calls("1/h"), &["refused", "refused_streams"]);
    let log = gateway.access_log(5);
    let told = |place: usize| (log[place]["status"].as_u64(), log[place]["decision"].as_str());
    assert_eq!((told(0), told(1)), ((Some(200), Some("allowed")), (Some(429), Some("limited"))));
}

#[test]
fn each_call_is_charged_once() {
    go_through(&calls("3/h"), &["charged_once"]);
    go_through(&format!("cost = 2\n{}", calls("3/h")), &["refused_by_cost"]);
}

#[test]
fn clients_that_try_again_wait_as_they_are_told() {
    go_through(&calls("1/s"), &["retried"]);
}

#[test]
fn what_is_wrong_with_the_gateway_or_the_server_has_a_code() {
    go_through("[[routes]]\npath = \"/other\"\nupstream = \"api\"\n", &["unary"]);
    let server = GrpcServer::start();
    let elsewhere = over(&server.url(), "", "").replace("/test.Echo/*", "/test.Other/*");
    GrpcClient::start(&Gateway::start(&elsewhere), &server, None, &["no_route"]).finishes();
    let (address, _held) = Backend::refusing();
    let nowhere = Gateway::start(&over(&format!("http://{address}"), "", ""));
    GrpcClient::start(&nowhere, &server, None, &["unavailable"]).finishes();
}

#[test]
fn a_server_that_dies_is_unavailable() {
    let mut server = GrpcServer::start();
    let gateway = Gateway::start(&over(&server.url(), "", ""));
    let mut client = GrpcClient::start(&gateway, &server, None, &["broken_off"]);
    client.has_begun();
    server.kill();
    client.finishes();
    let errors: Vec<_> = gateway.access_log(2).iter().map(|record| record["error"].clone()).collect();
    assert!(errors.contains(&"reset".into()) && errors.contains(&"response_cut".into()), "{errors:?}");
}

#[test]
fn messages_count_against_the_bound_of_bodies() {
    let server = GrpcServer::start();
    let file = over(&server.url(), "", "").replace("max_body_bytes = 0", "max_body_bytes = \"100KiB\"");
    let gateway = Gateway::start(&file);
    GrpcClient::start(&gateway, &server, None, &["too_large"]).finishes();
}
