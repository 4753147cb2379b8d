//! The response to an upgrade that the backend has agreed to: the bytes that follow are not HTTP.

use bytes::Buf as _;
use http::StatusCode;
use http::header::SEC_WEBSOCKET_ACCEPT;

use super::forward_request::ForwardRequest;
use super::response_body::RelayError;
use super::{ResponseRelay, end_measurement};
use crate::http1::name::Name;
use crate::http1::response::ResponseHead;
use crate::http2::head_sink::{HeadSink as _, TextHead};
use crate::limit::adaptive_concurrency::SampleOutcome;
use crate::proxy::answer::next_action::{NextAction, PendingTunnel};
use crate::proxy::answer::response_fields::{FieldRewrites, put_fields};
use crate::proxy::session::request_body::Upload;
use crate::upstream::exchange::{Exchange, ResponseBuffer};

impl ResponseRelay<'_, '_> {
    /// The backend agreed to switch protocols.
    pub(super) async fn switch(
        self,
        mut exchange: Exchange<'_, Upload<'_>>,
        head: &ResponseHead,
    ) -> NextAction {
        let out = &mut *self.outbound;
        exchange.body().end_interim(out);
        let server = exchange.index();
        let ForwardRequest { route, tightest, websocket, .. } = self.forward_request;
        let handshake = websocket.as_deref().and_then(|handshake| handshake.as_ref().ok());
        if handshake.is_some() {
            // It is set anew for a client that has sent a key.
            leave_out_accept(exchange.answer(), head);
        }
        let fields = exchange.answer().fields(head);
        let protocol = fields.known(Name::Upgrade).unwrap_or(b"websocket");
        // A stream is open after 200 (RFC 8441 §4).
        let status = match self.ctx.options.is_multiplexed() {
            true => StatusCode::OK,
            false => StatusCode::SWITCHING_PROTOCOLS,
        };
        let head_begins = out.len();
        let mut sink = TextHead(out);
        sink.status(status, None);
        let session = self.forward_request.session_of(self.ctx, server);
        let rewrites = FieldRewrites { session, representation: None };
        put_fields(self.ctx, route, tightest.as_ref(), fields, rewrites, &mut sink);
        self.forward_request.put_own_cookies(self.ctx, server, &mut sink);
        if status == StatusCode::SWITCHING_PROTOCOLS {
            sink.field(b"connection", b"upgrade");
            sink.field(b"upgrade", protocol);
        }
        if let Some(accept) = handshake.and_then(|handshake| handshake.accept()) {
            sink.field(b"sec-websocket-accept", accept.as_bytes());
        }
        sink.end();
        self.ctx.note_response_head(out.get(head_begins..).unwrap_or_default());
        if let Some(settlement) = &mut self.ctx.limits.settlement {
            settlement.head(head.status, exchange.answer().fields(head));
        }
        exchange.answer().bytes.advance(head.length);
        self.ctx.answered(status, None);
        end_measurement(&mut self.ctx.limits.places, Some(SampleOutcome::Answered));
        match self.writer.switch(self.outbound).await {
            Ok(()) => NextAction::Tunnel(Box::new(PendingTunnel {
                backend: exchange.into_connection(),
                silence: self.forward_request.route.tunnel_timeout,
                end: self.end.at(),
                places: self.ctx.limits.places.take(),
                settlement: self.ctx.limits.settlement.take(),
            })),
            Err(_) => self.cut(RelayError::Client, false, 0),
        }
    }
}

/// Removes `sec-websocket-accept` from the fields of a response.
fn leave_out_accept(answer: &mut ResponseBuffer, head: &ResponseHead) {
    let ResponseBuffer { bytes, spans } = answer;
    let bytes = bytes.get(..head.length).unwrap_or_default();
    spans.retain(|span| !span.is_named(bytes, &SEC_WEBSOCKET_ACCEPT));
}
