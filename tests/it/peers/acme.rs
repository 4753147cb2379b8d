//! Certificates from Pebble, the authority of Let's Encrypt for tests: it looks at challenges by its own clients, it
//! verifies each signature, and it rejects a fifth of all nonces.

use std::net::SocketAddr;
use std::path::Path;

use rustix::process::Signal;

use crate::harness::any_certificate::{Shown, shown};
use crate::harness::api::api;
use crate::harness::{
    Backend, Gateway, Pebble, PebbleOptions, Redis, eventually, everything_to, free_address, tools,
};

/// A fifth of the nonces are rejected, and each second authorization is used again.
const FAULTS: &[(&str, &str)] = &[("PEBBLE_WFE_NONCEREJECT", "20"), ("PEBBLE_AUTHZREUSE", "50")];
const ALWAYS_REUSED: &[(&str, &str)] = &[("PEBBLE_WFE_NONCEREJECT", "20"), ("PEBBLE_AUTHZREUSE", "100")];
const SECRET: &str = "secret = \"0123456789abcdef0123456789abcdef\"\n";

/// A gateway with both kinds of listeners at these addresses.
fn gateway(toml: &Toml<'_>) -> Gateway {
    let Toml { pebble, folder, names, addresses: [http, tls], acme, rest } = toml;
    let rest = format!(
        "[server]\nworkers = 2\nlisten = [{{ address = \"{http}\", tls = false }}, \"{tls}\"]\n[[server.tls]]\nacme = {names:?}\n\
         [acme]\nstate = \"{}\"\nagree_tos = true\nemail = \"admin@example.com\"\n{acme}{}[admin]\nlisten = \"127.0.0.1:0\"\n{rest}",
        folder.join("state").display(),
        pebble.lines(),
    );
    Gateway::start(&everything_to(&Backend::ok(), &rest))
}

struct Toml<'a> {
    pebble: &'a Pebble,
    folder: &'a Path,
    names: &'a [&'a str],
    /// Of HTTP, and of TLS.
    addresses: [SocketAddr; 2],
    /// Further lines of `[acme]`.
    acme: &'a str,
    rest: &'a str,
}

/// What Pebble has signed is shown.
fn wait_until_issued(address: SocketAddr, name: &str) -> Shown {
    eventually("Pebble's certificate", || {
        shown(address, name, &["http/1.1"]).ok().filter(|shown| shown.issuer.starts_with("Pebble"))
    })
}

/// curl takes the chain for good, with Pebble's root alone.
fn is_trusted(pebble: &Pebble, address: SocketAddr, name: &str) {
    let (resolve, url) = (
        format!("{name}:{}:{}", address.port(), address.ip()),
        format!("https://{name}:{}/", address.port()),
    );
    let mut curl = tools::needed("curl");
    curl.args(["-sS", "-o", "/dev/null", "-w", "%{http_code}", "--resolve", &resolve, "--cacert"])
        .arg(pebble.root());
    // The backend has ended, so that the gateway itself answers.
    let output = curl.arg(&url).output().expect("curl runs");
    assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
}

fn start(names: &[&str], acme: &str, environment: &'static [(&'static str, &'static str)]) {
    let (folder, addresses) = (tempfile::tempdir().unwrap(), [free_address(), free_address()]);
    let [http_port, tls_port] = addresses.map(|address| address.port());
    let pebble =
        Pebble::start(&PebbleOptions { http_port, tls_port, environment, ..PebbleOptions::default() });
    let toml = Toml { pebble: &pebble, folder: folder.path(), names, addresses, acme, rest: "" };
    let gateway = gateway(&toml);
    for name in names {
        let issued = wait_until_issued(addresses[1], name);
        assert_eq!(issued.names, names);
        is_trusted(&pebble, addresses[1], name);
    }
    assert!(!gateway.stderr().contains("order failed"), "{}", gateway.stderr());
    let status = api(&gateway, "status");
    assert_eq!(status["certificates"][0]["source"], "acme");
}

#[test]
fn names_are_proven_by_tls_alpn_01_while_nonces_are_rejected() {
    start(&["a.example", "b.example", "c.example"], "", FAULTS);
}

#[test]
fn names_are_proven_by_http_01_while_nonces_are_rejected() {
    start(&["a.example", "b.example", "c.example"], "challenge = \"http-01\"\n", FAULTS);
}

/// Pebble 2.4 knows no ARI, so that the lifetime decides. Each authorization is used again: nothing is to be proven.
#[test]
fn a_short_lifetime_is_renewed_before_its_end_and_authorizations_are_used_again() {
    let (folder, addresses) = (tempfile::tempdir().unwrap(), [free_address(), free_address()]);
    let [http_port, tls_port] = addresses.map(|address| address.port());
    let options =
        PebbleOptions { http_port, tls_port, lifetime: 40, external: None, environment: ALWAYS_REUSED };
    let pebble = Pebble::start(&options);
    let toml =
        Toml { pebble: &pebble, folder: folder.path(), names: &["a.example"], addresses, acme: "", rest: "" };
    let gateway = gateway(&toml);
    let first = wait_until_issued(addresses[1], "a.example");
    let second = eventually("another certificate", || {
        let present = shown(addresses[1], "a.example", &[]).expect("each handshake succeeds");
        (present.certificate != first.certificate).then_some(present)
    });
    let now =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970").as_secs();
    assert!(i64::try_from(now).expect("small") < first.expires, "before the first has expired");
    assert!(second.expires > first.expires);
    assert_eq!(gateway.metric("tollgate_acme_orders_total", &["result=\"failed\""]), 0.0);
}

