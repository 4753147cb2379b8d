//! The fate of a client connection after a response.

use std::time::Duration;

use super::settlement::Settlement;
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
    /// Join to this backend connection, until neither side has transferred a byte for this long.
    Tunnel(pool::UpstreamConnection, Duration, TunnelHold),
}

/// What an upgraded request holds until its connection ends.
#[derive(Debug)]
pub(crate) struct TunnelHold {
    /// Its places under concurrency limits.
    pub(crate) places: Option<Box<Places>>,
    /// Its costs that are settled then.
    pub(crate) settlement: Option<Box<Settlement>>,
}
