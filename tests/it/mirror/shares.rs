//! Whose requests are copied.

use std::collections::BTreeMap;

use super::file;
use crate::harness::{Backend, Client, Gateway, eventually};

const KEYS: usize = 500;

/// Copies of each user so far.
fn copies(canary: &Backend) -> BTreeMap<String, usize> {
    let mut copies = BTreeMap::new();
    for user in canary.requests().iter().filter_map(|request| request.header("x-user")) {
        *copies.entry(user).or_default() += 1;
    }
    copies
}

/// Sends a request of each user.
fn go_through(gateway: &Gateway) {
    let mut client = Client::connect(gateway.addr());
    (0..KEYS).for_each(|user| drop(client.get("/", &format!("x-user: u{user}\r\n")).expect(200)));
}

#[test]
fn the_same_callers_each_time_and_more_of_a_larger_share() {
    let (api, canary) = (Backend::ok(), Backend::ok());
    let share = |share: &str| file(&api, &canary, &format!(", key = \"header:x-user\", share = {share}"), "");
    let gateway = Gateway::start(&share("0.2"));
    go_through(&gateway);
    go_through(&gateway);
    gateway.reload(&share("0.20"), "reload");
    go_through(&gateway);
    let other = Gateway::start(&share("0.2"));
    go_through(&other);
    let first = eventually("four copies of each user of the share", || {
        let copies = copies(&canary);
        (copies.len() > 1 && copies.values().all(|count| *count == 4)).then_some(copies)
    });
    // Eight standard deviations of 8.9.
    assert!((29..=171).contains(&first.len()), "{}", first.len());
    gateway.reload(&share("0.6"), "mirror");
    go_through(&gateway);
    let larger = eventually("one copy more of each", || {
        let copies = copies(&canary);
        first.keys().all(|user| copies[user] == 5).then_some(copies)
    });
    assert!(larger.len() > first.len(), "{} of {KEYS}", larger.len());
}

#[test]
fn without_a_key_an_address_is_always_copied_or_never() {
    let (api, canary) = (Backend::ok(), Backend::ok());
    let gateway = Gateway::start(&file(&api, &canary, ", share = 0.5", ""));
    let address = |number: u8| [127, 0, 1, number];
    for number in 1..=60 {
        let mut client = Client::connect_from(address(number).into(), gateway.addr());
        (0..3).for_each(|_| drop(client.get("/", "").expect(200)));
    }
    let addresses: Vec<_> = (1..=60).map(|number| format!("127.0.1.{number}")).collect();
    let chosen = all_or_nothing(&canary, "x-forwarded-for", &addresses);
    assert!(chosen <= 55, "{chosen}");
}

#[test]
fn a_consumer_is_the_same_caller_from_any_address() {
    let (api, canary) = (Backend::ok(), Backend::ok());
    let names: Vec<_> = (0..40).map(|number| format!("c{number}")).collect();
    let rows: String = names.iter().map(|name| format!("key-{name}-0123456789,{name}\n")).collect();
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("consumers.csv");
    std::fs::write(&path, format!("key,name\n{rows}")).expect("it can be written");
    let auth = format!(
        "auth = \"keys\"\n[auth.keys]\ntype = \"api-key\"\nfrom = \"header:x-api-key\"\nfile = \"{}\"\n",
        path.display()
    );
    let gateway = Gateway::start(&file(&api, &canary, ", share = 0.5", &auth));
    for number in [1, 2, 3] {
        let mut client = Client::connect_from([127, 0, 2, number].into(), gateway.addr());
        for name in &names {
            client.get("/", &format!("x-api-key: key-{name}-0123456789\r\n")).expect(200);
        }
    }
    let chosen = all_or_nothing(&canary, "x-consumer", &names);
    assert!(chosen <= 37, "{chosen}");
}

/// How many of these values of a header were copied three times: five at least. Others were not copied.
#[track_caller]
fn all_or_nothing(canary: &Backend, header: &str, values: &[String]) -> usize {
    eventually("three copies of each caller of the share", || {
        let copied: Vec<_> = canary.requests().iter().filter_map(|request| request.header(header)).collect();
        let counts = values.iter().map(|value| copied.iter().filter(|copied| *copied == value).count());
        let counts: Vec<_> = counts.filter(|count| *count > 0).collect();
        (counts.len() >= 5 && counts.iter().all(|count| *count == 3)).then_some(counts.len())
    })
}
