//! Resolves a request head to its route, client and charges, or to the response sent before any limit is checked, for
//! the proxy, `explain`, the admin API and `replay`.
//!
//! It does no I/O, reads no clock and draws nothing: the same input has the same result. [`locate`] finds the route; the
//! [`RequestDecision`](super::decision::RequestDecision) learns what the request's credential and its body say, and assigns the rest.

mod search;

use std::borrow::Cow;

use super::action::RouteAction;
use super::admission::RequestCharges;
use super::auth::{AuthFailure, CallerIdentity};
use super::early_response::EarlyResponse;
use super::loop_mark::LoopMark;
pub use super::peer::{LoggedSender, Peer};
use super::reject_reason::RejectReason;
use super::seen_request::{RoutedHead, SeenRequest};
use super::target::AmbiguousTarget;
use super::{Affinity, BatchRule, Limit, LimitUse, Plan, Redirect, Route, UpstreamIndex};
use crate::http1::name::Name;
use crate::http1::request::{Body, RequestHead};
use crate::route::client::ClientAddress;
use crate::route::content::RequestContent;
use crate::route::key::KeySecret;
use crate::route::path::{EncodedDots, Path};
use crate::route::pattern::bare_host;
use crate::route::{Conditions, RouteIndex, RouteRequest};
use search::{find, has_known_expectation, https_location, preflight_route};

/// How often a request may pass this process: a gateway both before and behind a cache is passed twice.
const MAX_PASSES: usize = 3;

/// The client, the host and the route of a request.
#[derive(Debug)]
pub struct RouteLookup<'p, 'r> {
    /// The client of the request.
    pub client: ClientAddress,
    /// The request's host: lower case, without port and final dot. Empty if there is none, or it is malformed.
    pub host: Cow<'r, str>,
    /// The request's route, if one was found: also if the response is sent before any limit is checked.
    pub route: Option<(RouteIndex, &'p Route)>,
    /// The next step.
    pub outcome: Result<LocatedRequest<'p, 'r>, Unroutable<'r>>,
}

/// A request that its route takes, if its credential is in order.
#[derive(Debug)]
pub struct LocatedRequest<'p, 'r> {
    /// The index of its route.
    pub index: RouteIndex,
    /// Its route.
    pub route: &'p Route,
    /// The request as routes see it.
    pub seen: &'r SeenRequest<'r>,
}

/// A request that is answered before its credential is looked at.
#[derive(Debug)]
pub struct Unroutable<'r> {
    /// The response.
    pub response: EarlyResponse,
    /// The request as routes see it, if its path is valid.
    pub seen: Option<&'r SeenRequest<'r>>,
}

/// A request with a route, and the data found for it so far.
#[derive(Debug)]
pub struct RoutedRequest<'p, 'r> {
    /// The index of its route.
    pub index: RouteIndex,
    /// Its route.
    pub route: &'p Route,
    /// What its credential tells.
    pub caller: CallerIdentity<'p>,
    /// Why auths in shadow would have refused it.
    pub shadow_failure: Option<AuthFailure>,
    /// The charges that are decided now, or were decided last.
    pub charges: RequestCharges<'p>,
    /// The upstream that it is forwarded to; `None`: the gateway answers.
    pub upstream: Option<UpstreamIndex>,
    /// Its name, if a limit of the route counts by it.
    pub(super) upstream_name: Option<&'p str>,
    /// The path and query for the backend, or the location of a redirect. Empty if the gateway answers.
    pub target: Cow<'r, str>,
    /// What it says about its server.
    pub affinity: Affinity,
    pub(super) seen: &'r SeenRequest<'r>,
    /// What its body says, as far as it was read.
    pub(super) content: &'r RequestContent,
}

