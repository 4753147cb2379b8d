//! Text of clients and of servers that are no gateway: none of it controls the terminal.

use serde_json::json;

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

/// A server in place of a gateway that puts such text everywhere.
#[test]
fn what_a_server_reports_is_escaped() {
    let key = json!({ "id": "id:01", "key": [HOSTILE], "requests": 9, "refused": 9, "tier": HOSTILE });
    let server = Backend::start(move |exchange| {
        let target = exchange.target().to_owned();
        let path = target.trim_start_matches("/api/v1/").split('?').next().unwrap_or_default().to_owned();
        let body = match path.as_str() {
            "status" => json!({ "version": HOSTILE, "life": HOSTILE, "bans": 1, "problems": [{ "severity": "bad", "text": HOSTILE }] }),
            "samples" => json!({ "seq": 1, "count": 1, "upstreams": { HOSTILE: { "servers": [{ "server": HOSTILE, "why": HOSTILE }] } } }),
            "limits" => json!({ "limits": [{ "name": HOSTILE, "mode": "enforce", "policies": [HOSTILE], "minute": { "refused": 1 } }] }),
            "refusals" => json!({ "refusals": [{ "seq": 1, "client": HOSTILE, "path": HOSTILE, "reason": HOSTILE }] }),
            "bans" => json!({ "total": 1, "bans": [{ "id": "id:01", "key": [HOSTILE], "limit": HOSTILE, "cause": HOSTILE }] }),
            "routes" => json!({ "routes": [{ "name": HOSTILE, "path": HOSTILE }] }),
            keys if keys.ends_with("/keys") => json!({ "limit": HOSTILE, "mode": "enforce", "refused": 9, "keys": [key] }),
            _ => json!({ "limit": HOSTILE, "id": "id:01", "key": [HOSTILE], "verdict": HOSTILE, "policies": [{ "policy": HOSTILE }] }),
        }
        .to_string();
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
