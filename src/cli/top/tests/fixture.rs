//! A gateway as the tests of `top` see it.

use crate::admin_api::bans::{BanList, BanReport};
use crate::admin_api::fleet::{FleetReport, GatewayReport};
use crate::admin_api::keys::{KeyList, KeyReport, KeyState, PolicyAllowance};
use crate::admin_api::limits::{LimitReport, PlacesInUse, VerdictReport};
use crate::admin_api::refusals::{RefusalList, RefusalReport};
use crate::admin_api::routes::{RouteLimitReport, RouteReport};
use crate::admin_api::samples::{LimitSamples, RequestSamples, SampleList, StoreSamples, UpstreamSamples};
use crate::admin_api::servers::ServerReport;
use crate::admin_api::status::{LoadedFile, StatusReport, StoreReport};
use crate::cli::top::snapshot::GatewaySnapshot;

/// A gateway with one limit that refuses, a ban, a backend that is down, and a key with control characters.
pub(super) fn snapshot() -> GatewaySnapshot {
    let mut snapshot = GatewaySnapshot {
        status: status(),
        limits: limits(),
        keys: Some(KeyList {
            limit: "per-client".to_owned(),
            mode: "enforce".to_owned(),
            span: 412,
            refused: 80,
            keys: vec![
                key("id:01", "192.0.2.7", 60, 5),
                key("id:02", "evil\u{1b}[2J\u{202e}", 20, 1_234),
                key("id:03", "198.51.100.1", 0, 70),
            ],
            ..KeyList::default()
        }),
        bans: BanList {
            total: 2,
            bans: vec![
                ban("per-client", "id:09", "203.0.113.9", 1_763_740_800.5),
                BanReport {
                    cause: "20 refusals".to_owned(),
                    in_shadow: true,
                    ..ban("trial", "id:0a", "203.0.113.10", 1_763_744_400.5)
                },
            ],
            ..BanList::default()
        },
        routes: vec![RouteReport {
            name: "search".to_owned(),
            path: "/search/*".to_owned(),
            methods: vec!["GET".to_owned()],
            upstream: Some("search".to_owned()),
            limits: vec![RouteLimitReport { name: "per-client".to_owned(), ..RouteLimitReport::default() }],
            ..RouteReport::default()
        }],
        fleet: FleetReport {
            time: 1_763_737_200.5,
            shared: true,
            gateways: vec![
                gateway("edge-1:8080", "01", GatewayReport { this: true, ..GatewayReport::default() }),
                gateway(
                    "edge-2:8080",
                    "02",
                    GatewayReport { gone: true, clock_ahead_ms: -12, ..GatewayReport::default() },
                ),
            ],
        },
        look: Some(key_state("refused", None)),
        ..GatewaySnapshot::default()
    };
    let all = RequestSamples {
        admitted: vec![800, 840],
        delayed: vec![0, 3],
        refused: vec![95, 101],
        p99_ms: vec![Some(18.0), Some(17.2)],
        ..RequestSamples::default()
    };
    let limit = LimitSamples { refused: vec![95, 101], ..LimitSamples::default() };
    let none = RequestSamples { failed: vec![1, 1], ..RequestSamples::default() };
    let upstream = UpstreamSamples {
        classes: [("2xx".to_owned(), vec![800, 840]), ("5xx".to_owned(), vec![0, 2])].into(),
        p99_ms: vec![Some(9.0), Some(8.0)],
        servers: vec![server("10.0.0.1:9000", None), server("10.0.0.2:9000", Some("connection refused"))],
        ..UpstreamSamples::default()
    };
    snapshot.samples.add(SampleList {
        seq: 10,
        count: 2,
        all,
        limits: [("per-client".to_owned(), limit)].into(),
        routes: [("none".to_owned(), none)].into(),
        store: StoreSamples { keys: vec![7, 9], ..StoreSamples::default() },
        upstreams: [("search".to_owned(), upstream)].into(),
        ..SampleList::default()
    });
    let refusals = vec![refusal(1), refusal(2), refusal(3)];
    snapshot.refusals.add(RefusalList { started: 1.0, seq: 3, skipped: 0, refusals });
    snapshot
}

