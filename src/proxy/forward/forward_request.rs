//! An admitted request to be forwarded: its destination, and the properties that its response depends on.

use std::borrow::Cow;
use std::cell::Cell;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use http::StatusCode;
use http::header::{ACCEPT_ENCODING, IF_NONE_MATCH};

use super::consumer_headers::ConsumerHeaders;
use super::mirror::{BodyCopy, RequestCopy};
use super::upstream_head::{UpstreamRequestHead, is_idempotent, wanted_upgrade};
use super::websocket::{WebSocketFault, WebSocketHandshake};
use crate::http1::fields::{Fields, only};
use crate::http1::login::binds_connection;
use crate::http1::name::Name;
use crate::http1::request::RequestHead;
use crate::http1::response::ResponseHead;
use crate::http1::syntax::has_item;
use crate::http2::head_sink::{BlockHead, HeadSink, TextHead};
use crate::limit::units::Timestamp;
use crate::plan::action::RouteAction;
use crate::plan::admission::BindingLimit;
use crate::plan::compression::{Encoding, Representation, names_weak_tag};
use crate::plan::resolve::RoutedRequest;
use crate::plan::split_cookie::NewSplitCookie;
use crate::plan::sticky::Sticky;
use crate::plan::template::TemplateValues;
use crate::plan::{Affinity, Plan, Protocol, Route, Upstream, UpstreamIndex};
use crate::proxy::answer::response_fields::ServerSession;
use crate::proxy::record::request_context::RequestContext;
use crate::proxy::session::Session;
use crate::proxy::session::peer::ConnectionPeer;
use crate::proxy::session::request_reader::Source;
use crate::route::consumers::Consumer;
use crate::route::identity::GrantedField;
use crate::upstream::exchange::{self, ConnectRule, Exchange};
use crate::upstream::private::PrivateConnections;
use crate::upstream::{Failed, Failure};

/// The destination of an admitted request, and the properties that its response depends on. Outlives the request head.
pub(crate) struct ForwardRequest<'p> {
    pub(crate) route: &'p Route,
    pub(crate) upstream: UpstreamIndex,
    pub(crate) tightest: Option<BindingLimit<'p>>,
    /// The consumer of the request.
    consumer: Option<Consumer<'p>>,
    /// Further fields for the backend.
    granted: &'p [GrantedField],
    /// The Host for the backend, unless it is spelled so in the head.
    authority: Option<Box<str>>,
    /// The method is idempotent (RFC 9110 §9.2.2).
    pub(crate) idempotent: bool,
    /// The protocol that the backend may switch the client to.
    pub(crate) upgrade: Option<Box<[u8]>>,
    /// The handshake of a WebSocket where a side speaks HTTP/2.
    pub(crate) websocket: Option<Box<Result<WebSocketHandshake, WebSocketFault>>>,
    /// The client accepts trailers.
    pub(crate) trailers: bool,
    /// The content coding that the client prefers of those that the route offers.
    accepted: Option<Encoding>,
    /// The client asks whether its copy with a weak tag is current, on a route with `compress`.
    has_weak_tag: bool,
    /// What the request says about its server.
    pub(crate) affinity: Affinity,
    /// The cookie that keeps the client at the upstream, where the response sets one.
    split_cookie: Option<NewSplitCookie>,
    /// The client uses TLS.
    secure: bool,
    /// The client is identified.
    identified: bool,
    /// The request carries a login that is bound to the backend connection.
    pub(crate) private: bool,
    /// When the request was admitted, after any delay.
    pub(crate) since: Timestamp,
    /// A copy of the request for the route's mirror, if it gets one.
    pub(crate) copy: Cell<Option<Box<RequestCopy>>>,
}

