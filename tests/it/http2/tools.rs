//! HTTP/2 as common tools speak it.

use crate::harness::{Authority, Backend, Gateway, everything_to, tools};

/// What a tool says on standard output. `None`: `TOLLGATE_TEST_WITHOUT` names it.
#[track_caller]
fn run(tool: &str, arguments: &[&str]) -> Option<String> {
    let output = tools::tool(tool)?.args(arguments).output().expect("it can be run");
    assert!(output.status.success(), "{tool} ended with {}", output.status);
    Some(String::from_utf8(output.stdout).expect("text"))
}

#[test]
fn curl_speaks_it_with_prior_knowledge_and_by_alpn() {
    let backend = Backend::ok();
    let authority = Authority::new();
    authority.certify("a", &["a.test"]);
    let plain = Gateway::start(&everything_to(&backend, ""));
    let secure = Gateway::start(&everything_to(&backend, &authority.server("a")));
    let common =
        ["--silent", "--show-error", "--max-time", "20", "--write-out", " %{http_version} %{http_code}"];
    let (url, body) = (format!("http://{}/a", plain.addr()), "x".repeat(100_000));
    let known = [&common[..], &["--http2-prior-knowledge", "--data", &body, &url]].concat();
    if let Some(said) = run("curl", &known) {
        assert_eq!(said, "ok 2 200");
        assert_eq!(backend.latest().body.len(), 100_000);
    }
    let resolve = format!("a.test:{}:127.0.0.1", secure.addr().port());
    let (url, ca) = (format!("https://a.test:{}/b", secure.addr().port()), authority.path("ca.pem"));
    let ca = ca.to_str().expect("text");
    if let Some(said) =
        run("curl", &[&common[..], &["--http2", "--cacert", ca, "--resolve", &resolve, &url]].concat())
    {
        assert_eq!(said, "ok 2 200");
    }
    // Over one port: a client that asks to switch goes on with HTTP/1.1.
    if let Some(said) =
        run("curl", &[&common[..], &["--http2", &format!("http://{}/c", plain.addr())]].concat())
    {
        assert_eq!(said, "ok 1.1 200");
    }
}

#[test]
fn h2load_gets_all_its_answers() {
    let backend = Backend::ok();
    let gateway = Gateway::start(&everything_to(&backend, ""));
    let url = format!("http://{}/", gateway.addr());
    if let Some(said) = run("h2load", &["-n", "2000", "-c", "4", "-m", "25", &url]) {
        assert!(said.contains("2000 succeeded, 0 failed, 0 errored, 0 timeout"), "{said}");
        assert_eq!(backend.count(), 2000);
    }
}

/// By default no number of requests ends a connection: h2load opens no second one.
#[test]
fn h2load_gets_all_its_answers_on_four_connections() {
    let gateway = Gateway::start(
        "[upstreams]\necho = \"builtin:echo\"\n[[routes]]\npath = \"/*\"\nupstream = \"echo\"\n[log]\naccess = \"off\"\n",
    );
    let url = format!("http://{}/", gateway.addr());
    if let Some(said) = run("h2load", &["-n", "44000", "-c", "4", "-m", "8", &url]) {
        assert!(said.contains("44000 succeeded, 0 failed, 0 errored, 0 timeout"), "{said}");
    }
}

#[test]
fn nghttp_gets_what_it_asks_for() {
    let backend = Backend::ok();
    let gateway = Gateway::start(&everything_to(&backend, ""));
    let url = format!("http://{}/", gateway.addr());
    // With padding, and each field in a block of its own.
    if let Some(said) = run("nghttp", &["--padding=100", "--continuation", "--data=Cargo.toml", &url]) {
        assert_eq!(said, "ok");
        assert_eq!(backend.only().body, std::fs::read("Cargo.toml").expect("it is here"));
    }
}