fn gateway(address: &str, id: &str, state: GatewayReport) -> GatewayReport {
    GatewayReport {
        id: id.to_owned(),
        address: address.to_owned(),
        version: "0.1.0".to_owned(),
        file_hash: "3f9c2a10".to_owned(),
        since: 1_763_733_600.0,
        last_seen: 1_763_737_180.0,
        ..state
    }
}

fn server(address: &str, reason: Option<&str>) -> ServerReport {
    ServerReport {
        server: address.to_owned(),
        up: reason.is_none(),
        why: reason.map(|_| "ejected".to_owned()),
        reason: reason.map(str::to_owned),
        ..ServerReport::default()
    }
}

fn status() -> StatusReport {
    StatusReport {
        time: 1_763_737_200.5,
        started: 1_763_733_600.0,
        version: "0.1.0".to_owned(),
        workers: 2,
        life: "serving".to_owned(),
        bans: 1,
        config: LoadedFile {
            file: "a.toml".to_owned(),
            version: "3f9c2a10".to_owned(),
            loaded: 1_763_733_600.0,
        },
        store: StoreReport { backend: "memory".to_owned(), up: true, max_keys: Some(1000) },
        ..StatusReport::default()
    }
}

fn limits() -> Vec<LimitReport> {
    let limit = |name: &str, mode: &str, algorithm: &str, policy: &str| LimitReport {
        name: name.to_owned(),
        mode: mode.to_owned(),
        algorithm: algorithm.to_owned(),
        key: vec!["ip".to_owned()],
        policies: vec![policy.to_owned()],
        ..LimitReport::default()
    };
    let minute =
        VerdictReport { admitted: 30, delayed: 10, refused: 60, refused_keys: 2, ..VerdictReport::default() };
    let hour = VerdictReport { refused: 90, ..VerdictReport::default() };
    let in_flight = Some(PlacesInUse { held: 3, waiting: 2, found_max: None });
    vec![
        LimitReport { minute, hour, ..limit("per-client", "enforce", "gcra", "10/s") },
        LimitReport { in_flight, ..limit("trial", "shadow", "concurrency", "max 5") },
    ]
}

fn key(id: &str, value: &str, refused: u64, admitted: u64) -> KeyReport {
    let key = Some(vec![value.to_owned()]);
    KeyReport { id: id.to_owned(), key, refused, admitted, ..KeyReport::default() }
}

fn ban(limit: &str, id: &str, value: &str, banned_until: f64) -> BanReport {
    BanReport {
        limit: limit.to_owned(),
        id: id.to_owned(),
        key: Some(vec![value.to_owned()]),
        banned_until,
        cause: "by hand".to_owned(),
        ..BanReport::default()
    }
}

fn refusal(seq: u64) -> RefusalReport {
    let some = |text: &str| Some(text.to_owned());
    RefusalReport {
        seq,
        time: 1_763_737_200.1,
        method: some("GET"),
        host: some("api.example.com"),
        path: some("/search/\u{7}"),
        route: some("search"),
        status: 429,
        client: some("192.0.2.7"),
        limit: some("per-client"),
        id: some("id:01"),
        key: Some(vec!["192.0.2.7".to_owned()]),
        reason: "over 10/s".to_owned(),
        ..RefusalReport::default()
    }
}

pub(super) fn key_state(verdict: &str, banned_until: Option<f64>) -> KeyState {
    KeyState {
        limit: "per-client".to_owned(),
        mode: "enforce".to_owned(),
        id: "id:01".to_owned(),
        key: Some(vec!["192.0.2.7".to_owned()]),
        verdict: verdict.to_owned(),
        algorithm: "gcra".to_owned(),
        policies: vec![PolicyAllowance {
            policy: "10/s".to_owned(),
            quota: 50,
            used: 25,
            remaining: 25,
            next_ms: Some(84),
            full_ms: Some(4984),
        }],
        banned_until,
        requests: Some(65),
        admitted: Some(5),
        refused: Some(60),
        changed: Some(true),
        ..KeyState::default()
    }
}
