//! Clients that a trusted proxy names in a way that cannot be read: their address is that of the proxy, which many share.

use crate::harness::api::api;
use crate::harness::{Backend, Gateway, Next, Response, get_with};

/// Believes this machine; `x-forwarded-for: junk` names nobody.
const TRUSTING: &str = "[server]\ntrusted_proxies = [\"127.0.0.1/32\"]\n";
const JUNK: &str = "x-forwarded-for: junk\r\n";

fn ask(gateway: &Gateway, path: &str, fields: &str) -> Response {
    get_with(gateway.addr(), path, fields)
}

#[test]
fn a_route_with_deny_admits_no_client_that_is_not_identified() {
    let backend = Backend::ok();
    let routes = "[[routes]]\npath = \"/open\"\nupstream = \"api\"\n\
                  [[routes]]\npath = \"/near\"\nupstream = \"api\"\nclients = [\"127.0.0.0/8\"]\n\
                  [[routes]]\npath = \"/far\"\nupstream = \"api\"\nnot.clients = [\"192.0.2.0/24\"]\n\
                  [[routes]]\npath = \"/guarded\"\nupstream = \"api\"\ndeny = [\"203.0.113.0/24\"]\n";
    let start = |server: &str| {
        Gateway::start(&format!("{TRUSTING}{server}[upstreams]\napi = \"{}\"\n{routes}", backend.url()))
    };
    let gateway = start("");
    let statuses = |gateway: &Gateway, fields: &str| {
        ["/open", "/near", "/far", "/guarded"].map(|path| ask(gateway, path, fields).status)
    };
    assert_eq!(statuses(&gateway, JUNK), [200, 404, 404, 403]);
    assert_eq!(statuses(&gateway, "x-forwarded-for: junk, 127.0.0.1\r\n"), [200, 404, 404, 403]);
    assert_eq!(statuses(&gateway, "x-forwarded-for: 192.0.2.1\r\n"), [200, 404, 404, 200]);
    assert_eq!(statuses(&gateway, ""), [200, 200, 200, 200], "a health check of the proxy");
    let log = gateway.access_log(4);
    assert_eq!(log[3]["error"], "address_denied");
    let gateway = start("deny = [\"203.0.113.0/24\"]\n");
    assert_eq!(statuses(&gateway, JUNK), [403, 404, 404, 403], "`deny` of the server");
}

#[test]
fn automatic_bans_by_address_neither_begin_nor_refuse() {
    for key in ["\"ip\"", "\"header:x-key\"", "[\"path\", \"ip/24\"]"] {
        let gateway = Gateway::start(&format!(
            "{TRUSTING}[admin]\nlisten = \"127.0.0.1:0\"\n[upstreams]\napi = \"builtin:echo\"\n\
             [[routes]]\npath = \"/*\"\nupstream = \"api\"\nlimits = [\"x\"]\n[limits.x]\nkey = {key}\n\
             algorithm = \"token-bucket\"\nrate = \"1/366day\"\nburst = 1\n\
             ban = {{ after = 2, within = \"10min\", for = \"1h\" }}\n"
        ));
        ask(&gateway, "/", JUNK).expect(200);
        for _ in 0..4 {
            assert_eq!(ask(&gateway, "/", JUNK).expect(429).banned_for(), None, "{key}");
        }
        assert_eq!(api(&gateway, "bans")["total"], 0, "{key}");
        // The same counter, of a client that is known to have the address.
        ask(&gateway, "/", "").expect(429);
        assert!(ask(&gateway, "/", "").expect(429).banned_for().is_some(), "{key}");
        assert_eq!(ask(&gateway, "/", JUNK).expect(429).banned_for(), None, "{key}");
    }
}

#[test]
fn a_key_without_the_address_is_banned_all_the_same() {
    let gateway = Gateway::start(&format!(
        "{TRUSTING}[upstreams]\napi = \"builtin:echo\"\n[[routes]]\npath = \"/*\"\nupstream = \"api\"\nlimits = [\"x\"]\n\
         [limits.x]\nkey = \"header:x-key\"\nalgorithm = \"token-bucket\"\nrate = \"1/366day\"\nburst = 1\n\
         ban = {{ after = 1, within = \"10min\", for = \"1h\" }}\n"
    ));
    let fields = format!("{JUNK}x-key: a\r\n");
    ask(&gateway, "/", &fields).expect(200);
    assert!(ask(&gateway, "/", &fields).expect(429).banned_for().is_some());
}

#[test]
fn services_and_servers_are_told_no_address() {
    let backend = Backend::ok();
    let service = Backend::start(|exchange| {
        exchange.write("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
        Next::KeepAlive
    });
    let start = |source: &str| {
        Gateway::start(&format!(
            "{TRUSTING}client_ip = \"{source}\"\n[upstreams]\napi = \"{}\"\n\
             [auth.door]\ntype = \"forward\"\nurl = \"{}/check\"\n\
             [[routes]]\npath = \"/*\"\nupstream = \"api\"\nauth = \"door\"\n\
             set_request_headers = {{ x-client = \"{{client}}\" }}\n",
            backend.url(),
            service.url()
        ))
    };
    for source in ["x-forwarded-for", "header:cf-connecting-ip"] {
        let gateway = start(source);
        for (value, named) in [("junk", false), ("192.0.2.1", true)] {
            let name = source.trim_start_matches("header:");
            ask(&gateway, "/", &format!("{name}: {value}\r\nx-real-ip: 6.6.6.6\r\n")).expect(200);
            let told = service.latest();
            let client = named.then_some("192.0.2.1");
            for field in ["x-forwarded-for", "x-real-ip"] {
                assert_eq!(told.header(field).as_deref(), client, "{field} of {value}");
            }
            let sent = backend.latest();
            assert_eq!(sent.header("x-real-ip").as_deref(), Some(client.unwrap_or("unknown")));
            assert_eq!(sent.header("x-client").unwrap_or_default(), client.unwrap_or_default());
            let list = match (source, client) {
                ("x-forwarded-for", _) => format!("{value}, 127.0.0.1"),
                (_, client) => format!("{}, 127.0.0.1", client.unwrap_or("unknown")),
            };
            assert_eq!(sent.header("x-forwarded-for").as_deref(), Some(&*list));
        }
    }
}

/// A proxy that adds a line leaves those of the client standing before it.
#[test]
fn of_several_lines_of_a_named_header_the_last_counts() {
    let backend = Backend::ok();
    let gateway = Gateway::start(&format!(
        "{TRUSTING}client_ip = \"header:x-real-ip\"\ndeny = [\"192.0.2.66\"]\n[upstreams]\napi = \"{}\"\n\
         [[routes]]\npath = \"/*\"\nupstream = \"api\"\n",
        backend.url()
    ));
    for (lines, status) in [
        ("x-real-ip: junk\r\nx-real-ip: 192.0.2.66\r\n", 403),
        ("x-real-ip: 192.0.2.1\r\nx-real-ip: 192.0.2.66\r\n", 403),
        ("x-real-ip: 192.0.2.66\r\nx-real-ip: 192.0.2.1\r\n", 200),
        ("x-real-ip: 192.0.2.1\r\nx-real-ip: junk\r\n", 403),
    ] {
        assert_eq!(ask(&gateway, "/", lines).status, status, "{lines}");
    }
}
