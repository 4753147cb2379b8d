//! The state of all upstreams and their servers, by name. It outlives plans; workers, health checks and metrics share it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use dashmap::DashMap;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::breaker::UpstreamBreaker;
use super::connection_limit::{ConnectionLimit, Usage};
use super::dns::Resolver;
use super::server_state::{DownReason, FailedAttempt, ServerState};
use crate::clock;
use crate::plan::{Eject, MaxConnections, Upstream};

/// All upstreams of the process. Their entries are locked when a plan is adopted or a state is shown, not for each
/// request.
#[derive(Debug)]
pub struct ServerRegistry {
    epoch: Instant,
    /// By name.
    upstreams: DashMap<Arc<str>, UpstreamState>,
    /// The servers' names and addresses.
    pub(super) names: Resolver,
    /// Held while a server is ejected.
    ejecting: Arc<Mutex<()>>,
}

/// The state of one upstream.
#[derive(Debug, Default)]
struct UpstreamState {
    /// By authority.
    servers: HashMap<Arc<str>, Arc<ServerState>>,
    connection_limit: Option<Arc<ConnectionLimit>>,
    breaker: Option<Arc<UpstreamBreaker>>,
    /// That of copies of requests.
    mirror_breaker: Option<Arc<UpstreamBreaker>>,
}

/// The servers of one upstream, in the order of the plan.
#[derive(Clone, Debug)]
pub struct ServerStates {
    servers: Vec<Arc<ServerState>>,
    breaker: Option<Arc<UpstreamBreaker>>,
    ejecting: Arc<Mutex<()>>,
    /// The servers' states are only read.
    are_observed: bool,
}

impl Default for ServerRegistry {
    /// The state of no server.
    fn default() -> Self {
        Self {
            epoch: clock::now(),
            upstreams: DashMap::new(),
            names: Resolver::default(),
            ejecting: Arc::default(),
        }
    }
}

impl ServerRegistry {
    /// The servers of an upstream. The entry is locked meanwhile: another worker that adopts the same plan finds all of
    /// them or none.
    pub fn states(&self, upstream: &Upstream) -> ServerStates {
        let mut state = self.upstreams.entry(Arc::clone(&upstream.name)).or_default();
        let UpstreamState { servers, breaker, .. } = &mut *state;
        // A server that a reload adds to others begins slowly, as one that is back.
        let joins = !servers.is_empty();
        let fresh = || {
            let server = ServerState::new(self.epoch);
            if joins {
                server.set_recovered(clock::now());
            }
            Arc::new(server)
        };
        let mut state_of =
            |authority: &Arc<str>| Arc::clone(servers.entry(Arc::clone(authority)).or_insert_with(fresh));
        let fresh_breaker = || Arc::new(UpstreamBreaker::new(self.epoch));
        ServerStates {
            servers: upstream.endpoints().iter().map(|server| state_of(&server.authority)).collect(),
            breaker: upstream.breaker.map(|_| Arc::clone(breaker.get_or_insert_with(fresh_breaker))),
            ejecting: Arc::clone(&self.ejecting),
            are_observed: false,
        }
    }

    /// The servers of an upstream as copies of requests use them: what a copy meets changes no server's state, and the
    /// breaker is that of all copies.
    pub(super) fn observed_states(&self, upstream: &Upstream) -> ServerStates {
        let states = self.states(upstream);
        let mut state = self.upstreams.entry(Arc::clone(&upstream.name)).or_default();
        let fresh = || Arc::new(UpstreamBreaker::new(self.epoch));
        let breaker = Some(Arc::clone(state.mirror_breaker.get_or_insert_with(fresh)));
        ServerStates { breaker, are_observed: true, ..states }
    }

