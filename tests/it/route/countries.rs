//! `geo` of `[server]`: countries and autonomous systems as condition, key and text.

use std::path::{Path, PathBuf};
use std::process::Command;

use proptest::prelude::*;
use serde_json::{Value, json};

use crate::harness::api::good;
use crate::harness::mmdb::{database, endless};
use crate::harness::{Backend, Gateway, binary, get_with};

/// As MaxMind, and as IPinfo, write records.
fn records() -> Vec<(&'static str, Value)> {
    let maxmind = |code: &str| json!({ "country": { "iso_code": code, "geoname_id": 1 }, "continent": { "code": "EU" } });
    vec![
        ("192.0.2.0/25", maxmind("DE")),
        ("192.0.2.128/26", maxmind("AT")),
        (
            "198.51.100.0/24",
            json!({ "country": "Switzerland", "country_code": "CH", "asn": "AS64501", "as_name": "x" }),
        ),
        ("2001:db8:1::/48", maxmind("DE")),
        // Without a country, as that of an anonymous proxy, and with a number in its place.
        ("203.0.113.0/25", json!({ "traits": { "names": ["a", "b"] } })),
        ("203.0.113.128/25", json!({ "country": 7 })),
    ]
}

fn systems() -> Vec<(&'static str, Value)> {
    let system = |number: u32| json!({ "autonomous_system_number": number, "autonomous_system_organization": "Example" });
    vec![
        ("192.0.2.0/24", system(64500)),
        ("198.51.100.0/24", system(64502)),
        ("2001:db8::/32", system(64500)),
    ]
}

/// The files, and the value of `geo.file`.
fn files(folder: &Path) -> String {
    std::fs::write(folder.join("country.mmdb"), database(&records())).expect("written");
    std::fs::write(folder.join("asn.mmdb"), database(&systems())).expect("written");
    format!("[\"{0}/country.mmdb\", \"{0}/asn.mmdb\"]", folder.display())
}

fn toml(backend: &Backend, geo: &str, rest: &str) -> String {
    format!(
        "[server]\ntrusted_proxies = [\"127.0.0.0/8\"]\ngeo = {{ file = {geo} }}\n[admin]\nlisten = \"127.0.0.1:0\"\n\
         [upstreams]\napi = \"{}\"\n{rest}",
        backend.url()
    )
}

fn as_client(gateway: &Gateway, client: &str, path: &str) -> crate::harness::Response {
    get_with(gateway.addr(), path, &format!("x-forwarded-for: {client}\r\n"))
}

/// Clients, each with its country and its autonomous system.
const CLIENTS: [(&str, &str, &str); 8] = [
    ("192.0.2.1", "DE", "AS64500"),
    ("::ffff:192.0.2.1", "DE", "AS64500"),
    ("192.0.2.129", "AT", "AS64500"),
    ("192.0.2.200", "", "AS64500"),
    ("198.51.100.9", "CH", "AS64501"),
    ("2001:db8:1::5", "DE", "AS64500"),
    ("203.0.113.5", "", ""),
    ("203.0.113.200", "", ""),
];

#[test]
fn routes_texts_and_headers_know_the_country() {
    let (backend, folder) = (Backend::ok(), tempfile::tempdir().expect("a directory"));
    let routes = "[[routes]]\nname = \"german\"\npath = \"/*\"\ncountry = [\"DE\", \"AT\"]\nupstream = \"api\"\n\
        set_request_headers = { x-country = \"{country}\" }\n\
        [[routes]]\nname = \"swiss\"\npath = \"/*\"\ncountry = [\"CH\"]\n\
        respond = { status = 451, body = \"not in {country}\" }\n\
        [[routes]]\nname = \"known\"\npath = \"/known/*\"\nupstream = \"api\"\nnot = { country = [\"CH\"] }\n\
        [[routes]]\nname = \"rest\"\npath = \"/*\"\nrespond = { status = 403, body = \"<{country}>\" }\n";
    let gateway = Gateway::start(&toml(&backend, &files(folder.path()), routes));
    for (client, country, _) in CLIENTS {
        let answer = as_client(&gateway, client, "/");
        match country {
            "DE" | "AT" => {
                answer.expect(200);
                assert_eq!(backend.latest().header("x-country").as_deref(), Some(country), "{client}");
            }
            "CH" => assert_eq!((answer.status, &*answer.text()), (451, "not in CH"), "{client}"),
            _ => assert_eq!((answer.status, &*answer.text()), (403, "<>"), "{client}"),
        }
    }
    as_client(&gateway, "203.0.113.5", "/known/x").expect(200);
    as_client(&gateway, "198.51.100.9", "/known/x").expect(451);
    // One connection carries clients of two countries with equal heads but for the address, and none.
    let mut client = crate::harness::Client::connect(gateway.addr());
    for (address, status) in [("192.0.2.1", 200), ("203.0.113.1", 403), ("192.0.2.1", 200)] {
        client.get("/", &format!("x-forwarded-for: {address}\r\n")).expect(status);
    }
    // A client that a proxy does not name is in no country, wherever the proxy is.
    let bad = get_with(gateway.addr(), "/", "x-forwarded-for: 192.0.2.1, unknown\r\n");
    assert_eq!((bad.status, &*bad.text()), (403, "<>"));
}

