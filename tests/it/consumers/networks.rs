//! `allow` and `deny`: clients that are refused by their address, before anything is charged.

use rustix::process::Signal;

use super::{CSV, Files, key};
use crate::harness::{
    AllVersions, Backend, Body, Client, Gateway, eventually, everything_to, get_with, send,
};

/// Believes the client that a request from this machine names.
const TRUSTING: &str = "[server]\ntrusted_proxies = [\"127.0.0.1/32\"]\n";

fn status(gateway: &Gateway, client: &str, path: &str) -> u16 {
    get_with(gateway.addr(), path, &format!("x-forwarded-for: {client}\r\n")).status
}

#[test]
fn a_client_passes_the_rules_of_the_server_and_of_its_route() {
    let backend = Backend::ok();
    let route = |path: &str, rules: &str| {
        format!("[[routes]]\nname = \"{path}\"\npath = \"{path}\"\nupstream = \"api\"\n{rules}\n")
    };
    let rules = "allow = [\"10.0.0.0/8\", \"192.0.2.1\", \"2001:db8::/32\"]\ndeny = [\"10.1.0.0/16\", \"2001:db8:bad::/48\"]\n";
    let gateway = Gateway::start(&format!(
        "{TRUSTING}{rules}[upstreams]\napi = \"{}\"\n{}{}{}{}",
        backend.url(),
        route("/open", ""),
        route("/office", "allow = [\"10.2.0.0/16\", \"203.0.113.0/24\"]\ndeny = [\"10.2.3.0/24\"]"),
        route("/others", "deny = [\"10.2.0.0/16\"]"),
        route("/empty", "deny = []"),
    ));
    for (client, open, office, others) in [
        ("10.2.0.1", 200, 200, 403),
        ("10.2.3.4", 200, 403, 403),
        ("10.3.0.1", 200, 403, 200),
        ("10.1.255.255", 403, 403, 403),
        ("192.0.2.1", 200, 403, 200),
        ("192.0.2.2", 403, 403, 403),
        // The route names it, the server does not: both must.
        ("203.0.113.1", 403, 403, 403),
        ("2001:db8:1::1", 200, 403, 200),
        ("2001:db8:bad:1::1", 403, 403, 403),
        ("2001:db9::1", 403, 403, 403),
        // IPv4 in IPv6 is IPv4.
        ("::ffff:10.2.0.1", 200, 200, 403),
        ("::ffff:10.1.0.1", 403, 403, 403),
        ("[::ffff:10.2.3.4]:1234", 200, 403, 403),
    ] {
        let told = ["/open", "/office", "/others"].map(|path| status(&gateway, client, path));
        assert_eq!(told, [open, office, others], "{client}");
        assert_eq!(status(&gateway, client, "/empty"), open, "{client}");
    }
    assert_eq!(status(&gateway, "192.0.2.2", "/none"), 404, "a request without a route has no rules");
}

#[test]
fn a_refusal_says_nothing_of_the_rules() {
    let backend = Backend::ok();
    let gateway = AllVersions::start(&format!(
        "{TRUSTING}deny = [\"192.0.2.0/24\"]\nallow = [\"0.0.0.0/0\"]\n{}",
        everything_to(&backend, "")
    ));
    // One connection is one worker, whose log is in order.
    let mut client = Client::connect(gateway.addr());
    let mut refused =
        |address: &str| client.get("/", &format!("x-forwarded-for: {address}\r\n")).expect(403).text();
    let body = refused("192.0.2.1");
    assert_eq!(
        body,
        "{\"type\":\"about:blank\",\"title\":\"Forbidden\",\"status\":403,\
         \"detail\":\"requests from this address are not admitted\",\"error\":\"Forbidden\"}"
    );
    assert_eq!(refused("2001:db8::1"), body, "which of the two is not told");
    let log = gateway.access_log(2);
    let told: Vec<_> = log.iter().map(|record| (&record["status"], &record["error"])).collect();
    let errors = ["address_denied", "address_not_allowed"].map(serde_json::Value::from);
    assert_eq!(told, [(&403.into(), &errors[0]), (&403.into(), &errors[1])]);
    assert_eq!((&log[0]["client"], &log[0]["route"]), (&"192.0.2.1".into(), &"all".into()));
    for client in gateway.clients() {
        let call = http::Request::post("http://test/a.B/C")
            .header("content-type", "application/grpc")
            .header("x-forwarded-for", "192.0.2.1");
        let refused = client.exchange(call.body(()).expect("a request"), Body::default()).expect("an answer");
        assert_eq!((refused.status, refused.header("grpc-status")), (200, Some("7")));
    }
    assert_eq!(backend.count(), 0);
}

