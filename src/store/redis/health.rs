//! The availability of the servers, for the whole process: read by /readyz and the metrics, and logged at the start and
//! end of an outage.
//!
//! Each worker has a connection of its own to a server and detects an outage itself. The first worker that loses its
//! connection logs the outage; the last one that regains it logs the end. The state is written only when a connection
//! changes; a reader waits only for such a write.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::errors::ConnectionTrouble;
use crate::clock::now;

/// One server, as all workers together see it.
#[derive(Debug)]
pub struct Health {
    name: Arc<str>,
    outage: Mutex<Option<Outage>>,
    /// Notifies waiting tasks that a connection is up again.
    back: Notify,
}

#[derive(Debug)]
struct Outage {
    /// The number of connections that are down.
    connections: usize,
    since: Instant,
    reason: Arc<str>,
}

impl Health {
    fn new(name: &str) -> Self {
        Self { name: name.into(), outage: Mutex::new(None), back: Notify::new() }
    }

    /// `host:port`, or the common name of the servers.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Whether every worker that has called this server can call it now.
    pub fn is_up(&self) -> bool {
        self.outage.lock().is_none()
    }

    /// The fault of the first worker that lost its connection; `None` while the server is up.
    pub fn reason(&self) -> Option<Arc<str>> {
        self.outage.lock().as_ref().map(|outage| Arc::clone(&outage.reason))
    }

    /// Ends when another worker's connection is up again. The caller then tries at once, so that workers decide
    /// differently for as short as possible.
    pub(super) async fn another_is_back(&self) {
        self.back.notified().await;
    }

    /// Records that a connection went down. It counts until the guard is dropped.
    pub(super) fn down(self: &Arc<Self>, trouble: &ConnectionTrouble) -> OutageGuard {
        let mut outage = self.outage.lock();
        match &mut *outage {
            Some(outage) => outage.connections += 1,
            None => {
                let reason = Arc::from(trouble.to_string());
                tracing::warn!(
                    "the store at {} is unreachable: {reason}; limits follow their `on_error`",
                    self.name
                );
                *outage = Some(Outage { connections: 1, since: now(), reason });
            }
        }
        OutageGuard(Some(Arc::clone(self)))
    }
}

/// A connection that is down.
#[derive(Debug)]
pub(super) struct OutageGuard(Option<Arc<Health>>);

impl OutageGuard {
    /// Records that the connection is up again.
    pub(super) fn over(mut self) {
        self.0.iter().for_each(|health| health.back.notify_waiters());
        self.leave("is asked again");
    }

    /// Ends the count of this connection; `news` is logged if the outage ends with it.
    fn leave(&mut self, news: &str) {
        let Some(health) = self.0.take() else { return };
        let mut slot = health.outage.lock();
        let Some(outage) = &mut *slot else { return };
        outage.connections = outage.connections.saturating_sub(1);
        if outage.connections == 0 {
            let away = now().saturating_duration_since(outage.since).as_secs_f64();
            *slot = None;
            tracing::info!("the store at {} {news}, after {away:.1} s", health.name);
        }
    }
}

impl Drop for OutageGuard {
    /// The connection is no longer needed: the node has left its cluster, or the process ends.
    fn drop(&mut self) {
        self.leave("is not wanted any more");
    }
}

/// All servers in use. One for each `[store]` of a process.
#[derive(Debug, Default)]
pub struct ServerHealths(Mutex<BTreeMap<Arc<str>, Weak<Health>>>);

impl ServerHealths {
    /// The health of the server of this name, which exists as long as a connection to the server.
    pub(super) fn of(&self, name: &str) -> Arc<Health> {
        let mut servers = self.0.lock();
        if let Some(health) = servers.get(name).and_then(Weak::upgrade) {
            return health;
        }
        servers.retain(|_, health| health.strong_count() > 0);
        let health = Arc::new(Health::new(name));
        servers.insert(Arc::clone(&health.name), Arc::downgrade(&health));
        health
    }

    /// The servers in use, by name.
    pub fn servers(&self) -> Vec<Arc<Health>> {
        self.0.lock().values().filter_map(Weak::upgrade).collect()
    }

    /// Whether every worker can call every server.
    pub fn is_up(&self) -> bool {
        self.servers().iter().all(|server| server.is_up())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_down_from_the_first_link_to_the_last() {
        let healths = ServerHealths::default();
        let server = healths.of("a:1");
        assert!(Arc::ptr_eq(&server, &healths.of("a:1")));
        let first = server.down(&ConnectionTrouble::Closed);
        let second = server.down(&ConnectionTrouble::Odd("something else"));
        assert_eq!(server.reason().as_deref(), Some("it closed the connection"));
        first.over();
        assert!(!server.is_up() && !healths.is_up());
        second.over();
        assert!(server.is_up() && server.reason().is_none());
    }

    #[test]
    fn a_server_without_connections_is_forgotten() {
        let healths = ServerHealths::default();
        let (left, stays) = (healths.of("a:1"), healths.of("b:1"));
        let _down = stays.down(&ConnectionTrouble::Closed);
        drop(left);
        let names: Vec<_> = healths.servers().iter().map(|server| server.name().to_string()).collect();
        assert_eq!(names, ["b:1"]);
        assert!(!healths.is_up());
    }
}
