//! `ratelimit_policies = "all"`: the standard fields list every enforced policy of the route.

use std::time::{Duration, Instant};

use http::Request;

use crate::harness::ratelimit::{member, members};
use crate::harness::{
    AllVersions, Backend, Body, Client, Gateway, HoldingBackend, Multiplexed, everything_to,
};

const ALL: &str = "[server]\nratelimit_policies = \"all\"\n";
/// The windows of Kong's `rate-limiting`: name, requests, seconds.
const WINDOWS: [(&str, i64, i64); 4] =
    [("second", 9, 1), ("minute", 3, 60), ("hour", 100, 3_600), ("day", 1_000, 86_400)];

/// What a response tells of limits.
#[derive(Debug)]
struct Told {
    status: u16,
    policies: Vec<(String, Vec<(String, i64)>)>,
    rests: Vec<(String, Vec<(String, i64)>)>,
    legacy: [Option<String>; 3],
    retry_after: Option<i64>,
}

impl Told {
    fn new<'a>(status: u16, field: impl Fn(&str) -> Option<&'a str>) -> Self {
        let list = |name| field(name).map(members).unwrap_or_default();
        let legacy = ["x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"];
        Self {
            status,
            policies: list("ratelimit-policy"),
            rests: list("ratelimit"),
            legacy: legacy.map(|name| field(name).map(str::to_owned)),
            retry_after: field("retry-after").map(|text| text.parse().expect("whole seconds")),
        }
    }

    /// Each policy with `r`.
    fn remaining(&self) -> Vec<(&str, i64)> {
        self.rests.iter().map(|(name, parameters)| (name.as_str(), parameters[0].1)).collect()
    }

    /// `t` of the policy at `index`.
    fn reset(&self, index: usize) -> i64 {
        let (_, parameters) = &self.rests[index];
        assert_eq!((parameters.len(), parameters[1].0.as_str()), (2, "t"), "{self:?}");
        parameters[1].1
    }
}

fn get(client: &mut Client, path: &str, fields: &str) -> Told {
    let response = client.get(path, fields);
    Told::new(response.status, |name| response.header(name))
}

fn get_multiplexed(client: &Multiplexed, path: &str, key: &str) -> Told {
    let request = Request::get(format!("http://test{path}")).header("x-api-key", key);
    let answer = client.exchange(request.body(()).expect("a request"), Body::default()).expect("an answer");
    Told::new(answer.status, |name| answer.header(name))
}

/// A gateway whose consumers, by API key, have the windows of Kong on two routes: `/four` has a limit for each, `/one` a
/// limit with four rates.
fn kong(backend: &Backend, directory: &tempfile::TempDir) -> AllVersions {
    let (mut file, mut csv) = (everything_to(backend, "auth = \"keys\""), String::from("key,name\n"));
    for number in 0..40 {
        csv += &format!("secret-{number},consumer-{number}\n");
    }
    let path = directory.path().join("consumers.csv");
    std::fs::write(&path, csv).expect("the file can be written");
    let window = "algorithm = \"fixed-window\"\nalign = \"first-request\"\nkey = \"consumer\"\n";
    let rates = WINDOWS.map(|(_, count, seconds)| format!("\"{count}/{seconds}s\""));
    for ((name, ..), rate) in WINDOWS.iter().zip(&rates) {
        file += &format!("[limits.{name}]\n{window}rate = {rate}\n");
    }
    file += &format!("[limits.all]\n{window}rate = [{}]\n", rates.join(", "));
    for (path, limits) in
        [("four", "\"second\", \"minute\", \"hour\", \"day\""), ("one", "{ name = \"all\" }")]
    {
        file += &format!(
            "[[routes]]\npath = \"/{path}\"\nupstream = \"api\"\nauth = \"keys\"\nlimits = [{limits}]\n"
        );
    }
    file += &format!(
        "[auth.keys]\ntype = \"api-key\"\nfrom = \"header:x-api-key\"\nfile = \"{}\"\n{ALL}",
        path.display()
    );
    AllVersions::start(&file)
}

