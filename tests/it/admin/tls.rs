//! `[admin] tls`: the admin listener behind TLS, and the commands that ask it.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Command;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, KeyPair};
use rustls::{ClientConfig, HandshakeKind};
use tempfile::TempDir;

use crate::harness::shown::common_name;
use crate::harness::{Authority, Client, Gateway, Response, TIMEOUT, binary};

const ROUTES: &str =
    "[upstreams]\ndemo = \"builtin:echo\"\n[[routes]]\nname = \"all\"\npath = \"/*\"\nupstream = \"demo\"\n";
const NAMES: [&str; 2] = ["localhost", "127.0.0.1"];

/// The lines of `[admin]` for what [`Authority::certify`] wrote.
fn tls(authority: &Authority, file: &str) -> String {
    let (cert, key) = (authority.path(&format!("{file}.pem")), authority.path(&format!("{file}.key")));
    format!("tls.cert = \"{}\"\ntls.key = \"{}\"\n", cert.display(), key.display())
}

fn file(admin: &str) -> String {
    format!("{ROUTES}[admin]\nlisten = \"127.0.0.1:0\"\n{admin}")
}

fn start(authority: &Authority) -> Gateway {
    authority.certify("admin", &NAMES);
    Gateway::start(&file(&tls(authority, "admin")))
}

fn connect(gateway: &Gateway, config: &Arc<ClientConfig>) -> Client {
    Client::connect_tls(gateway.admin_addr(), config, "localhost")
}

