//! Steps of a decision that the world seldom takes.

use std::net::IpAddr;

use tollgate::config;
use tollgate::http1::request::RequestHead;
use tollgate::limit::units::{Micros, Timestamp};
use tollgate::plan::admission::RefusalCause;
use tollgate::plan::decision::{DecisionObserver, Need, RequestDecision, RequestVerdict, Ruled};
use tollgate::plan::resolve::{Peer, locate};
use tollgate::route::key::KeySecret;
use tollgate::store::bans::Bans;
use tollgate::store::overrides::Overrides;
use tollgate::store::{Known, Outcome};

const FILE: &str = r#"
[upstreams]
api = "builtin:echo"
[limits.other]
algorithm = "gcra"
rate = "1/s"
key = "ip"
[limits.banning]
algorithm = "gcra"
rate = "1/s"
key = "ip"
ban = { after = 2, within = "1min", for = "1h" }
[[routes]]
path = "/*"
upstream = "api"
limits = ["other", "banning"]
"#;

struct Unobserved;

impl DecisionObserver<'_> for Unobserved {
    fn ruled(&mut self, _: &Ruled<'_, '_, '_>) {}
}

/// The store has refused the request for a ban and has decided nothing; meanwhile the ban was lifted, or the table of bans
/// was full.
#[test]
fn a_request_that_the_store_has_refused_for_a_ban_is_not_admitted_though_the_ban_is_gone() {
    let loaded = config::parse(FILE.as_bytes(), "test.toml", &|_| None);
    let plan = loaded.unwrap_or_else(|report| panic!("{report:?}")).plan;
    let mut spans = Vec::new();
    let head = RequestHead::parse(b"GET / HTTP/1.1\r\nhost: test\r\n\r\n", &mut spans).expect("a head");
    let peer =
        Peer { address: IpAddr::from([192, 0, 2, 1]), secure: false, certificate: None, listener: None };
    let mut seen = None;
    let Ok(located) = locate(&plan, None, &head, peer, &mut seen).outcome else { panic!("a route") };
    let mut decision = RequestDecision::new(&plan, &KeySecret::Process([7; 16]), located, 0);
    let known = Known { bans: Bans::none(), overrides: Overrides::none(), memory: None, now: Timestamp(1) };
    assert_eq!(decision.begin(known, &mut Unobserved), Need::Store);
    let outcome = Outcome { banned: true, ..Outcome::default() };
    assert_eq!(decision.decided(&outcome, known, &mut Unobserved), Need::Done);
    let RequestVerdict::Refused(refusal, Some(_)) = decision.verdict() else { panic!("a refusal") };
    assert_eq!((&*refusal.limit.name, refusal.wait), ("banning", Some(Micros::SECOND)));
    assert!(matches!(refusal.why, RefusalCause::Banned { .. }));
}
