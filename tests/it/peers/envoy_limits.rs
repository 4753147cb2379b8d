//! Envoy's rate limit filter asks a gateway: each action, costs, reports, several limits in one call, a gateway that is
//! killed, and exact totals of a fleet.

use std::net::Ipv4Addr;
use std::process::{Child, Stdio};

use crate::harness::{Backend, Client, Front, Gateway, Redis, Response, eventually, tools};

const TOKEN: (&str, &str) = ("TOLLGATE_DECISIONS_TOKEN", "c0ffee00c0ffee00c0ffee00c0ffee00");

/// A generous time-out, and no request passes undecided: the machine may be busy.
const PATIENT: &[&str] = &["timeout: 20s", "failure_mode_deny: true"];

/// Limits of a day, and the descriptors of `tests/peers/envoy.yaml` that they are for.
const DESCRIPTORS: &str = r#"
[limits]
remote = { algorithm = "fixed-window", key = "descriptor:remote_address", rate = "2/day" }
masked = { algorithm = "fixed-window", key = "descriptor:masked_remote_address", rate = "2/day" }
keys = { algorithm = "fixed-window", key = "descriptor:api_key", rate = "2/day" }
twice = { algorithm = "fixed-window", key = "global", rate = "2/day" }
mobile = { algorithm = "fixed-window", key = "global", rate = "2/day" }
gold = { algorithm = "fixed-window", key = "global", rate = "2/day" }
query = { algorithm = "fixed-window", key = "descriptor:q", rate = "2/day" }
heavy = { algorithm = "fixed-window", key = "descriptor:remote_address", rate = "25/day" }
mine = { algorithm = "fixed-window", key = "descriptor:remote_address", rate = "5/day" }
shared = { algorithm = "fixed-window", key = "global", rate = "2/day" }
tokens = { algorithm = "fixed-window", key = "descriptor:remote_address", rate = "100/day" }

[[descriptors]]
domain = "shop"
match = { remote_address = "*" }
limits = ["remote"]

[[descriptors]]
match = { masked_remote_address = "*" }
limits = ["masked"]

[[descriptors]]
match = { api_key = "*" }
limits = ["keys"]

[[descriptors]]
match = [["generic_key", "a"], ["generic_key", "b"]]
limits = ["twice"]

[[descriptors]]
match = { header_match = "mobile" }
limits = ["mobile"]

[[descriptors]]
match = { plan = "gold" }
limits = ["gold"]

[[descriptors]]
match = { q = "*" }
limits = ["query"]

[[descriptors]]
match = { generic_key = "heavy", remote_address = "*" }
limits = ["heavy"]

[[descriptors]]
match = { generic_key = "mine", remote_address = "*" }
limits = ["mine"]

[[descriptors]]
match = { generic_key = "shared" }
limits = ["shared"]

[[descriptors]]
match = { generic_key = "tokens", remote_address = "*" }
limits = ["tokens"]

[[descriptors]]
match = { generic_key = "used-tokens", remote_address = "*" }
limits = ["tokens"]
report = true
"#;

/// A gateway that answers Envoy, and the server that Envoy passes requests to. Each response says that it cost 40.
struct Service {
    gateway: Gateway,
    shop: Backend,
}

impl Service {
    fn start() -> Self {
        Self::start_with(DESCRIPTORS)
    }

    fn start_with(lines: &str) -> Self {
        let toml = format!(
            "[admin]\nlisten = \"127.0.0.1:0\"\n[decisions]\nlisten = \"127.0.0.1:0\"\ntoken_env = \"{}\"\n\
             [[routes]]\npath = \"/*\"\nrespond = {{}}\n{lines}",
            TOKEN.0
        );
        let shop = Backend::answering("HTTP/1.1 200 OK\r\nx-cost: 40\r\ncontent-length: 2\r\n\r\nok");
        Self { gateway: Gateway::start_in(&toml, &[], &[TOKEN]), shop }
    }

