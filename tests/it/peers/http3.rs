//! HTTP/3 with clients of others: Python's aioquic, whose QUIC, TLS and QPACK have nothing in common with the gateway's, and
//! Chromium. Scripts: `tests/http3`.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Stdio};

use bytes::Bytes;
use h2::server::Builder;
use http::{HeaderMap, Response};
use serde_json::{Value, json};

use super::{WebSocketServer, told};
use crate::harness::pages::root;
use crate::harness::upgraded::Upgraded;
use crate::harness::{
    Authority, Backend, Gateway, Http2Backend, Next, everything_to, free_address_of_datagrams, send_all,
    tools,
};

const LARGE: usize = 10 << 20;
/// The log tells who spoke what.
const LOG: &str = "[log]\nfields = [\"path\", \"protocol\", \"status\", \"error\"]\n";
const FEW: &str = "[limits.few]\nalgorithm = \"fixed-window\"\nkey = \"ip\"\nrate = \"25/day\"\nalign = \"first-request\"\n";

/// A gateway whose certificate is for `a.test`.
struct Served {
    authority: Authority,
    gateway: Gateway,
}

impl Served {
    /// With further keys of `[server]`.
    fn start(server: &str, rest: &str) -> Self {
        let authority = Authority::new();
        authority.certify("a", &["a.test"]);
        let listen = "listen = [{ address = \"127.0.0.1:0\", http3 = true }]\nworkers = 4";
        let tls = authority.server("a");
        let gateway = Gateway::start(&format!("[server]\n{listen}\n{server}\n{tls}{LOG}{rest}"));
        Self { authority, gateway }
    }

    /// `tests/http3/client.py` with this scene.
    fn client(&self, scene: &[&str]) -> Command {
        let mut python = script("client.py");
        python.arg(self.gateway.addr().port().to_string()).arg(self.authority.path("ca.pem")).args(scene);
        python
    }

    #[track_caller]
    fn told(&self, scene: &[&str]) -> Value {
        told(&mut self.client(scene))
    }
}

fn script(name: &str) -> Command {
    let mut python = tools::http3();
    python.arg(root().join("tests/http3").join(name));
    python.env("PYTHONDONTWRITEBYTECODE", "1").stdin(Stdio::null());
    python
}

/// What the scenes ask for.
fn backend() -> Backend {
    Backend::start(|exchange| {
        let body = exchange.read_body();
        let (body, more) = match exchange.target() {
            "/head" => (Vec::new(), "content-length: 77\r\n".to_owned()),
            "/large" => (pattern(LARGE), String::new()),
            "/missing" => {
                exchange.write("HTTP/1.1 404 Not Found\r\ncontent-length: 2\r\n\r\nno");
                return Next::KeepAlive;
            }
            "/trailers" => {
                exchange.write("HTTP/1.1 200 OK\r\ntrailer: x-sum\r\ntransfer-encoding: chunked\r\n\r\n");
                exchange.write("2\r\nok\r\n0\r\nx-sum: 7\r\n\r\n");
                return Next::KeepAlive;
            }
            "/hang" => {
                exchange.hang();
                return Next::Close;
            }
            target if target.starts_with("/held") => {
                exchange.wait_at_gate();
                (body, String::new())
            }
            "/echo" => (body, String::new()),
            _ => (b"ok".to_vec(), String::new()),
        };
        let length = if more.is_empty() { format!("content-length: {}\r\n", body.len()) } else { more };
        exchange.write(format!("HTTP/1.1 200 OK\r\n{length}\r\n"));
        exchange.write(body);
        Next::KeepAlive
    })
}

/// As the script's.
fn pattern(length: usize) -> Vec<u8> {
    (0..=250).cycle().take(length).collect()
}

const NO_TRAILERS: Value = Value::Null;

/// What the script tells of a whole answer.
fn answer(status: u16, length: usize, trailers: Value) -> Value {
    json!({ "status": status, "length": length, "trailers": trailers, "reset": null })
}

