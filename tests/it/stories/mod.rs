//! Limits that people move here from other proxies, beside those proxies themselves; what these
//! ask a gateway; and attacks as they happen.

mod haproxy;
mod nginx;
mod recorded_calls;
mod stuffing;
mod traefik;

use std::collections::BTreeMap;
use std::net::SocketAddr;

use crate::harness::Client;

/// Sends this number of requests at once, each on a connection of its own, and gives the connections.
fn send_at_once(address: SocketAddr, count: usize, fields: &str) -> Vec<Client> {
    let mut clients: Vec<_> = (0..count).map(|_| Client::connect(address)).collect();
    for client in &mut clients {
        client.write(format!("GET / HTTP/1.1\r\nhost: test\r\nconnection: close\r\n{fields}\r\n"));
    }
    clients
}

/// Reads all responses and counts them by status.
fn statuses(clients: Vec<Client>) -> BTreeMap<u16, usize> {
    clients.into_iter().fold(BTreeMap::new(), |mut counts, mut client| {
        *counts.entry(client.read().status).or_default() += 1;
        counts
    })
}

/// The same of those that are answered within a second: the others are delayed.
fn statuses_at_once(clients: Vec<Client>) -> BTreeMap<u16, usize> {
    let started = std::time::Instant::now();
    clients.into_iter().fold(BTreeMap::new(), |mut counts, mut client| {
        let left = std::time::Duration::from_secs(2).saturating_sub(started.elapsed());
        if !client.silent_for(left.max(std::time::Duration::from_millis(20))) {
            *counts.entry(client.read().status).or_default() += 1;
        }
        counts
    })
}
