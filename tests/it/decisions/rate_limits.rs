//! Envoy's rate limit service: the codes, numbers and fields of its answers.

use tollgate::rate_limit_service::{HEALTH_CHECK, RateLimitCode, RateLimitResponse, SHOULD_RATE_LIMIT};

use super::is_ok;
use crate::harness::{Gateway, RateLimitClient, descriptor, message};

const FILE: &str = "
[admin]
listen = \"127.0.0.1:0\"
[decisions]
listen = \"127.0.0.1:0\"
[limits.per-address]
algorithm = \"fixed-window\"
align = \"first-request\"
key = \"descriptor:remote_address\"
rate = \"3/h\"
[limits.per-key]
algorithm = \"gcra\"
key = \"descriptor:api_key\"
rate = \"2/min\"
burst = 2
[limits.all]
algorithm = \"token-bucket\"
key = \"global\"
rate = \"20/h\"
[limits.budget]
algorithm = \"fixed-window\"
align = \"first-request\"
key = \"descriptor:plan\"
rate = \"10/h\"
[[descriptors]]
domain = \"shop\"
match = { generic_key = \"search\", remote_address = \"*\" }
limits = [\"per-address\", \"all\"]
[[descriptors]]
match = { api_key = \"*\" }
limits = [\"per-key\"]
[[descriptors]]
match = { api_key = \"unlimited\" }
[[descriptors]]
match = { plan = \"*\" }
limits = [\"budget\"]
cost = 2
[[descriptors]]
match = { plan = \"*\", done = \"yes\" }
limits = [\"budget\"]
report = true
";

fn start() -> (Gateway, RateLimitClient) {
    let gateway = Gateway::start(FILE);
    let client = RateLimitClient::connect(gateway.decisions_addr());
    (gateway, client)
}

fn field<'r>(response: &'r RateLimitResponse, name: &str) -> Option<&'r str> {
    let mut fields = response.response_headers_to_add.iter();
    fields.find(|field| field.key == name).map(|field| &*field.value)
}

/// `remaining` of each descriptor, and whether it admits.
fn numbers(response: &RateLimitResponse) -> Vec<(bool, u32)> {
    let one = |status: &tollgate::rate_limit_service::DescriptorStatus| {
        (status.code == i32::from(RateLimitCode::Ok), status.limit_remaining)
    };
    response.statuses.iter().map(one).collect()
}

#[test]
fn a_refusal_has_the_fields_and_the_body_of_the_gateways_own() {
    let (_gateway, client) = start();
    let call =
        message("shop", &[descriptor(&[("generic_key", "search"), ("remote_address", "192.0.2.1")], None)]);
    for left in [2, 1, 0] {
        let admitted = client.ask(&call).expect("an answer");
        assert!(is_ok(&admitted));
        assert_eq!(numbers(&admitted), [(true, left)]);
        assert_eq!(field(&admitted, "x-ratelimit-remaining"), Some(&*left.to_string()));
        // Envoy appends them to the response of the backend.
        assert_eq!((field(&admitted, "content-type"), field(&admitted, "retry-after")), (None, None));
        assert!(admitted.raw_body.is_empty());
        let limit = admitted.statuses[0].current_limit.clone().expect("an hour is one of Envoy's units");
        assert_eq!((limit.requests_per_unit, limit.unit, &*limit.name), (3, 3, "per-address"));
    }
    let refused = client.ask(&call).expect("an answer");
    assert_eq!(
        (refused.overall_code, numbers(&refused)),
        (i32::from(RateLimitCode::OverLimit), vec![(false, 0)])
    );
    let wait: u64 = field(&refused, "retry-after").expect("a wait").parse().expect("seconds");
    assert!((3_590..=3_600).contains(&wait), "{wait}");
    let reset = refused.statuses[0].duration_until_reset.expect("a time");
    assert!(
        reset.seconds.unsigned_abs() < wait && reset.seconds.unsigned_abs() + 2 > wait,
        "{reset:?} {wait}"
    );
    assert_eq!(field(&refused, "content-type"), Some("application/problem+json"));
    assert_eq!(field(&refused, "ratelimit-policy"), Some("\"per-address\";q=3;w=3600"));
    let problem: serde_json::Value = serde_json::from_slice(&refused.raw_body).expect("JSON");
    assert_eq!((problem["status"].as_u64(), problem["retry_after"].as_u64()), (Some(429), Some(wait)));
    for own in ["date", "content-length", "connection"] {
        assert_eq!(field(&refused, own), None, "Envoy has its own {own}");
    }
    // Another domain has no rule for these entries.
    let elsewhere = message("other", &call.descriptors);
    assert_eq!(numbers(&client.ask(&elsewhere).expect("an answer")), [(true, 0)]);
}

#[test]
fn of_two_descriptors_all_are_charged_or_none() {
    let (_gateway, client) = start();
    let address = descriptor(&[("remote_address", "192.0.2.1"), ("generic_key", "search")], None);
    let key = descriptor(&[("api_key", "k1")], None);
    let both = message("shop", &[key.clone(), address.clone()]);
    assert_eq!(numbers(&client.ask(&both).expect("an answer")), [(true, 1), (true, 2)]);
    assert_eq!(numbers(&client.ask(&both).expect("an answer")), [(true, 0), (true, 1)]);
    for _ in 0..3 {
        let refused = client.ask(&both).expect("an answer");
        assert!(!is_ok(&refused));
        assert_eq!(numbers(&refused), [(false, 0), (true, 1)], "the other is not charged");
        assert_eq!(field(&refused, "ratelimit-policy"), Some("\"per-key\";q=2;w=60"));
    }
    let alone = client.ask(&message("shop", &[address])).expect("an answer");
    assert_eq!(numbers(&alone), [(true, 0)]);
}

#[test]
fn hits_are_those_of_the_descriptor_or_else_of_the_call_and_at_least_one() {
    let (_gateway, client) = start();
    let plan = |name: &str, hits| descriptor(&[("plan", name)], hits);
    for (call_hits, own, left) in [
        (0, None, 8),
        (1, None, 8),
        (3, None, 4),
        (3, Some(1), 8),
        (0, Some(5), 0),
        (0, Some(0), 10),
        (7, Some(0), 10),
    ] {
        let name = format!("{call_hits} {own:?}");
        let mut call = message("any", &[plan(&name, own)]);
        call.hits_addend = call_hits;
        assert_eq!(numbers(&client.ask(&call).expect("an answer")), [(true, left)], "{name}");
    }
    // More than any limit holds is refused, and not counted as less.
    for hits in [6, u64::from(u32::MAX) + 1, u64::MAX] {
        let call = message("any", &[plan("large", Some(hits))]);
        assert_eq!(numbers(&client.ask(&call).expect("an answer")), [(false, 10)], "{hits}");
    }
}

#[test]
fn reports_use_a_budget_up_and_asking_tells_so() {
    let (_gateway, client) = start();
    let asked = message("any", &[descriptor(&[("plan", "gold")], Some(0))]);
    let report = |hits| message("any", &[descriptor(&[("plan", "gold"), ("done", "yes")], hits)]);
    assert!(is_ok(&client.ask(&asked).expect("an answer")));
    for hits in [Some(4), None, Some(0), Some(30)] {
        let reported = client.ask(&report(hits)).expect("an answer");
        assert!(is_ok(&reported), "a report is always answered OK: {hits:?}");
    }
    let refused = client.ask(&asked).expect("an answer");
    assert!(!is_ok(&refused) && field(&refused, "retry-after").is_some());
    assert!(is_ok(&client.ask(&report(Some(1))).expect("an answer")));
    // It is in debt: an ordinary call is refused, too.
    assert!(!is_ok(
        &client.ask(&message("any", &[descriptor(&[("plan", "gold")], None)])).expect("an answer")
    ));
    assert!(is_ok(
        &client.ask(&message("any", &[descriptor(&[("plan", "other")], None)])).expect("an answer")
    ));
}

#[test]
fn asking_beside_a_charge_decides_both() {
    let (_gateway, client) = start();
    let key = descriptor(&[("api_key", "k1")], None);
    let asked = |plan: &str| descriptor(&[("plan", plan)], Some(0));
    let full = message("any", &[descriptor(&[("plan", "full"), ("done", "yes")], Some(10))]);
    client.ask(&full).expect("an answer");
    let refused = client.ask(&message("any", &[key.clone(), asked("full")])).expect("an answer");
    assert_eq!((is_ok(&refused), numbers(&refused)), (false, vec![(true, 2), (false, 0)]));
    let admitted = client.ask(&message("any", &[key, asked("new")])).expect("an answer");
    assert_eq!((is_ok(&admitted), numbers(&admitted)), (true, vec![(true, 1), (true, 10)]));
}

#[test]
fn no_rule_is_no_limit_and_the_most_values_win() {
    let (gateway, client) = start();
    for entries in [&[("api_key", "unlimited")][..], &[("x", "y")], &[("api_key", "k"), ("x", "y")], &[]] {
        for _ in 0..5 {
            let answer = client.ask(&message("any", &[descriptor(entries, None)])).expect("an answer");
            assert_eq!((is_ok(&answer), numbers(&answer)), (true, vec![(true, 0)]), "{entries:?}");
            assert!(answer.response_headers_to_add.is_empty());
        }
    }
    assert!(is_ok(&client.ask(&message("any", &[])).expect("an answer")));
    let allowed = ["protocol=\"grpc\"", "result=\"allowed\""];
    gateway.has_counted("tollgate_decision_calls_total", &allowed, 21);
}

#[test]
fn values_are_bytes() {
    let (_gateway, client) = start();
    let with = |value: &[u8]| {
        let mut one = descriptor(&[("api_key", "")], None);
        one.entries[0].value = value.to_vec();
        message("any", &[one])
    };
    let long = vec![b'a'; 60 << 10];
    for value in [&b"\xff\xfek"[..], b"\xff\xfel", b"", b"\0", &long] {
        let admitted: Vec<_> = (0..4).map(|_| is_ok(&client.ask(&with(value)).expect("an answer"))).collect();
        assert_eq!(admitted, [true, true, false, false], "{}", value.len());
    }
}

#[test]
fn health_is_told_until_the_gateway_drains() {
    let (gateway, client) = start();
    let asked = |service: &[u8]| {
        let mut body = vec![0, 0, 0, 0, 0];
        if !service.is_empty() {
            body.extend([0x0a, u8::try_from(service.len()).expect("short")]);
            body.extend(service);
        }
        body[4] = u8::try_from(body.len() - 5).expect("short");
        client.call(HEALTH_CHECK, &body)
    };
    let serving = Ok(vec![0, 0, 0, 0, 2, 8, 1]);
    assert_eq!(asked(b""), serving);
    assert_eq!(asked(b"envoy.service.ratelimit.v3.RateLimitService"), serving);
    assert_eq!(asked(b"other"), Err(5));
    let missing = |path: &str| client.call(path, &[0; 5]);
    assert_eq!(missing("/grpc.health.v1.Health/Watch"), Err(12));
    assert_eq!(missing("/envoy.service.ratelimit.v2.RateLimitService/ShouldRateLimit"), Err(12));
    assert_eq!(missing(SHOULD_RATE_LIMIT), Ok(vec![0, 0, 0, 0, 2, 8, 1]), "an empty call: OK");
    drop(gateway);
}
