//! Text of clients and of servers that are no gateway: none of it controls the terminal.

use serde_json::{Value, json};
use tollgate::admin_api::bans::{BanList, BanReport};
use tollgate::admin_api::fleet::{FleetReport, GatewayReport};
use tollgate::admin_api::keys::{KeyList, KeyReport, KeyState, PolicyAllowance};
use tollgate::admin_api::limits::{LimitList, LimitReport, VerdictReport};
use tollgate::admin_api::refusals::{RefusalList, RefusalReport};
use tollgate::admin_api::routes::{RouteList, RouteReport};
use tollgate::admin_api::samples::{SampleList, UpstreamSamples};
use tollgate::admin_api::servers::ServerReport;
use tollgate::admin_api::status::{ProblemReport, StatusReport};

use crate::harness::{Backend, Gateway, Next, TerminalProgram, get_with};

/// Clears the screen, sets the title, and turns the direction.
const HOSTILE: &str = "\u{1b}[2J\u{1b}]0;owned\u{7}\u{202e}\r\n";

#[track_caller]
fn assert_harmless(terminal: &TerminalProgram) {
    let bytes = terminal.bytes();
    let text = String::from_utf8_lossy(&bytes);
    assert!(!text.contains(['\u{7}', '\u{202e}']) && !text.contains("]0;owned\u{7}"), "{text:?}");
    assert!(!text.contains("\u{1b}]"), "{text:?}");
}

/// The response of a gateway to a request of this path, with such text everywhere.
fn hostile_response(path: &str) -> Value {
    let text = || HOSTILE.to_owned();
    let (id, key) = (|| "id:01".to_owned(), || Some(vec![text()]));
    match path {
        "status" => {
            let problem =
                ProblemReport { severity: "bad".to_owned(), text: text(), ..ProblemReport::default() };
            let (version, life, problems) = (text(), text(), vec![problem]);
            json!(StatusReport { version, life, bans: 1, problems, ..StatusReport::default() })
        }
        "samples" => {
            let server = ServerReport { server: text(), why: Some(text()), ..ServerReport::default() };
            let upstream = UpstreamSamples { servers: vec![server], ..UpstreamSamples::default() };
            let upstreams = [(text(), upstream)].into();
            json!(SampleList { seq: 1, count: 1, upstreams, ..SampleList::default() })
        }
        "limits" => {
            let minute = VerdictReport { refused: 1, ..VerdictReport::default() };
            let (name, mode, policies) = (text(), "enforce".to_owned(), vec![text()]);
            let limits = vec![LimitReport { name, mode, policies, minute, ..LimitReport::default() }];
            json!(LimitList { limits, ..LimitList::default() })
        }
        "refusals" => {
            let (client, path, reason) = (Some(text()), Some(text()), text());
            let refusals = vec![RefusalReport { seq: 1, client, path, reason, ..RefusalReport::default() }];
            json!(RefusalList { refusals, ..RefusalList::default() })
        }
        "bans" => {
            let (limit, cause) = (text(), text());
            let bans = vec![BanReport { id: id(), key: key(), limit, cause, ..BanReport::default() }];
            json!(BanList { total: 1, bans, ..BanList::default() })
        }
        "fleet" => {
            let (address, version, file_hash) = (text(), text(), text());
            let gateway = GatewayReport { address, version, file_hash, ..GatewayReport::default() };
            json!(FleetReport { shared: true, gateways: vec![gateway], ..FleetReport::default() })
        }
        "routes" => {
            let routes = vec![RouteReport { name: text(), path: text(), ..RouteReport::default() }];
            json!(RouteList { routes })
        }
        keys if keys.ends_with("/keys") => {
            let (requests, refused, tier) = (9, 9, Some(text()));
            let keys =
                vec![KeyReport { id: id(), key: key(), requests, refused, tier, ..KeyReport::default() }];
            let (limit, mode) = (text(), "enforce".to_owned());
            json!(KeyList { limit, mode, refused, keys, ..KeyList::default() })
        }
        _ => {
            let policies = vec![PolicyAllowance { policy: text(), ..PolicyAllowance::default() }];
            let (limit, verdict) = (text(), text());
            json!(KeyState { limit, id: id(), key: key(), verdict, policies, ..KeyState::default() })
        }
    }
}

/// A server in place of a gateway that puts such text everywhere.
#[test]
fn what_a_server_reports_is_escaped() {
    let server = Backend::start(|exchange| {
        let target = exchange.target().to_owned();
        let path = target.trim_start_matches("/api/v1/").split('?').next().unwrap_or_default().to_owned();
        let body = hostile_response(&path).to_string();
        exchange.write(format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len()));
        Next::Close
    });
    let terminal = TerminalProgram::start(&["top", "--url", &server.url()], &[]);
    terminal.wait_for("Keys of \\u{1b}[2J\\u{1b}]0;owned\\u{7}");
    for (keys, text) in [
        ("2", "Refused 1m"),
        ("4", "Client"),
        ("5", "No answer/s"),
        ("6", "Ends in"),
        ("7", "Requests 1m"),
        ("8", "Last seen"),
        ("3\r", "Next request: \\u{1b}"),
        ("b\r", "All requests of \\u{1b}"),
    ] {
        terminal.press(keys);
        terminal.wait_for(text);
    }
    assert_harmless(&terminal);
}

#[test]
fn what_a_client_sends_as_its_key_is_escaped() {
    let gateway = Gateway::start(
        "[upstreams]\ndemo = \"builtin:echo\"\n[admin]\nlisten = \"127.0.0.1:0\"\n\
         [limits.per-key]\nalgorithm = \"fixed-window\"\nkey = \"header:x-key\"\nreveal = true\nrate = \"1/h\"\n\
         [[routes]]\nname = \"all\"\npath = \"/*\"\nupstream = \"demo\"\nlimits = [\"per-key\"]\n",
    );
    for status in [200, 429] {
        get_with(gateway.addr(), "/%1b%5b2J", "x-key: a\u{202e}\u{85}b\r\n").expect(status);
    }
    let terminal =
        TerminalProgram::start(&["top", "--url", &format!("http://{}", gateway.admin_addr())], &[]);
    terminal.wait_for("Keys of per-key");
    terminal.wait_for("u{202e}");
    terminal.press("4");
    terminal.wait_for("over 1/h");
    assert_harmless(&terminal);
}

/// A server that answers with something else is an outage, and not the end.
#[test]
fn a_server_that_is_no_gateway_is_reported() {
    for answer in [
        "HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nhtml",
        "HTTP/1.1 503 Gone\r\ncontent-length: 0\r\n\r\n",
        "SSH-2.0-x\r\n",
    ] {
        let server = Backend::answering_once(answer);
        let mut terminal = TerminalProgram::start(&["top", "--url", &server.url()], &[]);
        terminal.wait_for("No data since");
        terminal.press("q");
        assert_eq!(terminal.wait_for_exit(), Some(0));
    }
}
