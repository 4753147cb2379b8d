//! Gateways that share a store: one orders, any of them answers, and with `secret` all have one certificate.

use std::net::TcpStream;

use crate::harness::acme_server::{AcmeServer, look_by_http};
use crate::harness::any_certificate::shown;
use crate::harness::{Backend, Gateway, Redis, eventually};

use super::{Acme, tls, wait_until_issued};

const SECRET: &str = "secret = \"0123456789abcdef0123456789abcdef\"\nchallenge = \"http-01\"";

/// The authority looks at the gateway that did not order: at the first that is told.
fn toml(acme: &Acme<'_>, backend: &Backend, redis: &Redis, address: std::net::SocketAddr) -> String {
    let toml = acme.toml(backend).replacen("127.0.0.1:0", &address.to_string(), 1);
    format!("{toml}{}", redis.store_table())
}

#[test]
fn with_a_secret_one_order_serves_all_and_any_gateway_answers_its_challenge() {
    let (server, backend, redis) = (AcmeServer::start(), Backend::ok(), Redis::start());
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let addresses = [crate::harness::free_address(), crate::harness::free_address()];
    // The challenge has to be answered by both, whichever of them orders.
    server.validate(move |_, name, token| {
        addresses.iter().for_each(|one| drop(eventually("both to listen", || TcpStream::connect(one).ok())));
        addresses.iter().try_for_each(|one| look_by_http(*one, name, token))
    });
    let gateways: Vec<_> = folders
        .iter()
        .zip(addresses)
        .map(|(folder, address)| {
            let acme = Acme { acme: SECRET, ..Acme::of(&server, folder.path(), &["a.example"]) };
            Gateway::start(&toml(&acme, &backend, &redis, address))
        })
        .collect();
    let [one, other] = [0, 1].map(|index| wait_until_issued(&gateways[index], "a.example"));
    assert_eq!(one.certificate, other.certificate);
    assert_eq!((server.orders().len(), server.accounts()), (1, 1));
    // No key is readable in the store.
    let values = redis.keys().into_iter().filter(|key| key.contains("acme-"));
    let mut count = 0;
    for key in values {
        let value = format!("{:?}", redis.command(["GET", &key]));
        assert!(!value.contains("PRIVATE") && !value.contains("credentials"), "{key}");
        count += 1;
    }
    assert!(count >= 2, "the account and the certificate");
    // A third one needs no order.
    let folder = tempfile::tempdir().unwrap();
    let acme = Acme { acme: SECRET, ..Acme::of(&server, folder.path(), &["a.example"]) };
    let third = Gateway::start(&toml(&acme, &backend, &redis, crate::harness::free_address()));
    assert_eq!(wait_until_issued(&third, "a.example").certificate, one.certificate);
    third.wait_for_log("certificate for a.example: taken from the shared store");
    assert_eq!(server.orders().len(), 1);
}

#[test]
fn without_a_secret_each_gateway_orders_its_own_and_keys_stay_out_of_the_store() {
    let (server, backend, redis) = (AcmeServer::start(), Backend::ok(), Redis::start());
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let gateways: Vec<_> = folders
        .iter()
        .map(|folder| {
            let acme = Acme::of(&server, folder.path(), &["a.example"]);
            Gateway::start(&format!("{}{}", acme.toml(&backend), redis.store_table()))
        })
        .collect();
    let [one, other] = [0, 1].map(|index| wait_until_issued(&gateways[index], "a.example"));
    assert_ne!(one.certificate, other.certificate);
    assert_eq!((server.orders().len(), server.accounts()), (2, 2));
    let names: Vec<_> = redis.keys().into_iter().filter(|key| key.contains("acme-")).collect();
    assert!(names.iter().all(|name| !name.contains("certificate") && !name.contains("account")), "{names:?}");
}

#[test]
fn failures_are_shared_and_an_unreachable_store_lets_orders_wait() {
    let (server, backend, mut redis) = (AcmeServer::start(), Backend::ok(), Redis::start());
    let folder = tempfile::tempdir().unwrap();
    server.validate(|_, _, _| Err("no".to_owned()));
    let acme = Acme::of(&server, folder.path(), &["a.example"]);
    let first = Gateway::start(&format!("{}{}", acme.toml(&backend), redis.store_table()));
    first.wait_for_log("order failed, 1 in a row");
    eventually("the failure to be shared", || {
        redis.keys().iter().any(|key| key.contains("attempts")).then_some(())
    });
    let other = tempfile::tempdir().unwrap();
    let acme = Acme::of(&server, other.path(), &["a.example"]);
    let second = Gateway::start(&format!("{}{}", acme.toml(&backend), redis.store_table()));
    eventually("the other gateway to wait", || {
        let status = crate::harness::api::api(&second, "status");
        let error = status["certificates"][0]["last_error"].as_str().map(str::to_owned)?;
        error.contains("no").then_some(())
    });
    assert_eq!(server.orders().len(), 1);
    redis.kill();
    let third = tempfile::tempdir().unwrap();
    let acme = Acme::of(&server, third.path(), &["b.example"]);
    let third = Gateway::start(&format!("{}{}", acme.toml(&backend), redis.store_table()));
    third.wait_for_log("orders of certificates wait: the shared store is unavailable");
    assert!(shown(tls(&third), "b.example", &[]).is_ok());
    assert_eq!(server.orders().len(), 1);
    server.validate(|_, _, _| Ok(()));
    redis.restart();
    wait_until_issued(&third, "b.example");
}