#[test]
fn a_client_that_is_not_identified_is_in_no_allowed_network() {
    let backend = Backend::ok();
    let all = "allow = [\"0.0.0.0/0\", \"::/0\"]";
    let gateway = Gateway::start(&format!("{TRUSTING}{all}\n{}", everything_to(&backend, "")));
    assert_eq!(status(&gateway, "192.0.2.1", "/"), 200);
    for garbage in ["unknown", "192.0.2.1, garbage", "\"192.0.2.1", "10.0.0.256"] {
        assert_eq!(status(&gateway, garbage, "/"), 403, "{garbage}");
    }
    // The proxy itself is identified.
    gateway.get("/").expect(200);
    // Denied by the address of the proxy, which is all that is known.
    let toml = format!("{TRUSTING}deny = [\"127.0.0.1\"]\n{}", everything_to(&backend, ""));
    let gateway = Gateway::start(&toml);
    assert_eq!(status(&gateway, "garbage", "/"), 403);
    assert_eq!(status(&gateway, "192.0.2.1", "/"), 200);
}

#[test]
fn networks_may_stand_in_files() {
    let (backend, files) = (Backend::ok(), Files::new());
    let list = "\u{feff}# from the firewall\r\n\r\n192.0.2.0/24 # a range\n  198.51.100.7\t\n2001:db8::/32\n#203.0.113.1\n::ffff:203.0.113.9";
    files.write("blocked.txt", list);
    let blocked = files.path("blocked.txt").display().to_string();
    let rules = format!("deny = [\"10.0.0.1\", \"file:{blocked}\"]");
    let gateway = Gateway::start(&format!("{TRUSTING}{}", everything_to(&backend, &rules)));
    for denied in ["10.0.0.1", "192.0.2.255", "198.51.100.7", "2001:db8::1", "203.0.113.9"] {
        assert_eq!(status(&gateway, denied, "/"), 403, "{denied}");
    }
    for other in ["10.0.0.2", "192.0.3.0", "198.51.100.8", "2001:db9::1", "203.0.113.1"] {
        assert_eq!(status(&gateway, other, "/"), 200, "{other}");
    }
    let toml = format!("{TRUSTING}{}", everything_to(&backend, &rules.replace("deny", "allow")));
    let gateway = Gateway::start(&toml);
    assert_eq!((status(&gateway, "192.0.2.9", "/"), status(&gateway, "192.0.3.9", "/")), (200, 403));
}

#[test]
fn a_relative_path_begins_at_the_configuration() {
    let files = Files::with_consumers(CSV);
    files.write("blocked.txt", "192.0.2.0/24\n198.51.100.0/24\n");
    let toml = "[upstreams]\ndemo = \"builtin:echo\"\n\
        [auth.keys]\ntype = \"api-key\"\nfrom = \"bearer\"\nfile = \"consumers.csv\"\n\
        [[routes]]\npath = \"/*\"\nupstream = \"demo\"\nauth = \"keys\"\ndeny = [\"file:blocked.txt\", \"10.0.0.1\"]\n";
    let (status, printed) = files.check(toml);
    assert_eq!(status, 0, "{printed}");
    assert!(printed.contains("Auth `keys`: API keys in `bearer`, 4 keys of 3 consumers."), "{printed}");
    assert!(printed.contains("  clients in 3 networks get 403\n"), "{printed}");
    assert!(!printed.contains("warning"), "{printed}");
}