#[test]
fn aioquic_is_served_each_kind_of_request() {
    let backend = backend();
    let served = Served::start("", &everything_to(&backend, "max_body_bytes = \"20MiB\""));
    let told = served.told(&["requests"]);
    for (what, expected) in [
        ("get", answer(200, 2, NO_TRAILERS)),
        ("missing", answer(404, 2, NO_TRAILERS)),
        ("trailers", answer(200, 2, json!({ "x-sum": "7" }))),
        ("after new keys", answer(200, 2, NO_TRAILERS)),
    ] {
        assert_eq!(told[what], expected, "{what}: {told}");
    }
    assert_eq!((&told["head"]["length"], &told["head"]["content-length"]), (&json!(0), &json!("77")));
    for length in [0, 5, 70_000, 3 << 20] {
        for fields in [0, 1] {
            assert_eq!(told[format!("post {length} {fields}")], true, "{length}, {fields}: {told}");
        }
    }
    assert_eq!((&told["large"], &told["many"]), (&json!(true), &json!(60)));
    let seen = backend.requests();
    let uploaded = seen.iter().find(|seen| seen.target() == "/trailers").expect("it was asked for");
    assert_eq!((uploaded.trailers.as_str(), &*uploaded.body), ("x-up: 1\r\n", &b"abc"[..]));
    let log = served.gateway.access_log(seen.len());
    assert!(log.iter().all(|record| record["error"].is_null()), "{log:?}");
}

/// At their bounds the client is served; beyond them the connection ends with TRANSPORT_PARAMETER_ERROR (RFC 9000 §18.2).
#[test]
fn transport_parameters_are_obeyed_or_refused() {
    let backend = backend();
    let mut served = Served::start("", &everything_to(&backend, ""));
    let told = served.told(&["parameters", "1"]);
    let outcomes = |kind: &str| told[kind].as_object().expect("cases").clone();
    assert!(outcomes("legal").values().all(|outcome| outcome == 200), "{told}");
    assert!(outcomes("illegal").values().all(|outcome| outcome == "code 8"), "{told}");
    assert_eq!((&told["cut"], &told["after"]), (&json!(["200", "code 8"]), &json!(200)), "{told}");
    assert!(served.gateway.alive());
}

#[test]
fn exactly_the_allowance_is_served_on_one_connection_and_on_many() {
    for (connections, streams) in [("1", "200"), ("10", "30")] {
        let backend = backend();
        let served = Served::start("", &everything_to(&backend, &format!("limits = [\"few\"]\n{FEW}")));
        let told = served.told(&["burst", connections, streams]);
        assert_eq!((&told["served"], backend.count()), (&json!(25), 25), "{told}");
        let all = told["all"].as_u64().expect("a count");
        assert_eq!(told["refused"].as_u64(), Some(all - 25), "{told}");
        let waits = told["waits"].as_array().expect("a list");
        assert!(!waits.is_empty(), "{told}");
        for wait in waits {
            // A second more, rounded up, for one that came a moment before the request that opened the window.
            assert!(wait.as_u64().is_some_and(|wait| (1..=86_401).contains(&wait)), "{told}");
        }
    }
}

#[test]
fn aioquic_cancels_requests_and_the_connection_goes_on() {
    let backend = backend();
    let served = Served::start("", &everything_to(&backend, ""));
    let told = served.told(&["cancel"]);
    assert_eq!(told, json!({ "after": answer(200, 2, NO_TRAILERS), "terminated": null }));
}

#[test]
fn aioquic_changes_its_port_and_the_connection_goes_on() {
    let backend = backend();
    let served = Served::start("", &everything_to(&backend, "max_body_bytes = \"20MiB\""));
    let told = served.told(&["move"]);
    assert_eq!(told["statuses"], Value::from(vec![200; 9]), "{told}");
    assert_eq!((&told["large"], &told["echoed"]), (&answer(200, LARGE, NO_TRAILERS), &json!(true)));
    assert_eq!(told["terminated"], Value::Null);
}