#[test]
fn limits_count_by_country_and_autonomous_system() {
    let (backend, folder) = (Backend::ok(), tempfile::tempdir().expect("a directory"));
    let limits = "[limits.country]\nalgorithm = \"fixed-window\"\nkey = \"country\"\nrate = \"3/day\"\n\
        [limits.asn]\nalgorithm = \"fixed-window\"\nkey = \"asn\"\nrate = \"2/day\"\nmissing = \"shared\"\n\
        [limits.both]\nalgorithm = \"fixed-window\"\nkey = [\"country\", \"path\"]\nrate = \"1/day\"\nmissing = \"skip\"\n\
        [[routes]]\nname = \"country\"\npath = \"/country\"\nupstream = \"api\"\nlimits = [\"country\"]\n\
        [[routes]]\nname = \"asn\"\npath = \"/asn\"\nupstream = \"api\"\nlimits = [\"asn\"]\n\
        [[routes]]\nname = \"both\"\npath = \"/both/*\"\nupstream = \"api\"\nlimits = [\"both\"]\n";
    let gateway = Gateway::start(&toml(&backend, &files(folder.path()), limits));
    let passed = |clients: &[&str], path: &str| {
        let all = (0..9).map(|turn| as_client(&gateway, clients[turn % clients.len()], path).status);
        all.filter(|status| *status == 200).count()
    };
    assert_eq!(passed(&["192.0.2.1", "2001:db8:1::7"], "/country"), 3);
    assert_eq!(passed(&["192.0.2.130"], "/country"), 3);
    // Of an unknown country: by address.
    assert_eq!(passed(&["203.0.113.1", "203.0.113.2"], "/country"), 6);
    assert_eq!(passed(&["192.0.2.1", "192.0.2.200", "2001:db8:9::1"], "/asn"), 2);
    assert_eq!(passed(&["198.51.100.1"], "/asn"), 2);
    assert_eq!(passed(&["203.0.113.1", "203.0.113.2"], "/asn"), 2);
    assert_eq!((passed(&["192.0.2.1"], "/both/a"), passed(&["203.0.113.1"], "/both/a")), (1, 9));
    let key = good(&gateway, "GET limits/country/keys/DE", "");
    assert_eq!((&key["policies"][0]["used"], &key["key"][0]), (&json!(3), &json!("DE")), "{key}");
    let keys = good(&gateway, "GET limits/asn/keys?by=requests", "");
    assert!(keys["keys"].as_array().expect("a list").iter().any(|key| key["key"][0] == "AS64501"), "{keys}");
    let asked = json!({ "url": "/country", "ip": "198.51.100.9" });
    let explained = good(&gateway, "POST explain", &asked.to_string());
    assert!(explained.to_string().contains("CH"), "{explained}");
}