    /// The connection limit of an upstream, if it has one.
    pub(super) fn connection_limit(&self, upstream: &Upstream) -> Option<Arc<ConnectionLimit>> {
        let max = upstream.max_connections?;
        let mut state = self.upstreams.entry(Arc::clone(&upstream.name)).or_default();
        Some(Arc::clone(state.connection_limit.get_or_insert_with(|| Arc::new(ConnectionLimit::new(max)))))
    }

    /// The usage of an upstream's connection limit, if it has one.
    pub fn usage(&self, upstream: &Upstream) -> Option<Usage> {
        self.connection_limit(upstream).map(|limit| limit.usage())
    }

    /// Switches to a plan: its connection limits get their new size; servers, breakers and limits that it does not name
    /// are removed.
    pub fn adopt(&self, upstreams: &[Arc<Upstream>]) {
        let named: HashMap<&str, &Upstream> =
            upstreams.iter().map(|upstream| (&*upstream.name, &**upstream)).collect();
        self.upstreams.retain(|name, state| {
            let Some(upstream) = named.get(&**name) else { return false };
            state.adopt(upstream);
            true
        });
    }
}

impl UpstreamState {
    fn adopt(&mut self, upstream: &Upstream) {
        let named: HashSet<&str> = upstream.endpoints().iter().map(|server| &*server.authority).collect();
        self.servers.retain(|authority, _| named.contains(&**authority));
        self.breaker.take_if(|_| upstream.breaker.is_none());
        match (upstream.max_connections, &self.connection_limit) {
            (Some(max), Some(limit)) => limit.resize(max),
            (None, Some(limit)) => {
                // Requests that wait go on.
                limit.resize(MaxConnections { connections: usize::MAX, pending: usize::MAX });
                self.connection_limit = None;
            }
            (_, None) => {}
        }
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

    /// Whether the servers' states are only read.
    pub(super) fn are_observed(&self) -> bool {
        self.are_observed
    }

    /// Records that the server at this index answered an attempt that began at `begun`.
    #[inline]
    pub(super) fn answered(&self, index: usize, begun: Instant) {
        if let Some(server) = self.get(index)
            && !self.are_observed
        {
            server.answered(begun);
        }
    }

    /// The number of servers.
    pub(super) fn len(&self) -> usize {
        self.servers.len()
    }

    /// Records a failed attempt of the server at this index. The server is ejected if that is due and enough others are
    /// left: at least half of them not ejected, and one available. Without a `rule`, no server is ejected.
    pub(super) fn failed(&self, index: usize, attempt: FailedAttempt, down_after: u32, rule: Option<Eject>) {
        if self.are_observed {
            return;
        }
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
    pub(in crate::upstream) fn server_states(count: usize) -> ServerStates {
        let epoch = clock::now();
        let servers = (0..count).map(|_| Arc::new(ServerState::new(epoch))).collect();
        ServerStates { servers, breaker: None, ejecting: Arc::default(), are_observed: false }
    }

    const RULE: Eject = Eject { failures: 2, span: Duration::from_secs(10), statuses: StatusSet::NONE };

    fn fail(server_states: &ServerStates, index: usize, now: Instant) {
        let attempt = FailedAttempt { begun: now, ended: now, cause: Cause::Refused, status: None };
        server_states.failed(index, attempt, RULE.failures, Some(RULE));
    }

    #[test]
    fn one_alone_is_never_ejected_nor_the_last_fit_one() {
        let (alone, now) = (server_states(1), clock::now());
        (0..100).for_each(|_| fail(&alone, 0, now));
        assert!(alone.servers[0].is_available(now));
        assert_eq!(alone.servers[0].down(now, RULE.failures), Some(DownReason::Failing));
        let three = server_states(3);
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
            let server_states = server_states(count);
            let mut now = clock::now();
            for (index, seconds) in steps {
                now += Duration::from_secs(seconds / 3);
                fail(&server_states, index % count, now);
                let ejected = server_states.iter().filter(|peer| peer.is_ejected(now)).count();
                prop_assert!(ejected <= count / 2 && ejected < count);
            }
        }
    }
}