    /// Envoy before it, whose filter has these lines, too.
    fn envoy(&self, filter: &[&str]) -> Front {
        super::envoy_of(self.shop.addr(), self.gateway.decisions_addr(), filter)
    }

    /// What a limit has counted for a key.
    fn used(&self, limit: &str, key: &str) -> u64 {
        let response = self.gateway.admin(&format!("/api/v1/limits/{limit}/keys/{key}"));
        response.json()["policies"][0]["used"].as_u64().unwrap_or_default()
    }
}

/// A request from `127.0.0.source`, on a connection of its own.
fn get(source: u8, envoy: &Front, target: &str, fields: &[u8]) -> Response {
    let mut client = Client::connect_from(Ipv4Addr::new(127, 0, 0, source).into(), envoy.addr());
    let head = format!("GET {target} HTTP/1.1\r\nhost: test\r\n");
    client.exchange([head.as_bytes(), fields, b"\r\n"].concat())
}

fn statuses<const COUNT: usize>(source: u8, envoy: &Front, target: &str, fields: &[u8]) -> [u16; COUNT] {
    [(); COUNT].map(|()| get(source, envoy, target, fields).status)
}

#[test]
fn each_action_has_its_limit() {
    let service = Service::start();
    let envoy = service.envoy(PATIENT);
    let cases: &[(&str, &[u8])] = &[
        ("/remote", b""),
        ("/masked", b""),
        ("/key", b"x-api-key: k1\r\n"),
        ("/key", b"x-api-key: k2\r\n"),
        ("/key", b"x-api-key: \xff\xfe\r\n"),
        ("/key", b"x-api-key: \xff\xfd\r\n"),
        ("/twice", b""),
        ("/match", b"user-agent: mobile/1\r\n"),
        ("/plan", b""),
        ("/query?q=%00%ff", b""),
        ("/query?q=a", b""),
    ];
    for (target, fields) in cases {
        assert_eq!(statuses(2, &envoy, target, fields), [200, 200, 429], "{target}");
    }
    let long = [b"x-api-key: ".as_slice(), &b"k".repeat(20_000), b"\r\n"].concat();
    assert_eq!(statuses(2, &envoy, "/key", &long), [200, 200, 429], "a long value is a key of its own");
    // Another client has an allowance of its own, but for its network, and for all clients together.
    assert_eq!(statuses(3, &envoy, "/remote", b""), [200, 200, 429]);
    assert_eq!(statuses(3, &envoy, "/masked", b""), [429]);
    assert_eq!(statuses(3, &envoy, "/twice", b""), [429]);
    // What has no descriptor, or one that no `[[descriptors]]` matches, is not limited.
    assert_eq!(statuses(2, &envoy, "/key", b""), [200; 3]);
    assert_eq!(statuses(2, &envoy, "/match", b"user-agent: other\r\n"), [200; 3]);
    assert_eq!(statuses(2, &envoy, "/clusters", b""), [200; 3]);
}

#[test]
fn a_client_is_told_how_long_to_wait() {
    let lines = "[limits.per-client]\nalgorithm = \"token-bucket\"\nkey = \"descriptor:remote_address\"\nrate = \"6/h\"\n\
                 burst = 2\n[[descriptors]]\nmatch = { remote_address = \"*\" }\nlimits = [\"per-client\"]\n";
    let service = Service::start_with(lines);
    let envoy = service.envoy(PATIENT);
    let front = Gateway::start(&format!(
        "[upstreams]\nshop = \"{}\"\n[[routes]]\npath = \"/*\"\nupstream = \"shop\"\nlimits = [\"per-client\"]\n\
         [limits.per-client]\nalgorithm = \"token-bucket\"\nkey = \"ip\"\nrate = \"6/h\"\nburst = 2\n",
        service.shop.url()
    ));
    for status in [200, 200, 429] {
        let told = get(2, &envoy, "/remote", b"").expect(status);
        let direct = front.get("/remote").expect(status);
        for name in ["retry-after", "ratelimit", "ratelimit-policy"] {
            let [told, direct] = [&told, &direct].map(|response| response.header(name).unwrap_or_default());
            assert!(are_close(told, direct), "{name} of {status}: {told}, in front {direct}");
        }
        if status == 200 {
            assert_eq!((told.text().as_str(), told.header_all("content-type").len()), ("ok", 0));
        }
    }
    let refused = get(2, &envoy, "/remote", b"").expect(429);
    assert_eq!(refused.header("x-envoy-ratelimited"), Some("true"));
    assert!(are_close(refused.header("retry-after").unwrap_or_default(), "600"), "{refused:?}");
}

