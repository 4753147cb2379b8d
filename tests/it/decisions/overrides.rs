//! Numbers that a descriptor brings: `override = true`.

use tollgate::rate_limit_service::{RateLimitDescriptor, RateLimitOverride};

use super::is_ok;
use crate::harness::{Gateway, RateLimitClient, Redis, descriptor, message};

const SECOND: i32 = 1;
const HOUR: i32 = 3;
const DAY: i32 = 4;
const MONTH: i32 = 5;

const FILE: &str = "
[admin]
listen = \"127.0.0.1:0\"
[decisions]
listen = \"127.0.0.1:0\"
[limits.window]
algorithm = \"fixed-window\"
align = \"first-request\"
key = \"descriptor:window\"
rate = \"2/h\"
[limits.bucket]
algorithm = \"token-bucket\"
key = \"descriptor:bucket\"
rate = \"2/h\"
[limits.spaced]
algorithm = \"gcra\"
key = \"descriptor:spaced\"
rate = \"2/h\"
burst = 2
[limits.monthly]
algorithm = \"fixed-window\"
key = \"descriptor:monthly\"
rate = \"2/month\"
align = \"calendar\"
time_zone = \"UTC\"
[[descriptors]]
match = { window = \"*\" }
limits = [\"window\"]
override = true
[[descriptors]]
match = { bucket = \"*\" }
limits = [\"bucket\"]
override = true
[[descriptors]]
match = { spaced = \"*\" }
limits = [\"spaced\"]
override = true
[[descriptors]]
match = { monthly = \"*\" }
limits = [\"monthly\"]
override = true
[[descriptors]]
match = { window = \"*\", plain = \"yes\" }
limits = [\"window\"]
";

fn with(entries: &[(&str, &str)], units: u32, unit: i32) -> RateLimitDescriptor {
    let limit = Some(RateLimitOverride { requests_per_unit: units, unit });
    RateLimitDescriptor { limit, ..descriptor(entries, None) }
}

/// The calls that pass, of so many, and the quota and unit of the last answer.
fn passing(
    client: &RateLimitClient,
    descriptor: &RateLimitDescriptor,
    calls: u32,
) -> (u32, Option<(u32, i32)>) {
    let mut told = None;
    let passes = (0..calls).filter(|_| {
        let answer = client.ask(&message("any", std::slice::from_ref(descriptor))).expect("an answer");
        let limit = answer.statuses[0].current_limit.as_ref();
        told = limit.map(|limit| (limit.requests_per_unit, limit.unit));
        is_ok(&answer)
    });
    let passes = u32::try_from(passes.count()).expect("few");
    (passes, told)
}

#[test]
fn numbers_of_a_descriptor_apply_in_place_of_those_of_the_limit() {
    let gateway = Gateway::start(FILE);
    let client = RateLimitClient::connect(gateway.decisions_addr());
    for name in ["window", "bucket", "spaced", "monthly"] {
        let unit = if name == "monthly" { MONTH } else { HOUR };
        assert_eq!(passing(&client, &descriptor(&[(name, "a")], None), 4).0, 2, "{name}");
        // Of what is evenly spaced the descriptor brings the rate alone, which is not the quota.
        let (quota, told) = if name == "spaced" { (2, None) } else { (5, Some((5, unit))) };
        assert_eq!(passing(&client, &with(&[(name, "b")], 5, unit), 8), (quota, told), "{name}");
        // With the period of the limit it is the limit's own counter.
        assert_eq!(passing(&client, &with(&[(name, "a")], 5, unit), 8).0, quota - 2, "{name}");
    }
}

#[test]
fn another_period_has_counters_of_its_own() {
    let gateway = Gateway::start(FILE);
    let client = RateLimitClient::connect(gateway.decisions_addr());
    for name in ["window", "bucket", "monthly"] {
        assert_eq!(passing(&client, &descriptor(&[(name, "a")], None), 4).0, 2, "{name}");
        assert_eq!(passing(&client, &with(&[(name, "a")], 3, DAY), 5), (3, Some((3, DAY))), "{name}");
        assert_eq!(passing(&client, &descriptor(&[(name, "a")], None), 1).0, 0, "{name}");
    }
}

#[test]
fn none_are_none_and_unknown_units_override_nothing() {
    let gateway = Gateway::start(FILE);
    let client = RateLimitClient::connect(gateway.decisions_addr());
    let none = with(&[("window", "a")], 0, HOUR);
    assert_eq!(passing(&client, &none, 2), (0, Some((0, HOUR))));
    let answer = client.ask(&message("any", &[none])).expect("an answer");
    assert_eq!(answer.statuses[0].limit_remaining, 0);
    assert_eq!(passing(&client, &with(&[("window", "a")], 9, 0), 4).0, 2, "an unknown unit");
    assert_eq!(passing(&client, &with(&[("window", "b")], 9, 99), 4).0, 2, "an unknown unit");
    assert_eq!(passing(&client, &with(&[("window", "c")], u32::MAX, SECOND), 50).0, 50, "more than can be");
    let plain = with(&[("window", "d"), ("plain", "yes")], 9, HOUR);
    assert_eq!(passing(&client, &plain, 4).0, 2, "the rule takes none");
    // More numbers than are kept: those that are made again go on counting.
    for units in 1..1_200 {
        passing(&client, &with(&[("window", "e")], 10_000 + units, HOUR), 1);
    }
    let (passes, told) = passing(&client, &with(&[("window", "e")], 1_200, HOUR), 4);
    assert_eq!((passes, told), (1, Some((1_200, HOUR))), "1,199 calls before");
}

/// All gateways count in the same counters.
#[test]
fn a_fleet_shares_what_is_overridden() {
    let redis = Redis::start();
    let file = format!(
        "{FILE}\n[store]\nbackend = \"redis\"\nurl = \"{}\"\nsecret = \"0123456789abcdef0123456789abcdef\"\ntimeout = \"5s\"\n",
        redis.url()
    );
    let gateways = [(); 2].map(|()| Gateway::start(&file));
    let clients = gateways.each_ref().map(|gateway| RateLimitClient::connect(gateway.decisions_addr()));
    for name in ["window", "bucket", "monthly"] {
        let one = with(&[(name, "a")], 7, DAY);
        let passes: u32 = (0..6).map(|call| passing(&clients[call % 2], &one, 2).0).sum();
        assert_eq!(passes, 7, "{name}");
    }
}
