//! From the first start to the certificate, and what stays of it.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::harness::acme_server::{AcmeServer, Instead, Step};
use crate::harness::any_certificate::shown;
use crate::harness::api::api;
use crate::harness::upgraded::Upgraded;
use crate::harness::{Backend, Client, Gateway, Next, eventually, free_address};

use super::{Acme, files, mode, tls, validate_at, wait_until_issued};

#[test]
fn the_first_start_shows_a_self_signed_certificate_at_once_and_then_the_authority_s() {
    let (server, folder, backend) = (AcmeServer::start(), tempfile::tempdir().unwrap(), Backend::ok());
    server.instead(Step::Directory, Instead::Hang);
    let names = ["b.example", "a.example"];
    let toml = Acme { acme: "email = \"admin@example.com\"", ..Acme::of(&server, folder.path(), &names) };
    let gateway = Gateway::start(&toml.toml(&backend));
    let first = shown(tls(&gateway), "b.example", &["http/1.1"]).expect("a handshake");
    assert_eq!(first.names, ["a.example", "b.example"]);
    assert_ne!(first.issuer, "authority of tests");
    gateway.wait_for_log("certificate for a.example, b.example: none yet, so a self-signed one is shown");
    let status = &api(&gateway, "status")["certificates"][0];
    assert_eq!(status["source"], "self-signed");
    assert_eq!(status["names"], serde_json::json!(["a.example", "b.example"]));
    assert_eq!(gateway.metric("tollgate_acme_certificates", &["source=\"self-signed\""]), 1.0);
    // The hanging request is given up after 30 s; another process need not wait.
    drop(gateway);
    let gateway = Gateway::start(&toml.toml(&backend));
    let issued = wait_until_issued(&gateway, "a.example");
    assert_eq!(issued.names, ["a.example", "b.example"]);
    gateway.wait_for_log("certificate for a.example, b.example: issued by authority of tests, valid until");
    let status = &api(&gateway, "status")["certificates"][0];
    assert_eq!((status["source"].as_str(), status["last_error"].is_null()), (Some("acme"), true));
    assert_eq!(status["expires"].as_f64(), Some(issued.expires as f64));
    let next = status["next_attempt"].as_f64().expect("a moment");
    let left = (issued.expires as f64 - next) / 86_400.0;
    assert!((27.0..=30.0).contains(&left), "{left} days");
    assert_eq!(gateway.metric("tollgate_acme_orders_total", &["result=\"issued\""]), 1.0);
    assert_eq!(gateway.metric("tollgate_certificate_expiry_timestamp_seconds", &[]), issued.expires as f64);
    assert!(gateway.metric("tollgate_acme_lifetime_left_ratio", &[]) > 0.99);
}

#[test]
fn keys_are_for_this_user_alone_and_a_restart_orders_nothing() {
    let (server, folder, backend) = (AcmeServer::start(), tempfile::tempdir().unwrap(), Backend::ok());
    let acme = Acme::of(&server, folder.path(), &["a.example"]);
    let toml = acme.toml(&backend);
    let gateway = Gateway::start(&toml);
    let issued = wait_until_issued(&gateway, "a.example");
    eventually("the account and the certificate to be kept", || {
        let files = files(&folder.path().join("state"));
        let is_whole = files.iter().all(|file| file.extension().is_some_and(|end| end != "new"));
        (files.len() == 2 && is_whole).then_some(())
    });
    assert_eq!(mode(&folder.path().join("state")), 0o700);
    for file in files(&folder.path().join("state")) {
        assert_eq!(mode(&file), 0o600, "{}", file.display());
    }
    drop(gateway);
    let orders = server.count(Step::Order);
    let gateway = Gateway::start(&toml);
    assert_eq!(shown(tls(&gateway), "a.example", &[]).expect("a handshake").certificate, issued.certificate);
    gateway.wait_for_log("certificate for a.example: read from");
    assert_eq!((server.count(Step::Order), server.accounts()), (orders, 1));
}

/// Handshakes go on while certificates are replaced.
#[test]
fn no_handshake_is_lost_when_the_certificate_is_replaced() {
    let (server, folder, backend) = (AcmeServer::start(), tempfile::tempdir().unwrap(), Backend::ok());
    let gate = Backend::start(|exchange| {
        exchange.wait_at_gate();
        exchange.write("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
        Next::Close
    });
    let wait = gate.addr();
    server.validate(move |_, _, _| {
        crate::harness::get(wait, "/");
        Ok(())
    });
    let gateway = Gateway::start(&Acme::of(&server, folder.path(), &["a.example"]).toml(&backend));
    let address = tls(&gateway);
    let (stop, count) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let (stop, count) = (Arc::clone(&stop), Arc::clone(&count));
            std::thread::spawn(move || {
                while !stop.load(Ordering::SeqCst) {
                    shown(address, "a.example", &["http/1.1"]).expect("each handshake succeeds");
                    count.fetch_add(1, Ordering::SeqCst);
                }
            })
        })
        .collect();
    gate.wait_for(1);
    eventually("handshakes before", || (count.load(Ordering::SeqCst) > 20).then_some(()));
    gate.open_gate();
    wait_until_issued(&gateway, "a.example");
    let then = count.load(Ordering::SeqCst);
    eventually("handshakes after", || (count.load(Ordering::SeqCst) > then + 20).then_some(()));
    stop.store(true, Ordering::SeqCst);
    threads.into_iter().for_each(|thread| thread.join().expect("no handshake failed"));
}

