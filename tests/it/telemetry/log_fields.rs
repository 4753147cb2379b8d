//! Fields of the access log that the file names: headers, the key, the protocol; and the same request id everywhere.

use http::Request;
use serde_json::Value;

use crate::harness::{
    AllVersions, Backend, Client, Gateway, Http2, eventually, everything_to, free_address, get_with, send,
};

const FIELDS: &str = "[log]\nfields = [\"path\", \"status\", \"protocol\", \"user_agent\", \"referer\", \"key\", \"limit\", \
    \"header:X-Tenant\", \"response_header:x-version\", \"response_header:retry-after\", \"request_id\"]\n";
const ONCE: &str = "[[routes]]\nname = \"once\"\npath = \"/once\"\nupstream = \"api\"\nlimits = [\"once\"]\n\
    [limits.once]\nalgorithm = \"fixed-window\"\nkey = [\"ip\", \"header:x-tenant\"]\nrate = \"1/day\"\n";

fn backend() -> Backend {
    Backend::answering(
        "HTTP/1.1 200 OK\r\nx-version: 7\r\nX-Version: 8\r\nserver: b\r\ncontent-length: 2\r\n\r\nok",
    )
}

fn of(lines: &[Value], path: &str) -> Value {
    let line = lines.iter().find(|line| line["path"] == path);
    line.unwrap_or_else(|| panic!("no line of {path} in {lines:?}")).clone()
}

#[test]
fn a_line_has_the_headers_of_request_and_response_that_the_file_names() {
    let backend = backend();
    let gateway = Gateway::start(&everything_to(&backend, &format!("{FIELDS}{ONCE}")));
    let sent = "x-tenant: a\r\nX-TENANT: b\r\nuser-agent: tests\r\nreferer: https://a/b\r\n";
    let mut client = Client::connect(gateway.addr());
    client.get("/forwarded", sent).expect(200);
    client.get("/bare", "").expect(200);
    client.get("/once", "x-tenant: a\r\n").expect(200);
    client.get("/once", "x-tenant: a\r\n").expect(429);
    send(gateway.addr(), "GET /old HTTP/1.0\r\nhost: a\r\n\r\n").expect(200);
    let lines = gateway.access_log(5);
    let forwarded = of(&lines, "/forwarded");
    assert_eq!(forwarded["header:X-Tenant"], "a, b", "the key is the name as written");
    assert_eq!(forwarded["response_header:x-version"], "7, 8");
    assert_eq!((&forwarded["user_agent"], &forwarded["referer"]), (&"tests".into(), &"https://a/b".into()));
    assert_eq!((&forwarded["protocol"], &forwarded["key"]), (&"HTTP/1.1".into(), &Value::Null));
    let bare = of(&lines, "/bare");
    for absent in ["header:X-Tenant", "user_agent", "referer", "response_header:retry-after"] {
        assert_eq!(bare[absent], Value::Null, "{absent}");
    }
    let refused = lines.iter().find(|line| line["status"] == 429).expect("a line");
    assert!(refused["response_header:retry-after"].as_str().is_some_and(|wait| wait.parse::<u64>().is_ok()));
    let key = refused["key"].as_str().expect("a key");
    assert!(key.starts_with("127.0.0.1, … #") && !key.contains('\n'), "{key}");
    assert_eq!(refused["response_header:x-version"], Value::Null);
    assert_eq!(of(&lines, "/old")["protocol"], "HTTP/1.0");
}

#[test]
fn requests_of_http2_and_http3_have_the_same_fields() {
    let backend = backend();
    // A gateway for each, since its limit admits one request.
    for version in 0..2 {
        let gateway = AllVersions::start(&everything_to(&backend, &format!("{FIELDS}{ONCE}")));
        let clients = gateway.clients();
        let Some(client) = clients.get(version) else { continue };
        let get = |path: &str| {
            let request = Request::get(format!("http://test{path}")).header("x-tenant", "a");
            // A limit refuses a key with two values.
            let request = if path == "/a" { request.header("x-tenant", "b") } else { request };
            client.exchange(request.header("user-agent", "h2").body(()).expect("a request"), &b""[..])
        };
        for (path, status) in [("/a", 200), ("/once", 200), ("/once", 429)] {
            get(path).expect("an answer").expect(status);
        }
        let lines = gateway.access_log(3);
        for line in &lines {
            assert_eq!(
                (&line["protocol"], &line["user_agent"]),
                (&client.version().into(), &"h2".into()),
                "{line}"
            );
        }
        assert_eq!(of(&lines, "/once")["header:X-Tenant"], "a");
        let forwarded = of(&lines, "/a");
        assert_eq!(
            (&forwarded["header:X-Tenant"], &forwarded["response_header:x-version"]),
            (&"a, b".into(), &"7, 8".into())
        );
        let refused = lines.iter().find(|line| line["status"] == 429).expect("a line");
        assert!(refused["response_header:retry-after"].is_string(), "{refused}");
    }
}

