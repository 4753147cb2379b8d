//! What stands in the store: under whose name, for how long, and nothing that a client keeps to itself.

use std::collections::BTreeSet;

use crate::harness::fleet_config::{AT_ONCE, Plan, client, of, statuses, statuses_of};
use crate::harness::{Answer, Backend, Client, Fleet, Gateway, Redis};

const SECRET: &str = "super-secret-value";

/// Everything that an answer holds, as text.
fn text_of(answer: &Answer) -> String {
    match answer {
        Answer::Integer(integer) => integer.to_string(),
        Answer::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Answer::List(list) => list.iter().map(text_of).collect::<Vec<_>>().join("\n"),
        Answer::Nothing => String::new(),
        Answer::Error(told) => panic!("{told}"),
    }
}

/// A route for each algorithm, keyed by what a client would not like to be read by others.
fn all_algorithms(backend: &Backend) -> Plan {
    let keys = ["header:x-api-key", "cookie:session", "query:token", "header:x-api-key", "header:x-api-key"];
    let with = |plan: Plan, (algorithm, key): (&str, &str)| {
        plan.route(&format!("/{algorithm}"), &format!("limits = [\"{algorithm}\"]")).limit_by(
            key,
            algorithm,
            &of(algorithm, 5),
        )
    };
    AT_ONCE.into_iter().zip(keys).fold(Plan::to(backend), with)
}

fn spend_secretly(gateway: &Gateway) {
    let mut one = Client::connect(gateway.addr());
    for algorithm in AT_ONCE {
        let path = format!("/{algorithm}?token={SECRET}");
        for _ in 0..3 {
            one.get(&path, &format!("x-api-key: {SECRET}\r\ncookie: session={SECRET}\r\n")).expect(200);
        }
    }
}

#[test]
fn no_secret_of_a_client_can_be_read_from_the_store() {
    let (backend, redis) = (Backend::ok(), Redis::start());
    // Whatever is sent is kept, with its arguments.
    redis.set(&["CONFIG", "SET", "slowlog-max-len", "10000"]);
    redis.set(&["CONFIG", "SET", "slowlog-log-slower-than", "0"]);
    let gateway = Gateway::start(&all_algorithms(&backend).on(&redis));
    spend_secretly(&gateway);
    let keys = redis.keys();
    assert_eq!(keys.len(), AT_ONCE.len(), "{keys:?}");
    let sent = text_of(&redis.command(["SLOWLOG", "GET", "10000"]));
    assert!(keys.iter().all(|key| sent.contains(key.as_str())), "the log shows what was sent");
    let values: String = keys.iter().map(|key| text_of(&redis.command(["GET", key]))).collect();
    for (what, text) in [("a key", keys.join("\n")), ("a value", values), ("a command", sent)] {
        assert!(!text.contains(SECRET), "{what} holds the secret");
    }
}

#[test]
fn every_key_has_the_prefix_and_an_end() {
    let (backend, redis) = (Backend::ok(), Redis::start());
    let store = format!("url = \"{}\"\ntimeout = \"5s\"", redis.url());
    let plan = all_algorithms(&backend);
    spend_secretly(&Gateway::start(&plan.clone().store(&store)));
    spend_secretly(&Gateway::start(&plan.store(&format!("{store}\nprefix = \"fleet-7\""))));
    let keys = redis.keys();
    let with = |prefix: &str| keys.iter().filter(|key| key.starts_with(prefix)).count();
    assert_eq!([with("tollgate:"), with("fleet-7:")], [5, 5], "{keys:?}");
    for key in &keys {
        let left = redis.command(["PTTL", key]).integer();
        assert!(left > 0 && left <= 2 * 366 * 86_400_000 + 2_000, "{key} lives for {left} ms");
    }
}

/// Both chose seeds of their own for their memory, and yet mean the same client.
#[test]
fn gateways_of_one_fleet_use_the_same_keys() {
    let (backend, redis) = (Backend::ok(), Redis::start());
    let fleet = Fleet::start(&all_algorithms(&backend).on(&redis));
    spend_secretly(&fleet.gateways[0]);
    let keys = redis.keys();
    let path = format!("/gcra?token={SECRET}");
    let fields = format!("x-api-key: {SECRET}\r\ncookie: session={SECRET}\r\n");
    for (number, status) in [200, 200, 429].into_iter().enumerate() {
        fleet.get_with(2 * number + 1, &path, &fields).expect(status);
    }
    assert_eq!(redis.keys(), keys);
}

#[test]
fn clients_limits_and_secrets_have_keys_of_their_own() {
    let (backend, redis) = (Backend::ok(), Redis::start());
    let plan = Plan::to(&backend)
        .route("/one", "limits = [\"one\"]")
        .route("/other", "limits = [\"other\"]")
        .limit("one", &of("token-bucket", 1))
        .limit("other", &of("token-bucket", 1));
    let store = |secret: &str| format!("url = \"{}\"\ntimeout = \"5s\"\n{secret}", redis.url());
    let mut keys = BTreeSet::new();
    for (number, secret) in
        ["", "secret = \"one-secret-of-many\"", "secret = \"another-one-of-many\""].into_iter().enumerate()
    {
        let gateway = Gateway::start(&plan.clone().store(&store(secret)));
        for name in ["a", "b"] {
            assert_eq!(statuses_of(&gateway, "/one", name, 2), [200, 429], "{secret}");
            assert_eq!(statuses_of(&gateway, "/other", name, 2), [200, 429], "{secret}");
        }
        keys.extend(redis.keys());
        assert_eq!(keys.len(), 4 * (number + 1));
    }
    // Not only the prefix differs: the fingerprints of one fleet do not reveal those of another.
    let fingerprints: BTreeSet<_> = keys.iter().filter_map(|key| key.split('{').nth(1)).collect();
    assert!(fingerprints.len() >= 6, "{fingerprints:?}");
}

/// `secret = "${NAME}"`, as it stands in no file.
#[test]
fn the_fleets_secret_comes_from_the_environment() {
    let (backend, redis) = (Backend::ok(), Redis::start());
    let plan = Plan::to(&backend).route("/*", "limits = [\"all\"]").limit("all", &of("token-bucket", 2));
    let store = |secret: &str| {
        plan.clone().store(&format!("url = \"{}\"\ntimeout = \"5s\"\nsecret = \"{secret}\"", redis.url()))
    };
    let from = Gateway::start_in(
        &store("${STORE_SECRET}"),
        &[],
        &[("STORE_SECRET", "hush-and-keep-it-to-yourself")],
    );
    let written = Gateway::start(&store("hush-and-keep-it-to-yourself"));
    let fleet = Fleet { gateways: [from, written] };
    assert_eq!(statuses(&fleet, "/", "a", 4), [200, 200, 429, 429]);
    assert_eq!(redis.keys().len(), 1);
}

/// Whatever stands at a key, such as what a careless hand wrote there, is no reason to fail.
#[test]
fn a_value_that_is_no_state_is_a_fresh_one() {
    let (backend, redis) = (Backend::ok(), Redis::start());
    let gateway = Gateway::start(&all_algorithms(&backend).on(&redis));
    spend_secretly(&gateway);
    for key in redis.keys() {
        redis.set(&["SET", &key, "hello"]);
    }
    spend_secretly(&gateway);
    let keys = redis.keys();
    assert_eq!(keys.len(), AT_ONCE.len());
    assert!(keys.iter().all(|key| redis.command(["PTTL", key]).integer() > 0), "and it has an end again");
    let fields = client("x");
    crate::harness::get_with(gateway.addr(), "/gcra", &fields).expect(200);
}
