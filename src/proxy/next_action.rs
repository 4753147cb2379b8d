//! The fate of a client connection after a response.

use std::time::Duration;

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
    /// Join to this backend connection, until neither side has transferred a byte for this long. The places of the
    /// request are held until then.
    Tunnel(pool::UpstreamConnection, Duration, Option<Box<Places>>),
}
