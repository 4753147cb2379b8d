//! Logs which servers are down and which are up again, and which circuit breakers are open. The control thread checks once a second, since workers log
//! nothing for a request. The health checks log their own results.

use std::sync::Arc;
use std::time::Duration;

use super::breaker::UpstreamBreaker;
use super::server_registry::ServerRegistry;
use super::server_state::ServerState;
use crate::clock;
use crate::plan::{Endpoint, Upstream};

/// The interval of the checks.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// A watched server. Its [`ServerState`], which outlives a reload, holds the state last logged.
pub(super) struct WatchedServer {
    upstream: Arc<str>,
    authority: Arc<str>,
    server: Arc<ServerState>,
    down_after: u32,
}

/// A watched circuit breaker, which holds the state last logged.
struct WatchedBreaker {
    upstream: Arc<str>,
    breaker: Arc<UpstreamBreaker>,
}

/// The servers and the circuit breakers of a plan.
pub(super) struct Watched {
    servers: Vec<WatchedServer>,
    breakers: Vec<WatchedBreaker>,
}

/// What is watched of a plan.
pub(super) fn watched(upstreams: &[Arc<Upstream>], registry: &ServerRegistry) -> Watched {
    let breaker_of = |upstream: &Arc<Upstream>| {
        let breaker = Arc::clone(registry.states(upstream).breaker()?);
        Some(WatchedBreaker { upstream: Arc::clone(&upstream.name), breaker })
    };
    Watched {
        servers: watched_servers(upstreams, registry),
        breakers: upstreams.iter().filter_map(breaker_of).collect(),
    }
}

fn watched_servers(upstreams: &[Arc<Upstream>], registry: &ServerRegistry) -> Vec<WatchedServer> {
    let of_upstream = |upstream: &Arc<Upstream>| {
        let server_states = registry.states(upstream);
        let watch = |(endpoint, server): (&Endpoint, &Arc<ServerState>)| WatchedServer {
            upstream: Arc::clone(&upstream.name),
            authority: Arc::clone(&endpoint.authority),
            server: Arc::clone(server),
            down_after: upstream.down_after(),
        };
        upstream.endpoints().iter().zip(server_states.iter()).map(watch).collect::<Vec<_>>()
    };
    upstreams.iter().flat_map(of_upstream).collect()
}

/// Logs each change, until the task is aborted.
pub(super) async fn log_changes(Watched { servers, breakers }: Watched) {
    while !(servers.is_empty() && breakers.is_empty()) {
        tokio::time::sleep(LOOK_EVERY).await;
        servers.iter().for_each(WatchedServer::log_change);
        breakers.iter().for_each(WatchedBreaker::log_change);
    }
}

impl WatchedBreaker {
    fn log_change(&self) {
        let Self { upstream, breaker } = self;
        // It may have opened and closed since the last look.
        if breaker.has_opened_since_report() {
            tracing::warn!("upstream `{upstream}`: the circuit breaker is open: {}", breaker.reason());
            breaker.report_opening();
        }
        if !breaker.is_open() && breaker.is_reported_open() {
            tracing::info!("upstream `{upstream}`: the circuit breaker is closed again");
            breaker.report_closing();
        }
    }
}

impl WatchedServer {
    fn log_change(&self) {
        let Self { upstream, authority, server, down_after } = self;
        match (server.is_failing(*down_after), server.is_reported_down()) {
            (true, false) => {
                let ejected = if server.is_ejected(clock::now()) { " and is ejected" } else { "" };
                let (cause, failures) = (server.cause(), plural(*down_after));
                tracing::warn!("upstream `{upstream}`: {authority} is down{ejected}: {failures}, {cause}");
                server.set_reported_down(true);
            }
            // While the server is unhealthy, the log line of its health checks still holds.
            (false, true) if server.is_healthy() => {
                tracing::info!("upstream `{upstream}`: {authority} is up again");
                server.set_reported_down(false);
            }
            _ => {}
        }
    }
}

fn plural(failures: u32) -> String {
    if failures == 1 { "1 failure".to_owned() } else { format!("{failures} failures in a row") }
}