fn get(gateway: &Gateway, config: &Arc<ClientConfig>, path: &str, fields: &str) -> Response {
    connect(gateway, config).exchange(format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n{fields}\r\n"))
}

fn ask(gateway: &Gateway, authority: &Authority, path: &str, fields: &str) -> Response {
    get(gateway, &authority.client(), path, fields)
}

fn url(scheme: &str, gateway: &Gateway) -> String {
    format!("{scheme}://{}", gateway.admin_addr())
}

/// What a command prints: exit status, standard output, standard error.
type Told = (Option<i32>, String, String);

/// Runs a command in a folder whose `gateway.toml` is this one.
fn told(toml: &str, arguments: &[&str]) -> Told {
    let folder = TempDir::new().expect("a folder");
    std::fs::write(folder.path().join("gateway.toml"), toml).expect("it can be written");
    told_in(&folder, arguments)
}

fn told_in(folder: &TempDir, arguments: &[&str]) -> Told {
    let output = Command::new(binary()).args(arguments).current_dir(folder.path()).output();
    let output = output.expect("the binary starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

/// Each command that asks the admin listener, with a word of a good answer.
const COMMANDS: [(&[&str], &str); 4] = [
    (&["health"], ""),
    (&["top", "--once"], "tollgate "),
    (&["top", "--once", "--fleet"], "Fleet"),
    (&["explain", "--live", "GET", "/"], "verdict   admitted"),
];

#[track_caller]
fn answers(told: &Told, word: &str) {
    assert!(told.0 == Some(0) && told.1.contains(word), "{word} is missing: {told:?}");
}

#[track_caller]
fn fails(told: &Told, status: i32, words: &[&str]) {
    assert_eq!((told.0, told.1.as_str()), (Some(status), ""), "{told:?}");
    for word in words {
        assert!(told.2.contains(word), "{word} is missing in {}", told.2);
    }
}

#[test]
fn all_of_the_listener_is_answered_over_tls() {
    let authority = Authority::new();
    let gateway = start(&authority);
    gateway.wait_for_log(&format!("admin listening on https://{}/", gateway.admin_addr()));
    let metrics = ask(&gateway, &authority, "/metrics", "").expect(200);
    assert!(metrics.text().contains("tollgate_build_info"), "{}", metrics.text());
    for path in ["/healthz", "/readyz", "/", "/app.js", "/api/v1/status"] {
        ask(&gateway, &authority, path, "").expect(200);
    }
    // A browser of this machine is protected as it is without TLS.
    ask(&gateway, &authority, "/metrics", "origin: https://localhost:9900\r\n").expect(200);
    ask(&gateway, &authority, "/metrics", "origin: https://attacker.example\r\n").expect(403);
    ask(&gateway, &authority, "/metrics", "host: attacker.example\r\n").expect(403);
}

#[test]
fn only_http_1_is_offered() {
    let authority = Authority::new();
    let gateway = start(&authority);
    let config = authority.client_offering(&["h2", "http/1.1"]);
    assert_eq!(connect(&gateway, &config).tls().alpn_protocol(), Some(b"http/1.1".as_slice()));
}

#[test]
fn a_request_without_tls_is_told_so() {
    let authority = Authority::new();
    let mut gateway = start(&authority);
    let answer = gateway.admin("/metrics").expect(400);
    assert!(answer.json()["detail"].as_str().is_some_and(|detail| detail.contains("`https://`")));
    for bytes in
        [&b"\0\0\0\0"[..], b"\x16\x03\x01\0\0", b"\x16\x03\x01\xff\xff\x01\0", b"\x15\x03\x01\0\x02\x02\x28"]
    {
        let mut stream = TcpStream::connect(gateway.admin_addr()).expect("it listens");
        stream.set_read_timeout(Some(TIMEOUT)).expect("a socket option");
        stream.write_all(bytes).expect("it is taken");
        stream.shutdown(std::net::Shutdown::Write).expect("a socket");
        // An alert may come. Then the connection ends.
        let _ = stream.read_to_end(&mut Vec::new());
    }
    ask(&gateway, &authority, "/healthz", "").expect(200);
    assert!(gateway.alive() && !gateway.stderr().contains("WARN"), "{}", gateway.stderr());
}

#[test]
fn connections_without_a_handshake_lock_out_no_probe_and_are_closed() {
    let authority = Authority::new();
    let gateway = start(&authority);
    let silent: Vec<TcpStream> = (0..64)
        .map(|number| {
            let mut stream = TcpStream::connect(gateway.admin_addr()).expect("it listens");
            if number % 2 == 0 {
                stream.write_all(b"\x16\x03\x01\x02\0\x01").expect("it is taken");
            }
            stream
        })
        .collect();
    for _ in 0..70 {
        ask(&gateway, &authority, "/healthz", "").expect(200);
    }
    let few: Vec<TcpStream> =
        (0..4).map(|_| TcpStream::connect(gateway.admin_addr()).expect("it listens")).collect();
    for mut stream in silent.into_iter().chain(few) {
        stream.set_read_timeout(Some(TIMEOUT)).expect("a socket option");
        let ended = stream.read_to_end(&mut Vec::new());
        let is_reset = |error: std::io::Error| error.kind() == std::io::ErrorKind::ConnectionReset;
        assert!(ended.is_ok() || ended.is_err_and(is_reset), "a silent connection is kept");
    }
    assert!(!gateway.stderr().contains("WARN"), "{}", gateway.stderr());
}

#[test]
fn a_reload_renews_the_certificate_and_a_faulty_one_changes_nothing() {
    let authority = Authority::new();
    let gateway = start(&authority);
    let toml = file(&tls(&authority, "admin"));
    let shown = || common_name(&connect(&gateway, &authority.client()));
    assert_eq!(shown(), "admin");
    authority.certify_with("admin", &NAMES, |params| {
        params.distinguished_name.push(DnType::CommonName, "renewed");
    });
    gateway.reload(&toml, "changed: admin: certificate changed");
    assert_eq!(shown(), "renewed");
    authority.certify("other", &NAMES);
    std::fs::copy(authority.path("other.key"), authority.path("admin.key")).expect("it can be copied");
    gateway.reload(&toml, "not reloaded");
    gateway.wait_for_log("does not belong to the certificate");
    assert_eq!(shown(), "renewed");
}

#[test]
fn sessions_outlive_a_reload_that_changes_no_certificate() {
    let authority = Authority::new();
    let gateway = start(&authority);
    let config = authority.client();
    get(&gateway, &config, "/healthz", "").expect(200);
    gateway.reload(&file(&tls(&authority, "admin")), "reloaded: no changes");
    assert_eq!(connect(&gateway, &config).tls().handshake_kind(), Some(HandshakeKind::Resumed));
}

#[test]
fn a_reload_begins_and_ends_tls() {
    let authority = Authority::new();
    let gateway = start(&authority);
    gateway.reload(&file(""), "changed: admin: certificate changed");
    gateway.admin("/healthz").expect(200);
    gateway.reload(&file(&tls(&authority, "admin")), "changed: admin: certificate changed");
    gateway.admin("/healthz").expect(400);
    ask(&gateway, &authority, "/healthz", "").expect(200);
}

#[test]
fn tokens_are_wanted_over_tls_and_with_a_certificate_of_the_client_too() {
    let authority = Authority::new();
    for name in ["admin", "client"] {
        authority.certify(name, &NAMES);
    }
    let ca = format!("tls.client_ca = \"{}\"\n", authority.path("ca.pem").display());
    let lines = tls(&authority, "admin");
    let gateway = Gateway::start(&file(&format!("token_env = \"TOLLGATE_ADMIN_TOKEN\"\n{lines}{ca}")));
    let config = authority.client_of(Some("client"), rustls::ALL_VERSIONS);
    get(&gateway, &config, "/metrics", "").expect(401);
    get(&gateway, &config, "/metrics", "authorization: Bearer test-token\r\n").expect(200);
    let admin = format!("[admin]\nlisten = \"{}\"\n{lines}", gateway.admin_addr());
    let path = |file: &str| authority.path(file).display().to_string();
    let own = ["--cert", &path("client.pem"), "--key", &path("client.key")];
    answers(&told(&admin, &[&["health"][..], &own].concat()), "");
    // The refusal may be lost where the gateway closes before it has read the request.
    fails(&told(&admin, &["health"]), 1, &["no gateway answers at 127.0.0.1:"]);
}

#[test]
fn commands_trust_the_certificate_that_the_file_names() {
    let authority = Authority::new();
    // Neither its name nor its authority is known to this machine.
    authority.certify("admin", &["gateway.example"]);
    let gateway = Gateway::start(&file(&tls(&authority, "admin")));
    // A relative path begins where the file lies, and variables are filled in.
    let folder = TempDir::new().expect("a folder");
    std::fs::create_dir(folder.path().join("parts")).expect("a folder");
    std::fs::copy(authority.path("admin.pem"), folder.path().join("parts/admin.pem"))
        .expect("it can be copied");
    let admin = format!(
        "[admin]\nlisten = \"{}\"\ntls = {{ cert = \"${{NAME:-admin}}.pem\", key = \"none\" }}\n",
        gateway.admin_addr()
    );
    std::fs::write(folder.path().join("parts/admin.toml"), admin).expect("it can be written");
    std::fs::write(folder.path().join("gateway.toml"), "include = [\"parts/*.toml\"]\n")
        .expect("it can be written");
    for (arguments, word) in COMMANDS {
        answers(&told_in(&folder, arguments), word);
    }
    // The gateway has not read the renewed file yet: its health is still told, and a token is not sent.
    authority.certify("other", &["gateway.example"]);
    std::fs::copy(authority.path("other.pem"), folder.path().join("parts/admin.pem"))
        .expect("it can be copied");
    answers(&told_in(&folder, &["health"]), "");
    let words = [
        "it shows another certificate than `",
        "= help: reload the gateway if that file is newer",
        "`--ca FILE`",
    ];
    for (arguments, _) in &COMMANDS[1..] {
        fails(&told_in(&folder, arguments), 1, &words);
    }
    let ca = authority.path("admin.pem").display().to_string();
    for (arguments, word) in COMMANDS {
        answers(&told_in(&folder, &[arguments, &["--ca", &ca]].concat()), word);
    }
    std::fs::remove_file(folder.path().join("parts/admin.pem")).expect("it is there");
    answers(&told_in(&folder, &["health"]), "");
    fails(
        &told_in(&folder, &["top", "--once"]),
        2,
        &["cannot read `", "= help: run this as a user who may read it"],
    );
}

/// As `openssl req -x509` makes it: a certificate of an authority, which no verification takes for a server's.
#[test]
fn a_self_signed_certificate_is_enough() {
    let folder = TempDir::new().expect("a folder");
    let path = |file: &str| folder.path().join(file).display().to_string();
    let key = KeyPair::generate().expect("a key");
    let mut params = CertificateParams::new([]).expect("no names");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let certificate = params.self_signed(&key).expect("a certificate");
    std::fs::write(path("own.pem"), certificate.pem()).expect("it can be written");
    std::fs::write(path("own.key"), key.serialize_pem()).expect("it can be written");
    let tls = format!("tls = {{ cert = \"{}\", key = \"{}\" }}\n", path("own.pem"), path("own.key"));
    let gateway = Gateway::start(&file(&tls));
    let admin = file(&tls).replace("127.0.0.1:0", &gateway.admin_addr().to_string());
    for (arguments, word) in COMMANDS {
        answers(&told(&admin, arguments), word);
    }
    let url = url("https", &gateway);
    answers(&told("", &["health", "--url", &url, "--ca", &path("own.pem")]), "");
    let words = ["its certificate", "= help: name a PEM file with the gateway's certificate"];
    fails(&told("", &["health", "--url", &url]), 1, &words);
    answers(&told(&admin, &["check"]), "HTTP/1.1 over TLS, without a token.");
}

#[test]
fn commands_with_a_url_trust_an_authority_or_a_certificate() {
    let authority = Authority::new();
    let gateway = start(&authority);
    let url = url("https", &gateway);
    let path = |authority: &Authority, file: &str| authority.path(file).display().to_string();
    let (ca, own) = (path(&authority, "ca.pem"), path(&authority, "admin.pem"));
    for command in [&["health"][..], &["top", "--once"]] {
        for trusted in [&ca, &own] {
            answers(&told("", &[command, &["--url", &url, "--ca", trusted]].concat()), "");
        }
        let refused = told("", &[command, &["--url", &url]].concat());
        fails(
            &refused,
            1,
            &[
                "no gateway answers at 127.0.0.1:",
                "its certificate",
                "= help: name a PEM file",
                "`--ca FILE`",
            ],
        );
        fails(
            &told("", &[command, &["--url", &url, "--ca", "none"]].concat()),
            2,
            &["--ca: cannot read `none`"],
        );
        let stranger = Authority::new();
        let words =
            ["holds neither its certificate nor the authority that signed it", "= help: name a PEM file"];
        let stranger = path(&stranger, "ca.pem");
        fails(&told("", &[command, &["--url", &url, "--ca", &stranger]].concat()), 1, &words);
    }
}

#[test]
fn a_certificate_for_another_name_is_refused_unless_it_is_known() {
    let authority = Authority::new();
    authority.certify("admin", &["gateway.example"]);
    let gateway = Gateway::start(&file(&tls(&authority, "admin")));
    let path = |file: &str| authority.path(file).display().to_string();
    let (url, ca, own) = (url("https", &gateway), path("ca.pem"), path("admin.pem"));
    let refused = told("", &["top", "--once", "--url", &url, "--ca", &ca]);
    fails(
        &refused,
        1,
        &["its certificate is not for `127.0.0.1`", "= help: write a name that it carries into `--url`"],
    );
    answers(&told("", &["top", "--once", "--url", &url, "--ca", &own]), "tollgate ");
}

#[test]
fn the_wrong_scheme_is_told() {
    let authority = Authority::new();
    let gateway = start(&authority);
    let ca = authority.path("ca.pem").display().to_string();
    let plain = url("http", &gateway);
    for command in [&["health"][..], &["top", "--once"]] {
        fails(&told("", &[command, &["--url", &plain]].concat()), 1, &["answers 400", "`https://`"]);
    }
    gateway.reload(&file(""), "changed: admin: certificate changed");
    let secure = url("https", &gateway);
    let refused = told("", &["health", "--url", &secure, "--ca", &ca]);
    fails(
        &refused,
        1,
        &["= help: reload the gateway if `tls` is new in its `[admin]`; write `http://` if there is none"],
    );
    let admin = format!("[admin]\nlisten = \"{}\"\n", gateway.admin_addr());
    for (toml, arguments) in [
        ("", &["health", "--url", &plain, "--ca", &ca][..]),
        (&admin, &["health", "--ca", &ca]),
        (&admin, &["top", "--once", "--ca", &ca]),
        (&admin, &["explain", "--live", "GET", "/", "--ca", &ca]),
    ] {
        fails(
            &told(toml, arguments),
            2,
            &["`--ca` is for an admin listener with TLS", "= help: write `--url https://"],
        );
    }
    fails(
        &told(&admin, &["explain", "GET", "/", "--ca", &ca]),
        2,
        &["`--ca` is for the running gateway", "= help: add `--live`"],
    );
}

/// A token is not sent before the certificate is known to be the gateway's.
#[test]
fn an_impostor_gets_no_token() {
    let authority = Authority::new();
    authority.certify("admin", &NAMES);
    let impostor = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = impostor.local_addr().expect("a socket");
    let admin =
        format!("[admin]\nlisten = \"{address}\"\ntoken_env = \"PATH\"\n{}", tls(&authority, "admin"));
    let received = std::thread::spawn(move || {
        let (mut stream, _) = impostor.accept().expect("it is asked");
        stream.set_read_timeout(Some(TIMEOUT)).expect("a socket option");
        // No TLS: all that is sent can be read.
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").expect("it is taken");
        let mut all = Vec::new();
        stream.read_to_end(&mut all).ok();
        all
    });
    let refused = told(&admin, &["top", "--once"]);
    fails(&refused, 1, &["it speaks no TLS"]);
    let received = String::from_utf8_lossy(&received.join().expect("it ends")).into_owned();
    assert!(!received.to_ascii_lowercase().contains("bearer"), "{received}");
}