#[test]
fn long_and_hostile_values_are_cut_and_escaped() {
    let backend = backend();
    let gateway = Gateway::start(&everything_to(&backend, FIELDS));
    let long = "é".repeat(2_000);
    let fields = format!("x-tenant: {long}\r\nuser-agent: a\u{1b}[2J\"\\\r\nreferer: {long}\r\n");
    // Control characters are no part of a header's value, so the request is refused and has no fields.
    let answer = send(gateway.addr(), format!("GET /bad HTTP/1.1\r\nhost: a\r\n{fields}\r\n"));
    assert_eq!(answer.status, 400);
    get_with(gateway.addr(), "/long", &fields.replace('\u{1b}', "\u{85}")).expect(200);
    let line = of(&gateway.access_log(2), "/long");
    for field in ["header:X-Tenant", "referer"] {
        let value = line[field].as_str().expect("text");
        assert_eq!(value, format!("{}…", "é".repeat(512)), "{field}");
    }
    assert!(!gateway.stdout_lines().join("\n").contains('\u{85}'));
    assert_eq!(line["user_agent"], "a\u{85}[2J\"\\");
    let many = "x-tenant: 01234567890123456789012345678901\r\n".repeat(40);
    get_with(gateway.addr(), "/many", &many).expect(200);
    let line = of(&gateway.access_log(3), "/many");
    assert_eq!(line["header:X-Tenant"].as_str().expect("text").chars().count(), 1_025);
}

#[test]
fn no_credential_is_logged_by_these_fields() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let file = folder.path().join("consumers.csv");
    std::fs::write(&file, "key,name\nhush-hush-0123456789-one,acme\n").expect("it can be written");
    let backend = Backend::answering(
        "HTTP/1.1 302 Found\r\nlocation: /b?api_key=hush-hush-1&z=1\r\n\
         link: <https://a/?x=1, /b?api_key=hush-hush-2>; rel=next\r\ncontent-length: 0\r\n\r\n",
    );
    let rest = format!(
        "limits = [\"by-cookie\", \"by-secret\"]\nauth = \"keys\"\n\
         [limits.by-cookie]\nalgorithm = \"gcra\"\nkey = \"cookie:id\"\nrate = \"1/day\"\nreveal = true\n\
         [limits.by-secret]\nalgorithm = \"gcra\"\nkey = \"header:x-session\"\nrate = \"9/s\"\nreveal = true\n\
         [auth.keys]\ntype = \"api-key\"\nfrom = \"query:api_key\"\nfile = \"{}\"\n\
         [log]\nsecret_headers = [\"X-Session\"]\nfields = [\"status\", \"path\", \"referer\", \"header:referer\", \
         \"response_header:location\", \"response_header:link\", \"key\", \"consumer\"]\n",
        file.display()
    );
    let gateway = Gateway::start(&everything_to(&backend, &rest));
    let fields = "cookie: id=hush-hush-cookie\r\nx-session: hush-hush-session\r\nreferer: https://a/?api_key=hush-hush-3&b=2\r\n";
    for status in [302, 429] {
        get_with(gateway.addr(), "/a?api_key=hush-hush-0123456789-one&c=3", fields).expect(status);
    }
    get_with(gateway.addr(), "/a?api_key=hush-hush-wrong", fields).expect(401);
    let lines = gateway.access_log(3);
    let text = gateway.stdout_lines().join("\n");
    assert!(!text.contains("hush-hush"), "{text}");
    let good = lines.iter().find(|line| line["status"] == 302).expect("a line");
    assert_eq!(
        (&good["referer"], &good["header:referer"]),
        (&"https://a/?b=2".into(), &"https://a/?b=2".into())
    );
    assert_eq!(
        (&good["response_header:location"], &good["response_header:link"]),
        (&"/b?z=1".into(), &"<https://a/".into())
    );
    let refused = lines.iter().find(|line| line["status"] == 429).expect("a line");
    assert!(refused["key"].as_str().is_some_and(|key| key.starts_with("…")), "{refused}");
}