#[test]
fn a_denied_client_is_refused_before_anything_else_and_charged_nothing() {
    let (backend, files) = (Backend::ok(), Files::with_consumers(CSV));
    let limits = "[limits.all]\nalgorithm = \"fixed-window\"\nalign = \"first-request\"\nkey = \"global\"\nrate = \"1/day\"\n\
        [limits.wrong]\nalgorithm = \"fixed-window\"\nalign = \"first-request\"\nkey = \"ip\"\nrate = \"1/day\"\n";
    let rest = format!(
        "auth = \"keys\"\nlimits = [\"all\"]\ndeny = [\"192.0.2.0/24\"]\n\
         cors = {{ origins = [\"https://app.example.com\"] }}\n\
         [[routes]]\npath = \"/tls\"\nname = \"tls\"\nupstream = \"api\"\nredirect = \"https\"\ndeny = [\"192.0.2.0/24\"]\n\
         [admin]\nlisten = \"127.0.0.1:0\"\n{limits}{}",
        files.auth("keys", "header:x-api-key", "failures = \"wrong\"")
    );
    let authority = crate::harness::Authority::new();
    authority.certify("a", &["a.test"]);
    let listen = "listen = [{ address = \"127.0.0.1:0\", tls = false }, \"127.0.0.1:0\"]\nworkers = 2\n";
    let toml = format!("{TRUSTING}{listen}{}{}", everything_to(&backend, &rest), authority.server("a"));
    let gateway = Gateway::start(&toml);
    let denied = "x-forwarded-for: 192.0.2.1\r\n";
    let admitted = "x-forwarded-for: 198.51.100.1\r\n";
    for _ in 0..3 {
        for fields in [String::new(), key("key-ada-1"), key("wrong")] {
            get_with(gateway.addr(), "/", &format!("{denied}{fields}")).expect(403);
        }
        let preflight = |client: &str| {
            let ask = "origin: https://app.example.com\r\naccess-control-request-method: GET\r\n";
            send(gateway.addr(), format!("OPTIONS / HTTP/1.1\r\nhost: test\r\n{ask}{client}\r\n"))
        };
        preflight(denied).expect(403);
        preflight(admitted).expect(204);
        get_with(gateway.addr(), "/tls", denied).expect(403);
        get_with(gateway.addr(), "/tls", admitted).expect(308);
    }
    let zero = |name: &str, labels: &[&str]| assert!(gateway.metric(name, labels) < 0.5, "{name} {labels:?}");
    for limit in ["limit=\"all\"", "limit=\"wrong\""] {
        zero("tollgate_decisions_total", &[limit]);
    }
    let forbidden = gateway.metric("tollgate_decisions_total", &["limit=\"\"", "decision=\"forbidden\""]);
    assert!((forbidden - 15.0).abs() < 0.5, "{forbidden}");
    zero("tollgate_auth_total", &[]);
    assert_eq!(backend.count(), 0);
    let status = |fields: &str| get_with(gateway.addr(), "/", &format!("{admitted}{fields}")).status;
    assert_eq!([status(&key("wrong")), status(&key("wrong"))], [401, 429]);
    assert_eq!([status(&key("key-ada-1")), status(&key("key-ada-1"))], [200, 429]);
    // A script may read that it is refused.
    let origin = "origin: https://app.example.com\r\n";
    let refused = get_with(gateway.addr(), "/", &format!("{denied}{origin}")).expect(403);
    assert_eq!(refused.header("access-control-allow-origin"), Some("https://app.example.com"));
}

