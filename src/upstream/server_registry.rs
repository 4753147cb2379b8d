//! The state of all servers, by name. It outlives plans; workers, health checks and metrics share it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::ServerName;
use super::breaker::UpstreamBreaker;
use super::connection_limit::{ConnectionLimit, Usage};
use super::dns::Resolver;
use super::server_state::{DownReason, FailedAttempt, ServerState};
use crate::clock;
use crate::plan::{Eject, MaxConnections, Upstream};

/// All servers of the process.
#[derive(Debug)]
pub struct ServerRegistry {
    epoch: Instant,
    servers: Mutex<HashMap<ServerName, Arc<ServerState>>>,
    /// The connection limits of upstreams, by name.
    bounds: Mutex<HashMap<Arc<str>, Arc<ConnectionLimit>>>,
    /// The circuit breakers of upstreams, by name.
    breakers: Mutex<HashMap<Arc<str>, Arc<UpstreamBreaker>>>,
    /// The servers' names and addresses.
    pub(super) names: Resolver,
    /// Held while a server is ejected.
    ejecting: Arc<Mutex<()>>,
}

/// The servers of one upstream, in the order of the plan.
#[derive(Clone, Debug)]
pub struct ServerStates {
    servers: Vec<Arc<ServerState>>,
    breaker: Option<Arc<UpstreamBreaker>>,
    ejecting: Arc<Mutex<()>>,
}

impl Default for ServerRegistry {
    /// The state of no server.
    fn default() -> Self {
        Self {
            epoch: clock::now(),
            servers: Mutex::default(),
            bounds: Mutex::default(),
            breakers: Mutex::default(),
            names: Resolver::default(),
            ejecting: Arc::default(),
        }
    }
}

impl ServerRegistry {
    /// The servers of an upstream. Takes a lock: called when a plan is adopted or a state is shown, not for each
    /// request.
    pub fn states(&self, upstream: &Upstream) -> ServerStates {
        let mut servers = self.servers.lock();
        // A server that a reload adds to others begins slowly, as one that is back.
        let joins = servers.keys().any(|(name, _)| *name == upstream.name);
        let fresh = || {
            let server = ServerState::new(self.epoch);
            if joins {
                server.set_recovered(clock::now());
            }
            Arc::new(server)
        };
        let mut fitness_of = |authority: &Arc<str>| {
            let name = (Arc::clone(&upstream.name), Arc::clone(authority));
            Arc::clone(servers.entry(name).or_insert_with(fresh))
        };
        ServerStates {
            servers: upstream.endpoints().iter().map(|server| fitness_of(&server.authority)).collect(),
            breaker: self.breaker(upstream),
            ejecting: Arc::clone(&self.ejecting),
        }
    }

    /// The circuit breaker of an upstream, if it has one. Takes a lock, as [`Self::states`].
    fn breaker(&self, upstream: &Upstream) -> Option<Arc<UpstreamBreaker>> {
        upstream.breaker?;
        let mut breakers = self.breakers.lock();
        let fresh = || Arc::new(UpstreamBreaker::new(self.epoch));
        Some(Arc::clone(breakers.entry(Arc::clone(&upstream.name)).or_insert_with(fresh)))
    }

    /// The connection limit of an upstream, if it has one. Takes a lock: called when a plan is adopted.
    pub(super) fn bound(&self, upstream: &Upstream) -> Option<Arc<ConnectionLimit>> {
        let max = upstream.max_connections?;
        let mut bounds = self.bounds.lock();
        let bound =
            bounds.entry(Arc::clone(&upstream.name)).or_insert_with(|| Arc::new(ConnectionLimit::new(max)));
        Some(Arc::clone(bound))
    }

    /// The usage of an upstream's connection limit, if it has one.
    pub fn usage(&self, upstream: &Upstream) -> Option<Usage> {
        self.bound(upstream).map(|bound| bound.usage())
    }

    /// Switches to a plan's connection limits, and removes all others.
    pub(super) fn rebound(&self, upstreams: &[Arc<Upstream>]) {
        let limits: HashMap<&str, MaxConnections> = upstreams
            .iter()
            .filter_map(|upstream| Some((&*upstream.name, upstream.max_connections?)))
            .collect();
        self.bounds
            .lock()
            .retain(|upstream, bound| limits.get(&**upstream).inspect(|max| bound.resize(**max)).is_some());
    }

    /// Removes the servers and breakers that a plan does not name.
    pub fn retain(&self, upstreams: &[Arc<Upstream>]) {
        let named: HashSet<(&str, &str)> = upstreams
            .iter()
            .flat_map(|upstream| {
                upstream.endpoints().iter().map(|server| (&*upstream.name, &*server.authority))
            })
            .collect();
        self.servers.lock().retain(|(upstream, server), _| named.contains(&(&**upstream, &**server)));
        let has_breaker = |name: &str| {
            upstreams.iter().any(|upstream| &*upstream.name == name && upstream.breaker.is_some())
        };
        self.breakers.lock().retain(|name, _| has_breaker(name));
    }
}