/// The input of the first step.
#[derive(Clone, Copy)]
struct Input<'p, 'r> {
    plan: &'p Plan,
    head: &'r RequestHead<'r>,
    peer: Peer<'r>,
    client: ClientAddress,
    /// What is known of an equal head.
    last: Option<RoutedHead>,
    /// What its body says, if its route depends on it.
    content: &'r RequestContent,
}

/// Finds the route of a request, as the client sent it. `loop_mark` is that of the process; without one, no request counts
/// as having passed it before. `seen` keeps the request as routes see it: all that follows borrows it, since moving it
/// costs measurably.
pub fn locate<'p, 'r>(
    plan: &'p Plan,
    loop_mark: Option<&LoopMark>,
    head: &'r RequestHead<'r>,
    peer: Peer<'r>,
    seen: &'r mut Option<SeenRequest<'r>>,
) -> RouteLookup<'p, 'r> {
    locate_again(plan, loop_mark, head, peer, None, seen)
}

/// The same for a head that may equal one whose route was found: `last` is what was found out, if it does. `None` wherever
/// routes depend on more than the head ([`RouteTable::reads_connection`](crate::route::RouteTable::reads_connection)).
#[inline]
pub fn locate_again<'p, 'r>(
    plan: &'p Plan,
    loop_mark: Option<&LoopMark>,
    head: &'r RequestHead<'r>,
    peer: Peer<'r>,
    last: Option<RoutedHead>,
    seen: &'r mut Option<SeenRequest<'r>>,
) -> RouteLookup<'p, 'r> {
    let client = plan.server.client.identify(peer.address, head.fields);
    Input { plan, head, peer, client, last, content: &RequestContent::Unknown }.locate(loop_mark, seen)
}

/// How many bytes of the body are read to find the route of a request, and its client. `None`: the head is enough, or tells
/// that the request is refused.
#[cold]
pub fn body_to_read(plan: &Plan, head: &RequestHead<'_>, peer: Peer<'_>) -> Option<(usize, ClientAddress)> {
    if head.body == Body::EMPTY || !has_known_expectation(head) {
        return None;
    }
    let client = plan.server.client.identify(peer.address, head.fields);
    plan.server.addresses.check(client).ok()?;
    let mut seen = None;
    let content = &RequestContent::Unread;
    let input = Input { plan, head, peer, client, last: None, content };
    let seen = input.see(authority_of(head), &mut seen).ok()?;
    let request = seen.request();
    let route = plan.route(plan.table.find(&request)?);
    let depends = route.conditions.values.iter().any(|condition| condition.undecided(&request).is_some());
    depends.then_some((route.max_key_body, client))
}

/// As [`locate`], for a request with this body, on which its route depends.
pub fn locate_by_body<'p, 'r>(
    plan: &'p Plan,
    loop_mark: Option<&LoopMark>,
    (head, content): (&'r RequestHead<'r>, &'r RequestContent),
    peer: Peer<'r>,
    seen: &'r mut Option<SeenRequest<'r>>,
) -> RouteLookup<'p, 'r> {
    let client = plan.server.client.identify(peer.address, head.fields);
    Input { plan, head, peer, client, last: None, content }.locate(loop_mark, seen)
}

/// Finds the route of a request of an access log.
pub fn locate_logged<'p, 'r>(
    plan: &'p Plan,
    head: &'r RequestHead<'r>,
    sender: LoggedSender,
    seen: &'r mut Option<SeenRequest<'r>>,
) -> RouteLookup<'p, 'r> {
    let peer = sender.peer();
    let client = plan.server.client.client(sender.client);
    Input { plan, head, peer, client, last: None, content: &RequestContent::Unknown }.locate(None, seen)
}

/// Finds the route of a request that another proxy forwards for this client. `secure`: the client uses TLS.
pub fn locate_asked<'p, 'r>(
    plan: &'p Plan,
    head: &'r RequestHead<'r>,
    (client, secure): (ClientAddress, bool),
    seen: &'r mut Option<SeenRequest<'r>>,
) -> RouteLookup<'p, 'r> {
    let peer = Peer { address: client.address, secure, certificate: None, listener: None };
    Input { plan, head, peer, client, last: None, content: &RequestContent::Unknown }.locate(None, seen)
}

/// A call itself, as the keys of its limits see it. Its path is not looked at.
///
/// # Errors
///
/// The path or the host is malformed.
pub fn see_call<'r>(
    plan: &Plan,
    head: &'r RequestHead<'r>,
    peer: Peer<'r>,
    seen: &'r mut Option<SeenRequest<'r>>,
) -> Result<&'r SeenRequest<'r>, EarlyResponse> {
    let client = plan.server.client.client(peer.address);
    let content = &RequestContent::Unknown;
    Input { plan, head, peer, client, last: None, content }.see(authority_of(head), seen)
}

