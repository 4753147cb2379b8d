//! The same input has the same result: nothing is drawn, remembered or read from a clock.

use std::net::IpAddr;

use proptest::prelude::*;
use tollgate::config;
use tollgate::http1::request::RequestHead;
use tollgate::limit::units::Timestamp;
use tollgate::plan::Plan;
use tollgate::plan::decision::{DecisionObserver, RequestDecision, Ruled};
use tollgate::plan::resolve::{Peer, locate};
use tollgate::route::key::KeySecret;
use tollgate::store::Known;
use tollgate::store::bans::Bans;
use tollgate::store::overrides::Overrides;

const FILE: &str = r#"
[server]
trusted_proxies = ["10.0.0.0/8"]
[upstreams]
blue = "http://10.0.0.1:9000"
green = "http://10.0.0.2:9000"
[limits.each]
algorithm = "token-bucket"
rate = "10/s"
key = ["ip", "path", "header:x-org"]
missing = "deny"
[limits.stricter]
algorithm = "gcra"
rate = "1/s"
key = "ip"
trial = 0.5
[[routes]]
name = "split"
path = "/split/*"
upstream = { blue = 50, green = 50 }
limits = ["each", "stricter"]
[[routes]]
name = "sticky split"
path = "/keyed/:id"
upstream = { blue = 50, green = 50 }
upstream_key = "ip"
strip_prefix = "/keyed"
limits = ["stricter"]
[[routes]]
name = "old"
path = "/old/*"
redirect = { to = "https://new.example.com/{*}", status = 308 }
limits = ["each"]
[[routes]]
name = "secure"
path = "/secure"
redirect = "https"
upstream = "blue"
"#;

fn plan() -> Plan {
    config::parse(FILE.as_bytes(), "test.toml", &|_| None).unwrap_or_else(|report| panic!("{report:?}")).plan
}

fn heads() -> impl Strategy<Value = String> {
    let path = "/(split|keyed|old|secure|other)(/[a-c%2fE.;]{0,6}){0,2}(\\?[a-c=&]{0,6})?";
    let fields = prop::collection::vec(
        prop_oneof![
            "x-org: [a-c]{1,2}\r\n",
            "x-forwarded-for: (192\\.0\\.2\\.[1-9]|x)\r\n",
            "x-forwarded-proto: https?\r\n",
            "expect: (100-continue|x)\r\n",
        ],
        0..4,
    );
    ("(GET|POST|OPTIONS)", path, fields).prop_map(|(method, path, fields)| {
        format!("{method} {path} HTTP/1.1\r\nhost: test\r\n{}\r\n", fields.concat())
    })
}

/// All that is found out about a request, as text.
fn resolved(plan: &Plan, head: &RequestHead<'_>, peer: Peer<'_>, draw: u64) -> String {
    let mut seen = None;
    let location = locate(plan, None, head, peer, &mut seen);
    let found = format!("{location:?}");
    let Ok(located) = location.outcome else { return found };
    let secret = KeySecret::Process([7; 16]);
    let mut decision = RequestDecision::new(plan, &secret, located, draw);
    let known = Known { bans: Bans::none(), overrides: Overrides::none(), memory: None, now: Timestamp(1) };
    let need = decision.begin(known, &mut Unobserved);
    format!("{found}\n{need:?}\n{:?}", decision.request())
}

struct Unobserved;

impl DecisionObserver<'_> for Unobserved {
    fn ruled(&mut self, _: &Ruled<'_, '_, '_>) {}
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    #[test]
    fn what_is_resolved_twice_is_resolved_alike(text in heads(), last in 1_u8..9, draw in any::<u64>()) {
        let plan = plan();
        let mut spans = Vec::new();
        let Ok(head) = RequestHead::parse(text.as_bytes(), &mut spans) else { return Ok(()) };
        let peer = Peer { address: IpAddr::from([10, 0, 0, last]), secure: false, certificate: None, listener: None };
        prop_assert_eq!(resolved(&plan, &head, peer, draw), resolved(&plan, &head, peer, draw));
    }
}
