use http::Method;
use proptest::prelude::*;

use super::*;
use crate::http1::fields::{FieldSpan, Fields};
use crate::route::client::ClientAddress;
use crate::route::locations::ClientLocation;
use crate::route::path::{Path, PathMatching};

const NAMES: &[&str] = &["x", "x-tenant", "te"];
const NETWORKS: &[&str] = &[
    "0.0.0.0/0",
    "10.0.0.0/8",
    "10.1.0.0/16",
    "10.1.2.3/32",
    "192.0.2.0/24",
    "2001:db8::/32",
    "2001:db8::1/128",
];
const CLIENTS: &[&str] = &["10.1.2.3", "10.9.9.9", "192.0.2.7", "198.51.100.1", "2001:db8::1", "2001:db9::1"];

/// The parts of a request that candidates see.
#[derive(Clone, Debug)]
struct Sent {
    fields: Vec<(String, String)>,
    query: String,
    client: &'static str,
    identified: bool,
}

fn pattern() -> impl Strategy<Value = ValuePattern> {
    let values = vec![
        "a", "A", "b", "ab", "0", "1", "*", "a*", "ab*", "b*", "*b", "*ab", "*c", "*a*", "*bc*", "~^a",
        "~*^A", "~(b|c)$", "~^.$", "~b+",
    ];
    let text = prop::sample::select(values).prop_map(|text| ValuePattern::parse(text).unwrap());
    prop_oneof![9 => text, 1 => Just(ValuePattern::Absent)]
}

/// The conditions of one route: often several values of one source.
fn asked() -> impl Strategy<Value = Vec<Condition>> {
    let name = || prop::sample::select(NAMES);
    let patterns = || prop::collection::vec(pattern(), 1..4);
    let networks = prop::collection::vec(prop::sample::select(NETWORKS), 1..4);
    let condition = prop_oneof![
        3 => (name(), patterns()).prop_map(|(name, values)| Condition::header(HeaderName::from_static(name), values)),
        2 => (name(), patterns()).prop_map(|(name, values)| Condition::query(name, values)),
        1 => (name(), patterns()).prop_map(|(name, values)| Condition::cookie(name, values)),
        1 => (name(), patterns()).prop_map(|(name, values)| Condition::query(name, values).negated()),
        1 => networks.prop_map(|networks| Condition::clients(networks.iter().map(|one| one.parse().unwrap()))),
    ];
    prop::collection::vec(condition, 0..4)
}

/// Names in any case, any of them often.
fn sent() -> impl Strategy<Value = Sent> {
    let name = || prop::sample::select(NAMES);
    let any_case = name().prop_flat_map(|name| {
        let upper = prop::collection::vec(any::<bool>(), name.len());
        upper.prop_map(|upper| {
            let letters = name.chars().zip(upper);
            letters.map(|(letter, upper)| if upper { letter.to_ascii_uppercase() } else { letter }).collect()
        })
    });
    let fields = prop::collection::vec((any_case, "a|A|b|ab|abc|0|1||c"), 0..8);
    let query = prop::collection::vec((name(), "a|%61|A|b|a%62|ab+c|0||c"), 0..5);
    let cookie = (name(), "a|A|b|a%62|abc||c")
        .prop_map(|(name, value)| ("cookie".to_owned(), format!("z=0; {name}={value}")));
    let cookies = prop::collection::vec(cookie, 0..3);
    let fields = (fields, cookies).prop_map(|(fields, cookies)| [fields, cookies].concat());
    let client = prop::sample::select(CLIENTS);
    (fields, query, client, any::<bool>()).prop_map(|(fields, query, client, identified)| {
        let pairs: Vec<_> = query.into_iter().map(|(name, value)| format!("{name}={value}")).collect();
        Sent { fields, query: pairs.join("&"), client, identified }
    })
}