impl<'p, 'r> Input<'p, 'r> {
    #[inline]
    fn locate(
        self,
        loop_mark: Option<&LoopMark>,
        seen: &'r mut Option<SeenRequest<'r>>,
    ) -> RouteLookup<'p, 'r> {
        let mut route = None;
        let authority = authority_of(self.head);
        let (host, outcome) = match self.see(authority, seen) {
            Err(response) => (bare_host(authority), Err(Unroutable { response, seen: None })),
            Ok(seen) => {
                let outcome = match self.route(loop_mark, seen, &mut route) {
                    Ok((index, route)) => Ok(LocatedRequest { index, route, seen }),
                    Err(response) => Err(Unroutable { response, seen: Some(seen) }),
                };
                (Cow::Borrowed(&*seen.host), outcome)
            }
        };
        RouteLookup { client: self.client, host, route, outcome }
    }

    #[inline]
    fn see(
        self,
        authority: &'r str,
        seen: &'r mut Option<SeenRequest<'r>>,
    ) -> Result<&'r SeenRequest<'r>, EarlyResponse> {
        let Self { plan, head, peer, client, .. } = self;
        if head.target.path == "*" {
            return Err(EarlyResponse::Options);
        }
        let (raw, matching) = (head.target.path, plan.server.path_matching);
        let (path, host) = match self.last.and_then(|last| authority.get(..last.host)) {
            Some(host) => (Path::plain(raw, matching), Cow::Borrowed(host)),
            None => {
                let path = Path::parse(raw, matching).map_err(RejectReason::malformed_path)?;
                (path, bare_host(authority))
            }
        };
        Ok(seen.insert(SeenRequest {
            head,
            path,
            named: authority,
            host,
            client,
            peer: peer.address,
            certificate: peer.certificate,
            listener: peer.listener,
            secure: self.came_by_tls(),
            content: self.content,
        }))
    }

    fn route(
        self,
        loop_mark: Option<&LoopMark>,
        seen: &SeenRequest<'r>,
        found: &mut Option<(RouteIndex, &'p Route)>,
    ) -> Result<(RouteIndex, &'p Route), EarlyResponse> {
        let Self { plan, head, .. } = self;
        if seen.path.has_encoded_dots() && plan.server.encoded_dots == EncodedDots::Reject {
            return Err(RejectReason::encoded_dots().into());
        }
        if loop_mark.is_some_and(|mark| mark.passes(head.fields) >= MAX_PASSES) {
            return Err(RejectReason::looped().into());
        }
        let request = seen.request();
        let preflight = preflight_route(plan, head, &request);
        let known = self.last.map(|last| last.route);
        let index = match preflight.or(known) {
            Some(index) => index,
            None => find(plan, &request)?,
        };
        let route = plan.route(index);
        *found = Some((index, route));
        for rules in [&plan.server.addresses, &route.addresses] {
            rules.check(self.client).map_err(RejectReason::address)?;
        }
        if route.redirect == Some(Redirect::Https) && !self.came_by_tls() {
            return Err(EarlyResponse::Redirect(https_location(head, &request, route)?));
        }
        if preflight.is_some() {
            return Err(EarlyResponse::Preflight);
        }
        check(head, route)?;
        Ok((index, route))
    }

    /// Whether the client uses TLS, to the gateway or to the trusted proxy before it.
    fn came_by_tls(self) -> bool {
        // Of several, the first concerns the client; a client that forged it would only spare itself the redirect.
        let said = self.head.fields.known(Name::XForwardedProto);
        let said = said.and_then(|value| value.split(|byte| *byte == b',').next());
        let says_https = said.is_some_and(|said| said.trim_ascii().eq_ignore_ascii_case(b"https"));
        self.peer.secure || (says_https && self.plan.server.client.trusts(self.peer.address))
    }
}

impl<'r> RouteLookup<'_, 'r> {
    /// The request as routes see it, if its path is valid.
    pub fn seen(&self) -> Option<&'r SeenRequest<'r>> {
        match &self.outcome {
            Ok(located) => Some(located.seen),
            Err(unroutable) => unroutable.seen,
        }
    }

