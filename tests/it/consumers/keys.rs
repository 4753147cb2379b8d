//! API keys: where requests carry them, the refusals, and what the backend receives.

use http::Request;
use serde_json::json;

use super::{BY_CONSUMER, CSV, Files, MISSING, UNKNOWN, assert_unauthorized, key};
use crate::harness::api::good;
use crate::harness::{
    AllVersions, Authority, Backend, Body, Client, Gateway, Recorded, Response, everything_to, get_with, send,
};

const HEADER: &str = "header:x-api-key";

/// A gateway whose only route takes the keys of [`CSV`] from `source`. `rest` follows the route's own lines.
fn gateway(backend: &Backend, files: &Files, source: &str, rest: &str) -> Gateway {
    Gateway::start(&configuration(backend, files, source, rest))
}

fn configuration(backend: &Backend, files: &Files, source: &str, rest: &str) -> String {
    let auth = files.auth("keys", source, "realm = \"the api\"");
    everything_to(backend, &format!("auth = \"keys\"\n{rest}\n{auth}"))
}

/// The name and the tier that a backend received.
fn consumer(request: &Recorded) -> (Option<String>, Option<String>) {
    (request.header("x-consumer"), request.header("x-consumer-tier"))
}

fn named(name: &str, tier: Option<&str>) -> (Option<String>, Option<String>) {
    (Some(name.to_owned()), tier.map(str::to_owned))
}

#[test]
fn a_key_in_a_header_names_its_consumer() {
    let (backend, files) = (Backend::ok(), Files::with_consumers(CSV));
    let gateway = gateway(&backend, &files, HEADER, "");
    // One connection is one worker, whose log is in order.
    let mut client = Client::connect(gateway.addr());
    for (sent, expected) in [
        ("key-ada-1", named("ada", Some("pro"))),
        ("key-ada-2", named("ada", Some("pro"))),
        ("key-bob-1", named("bob", Some("free"))),
        ("key-eve-1", named("eve", None)),
    ] {
        client.get("/a", &key(sent)).expect(200);
        assert_eq!(consumer(&backend.latest()), expected, "{sent}");
    }
    client.get("/a", "X-API-Key:   key-ada-1\t\r\n").expect(200);
    let before = backend.count();
    for wrong in ["key-ada-3", "key-ada-", "KEY-ADA-1", "\"key-ada-1\"", "key-ada-1,key-ada-1", "ada", "key"]
    {
        let response = client.get("/a", &key(wrong));
        assert_unauthorized(&response, "ApiKey realm=\"the api\"", UNKNOWN);
    }
    for without in ["", "x-api-key:\r\n", "x-api-key:  \r\n", "x_api_key: key-ada-1\r\n"] {
        let response = client.get("/a", without);
        assert_unauthorized(&response, "ApiKey realm=\"the api\"", MISSING);
    }
    assert_eq!(backend.count(), before, "a refusal is not forwarded");
    let log = gateway.access_log(16);
    assert_eq!((&log[0]["consumer"], &log[0]["tier"]), (&"ada".into(), &"pro".into()));
    assert_eq!((&log[3]["consumer"], &log[3]["tier"]), (&"eve".into(), &().into()));
    assert_eq!((&log[5]["consumer"], &log[5]["error"]), (&().into(), &"credential_invalid".into()));
    assert_eq!((&log[12]["consumer"], &log[12]["error"]), (&().into(), &"credential_missing".into()));
    assert!(log.iter().all(|record| record["route"] == "all"), "also of refusals");
}