/// Whether two headers differ in nothing but the seconds between two requests.
fn are_close(one: &str, other: &str) -> bool {
    let parts = |text: &str| {
        let digits =
            text.split(|char: char| !char.is_ascii_digit()).filter_map(|digits| digits.parse::<i64>().ok());
        (text.replace(|char: char| char.is_ascii_digit(), ""), digits.collect::<Vec<_>>())
    };
    let ((text, numbers), (other_text, others)) = (parts(one), parts(other));
    let close = numbers.iter().zip(&others).all(|(number, other)| (number - other).abs() < 30);
    text == other_text && numbers.len() == others.len() && close
}

/// With the option of Envoy that makes headers of the numbers of each descriptor.
#[test]
fn envoy_makes_headers_of_the_numbers() {
    let lines = "[limits.per-client]\nalgorithm = \"fixed-window\"\nkey = \"descriptor:remote_address\"\nrate = \"3/h\"\n\
                 [[descriptors]]\nmatch = { remote_address = \"*\" }\nlimits = [\"per-client\"]\n";
    let service = Service::start_with(lines);
    let envoy = service.envoy(&[
        "timeout: 20s",
        "failure_mode_deny: true",
        "enable_x_ratelimit_headers: DRAFT_VERSION_03",
    ]);
    for (status, remaining) in [(200, "2"), (200, "1"), (200, "0"), (429, "0")] {
        let response = get(2, &envoy, "/remote", b"").expect(status);
        let has = |name: &str, value: &str| {
            assert!(response.header_all(name).contains(&value), "{name}: {response:?}")
        };
        has("x-ratelimit-limit", "3, 3;w=3600;name=\"per-client\"");
        has("x-ratelimit-remaining", remaining);
        assert!(!response.header_all("x-ratelimit-reset").is_empty(), "{response:?}");
    }
}

#[test]
fn a_request_costs_what_envoy_says() {
    let service = Service::start();
    let envoy = service.envoy(PATIENT);
    assert_eq!(statuses(2, &envoy, "/cost", b""), [200, 200, 429]);
    assert_eq!(service.used("heavy", "127.0.0.2"), 20, "the refused request is not charged");
}

#[test]
fn of_two_limits_one_of_which_is_full_neither_is_charged() {
    let service = Service::start();
    let envoy = service.envoy(PATIENT);
    assert_eq!(statuses(2, &envoy, "/two", b""), [200, 200, 429, 429]);
    assert_eq!(service.used("mine", "127.0.0.2"), 2);
    assert_eq!(statuses(2, &envoy, "/mine", b""), [200, 200, 200, 429]);
}

/// Each response reports a cost of 40 after it: the third takes the budget of 100 into debt, and the next is refused.
#[test]
fn reports_after_responses_use_up_a_budget() {
    let service = Service::start();
    let envoy = service.envoy(PATIENT);
    for used in [40, 80, 120] {
        get(2, &envoy, "/tokens", b"").expect(200);
        eventually("the report is counted", || (service.used("tokens", "127.0.0.2") == used).then_some(()));
    }
    let refused = get(2, &envoy, "/tokens", b"").expect(429);
    assert!(refused.header("retry-after").is_some(), "{refused:?}");
    get(3, &envoy, "/tokens", b"").expect(200);
    assert_eq!(service.used("tokens", "127.0.0.2"), 120, "a question charges nothing");
}