/// Calls `look` with the request.
fn with_request<T>(sent: &Sent, look: impl FnOnce(&RouteRequest<'_>) -> T) -> T {
    let (mut text, mut spans) = (Vec::new(), Vec::new());
    for (name, value) in &sent.fields {
        let at = text.len();
        let span = FieldSpan::new(at, name.as_bytes(), at + name.len(), value.as_bytes());
        spans.push(span.expect("a short field"));
        text.extend_from_slice(name.as_bytes());
        text.extend_from_slice(value.as_bytes());
    }
    let path = Path::parse("/", PathMatching::Strict).expect("a path");
    let address = sent.client.parse().expect("an address");
    look(&RouteRequest {
        method: &Method::GET,
        host: "",
        path: &path,
        query: Some(&sent.query),
        headers: Fields::new(&text, &spans),
        body: crate::http1::request::Body::EMPTY,
        client: ClientAddress {
            address,
            network: address,
            identified: sent.identified,
            location: ClientLocation::default(),
        },
        certificate: None,
        listener: None,
        content: &crate::route::content::RequestContent::Unknown,
        consumer: None,
        upstream: None,
    })
}

fn header(name: &'static str, value: &str) -> Condition {
    Condition::header(HeaderName::from_static(name), [ValuePattern::parse(value).unwrap()])
}

#[test]
fn of_thousands_of_routes_one_is_tried() {
    let by_tenant: fn(usize) -> Vec<Condition> = |number| vec![header("x-tenant", &number.to_string())];
    let by_prefix: fn(usize) -> Vec<Condition> = |number| vec![header("x-tenant", &format!("{number:05}*"))];
    let by_query: fn(usize) -> Vec<Condition> =
        |number| vec![Condition::query("page", [ValuePattern::parse(&number.to_string()).unwrap()])];
    let by_client: fn(usize) -> Vec<Condition> = |number| {
        let network = format!("10.{}.{}.0/24", number / 256, number % 256);
        vec![Condition::clients([network.parse().unwrap()])]
    };
    let by_suffix: fn(usize) -> Vec<Condition> = |number| vec![header("x-tenant", &format!("*{number:05}"))];
    let by_text: fn(usize) -> Vec<Condition> = |number| vec![header("x-tenant", &format!("*-{number:05}-*"))];
    let by_regex: fn(usize) -> Vec<Condition> =
        |number| vec![header("x-tenant", &format!("~*^a-{number:05}-[a-z]$"))];
    let by_list: fn(usize) -> Vec<Condition> = |number| {
        let patterns = [format!("a-{number:05}*"), format!("*{number:05}-b")];
        let patterns = patterns.map(|text| ValuePattern::parse(&text).unwrap());
        vec![Condition::header(HeaderName::from_static("x-tenant"), patterns)]
    };
    let by_cookie: fn(usize) -> Vec<Condition> =
        |number| vec![Condition::cookie("tenant", [ValuePattern::parse(&number.to_string()).unwrap()])];
    let by_two: fn(usize) -> Vec<Condition> = |number| {
        vec![
            header("x-plan", "7"),
            header("x", &(number / 70).to_string()),
            header("y", &(number % 70).to_string()),
        ]
    };
    let fields = |pairs: &[(&str, &str)]| {
        pairs.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect()
    };
    let sent = Sent {
        fields: fields(&[("x-tenant", "4321")]),
        query: "page=4321".into(),
        client: "10.16.225.9",
        identified: true,
    };
    let prefixed = Sent { fields: fields(&[("x-tenant", "04321-b")]), ..sent.clone() };
    let suffixed = Sent { fields: fields(&[("x-tenant", "b-04321")]), ..sent.clone() };
    let inside = Sent { fields: fields(&[("x-tenant", "a-04321-b")]), ..sent.clone() };
    let cookies = fields(&[("cookie", "tenants=9; x=1"), ("Cookie", "a=b;tenant=\"4321\"")]);
    let cookies = Sent { fields: cookies, ..sent.clone() };
    let two = Sent { fields: fields(&[("x-plan", "7"), ("x", "61"), ("y", "51")]), ..sent.clone() };
    let rows = [
        (by_tenant, &sent),
        (by_prefix, &prefixed),
        (by_suffix, &suffixed),
        (by_text, &inside),
        (by_regex, &inside),
        (by_list, &inside),
        (by_cookie, &cookies),
        (by_query, &sent),
        (by_client, &sent),
        (by_two, &two),
    ];
    for (asked, sent) in rows {
        let mut candidates = Candidates::default();
        (0..4_900).for_each(|rank| candidates.push(rank, &asked(rank)));
        candidates.index();
        let tried = std::cell::Cell::new(0);
        let accepts = |_| {
            tried.set(tried.get() + 1);
            true
        };
        let found = with_request(sent, |request| candidates.first(Rank::MAX, request, &accepts));
        assert_eq!((found, tried.get()), (Some(4_321), 1), "{:?}", asked(4_321));
    }
}

proptest! {
    /// The index equals trying every route in turn, and no route is tried twice.
    #[test]
    fn the_index_equals_trying_every_route(
        routes in prop::collection::vec((asked(), any::<bool>()), 0..60),
        requests in prop::collection::vec((sent(), 0..70_usize), 1..6),
    ) {
        let mut candidates = Candidates::default();
        routes.iter().enumerate().for_each(|(rank, (conditions, _))| candidates.push(rank, conditions));
        candidates.index();
        prop_assert!(candidates.ranks().eq(0..routes.len()));
        for (sent, bound) in requests {
            let asked = std::cell::RefCell::new(Vec::new());
            let accepts = |rank: Rank| {
                asked.borrow_mut().push(rank);
                routes[rank].1
            };
            let (found, expected) = with_request(&sent, |request| {
                let fits = |rank: &Rank| {
                    let (conditions, is_accepted) = &routes[*rank];
                    *is_accepted && conditions.iter().all(|condition| condition.holds(request))
                };
                let expected = (0..routes.len()).take_while(|&rank| rank < bound).find(fits);
                (candidates.first(bound, request, &accepts), expected)
            });
            let mut asked = asked.into_inner();
            asked.sort_unstable();
            prop_assert!(asked.windows(2).all(|pair| pair[0] != pair[1]), "{:?}", asked);
            prop_assert_eq!(found, expected, "{:?} for {:?}", &sent, &routes);
        }
    }
}