#[test]
fn a_bearer_token_is_a_key_whatever_the_case_of_its_scheme() {
    let (backend, files) = (Backend::ok(), Files::with_consumers(CSV));
    let gateway = gateway(&backend, &files, "bearer", "");
    let ask = |value: &str| get_with(gateway.addr(), "/", &format!("authorization: {value}\r\n"));
    for good in ["Bearer key-ada-1", "bearer key-ada-1", "BEARER   key-ada-1", "bEaReR key-ada-1 "] {
        ask(good).expect(200);
        assert_eq!(consumer(&backend.latest()), named("ada", Some("pro")), "{good}");
        assert_eq!(backend.latest().header("authorization"), None, "{good}");
    }
    // RFC 6750 §3.1: no error code if the request lacks any authentication information.
    for without in ["Basic a2V5LWFkYS0xOg==", "Bearer", "Bearer  ", "key-ada-1", "Bearerkey-ada-1"] {
        assert_unauthorized(&ask(without), "Bearer realm=\"the api\"", MISSING);
    }
    assert_unauthorized(&get_with(gateway.addr(), "/", ""), "Bearer realm=\"the api\"", MISSING);
    for wrong in ["Bearer nope", "Bearer key-ada-1 key-ada-1", "bearer Bearer key-ada-1"] {
        let challenge = "Bearer realm=\"the api\", error=\"invalid_token\"";
        assert_unauthorized(&ask(wrong), challenge, UNKNOWN);
    }
}

#[test]
fn a_key_in_the_query_is_decoded_and_cut_out_of_what_is_forwarded() {
    let (backend, files) = (Backend::ok(), Files::with_consumers(CSV));
    let gateway = gateway(&backend, &files, "query:api_key", "");
    let mut client = Client::connect(gateway.addr());
    for (sent, received) in [
        ("/a?api_key=key-ada-1", "/a"),
        ("/a?b=1&api_key=key-ada-1&c=%20+x", "/a?b=1&c=%20+x"),
        ("/a?api_key=key-ada-1&api_key=key-ada-1", "/a"),
        ("/a?api%5Fkey=key%2Dada%2D1&b", "/a?b"),
        ("/a?&api_key=key-ada-1&&b=", "/a?&&b="),
        ("/%61//b?b=1&api_key=key-ada-1", "/a/b?b=1"),
        ("/a?api_key=key-ada-1&api_keys=2&API_KEY=3", "/a?api_keys=2&API_KEY=3"),
    ] {
        client.get(sent, "").expect(200);
        assert_eq!(backend.latest().target(), received, "{sent}");
        assert_eq!(consumer(&backend.latest()), named("ada", Some("pro")), "{sent}");
    }
    for without in ["/a", "/a?api_key", "/a?api_key=", "/a?API_KEY=key-ada-1"] {
        assert_unauthorized(&client.get(without, ""), "ApiKey realm=\"the api\"", MISSING);
    }
    assert_unauthorized(&client.get("/a?api_key=nope", ""), "ApiKey realm=\"the api\"", UNKNOWN);
    let paths: Vec<_> = gateway.access_log(12).iter().map(|record| record["path"].clone()).collect();
    assert_eq!(paths[..2], ["/a", "/a?b=1&c=%20+x"]);
    assert_eq!(paths[11], "/a", "a wrong key is not logged either");
}

#[test]
fn a_key_in_a_cookie_is_cut_out_of_the_others() {
    let (backend, files) = (Backend::ok(), Files::with_consumers(CSV));
    let gateway = gateway(&backend, &files, "cookie:session", "");
    for (sent, received) in [
        ("session=key-ada-1", &[][..]),
        ("a=1; session=key-ada-1; b=2", &["a=1; b=2"]),
        ("session=key-ada-1; a=\"x y\"", &["a=\"x y\""]),
        ("session=key%2Dada%2D1; sessions=1; Session=2", &["sessions=1; Session=2"]),
        ("a=1\r\ncookie: session=key-ada-1\r\ncookie: b=2", &["a=1", "b=2"]),
    ] {
        get_with(gateway.addr(), "/", &format!("cookie: {sent}\r\n")).expect(200);
        let mut cookies = backend.latest().header_all("cookie");
        cookies.sort();
        assert_eq!(cookies, received, "{sent}");
        assert_eq!(consumer(&backend.latest()), named("ada", Some("pro")), "{sent}");
    }
    let ask = |cookie: &str| get_with(gateway.addr(), "/", &format!("cookie: {cookie}\r\n"));
    assert_unauthorized(&ask("session=nope"), "ApiKey realm=\"the api\"", UNKNOWN);
    assert_unauthorized(&ask("session="), "ApiKey realm=\"the api\"", MISSING);
    assert_unauthorized(&ask("other=key-ada-1"), "ApiKey realm=\"the api\"", MISSING);
}

