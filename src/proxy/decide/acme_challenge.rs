//! Requests by which an authority looks whether a name is ours (http-01): they are answered before anything else, whatever
//! the routes and limits say.

use std::sync::Arc;

use http::Method;

use super::pending_request::PendingRequest;
use crate::proxy::record::request_context::RequestContext;

/// The answer, if the request is one about a challenge that is under way.
#[inline]
pub(super) fn answer(ctx: &mut RequestContext, pending: &PendingRequest<'_, '_>) -> Option<Arc<str>> {
    let path = pending.head.target.path;
    let answer = ctx.worker.shared.acme.challenges.answer(path)?;
    let is_read = [Method::GET, Method::HEAD].contains(&pending.head.method);
    if !is_read || pending.asked.is_some() {
        return None;
    }
    ctx.identify(pending.peer.address, pending.head.host.unwrap_or_default());
    Some(answer)
}
