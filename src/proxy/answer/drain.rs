//! Request bodies that are read only to be discarded.

use std::future::poll_fn;
use std::time::Duration;

use bytes::BytesMut;
use tokio::time::timeout;

use crate::http1::request::Body;
use crate::proxy::record::request_context::RequestContext;
use crate::proxy::session::Session;
use crate::proxy::session::request_body::Upload;
use crate::proxy::session::request_reader::BodyFault;

/// An unread body up to this size is read before a refusal, so that the connection can stay open.
const DRAIN_BYTES: u64 = 64 << 10;
/// The time limit for that.
const DRAIN_TIME: Duration = Duration::from_secs(1);

/// The result of discarding a request body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Drained {
    /// The body was read to its end: the connection can serve the next request.
    Whole,
    /// The connection cannot be kept: the rest is too large, too slow, or the client waits for `100 Continue`.
    Left,
    /// The body is malformed or larger than allowed.
    Broken(BodyFault),
}

/// Reads the rest of a small body, so that the connection can serve the next request. After a larger body the
/// connection closes after the response.
pub(crate) async fn drain(session: &mut Session, ctx: &mut RequestContext) {
    // An HTTP/2 stream is answered first. Most refused requests have no body, and need no timer.
    if session.peer.is_multiplexed() || ctx.body_options.body() == Body::EMPTY {
        return;
    }
    let is_whole = ctx.body_options.length() <= DRAIN_BYTES && {
        let draining = read_whole(session, ctx, DRAIN_BYTES, None);
        timeout(DRAIN_TIME, draining).await == Ok(Drained::Whole)
    };
    ctx.options.keep &= is_whole;
}

/// Reads and discards up to `max` bytes of a body. `limit`: a body of more bytes is too large.
///
/// A client that waits for `100 Continue` is not asked to send a body that would only be discarded.
pub(crate) async fn read_whole(
    session: &mut Session,
    ctx: &mut RequestContext,
    max: u64,
    limit: Option<u64>,
) -> Drained {
    let body_options = std::mem::take(&mut ctx.body_options);
    if body_options.body() == Body::EMPTY {
        return Drained::Whole;
    }
    if body_options.expects_continue() {
        return Drained::Left;
    }
    let Session { reader, buffers, .. } = session;
    let inbound: &mut BytesMut = &mut buffers.get_or_insert_default().inbound;
    let mut upload = Upload::new(body_options, limit, reader, inbound);
    let is_whole = poll_fn(|context| {
        let drained = upload.poll_drain(context, max);
        ctx.received = upload.bytes();
        drained
    })
    .await;
    match upload.fault() {
        _ if is_whole => Drained::Whole,
        Some(fault) => Drained::Broken(fault),
        None => Drained::Left,
    }
}