#[test]
fn keys_may_be_stored_as_their_hash() {
    // printf %s key-ada-1 | sha256sum
    let digest = "sha256:a035d8ccc88dacea985326546ceca9fe1babcf192a0a0df9c057987dfdb9397d";
    let csv = format!("name,key\nada,{digest}\nbob,key-bob-1\n");
    let (backend, files) = (Backend::ok(), Files::with_consumers(csv));
    let gateway = gateway(&backend, &files, HEADER, "");
    get_with(gateway.addr(), "/", &key("key-ada-1")).expect(200);
    assert_eq!(consumer(&backend.latest()), named("ada", None));
    get_with(gateway.addr(), "/", &key("key-bob-1")).expect(200);
    assert_eq!(consumer(&backend.latest()), named("bob", None));
    for stolen in [digest, &digest[7..]] {
        get_with(gateway.addr(), "/", &key(stolen)).expect(401);
    }
}

#[test]
fn the_first_auth_whose_credential_a_request_carries_decides() {
    let (backend, files) = (Backend::ok(), Files::with_consumers("key,name\nkey-0001,ada\n"));
    files.write("partners.csv", "key,name\npartner-1,partner\n");
    let tables = files.auth("keys", HEADER, "") + &files.auth_in("partners.csv", "partners", "bearer", "");
    let gateway =
        Gateway::start(&everything_to(&backend, &format!("auth = [\"keys\", \"partners\"]\n{tables}")));
    let ask = |fields: &str| get_with(gateway.addr(), "/", fields);
    for (fields, name) in [
        ("x-api-key: key-0001\r\n", "ada"),
        ("authorization: Bearer partner-1\r\n", "partner"),
        ("authorization: Bearer partner-1\r\nx-api-key: key-0001\r\n", "ada"),
        ("authorization: Bearer wrong\r\nx-api-key: key-0001\r\n", "ada"),
        ("authorization: Bearer partner-1\r\nx-api-key:\r\n", "partner"),
    ] {
        ask(fields).expect(200);
        assert_eq!(consumer(&backend.latest()), named(name, None), "{fields}");
        let head = backend.latest().head;
        assert!(!head.contains("authorization") && !head.contains("x-api-key"), "{head}");
    }
    // The second is not asked, even though its credential is good.
    let wrong = ask("x-api-key: partner-1\r\nauthorization: Bearer partner-1\r\n").expect(401);
    let challenges = ["ApiKey realm=\"keys\"", "Bearer realm=\"partners\""];
    assert_eq!(wrong.header_all("www-authenticate"), challenges);
    assert_eq!(ask("").expect(401).header_all("www-authenticate"), challenges);
    let wrong = ask("authorization: Bearer key-0001\r\n").expect(401);
    assert_eq!(
        wrong.header_all("www-authenticate"),
        ["ApiKey realm=\"keys\"", "Bearer realm=\"partners\", error=\"invalid_token\""]
    );
}

#[test]
fn an_optional_credential_may_be_missing_but_not_wrong() {
    let (backend, files) = (Backend::ok(), Files::with_consumers(CSV));
    let optional = |missing: &str| {
        format!("auth_optional = true\nlimits = [\"api\"]\n{BY_CONSUMER}missing = \"{missing}\"\n")
    };
    let by_address =
        gateway(&backend, &files, HEADER, &format!("{}[admin]\nlisten = \"127.0.0.1:0\"\n", optional("ip")));
    let status = |fields: &str| get_with(by_address.addr(), "/", fields).status;
    assert_eq!([(); 3].map(|()| status("")), [200, 200, 429], "anonymous clients are counted by address");
    assert_eq!(consumer(&backend.latest()), (None, None));
    assert_eq!([(); 3].map(|()| status(&key("key-ada-1"))), [200, 200, 429]);
    assert_eq!(status(&key("wrong")), 401);
    assert_eq!(status("x-api-key: a\r\nx-api-key: b\r\n"), 400);
    for (result, count) in
        [("anonymous", 3.0), ("accepted", 3.0), ("invalid", 1.0), ("repeated", 1.0), ("missing", 0.0)]
    {
        let label = format!("result=\"{result}\"");
        let counted = by_address.metric("tollgate_auth_total", &["auth=\"keys\"", &label]);
        assert!((counted - count).abs() < 0.1, "{result}: {counted}");
    }
    let denied = gateway(&backend, &files, HEADER, &optional("deny"));
    get_with(denied.addr(), "/", "").expect(429);
    get_with(denied.addr(), "/", &key("key-bob-1")).expect(200);
    let unlimited = gateway(&backend, &files, HEADER, &optional("skip"));
    (0..5).for_each(|_| _ = get_with(unlimited.addr(), "/", "").expect(200));
}

