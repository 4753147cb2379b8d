//! Several gateways in front of one store.

use std::net::SocketAddr;

use crate::harness::{Gateway, Response};

/// Two gateways, each a process of its own, so each with its own seeds, connections and memory.
#[derive(Debug)]
pub(crate) struct Fleet {
    /// The gateways.
    pub(crate) gateways: [Gateway; 2],
}

impl Fleet {
    /// Both with the same configuration.
    pub(crate) fn start(toml: &str) -> Self {
        Self::start_each(toml, toml)
    }

    /// Each with its own.
    pub(crate) fn start_each(one: &str, other: &str) -> Self {
        Self { gateways: [Gateway::start(one), Gateway::start(other)] }
    }

    /// Where they listen.
    pub(crate) fn addrs(&self) -> [SocketAddr; 2] {
        [self.gateways[0].addr(), self.gateways[1].addr()]
    }

    /// `GET path` from one of them in turn: the first for an even number.
    pub(crate) fn get_with(&self, number: usize, path: &str, fields: &str) -> Response {
        crate::harness::get_with(self.gateways[number % 2].addr(), path, fields)
    }

    /// The sum of a series over both.
    pub(crate) fn metric(&self, name: &str, labels: &[&str]) -> f64 {
        self.gateways.iter().map(|gateway| gateway.metric(name, labels)).sum()
    }
}