#[test]
fn a_header_that_auth_reads_is_refused_as_a_field() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    std::fs::write(folder.path().join("consumers.csv"), "key,name\nkey-0123456789,acme\n").expect("written");
    let file = folder.path().join("gateway.toml");
    let toml = "[upstreams]\ndemo = \"builtin:echo\"\n[[routes]]\npath = \"/*\"\nupstream = \"demo\"\nauth = \"keys\"\n\
        [auth.keys]\ntype = \"api-key\"\nfrom = \"header:x-partner\"\nfile = \"consumers.csv\"\n\
        [log]\nfields = [\"header:X_Partner\"]\n";
    std::fs::write(&file, toml).expect("written");
    let report = tollgate::config::load(&file).expect_err("a fault").to_string();
    assert!(report.contains("`x_partner` holds credentials, which are never logged"), "{report}");
}

#[test]
fn a_reload_changes_the_fields() {
    let backend = backend();
    let gateway = Gateway::start(&everything_to(&backend, "[log]\nfields = [\"path\", \"header:x-a\"]\n"));
    get_with(gateway.addr(), "/1", "x-a: 1\r\nx-b: 2\r\n").expect(200);
    gateway.access_log(1);
    let next = "[log]\nfields = [\"path\", \"header:x-b\", \"response_header:server\"]\n";
    gateway.reload(&everything_to(&backend, next), "INFO reloaded");
    get_with(gateway.addr(), "/2", "x-a: 1\r\nx-b: 2\r\n").expect(200);
    let lines = gateway.access_log(2);
    assert_eq!(lines[0], serde_json::json!({ "path": "/1", "header:x-a": "1" }));
    assert_eq!(
        lines[1],
        serde_json::json!({ "path": "/2", "header:x-b": "2", "response_header:server": "b" })
    );
}

/// The id of a refused request, of an error and of a forwarded request is the one that the log has.
#[test]
fn one_request_has_one_id_in_the_log_at_the_backend_and_in_the_answer() {
    let backend =
        Backend::answering("HTTP/1.1 200 OK\r\nx-request-id: theirs\r\ncontent-length: 2\r\n\r\nok");
    let gone = format!(
        "[upstreams.gone]\nservers = [\"http://{}\"]\n[[routes]]\npath = \"/gone\"\nupstream = \"gone\"\n",
        free_address()
    );
    let toml = everything_to(&backend, &format!("{FIELDS}{ONCE}{gone}"));
    let gateway = Gateway::start(&format!("[server]\nrequest_id = \"all\"\n{toml}"));
    let cases = [("/forwarded", 200), ("/once", 200), ("/once", 429), ("/gone", 502), ("/%zz", 400)];
    let mut seen = Vec::new();
    for (path, status) in cases {
        let answer = get_with(gateway.addr(), path, "x-tenant: one\r\n").expect(status);
        seen.push((status, answer.header_all("x-request-id").join("|")));
    }
    let client = Http2::connect(gateway.addr());
    for (path, status) in [("/forwarded", 200), ("/once", 200), ("/once", 429), ("/gone", 502)] {
        let request = Request::get(format!("http://test{path}")).header("x-tenant", "two").body(());
        let answer = client.exchange(request.expect("a request"), &b""[..]).expect("an answer");
        seen.push((status, answer.header("x-request-id").expect("an id").to_owned()));
        answer.expect(status);
    }
    let lines = gateway.access_log(seen.len());
    assert_eq!(lines.len(), seen.len());
    for (status, id) in &seen {
        let line = lines.iter().find(|line| line["request_id"] == **id);
        assert_eq!(line.unwrap_or_else(|| panic!("{id} of {status} in {lines:?}"))["status"], *status);
    }
    let forwarded = eventually("4 requests at the backend", || {
        let requests = backend.requests();
        (requests.len() == 4)
            .then(|| requests.iter().map(|one| one.header("x-request-id")).collect::<Vec<_>>())
    });
    let expected: Vec<_> =
        seen.iter().filter(|(status, _)| *status == 200).map(|(_, id)| Some(id.clone())).collect();
    assert_eq!(forwarded, expected);
}
