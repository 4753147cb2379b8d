//! What becomes of a connection after a response.

use std::time::Duration;

use tokio::time::Instant;

use crate::proxy::record::settlement::Settlement;
use crate::store::Places;
use crate::upstream::pool;

/// The action on a connection after a response.
#[derive(Debug)]
pub(crate) enum NextAction {
    /// Wait for the next request.
    Keep,
    /// Close, once the client has had time to read the response.
    Close,
    /// Close at once: the client has left, accepts nothing, or must detect a truncated response.
    Drop,
    /// Serve HTTP/2: none of the received bytes were consumed.
    Http2,
    /// Join to a backend connection.
    Tunnel(Box<PendingTunnel>),
}

/// A backend connection that has accepted an upgrade, and what the upgraded request holds until it ends.
#[derive(Debug)]
pub(crate) struct PendingTunnel {
    pub(crate) backend: pool::UpstreamConnection,
    /// The tunnel ends when neither side has transferred a byte for this long.
    pub(crate) silence: Duration,
    /// It ends then in any case.
    pub(crate) end: Option<Instant>,
    /// Its places under concurrency limits.
    pub(crate) places: Option<Box<Places>>,
    /// Its costs that are settled then.
    pub(crate) settlement: Option<Box<Settlement>>,
}
