//! Whether the servers can be asked, for the whole process: what /readyz and the metrics read, and the two log lines of an outage.
//!
//! Each worker has a connection of its own to a server and finds out by itself. The first that loses it logs that, the last that has it
//! back logs that. Written only where a link changes its state; whoever reads waits for nobody but such a writer.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::errors::ConnectionTrouble;
use crate::clock::deadline::now;

/// One server, as all workers together see it.
#[derive(Debug)]
pub struct Health {
    name: Arc<str>,
    outage: Mutex<Option<Outage>>,
    /// A link is back.
    back: Notify,
}

#[derive(Debug)]
struct Outage {
    /// So many links are down.
    links: usize,
    since: Instant,
    reason: Arc<str>,
}

impl Health {
    fn new(name: &str) -> Self {
        Self { name: name.into(), outage: Mutex::new(None), back: Notify::new() }
    }

    /// `host:port`, or what the servers are called together.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Whether every worker that has asked this server can ask it now.
    pub fn is_up(&self) -> bool {
        self.outage.lock().is_none()
    }

    /// Why the first worker that lost it lost it; `None` while it is up.
    pub fn reason(&self) -> Option<Arc<str>> {
        self.outage.lock().as_ref().map(|outage| Arc::clone(&outage.reason))
    }

    /// Ends when another link comes back: a good moment to try, so that the workers do not go different ways for longer than need be.
    pub(super) async fn another_is_back(&self) {
        self.back.notified().await;
    }

    /// A link went down. It counts until what is returned is dropped.
    pub(super) fn down(self: &Arc<Self>, trouble: &ConnectionTrouble) -> OutageGuard {
        let mut outage = self.outage.lock();
        match &mut *outage {
            Some(outage) => outage.links += 1,
            None => {
                let reason = Arc::from(trouble.to_string());
                tracing::warn!(
                    "the store at {} is unreachable: {reason}; limits follow their `on_error`",
                    self.name
                );
                *outage = Some(Outage { links: 1, since: now(), reason });
            }
        }
        OutageGuard(Some(Arc::clone(self)))
    }
}

/// A link that is down.
#[derive(Debug)]
pub(super) struct OutageGuard(Option<Arc<Health>>);

impl OutageGuard {
    /// The link is back.
    pub(super) fn over(mut self) {
        self.0.iter().for_each(|health| health.back.notify_waiters());
        self.leave("is asked again");
    }

    /// This link counts no more; `news` if the outage ends with it.
    fn leave(&mut self, news: &str) {
        let Some(health) = self.0.take() else { return };
        let mut slot = health.outage.lock();
        let Some(outage) = &mut *slot else { return };
        outage.links = outage.links.saturating_sub(1);
        if outage.links == 0 {
            let away = now().saturating_duration_since(outage.since).as_secs_f64();
            *slot = None;
            tracing::info!("the store at {} {news}, after {away:.1} s", health.name);
        }
    }
}

impl Drop for OutageGuard {
    /// Nobody wants to ask the server through this link any more: it has left its cluster, or we end.
    fn drop(&mut self) {
        self.leave("is not wanted any more");
    }
}

/// All servers that are asked. One for each `[store]` of a process.
#[derive(Debug, Default)]
pub struct ServerHealths(Mutex<BTreeMap<Arc<str>, Weak<Health>>>);

impl ServerHealths {
    /// The health of the server of this name, as long as anybody asks it.
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

    /// The servers that are asked now, by name.
    pub fn servers(&self) -> Vec<Arc<Health>> {
        self.0.lock().values().filter_map(Weak::upgrade).collect()
    }

    /// Whether every worker can ask every server.
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
    fn a_server_that_nobody_asks_is_forgotten() {
        let healths = ServerHealths::default();
        let (left, stays) = (healths.of("a:1"), healths.of("b:1"));
        let _down = stays.down(&ConnectionTrouble::Closed);
        drop(left);
        let names: Vec<_> = healths.servers().iter().map(|server| server.name().to_string()).collect();
        assert_eq!(names, ["b:1"]);
        assert!(!healths.is_up());
    }
}
