//! Story C: an issuer that rotates its keys, and then dies.

use std::time::{Duration, Instant};

use jsonwebtoken::Algorithm;

use super::{INVALID, KeySetServer, SigningKey, ask, claims, gateway, sso};
use crate::harness::{Backend, eventually};

#[test]
fn keys_rotate_and_the_last_ones_outlive_their_issuer() {
    let (old, new) = (SigningKey::new("old", Algorithm::RS256), SigningKey::new("new", Algorithm::ES256));
    let (backend, issuer) = (Backend::ok(), KeySetServer::start(&[&old]));
    let auth = sso(&issuer.url(), "");
    let gateway = gateway(&backend, &auth);
    let first = old.sign(&claims("ann"));
    ask(&gateway, &first).expect(200);
    // The first token with the new key has it fetched.
    issuer.publish(&[&old, &new]);
    let second = new.sign(&claims("bob"));
    ask(&gateway, &second).expect(200);
    ask(&gateway, &first).expect(200);
    assert_eq!(issuer.backend.count(), 2);
    // An unknown `kid` makes the gateway ask again, but not twice within 30 s.
    let unknown = SigningKey::new("unknown", Algorithm::ES256).sign(&claims("eve"));
    let begun = Instant::now();
    for _ in 0..20 {
        let response = ask(&gateway, &unknown).expect(401);
        assert_eq!(response.header("www-authenticate"), Some(INVALID));
    }
    assert_eq!(issuer.backend.count(), 2);
    assert!(begun.elapsed() < Duration::from_secs(4), "no request waits for a fetch that nothing asks for");
    // A reload keeps the keys, also while the issuer is away.
    drop(issuer);
    gateway.reload(
        &crate::harness::everything_to(&backend, &format!("auth = \"sso\"\n{auth}leeway = \"20s\"\n")),
        "reloaded",
    );
    ask(&gateway, &first).expect(200);
    ask(&gateway, &second).expect(200);
    ask(&gateway, &new.sign(&claims("carl"))).expect(200);
}

/// A request that comes during the first fetch waits for it, and asks for no other: the next unknown key may.
#[test]
fn a_request_during_the_first_fetch_leaves_the_next_one_to_a_new_key() {
    let (old, new) = (SigningKey::new("old", Algorithm::ES256), SigningKey::new("new", Algorithm::ES256));
    let issuer = KeySetServer::behind_a_gate(&[&old]);
    let backend = Backend::ok();
    let gateway = gateway(&backend, &sso(&issuer.url(), ""));
    eventually("the first fetch", || (issuer.backend.count() == 1).then_some(()));
    let first = old.sign(&claims("ann"));
    std::thread::scope(|scope| {
        let asking = scope.spawn(|| ask(&gateway, &first).expect(200));
        // The request waits; if it comes later, the keys are there.
        std::thread::sleep(Duration::from_millis(100));
        issuer.backend.open_gate();
        asking.join().expect("no panic");
    });
    issuer.publish(&[&old, &new]);
    ask(&gateway, &new.sign(&claims("bob"))).expect(200);
    assert_eq!(issuer.backend.count(), 2);
}

#[test]
fn a_key_that_leaves_ends_its_tokens() {
    let (old, new) = (SigningKey::new("old", Algorithm::ES256), SigningKey::new("new", Algorithm::ES256));
    let (backend, issuer) = (Backend::ok(), KeySetServer::start(&[&old]));
    let gateway = gateway(&backend, &sso(&issuer.url(), ""));
    let token = old.sign(&claims("ann"));
    ask(&gateway, &token).expect(200);
    ask(&gateway, &token).expect(200);
    issuer.publish(&[&new]);
    // The keys are fetched for the first token of the new key.
    // A request waits for them for a bounded time, which a busy machine may exceed.
    let second = new.sign(&claims("bob"));
    eventually("the new key", || (ask(&gateway, &second).status == 200).then_some(()));
    ask(&gateway, &token).expect(401);
}

#[test]
fn without_any_keys_the_answer_is_503_and_the_issuer_is_asked_until_it_is_there() {
    let key = SigningKey::new("k", Algorithm::ES256);
    let (backend, issuer) = (Backend::ok(), KeySetServer::start(&[]));
    let gateway = gateway(&backend, &sso(&issuer.url(), ""));
    let token = key.sign(&claims("ann"));
    let response = ask(&gateway, &token).expect(503);
    assert_eq!(response.header("retry-after"), Some("1"));
    gateway.wait_for_log("the keys of the issuer could not be fetched");
    issuer.publish(&[&key]);
    eventually("the keys are there", || (ask(&gateway, &token).status == 200).then_some(()));
}
