//! A header that keeps a session at the server that began it, such as `mcp-session-id`.

use bytes::Bytes;
use h2::server::Builder;
use http::Response as Head;

use crate::harness::{AllVersions, Backend, Client, Exchange, Gateway, Http2Backend, Next, Response, h2_get};

const HEADER: &str = "mcp-session-id";

/// What a server makes of a session: it begins one at `/new`, knows its own, and has none of others.
fn status_of(name: &str, target: &str, session: Option<&str>) -> u16 {
    match (target, session) {
        ("/fail", _) => 503,
        ("/new", _) => 200,
        (_, Some(session)) if session == format!("{name}.1") => 200,
        _ => 404,
    }
}

/// A server that answers with its name, and the session that it saw.
fn server(name: &'static str) -> Backend {
    Backend::start(move |exchange: &mut Exchange| {
        exchange.read_body();
        let session = exchange.field(HEADER);
        let status = status_of(name, exchange.target(), session.as_deref());
        let own =
            if exchange.target() == "/new" { format!("Mcp-Session-Id: {name}.1\r\n") } else { String::new() };
        let body = format!("{name} {}", session.unwrap_or_default());
        exchange
            .write(format!("HTTP/1.1 {status} Status\r\n{own}content-length: {}\r\n\r\n{body}", body.len()));
        Next::KeepAlive
    })
}

fn three() -> [Backend; 3] {
    ["a", "b", "c"].map(server)
}

/// Everything to these servers, with further lines of the upstream and of the route.
fn to(urls: &[String], upstream: &str, route: &str) -> String {
    format!(
        "[upstreams.tools]\nservers = {urls:?}\nsticky = {{ header = \"{HEADER}\", secret_env = \"STICKY\" }}\n\
         {upstream}\n[[routes]]\npath = \"/*\"\nupstream = \"tools\"\n{route}\n[admin]\nlisten = \"127.0.0.1:0\"\n"
    )
}

fn urls(servers: &[Backend]) -> Vec<String> {
    servers.iter().map(Backend::url).collect()
}

fn start(config: &str) -> Gateway {
    start_with(config, "0123456789abcdef")
}

fn start_with(config: &str, secret: &str) -> Gateway {
    Gateway::start_in(config, &[], &[("STICKY", secret)])
}

/// A new session, and the name of its server.
fn begin(gateway: &Gateway) -> (String, String) {
    let response = Client::connect(gateway.addr()).get("/new", "").expect(200);
    let session = response.header(HEADER).expect("a session").to_owned();
    (session, response.text().trim().to_owned())
}

fn with(gateway: &Gateway, session: &str, path: &str) -> Response {
    Client::connect(gateway.addr()).get(path, &format!("{HEADER}: {session}\r\n"))
}

#[test]
fn a_session_stays_at_the_server_that_began_it() {
    let servers = three();
    let gateway = start(&to(&urls(&servers), "", ""));
    let sessions: Vec<_> = (0..6).map(|_| begin(&gateway)).collect();
    let mut names: Vec<_> = sessions.iter().map(|(_, name)| name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names, ["a", "b", "c"], "new sessions are balanced");
    for (session, name) in sessions.iter().cycle().take(60) {
        assert!(session.starts_with(&format!("{name}.1.")), "{session}");
        let response = with(&gateway, session, "/").expect(200);
        assert_eq!(response.text(), format!("{name} {name}.1"), "the server sees its own session");
        assert_eq!(response.header(HEADER), None, "nothing is added that the server does not send");
    }
}

#[test]
fn sessions_over_http2_and_http3_are_the_same() {
    let gateway = AllVersions::start_in(
        &to(&three_of_http2(), "protocol = \"http2\"", ""),
        &[("STICKY", "0123456789abcdef")],
    );
    let clients = gateway.clients();
    for client in clients.iter().cycle().take(6 * clients.len()) {
        let begun = client.exchange(h2_get("/new"), &b""[..]).expect("an answer").expect(200);
        let session = begun.headers[HEADER].clone();
        let mut request = h2_get("/");
        request.headers_mut().insert(HEADER, session.clone());
        let next = client.exchange(request, &b""[..]).expect("an answer").expect(200);
        let name = String::from_utf8_lossy(&begun.body).trim().to_owned();
        assert_eq!(next.body, format!("{name} {name}.1").into_bytes());
        // The same session over HTTP/1.1.
        let session = session.to_str().expect("text");
        assert_eq!(with(&gateway, session, "/").expect(200).text(), format!("{name} {name}.1"));
    }

    fn three_of_http2() -> Vec<String> {
        let started = ["a", "b", "c"].map(|name| {
            let backend = Http2Backend::start(Builder::new(), move |request, mut respond| async move {
                let session = request.headers().get(HEADER).and_then(|value| value.to_str().ok());
                let target = request.uri().path().to_owned();
                let mut head = Head::builder().status(status_of(name, &target, session));
                if target == "/new" {
                    head = head.header(HEADER, format!("{name}.1"));
                }
                let body = Bytes::from(format!("{name} {}", session.unwrap_or_default()));
                let head = head.body(()).expect("a head");
                let mut stream = respond.send_response(head, false).expect("the gateway waits for it");
                stream.send_data(body, true).expect("the gateway reads");
            });
            let url = backend.url();
            // It serves as long as the test runs.
            std::mem::forget(backend);
            url
        });
        started.to_vec()
    }
}

