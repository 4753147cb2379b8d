//! The head of a backend's response, as the client gets it.

use http::StatusCode;

use super::forward_request::ForwardRequest;
use super::response_body::BodyFraming;
use crate::http1::fields::Fields;
use crate::http1::name::Name;
use crate::http1::response::ResponseHead;
use crate::http2::head_sink::{HeadFormat, HeadSink};
use crate::plan::compression::Representation;
use crate::proxy::answer::response_fields::{FieldRewrites, put_fields};
use crate::proxy::record::request_context::RequestContext;
use crate::proxy::session::response_options::put_connection;

/// A head to be relayed.
pub(super) struct RelayedHead<'h, 'p> {
    pub(super) ctx: &'h RequestContext,
    pub(super) forward_request: &'h ForwardRequest<'p>,
    /// The index of the server that responded.
    pub(super) server: usize,
    /// The head.
    pub(super) head: &'h ResponseHead,
    /// Its reason.
    pub(super) reason: Option<&'h [u8]>,
    /// Its fields.
    pub(super) fields: Fields<'h>,
    /// How the body is framed for the client.
    pub(super) framing: BodyFraming,
    /// Whether the body is compressed, on a route with `compress`.
    pub(super) representation: Option<Representation>,
}

impl RelayedHead<'_, '_> {
    /// Writes the head. Returns how.
    #[inline(always)]
    pub(super) fn write(&self, mut sink: impl HeadSink) -> HeadFormat {
        let &Self { ctx, forward_request, server, head, reason, fields, framing, representation } = self;
        sink.status(head.status, reason);
        let session = forward_request.session_of(ctx, server);
        let rewrites = FieldRewrites { session, representation };
        put_fields(
            ctx,
            forward_request.route,
            forward_request.tightest.as_ref(),
            fields,
            rewrites,
            &mut sink,
        );
        forward_request.put_own_cookies(ctx, server, &mut sink);
        match (framing, head.content_length) {
            (BodyFraming::Chunked, _) => sink.field(b"transfer-encoding", b"chunked"),
            // RFC 9110 §8.6 forbids it with 204.
            // A response to HEAD describes the body that GET would get.
            (BodyFraming::Plain, Some(_)) if representation.is_some_and(|how| how.encoding.is_some()) => {}
            (BodyFraming::Plain, Some(length)) if head.status != StatusCode::NO_CONTENT => {
                sink.content_length(length);
            }
            (BodyFraming::Plain | BodyFraming::Frames, _) => {}
        }
        if !ctx.options.is_multiplexed() {
            // It says to which protocol (RFC 9110 §15.5.22). HTTP/2 has no such field (RFC 9113 §8.2.2).
            if head.status == StatusCode::UPGRADE_REQUIRED {
                fields.all_known(Name::Upgrade).for_each(|protocols| sink.field(b"upgrade", protocols));
                sink.field(b"connection", b"upgrade");
            }
            sink.written(|out| put_connection(ctx.options, out));
        }
        sink.end()
    }
}