#[test]
fn a_refusal_is_a_grpc_status_where_the_client_calls_by_grpc() {
    let (backend, files) = (Backend::ok(), Files::with_consumers(CSV));
    let gateway = AllVersions::start(&configuration(&backend, &files, "bearer", ""));
    let mut expected = 0;
    for client in gateway.clients() {
        let call = |token: &str| {
            let request = Request::post("http://test/a.B/C")
                .header("content-type", "application/grpc")
                .header("te", "trailers")
                .header("authorization", token);
            client
                .exchange(request.body(()).expect("a request"), Body::default())
                .expect("an answer")
                .expect(200)
        };
        let refused = call("Bearer wrong");
        assert_eq!(
            (refused.header("grpc-status"), refused.header("grpc-message")),
            (Some("16"), Some(UNKNOWN))
        );
        let challenge = "Bearer realm=\"the api\", error=\"invalid_token\"";
        assert_eq!(refused.header("www-authenticate"), Some(challenge));
        assert_eq!(refused.header("content-type"), Some("application/grpc"));
        let refused = call("Basic x");
        assert_eq!(
            (refused.header("grpc-status"), refused.header("grpc-message")),
            (Some("16"), Some(MISSING))
        );
        assert_eq!(call("Bearer key-ada-1").header("grpc-status"), None, "this backend speaks no gRPC");
        expected += 1;
        assert_eq!(backend.count(), expected);
    }
}

#[test]
fn a_script_may_read_a_refusal_and_its_preflight_needs_no_credential() {
    let (backend, files) = (Backend::ok(), Files::with_consumers(CSV));
    let cors = "cors = { origins = [\"https://app.example.com\"], headers = [\"x-api-key\"] }";
    let gateway = gateway(&backend, &files, HEADER, cors);
    let origin = "origin: https://app.example.com\r\n";
    let refused = get_with(gateway.addr(), "/", &format!("{origin}{}", key("wrong")));
    assert_unauthorized(&refused, "ApiKey realm=\"the api\"", UNKNOWN);
    assert_eq!(refused.header("access-control-allow-origin"), Some("https://app.example.com"));
    let ask = "access-control-request-method: GET\r\naccess-control-request-headers: x-api-key\r\n";
    let preflight = format!("OPTIONS / HTTP/1.1\r\nhost: test\r\n{origin}{ask}\r\n");
    let answer = send(gateway.addr(), preflight).expect(204);
    assert_eq!(answer.header("access-control-allow-headers"), Some("x-api-key"));
    // An OPTIONS request that is no preflight needs one.
    send(gateway.addr(), "OPTIONS / HTTP/1.1\r\nhost: test\r\n\r\n").expect(401);
    get_with(gateway.addr(), "/", &format!("{origin}{}", key("key-ada-1"))).expect(200);
    assert_eq!(backend.count(), 1);
}

