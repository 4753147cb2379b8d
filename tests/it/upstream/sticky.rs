//! A cookie that keeps a client at its server.

use std::collections::BTreeMap;

use crate::harness::{AllVersions, Authority, Backend, Client, Gateway, Next, Response, h2_get, send};

/// A server that answers with its name, and 503 for `/fail`.
fn server(name: &'static str) -> Backend {
    Backend::start(move |exchange| {
        exchange.read_body();
        let status = if exchange.target() == "/fail" { 503 } else { 200 };
        exchange.write(format!(
            "HTTP/1.1 {status} Status\r\nset-cookie: own=1\r\ncontent-length: 1\r\n\r\n{name}"
        ));
        Next::KeepAlive
    })
}

fn three() -> [Backend; 3] {
    ["a", "b", "c"].map(server)
}

/// Everything to these servers, with further lines of the upstream.
fn to(servers: &[Backend], lines: &str) -> String {
    let urls: Vec<_> = servers.iter().map(Backend::url).collect();
    format!(
        "[upstreams.shop]\nservers = {urls:?}\nsticky = {{ cookie = \"route\" }}\n{lines}\n\
         [[routes]]\nname = \"all\"\npath = \"/*\"\nupstream = \"shop\"\n[admin]\nlisten = \"127.0.0.1:0\"\n"
    )
}

/// The value of the cookie that a response sets, if it sets one.
fn cookie_of(response: &Response) -> Option<String> {
    let set = response.header_all("set-cookie").into_iter().find(|set| set.starts_with("route="))?;
    Some(set.split(';').next().unwrap_or_default().to_owned())
}

/// The cookie that a first request gets, and the server that answered it.
fn first(gateway: &Gateway) -> (String, String) {
    let response = Client::connect(gateway.addr()).get("/", "").expect(200);
    (cookie_of(&response).expect("a cookie"), response.text())
}

fn with(gateway: &Gateway, cookie: &str, path: &str) -> Response {
    Client::connect(gateway.addr()).get(path, &format!("cookie: own=1; {cookie}\r\n"))
}

#[test]
fn a_client_stays_at_the_server_of_its_first_response() {
    let servers = three();
    let gateway = Gateway::start(&to(&servers, ""));
    let clients: Vec<_> = (0..6).map(|_| first(&gateway)).collect();
    let mut names: Vec<_> = clients.iter().map(|(_, name)| name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names, ["a", "b", "c"], "first requests are balanced");
    for (cookie, name) in clients.iter().cycle().take(60) {
        let response = with(&gateway, cookie, "/").expect(200);
        assert_eq!((&response.text(), cookie_of(&response)), (name, None), "it is not set again");
    }
}

#[test]
fn the_cookie_shows_no_server_and_no_script_reads_it() {
    let servers = three();
    let gateway = Gateway::start(&to(&servers, ""));
    let response = Client::connect(gateway.addr()).get("/", "").expect(200);
    let set = response.header_all("set-cookie");
    assert_eq!((set.len(), set[0]), (2, "own=1"), "the server's own cookies are passed on");
    let (value, rest) = set[1].split_once(';').expect("attributes");
    assert_eq!(rest, " Path=/; HttpOnly; SameSite=Lax");
    assert_eq!(value.len(), "route=".len() + 22);
    assert!(!value.contains(&servers[0].addr().port().to_string()));
}

#[test]
fn over_tls_the_cookie_is_secure() {
    let (servers, authority) = (three(), Authority::new());
    authority.certify("a", &["a.test"]);
    let gateway = Gateway::start(&(to(&servers, "") + &authority.server("a")));
    let mut client = Client::connect_tls(gateway.addr(), &authority.client(), "a.test");
    let response = client.get("/", "").expect(200);
    assert!(response.header_all("set-cookie")[1].ends_with("; SameSite=Lax; Secure"));
}

#[test]
fn behind_a_trusted_proxy_with_tls_the_cookie_is_secure() {
    let servers = three();
    let asked = |trusted: &str| {
        let server = format!("[server]\ntrusted_proxies = [{trusted}]\n");
        let gateway = Gateway::start(&(server + &to(&servers, "")));
        let response = Client::connect(gateway.addr()).get("/", "x-forwarded-proto: https\r\n");
        response.header_all("set-cookie")[1].ends_with("; Secure")
    };
    assert!(asked("\"127.0.0.1/32\"") && !asked(""));
}

#[test]
fn streams_are_sticky_too() {
    let servers = three();
    let gateway = AllVersions::start(&to(&servers, ""));
    let (cookie, name) = first(&gateway);
    for client in gateway.clients() {
        for _ in 0..6 {
            let mut request = h2_get("/");
            for value in ["own=1", &cookie] {
                request.headers_mut().append("cookie", value.parse().expect("a value"));
            }
            let answer = client.exchange(request, &b""[..]).expect("an answer").expect(200);
            assert_eq!(
                (answer.body, answer.headers.get_all("set-cookie").iter().count()),
                (name.clone().into(), 1)
            );
        }
    }
}