    /// See `SeenRequest::routed_head`.
    #[inline]
    pub fn routed_head(&self) -> Option<RoutedHead> {
        self.seen()?.routed_head(self.route?.0)
    }
}

impl<'p, 'r> LocatedRequest<'p, 'r> {
    /// The request as routes and keys see it, without its consumer.
    pub fn request(&self) -> RouteRequest<'_> {
        self.seen.request()
    }

    /// The request with its destination, and without charges. `draw` is a random number, which picks one of several
    /// upstreams.
    ///
    /// # Errors
    ///
    /// The target that the route makes of its path is ambiguous.
    pub fn assign(
        self,
        plan: &'p Plan,
        caller: CallerIdentity<'p>,
        draw: u64,
    ) -> Result<RoutedRequest<'p, 'r>, RejectReason> {
        let mut request = RoutedRequest { caller, ..RoutedRequest::new(self) };
        request.assign(plan, draw)?;
        Ok(request)
    }
}

impl<'p, 'r> RoutedRequest<'p, 'r> {
    /// A request of which only the route is known.
    #[inline]
    pub(super) fn new(LocatedRequest { index, route, seen }: LocatedRequest<'p, 'r>) -> Self {
        Self {
            index,
            route,
            caller: CallerIdentity::default(),
            shadow_failure: None,
            charges: RequestCharges::default(),
            upstream: None,
            upstream_name: None,
            target: Cow::Borrowed(""),
            affinity: Affinity::default(),
            seen,
            content: seen.content,
        }
    }