#[test]
fn a_session_is_resumed_without_early_data() {
    let backend = backend();
    let served = Served::start("", &everything_to(&backend, ""));
    let told = served.told(&["resume"]);
    let told = told.as_array().expect("a list");
    assert_eq!(told[0], json!([200, false, false, false]));
    assert_eq!(told[1..], [json!([200, true, false, false]), json!([200, true, false, false])]);
    assert_eq!(backend.count(), 3);
}

#[test]
fn the_address_is_validated_where_clients_are_counted() {
    let backend = backend();
    let counted = Served::start("max_connections_per_client = 5", &everything_to(&backend, ""));
    let told = counted.told(&["retry"]);
    assert_eq!(told[0], json!([200, 1, false]), "{told}");
    assert_eq!(told[1][0], 200, "{told}");
    let free = Served::start("", &everything_to(&backend, ""));
    assert_eq!(free.told(&["retry"])[0], json!([200, 0, false]));
}

#[test]
fn a_client_of_another_version_comes_to_version_1() {
    let backend = backend();
    let served = Served::start("", &everything_to(&backend, ""));
    assert_eq!(served.told(&["negotiate"]), json!({ "status": 200, "version": 1 }));
}

#[test]
fn aioquic_calls_grpc_and_is_refused_in_its_form() {
    let backend = Http2Backend::start(Builder::new(), |_, mut respond| async move {
        let head = Response::builder().header("content-type", "application/grpc").body(()).expect("a head");
        let mut stream = respond.send_response(head, false).expect("a client");
        send_all(&mut stream, Bytes::from_static(b"\0\0\0\0\x02hi"), false).await;
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", "0".parse().expect("a value"));
        stream.send_trailers(trailers).expect("it is open");
    });
    let limit = FEW.replace("25/day", "1/day");
    let served = Served::start(
        "",
        &format!(
            "[upstreams.api]\nservers = [\"{}\"]\nprotocol = \"http2\"\n\
             [[routes]]\npath = \"/*\"\nupstream = \"api\"\nlimits = [\"few\"]\n{limit}",
            backend.url()
        ),
    );
    assert_eq!(
        served.told(&["grpc"]),
        json!([
            { "status": 200, "length": 7, "trailers": { "grpc-status": "0" }, "reset": null, "grpc-status": null },
            { "status": 200, "length": 0, "trailers": null, "reset": null, "grpc-status": "8" },
        ])
    );
}

#[test]
fn aioquic_opens_a_websocket_on_a_stream_until_a_limit_refuses() {
    let server = WebSocketServer::start("websockets");
    let limit = FEW.replace("25/day", "1/day");
    let served = Served::start(
        "",
        &format!(
            "[upstreams]\nlive = \"http://{}\"\n[[routes]]\npath = \"/*\"\nupstream = \"live\"\nlimits = [\"few\"]\n{limit}",
            server.1
        ),
    );
    let opened = json!({
        "status": 200, "protocol": "chat", "echoed": 4, "closed": 1000, "announced": 1, "reset": null
    });
    assert_eq!(served.told(&["websocket"]), opened);
    let refused = served.told(&["websocket"]);
    assert_eq!(refused["status"], 429, "{refused}");
    let log = served.gateway.access_log(2);
    assert!(log.iter().all(|record| record["protocol"] == "HTTP/3.0"), "{log:?}");
}