#[test]
fn an_account_needs_the_external_one_that_pebble_asks_for() {
    const KEY: &str = "zWNDZM6eQGHWpSRTPal5eIUYFTu7EajVIoguysqZ9wG44nMEtx3MUAsUDkMTQ12W";
    let addresses = [free_address(), free_address()];
    let [http_port, tls_port] = addresses.map(|address| address.port());
    let external = Some(("kid-1", KEY));
    let pebble =
        Pebble::start(&PebbleOptions { http_port, tls_port, external, lifetime: 0, environment: FAULTS });
    let refused = ["", "eab = { key_id = \"kid-1\", hmac_key = \"c2VjcmV0\" }\n"];
    for acme in refused {
        let folder = tempfile::tempdir().unwrap();
        let toml =
            Toml { pebble: &pebble, folder: folder.path(), names: &["a.example"], addresses, acme, rest: "" };
        let gateway = gateway(&toml);
        gateway.wait_for_log("order failed, 1 in a row");
        let lines = gateway.stderr();
        assert!(lines.contains("the account: ") && !lines.contains("c2VjcmV0"), "{lines}");
    }
    let folder = tempfile::tempdir().unwrap();
    let acme = format!("eab = {{ key_id = \"kid-1\", hmac_key = \"{KEY}\" }}\n");
    let toml = Toml {
        pebble: &pebble,
        folder: folder.path(),
        names: &["a.example"],
        addresses,
        acme: &acme,
        rest: "",
    };
    let _gateway = gateway(&toml);
    wait_until_issued(addresses[1], "a.example");
}

/// A name that leads elsewhere: Pebble says so, by the name or by the address that it has looked up, the self-signed
/// certificate stays, and the next order waits.
#[test]
fn an_order_that_pebble_rejects_is_told_of() {
    for challenge in ["tls-alpn-01", "http-01"] {
        let (folder, addresses) = (tempfile::tempdir().unwrap(), [free_address(), free_address()]);
        let elsewhere = free_address().port();
        let options = PebbleOptions {
            http_port: elsewhere,
            tls_port: elsewhere,
            environment: FAULTS,
            ..PebbleOptions::default()
        };
        let pebble = Pebble::start(&options);
        let acme = format!("challenge = \"{challenge}\"\n");
        let toml = Toml {
            pebble: &pebble,
            folder: folder.path(),
            names: &["a.example"],
            addresses,
            acme: &acme,
            rest: "",
        };
        let gateway = gateway(&toml);
        gateway.wait_for_log("order failed, 1 in a row");
        let status = api(&gateway, "status");
        let certificate = &status["certificates"][0];
        let error = certificate["last_error"].as_str().expect("an error");
        let place = error.contains("a.example") || error.contains(&format!("127.0.0.1:{elsewhere}"));
        assert!(error.contains("rejects the order") && place, "{error}");
        assert_eq!(certificate["source"], "self-signed");
        let wait = certificate["next_attempt"].as_f64().expect("a moment")
            - status["time"].as_f64().expect("a time");
        assert!((30.0..=76.0).contains(&wait), "{wait}");
    }
}

/// Each of two names leads to a gateway of its own, so that the one which did not order has to answer for one of them.
#[test]
fn a_fleet_of_two_answers_for_each_other() {
    for challenge in ["tls-alpn-01", "http-01"] {
        let (redis, folders) = (Redis::start(), [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()]);
        let [http, tls] = [free_address(), free_address()];
        let (http_port, tls_port) = (http.port(), tls.port());
        let options = PebbleOptions { http_port, tls_port, environment: FAULTS, ..PebbleOptions::default() };
        let pebble = Pebble::start(&options);
        pebble.resolve("b.example", "127.0.0.2");
        let (acme, rest) = (format!("challenge = \"{challenge}\"\n{SECRET}"), redis.store_table());
        let machines = ["127.0.0.1", "127.0.0.2"].map(|ip| {
            let ip: std::net::IpAddr = ip.parse().expect("an address");
            [SocketAddr::new(ip, http_port), SocketAddr::new(ip, tls_port)]
        });
        let names = ["a.example", "b.example"];
        // It looks at nothing before both gateways are there.
        pebble.signal(Signal::STOP);
        let gateways: Vec<_> = (0..2)
            .map(|index| {
                let (folder, addresses) = (folders[index].path(), machines[index]);
                gateway(&Toml { pebble: &pebble, folder, names: &names, addresses, acme: &acme, rest: &rest })
            })
            .collect();
        pebble.signal(Signal::CONT);
        let [one, other] = machines.map(|[_, tls]| wait_until_issued(tls, "a.example"));
        assert_eq!((&one.certificate, &one.names[..]), (&other.certificate, &names.map(str::to_owned)[..]));
        is_trusted(&pebble, machines[1][1], "b.example");
        let issued = |gateway: &Gateway| gateway.metric("tollgate_acme_orders_total", &["result=\"issued\""]);
        assert_eq!(gateways.iter().map(issued).sum::<f64>(), 1.0, "{challenge}: one of them ordered");
    }
}