#[test]
fn a_request_without_tls_is_redirected_before_its_key_is_read() {
    let (backend, files, authority) = (Backend::ok(), Files::with_consumers(CSV), Authority::new());
    authority.certify("a", &["a.test"]);
    let listen =
        "[server]\nlisten = [{ address = \"127.0.0.1:0\", tls = false }, \"127.0.0.1:0\"]\nworkers = 2\n";
    let rest =
        format!("redirect = \"https\"\ncors = {{ origins = [\"*\"] }}\n{listen}{}", authority.server("a"));
    let gateway = gateway(&backend, &files, HEADER, &rest);
    let plain = |fields: &str| {
        send(gateway.addr(), format!("GET /a HTTP/1.1\r\nhost: a.test\r\n{fields}\r\n")).status
    };
    assert_eq!((plain(""), plain(&key("wrong")), plain(&key("key-ada-1"))), (308, 308, 308));
    let ask = "origin: https://app.example.com\r\naccess-control-request-method: GET\r\n";
    let preflight = format!("OPTIONS /a HTTP/1.1\r\nhost: a.test\r\n{ask}\r\n");
    send(gateway.addr(), &preflight).expect(308);
    let mut client = Client::connect_tls(gateway.addresses()[1], &authority.client(), "a.test");
    client.exchange(&preflight).expect(204);
    client.get("/", "").expect(401);
    client.get("/", &key("key-ada-1")).expect(200);
    assert_eq!(backend.latest().header("x-consumer"), Some("ada".into()));
}

/// The redirect is before the preflight and the credential, for `explain` too.
#[test]
fn explain_knows_that_a_redirect_is_before_the_key() {
    let (backend, files, authority) = (Backend::ok(), Files::with_consumers(CSV), Authority::new());
    authority.certify("a", &["a.test"]);
    let listen = "[admin]\nlisten = \"127.0.0.1:0\"\n\
        [server]\nlisten = [{ address = \"127.0.0.1:0\", tls = false }, \"127.0.0.1:0\"]\n";
    let rest =
        format!("redirect = \"https\"\ncors = {{ origins = [\"*\"] }}\n{listen}{}", authority.server("a"));
    let gateway = gateway(&backend, &files, HEADER, &rest);
    let preflight = json!({ "origin": "https://app.example.com", "access-control-request-method": "GET" });
    for (method, scheme, headers, verdict, status) in [
        ("GET", "http", json!({}), "redirected", json!(308)),
        ("GET", "http", json!({ "x-api-key": "key-ada-1" }), "redirected", json!(308)),
        ("OPTIONS", "http", preflight.clone(), "redirected", json!(308)),
        ("GET", "https", json!({}), "answered", json!(401)),
        ("GET", "https", json!({ "x-api-key": "key-ada-1" }), "admitted", json!(null)),
        ("OPTIONS", "https", preflight, "answered", json!(204)),
    ] {
        let asked = json!({ "method": method, "url": format!("{scheme}://a.test/a"), "headers": headers });
        let told = good(&gateway, "POST explain", &asked.to_string());
        assert_eq!((&told["verdict"], &told["status"]), (&json!(verdict), &status), "{asked}: {told}");
    }
}

#[test]
fn keys_are_read_from_http2_and_http3_too() {
    let (backend, files) = (Backend::ok(), Files::with_consumers(CSV));
    let tables = files.auth("keys", HEADER, "") + &files.auth("cookies", "cookie:session", "");
    let rest = format!("auth = [\"keys\", \"cookies\"]\n{tables}");
    let gateway = AllVersions::start(&everything_to(&backend, &rest));
    for client in gateway.clients() {
        let ask = |fields: &[(&str, &str)]| {
            let mut request = Request::get("http://test/a");
            for (name, value) in fields {
                request = request.header(*name, *value);
            }
            client.exchange(request.body(()).expect("a request"), Body::default()).expect("an answer")
        };
        ask(&[("x-api-key", "key-ada-1"), ("x-consumer", "eve")]).expect(200);
        assert_eq!(consumer(&backend.latest()), named("ada", Some("pro")));
        // Browsers send each cookie as a header line of its own.
        ask(&[("cookie", "a=1"), ("cookie", "session=key-bob-1"), ("cookie", "b=2")]).expect(200);
        assert_eq!(consumer(&backend.latest()), named("bob", Some("free")));
        let cookies = backend.latest().header_all("cookie").join("; ");
        assert_eq!(cookies, "a=1; b=2");
        assert_eq!(ask(&[("x-api-key", "a"), ("x-api-key", "b")]).status, 400);
        let refused = ask(&[("x-api-key", "wrong")]).expect(401);
        let challenges: Vec<_> = refused.headers.get_all("www-authenticate").iter().collect();
        assert_eq!(challenges, ["ApiKey realm=\"keys\"", "ApiKey realm=\"cookies\""]);
        ask(&[]).expect(401);
    }
    assert_eq!(backend.count(), 2 * gateway.clients().len());
}