/// The names of the policies of a route of [`kong`].
fn names(path: &str) -> [String; 4] {
    WINDOWS.map(|(name, count, seconds)| match path {
        "/four" => name.to_owned(),
        _ => format!("all:{count}/{seconds}s"),
    })
}

/// Three requests are admitted, and the minute refuses the fourth. False if they took longer than the shortest window.
fn runs_through_the_windows(path: &str, mut get: impl FnMut() -> Told) -> bool {
    let begun = Instant::now();
    let all: Vec<Told> = (0..4).map(|_| get()).collect();
    if begun.elapsed() > Duration::from_millis(900) {
        return false;
    }
    let names = names(path);
    for (number, told) in (1..).zip(&all) {
        let refused = number == 4;
        let used = number.min(3);
        assert_eq!(told.status, if refused { 429 } else { 200 }, "{path} {number}: {told:?}");
        let policies = WINDOWS.iter().zip(&names);
        let expected: Vec<_> = policies
            .clone()
            .map(|((_, count, seconds), name)| member(name, &[("q", *count), ("w", *seconds)]))
            .collect();
        assert_eq!(told.policies, expected);
        let rests: Vec<_> = policies.map(|((_, count, _), name)| (name.as_str(), count - used)).collect();
        assert_eq!(told.remaining(), rests, "a refusal charges none");
        for (index, (_, _, seconds)) in WINDOWS.iter().enumerate() {
            let reset = told.reset(index);
            assert!((seconds - 2..=*seconds).contains(&reset), "{told:?}");
        }
        // The minute has the least left.
        let (left, reset) = ((3 - used).to_string(), told.reset(1));
        assert_eq!(told.legacy, [Some("3".to_owned()), Some(left), Some(reset.to_string())]);
        assert_eq!(told.retry_after.is_some(), refused);
        assert!(told.retry_after.is_none_or(|wait| reset <= wait), "{told:?}");
    }
    true
}

#[test]
fn every_window_of_a_consumer_is_listed_on_admitted_and_refused_responses() {
    let (backend, directory) = (Backend::ok(), tempfile::tempdir().expect("a directory"));
    let gateway = kong(&backend, &directory);
    let mut keys = (0..40).map(|number| format!("secret-{number}"));
    let (mut http1, others) = (Client::connect(gateway.addr()), gateway.clients());
    for path in ["/four", "/one"] {
        let mut one = |key: &str| get(&mut http1, path, &format!("x-api-key: {key}\r\n"));
        assert!(keys.by_ref().take(6).any(|key| runs_through_the_windows(path, || one(&key))), "too slow");
        for client in &others {
            let one = |key: &str| get_multiplexed(client, path, key);
            assert!(
                keys.by_ref().take(6).any(|key| runs_through_the_windows(path, || one(&key))),
                "too slow"
            );
        }
    }
}

/// A bucket that a test cannot fill again.
fn bucket(name: &str, count: u32, rest: &str) -> String {
    format!("[limits.{name}]\nalgorithm = \"token-bucket\"\nkey = \"ip\"\nrate = \"{count}/day\"\n{rest}\n")
}

