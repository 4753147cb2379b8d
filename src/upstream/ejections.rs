//! Tells the program's log who is ejected. The control thread looks once a second: workers log nothing for a request.

use std::sync::Arc;
use std::time::Duration;

use super::fitness::Fitness;
use super::roster::Roster;
use crate::clock::deadline;
use crate::gateway::{Endpoint, Upstream};

/// How often is looked.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// A server that can be ejected, and what was told of it.
pub(super) struct Watched {
    upstream: Arc<str>,
    authority: Arc<str>,
    server: Arc<Fitness>,
    /// Ejections that were told.
    told: u64,
    /// Its return is still to be told.
    away: bool,
}

/// The servers of a plan that can be ejected.
pub(super) fn watched(upstreams: &[Arc<Upstream>], roster: &Roster) -> Vec<Watched> {
    let now = deadline::now();
    let ejecting = upstreams.iter().filter(|upstream| upstream.eject.is_some());
    ejecting
        .filter(|upstream| upstream.endpoints().len() > 1)
        .flat_map(|upstream| {
            let peers = roster.peers(upstream);
            let watch = |(endpoint, server): (&Endpoint, &Arc<Fitness>)| Watched {
                upstream: Arc::clone(&upstream.name),
                authority: Arc::clone(&endpoint.authority),
                server: Arc::clone(server),
                told: server.ejections(),
                away: server.is_ejected(now),
            };
            upstream.endpoints().iter().zip(peers.iter()).map(watch).collect::<Vec<_>>()
        })
        .collect()
}

/// Tells of each ejection and of each return, until it is aborted.
pub(super) async fn tell(mut servers: Vec<Watched>) {
    while !servers.is_empty() {
        tokio::time::sleep(LOOK_EVERY).await;
        let now = deadline::now();
        for watched in &mut servers {
            let Watched { upstream, authority, server, told, away } = watched;
            let (ejections, ejected) = (server.ejections(), server.is_ejected(now));
            if ejections > *told {
                tracing::warn!("upstream `{upstream}`: {authority} is ejected: too many failures in a row");
                (*told, *away) = (ejections, true);
            }
            if *away && !ejected {
                tracing::info!("upstream `{upstream}`: {authority} is tried again");
                *away = false;
            }
        }
    }
}