impl<'p> ForwardRequest<'p> {
    pub(crate) fn new(
        routed: &RoutedRequest<'p, '_>,
        tightest: Option<BindingLimit<'p>>,
        since: Timestamp,
        (plan, client_multiplexed): (&Plan, bool),
    ) -> Self {
        let head = routed.head();
        let takes_trailers = |value| has_item(value, b"trailers");
        let compression = routed.route.compression.as_ref();
        // HTTP/1.0 has no chunks, and so no kept connection after a body without a length.
        let accepted = compression
            .filter(|_| head.http_11)
            .and_then(|compression| compression.choose(head.fields.all(&ACCEPT_ENCODING).iter()));
        let has_weak_tag =
            compression.is_some() && head.fields.all(&IF_NONE_MATCH).iter().any(names_weak_tag);
        // A request that is forwarded has an upstream.
        let upstream = routed.upstream.unwrap_or(UpstreamIndex(0));
        let upgrade = wanted_upgrade(head).map(Box::from);
        let websocket = upgrade.as_deref().and_then(|protocol| {
            WebSocketHandshake::of(head, protocol, client_multiplexed, plan.upstream(upstream).protocol)
        });
        Self {
            route: routed.route,
            upstream,
            tightest,
            consumer: routed.caller.consumer.map(|named| named.consumer),
            granted: routed.caller.granted,
            authority: routed.normal_authority(),
            idempotent: is_idempotent(&head.method),
            upgrade,
            websocket: websocket.map(Box::new),
            // HTTP/1.0 has no chunks, and so no trailers.
            trailers: head.http_11 && head.fields.all_known(Name::Te).any(takes_trailers),
            accepted,
            has_weak_tag,
            affinity: routed.affinity,
            split_cookie: match &routed.route.action {
                RouteAction::Split(split) if split.cookie.is_some() => {
                    split.new_cookie(routed.route.matched(&routed.request()), upstream)
                }
                _ => None,
            },
            secure: routed.is_secure(),
            identified: routed.is_identified(),
            private: head.fields.all_known(Name::Authorization).any(binds_connection),
            since,
            copy: Cell::default(),
        }
    }

    /// Writes the head for the backend, and for the mirror.
    pub(crate) fn write_head(
        &self,
        ctx: &mut RequestContext,
        head: &RequestHead<'_>,
        target: Cow<'_, str>,
        peer: &ConnectionPeer,
        out: &mut BytesMut,
    ) {
        let plan = Rc::clone(&ctx.plan);
        let server = &plan.server;
        let trusted = server.client.trusts(peer.address);
        if ctx.log.trace.is_some() {
            ctx.trace_way(self.upstream, &target, self.since);
        }
        let client = self.client(ctx);
        let settlement = ctx.limits.settlement.as_mut().map(|settlement| {
            settlement.forward(self.since);
            &**settlement
        });
        let consumer = ConsumerHeaders::new(&plan, self.route.auth.as_ref(), self.consumer, self.granted);
        let scheme = match consumer.asks_service() {
            true if self.secure => "https",
            true => "http",
            false => peer.scheme,
        };
        let onward = UpstreamRequestHead {
            target,
            authority: self.authority.as_deref(),
            upstream: plan.upstream(self.upstream),
            mirror: None,
            peer: peer.text.as_bytes(),
            scheme,
            trusted,
            source: &server.client.source,
            client,
            request_id: &ctx.request_id,
            loop_mark: &ctx.worker.shared.loop_mark,
            upgrade: self.upgrade.as_deref(),
            websocket: self.websocket(),
            // A cost may be in trailers that the client does not take.
            trailers: self.trailers || settlement.is_some_and(|settlement| settlement.reads_trailers()),
            via: server.via,
            trace: ctx.log.trace.as_ref(),
            forwards_certificate: self.route.forward_client_cert,
            certificate: peer.certificate.as_deref(),
            session: self.sessions(&plan).filter(|_| self.affinity.server.is_some()),
            consumer,
            edits: &self.route.request_headers,
            noted: ctx.noted.as_deref(),
        };
        match onward.upstream.protocol {
            Protocol::Http1 => {
                let mut sink = TextHead(out);
                onward.write(head, &mut sink);
                sink.end_request();
            }
            Protocol::Http2 => {
                let mut sink = BlockHead::new(out);
                onward.write(head, &mut sink);
                sink.end_request();
            }
        }
        if let Some(mut copy) = self.copy.take() {
            copy.write_head(&plan, onward, head);
            self.copy.set(Some(copy));
        }
    }

    /// Writes the cookies that name the upstream and the server, where the request did not name them.
    pub(crate) fn put_own_cookies(&self, ctx: &RequestContext, server: usize, sink: &mut impl HeadSink) {
        if let Some(sticky) = &self.upstream_of(ctx).sticky
            && self.affinity.server != Some(server)
        {
            sink.written(|out| sticky.put_cookie(server, self.secure, out));
        }
        if let Some(cookie) = &self.split_cookie {
            sink.written(|out| cookie.put(self.secure, out));
        }
    }