impl ServerStates {
    /// The server at this index.
    pub fn get(&self, index: usize) -> Option<&Arc<ServerState>> {
        self.servers.get(index)
    }

    /// Why the server at this index counts as down; see [`ServerState::down`]. While the breaker of its upstream is open,
    /// each of its servers does.
    pub fn down(&self, index: usize, now: Instant, down_after: u32) -> Option<DownReason> {
        let is_open = || self.breaker.as_ref().is_some_and(|breaker| breaker.is_open());
        let own = self.get(index)?.down(now, down_after);
        own.or_else(|| is_open().then_some(DownReason::Breaker))
    }

    /// The fault of the server at this index, as text.
    pub fn reason(&self, index: usize, down: DownReason) -> String {
        match (down, &self.breaker, self.get(index)) {
            (DownReason::Breaker, Some(breaker), _) => breaker.reason(),
            (_, _, server) => server.map(|server| server.reason(down)).unwrap_or_default(),
        }
    }

    /// Whether the circuit breaker of the upstream is open, and how often it has opened; `None`: it has none.
    pub fn breaker_state(&self) -> Option<(bool, u64)> {
        self.breaker.as_ref().map(|breaker| (breaker.is_open(), breaker.openings()))
    }

    /// The circuit breaker of the upstream, if it has one.
    pub(super) fn breaker(&self) -> Option<&Arc<UpstreamBreaker>> {
        self.breaker.as_ref()
    }

    /// All servers.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<ServerState>> {
        self.servers.iter()
    }

    /// The number of servers.
    pub(super) fn len(&self) -> usize {
        self.servers.len()
    }

    /// Records a failed attempt of the server at this index. The server is ejected if that is due and enough others are
    /// left: at least half of them not ejected, and one available. Without a `rule`, no server is ejected.
    pub(super) fn failed(&self, index: usize, attempt: FailedAttempt, down_after: u32, rule: Option<Eject>) {
        let due = self.get(index).filter(|server| server.failed(attempt, down_after));
        // The only server is never ejected.
        let Some((server, rule)) = due.zip(rule.filter(|_| self.len() > 1)) else { return };
        let now = attempt.ended;
        let _alone = self.ejecting.lock();
        let ejected = self.iter().filter(|peer| peer.is_ejected(now)).count();
        let others = self.iter().filter(|peer| !Arc::ptr_eq(peer, server));
        let spared = others.filter(|peer| peer.is_available(now)).count() > 0;
        // Another worker may have been faster.
        if spared && ejected < self.len() / 2 && !server.is_ejected(now) {
            server.eject(now, rule);
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::super::cause::Cause;
    use super::*;
    use crate::plan::StatusSet;

    /// States of `count` servers without known failures.
    pub(in crate::upstream) fn peers(count: usize) -> ServerStates {
        let epoch = clock::now();
        let servers = (0..count).map(|_| Arc::new(ServerState::new(epoch))).collect();
        ServerStates { servers, breaker: None, ejecting: Arc::default() }
    }

    const RULE: Eject = Eject { failures: 2, span: Duration::from_secs(10), statuses: StatusSet::NONE };

    fn fail(peers: &ServerStates, index: usize, now: Instant) {
        let attempt = FailedAttempt { begun: now, ended: now, cause: Cause::Refused, status: None };
        peers.failed(index, attempt, RULE.failures, Some(RULE));
    }

    #[test]
    fn one_alone_is_never_ejected_nor_the_last_fit_one() {
        let (alone, now) = (peers(1), clock::now());
        (0..100).for_each(|_| fail(&alone, 0, now));
        assert!(alone.servers[0].is_available(now));
        assert_eq!(alone.servers[0].down(now, RULE.failures), Some(DownReason::Failing));
        let three = peers(3);
        three.servers[0].set_unhealthy(String::new());
        three.servers[1].set_unhealthy(String::new());
        (0..100).for_each(|_| fail(&three, 2, now));
        assert!(three.servers[2].is_available(now));
        assert_eq!(three.servers[2].down(now, RULE.failures), Some(DownReason::Failing));
    }

    proptest! {
        #[test]
        fn at_least_half_and_one_stay(
            count in 1_usize..9,
            steps in proptest::collection::vec((0_usize..9, 0_u64..15), 0..200),
        ) {
            let peers = peers(count);
            let mut now = clock::now();
            for (index, seconds) in steps {
                now += Duration::from_secs(seconds / 3);
                fail(&peers, index % count, now);
                let ejected = peers.iter().filter(|peer| peer.is_ejected(now)).count();
                prop_assert!(ejected <= count / 2 && ejected < count);
            }
        }
    }
}
