//! WebSocket over HTTP/2 (RFC 8441) with programs of others: Chromium, Python's h2 with wsproto, websockets and Hypercorn, and
//! Envoy and HAProxy on either side. Scripts: `tests/websocket`.

use std::net::SocketAddr;

use serde_json::{Value, json};

use super::{WebSocketServer as Server, told, websocket_script as script};
use crate::harness::pages::root;
use crate::harness::{Authority, Front, Gateway, tools};

/// The log tells who spoke what.
const LOG: &str = "[log]\nfields = [\"method\", \"path\", \"protocol\", \"status\", \"error\"]\n";

/// What `tests/websocket/client.py` tells of the server at this address.
#[track_caller]
fn client(version: &str, address: SocketAddr, path: &str) -> Value {
    told(script("client.py").args([version, &address.port().to_string(), path]))
}

/// A gateway that sends everything to `server`, by this version.
fn gateway(server: SocketAddr, http2: bool, rest: &str) -> Gateway {
    let protocol = if http2 { "protocol = \"http2\"\n" } else { "" };
    Gateway::start(&format!(
        "[upstreams.live]\nservers = [\"http://{server}\"]\n{protocol}[[routes]]\npath = \"/*\"\nupstream = \"live\"\n{rest}\n{LOG}"
    ))
}

/// All five messages came back.
#[track_caller]
fn assert_talked(told: &Value, status: u16) {
    let of = |field: &str| told[field].clone();
    assert_eq!(
        [of("status"), of("protocol"), of("echoed")],
        [json!(status), json!("chat"), json!(5)],
        "{told}"
    );
    assert_eq!(told["closed"], 1000, "{told}");
}

#[test]
fn a_client_of_python_speaks_rfc_8441_to_servers_of_either_version() {
    let (plain, both) = (Server::start("websockets"), Server::start("hypercorn"));
    let http1 = gateway(plain.1, false, "");
    assert_talked(&client("http2", http1.addr(), "/chat?a=b"), 200);
    assert_talked(&client("http1", http1.addr(), "/chat"), 101);
    let http2 = gateway(both.1, true, "");
    for (version, status) in [("http2", 200), ("http1", 101)] {
        let told = client(version, http2.addr(), "/chat");
        assert_talked(&told, status);
        assert_eq!(told["version"], "2", "the server was asked over HTTP/2: {told}");
    }
    let log = http1.access_log(2);
    assert_eq!(
        log[0],
        json!({ "method": "GET", "path": "/chat?a=b", "protocol": "HTTP/2.0", "status": 200, "error": null })
    );
    assert_eq!((&log[1]["protocol"], &log[1]["status"]), (&json!("HTTP/1.1"), &json!(101)));
}

#[test]
fn a_limit_refuses_the_third_handshake() {
    let server = Server::start("websockets");
    let limit = "limits = [\"two\"]\n[limits.two]\nalgorithm = \"fixed-window\"\nkey = \"ip\"\nrate = \"2/day\"\n\
                 align = \"first-request\"\n";
    let gateway = gateway(server.1, false, limit);
    assert_talked(&client("http2", gateway.addr(), "/"), 200);
    assert_talked(&client("http1", gateway.addr(), "/"), 101);
    for version in ["http2", "http1"] {
        let refused = client(version, gateway.addr(), "/");
        assert_eq!(refused["status"], 429, "{refused}");
        assert!(
            refused["body"].as_str().is_some_and(|body| body.contains("limit `two` is used up")),
            "{refused}"
        );
    }
}

