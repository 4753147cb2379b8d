//! When the store is gone, hangs, or refuses to write: each limit does what its `on_error` says, no request waits for longer than the
//! deadline, and all comes back by itself.

use std::time::{Duration, Instant};

use crate::harness::fleet_config::{Plan, client, is_up, of, shares, statuses_of};
use crate::harness::{Backend, DropProxy, Fleet, Gateway, Redis, eventually, get_with};

/// What befalls a town.
type Fault = fn(&mut Town);

/// As in the configuration below.
const TIMEOUT: Duration = Duration::from_millis(50);
/// How much longer anything may take on a busy machine.
const SLACK: Duration = Duration::from_secs(5);

/// One server behind a network, two gateways with a route for each `on_error`.
#[derive(Debug)]
struct Town {
    backend: Backend,
    redis: Redis,
    network: DropProxy,
    fleet: Fleet,
    /// How many lines each gateway had logged of its store when all was well.
    before: [usize; 2],
}

impl Town {
    fn build() -> Self {
        let (backend, redis) = (Backend::ok(), Redis::start());
        let network = DropProxy::start(redis.addr());
        let limit = |on_error: &str| of("fixed-window", 2) + &format!("\non_error = \"{on_error}\"");
        let plan = Plan::to(&backend)
            .route("/local", "limits = [\"local\"]")
            .route("/allow", "limits = [\"allow\"]")
            .route("/deny", "limits = [\"deny\"]")
            .limit("local", &limit("local"))
            .limit("allow", &limit("allow"))
            .limit("deny", &limit("deny"));
        let fleet = Fleet::start(&plan.store(&store_at(&network)));
        let mut town = Self { backend, redis, network, fleet, before: [0; 2] };
        town.is_well();
        town.before = town.fleet.gateways.each_ref().map(|gateway| log_lines(gateway).len());
        town
    }

    /// Both share their counters, and say that they are ready.
    fn is_well(&self) {
        shares(&self.fleet, "/deny");
        for gateway in &self.fleet.gateways {
            eventually("the gateway to be ready", || (gateway.admin("/readyz").status == 200).then_some(()));
        }
        is_up(&self.fleet);
    }

    /// Both do without the store, request by request, and say so.
    fn goes_without(&self, turn: &str) {
        for gateway in &self.fleet.gateways {
            goes_without(gateway, turn);
        }
    }

    /// Asserts the number of lines that each gateway has logged about its store.
    fn has_told(&self, lines: usize) {
        for (gateway, before) in self.fleet.gateways.iter().zip(self.before) {
            eventually(&format!("{lines} lines of the store"), || {
                (log_lines(gateway).len() >= before + lines).then_some(())
            });
            let told = log_lines(gateway);
            assert_eq!(told.len(), before + lines, "{:#?}", &told[before..]);
        }
    }

    /// No more connections than one a worker, on either side of the network.
    fn leaks_nothing(&self) {
        eventually("as many connections as workers at most", || {
            ((1..=4).contains(&self.redis.connections()) && self.network.open() <= 4).then_some(())
        });
    }
}

fn store_at(network: &DropProxy) -> String {
    format!("url = \"{}\"\ntimeout = \"50ms\"", network.url())
}

/// The lines of the program log that tell of the store.
fn log_lines(gateway: &Gateway) -> Vec<String> {
    let tells = |line: &String| line.contains("store") && !line.contains("listening");
    gateway.stderr_lines().into_iter().filter(tells).collect()
}

fn goes_without(gateway: &Gateway, turn: &str) {
    let name = |number: usize| format!("{turn}-{}-{number}", gateway.addr().port());
    let mut took = Vec::new();
    let mut status = |path: &str, number: usize| {
        let (started, response) = (Instant::now(), get_with(gateway.addr(), path, &client(name(number))));
        took.push(started.elapsed());
        if response.status == 503 {
            let seconds = response.header("retry-after").expect("the field").parse::<u64>();
            assert!(seconds.is_ok_and(|seconds| (1..=60).contains(&seconds)), "{}", response.head);
            assert_eq!(response.header("content-type"), Some("application/problem+json"));
            assert_eq!(response.json()["status"], 503);
        }
        response.status
    };
    // The first calls detect the failure.
    for number in 0..20 {
        assert_eq!(status("/allow", number), 200, "{turn}");
    }
    for number in 20..60 {
        assert_eq!([(); 3].map(|()| status("/local", number)), [200, 200, 429], "{turn}: counts by itself");
        assert_eq!([(); 3].map(|()| status("/allow", number)), [200; 3], "{turn}: counts nothing");
        assert_eq!(status("/deny", number), 503, "{turn}");
    }
    let slowest = took.iter().max().expect("some");
    assert!(*slowest < TIMEOUT + SLACK, "{turn}: one took {slowest:?}");
    let all: Duration = took.iter().sum();
    // If each request waited for the store, each would take the whole timeout.
    assert!(all < TIMEOUT * 300, "{turn}: {} requests took {all:?}", took.len());
    eventually("the gateway to say that it is not ready", || {
        (gateway.admin("/readyz").status == 503).then_some(())
    });
    assert!(gateway.metric("tollgate_store_up", &[]) < 0.5, "{turn}");
}