#[test]
fn a_refused_credential_costs_no_allowance() {
    let (backend, files) = (Backend::ok(), Files::with_consumers(CSV));
    let global = "[limits.all]\nalgorithm = \"fixed-window\"\nalign = \"first-request\"\nkey = \"global\"\nrate = \"2/day\"\n";
    let rest = format!("limits = [\"all\"]\n[admin]\nlisten = \"127.0.0.1:0\"\n{global}");
    let gateway = gateway(&backend, &files, HEADER, &rest);
    let status = |fields: &str| get_with(gateway.addr(), "/", fields).status;
    for _ in 0..5 {
        let refused = get_with(gateway.addr(), "/", &key("wrong")).expect(401);
        assert_eq!((refused.header("ratelimit"), refused.header("retry-after")), (None, None));
        assert_eq!((status(""), status("x-api-key: a\r\nx-api-key: b\r\n")), (401, 400));
    }
    assert_eq!([(); 3].map(|()| status(&key("key-ada-1"))), [200, 200, 429]);
    assert_eq!(status(&key("wrong")), 401, "also where the allowance is used up");
    let counted = gateway.metric("tollgate_decisions_total", &["limit=\"all\""]);
    assert!((counted - 3.0).abs() < 0.1, "{counted}");
}

#[test]
fn consumers_are_counted_by_name_or_by_a_column() {
    let (backend, files) = (Backend::ok(), Files::with_consumers(CSV));
    let by_org = BY_CONSUMER.replace("limits.api", "limits.org").replace("\"consumer\"", "\"consumer:org\"");
    let statuses = |gateway: &Gateway, keys: &[&str]| -> Vec<u16> {
        keys.iter().map(|one| get_with(gateway.addr(), "/", &key(one)).status).collect()
    };
    let by_name = gateway(&backend, &files, HEADER, &format!("limits = [\"api\"]\n{BY_CONSUMER}"));
    let keys = ["key-ada-1", "key-ada-2", "key-ada-1", "key-ada-2", "key-bob-1", "key-bob-1", "key-bob-1"];
    assert_eq!(statuses(&by_name, &keys), [200, 200, 429, 429, 200, 200, 429], "all keys of a name");
    let rest = format!("limits = [\"org\"]\n{by_org}missing = \"deny\"\n");
    let by_column = gateway(&backend, &files, HEADER, &rest);
    let keys = ["key-ada-1", "key-bob-1", "key-ada-2", "key-bob-1", "key-eve-1"];
    assert_eq!(statuses(&by_column, &keys), [200, 200, 429, 429, 429], "`eve` has no organisation");
}

#[test]
fn one_name_from_two_auths_is_one_consumer() {
    let (backend, files) = (Backend::ok(), Files::with_consumers("key,name\nkey-0001,ada\n"));
    files.write("more.csv", "key,name\nkey-0002,ada\n");
    let tables = files.auth("keys", HEADER, "") + &files.auth_in("more.csv", "more", "bearer", "");
    let rest = format!("auth = [\"keys\", \"more\"]\nlimits = [\"api\"]\n{BY_CONSUMER}{tables}");
    let gateway = Gateway::start(&everything_to(&backend, &rest));
    let status = |fields: &str| get_with(gateway.addr(), "/", fields).status;
    let (one, other) = ("x-api-key: key-0001\r\n", "authorization: Bearer key-0002\r\n");
    assert_eq!([status(one), status(other), status(one), status(other)], [200, 200, 429, 429]);
}