/// A reload reads the files again; one that is damaged leaves the plan as it is.
#[test]
fn a_reload_reads_the_files_again() {
    let (backend, folder) = (Backend::ok(), tempfile::tempdir().expect("a directory"));
    let routes =
        "[[routes]]\nname = \"all\"\npath = \"/*\"\nrespond = { status = 200, body = \"{country}\" }\n";
    let toml = toml(&backend, &files(folder.path()), routes);
    let gateway = Gateway::start(&toml);
    assert_eq!(as_client(&gateway, "192.0.2.1", "/").text(), "DE");
    let france = [("192.0.2.0/24", json!({ "country": { "iso_code": "FR" } }))];
    std::fs::write(folder.path().join("country.mmdb"), database(&france)).expect("written");
    gateway.reload(&toml, "geo changed");
    assert_eq!(as_client(&gateway, "192.0.2.1", "/").text(), "FR");
    std::fs::write(folder.path().join("country.mmdb"), b"not a database").expect("written");
    gateway.reload(&toml, "is no file in MaxMind's format");
    std::fs::remove_file(folder.path().join("country.mmdb")).expect("it is there");
    gateway.reload(&toml, "cannot read");
    assert_eq!(as_client(&gateway, "192.0.2.1", "/").text(), "FR");
}

/// What `tollgate explain` says without a running gateway.
#[test]
fn explain_tells_the_country() {
    let (backend, folder) = (Backend::ok(), tempfile::tempdir().expect("a directory"));
    let routes = "[[routes]]\nname = \"german\"\npath = \"/*\"\ncountry = [\"DE\"]\nupstream = \"api\"\n\
        [[routes]]\nname = \"rest\"\npath = \"/*\"\nnot = { country = [\"AT\"] }\nrespond = { status = 403 }\n";
    std::fs::write(folder.path().join("gateway.toml"), toml(&backend, &files(folder.path()), routes))
        .expect("written");
    let explain = |client: &str| {
        let mut command = Command::new(binary());
        command.args(["explain", "GET", "/", "--ip", client]).current_dir(folder.path()).env("NO_COLOR", "1");
        String::from_utf8(command.output().expect("the binary starts").stdout).expect("text")
    };
    let german = explain("192.0.2.1");
    assert!(german.contains("the client is in DE"), "{german}");
    let swiss = explain("198.51.100.9");
    assert!(swiss.contains("the client is in CH, which is none of its countries"), "{swiss}");
    let austrian = explain("192.0.2.130");
    assert!(austrian.contains("`not` excludes the country AT"), "{austrian}");
    let unknown = explain("203.0.113.1");
    assert!(unknown.contains("the country of 203.0.113.1 is unknown"), "{unknown}");
}

/// Whether the file is admitted, or refused with a sentence: it is read without a panic in either case.
fn is_read(folder: &Path, bytes: &[u8]) -> bool {
    let file: PathBuf = folder.join("country.mmdb");
    std::fs::write(&file, bytes).expect("written");
    let toml = format!(
        "[server]\ngeo = {{ file = \"{}\" }}\n[[routes]]\npath = \"/*\"\nrespond = {{ status = 200, body = \"{{country}}\" }}\n",
        file.display()
    );
    match crate::harness::config::parse(&toml) {
        Ok(loaded) => {
            for (client, ..) in CLIENTS {
                let _ = loaded.plan.server.client.client(client.parse().expect("an address"));
            }
            true
        }
        Err(report) => {
            assert!(report.to_string().contains("country.mmdb"), "{report}");
            false
        }
    }
}

/// Cut at every byte, the file is refused: the metadata stands at its end.
#[test]
fn a_file_that_is_cut_is_refused() {
    let folder = tempfile::tempdir().expect("a directory");
    let whole = database(&records());
    assert!(is_read(folder.path(), &whole));
    for end in (0..whole.len()).step_by(7).chain(whole.len() - 200..whole.len()) {
        assert!(!is_read(folder.path(), &whole[..end]), "{end}");
    }
}

/// A tree that is none is refused at once, whether its networks have data or not.
#[test]
fn a_file_without_an_end_is_refused() {
    let folder = tempfile::tempdir().expect("a directory");
    assert!(!is_read(folder.path(), &endless(true)));
    assert!(!is_read(folder.path(), &endless(false)));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Flipped bytes give other countries or a refusal, and no panic.
    #[test]
    fn flipped_bytes_do_no_harm(flips in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 1..6)) {
        let folder = tempfile::tempdir().expect("a directory");
        let mut bytes = database(&records());
        for (place, byte) in flips {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        is_read(folder.path(), &bytes);
    }
}
