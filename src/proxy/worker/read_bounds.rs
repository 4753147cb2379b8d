//! How long and how much a client may send.

use std::time::Duration;

use crate::plan::Server;

/// The bounds of a client's sending side. The connections of a plan share them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadBounds {
    pub(crate) max_header_bytes: usize,
    pub(crate) header_timeout: Duration,
    pub(crate) body_timeout: Duration,
    pub(crate) idle_timeout: Duration,
    pub(crate) write_timeout: Duration,
}

impl ReadBounds {
    pub(crate) fn of(server: &Server) -> Self {
        Self {
            max_header_bytes: server.max_header_bytes,
            header_timeout: server.header_timeout,
            body_timeout: server.body_timeout,
            idle_timeout: server.idle_timeout,
            write_timeout: server.write_timeout,
        }
    }
}