/// The server that gets such a request has no session of this name, so that the client begins another one.
#[test]
fn any_other_value_reaches_a_server_unchanged() {
    let servers = three();
    let gateway = start(&to(&urls(&servers), "", ""));
    let (session, _) = begin(&gateway);
    let mut others: Vec<String> = (1..session.len()).map(|end| session[..end].to_owned()).collect();
    others.extend([format!("{session}A"), session.to_lowercase(), "7".to_owned()]);
    for other in others {
        // A session without a server's name is known to its server alone.
        let response = with(&gateway, &other, "/");
        assert_eq!(response.text().split_once(' ').map(|(_, seen)| seen), Some(other.as_str()));
    }
    assert!(with(&gateway, "", "/").expect(404).text().ends_with(' '));
}

#[test]
fn a_session_of_a_server_that_is_away_is_unknown_to_the_others() {
    let mut servers = three().map(Some);
    let all = servers.each_ref().map(|server| server.as_ref().expect("it runs").url());
    let gateway = start(&to(&all, "eject = { failures = 1, for = \"1min\" }", ""));
    let (session, name) = begin(&gateway);
    let index = ["a", "b", "c"].iter().position(|other| *other == name).expect("one of them");
    drop(servers[index].take());
    let response = with(&gateway, &session, "/").expect(404);
    assert!(!response.text().starts_with(&name) && response.text().ends_with(&format!(" {name}.1")));
    let (anew, moved) = begin(&gateway);
    assert_ne!(moved, name);
    with(&gateway, &anew, "/").expect(200);
}

#[test]
fn a_retry_gives_the_session_of_the_server_that_answered() {
    let servers = ["a", "b"].map(|name| {
        Backend::start(move |exchange: &mut Exchange| {
            exchange.read_body();
            // The first server fails each time.
            let status = if name == "a" { 503 } else { 200 };
            exchange
                .write(format!("HTTP/1.1 {status} Status\r\n{HEADER}: {name}\r\ncontent-length: 0\r\n\r\n"));
            Next::KeepAlive
        })
    });
    let gateway = start(&to(&urls(&servers), "retry = { on = [\"503\"] }", ""));
    for _ in 0..4 {
        let response = Client::connect(gateway.addr()).get("/", "").expect(200);
        let session = response.header(HEADER).expect("a session").to_owned();
        assert!(session.starts_with("b."), "{session}");
        // The name at its end is that of b: it is asked at once.
        let asked = servers[0].count();
        with(&gateway, &session, "/").expect(200);
        assert_eq!(servers[0].count(), asked);
    }
}

/// Gateways of a fleet, and a gateway that was restarted.
#[test]
fn gateways_with_one_secret_agree() {
    let servers = three();
    let config = to(&urls(&servers), "", "");
    let (one, other) = (start(&config), start(&config));
    let stranger = start_with(&config, "another secret of a gateway");
    for _ in 0..6 {
        let (session, name) = begin(&one);
        assert_eq!(with(&other, &session, "/").expect(200).text(), format!("{name} {name}.1"));
        assert!(with(&stranger, &session, "/").expect(404).text().ends_with(&format!(" {session}")));
    }
}

#[test]
fn edits_and_nominations_are_stronger() {
    let servers = three();
    let edits =
        format!("remove_response_headers = [\"{HEADER}\"]\nset_request_headers = {{ {HEADER} = \"own\" }}");
    let gateway = start(&to(&urls(&servers), "", &edits));
    let response = Client::connect(gateway.addr()).get("/new", "").expect(200);
    assert_eq!((response.header(HEADER), response.text().ends_with(" own")), (None, true));

    let gateway = start(&to(&urls(&servers), "", ""));
    let (session, name) = begin(&gateway);
    let lines = format!("{HEADER}: {session}\r\nconnection: {HEADER}\r\n");
    let response = Client::connect(gateway.addr()).get("/", &lines).expect(404);
    assert_eq!(response.text(), format!("{name} "), "the header is of the hop");
    // What CGI reads as the header is dropped.
    let lines = format!("{HEADER}: {session}\r\nmcp_session_id: b.1\r\nMCP-SESSION-ID: 7\r\n");
    let seen = Client::connect(gateway.addr()).get("/", &lines);
    assert!(!seen.text().contains("b.1") || name == "b", "{}", seen.text());
}