#[test]
fn a_consumer_has_its_server() {
    let named = |name| Backend::answering(format!("HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n{name}"));
    let servers = [named("a"), named("b"), named("c")];
    let csv: String = (0..30).map(|number| format!("key-{number:04},n{},\n", number % 15)).collect();
    let files = Files::with_consumers(format!("key,name,tier\n{csv}"));
    let urls: Vec<_> = servers.iter().map(|server| format!("\"{}\"", server.url())).collect();
    let gateway = Gateway::start(&format!(
        "[upstreams.api]\nservers = [{}]\nbalance = \"hash\"\nhash_key = \"consumer\"\n\
         [[routes]]\npath = \"/*\"\nupstream = \"api\"\nauth = \"keys\"\n{}",
        urls.join(", "),
        files.auth("keys", HEADER, "")
    ));
    let server_of =
        |number: usize| get_with(gateway.addr(), "/", &key(&format!("key-{number:04}"))).expect(200).text();
    let first: Vec<_> = (0..15).map(server_of).collect();
    let second: Vec<_> = (15..30).map(server_of).collect();
    assert_eq!(first, second, "two keys of a name");
    assert!(["a", "b", "c"].iter().all(|name| first.iter().any(|server| server == name)), "{first:?}");
}

/// At most three wrong keys a day from an address.
fn failures(mode: &str) -> String {
    format!(
        "[limits.wrong-keys]\nalgorithm = \"fixed-window\"\nalign = \"first-request\"\nkey = \"ip\"\nrate = \"3/day\"\n{mode}\n"
    )
}

fn with_failures(backend: &Backend, files: &Files, mode: &str) -> Gateway {
    let auth = files.auth("keys", HEADER, "failures = \"wrong-keys\"");
    let rest = format!("auth = \"keys\"\n[admin]\nlisten = \"127.0.0.1:0\"\n{}{auth}", failures(mode));
    Gateway::start(&everything_to(backend, &rest))
}

fn from(source: &str, gateway: &Gateway, fields: &str) -> Response {
    Client::connect_from(source.parse().expect("an address"), gateway.addr()).get("/", fields)
}

#[test]
fn wrong_keys_are_bounded_by_address_while_good_ones_pass() {
    let (backend, files) = (Backend::ok(), Files::with_consumers(CSV));
    let gateway = with_failures(&backend, &files, "");
    let ask = |fields: &str| from("127.0.0.1", &gateway, fields);
    // Neither a missing credential nor two that differ are charged: the client guessed none.
    for _ in 0..5 {
        ask("").expect(401);
        ask("x-api-key: a\r\nx-api-key: b\r\n").expect(400);
    }
    (0..3).for_each(|number| _ = ask(&key(&format!("guess-{number}"))).expect(401));
    let refused = ask(&key("guess-3")).expect(429);
    assert!(refused.header("retry-after").is_some() && refused.header("www-authenticate").is_none());
    assert_eq!(refused.json()["violated-policies"], serde_json::json!(["wrong-keys"]));
    ask(&key("key-ada-1")).expect(200);
    ask("").expect(401);
    ask(&key("guess-4")).expect(429);
    from("127.0.0.2", &gateway, &key("guess-5")).expect(401);
    for (result, count) in [("invalid", 4.0), ("limited", 2.0), ("missing", 6.0), ("accepted", 1.0)] {
        let label = format!("result=\"{result}\"");
        let counted = gateway.metric("tollgate_auth_total", &["auth=\"keys\"", &label]);
        assert!((counted - count).abs() < 0.1, "{result}: {counted}");
    }
    let log = gateway.access_log(18);
    let limited: Vec<_> = log.iter().filter(|record| record["status"] == 429).collect();
    assert_eq!(limited.len(), 2, "{log:#?}");
    assert!(
        limited.iter().all(|one| one["limit"] == "wrong-keys" && one["decision"] == "limited"),
        "{limited:#?}"
    );
}

#[test]
fn a_shadow_limit_on_wrong_keys_never_refuses() {
    let (backend, files) = (Backend::ok(), Files::with_consumers(CSV));
    let gateway = with_failures(&backend, &files, "mode = \"shadow\"");
    for number in 0..6 {
        let refused = from("127.0.0.1", &gateway, &key(&format!("guess-{number}")));
        assert_unauthorized(&refused, "ApiKey realm=\"keys\"", UNKNOWN);
        assert_eq!(refused.header("ratelimit"), None);
    }
    let invalid = gateway.metric("tollgate_auth_total", &["result=\"invalid\""]);
    assert!((invalid - 6.0).abs() < 0.1, "{invalid}");
}
