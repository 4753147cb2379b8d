//! The official SDKs of MCP as clients and servers, through the gateway: `tests/mcp`. A call over the limit of its tool is an
//! error that the SDK shows, and ends no session.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::harness::pages::root;
use crate::harness::{Gateway, tools};

/// A server of `tests/mcp/server.py`. Killed when dropped.
struct Server(Child, u16);

impl Server {
    fn start(python: Command) -> Self {
        Self::named("one", python)
    }

    fn named(name: &str, mut python: Command) -> Self {
        let script = root().join("tests/mcp/server.py");
        let command = python.arg(script).arg(name).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.env("PYTHONDONTWRITEBYTECODE", "1").spawn().expect("there is a Python");
        let mut port = String::new();
        let stdout = child.stdout.take().expect("piped");
        BufReader::new(stdout).read_line(&mut port).expect("text");
        let port = port.trim_end().parse().expect("the server's port");
        Self(child, port)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// Two calls a day of each tool. Limits by the body, or by the headers of protocol 2026-07-28.
fn gateway(server: &Server, key: &str, status: u16) -> Gateway {
    let error = r#"{"jsonrpc":"2.0","id":{json:/id},"error":{"code":-32029,"message":"wait {retry_after} s","data":{"retry_after":{retry_after}}}}"#;
    Gateway::start(&format!(
        "[upstreams]\ntools = \"http://127.0.0.1:{}\"\n[[routes]]\npath = \"/mcp\"\nupstream = \"tools\"\n\
         limits = [\"per-tool\"]\n[limits.per-tool]\nalgorithm = \"fixed-window\"\nkey = [\"ip\", \"{key}\"]\n\
         missing = \"skip\"\nrate = \"2/day\"\nalign = \"first-request\"\n\
         [limits.per-tool.reject]\nstatus = {status}\ncontent_type = \"application/json\"\nbody = '{error}'\n",
        server.1
    ))
}

/// What a client tells of each step, and an empty list for one that ended with an error.
fn told(mut client: Command) -> Vec<Value> {
    let output = client.env("PYTHONDONTWRITEBYTECODE", "1").stdin(Stdio::null()).output().expect("it starts");
    if !output.status.success() {
        return Vec::new();
    }
    let lines = String::from_utf8_lossy(&output.stdout).into_owned();
    lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

fn url(gateway: &Gateway) -> String {
    format!("http://{}/mcp", gateway.addr())
}

fn python(place: &str, case: &str, gateway: &Gateway) -> Vec<Value> {
    let mut client = tools::mcp(place);
    client.arg(root().join("tests/mcp/client.py")).arg(case).arg(url(gateway));
    told(client)
}

fn node(place: &str, gateway: &Gateway) -> Vec<Value> {
    let (mut client, modules) = tools::mcp_for_node(place);
    client.arg(root().join("tests/mcp/client.mjs")).arg(modules);
    client.arg(url(gateway));
    told(client)
}

/// Two searches, an error for the third, and the session goes on: another tool, and one that streams its progress.
#[track_caller]
fn assert_third_is_an_error(told: &[Value], protocol: Option<&str>) {
    assert_eq!(told.len(), 8, "{told:?}");
    if let Some(protocol) = protocol {
        assert_eq!(told[0]["protocol"], protocol);
    }
    assert_eq!(told[1]["tools"], serde_json::json!(["release", "search", "slow", "wait", "where"]));
    for good in &told[2..4] {
        assert_eq!(good["text"], "one found a fox", "{told:?}");
    }
    assert_eq!(told[4]["code"], -32029, "{told:?}");
    assert!(told[4]["message"].as_str().is_some_and(|text| text.contains("wait ")), "{told:?}");
    if let Some(data) = told[4].get("data") {
        assert!(data["retry_after"].as_u64().is_some_and(|seconds| seconds > 80_000), "{told:?}");
    }
    assert_eq!((&told[5]["text"], &told[6]["text"]), (&"one".into(), &"one is done".into()));
    assert_eq!(told[7]["steps"].as_array().map(Vec::len), Some(3), "{told:?}");
}

const BODY: &str = "json:/params/name";
const HEADERS: &str = "header:mcp-name";

#[test]
fn calls_of_protocol_2026_are_limited_by_their_headers() {
    for place in ["mcp", "mcp-newest"] {
        let server = Server::start(tools::mcp(place));
        // The body is not read, so that the refusal has no id: with 429 the SDK knows whose it is.
        let told = python(place, "modern", &gateway(&server, HEADERS, 429));
        assert_third_is_an_error(&told, Some("2026-07-28"));
        let told = python(place, "modern", &gateway(&server, BODY, 200));
        assert_third_is_an_error(&told, Some("2026-07-28"));
    }
}

#[test]
fn calls_of_all_protocols_are_limited_by_their_body() {
    for (place, cases) in
        [("mcp", &["modern", "legacy"][..]), ("mcp-1", &["old"]), ("mcp-newest", &["modern", "legacy"])]
    {
        let server = Server::start(tools::mcp(place));
        for case in cases {
            let told = python(place, case, &gateway(&server, BODY, 200));
            assert_third_is_an_error(&told, None);
        }
        for client in ["mcp-node", "mcp-node-newest"] {
            assert_third_is_an_error(&node(client, &gateway(&server, BODY, 200)), None);
        }
    }
}

/// Two servers; the header keeps a session at one of them.
fn gateway_of_two(servers: &[Server; 2]) -> Gateway {
    let [one, two] = servers.each_ref().map(|server| server.1);
    let config = format!(
        "[upstreams.tools]\nservers = [\"http://127.0.0.1:{one}\", \"http://127.0.0.1:{two}\"]\n\
         sticky = {{ header = \"mcp-session-id\", secret_env = \"STICKY\" }}\n\
         [[routes]]\npath = \"/mcp\"\nupstream = \"tools\"\n"
    );
    Gateway::start_in(&config, &[], &[("STICKY", "0123456789abcdef")])
}

/// Each of the sessions has one server, and both servers have sessions.
#[track_caller]
fn assert_each_at_one_server(told: &[Value]) {
    assert_eq!(told.len(), 4, "{told:?}");
    for session in told {
        let names = session["names"].as_array().expect("names");
        assert_eq!((names.len(), &names[1..]), (6, &names[..5]), "{told:?}");
    }
    assert!(told.iter().any(|session| session["names"] != told[0]["names"]), "{told:?}");
}

#[test]
fn sessions_stay_at_their_server() {
    for (place, case) in [("mcp", "legacy"), ("mcp-1", "old"), ("mcp-newest", "legacy")] {
        let servers = ["one", "two"].map(|name| Server::named(name, tools::mcp(place)));
        let gateway = gateway_of_two(&servers);
        let mut client = tools::mcp(place);
        client.arg(root().join("tests/mcp/sessions.py")).arg(case).arg(url(&gateway));
        assert_each_at_one_server(&told(client));
    }
}

#[test]
fn a_stream_is_resumed_at_the_server_of_its_session() {
    for place in ["mcp", "mcp-1", "mcp-newest"] {
        for client in ["mcp-node", "mcp-node-newest"] {
            let servers = ["one", "two"].map(|name| Server::named(name, tools::mcp(place)));
            let gateway = gateway_of_two(&servers);
            let (mut client, modules) = tools::mcp_for_node(client);
            client.arg(root().join("tests/mcp/sessions.mjs")).arg(modules).arg(url(&gateway));
            let told = told(client);
            assert_eq!(told.len(), 8, "{told:?}");
            assert_each_at_one_server(&told[..4]);
            for (session, resumed) in told[..4].iter().zip(&told[4..]) {
                let name = session["names"][0].as_str().expect("a name");
                assert_eq!(resumed["text"], format!("{name} has waited"), "{told:?}");
                assert_eq!(resumed["progress"], serde_json::json!([1]), "{told:?}");
            }
        }
    }
}

/// As docs/recipes/mcp.md says.
#[test]
fn the_status_429_ends_sessions_of_older_sdks() {
    let server = Server::start(tools::mcp("mcp-1"));
    assert_eq!(python("mcp-1", "old", &gateway(&server, BODY, 429)), Vec::<Value>::new());
    let told = node("mcp-node", &gateway(&server, BODY, 429));
    assert_eq!(told[4]["code"], 429, "{told:?}");
    assert!(told[4]["message"].as_str().is_some_and(|text| text.contains("-32029")), "{told:?}");
}
