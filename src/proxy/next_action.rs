//! What becomes of a client's connection when a request has been answered.

use std::time::Duration;

use crate::upstream::pool;

/// What becomes of the connection when a request has been answered.
#[derive(Debug)]
pub(crate) enum NextAction {
    /// The next request is awaited.
    Keep,
    /// It is closed, once the client has had the time to read the answer.
    Close,
    /// It is closed at once: the client has left, takes nothing, or must learn that something is missing.
    Drop,
    /// The client speaks HTTP/2 on it: nothing was taken of what has come.
    Http2,
    /// It is joined to this backend, until neither has moved a byte for so long.
    Tunnel(pool::UpstreamConnection, Duration),
}