#[test]
fn a_reload_keeps_what_is_shown_and_orders_for_new_names_only() {
    let (server, folder, backend) = (AcmeServer::start(), tempfile::tempdir().unwrap(), Backend::ok());
    let names = ["a.example", "b.example"];
    let acme = Acme::of(&server, folder.path(), &names);
    let gateway = Gateway::start(&acme.toml(&backend));
    let issued = wait_until_issued(&gateway, "a.example");
    gateway.reload(
        &Acme { acme: "email = \"x@example.com\"", ..Acme::of(&server, folder.path(), &names) }
            .toml(&backend),
        "acme: settings changed",
    );
    assert_eq!(shown(tls(&gateway), "a.example", &[]).expect("a handshake").certificate, issued.certificate);
    assert_eq!(server.orders().len(), 1);
    // Fewer names: the present certificate covers them, and another one is ordered.
    let fewer = ["b.example"];
    gateway.reload(&Acme::of(&server, folder.path(), &fewer).toml(&backend), "server: new certificates");
    gateway.wait_for_log("certificate for b.example: one for a.example, b.example is shown meanwhile");
    eventually("a certificate for one name", || {
        (shown(tls(&gateway), "b.example", &[]).expect("a handshake").names == ["b.example"]).then_some(())
    });
    let more = ["c.example"];
    gateway.reload(&Acme::of(&server, folder.path(), &more).toml(&backend), "server: new certificates");
    gateway.wait_for_log("certificate for c.example: none yet");
    eventually("a certificate for another name", || {
        (shown(tls(&gateway), "c.example", &[]).expect("a handshake").issuer == "authority of tests")
            .then_some(())
    });
    assert_eq!(server.orders(), [vec!["a.example", "b.example"], vec!["b.example"], vec!["c.example"]]);
    assert_eq!(server.accounts(), 1);
}

#[test]
fn a_file_without_names_asks_no_authority_and_stops_nothing() {
    let (server, folder, backend) = (AcmeServer::start(), tempfile::tempdir().unwrap(), Backend::ok());
    let toml = Acme::of(&server, folder.path(), &["a.example"]).toml(&backend);
    let without = toml.replace("acme = [\"a.example\"]\n", "");
    let without = without.replace("[[server.tls]]\n", "").replace("}, \"127.0.0.1:0\"]", "}]");
    let gateway = Gateway::start(&without);
    gateway.get("/").expect(200);
    assert!(server.steps().is_empty() && !folder.path().join("state").exists());
}

#[test]
fn accounts_are_bound_to_an_external_one() {
    let (server, folder, backend) = (AcmeServer::start(), tempfile::tempdir().unwrap(), Backend::ok());
    let eab = "eab = { key_id = \"kid-7\", hmac_key = \"${HMAC_KEY}\" }";
    let acme = Acme { acme: eab, ..Acme::of(&server, folder.path(), &["a.example"]) };
    let gateway = Gateway::start_in(&acme.toml(&backend), &[], &[("HMAC_KEY", "c2VjcmV0IHNlY3JldA")]);
    wait_until_issued(&gateway, "a.example");
    assert_eq!(server.bindings(), ["kid-7"]);
    assert!(!gateway.stderr().contains("c2VjcmV0"));
}

#[test]
fn an_upgrade_orders_in_the_new_process_alone() {
    let (server, folder, backend) = (AcmeServer::start(), tempfile::tempdir().unwrap(), Backend::ok());
    server.instead(Step::Challenge, Instead::Hang);
    let mut toml = Acme::of(&server, folder.path(), &["a.example"]).toml(&backend);
    for address in [free_address(), free_address()] {
        toml = toml.replacen("127.0.0.1:0", &address.to_string(), 1);
    }
    let gateway = Gateway::start(&toml);
    eventually("the order of the first process", || (server.count(Step::Challenge) == 1).then_some(()));
    let mut upgraded = Upgraded::new(gateway);
    upgraded.upgrade();
    let issued = wait_until_issued(&upgraded.gateway, "a.example");
    assert_eq!((issued.names, server.accounts()), (vec!["a.example".to_owned()], 1));
    assert!(!upgraded.gateway.stderr().contains("order failed"));
}

#[test]
fn names_are_asked_for_in_any_case() {
    let (server, folder, backend) = (AcmeServer::start(), tempfile::tempdir().unwrap(), Backend::ok());
    let acme = Acme { acme: "challenge = \"http-01\"", ..Acme::of(&server, folder.path(), &["a.example"]) };
    let gateway = Gateway::start(&acme.toml(&backend));
    validate_at(&server, &gateway);
    wait_until_issued(&gateway, "A.Example");
    let mut client = Client::connect(gateway.addr());
    client.get("/", "").expect(200);
    assert!(fs::metadata(folder.path().join("state")).is_ok());
}
