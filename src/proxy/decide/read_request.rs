//! Reads the body of a request before it is decided: for its route, or for the limits of its route.

use super::PendingRequest;
use super::pending_request::ReadBody;
use super::read_content::{ReadPart, read_content};
use crate::measure::JsonPointer;
use crate::plan::reject_reason::RejectReason;
use crate::plan::resolve::{self, RoutedRequest};
use crate::proxy::record::request_context::RequestContext;
use crate::proxy::session::request_body::BodyOptions;
use crate::proxy::session::request_reader::{RequestReader, upload_fault};

/// Reads the body of a request whose route depends on it. The body of one that another proxy forwards stays there.
pub(super) async fn read_for_route(
    ctx: &mut RequestContext,
    reader: &mut RequestReader,
    pending: &PendingRequest<'_, '_>,
) -> Result<(), RejectReason> {
    let PendingRequest { plan, head, peer, asked, .. } = *pending;
    let needed = || resolve::body_to_read(plan, head, peer.as_seen());
    let Some((max, client)) = asked.is_none().then(needed).flatten() else { return Ok(()) };
    // It waits from now on.
    ctx.identify(client.address, "");
    pending.held.set_network(client.network);
    read_body(ctx, (plan.body_pointers(), max), reader, pending).await.map(|_| ())
}

/// Reads the body of a request whose limits count by it.
pub(super) async fn read_route_body<'r>(
    ctx: &mut RequestContext,
    request: &RoutedRequest<'_, 'r>,
    reader: &mut RequestReader,
    pending: &PendingRequest<'_, 'r>,
) -> Result<&'r ReadBody, RejectReason> {
    let what = (&*request.route.json_pointers, request.route.max_key_body);
    read_body(ctx, what, reader, pending).await
}

/// Reads the body of a request. `what`: see [`read_content`].
async fn read_body<'r>(
    ctx: &mut RequestContext,
    what: (&[JsonPointer], usize),
    reader: &mut RequestReader,
    pending: &PendingRequest<'_, 'r>,
) -> Result<&'r ReadBody, RejectReason> {
    match read_content(reader, pending.head, pending.ahead, what, pending.held).await {
        Ok((content, part)) => {
            let received = part.map(|ReadPart { begun, received }| {
                ctx.body_options.turn_to_begun(begun);
                received
            });
            Ok(pending.body.get_or_init(|| Box::new(ReadBody { content, received })))
        }
        Err(fault) => {
            // No byte can be read after it.
            ctx.body_options = BodyOptions::default();
            ctx.options.keep = false;
            Err(RejectReason::wait_failed(upload_fault(Some(fault))))
        }
    }
}