    /// `sticky` of the upstream, if it is by a header.
    fn sessions<'t>(&self, plan: &'t Plan) -> Option<&'t Sticky> {
        let sticky = plan.upstream(self.upstream).sticky.as_deref();
        sticky.filter(|sticky| sticky.session_header().is_some())
    }

    /// What the response's session header is rewritten by, if the upstream has one.
    pub(crate) fn session_of<'t>(&self, ctx: &'t RequestContext, server: usize) -> Option<ServerSession<'t>> {
        Some(ServerSession { sticky: self.sessions(&ctx.plan)?, server })
    }

    /// The handshake of a WebSocket where a side speaks HTTP/2.
    fn websocket(&self) -> Option<&WebSocketHandshake> {
        self.websocket.as_deref().and_then(|handshake| handshake.as_ref().ok())
    }

    /// Why the handshake cannot be passed on.
    pub(crate) fn handshake_fault(&self) -> Option<WebSocketFault> {
        self.websocket.as_deref().and_then(|handshake| handshake.as_ref().err().copied())
    }

    /// How the request is sent to a server of HTTP/2.
    pub(crate) fn connect_rule(&self) -> ConnectRule {
        self.websocket().map_or(ConnectRule::Never, WebSocketHandshake::rule)
    }

    /// A switch to a protocol that the client did not ask for is not a valid response. Neither is one without proof that
    /// the key of the gateway was read, nor a success that would tell an HTTP/2 client that its WebSocket is open.
    pub(crate) fn is_answer<U: exchange::RequestBody>(
        &self,
        exchange: &Exchange<'_, U>,
        head: &ResponseHead,
    ) -> bool {
        let http2 = self.websocket().filter(|handshake| handshake.of_http2);
        if head.status != StatusCode::SWITCHING_PROTOCOLS {
            return http2.is_none() || !head.status.is_success() || exchange.opens_websocket(head);
        }
        let protocol = only(exchange.fields(head).all_known(Name::Upgrade));
        let is_asked = |asked: &[u8]| protocol.is_some_and(|protocol| protocol.eq_ignore_ascii_case(asked));
        let is_proven = |handshake: &WebSocketHandshake| handshake.is_proven(exchange.fields(head));
        self.upgrade.as_deref().is_some_and(is_asked) && http2.is_none_or(is_proven)
    }

    /// Turns a response with a well-formed head into a failed one.
    pub(crate) fn no_answer<U: exchange::RequestBody>(
        &self,
        ctx: &RequestContext,
        exchange: &Exchange<'_, U>,
    ) -> Failed {
        ctx.plan.metrics.failed_attempts(self.upstream, 1);
        let authority = Some(Arc::clone(exchange.authority()));
        let attempts = exchange.attempts();
        Failed { failure: Failure::Protocol, authority, attempts, retry_after: None, reached: true }
    }

    /// The PROXY protocol header of the request's connection, and the connections that began with such headers, if its
    /// upstream has them.
    pub(crate) fn announce<'c>(
        &self,
        ctx: &RequestContext,
        peer: &'c ConnectionPeer,
        source: &Source,
    ) -> Option<(Box<[u8]>, &'c PrivateConnections)> {
        let version = self.upstream_of(ctx).send_proxy_protocol?;
        Some(peer.proxy_header(version, self.client(ctx), source))
    }

    /// Sends the copy of the request to its mirror, if there is one; or else, returns what copies the body.
    #[inline]
    pub(super) fn start_copy(&self, session: &Session, ctx: &RequestContext) -> Option<BodyCopy> {
        let mut copy = self.copy.take()?;
        if let Some(version) = ctx.plan.upstream(copy.upstream()).send_proxy_protocol {
            let source = session.reader.source();
            copy.announce(session.peer.proxy_header(version, self.client(ctx), source).0);
        }
        copy.start(ctx.body_options.body(), self.upstream_of(ctx).protocol)
    }

    /// The client's address, if it is identified.
    fn client(&self, ctx: &RequestContext) -> Option<IpAddr> {
        ctx.client.filter(|_| self.identified)
    }

    /// How the response goes to the client, on a route with `compress`.
    pub(crate) fn represent(
        &self,
        ctx: &RequestContext,
        head: &ResponseHead,
        fields: Fields<'_>,
    ) -> Option<Representation> {
        let limit = self.tightest.map_or("", |tightest| &tightest.limit.name);
        let values = || TemplateValues { limit, ..ctx.template_values() };
        let (client, edits) = ((self.accepted, self.has_weak_tag), &self.route.response_headers);
        self.route.compression.as_ref()?.represent(head, fields, client, edits, values)
    }

    /// The maximum number of bytes of a request body; `None`: no limit.
    pub(crate) fn max_body_bytes(&self) -> Option<u64> {
        self.route.max_body_bytes
    }

    /// How long the backend may be silent.
    pub(crate) fn silence(&self) -> Duration {
        self.route.read_timeout
    }

    pub(crate) fn upstream_of<'t>(&self, ctx: &'t RequestContext) -> &'t Upstream {
        ctx.plan.upstream(self.upstream)
    }
}
