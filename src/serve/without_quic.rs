//! A build without HTTP/3 has no UDP sockets.

use super::ServeError;
use super::takeover::Predecessor;
use crate::plan::Plan;
use crate::proxy::{Listeners, WorkerListeners};

/// There are none.
#[derive(Debug)]
pub(super) struct NoQuicSockets;

impl NoQuicSockets {
    pub(super) fn bind(
        streams: Vec<Listeners>,
        _plan: &Plan,
        _predecessor: Option<&Predecessor>,
        _random: impl Fn() -> Result<[u8; 32], ServeError>,
    ) -> Result<(Self, Vec<WorkerListeners>), ServeError> {
        let all = streams.into_iter().map(|streams| WorkerListeners { streams });
        Ok((Self, all.collect()))
    }

    pub(super) fn start(&mut self) {}

    pub(super) fn withdraw(&self) {}

    pub(super) fn hand_over(&self) {}
}