#[test]
fn limits_that_decide_nothing_are_not_listed() {
    let backend = Backend::ok();
    let limits =
        "limits = [\"watched\", \"b\", \"exempt\", { name = \"free\", cost = 0 }, \"unkeyed\", \"a\"]\n";
    let rest = [
        limits.to_owned(),
        bucket("watched", 1, "mode = \"shadow\""),
        bucket("b", 5, ""),
        bucket("exempt", 2, "exempt = [\"header:x-vip=yes\"]"),
        bucket("free", 9, ""),
        bucket("unkeyed", 9, "").replace("\"ip\"", "\"header:x-none\"\nmissing = \"skip\""),
        bucket("a", 50, ""),
        ALL.to_owned(),
    ];
    let gateway = Gateway::start(&everything_to(&backend, &rest.concat()));
    let mut client = Client::connect(gateway.addr());
    let vip = get(&mut client, "/", "x-vip: yes\r\n");
    assert_eq!(vip.remaining(), [("b", 4), ("a", 49)]);
    let policies = [member("b", &[("q", 5), ("w", 86_400)]), member("a", &[("q", 50), ("w", 86_400)])];
    assert_eq!(vip.policies, policies);
    let other = get(&mut client, "/", "");
    assert_eq!((other.status, other.remaining()), (200, vec![("b", 3), ("exempt", 1), ("a", 48)]));
    get(&mut client, "/", "");
    let refused = get(&mut client, "/", "");
    assert_eq!((refused.status, refused.remaining()), (429, vec![("b", 2), ("exempt", 0), ("a", 47)]));
    assert_eq!(refused.legacy[0].as_deref(), Some("2"), "the legacy fields are those of the refusing limit");
    assert!(refused.retry_after.is_some_and(|wait| refused.reset(1) <= wait), "{refused:?}");
}

#[test]
fn a_concurrency_limit_is_listed_without_times() {
    let backend = HoldingBackend::start();
    let places = "[limits.places]\nalgorithm = \"concurrency\"\nkey = \"ip\"\nmax = 2\n";
    let file = format!(
        "[upstreams]\napi = \"{}\"\n[[routes]]\npath = \"/*\"\nupstream = \"api\"\nlimits = [\"places\", \"a\"]\n\
         [[routes]]\npath = \"/quick\"\nupstream = \"api\"\nlimits = [\"places\"]\n{places}{}{ALL}",
        backend.url(),
        bucket("a", 50, ""),
    );
    let gateway = Gateway::start(&file);
    let (mut first, mut second) = (Client::connect(gateway.addr()), Client::connect(gateway.addr()));
    let alone = get(&mut first, "/quick", "");
    assert_eq!(alone.policies, [member("places", &[("q", 2)])]);
    assert_eq!(alone.rests, [member("places", &[("r", 1)])]);
    assert_eq!(alone.legacy, [None, None, None], "no limit is the tightest");
    first.write("GET /held HTTP/1.1\r\nhost: test\r\n\r\n");
    backend.holds(1);
    second.write("GET /too HTTP/1.1\r\nhost: test\r\n\r\n");
    backend.holds(2);
    let refused = get(&mut Client::connect(gateway.addr()), "/third", "");
    assert_eq!((refused.status, refused.retry_after), (429, None));
    assert_eq!(refused.policies, [member("places", &[("q", 2)]), member("a", &[("q", 50), ("w", 86_400)])]);
    assert_eq!((refused.remaining(), refused.rests[0].1.len()), (vec![("places", 0), ("a", 48)], 1));
    assert_eq!(refused.legacy, [Some("2".to_owned()), Some("0".to_owned()), None]);
    for (client, path) in [(&mut first, "/held"), (&mut second, "/too")] {
        backend.release(path);
        let response = client.read().expect(200);
        let told = Told::new(response.status, |name| response.header(name));
        assert_eq!(told.rests[0].1.len(), 1, "{told:?}");
        assert_eq!(told.legacy[0].as_deref(), Some("50"), "places are the tightest only when they refuse");
    }
}

#[test]
fn the_backends_own_fields_are_replaced() {
    let head = "HTTP/1.1 200 OK\r\nratelimit: \"own\";r=9\r\nratelimit-policy: \"own\";q=9\r\n\
                x-ratelimit-limit: 99\r\ncontent-length: 0\r\n\r\n";
    let backend = Backend::answering(head);
    let places =
        "limits = [\"places\"]\n[limits.places]\nalgorithm = \"concurrency\"\nkey = \"ip\"\nmax = 2\n";
    let gateway = Gateway::start(&everything_to(&backend, &format!("{places}{ALL}")));
    let told = get(&mut Client::connect(gateway.addr()), "/", "");
    assert_eq!(told.rests, [member("places", &[("r", 1)])]);
    assert_eq!(told.policies, [member("places", &[("q", 2)])]);
    assert_eq!(told.legacy, [None, None, None]);
}

