//! Logs which servers are down and which are up again. The control thread checks once a second, since workers log
//! nothing for a request. The health checks log their own results.

use std::sync::Arc;
use std::time::Duration;

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

/// The servers of a plan.
pub(super) fn watched(upstreams: &[Arc<Upstream>], registry: &ServerRegistry) -> Vec<WatchedServer> {
    let of_upstream = |upstream: &Arc<Upstream>| {
        let peers = registry.states(upstream);
        let watch = |(endpoint, server): (&Endpoint, &Arc<ServerState>)| WatchedServer {
            upstream: Arc::clone(&upstream.name),
            authority: Arc::clone(&endpoint.authority),
            server: Arc::clone(server),
            down_after: upstream.down_after(),
        };
        upstream.endpoints().iter().zip(peers.iter()).map(watch).collect::<Vec<_>>()
    };
    upstreams.iter().flat_map(of_upstream).collect()
}

/// Logs each change, until the task is aborted.
pub(super) async fn log_changes(servers: Vec<WatchedServer>) {
    while !servers.is_empty() {
        tokio::time::sleep(LOOK_EVERY).await;
        servers.iter().for_each(WatchedServer::log_change);
    }
}

impl WatchedServer {
    fn log_change(&self) {
        let Self { upstream, authority, server, down_after } = self;
        match (server.is_failing(*down_after), server.is_reported_down()) {
            (true, false) => {
                let ejected = if server.is_ejected(clock::now()) { " and is ejected" } else { "" };
                let (cause, failures) = (server.cause().as_str(), plural(*down_after));
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