/// A browser has an HTTP/2 connection for the page, whose settings announce extended CONNECT, and uses it for the WebSocket.
#[test]
fn chromium_opens_a_websocket_on_the_connection_of_its_page() {
    tools::browser();
    let (plain, both) = (Server::start("websockets"), Server::start("hypercorn"));
    let authority = Authority::new();
    authority.certify("site", &["localhost", "127.0.0.1"]);
    let gateway = Gateway::start(&format!(
        "{}\
         [upstreams.plain]\nservers = [\"http://{}\"]\n\
         [upstreams.both]\nservers = [\"http://{}\"]\nprotocol = \"http2\"\n\
         [[routes]]\npath = \"/page\"\nrespond = {{ status = 200, body = \"<title>page</title>\", content_type = \"text/html\" }}\n\
         [[routes]]\npath = \"/plain\"\nupstream = \"plain\"\n[[routes]]\npath = \"/both\"\nupstream = \"both\"\n{LOG}",
        authority.server("site"),
        plain.1,
        both.1
    ));
    for (number, path) in ["/plain", "/both"].into_iter().enumerate() {
        let url = format!("https://localhost:{}", gateway.addr().port());
        let mut page = tools::needed("python3");
        page.arg(root().join("tests/websocket/page.py")).args([&*url, path]);
        let told = told(page.env("PYTHONDONTWRITEBYTECODE", "1"));
        assert_eq!(told, json!({ "protocol": "chat", "echoed": 3, "closed": 1000, "page": "h2" }), "{path}");
        let records = gateway.access_log(2 * number + 2);
        let record = records.iter().find(|record| record["path"] == path).expect("it is logged");
        assert_eq!(
            record,
            &json!({ "method": "GET", "path": path, "protocol": "HTTP/2.0", "status": 200, "error": null })
        );
    }
}

fn envoy(server: SocketAddr, hop: &str) -> Front {
    let yaml = std::fs::read_to_string(root().join("tests/peers/envoy-websocket.yaml")).expect("it is there");
    Front::envoy_file(|address| {
        let yaml = yaml.replace("port_value: LISTEN", &format!("port_value: {}", address.port()));
        yaml.replace("port_value: SERVER", &format!("port_value: {}", server.port()))
            .replace("explicit_http_config: HOP", &format!("explicit_http_config: {hop}"))
    })
}

#[test]
fn envoy_behind_the_gateway_opens_a_websocket_on_a_stream() {
    let server = Server::start("websockets");
    let envoy = envoy(server.1, "{ http_protocol_options: {} }");
    let gateway = gateway(envoy.addr(), true, "");
    assert_talked(&client("http2", gateway.addr(), "/chat"), 200);
    assert_talked(&client("http1", gateway.addr(), "/chat"), 101);
}

#[test]
fn envoy_before_the_gateway_sends_extended_connect() {
    let server = Server::start("websockets");
    let gateway = gateway(server.1, false, "");
    let envoy = envoy(gateway.addr(), "{ http2_protocol_options: { allow_connect: true } }");
    assert_talked(&client("http1", envoy.addr(), "/chat"), 101);
    assert_talked(&client("http2", envoy.addr(), "/chat"), 200);
    let log = gateway.access_log(2);
    assert!(
        log.iter().all(|record| record["protocol"] == "HTTP/2.0" && record["method"] == "GET"),
        "{log:?}"
    );
}

#[test]
fn haproxy_before_the_gateway_sends_extended_connect() {
    let server = Server::start("websockets");
    let gateway = gateway(server.1, false, "");
    let haproxy = Front::haproxy_file(|address| {
        format!(
            "defaults\n mode http\n timeout connect 5s\n timeout client 30s\n timeout server 30s\n timeout tunnel 30s\n\
             frontend front\n bind {address}\n default_backend gateway\n\
             backend gateway\n server one {} proto h2\n",
            gateway.addr()
        )
    });
    assert_talked(&client("http1", haproxy.addr(), "/chat"), 101);
    assert_eq!(gateway.access_log(1)[0]["protocol"], "HTTP/2.0");
}

/// HAProxy announces extended CONNECT to its clients, and speaks HTTP/1.1 to the server.
#[test]
fn haproxy_behind_the_gateway_opens_a_websocket_on_a_stream() {
    let server = Server::start("websockets");
    let haproxy = Front::haproxy_file(|address| {
        format!(
            "defaults\n mode http\n timeout connect 5s\n timeout client 30s\n timeout server 30s\n timeout tunnel 30s\n\
             frontend front\n bind {address} proto h2\n default_backend server\n\
             backend server\n server one {}\n",
            server.1
        )
    });
    let gateway = gateway(haproxy.addr(), true, "");
    assert_talked(&client("http2", gateway.addr(), "/chat"), 200);
    assert_talked(&client("http1", gateway.addr(), "/chat"), 101);
}