/// One outage after the other on one pair of gateways, each followed by a recovery.
fn survives(turn: &str, fault: impl Fn(&mut Town), lift: impl Fn(&mut Town)) {
    let mut town = Town::build();
    fault(&mut town);
    town.goes_without(turn);
    lift(&mut town);
    town.is_well();
    town.has_told(2);
    town.leaks_nothing();
    drop(town.backend);
}

#[test]
fn a_killed_store_is_done_without_and_found_again() {
    survives("killed", |town| town.redis.kill(), |town| town.redis.restart());
}

/// A server that accepts connections and closes them may require TLS, unless it has replied without TLS before.
#[test]
fn a_store_that_was_there_is_not_said_to_want_tls() {
    let mut town = Town::build();
    town.redis.kill();
    town.goes_without("killed");
    for gateway in &town.fleet.gateways {
        assert!(!gateway.stderr().contains("TLS"), "{}", gateway.stderr());
    }
}

#[test]
fn a_hung_store_is_done_without_and_found_again() {
    survives("hung", |town| town.redis.stop(), |town| town.redis.resume());
}

#[test]
fn a_network_that_loses_all_is_done_without_and_found_again() {
    survives("lost", |town| town.network.swallow(), |town| town.network.pass());
}

#[test]
fn a_network_that_refuses_is_done_without_and_found_again() {
    survives("refused", |town| town.network.refuse(), |town| town.network.pass());
}

#[test]
fn a_read_only_replica_is_done_without_until_it_is_a_master() {
    survives("read-only", |town| town.redis.read_only(), |town| town.redis.writable());
}

#[test]
fn a_full_store_is_done_without_until_there_is_room() {
    survives("full", |town| town.redis.fill(), |town| town.redis.drain());
}

/// A store that answers but cannot write must not pass a health check that only looks for an answer.
#[test]
fn an_outage_is_told_once_however_long_it_lasts() {
    let town = Town::build();
    town.redis.read_only();
    let started = Instant::now();
    while started.elapsed() < Duration::from_millis(4_500) {
        town.goes_without(&format!("after-{}-ms", started.elapsed().as_millis()));
        std::thread::sleep(Duration::from_millis(50));
    }
    town.has_told(1);
    town.redis.writable();
    town.is_well();
    town.has_told(2);
}

/// A restart takes a moment; requests meanwhile are answered all the same.
#[test]
fn a_restart_fails_no_request() {
    let mut town = Town::build();
    for round in 0..3 {
        town.redis.restart();
        for gateway in &town.fleet.gateways {
            let name = format!("restart-{round}-{}", gateway.addr().port());
            assert_eq!(statuses_of(gateway, "/allow", &name, 2), [200, 200]);
            assert_eq!(statuses_of(gateway, "/local", &name, 2), [200, 200]);
        }
        town.is_well();
    }
    town.leaks_nothing();
}

/// A connection that ends is no outage where the next one works.
#[test]
fn a_reset_connection_fails_no_request() {
    let town = Town::build();
    for round in 0..20 {
        town.network.reset();
        for gateway in &town.fleet.gateways {
            let name = format!("reset-{round}-{}", gateway.addr().port());
            assert_eq!(statuses_of(gateway, "/allow", &name, 1), [200]);
            assert_eq!(statuses_of(gateway, "/local", &name, 2), [200, 200]);
        }
    }
    town.is_well();
    town.leaks_nothing();
}

#[test]
fn outages_of_every_kind_leave_no_connection_behind() {
    let (mut town, started) = (Town::build(), Instant::now());
    let faults: [(&str, Fault); 4] = [
        ("killed", |town| town.redis.kill()),
        ("hung", |town| town.redis.stop()),
        ("lost", |town| town.network.swallow()),
        ("refused", |town| town.network.refuse()),
    ];
    for (turn, fault) in faults {
        fault(&mut town);
        town.goes_without(turn);
        match turn {
            "killed" => town.redis.restart(),
            "hung" => town.redis.resume(),
            _ => town.network.pass(),
        }
        town.is_well();
        town.leaks_nothing();
    }
    town.has_told(2 * faults.len());
    // Each of four workers may try a few times a second at worst.
    let (ever, seconds) =
        (u64::try_from(town.network.ever()).unwrap_or(u64::MAX), started.elapsed().as_secs());
    assert!(ever <= 40 + 8 * seconds, "{ever} connections in {seconds} s");
}
