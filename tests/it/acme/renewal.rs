//! Certificates are renewed before they expire: by their lifetime, and by what the authority suggests.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::harness::acme_server::{AcmeServer, Step};
use crate::harness::any_certificate::shown;
use crate::harness::api::api;
use crate::harness::{Backend, FakeClock, Gateway, eventually};

use super::{Acme, tls, wait_until_issued};

const DAY: i64 = 86_400;

fn now() -> i64 {
    i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs()).expect("small")
}

#[test]
fn a_short_lifetime_is_renewed_in_time_and_says_what_it_replaces() {
    let (server, folder, backend) = (AcmeServer::start(), tempfile::tempdir().unwrap(), Backend::ok());
    server.set_lifetime(Duration::from_secs(18));
    server.suggest((now() + 40 * DAY, now() + 41 * DAY));
    let gateway = Gateway::start(&Acme::of(&server, folder.path(), &["a.example"]).toml(&backend));
    let first = wait_until_issued(&gateway, "a.example");
    let second = eventually("another certificate", || {
        let present = shown(tls(&gateway), "a.example", &[]).expect("a handshake");
        (present.certificate != first.certificate).then_some(present)
    });
    assert!(now() < first.expires, "before it expires");
    assert!(second.expires > first.expires);
    let replaced = server.replaced();
    assert!(replaced.len() == 1 && replaced[0].contains('.'), "{replaced:?}");
}

#[test]
fn six_days_and_ninety_are_renewed_with_a_third_left() {
    for days in [6, 90] {
        let Some(clock) = FakeClock::ahead_by(0) else { return };
        let (server, folder, backend) = (AcmeServer::start(), tempfile::tempdir().unwrap(), Backend::ok());
        server.set_lifetime(Duration::from_secs(u64::try_from(days * DAY).expect("positive")));
        let gateway = clock.gateway(&Acme::of(&server, folder.path(), &["a.example"]).toml(&backend), &[]);
        wait_until_issued(&gateway, "a.example");
        let orders = server.orders().len();
        clock.step_to(days * DAY * 2 / 3 - 60);
        std::thread::sleep(Duration::from_millis(2_500));
        assert_eq!(server.orders().len(), orders, "{days} days: not yet");
        // A tenth of the third later at most. What the authority issues begins by its own clock.
        clock.step_to(days * DAY * 7 / 10 + 60);
        eventually("another order", || (server.orders().len() > orders).then_some(()));
    }
}

#[test]
fn a_suggestion_of_the_authority_comes_first_and_not_again_and_again() {
    let (server, folder, backend) = (AcmeServer::start(), tempfile::tempdir().unwrap(), Backend::ok());
    // Long past: renew now.
    server.suggest((now() - 2 * DAY, now() - DAY));
    let toml = Acme::of(&server, folder.path(), &["a.example"]).toml(&backend);
    let gateway = Gateway::start(&toml);
    wait_until_issued(&gateway, "a.example");
    eventually("the suggestion", || (server.count(Step::RenewalInfo) > 0).then_some(()));
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(server.orders().len(), 1, "a new one is used for an hour at least");
    drop(gateway);
    let gateway = Gateway::start(&toml);
    eventually("a renewal", || (server.orders().len() == 2).then_some(()));
    let next = eventually("a moment", || {
        let status = api(&gateway, "status");
        let next = status["certificates"][0]["next_attempt"].as_f64()? - status["time"].as_f64()?;
        (3_000.0..=3_600.0).contains(&next).then_some(next)
    });
    assert!(next <= 3_600.0, "{next}");
}

#[test]
fn an_authority_that_fails_to_suggest_is_as_one_that_does_not() {
    let (server, folder, backend) = (AcmeServer::start(), tempfile::tempdir().unwrap(), Backend::ok());
    server.suggest((now(), now() - DAY));
    let gateway = Gateway::start(&Acme::of(&server, folder.path(), &["a.example"]).toml(&backend));
    wait_until_issued(&gateway, "a.example");
    eventually("the question", || (server.count(Step::RenewalInfo) > 0).then_some(()));
    let status = api(&gateway, "status");
    let next = status["certificates"][0]["next_attempt"].as_f64().expect("a moment");
    assert!(next > (now() + 50 * DAY) as f64, "{next}");
    assert_eq!(server.count(Step::RenewalInfo), 1);
}
