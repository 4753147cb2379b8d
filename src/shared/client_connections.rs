//! The number of open connections of each client, over all workers; limited by `max_connections_per_client`.

use std::net::IpAddr;
use std::sync::Arc;

use dashmap::DashMap;

/// Clients with open connections, by network. A shard is locked when a connection opens or closes, and only where there
/// is a limit. No larger than the number of open connections. Clients choose the keys, so the hash is the standard
/// library's (SipHash with a random key): foldhash does not promise to withstand an attacker who measures times.
#[derive(Debug, Default)]
pub struct ClientConnections(DashMap<IpAddr, usize>);

/// One of a client's connections, counted until it is dropped.
#[derive(Debug)]
pub struct ClientConnection {
    connections: Arc<ClientConnections>,
    network: IpAddr,
}

impl ClientConnections {
    /// Counts another connection of this client, unless it has `limit` already.
    pub fn admit(self: &Arc<Self>, network: IpAddr, limit: usize) -> Option<ClientConnection> {
        let mut open = self.0.entry(network).or_default();
        // With `limit` at least 1, a new entry never stays at 0.
        (*open < limit.max(1)).then(|| {
            *open += 1;
            ClientConnection { connections: Arc::clone(self), network }
        })
    }
}

impl Drop for ClientConnection {
    fn drop(&mut self) {
        self.connections.0.remove_if_mut(&self.network, |_, open| {
            *open -= 1;
            *open == 0
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_that_has_left_is_forgotten() {
        let connections = Arc::new(ClientConnections::default());
        let [one, other] = [[192, 0, 2, 1], [192, 0, 2, 2]].map(IpAddr::from);
        let guards: Vec<_> = (0..2).map(|_| connections.admit(one, 2).expect("room")).collect();
        assert!(connections.admit(one, 2).is_none());
        assert!(connections.admit(other, 2).is_some());
        drop(guards);
        assert!(connections.0.is_empty());
        assert!(connections.admit(one, 1).is_some());
    }
}
