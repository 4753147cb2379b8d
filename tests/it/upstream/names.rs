//! Servers that the file names by name.

use crate::harness::servers::over;
use crate::harness::{Authority, Backend, Client, Gateway};

#[test]
fn a_name_leads_to_the_server() {
    let authority = Authority::new();
    authority.certify("server", &["localhost"]);
    let backend = Backend::ok_tls(authority.backend("server"));
    let toml = over(&[&backend], &authority.trusted("")).replace("https://127.0.0.1", "https://localhost");
    let gateway = Gateway::start(&toml);
    let mut client = Client::connect(gateway.addr());
    for _ in 0..5 {
        client.get("/", "").expect(200);
    }
    assert_eq!((backend.count(), backend.connections()), (5, 1));
    assert_eq!(backend.handshakes()[0].name.as_deref(), Some("localhost"));
}

/// It may be known later: nothing but its own requests suffers.
#[test]
fn a_name_that_is_not_known_at_the_start_is_not_fatal() {
    let backend = Backend::ok();
    let servers = format!("servers = [\"http://no-such-name.invalid:80\", \"{}\"]", backend.url());
    let route = "[[routes]]\npath = \"/*\"\nupstream = \"api\"\n";
    let gateway = Gateway::start(&format!("[upstreams.api]\n{servers}\nconnect_timeout = \"30s\"\n{route}"));
    for _ in 0..4 {
        gateway.get("/").expect(200);
    }
    assert_eq!(backend.count(), 4);
    gateway.wait_for_log("`no-such-name.invalid` cannot be looked up");
}
