//! Story C: an issuer that rotates its keys, and then dies.

use std::time::{Duration, Instant};

use jsonwebtoken::{Algorithm, Header};

use super::{INVALID, KeySetServer, SigningKey, ask, claims, gateway, sso};
use crate::harness::{Backend, Gateway, Response, eventually};

/// A token with a `kid` that no issuer has.
fn invented(key: &SigningKey, number: usize) -> String {
    key.sign_as(&Header { kid: Some(format!("invented-{number}")), ..key.header() }, &claims("eve"))
}

/// The seconds after which a request that is not decided may succeed.
#[track_caller]
fn wait_of(response: &Response) -> u64 {
    assert_eq!(response.status, 503);
    response.header("retry-after").and_then(|seconds| seconds.parse().ok()).expect("retry-after")
}

/// Sends tokens with unknown `kid`s until their fetches wait. Returns how many were refused before.
fn use_up_fetches(gateway: &Gateway, key: &SigningKey) -> usize {
    let statuses: Vec<_> = (0..20).map(|number| ask(gateway, &invented(key, number)).status).collect();
    assert!(statuses.iter().all(|status| [401, 503].contains(status)), "{statuses:?}");
    assert_eq!(statuses.last(), Some(&503), "{statuses:?}");
    statuses.iter().filter(|status| **status == 401).count()
}

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
    // An unknown `kid` makes the gateway ask again, but not for each request.
    let unknown = SigningKey::new("unknown", Algorithm::ES256).sign(&claims("eve"));
    let begun = Instant::now();
    let response = ask(&gateway, &unknown).expect(401);
    assert_eq!(response.header("www-authenticate"), Some(INVALID));
    for _ in 0..20 {
        let wait = wait_of(&ask(&gateway, &unknown));
        assert!((1..=10).contains(&wait), "{wait}");
    }
    assert_eq!(issuer.backend.count(), 3);
    assert!(begun.elapsed() < Duration::from_secs(4), "no request waits for a fetch that may not begin");
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
    assert!((1..=2).contains(&wait_of(&ask(&gateway, &token))), "the next fetch is due by then");
    gateway.wait_for_log("the keys of the issuer could not be fetched");
    issuer.publish(&[&key]);
    eventually("the keys are there", || (ask(&gateway, &token).status == 200).then_some(()));
}

/// What an attacker may know beforehand is that keys are rotated.
#[test]
fn an_invented_key_before_a_rotation_refuses_no_good_token() {
    let (old, new) = (SigningKey::new("old", Algorithm::ES256), SigningKey::new("new", Algorithm::ES256));
    let (backend, issuer) = (Backend::ok(), KeySetServer::start(&[&old]));
    let gateway = gateway(&backend, &sso(&issuer.url(), ""));
    ask(&gateway, &old.sign(&claims("ann"))).expect(200);
    ask(&gateway, &invented(&old, 0)).expect(401);
    issuer.publish(&[&old, &new]);
    ask(&gateway, &new.sign(&claims("bob"))).expect(200);
    assert_eq!(issuer.backend.count(), 3);
}

/// Each with another `kid`: the issuer is asked twice at once, then every 10 s. Meanwhile a good token of a new key is told
/// to come again, and never that it is wrong.
#[test]
fn a_flood_of_invented_keys_delays_new_keys_and_nothing_else() {
    let (old, new) = (SigningKey::new("old", Algorithm::ES256), SigningKey::new("new", Algorithm::ES256));
    let (backend, issuer) = (Backend::ok(), KeySetServer::start(&[&old]));
    let gateway = gateway(&backend, &sso(&issuer.url(), ""));
    let known = old.sign(&claims("ann"));
    ask(&gateway, &known).expect(200);
    let begun = Instant::now();
    let refused = use_up_fetches(&gateway, &old);
    assert!(refused >= 2, "two fetches answer at least two requests: {refused}");
    issuer.publish(&[&old, &new]);
    let good = new.sign(&claims("bob"));
    let told = wait_of(&ask(&gateway, &good));
    let line = gateway.access_log(22).remove(21);
    assert_eq!(line["error"].as_str(), Some("credential_unverified"), "{line}");
    // The fetch that waits begins by itself, and nobody has asked for more.
    eventually("the new key", || {
        ask(&gateway, &known).expect(200);
        ask(&gateway, &old.sign(&claims("carl"))).expect(200);
        let fetches = issuer.backend.count() - 1;
        let bound = 2 + usize::try_from(begun.elapsed().as_secs() / 10).expect("a count");
        assert!(fetches <= bound + 1, "{fetches} fetches");
        let response = ask(&gateway, &good);
        assert!([200, 503].contains(&response.status), "{}", response.status);
        (response.status == 200).then_some(())
    });
    let waited = begun.elapsed();
    assert!(waited >= Duration::from_secs(told - 1), "it waits for its turn: {waited:?} of {told} s");
}

/// Its clients have to fetch new tokens: 401 tells them so, whatever others ask.
#[test]
fn a_token_of_a_withdrawn_key_is_wrong_also_while_fetches_wait() {
    let (old, new) = (SigningKey::new("old", Algorithm::ES256), SigningKey::new("new", Algorithm::ES256));
    let (backend, issuer) = (Backend::ok(), KeySetServer::start(&[&old]));
    let gateway = gateway(&backend, &sso(&issuer.url(), ""));
    let token = old.sign(&claims("ann"));
    ask(&gateway, &token).expect(200);
    issuer.publish(&[&new]);
    eventually("the new key", || (ask(&gateway, &new.sign(&claims("bob"))).status == 200).then_some(()));
    use_up_fetches(&gateway, &new);
    for _ in 0..3 {
        ask(&gateway, &token).expect(401);
        ask(&gateway, &new.sign(&claims("bob"))).expect(200);
    }
}

/// Whether a key that it does not know is good, only the issuer can say.
#[test]
fn while_the_issuer_is_away_an_unknown_key_is_not_wrong() {
    let key = SigningKey::new("k", Algorithm::ES256);
    let (backend, issuer) = (Backend::ok(), KeySetServer::start(&[&key]));
    let gateway = gateway(&backend, &sso(&issuer.url(), ""));
    ask(&gateway, &key.sign(&claims("ann"))).expect(200);
    issuer.break_down();
    wait_of(&ask(&gateway, &invented(&key, 0)));
    gateway.wait_for_log("the keys of the issuer could not be fetched");
    wait_of(&ask(&gateway, &invented(&key, 1)));
    ask(&gateway, &key.sign(&claims("bob"))).expect(200);
}