/// Requests in flight at an upgrade finish in the process before, also after the client's port has changed, while new
/// connections are served by the new process.
#[test]
fn an_upgrade_loses_no_request_of_aioquic() {
    const HELD: usize = 20;
    let backend = backend();
    let authority = Authority::new();
    authority.certify("a", &["a.test"]);
    let listen =
        format!("listen = [{{ address = \"{}\", http3 = true }}]\nworkers = 3", free_address_of_datagrams());
    let tls = authority.server("a");
    let config = |status: u16| {
        let who = format!("[[routes]]\npath = \"/who\"\nrespond = {{ status = {status} }}\n");
        format!(
            "[server]\n{listen}\n{tls}{}",
            everything_to(&backend, &format!("max_body_bytes = \"20MiB\"\n{who}"))
        )
    };
    let gateway = Gateway::start(&config(403));
    let served = Served { authority, gateway };
    let mut command = served.client(&["through_an_upgrade", &HELD.to_string()]);
    let mut client = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a Python");
    let (mut stdin, stdout) = (client.stdin.take().expect("piped"), client.stdout.take().expect("piped"));
    let mut stdout = BufReader::new(stdout);
    let mut line = || {
        let mut line = String::new();
        stdout.read_line(&mut line).expect("text");
        line
    };
    assert_eq!(line(), "begun\n");
    backend.wait_for(HELD + 1);
    served.gateway.write_config(&config(410));
    let Served { authority: _authority, gateway } = served;
    let mut upgraded = Upgraded::new(gateway);
    upgraded.hand_over();
    stdin.write_all(b"go on\n").expect("it reads");
    assert_eq!(line(), "upgraded\n");
    backend.open_gate();
    stdin.write_all(b"go on\n").expect("it reads");
    let told: Value = serde_json::from_str(&line()).expect("JSON");
    assert_eq!(told["fresh"], Value::from(vec![410; 5]), "{told}");
    let answers = told["answers"].as_array().expect("a list");
    assert_eq!(answers.len(), HELD + 1);
    assert_eq!(answers[..HELD], vec![answer(200, 0, NO_TRAILERS); HELD], "{told}");
    assert_eq!(answers[HELD], answer(200, 30_000 + (1 << 20), NO_TRAILERS));
    assert!(client.wait().expect("it ends").success());
    assert_eq!(upgraded.gateway.wait_for_exit().code(), Some(0));
}

/// A browser speaks HTTP/3 from its first packet on, and opens its WebSocket on the same connection or over TCP.
#[test]
fn chromium_opens_a_page_and_asks_over_http3() {
    tools::browser();
    let (backend, live) = (backend(), WebSocketServer::start("websockets"));
    let routes = format!(
        "max_body_bytes = \"20MiB\"\n\
         [[routes]]\npath = \"/page\"\nrespond = {{ status = 200, body = \"<title>page</title>\", content_type = \"text/html\" }}\n\
         [[routes]]\npath = \"/chat\"\nupstream = \"live\"\n\
         [[routes]]\npath = \"/limited\"\nupstream = \"api\"\nlimits = [\"few\"]\n{}[upstreams.live]\nservers = [\"http://{}\"]\n",
        FEW.replace("25/day", "3/day"),
        live.1
    );
    let served = Served::start("", &everything_to(&backend, &routes));
    let mut page = script("page.py");
    page.arg(served.gateway.addr().port().to_string()).arg(served.authority.path("a.pem"));
    let told = told(&mut page);
    assert_eq!(told["protocols"], json!(["h3"]), "{told}");
    assert_eq!(
        (&told["large"], &told["echoed"], &told["many"]),
        (&json!(LARGE), &json!(2_000_000), &json!(50))
    );
    assert_eq!(told["statuses"], json!([200, 200, 200, 429]), "{told}");
    assert_eq!(told["websocket"], json!({ "protocol": "chat", "echoed": "5:hello", "closed": 1000 }));
    let log = served.gateway.access_log(58);
    let asked = |record: &&Value| record["path"] != "/chat" && record["path"] != "/favicon.ico";
    assert!(log.iter().filter(asked).all(|record| record["protocol"] == "HTTP/3.0"), "{log:?}");
}
