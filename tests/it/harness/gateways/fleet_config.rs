//! What the tests of a fleet stand on: configurations with a shared store, and whether a fleet shares.

use std::time::Duration;

use crate::harness::{Backend, Fleet, Gateway, Redis, eventually};

/// Long enough for any busy machine: the store must have answered.
pub(crate) const PATIENT: &str = "timeout = \"5s\"";

/// A configuration in the making.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    text: String,
}

impl Plan {
    /// With an admin listener, and `api` for its only upstream.
    pub(crate) fn to(backend: &Backend) -> Self {
        let url = backend.url();
        Self { text: format!("[upstreams]\napi = \"{url}\"\n[admin]\nlisten = \"127.0.0.1:0\"\n") }
    }

    /// Without an access log.
    pub(crate) fn quiet(self) -> Self {
        self.table("log", "access = \"off\"")
    }

    /// A route for this path, of the same name.
    pub(crate) fn route(self, path: &str, lines: &str) -> Self {
        self.table("[routes]", &format!("path = \"{path}\"\nupstream = \"api\"\n{lines}"))
    }

    /// A limit for each value of the field `x-client`; `lines` has the algorithm and its numbers.
    pub(crate) fn limit(self, name: &str, lines: &str) -> Self {
        self.limit_by("header:x-client", name, lines)
    }

    /// A limit by another key.
    pub(crate) fn limit_by(self, key: &str, name: &str, lines: &str) -> Self {
        self.table(&format!("limits.{name}"), &format!("key = \"{key}\"\n{lines}"))
    }

    /// The counters stand in a shared store; `lines` tells where.
    pub(crate) fn store(self, lines: &str) -> String {
        self.table("store", &format!("backend = \"redis\"\n{lines}")).text
    }

    /// The counters stand in this server, which is given all the time it wants.
    pub(crate) fn on(self, redis: &Redis) -> String {
        self.store(&format!("url = \"{}\"\n{PATIENT}", redis.url()))
    }

    /// Each gateway counts for itself.
    pub(crate) fn alone(self) -> String {
        self.text
    }

    /// A limit by whatever these lines say.
    pub(crate) fn table_of(self, name: &str, key: &str, lines: &str) -> Self {
        self.table(&format!("limits.{name}"), &format!("{key}\n{lines}"))
    }

    fn table(mut self, name: &str, lines: &str) -> Self {
        self.text.push_str(&format!("[{name}]\n{lines}\n"));
        self
    }
}

/// An allowance for a whole test: the algorithm refills nothing within a test.
pub(crate) fn of(algorithm: &str, count: u32) -> String {
    let burst = if algorithm == "gcra" { format!("\nburst = {count}") } else { String::new() };
    format!("algorithm = \"{algorithm}\"\nrate = \"{count}/366day\"{burst}")
}

/// The algorithms that never let a request wait.
pub(crate) const AT_ONCE: [&str; 5] =
    ["token-bucket", "gcra", "fixed-window", "sliding-window", "sliding-log"];

/// The field that names a client.
pub(crate) fn client(name: impl std::fmt::Display) -> String {
    format!("x-client: {name}\r\n")
}

/// A request of this client.
pub(crate) fn request(path: &str, name: impl std::fmt::Display) -> String {
    format!("GET {path} HTTP/1.1\r\nhost: test\r\n{}\r\n", client(name))
}

/// Statuses of `count` requests of one client, sent to the gateways in turn.
pub(crate) fn statuses(fleet: &Fleet, path: &str, name: &str, count: usize) -> Vec<u16> {
    (0..count).map(|number| fleet.get_with(number, path, &client(name)).status).collect()
}

/// Statuses of `count` requests of one client to one gateway.
pub(crate) fn statuses_of(gateway: &Gateway, path: &str, name: &str, count: usize) -> Vec<u16> {
    let one = || crate::harness::get_with(gateway.addr(), path, &client(name)).status;
    std::iter::repeat_with(one).take(count).collect()
}

/// Waits until every worker of the fleet can ask the store.
pub(crate) fn is_up(fleet: &Fleet) {
    eventually("the store to be up for all", || {
        fleet.gateways.iter().all(|gateway| gateway.metric("tollgate_store_up", &[]) > 0.5).then_some(())
    });
}

/// Waits until the fleet shares the limit of `path`, which allows each client two: one through each gateway, and no more.
/// Each try is a client of its own.
pub(crate) fn shares(fleet: &Fleet, path: &str) {
    static TRIES: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
    eventually("the gateways to share their counters", || {
        let number = TRIES.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let shared = statuses(fleet, path, &format!("try-{number}"), 4) == [200, 200, 429, 429];
        if !shared {
            std::thread::sleep(Duration::from_millis(20));
        }
        shared.then_some(())
    });
}