/// No cookie leads to a server that it does not name, and none makes the gateway fail.
#[test]
fn any_other_cookie_is_replaced() {
    let servers = three();
    let gateway = Gateway::start(&to(&servers, ""));
    let (cookie, _) = first(&gateway);
    let mut others: Vec<String> = (0..cookie.len()).map(|end| cookie[..end].to_owned()).collect();
    others.extend(
        ["route=", "route", "route=\"", "route==", "route=%", "route=127.0.0.1:80"].map(str::to_owned),
    );
    others.extend([format!("{cookie}A"), cookie.to_lowercase(), cookie.replace("route", "Route")]);
    for other in others {
        let response = with(&gateway, &other, "/").expect(200);
        assert!(cookie_of(&response).is_some(), "{other}");
    }
}

#[test]
fn a_server_that_dies_gives_its_clients_to_another() {
    let mut servers = three().map(Some);
    let urls = servers.each_ref().map(|server| server.as_ref().expect("it runs").url());
    let config = to(&[], "eject = { failures = 1, for = \"1min\" }").replace("[]", &format!("{urls:?}"));
    let gateway = Gateway::start(&config);
    let (cookie, name) = first(&gateway);
    let index = ["a", "b", "c"].iter().position(|other| *other == name).expect("one of them");
    drop(servers[index].take());
    let response = with(&gateway, &cookie, "/").expect(200);
    let renewed = cookie_of(&response).expect("another cookie");
    let moved = response.text();
    assert!(moved != name && renewed != cookie);
    for _ in 0..6 {
        let response = with(&gateway, &renewed, "/").expect(200);
        assert_eq!((response.text().as_str(), cookie_of(&response)), (moved.as_str(), None));
    }
}

#[test]
fn a_drained_server_gives_its_clients_to_others() {
    let servers = three();
    let gateway = Gateway::start(&to(&servers, ""));
    let (cookie, name) = first(&gateway);
    let index = ["a", "b", "c"].iter().position(|other| *other == name).expect("one of them");
    let path = format!("/api/v1/upstreams/shop/servers/{}/drain", servers[index].addr());
    let drain = |method: &str| {
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 0\r\n\r\n"
        );
        send(gateway.admin_addr(), request).expect(200);
    };
    drain("POST");
    let response = with(&gateway, &cookie, "/").expect(200);
    let renewed = cookie_of(&response).expect("another cookie");
    assert!(response.text() != name && renewed != cookie);
    drain("DELETE");
    // Both cookies name a server that is there.
    assert_eq!(with(&gateway, &cookie, "/").text(), name);
    assert_eq!(with(&gateway, &renewed, "/").text(), response.text());
}

#[test]
fn a_retry_at_another_server_renews_the_cookie() {
    let servers = three();
    let gateway = Gateway::start(&to(&servers, "retry = { on = [\"503\"] }"));
    let (cookie, name) = first(&gateway);
    let response = with(&gateway, &cookie, "/fail").expect(503);
    assert!(response.text() != name);
    assert!(cookie_of(&response).is_some_and(|renewed| renewed != cookie));
}

/// Gateways of a fleet, and a gateway that was restarted.
#[test]
fn gateways_with_one_secret_agree() {
    let servers = three();
    let own = to(&servers, "").replace("\"route\" }", "\"route\", secret_env = \"STICKY\" }");
    // Counters are in memory: the secret of the store holds for cookies all the same.
    let of_store = format!("{}\n[store]\nsecret = \"${{STICKY}}\"\n", to(&servers, ""));
    for config in [own, of_store] {
        let start = |secret: &str| Gateway::start_in(&config, &[], &[("STICKY", secret)]);
        let (one, other) = (start("0123456789abcdef"), start("0123456789abcdef"));
        let stranger = start("another secret of a gateway");
        for _ in 0..6 {
            let (cookie, name) = first(&one);
            let response = with(&other, &cookie, "/").expect(200);
            assert_eq!((response.text(), cookie_of(&response)), (name, None));
            assert!(cookie_of(&with(&stranger, &cookie, "/")).is_some(), "it does not know the cookie");
        }
    }
}

#[test]
fn a_reload_keeps_clients_at_their_servers() {
    let servers = three();
    let gateway = Gateway::start(&to(&servers, ""));
    let clients: BTreeMap<_, _> = (0..6).map(|_| first(&gateway)).collect();
    let [a, b, c] = servers;
    let reversed = [c, b, a];
    gateway.reload(&to(&reversed, "connect_timeout = \"3s\""), "connect_timeout");
    for (cookie, name) in clients {
        let response = with(&gateway, &cookie, "/").expect(200);
        assert_eq!((response.text(), cookie_of(&response)), (name, None));
    }
}