#[test]
fn only_the_standard_fields_list() {
    let backend = Backend::ok();
    for (mode, listed, legacy) in
        [("standard", 2, false), ("legacy", 0, true), ("both", 2, true), ("off", 0, false)]
    {
        let limits = [bucket("a", 5, ""), bucket("b", 1, "")].concat();
        let rest = format!("limits = [\"a\", \"b\"]\n{limits}{ALL}ratelimit_headers = \"{mode}\"\n");
        let gateway = Gateway::start(&everything_to(&backend, &rest));
        let mut client = Client::connect(gateway.addr());
        for status in [200, 429] {
            let told = get(&mut client, "/", "");
            assert_eq!(told.status, status);
            assert_eq!((told.policies.len(), told.rests.len()), (listed, listed), "{mode}: {told:?}");
            assert_eq!(told.legacy[0].as_deref(), legacy.then_some("1"), "{mode}");
        }
    }
}

#[test]
fn a_refusal_of_a_ban_shows_the_banned_limit() {
    let backend = Backend::ok();
    let ban = "ban = { after = 1, within = \"1h\", for = \"2h\" }";
    let limits = [bucket("a", 50, ""), bucket("b", 1, ban)].concat();
    let gateway =
        Gateway::start(&everything_to(&backend, &format!("limits = [\"a\", \"b\"]\n{limits}{ALL}")));
    let mut client = Client::connect(gateway.addr());
    get(&mut client, "/", "");
    get(&mut client, "/", "");
    let banned = get(&mut client, "/", "");
    assert_eq!((banned.status, banned.remaining()), (429, vec![("b", 0)]));
    // The ban lasts two hours, and what the request needs is there in a day.
    assert!((86_000..=86_400).contains(&banned.reset(0)), "{banned:?}");
    assert_eq!(banned.retry_after, Some(banned.reset(0)));
}

#[test]
fn a_refusal_for_wrong_credentials_lists_the_rates_of_their_limit() {
    let (backend, directory) = (Backend::ok(), tempfile::tempdir().expect("a directory"));
    let path = directory.path().join("consumers.csv");
    std::fs::write(&path, "key,name\nright-key,ada\n").expect("the file can be written");
    let rest = format!(
        "auth = \"keys\"\n[limits.wrong]\nalgorithm = \"sliding-log\"\nkey = \"ip\"\nrate = [\"1/h\", \"9/day\"]\n\
         [auth.keys]\ntype = \"api-key\"\nfrom = \"header:x-api-key\"\nfile = \"{}\"\nfailures = \"wrong\"\n{ALL}",
        path.display()
    );
    let gateway = Gateway::start(&everything_to(&backend, &rest));
    let mut client = Client::connect(gateway.addr());
    let first = get(&mut client, "/", "x-api-key: wrong\r\n");
    assert_eq!((first.status, first.rests.len()), (401, 0));
    let second = get(&mut client, "/", "x-api-key: wrong\r\n");
    assert_eq!((second.status, second.remaining()), (429, vec![("wrong:1/h", 0), ("wrong:9/day", 8)]));
}

#[test]
fn a_limit_that_the_store_was_not_asked_about_is_not_listed() {
    let backend = Backend::ok();
    let (away, _held) = Backend::refusing();
    let limits =
        [bucket("open", 5, "on_error = \"allow\""), bucket("kept", 5, "on_error = \"local\"")].concat();
    let rest = format!(
        "limits = [\"open\", \"kept\"]\n{limits}[store]\nbackend = \"redis\"\nurl = \"redis://{away}\"\n{ALL}"
    );
    let gateway = Gateway::start(&everything_to(&backend, &rest));
    let told = get(&mut Client::connect(gateway.addr()), "/", "");
    assert_eq!((told.status, told.remaining()), (200, vec![("kept", 4)]));
}