#[test]
fn without_a_gateway_envoy_does_what_it_is_told_to() {
    let mut service = Service::start();
    let open = service.envoy(&["timeout: 20s", "failure_mode_deny: false"]);
    let closed = service.envoy(&[
        "timeout: 20s",
        "failure_mode_deny: true",
        "status_on_error: { code: ServiceUnavailable }",
    ]);
    let deny = service.envoy(&["timeout: 20s", "failure_mode_deny: true"]);
    assert_eq!(statuses(2, &open, "/remote", b""), [200, 200, 429]);
    service.gateway.signal(rustix::process::Signal::KILL);
    service.gateway.wait_for_exit();
    assert_eq!(statuses(2, &open, "/remote", b""), [200; 3]);
    assert_eq!(statuses(2, &closed, "/remote", b""), [503; 3]);
    assert_eq!(statuses(2, &deny, "/remote", b""), [500; 3]);
}

/// As the page says, Envoy takes a wrong token for a service that is away.
#[test]
fn a_wrong_token_counts_as_no_gateway() {
    let service = Service::start();
    let other = Gateway::start_in(
        "[decisions]\nlisten = \"127.0.0.1:0\"\ntoken_env = \"OTHER\"\n[[routes]]\npath = \"/*\"\nrespond = {}\n",
        &[],
        &[("OTHER", "5d1c9b7e0a425d1c9b7e0a425d1c9b7e")],
    );
    let envoy = super::envoy_of(service.shop.addr(), other.decisions_addr(), &["failure_mode_deny: true"]);
    assert_eq!(statuses(2, &envoy, "/remote", b""), [500; 3]);
}

/// Four Envoys, of which two ask each of two gateways, and one Redis: as many requests pass as the limits allow.
#[test]
fn a_fleet_admits_exactly_as_many_requests_as_the_limits_allow() {
    let redis = Redis::start();
    let lines = format!(
        "{}[limits]\nall = {{ algorithm = \"fixed-window\", key = \"global\", rate = \"700/day\" }}\n\
         client = {{ algorithm = \"fixed-window\", key = \"descriptor:remote_address\", rate = \"500/day\" }}\n\
         [[descriptors]]\nmatch = {{ generic_key = \"shared\" }}\nlimits = [\"all\"]\n\
         [[descriptors]]\nmatch = {{ generic_key = \"mine\", remote_address = \"*\" }}\nlimits = [\"client\"]\n",
        redis.store_table()
    );
    let services = [Service::start_with(&lines), Service::start_with(&lines)];
    let envoys: Vec<_> = (0..4).map(|index| services[index % 2].envoy(PATIENT)).collect();
    // One client has 500; then others share what is left of 700.
    let load = |envoy: &Front| {
        let url = format!("http://{}/two", envoy.addr());
        let mut command = tools::needed("h2load");
        command.args(["-n", "250", "-c", "4", "-m", "4", &url]).stdout(Stdio::piped());
        command.spawn().expect("h2load starts")
    };
    let loads: Vec<Child> = envoys.iter().map(load).collect();
    let (mut admitted, mut refused) = (0, 0);
    for load in loads {
        let output = load.wait_with_output().expect("h2load ends");
        let report = String::from_utf8(output.stdout).expect("text");
        assert!(report.contains("250 done,") && report.contains("0 errored, 0 timeout"), "{report}");
        let count = |class: &str| -> u32 {
            let counts = report.lines().find_map(|line| line.strip_prefix("status codes: ")).expect("counts");
            let count = counts.split(", ").find_map(|count| count.strip_suffix(class)).expect("a count");
            count.trim().parse().expect("a number")
        };
        (admitted, refused) = (admitted + count(" 2xx"), refused + count(" 4xx"));
    }
    assert_eq!((admitted, refused), (500, 500));
    let others = (2..4)
        .map(|source| (0..150).map(|turn| get(source, &envoys[turn % 4], "/two", b"").status).collect());
    let admitted: Vec<usize> = others
        .map(|statuses: Vec<u16>| statuses.into_iter().filter(|status| *status == 200).count())
        .collect();
    assert_eq!(admitted, [150, 50]);
}