    /// The request as routes and keys see it.
    pub fn request(&self) -> RouteRequest<'_> {
        let consumer = self.caller.consumer.map(|named| named.consumer);
        let upstream = self.upstream_name;
        RouteRequest { consumer, content: self.content, upstream, ..self.seen.request() }
    }

    /// The same as one call of a batch sees it.
    pub fn request_of_call(&self, call: u8) -> RouteRequest<'_> {
        let content = self.content.calls().get(usize::from(call)).unwrap_or(self.content);
        RouteRequest { content, ..self.request() }
    }

    /// Computes its charges to the limits that are `charged`. `calls`: each call of a batch is charged.
    #[inline]
    pub(super) fn charge(
        &mut self,
        plan: &'p Plan,
        secret: &KeySecret,
        calls: bool,
        charged: impl Fn(&Limit, &LimitUse) -> bool,
    ) {
        let Self { route, caller, charges, seen, content, upstream_name: upstream, .. } = self;
        let consumer = caller.consumer.map(|named| named.consumer);
        let request = RouteRequest { consumer, content, upstream: *upstream, ..seen.request() };
        charges.clear();
        if let (RequestContent::Batch(batch), BatchRule::Each, true) = (content, route.batch, calls) {
            return charges.add_calls(plan, route, (&request, batch), secret, charged);
        }
        // Built in place: they are large enough that moving them costs measurably.
        charges.add_limits(plan, route, &request, secret, charged);
    }

    /// Computes its charges to all limits of the route, and where it goes: to be told, and not to be decided.
    ///
    /// # Errors
    ///
    /// As [`LocatedRequest::assign`].
    pub fn explain(&mut self, plan: &'p Plan, secret: &KeySecret) -> Result<(), RejectReason> {
        let assigned = self.assign(plan, 0);
        self.charge(plan, secret, true, |_, _| true);
        assigned
    }

    /// Works out where the request goes. `draw` is a random number, which picks one of several upstreams; a request has
    /// one for its whole life.
    ///
    /// # Errors
    ///
    /// The target that the route makes of its path is ambiguous.
    #[inline]
    pub(super) fn assign(&mut self, plan: &'p Plan, draw: u64) -> Result<(), RejectReason> {
        let Self { route, seen, content, .. } = *self;
        let consumer = self.caller.consumer.map(|named| named.consumer);
        let request = RouteRequest { consumer, content, ..seen.request() };
        let upstream = match &route.action {
            RouteAction::Forward(upstream) => Some(*upstream),
            RouteAction::Split(split) => Some(split.choose(route.matched(&request), draw).0),
            RouteAction::Redirect(_) | RouteAction::Respond(_) | RouteAction::Decide => None,
        };
        self.upstream = upstream;
        self.upstream_name =
            upstream.filter(|_| route.counts_by_upstream).map(|index| &*plan.upstream(index).name);
        match (&route.action, upstream) {
            (_, Some(upstream)) => {
                let target = plan.forwarded_target((route, upstream), seen.head, &seen.path);
                self.target = target.map_err(|AmbiguousTarget| RejectReason::ambiguous_target())?;
                self.affinity = plan.upstream(upstream).affinity(&request, route);
            }
            (RouteAction::Redirect(redirect), None) => {
                let Conditions { path, merge_slashes, .. } = &route.conditions;
                let query = seen.head.target.query;
                // Another host gets no credential. A path on this host asks for it again.
                let query = match redirect.to.has_host() {
                    true => plan.forwarded_query(route, query),
                    false => query.map(Cow::Borrowed),
                };
                self.target = redirect.to.location(path, &seen.path, *merge_slashes, query.as_deref()).into();
            }
            _ => {}
        }
        Ok(())
    }

    /// Whether the client uses TLS, to the gateway or to the trusted proxy before it.
    pub fn is_secure(&self) -> bool {
        self.seen.secure
    }

    /// The request as services and logs see it.
    pub fn seen(&self) -> &'r SeenRequest<'r> {
        self.seen
    }

    /// Whether the client is identified.
    pub fn is_identified(&self) -> bool {
        self.seen.client.identified
    }

    /// Its head.
    pub fn head(&self) -> &RequestHead<'_> {
        self.seen.head
    }

    /// The Host for the backend, unless it is spelled so in the head: see [`SeenRequest::authority`].
    pub fn normal_authority(&self) -> Option<Box<str>> {
        match self.seen.authority() {
            Cow::Borrowed(_) => None,
            Cow::Owned(authority) => Some(authority.into()),
        }
    }
}

/// The authority that the request names. Empty if there is none.
fn authority_of<'r>(head: &RequestHead<'r>) -> &'r str {
    head.target.authority.or(head.host).unwrap_or_default()
}

/// The route's requirements for a request beyond its conditions.
fn check(head: &RequestHead<'_>, route: &Route) -> Result<(), RejectReason> {
    if !has_known_expectation(head) {
        return Err(RejectReason::new(417, "this expectation cannot be met", "expectation"));
    }
    match (route.max_body_bytes, head.body) {
        (Some(max), Body::Length(length)) if length > max => {
            Err(RejectReason::new(413, "the request body is too large", "body_too_large"))
        }
        _ => Ok(()),
    }
}