#[test]
fn a_bad_file_of_networks_keeps_the_old_one_and_names_its_line() {
    let (backend, files) = (Backend::ok(), Files::new());
    files.write("blocked.txt", "192.0.2.1\n");
    let blocked = files.path("blocked.txt").display().to_string();
    let rules = format!("deny = [\"file:{blocked}\"]\n[admin]\nlisten = \"127.0.0.1:0\"\n");
    let gateway = Gateway::start(&format!("{TRUSTING}{}", everything_to(&backend, &rules)));
    let reloads =
        |result: &str| gateway.metric("tollgate_config_reloads_total", &[&format!("result=\"{result}\"")]);
    let hang_up = |result: &str| {
        let before = reloads(result);
        gateway.signal(Signal::HUP);
        eventually("a reload", || (reloads(result) > before).then_some(()));
    };
    assert_eq!(status(&gateway, "192.0.2.1", "/"), 403);
    files.write("blocked.txt", "192.0.2.2\nnot a network\n\n10.0.0.0/33\n");
    hang_up("failure");
    // Without the text of the line: by mistake the file may be one of secrets.
    for line in [2, 4] {
        let fault = format!("error: this line is neither an address nor a network\n --> {blocked}:{line}\n");
        gateway.wait_for_log(&fault);
    }
    let status_text = gateway.admin("/api/v1/status").text();
    assert!(status_text.contains("blocked.txt:2: "), "{status_text}");
    assert_eq!((status(&gateway, "192.0.2.1", "/"), status(&gateway, "192.0.2.2", "/")), (403, 200));
    files.write("blocked.txt", "192.0.2.2\n");
    hang_up("success");
    assert_eq!((status(&gateway, "192.0.2.1", "/"), status(&gateway, "192.0.2.2", "/")), (200, 403));
    std::fs::remove_file(files.path("blocked.txt")).expect("it can be removed");
    hang_up("failure");
    assert_eq!(status(&gateway, "192.0.2.2", "/"), 403);
}

#[test]
fn with_watch_a_saved_file_of_networks_is_enough() {
    let (backend, files) = (Backend::ok(), Files::new());
    files.write("blocked.txt", "192.0.2.1\n");
    let rules = format!("deny = [\"file:{}\"]", files.path("blocked.txt").display());
    let toml = format!("{TRUSTING}{}", everything_to(&backend, &rules));
    let gateway = Gateway::start_with(&toml, &["--watch"]);
    assert_eq!((status(&gateway, "192.0.2.1", "/"), status(&gateway, "192.0.2.2", "/")), (403, 200));
    files.write("blocked.txt", "192.0.2.2\n");
    eventually("the new file", || (status(&gateway, "192.0.2.2", "/") == 403).then_some(()));
    assert_eq!(status(&gateway, "192.0.2.1", "/"), 200);
}

#[test]
fn check_reports_faults_and_likely_mistakes() {
    let files = Files::with_consumers(CSV);
    files.write("blocked.txt", "10.0.0.1/8\n192.0.2.0/24\n");
    let toml = |rules: &str| {
        format!(
            "[upstreams]\ndemo = \"builtin:echo\"\n\
             [limits.a]\nalgorithm = \"token-bucket\"\nkey = \"header:x-api-key\"\nmissing = \"deny\"\nrate = \"10/s\"\n\
             exempt = [\"ip:10.2.0.0/16\"]\n\
             [limits.all]\nalgorithm = \"token-bucket\"\nkey = \"ip\"\nrate = \"10/s\"\n\
             [[routes]]\npath = \"/*\"\nupstream = \"demo\"\nlimits = [\"a\", \"all\"]\n{rules}\n"
        )
    };
    let (status, printed) = files.check(&toml("deny = [\"file:blocked.txt\"]"));
    assert_eq!(status, 0, "{printed}");
    for words in [
        "warning: limit `a` refuses requests without `header:x-api-key`, but admits any client that sends one: this is not an allow list\n",
        "warning: `ip:10.2.0.0/16` is exempt from limit `a`, but `deny` refuses some of its requests to route `/*`\n",
        "help: `deny` wins: leave the network out of one of the two",
        "blocked.txt:1\n",
    ] {
        assert!(printed.contains(words), "{words}\n--- is missing in\n{printed}");
    }
    assert_eq!(printed.matches("warning: ").count(), 3, "{printed}");
    let (status, printed) = files.check(&toml("allow = []"));
    assert_eq!(status, 2);
    assert!(printed.contains("`allow` names no network") || printed.contains("empty"), "{printed}");
    let (status, printed) =
        files.check(&toml("allow = [\"10.0.0.0/40\", \"host.example\", \"file:none.txt\"]"));
    assert_eq!((status, printed.matches("error: ").count()), (2, 3), "{printed}");
    for words in [
        "`10.0.0.0/40` is neither an address nor a network",
        "`host.example` is neither an address nor a network",
        "cannot read `file:none.txt`",
    ] {
        assert!(printed.contains(words), "{words}\n--- is missing in\n{printed}");
    }
}
